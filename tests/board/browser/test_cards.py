"""The contents of a card, whether they can be read and reached, and the other pages."""

import asyncio
import re
from datetime import UTC, datetime, timedelta

import pytest
from tests.board.browser.counter import Counter, Tablet
from tests.test_daemon import Till, until

from orderbridge_sandbox import Fault, World
from orderbridge_sandbox.scenery import KADIKOY
from orderbridge_sandbox.state import Order

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

HOSTILE = "<img src=x onerror=alert(1)>"
OPTION = {"id": 511, "name": "Ekstra Kaşar", "price": 35.00}
FOOD = {
    "id": "5b1c9b1e-0000-4000-8000-000000000001", "food_id": 1005, "name": "Kıymalı Pide", "note": "Acısız",
    "price": 219.90, "quantity": 2, "total": 474.80,
    "option_groups": [{"id": 51, "name": "Ekstra", "type": "multi", "operation": "+", "options": OPTION}],
}  # fmt: skip
# Elements that are too small to touch, or too small for their text.
WET = "#arm, .pairing [type=submit], .card .buttons button, dialog button, .row button"
SMALL = """(wet) => [...document.querySelectorAll("button, input, a, .card h3, .age span, #bar, .money")]
  .filter((one) => one.checkVisibility()).map((one) => {
  const { width, height } = one.getBoundingClientRect();
  const least = !one.matches("button, input, a") ? 0 : one.matches(wet) ? 72 : 48;
  const isCut = one.scrollWidth > one.clientWidth + 1 || one.scrollHeight > one.clientHeight + 1;
  return width < Math.min(least, 48) || height < least || isCut ? [one.outerHTML, width, height, isCut] : null;
}).concat([document.documentElement.scrollWidth > innerWidth ? ["wider than the screen"] : null]).filter(Boolean)"""
SIZES = ({"width": 360, "height": 740}, {"width": 1280, "height": 900})
AGES = (5, 40, 100, 200, 4000)
# A browser that plays no sound before a touch, as all do outside of tests, over plain HTTP: without a wake lock.
UNTOUCHED = """
let isTouched = false;
addEventListener("click", (event) => { isTouched ||= Boolean(event.target.closest?.("#arm")); }, true);
Object.defineProperty(AudioContext.prototype, "state", { get: () => isTouched ? "running" : "suspended" });
delete Navigator.prototype.wakeLock;
"""
REACH = """(card) => [card.offsetHeight, [...card.querySelectorAll("*")]
  .filter((one) => one.scrollWidth > one.clientWidth + 1 && one.clientWidth).map((one) => one.className),
  Math.max(...[...card.querySelectorAll("button")].map((one) => one.getBoundingClientRect().bottom))]"""
# How far an option is indented, and how bold each note is.
STYLE = """() => [
  document.querySelector(".options li").getBoundingClientRect().x
    - document.querySelector(".what").getBoundingClientRect().x,
  ...[...document.querySelectorAll(".note, .itemnote")].map((one) => Number(getComputedStyle(one).fontWeight))]"""
GROUND = "(what) => getComputedStyle(document.querySelector(what)).backgroundColor"
PARTS = "() => [...document.querySelector('.card').children].map((one) => one.className || one.tagName)"
AT_REST = """() => !document.querySelector("button[aria-disabled=true]")
  && document.getAnimations().every((one) => one.effect.getTiming().iterations > 1)"""
AXE = """() => axe.run(document, { resultTypes: ["violations"] })
  .then((found) => found.violations.map((one) => [one.id, one.nodes.map((node) => node.html)]))"""


def ago(seconds: int) -> str:
    return f"{datetime.now(UTC) - timedelta(seconds=seconds):%Y-%m-%d %H:%M:%S.%f}"


