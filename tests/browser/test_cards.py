"""What stands on a card, who can read and reach it, and what the other pages show."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
import pytest_asyncio
from tests.browser.counter import Browser, Counter, Tablet, opened
from tests.test_daemon import Till, certificates, sandbox, till, until, world

from orderbridge import daemon
from orderbridge.sandbox import Sandbox, World
from orderbridge.sandbox.scenery import KADIKOY
from orderbridge.sandbox.state import Order

__all__ = ["certificates", "sandbox", "till", "world"]

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

HOSTILE = "<img src=x onerror=alert(1)>"
OPTION = {"id": 511, "name": "Ekstra Kaşar", "price": 35.00}
FOOD = {
    "id": "5b1c9b1e-0000-4000-8000-000000000001",
    "food_id": 1005,
    "name": "Kıymalı Pide",
    "note": "Acısız",
    "price": 219.90,
    "quantity": 2,
    "total": 474.80,
    "option_groups": [{"id": 51, "name": "Ekstra", "type": "multi", "operation": "+", "options": OPTION}],
}
SMALL = """(least) => [...document.querySelectorAll("button, input, a")].filter((one) => one.offsetParent !== null).map((one) => {
  const { width, height } = one.getBoundingClientRect();
  return [one.id || one.dataset.do || one.type, width, height, one.classList.contains("big")];
}).filter(([, width, height, isBig]) => width < 48 || height < (isBig ? 72 : 48))"""
AXE = "() => axe.run(document, { resultTypes: ['violations'] }).then((found) => found.violations.map((one) => [one.id, one.nodes.map((node) => node.html)]))"


@pytest_asyncio.fixture(loop_scope="session")
async def counter(sandbox: Sandbox, till: Till, chromium: Browser) -> AsyncIterator[Counter]:
    async with opened(sandbox, till, chromium) as counter:
        yield counter


def paid(till: Till, order: Order, due: str | None) -> None:
    till.run("UPDATE delivery_orders SET amount_due = ? WHERE payment_key = ?", due, order.key)


async def test_a_card_says_all_that_a_kitchen_needs(counter: Counter, till: Till):
    """What to cook, what to collect, how long it has waited; and nothing that an order says is more than a text."""
    orders = [
        await counter.order(note=HOSTILE, foods=[FOOD], total=474.80, discount="0.00", courier_fee=0, order_tip=0),
        await counter.order(scheduled_date="2030-01-01 20:00:00"),
        await counter.order(courier_type="come_get", shipping_method="pickup"),
    ]
    for order, due in zip(orders, ("492.30", "0.00", None), strict=True):
        await asyncio.to_thread(paid, till, order, due)
    doubtful = "UPDATE delivery_orders SET problem = 'total_mismatch,item_strange' WHERE payment_key = ?"
    await asyncio.to_thread(till.run, doubtful, orders[0].key)
    tablet = await counter.tablet()
    await tablet.arm()
    first, second, third = (tablet.page.locator(tablet.card(order)) for order in orders)
    await first.locator(".money.collect", has_text="TAHSİL ET 492,30").wait_for()
    await second.locator(".money.paid", has_text="ÖDENDİ").wait_for()
    await third.locator(".money.ask", has_text="SORUN").wait_for()
    assert await first.locator("h2").text_content() == f"#{orders[0].number}"
    assert "Örnek Lokanta Kadıköy · Kendi kuryemiz" in (await first.locator(".facts").text_content() or "")
    assert "Gel al" in (await third.locator(".facts").text_content() or "")
    assert "İleri tarihli: 2030-01-01 20:00" in (await second.locator(".facts").text_content() or "")
    assert await first.locator(".items .what").all_text_contents() == ["2 × Kıymalı Pide"]
    assert await first.locator(".options li").all_text_contents() == ["Ekstra: Ekstra Kaşar"]
    assert await first.locator(".problem").count() == 2
    assert "Dikkat: tutarlar birbirini tutmuyor" in (await first.locator(".problem").first.text_content() or "")
    assert await first.locator(".note").text_content() == HOSTILE
    assert await tablet.page.locator(".card img").count() == 0
    looks = await tablet.page.evaluate(
        """() => ({
          bold: [...document.querySelectorAll(".note, .itemnote")].map((one) => Number(getComputedStyle(one).fontWeight)),
          in: document.querySelector(".options li").getBoundingClientRect().x - document.querySelector(".what").getBoundingClientRect().x,
        })"""
    )
    assert looks["in"] > 20
    assert min(looks["bold"]) >= 700
    assert tablet.complaints == []


async def test_how_long_an_order_waits_is_said_by_a_figure_a_word_and_a_colour(counter: Counter, till: Till):
    order = await counter.order()
    tablet = await counter.tablet()
    found: dict[str, set[str]] = {}
    for waited, word in ((5, "YENİ"), (40, "BEKLİYOR"), (100, "ACELE"), (200, "GECİKTİ"), (400, "ÇOK GECİKTİ")):
        then = f"{datetime.now(UTC) - timedelta(seconds=waited):%Y-%m-%d %H:%M:%S.%f}"
        await asyncio.to_thread(till.run, "UPDATE delivery_orders SET received_utc = ?", then)
        await tablet.arm()
        age = tablet.page.locator(f"{tablet.card(order)} .age", has_text=word)
        await age.wait_for()
        minutes, _, rest = (await age.text_content() or "").partition(" ")[0].partition(":")
        assert waited <= 60 * int(minutes) + int(rest) < waited + 20
        colour = await tablet.page.evaluate(
            "() => getComputedStyle(document.querySelector('.card > header')).backgroundColor"
        )
        found[colour] = {word}
    assert len(found) == 5
    await tablet.accept(order, 10)
    await tablet.page.locator(".age", has_text="dk kaldı").wait_for()
    late = f"{datetime.now(UTC) - timedelta(minutes=15):%Y-%m-%d %H:%M:%S.%f}"
    await asyncio.to_thread(till.run, "UPDATE delivery_actions SET finished_utc = ?", late)
    await tablet.arm()
    await tablet.page.locator(".age", has_text="dk GECİKTİ").wait_for()
    await tablet.hears("overdue")


async def test_a_cancelled_order_stays_until_a_hand_has_touched_it_and_a_customer_until_the_order_ends(
    counter: Counter, world: World
):
    order = await counter.order(
        customer={"name": "Deneme", "phone": "+905000000000"}, address={"address": "Lale Sokak"}
    )
    tablets = [await counter.tablet("Tezgâh"), await counter.tablet("Mutfak")]
    for tablet in tablets:
        await tablet.arm()
        await tablet.page.wait_for_selector(tablet.card(order))
        assert "+905000000000" not in await tablet.page.content()
    await tablets[0].tap(order, "customer")
    await tablets[0].page.locator("dialog", has_text="+905000000000").wait_for()
    assert "Lale Sokak" in await tablets[0].page.content()
    await asyncio.to_thread(world.cancel_by_customer, order.key)
    for tablet in tablets:
        await tablet.page.locator(f"{tablet.card(order)}.stop", has_text="DUR! İPTAL").wait_for()
        await tablet.hears("cancelled")
    await tablets[0].page.wait_for_selector("dialog", state="detached")
    assert "+905000000000" not in await tablets[0].page.content()
    await tablets[1].tap(order, "stop")
    for tablet in tablets:
        await tablet.page.locator(tablet.card(order)).wait_for(state="detached")
        await tablet.is_silent()


@pytest.mark.parametrize("mode", ["beside", "till"])
async def test_only_as_the_till_it_takes_orders_over(mode: str, sandbox: Sandbox, till: Till, chromium: Browser):
    async with opened(sandbox, till, chromium, mode) as counter:
        tablet = await counter.tablet()
        await tablet.arm()
        order = await counter.order()
        await tablet.accept(order)
        await tablet.shows(order, "tamam")
        row = await asyncio.to_thread(till.one, "SELECT revision, pos_revision, pos_reference FROM delivery_orders")
    assert (row["pos_revision"] > 0, row["pos_reference"]) == ((True, "board") if mode == "till" else (False, None))
    assert row["pos_revision"] <= row["revision"]


async def test_sold_out_and_closed_from_the_board(counter: Counter, till: Till, world: World):
    order = await counter.order(foods=[FOOD])
    tablet = await counter.tablet()
    await tablet.arm()
    await tablet.page.wait_for_selector(tablet.card(order))
    await tablet.page.click("#menu")
    food, shop = (tablet.page.locator(".row", has_text=name) for name in ("Kıymalı Pide", "Örnek Lokanta Kadıköy"))
    await shop.locator(".now", has_text="Açık").wait_for()
    await food.locator("button", has_text="Tükendi yap").click()
    await food.locator(".now", has_text="Tükendi").wait_for()
    assert await food.locator("button").text_content() == "Satışa aç"
    await shop.locator("button", has_text="Kapat").click()
    await shop.locator(".now", has_text="Kapalı").wait_for()
    assert KADIKOY not in world.open_restaurants
    rows = await asyncio.to_thread(till.rows, "SELECT action, state FROM delivery_actions ORDER BY id")
    assert [(row["action"], row["state"]) for row in rows] == [
        ("deactivate_food", "done"),
        ("close_restaurant", "done"),
    ]


async def test_the_technicians_page_says_what_status_says(
    counter: Counter, world: World, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(daemon, "HEALTH_S", 0.2)
    await counter.order()
    await counter.service._daemon._board.note()  # as every minute
    tablet = await counter.tablet()
    await tablet.open("status")
    await tablet.page.wait_for_selector(".strip rect.good", state="attached")
    assert await tablet.page.locator("figure svg rect.hour").count() >= 23
    world.refuse_account("kadikoy")
    await until(lambda: "login_refused" in counter.problems())
    await tablet.open("status")
    await tablet.page.wait_for_selector(".problem.severe")
    shown = {text.split()[0] for text in await tablet.page.locator(".problem h3").all_text_contents()}
    assert shown == counter.problems()
    assert await tablet.page.locator("#light.red").count() == 1
    assert await tablet.page.locator(".figure", has_text="Sipariş").first.locator("dd").text_content() == "1"
    assert tablet.complaints == []


async def test_everybody_can_read_and_reach_every_screen_in_both_languages(counter: Counter, till: Till, world: World):
    """axe finds nothing, what is tapped is large enough, and nothing comes from elsewhere."""
    from axe_playwright_python.base import AXE_FILE_PATH  # what carries axe-core

    stopped = await counter.order(note="Acele")
    await asyncio.to_thread(world.cancel_by_customer, stopped.key)
    accepted, order = await counter.order(), await counter.order(foods=[FOOD], note="Zil bozuk")
    await asyncio.to_thread(till.accept, accepted)
    tablet = await counter.tablet()
    await tablet.page.add_init_script(path=AXE_FILE_PATH)
    await tablet.open("status")
    await tablet.page.wait_for_selector("dl")
    await sound_in_both(tablet)
    await tablet.arm()
    await tablet.page.wait_for_selector(f"{tablet.card(stopped)}.stop")
    await sound_in_both(tablet)
    for what in ("accept", "cancel", "customer"):
        await tablet.tap(order, what)
        await tablet.page.wait_for_selector("dialog")
        await is_sound(tablet)
        await tablet.page.click("dialog [data-do=close]")
    await tablet.page.click("#menu")
    await tablet.page.wait_for_selector(".row")
    await sound_in_both(tablet)
    stranger = await counter.tablet()
    await stranger.page.context.clear_cookies()
    await stranger.page.add_init_script(path=AXE_FILE_PATH)
    await stranger.open()
    await stranger.page.wait_for_selector(".pairing")
    await sound_in_both(stranger)
    await stranger.page.fill("#code", await counter.code())
    await stranger.page.click(".pairing button[type=submit]")
    await stranger.page.wait_for_selector("#arm, #cards", state="attached")
    await is_sound(stranger)
    assert (tablet.complaints, [said for said in stranger.complaints if "401" not in said]) == ([], [])
    assert all(url.startswith(counter.address) for url in [*tablet.asked, *stranger.asked])


async def sound_in_both(tablet: Tablet) -> None:
    for language in ("tr", "en"):
        await tablet.page.wait_for_function("(lang) => document.documentElement.lang === lang", arg=language)
        await is_sound(tablet)
        await tablet.page.click("#language")


async def is_sound(tablet: Tablet) -> None:
    assert await tablet.page.evaluate(AXE) == []
    assert await tablet.page.evaluate(SMALL) == []
