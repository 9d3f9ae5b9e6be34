"""Repeated and misplaced taps have no effect, and what is important stays in sight."""

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.board.browser.counter import Counter, Route, Tablet

from orderbridge_sandbox import Fault, World
from orderbridge_sandbox.state import Order

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

ROWS = "SELECT action, state, reason_id FROM delivery_actions ORDER BY id"
TAKE = "UPDATE delivery_orders SET pos_revision = revision WHERE payment_key = ?"
ALIVE = "() => [...document.querySelectorAll('dialog button:not([disabled])')].map((one) => one.dataset.do)"
# The places of a card's buttons, from their upper left corner.
PLACES = """(card) => {
  const all = document.querySelector(`${card} .buttons`);
  const { x, y } = all.getBoundingClientRect();
  return Object.fromEntries([...all.querySelectorAll("button")].map((one) => {
    const box = one.getBoundingClientRect();
    return [one.dataset.do, [Math.round(box.x - x), Math.round(box.y - y)]];
  }));
}"""
HEAD = "(card) => getComputedStyle(document.querySelector(`${card} > header`)).backgroundColor"
IN_SIGHT = """(card) => {
  const { top, bottom } = document.querySelector(`${card} > header`).getBoundingClientRect();
  return top >= document.querySelector("#top").getBoundingClientRect().bottom && bottom <= innerHeight;
}"""
BAR = """() => {
  const [top, shown, mute] = ["#top", "#bar .text", "#mute"]
    .map((one) => document.querySelector(one).getBoundingClientRect());
  return { lines: Math.round(shown.height / parseFloat(getComputedStyle(document.querySelector("#bar")).lineHeight)),
    mute: [mute.width, mute.height],
    inside: mute.right <= innerWidth && mute.bottom <= top.bottom && mute.top >= top.top };
}"""
WRONG = {"subject": "", "since": None, "count": 1, "remedy": "Kasayı yeniden başlatın ve teknik desteği arayın. " * 4}


async def held(counter: Counter, order: Order) -> Tablet:
    """A tablet whose clock stands still until the test moves it."""
    tablet = await counter.armed(has_clock=True)
    await tablet.page.wait_for_selector(tablet.card(order))
    await tablet.page.clock.pause_at(datetime.now().astimezone() + timedelta(seconds=5))
    return tablet


async def twice(tablet: Tablet, selector: str) -> None:
    """Two taps at one place, the second on whatever is there by then."""
    at = await tablet.middle_of(selector)
    await tablet.page.mouse.click(*at)
    await tablet.page.wait_for_function("() => document.querySelector('dialog') || document.querySelector('.resting')")
    await tablet.page.mouse.click(*at)


@pytest.mark.parametrize("what", ["minutes", "cancel"])
async def test_a_dialog_ignores_touches_and_keys_for_a_moment(counter: Counter, what: str):
    order = await counter.order()
    tablet = await held(counter, order)
    await twice(tablet, f"{tablet.card(order)} [data-do={what}]")
    for key in ("Enter", "Escape", "Space"):
        await tablet.page.keyboard.press(key)
    await tablet.page.clock.run_for(590)
    assert await tablet.page.evaluate(ALIVE) == []
    assert await tablet.page.locator("dialog [aria-pressed=true]").count() == 0
    await tablet.page.clock.run_for(20)
    assert (set(await tablet.page.evaluate(ALIVE)), await counter.rows(ROWS)) == ({"choose", "close"}, [])


async def test_a_cancel_is_confirmed_at_another_place_and_a_double_tap_does_nothing_below(counter: Counter):
    order = await counter.order()
    tablet = await held(counter, order)
    await tablet.tap(order, "cancel")
    reasons = await counter.rows("SELECT reason FROM delivery_cancel_reasons ORDER BY id")
    choices = await tablet.page.locator("dialog [data-do=choose]").all_text_contents()
    assert choices == [row["reason"] for row in reasons]
    await tablet.page.clock.run_for(610)
    await twice(tablet, "dialog [data-do=choose] >> nth=2")
    confirm = tablet.page.locator("dialog [data-do=confirm]")
    assert await confirm.text_content() == f"#{order.number} iptal edilsin: Yoğunluk nedeniyle"
    assert await confirm.is_disabled()
    await tablet.page.clock.run_for(610)
    assert await counter.rows(ROWS) == []
    await tablet.page.click("dialog [data-do=close]")
    await tablet.page.mouse.click(*await tablet.middle_of("#menu"))
    assert await tablet.page.locator(".card").count() == 1  # the page below was not touched
    await tablet.page.clock.run_for(610)
    await tablet.tap(order, "cancel")
    await tablet.page.clock.run_for(610)
    await tablet.choose("Yoğunluk nedeniyle")
    await tablet.page.clock.run_for(610)
    await confirm.click()
    await tablet.page.locator(tablet.card(order)).wait_for(state="detached")
    assert [row["reason_id"] for row in await counter.rows(ROWS)] == [3]