async def test_a_card_says_all_that_a_kitchen_needs(counter: Counter):
    """What to cook, what to collect, how long it has waited. The texts of an order are shown as text, not as HTML."""
    plain = {"total": 474.80, "discount": "0.00", "courier_fee": 0, "order_tip": 0}
    pickup = {"courier_type": "come_get", "shipping_method": "pickup", "total": 285, "order_tip": 10}
    pickup["payment_method"] = "Sodexo Yemek Çeki"
    scheduled = {"scheduled_date": "2030-01-01 20:00:00", "courier_type": ""}
    orders = [await counter.order(**one) for one in ({"note": HOSTILE, "foods": [FOOD]} | plain, scheduled, pickup)]
    for order, due in zip(orders, ("492.30", "0.00", None), strict=True):
        await counter.plant("UPDATE delivery_orders SET amount_due = ? WHERE payment_key = ?", due, order.key)
    doubtful = "UPDATE delivery_orders SET problem = 'total_mismatch,item_strange' WHERE payment_key = ?"
    await counter.plant(doubtful, orders[0].key)
    tablet = await counter.armed()
    first, second, third = (tablet.page.locator(tablet.card(order)) for order in orders)
    await first.locator(".money.collect", has_text="TAHSİL ET 492,30 ₺").wait_for()
    await second.locator(".money.paid", has_text="ÖDENDİ").wait_for()
    await third.locator(".money.ask", has_text="MÜŞTERİYE SOR 285,00 ₺ Sodexo Yemek Çeki").wait_for()
    assert await tablet.page.get_by_text("Bahşiş").count() == 0  # it is unknown whether the amount includes it
    assert await first.locator("h3").text_content() == f"#{orders[0].number}"
    assert "Kendi kuryemiz" in (await first.locator(".money").text_content() or "")
    assert await third.locator(".tag").all_text_contents() == ["GEL AL"]
    assert await second.locator(".tag").all_text_contents() == ["01.01. 20:00"]
    assert "kurye" not in (await second.text_content() or "").lower()  # the courier is unknown
    assert await first.locator(".items .what").all_text_contents() == ["2 × Kıymalı Pide"]
    assert await first.locator(".options li").all_text_contents() == ["Ekstra: Ekstra Kaşar"]
    assert await first.locator(".problem").count() == 2
    assert "Dikkat: tutarlar birbirini tutmuyor" in (await first.locator(".problem").first.text_content() or "")
    assert (await first.locator(".note").text_content(), await tablet.page.locator(".card img").count()) == (HOSTILE, 0)
    indent, *weights = await tablet.page.evaluate(STYLE)
    assert indent > 20 and min(weights) >= 700 and tablet.complaints == []


async def test_long_orders_are_readable_and_their_buttons_reachable(counter: Counter):
    """A card with a hundred items, or a very long word, is taller than the screen. Its buttons are at its top."""
    foods = [FOOD | {"id": f"5b1c9b1e-0000-4000-8000-{place:012}", "name": "Ş" * 200} for place in range(100)]
    order = await counter.order(foods=foods, total=47480, discount="0.00", courier_fee=0, order_tip=0)
    tablet = await counter.armed()
    card = tablet.page.locator(tablet.card(order))
    await card.wait_for()
    await tablet.page.wait_for_function(AT_REST)
    tall, cut, lowest = await card.evaluate(REACH)
    assert tall > 10 * 900 and cut == [] and lowest <= 900
    await tablet.accept(order)
    await tablet.shows(order, "Kabul (25 dk): tamam")


async def test_how_long_an_order_waits_is_shown_by_a_figure_a_word_and_a_colour(counter: Counter):
    order = await counter.order()
    tablet = await counter.tablet()
    colours = set()
    for waited, word in ((5, "YENİ"), (40, "BEKLİYOR"), (100, "ACELE"), (200, "GECİKTİ"), (400, "ÇOK GECİKTİ")):
        await counter.plant("UPDATE delivery_orders SET received_utc = ?", ago(waited))
        await tablet.arm()
        age = tablet.page.locator(f"{tablet.card(order)} .age", has_text=word)
        await age.wait_for()
        minutes, _, rest = (await age.text_content() or "").partition(" ")[0].partition(":")
        assert waited <= 60 * int(minutes) + int(rest) < waited + 20
        colours.add(await tablet.page.evaluate(GROUND, ".card > header"))
    assert len(colours) == 5
    await tablet.accept(order, 10)
    await tablet.page.locator(".age", has_text="dk kalan süre").wait_for()
    await counter.plant("UPDATE delivery_actions SET finished_utc = ?", ago(15 * 60))
    await tablet.arm()
    await tablet.page.locator(".age", has_text="dk GECİKTİ").wait_for()
    await tablet.hears("overdue")


async def test_a_cancelled_order_stays_until_touched_and_a_customer_until_the_order_ends(counter, world):
    customer = {"name": "Deneme", "phone": "+905000000000"}
    order = await counter.order(customer=customer, address={"address": "Lale Sokak"})
    tablets = [await counter.armed("Tezgâh"), await counter.armed("Mutfak")]
    for tablet in tablets:
        await tablet.page.wait_for_selector(tablet.card(order))
        assert "+905000000000" not in await tablet.page.content()
    await tablets[0].tap(order, "more")
    await tablets[0].page.locator("dialog", has_text="+905000000000").wait_for()
    assert "Lale Sokak" in await tablets[0].page.content()
    await asyncio.to_thread(world.cancel_by_customer, order.key)
    for tablet in tablets:
        await tablet.page.locator(f"{tablet.card(order)}.stop", has_text="DUR! İPTAL").wait_for()
        # which kitchen has to stop, and nothing to collect
        assert await tablet.page.evaluate(PARTS) == ["HEADER", "tags", "items", "facts", "buttons"]
        await tablet.hears("cancelled")
    await tablets[0].page.wait_for_selector("dialog", state="detached")
    assert "+905000000000" not in await tablets[0].page.content()
    await tablets[1].tap(order, "stop")
    for tablet in tablets:
        await tablet.page.locator(tablet.card(order)).wait_for(state="detached")
        await tablet.is_silent()


async def test_sold_out_and_closed_from_the_board(counter: Counter, world: World):
    order = await counter.order(foods=[FOOD])
    tablet = await counter.armed()
    await tablet.page.wait_for_selector(tablet.card(order))
    await tablet.page.click("#menu")
    food, shop = (tablet.page.locator(".row", has_text=name) for name in ("Kıymalı Pide", "Örnek Lokanta Kadıköy"))
    await shop.locator(".now", has_text="Açık").wait_for()
    await tablet.page.locator("h3.category", has_text="Pideler").wait_for()  # the menu was read
    await food.locator("button", has_text="Tükendi yap").click()
    await tablet.choose("Süresiz")
    await food.locator(".now", has_text=re.compile("^Tükendi$")).wait_for()
    assert await food.locator("button").text_content() == "Satışa aç"
    await shop.locator("button", has_text="Restoranı siparişe kapat").click()
    await tablet.choose("Vazgeç")
    await shop.locator("button", has_text="Restoranı siparişe kapat").click()
    await tablet.choose("30 dk")
    await tablet.choose("Örnek Lokanta Kadıköy: siparişe kapatılsın (30 dk)")
    ends = re.compile(r"^Kapalı, bitiş [0-9]{2}:[0-9]{2}$|^Kapalı, bitiş .* 00:[0-2]")
    await shop.locator(".now", has_text=ends).wait_for()
    assert KADIKOY not in world.open_restaurants
    closed = tablet.page.locator(".call.shut", has_text="KAPALIÖrnek Lokanta Kadıköy")
    await tablet.page.click("#menu")
    await tablet.page.wait_for_selector(tablet.card(order))
    await closed.click()
    await shop.locator("button", has_text="Restoranı siparişe aç").click()
    await closed.wait_for(state="detached")
    rows = await counter.rows("SELECT action, state, valid_until_minutes AS minutes FROM delivery_actions ORDER BY id")
    assert [row["action"] for row in rows] == ["deactivate_food", "close_restaurant", "open_restaurant"]
    assert [(row["state"], row["minutes"]) for row in rows] == [("done", None), ("done", 30), ("done", None)]


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_every_screen_is_readable_in_both_languages(scheme: str, counter: Counter, till: Till, world: World):
    """axe finds no fault, buttons are large enough, no text is cut off, and nothing is loaded from elsewhere."""
    from axe_playwright_python.base import AXE_FILE_PATH  # what carries axe-core

    order = await all_kinds(counter, till, world)
    tablet = await counter.tablet(color_scheme=scheme)
    await tablet.page.add_init_script(path=AXE_FILE_PATH)
    await tablet.open("status")
    await tablet.page.wait_for_selector("dl")
    await sound_in_both(tablet)
    await tablet.arm()
    await tablet.page.locator("#cards .card").nth(len(AGES) + 3).wait_for()
    await sound_in_both(tablet)
    assert await tablet.page.locator(".card.wide").count() == 1
    widths = await tablet.page.evaluate("() => [...document.querySelectorAll('.card')].map((one) => one.offsetWidth)")
    assert max(widths) > 2 * min(widths)
    for what in ("minutes", "cancel", "more"):
        await tablet.tap(order, what)
        await tablet.page.wait_for_selector("dialog")
        await is_sound(tablet)
        await tablet.page.click("dialog [data-do=close]")
    assert await tablet.page.locator("#awake").is_hidden()
    await tablet.page.click("#menu")
    await tablet.page.wait_for_selector(".row")
    await sound_in_both(tablet)
    assert tablet.complaints == []
    grounds = {"light": "rgb(238, 240, 238)", "dark": "rgb(16, 19, 21)"}
    assert await tablet.page.evaluate(GROUND, "body") == grounds[scheme]
    await a_stranger_can(counter, tablet, AXE_FILE_PATH, scheme)