async def test_each_button_has_its_own_place_and_one_tap_is_one_step(counter: Counter, world: World):
    order = await counter.order()
    tablet = await held(counter, order)
    card = tablet.card(order)
    while await tablet.page.evaluate("document.getAnimations().length"):  # the card slides in
        pass
    found = [await tablet.page.evaluate(PLACES, card)]
    world.faults.add(Fault.too_many("accept", times=None))
    await tablet.tap(order, "accept")
    # The button disappears while the row is being sent, so it is found and measured in one call.
    places = f"(card) => document.querySelector(`${{card}} [data-do=back]`) && ({PLACES})(card)"
    there = await tablet.page.wait_for_function(places, arg=card)
    found.append(await there.json_value())
    await tablet.page.clock.run_for(610)
    for key in ("1", "Enter"):  # these keys do the usual step, which a cancel is not
        await tablet.page.keyboard.press(key)
    assert await tablet.page.locator("dialog").count() == 0
    world.faults.clear()
    step = await tablet.page.wait_for_selector(f"{card} [data-do=on_the_way]")
    assert await step.get_attribute("aria-disabled")  # "accept" was there a moment ago
    found.append(await tablet.page.evaluate(PLACES, card))
    assert {kind for places in found for kind in places} == {"accept", "minutes", "cancel", "back", "on_the_way"}
    of_kind = {(kind, *place) for places in found for kind, place in places.items()}
    assert (len(of_kind), len({place[1:] for place in of_kind})) == (5, 3)  # each at one place; steps share theirs
    await tablet.page.clock.run_for(610)
    assert await tablet.page.locator(f"{card} [data-do=on_the_way]").is_enabled()


async def test_each_kind_of_waiting_has_its_own_words_and_colour(counter: Counter, world: World):
    tablet = await counter.armed()
    orders = [await counter.order() for _ in range(3)]
    waits, failed, at_till = orders
    world.faults.add(Fault.error("accept", 400, "invalid_status", "Bu sipariş kabul edilemez"))
    await tablet.accept(failed)
    await tablet.shows(failed, "KABUL ULAŞMADI")
    world.faults.add(Fault.too_many("accept", times=None))
    await tablet.accept(waits)
    await counter.run(TAKE, at_till.key)
    ages = {}
    for order, words in ((waits, "Kabul gönderiliyor…"), (failed, "KABUL ULAŞMADI"), (at_till, "Kasada, yanıt yok")):
        age = tablet.page.locator(f"{tablet.card(order)} .age", has_text=words)
        await age.wait_for()
        ages[words] = await age.text_content() or ""
    assert [message[0].isdigit() for message in ages.values()] == [False, True, True]  # since when its customer waits
    assert len({await tablet.page.evaluate(HEAD, tablet.card(order)) for order in orders}) == 3
    await tablet.page.locator(".call.fresh", has_text="YENİ 2").wait_for()
    world.faults.clear()


async def test_a_cancellation_is_announced_by_number_and_a_touch_shows_it(counter: Counter, world: World):
    tablet = await counter.armed()
    orders = [await counter.order() for _ in range(8)]
    await tablet.page.click("#menu")
    await tablet.page.locator(".call.fresh", has_text="YENİ 8").wait_for()
    await asyncio.to_thread(world.cancel_by_customer, orders[-1].key)
    call = tablet.page.locator(".call.stop", has_text=f"DUR! İPTAL#{orders[-1].number} Örnek Lokanta Kadıköy")
    await call.click()
    assert await tablet.page.evaluate(IN_SIGHT, tablet.card(orders[-1]))
    assert await tablet.page.locator(f"{tablet.card(orders[-1])} .whose").text_content() == "Örnek Lokanta Kadıköy"
    await tablet.tap(orders[-1], "stop")
    await call.wait_for(state="detached")


async def test_the_worst_problem_has_two_lines_a_mute_button_and_its_whole_text_at_a_touch(counter: Counter):
    tablet = await counter.tablet()
    await tablet.page.route("**/board/state*", worse)
    await tablet.arm()
    bar = tablet.page.locator("#bar.red", has_text="Platform girişi kabul etmiyor.")
    for size in ({"width": 1280, "height": 800}, {"width": 360, "height": 740}):
        await tablet.page.set_viewport_size(size)
        await bar.wait_for()
        measured = await tablet.page.evaluate(BAR)
        assert (measured["lines"] <= 2, min(measured["mute"]) >= 48, measured["inside"]) == (True,) * 3, measured
    assert await tablet.page.locator("#bar .more").text_content() == "+2", "without board_unheard: its sound is on"
    await bar.click()
    shown = [await one.inner_text() for one in await tablet.page.locator("dialog section").all()]
    assert [text.split(".")[0] for text in shown] == ["Platform girişi kabul etmiyor", "Disk dolu", "Sertifika bitiyor"]
    assert all(WRONG["remedy"].strip() in text for text in shown)
    await tablet.choose("Kapat")
    await tablet.page.unroute_all(behavior="ignoreErrors")


async def worse(route: Route) -> None:
    """The state with more problems, a warning first."""
    answer = await route.fetch()
    data: dict[str, Any] = await answer.json()
    causes = {
        "certificate_ends": "Sertifika bitiyor.",
        "database_full": "Disk dolu.",
        "board_unheard": "Kimse duymuyor.",
    }
    causes["login_refused"] = "Giriş yok."
    wrong = [
        WRONG | {"code": code, "severity": "severe", "cause": cause, "link": None} for code, cause in causes.items()
    ]
    wrong[0]["severity"] = "warning"
    wrong[-1] |= {"link": "login", "sounds": True, "silence": "problem:login_refused"}
    data["problems"] = wrong
    await route.fulfill(response=answer, json=data)