async def all_kinds(counter: Counter, till: Till, world: World) -> Order:
    """One order of each age, and one each that is cancelled, accepted, on its way and refused."""
    away = await counter.order()
    change = "UPDATE delivery_orders SET status_id = 16, status = 'IN_DELIVERY' WHERE payment_key = ?"
    await counter.plant(change, away.key)
    stopped = await counter.order(note="Acele")
    await asyncio.to_thread(world.cancel_by_customer, stopped.key)
    accepted, refused = await counter.order(foods=[FOOD]), await counter.order(scheduled_date="2030-01-01 20:00:00")
    world.faults.add(Fault.error("accept", 400, "invalid_status", "Bu sipariş kabul edilemez"))
    rows = [await asyncio.to_thread(till.accept, refused)]
    await until(lambda: till.state(rows[0]) == "refused")
    rows.append(await asyncio.to_thread(till.accept, accepted))
    await until(lambda: till.state(rows[1]) == "done")
    for waited, due in zip(AGES, ("492.30", "0.00", None, "1.00", "12345.00"), strict=True):
        order = await counter.order(foods=[FOOD] * (9 if due is None else 1), note="Zil bozuk")
        change = "UPDATE delivery_orders SET received_utc = ?, amount_due = ? WHERE payment_key = ?"
        await counter.plant(change, ago(waited), due, order.key)
    return order


async def a_stranger_can(counter: Counter, tablet: Tablet, axe: str, scheme: str) -> None:
    """Pair a tablet, and turn the sound on. The language that was chosen stays."""
    stranger = await counter.tablet(color_scheme=scheme)
    await stranger.page.context.clear_cookies()
    await stranger.page.add_init_script(path=axe)
    await stranger.page.add_init_script(UNTOUCHED)
    await stranger.open()
    await stranger.page.wait_for_selector(".pairing")
    await sound_in_both(stranger)
    await stranger.page.fill("#code", "1")
    await stranger.page.click(".pairing button[type=submit]")
    await stranger.page.locator(".pairing .error", has_text="Kod yanlış").wait_for()
    await is_sound(stranger)
    await stranger.page.click("#language")
    await stranger.page.fill("#code", await counter.code())
    await stranger.page.click(".pairing button[type=submit]")
    await stranger.page.locator("#arm", has_text="Turn the sound on").wait_for()
    await stranger.page.reload()
    await stranger.page.locator("#arm", has_text="Turn the sound on").wait_for()
    assert "This connection cannot keep the screen on" in (await stranger.page.locator("#arm").text_content() or "")
    await is_sound(stranger)
    await stranger.page.click("#arm")
    await stranger.page.locator("#awake", has_text="This connection cannot keep the screen on").wait_for()
    assert [message for message in stranger.complaints if not any(code in message for code in ("401", "403"))] == []
    assert all(url.startswith(counter.address) for url in [*tablet.asked, *stranger.asked])


async def sound_in_both(tablet: Tablet) -> None:
    for language in ("tr", "en"):
        await tablet.page.wait_for_function("(lang) => document.documentElement.lang === lang", arg=language)
        await is_sound(tablet)
        await tablet.page.click("#language")


async def is_sound(tablet: Tablet) -> None:
    await tablet.page.wait_for_function(AT_REST)
    assert await tablet.page.evaluate(AXE) == []
    for size in SIZES:
        await tablet.page.set_viewport_size(size)
        await tablet.page.wait_for_function(AT_REST)
        assert await tablet.page.evaluate(SMALL, WET) == []
