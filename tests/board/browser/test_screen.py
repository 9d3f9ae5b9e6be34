"""What fits on screens of each size, and what the head shows about the board."""

from datetime import datetime, timedelta

import pytest
from tests.board.browser.counter import LISTEN, PLAIN, Counter
from tests.test_daemon import Till, until

from orderbridge_board import changes
from orderbridge_sandbox.scenery import KADIKOY

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

ACCEPT = ".card [data-do=accept]"
# Whether the whole element is visible, below the head and the lane's name.
WHOLE = """(all) => [...document.querySelectorAll(all)].filter((one) => {
  const { top, bottom, left, right } = one.getBoundingClientRect();
  return top >= document.querySelector("#top").getBoundingClientRect().bottom && bottom <= innerHeight
    && left >= 0 && right <= innerWidth;
}).length"""
WIDER = "() => document.documentElement.scrollWidth > innerWidth"
HIDDEN = """() => {
  const box = document.querySelector("dialog");
  return [box.scrollHeight > box.clientHeight, ...[...box.querySelectorAll("button")].filter((one) => {
    const { x, y, width, height } = one.getBoundingClientRect();
    return y < 0 || y + height > innerHeight || !one.contains(document.elementFromPoint(x + width / 2, y + height / 2));
  }).map((one) => one.textContent)];
}"""
AT_REST = "() => document.getAnimations().every((one) => one.effect.getTiming().iterations > 1)"
PAIR = [{"food_id": 1005, "name": "Kıymalı Pide", "price": 219.9}, {"food_id": 1006, "name": "Ayran", "price": 35}]
PLAIN_FOOD = {"id": "5b1c9b1e-0000-4000-8000-000000000001", "note": "", "quantity": 1, "option_groups": []}
FOODS = [PLAIN_FOOD | one | {"total": one["price"]} for one in PAIR]
SCREENS = ((1280, 800, ACCEPT), (1920, 1080, ACCEPT), (800, 480, ".card"), (360, 740, ".card"))
# For each kind of order: how many whole cards each of these screens shows.
KINDS = {"small ones": (PLAIN | {"foods": FOODS, "total": 254.9}, (6, 9, 2, 1)), "any": (None, (6, 9, 0, 0))}


@pytest.mark.parametrize("kind", KINDS)
async def test_many_orders_fit_on_each_screen(counter: Counter, kind: str):
    """As many of twelve orders as possible can be answered without scrolling. No page is wider than its screen."""
    document, least = KINDS[kind]
    for _ in range(12):
        counter.world.place_order(restaurant_id=KADIKOY, document=document)
    tablet = await counter.armed()
    await tablet.page.locator("#cards .card").nth(11).wait_for()
    for number, (width, height, what) in zip(least, SCREENS, strict=True):
        await tablet.page.set_viewport_size({"width": width, "height": height})
        await tablet.page.wait_for_function(AT_REST)
        assert await tablet.page.evaluate(WHOLE, what) >= number, (width, height)
        assert await tablet.page.evaluate(WHOLE, ACCEPT) > 0
        assert not await tablet.page.evaluate(WIDER), (width, height)


async def test_all_cancel_reasons_fit_on_a_small_screen(counter: Counter):
    tablet = await counter.armed(viewport={"width": 800, "height": 480})
    order = await counter.order()
    await tablet.tap(order, "cancel")
    choices = tablet.page.locator("dialog [data-do=choose]")
    assert await choices.count() > 5
    assert await tablet.page.evaluate(HIDDEN) == [False]
    await choices.last.click()
    await tablet.page.wait_for_selector("dialog [data-do=confirm]:enabled")
    assert await tablet.page.evaluate(HIDDEN) == [False]


async def test_the_header_shows_liveness_open_restaurants_and_sound(counter: Counter, till: Till, monkeypatch):
    monkeypatch.setattr(changes, "BEAT_S", 600.0)
    tablet = await counter.tablet("Tezgâh")
    other = await counter.tablet("Mutfak")
    await until(lambda: till.rows("SELECT id FROM delivery_restaurants WHERE status = 'Open'"))
    await counter.plant(
        "UPDATE delivery_restaurants SET status_since_utc = '2026-03-01 09:30:00', status_by = 'Mutfak'"
    )
    await tablet.page.add_init_script(LISTEN)
    await tablet.page.clock.install()
    await tablet.arm()
    await other.arm()
    await tablet.page.locator("#empty", has_text="Açık sipariş yok").wait_for()
    for seconds in (7, 9):  # the age grows as long as nothing is heard
        await tablet.page.clock.run_for(1000)
        live = tablet.page.locator("#pulse", has_text="canlı").filter(has_text="Açık")
        while int((await live.text_content() or "").split()[2]) < seconds:
            await tablet.page.clock.run_for(500)
    await tablet.page.locator("#alive", has_text="haber geldi").wait_for()
    assert (await tablet.page.locator("#clock").text_content() or "").count(":") == 1
    await tablet.page.clock.run_for(5_000)  # it reports again, and hears of the other
    await tablet.page.click("#panel")
    panel = tablet.page.locator("dialog .panel")
    await panel.filter(has_text="Açık: Örnek Lokanta Kadıköy (01.03. 12:30, Mutfak)").wait_for()
    await panel.filter(has_text="Mutfak, Tezgâh").wait_for()
    await tablet.page.evaluate("orderbridgeSound.suspend()")
    await tablet.page.clock.run_for(1_000)
    await tablet.page.evaluate("played.length = 0")
    await tablet.page.click("dialog [data-do=ring]")
    await tablet.page.wait_for_function("() => played.includes('triangle 880')")  # that of a new order
    await tablet.page.locator("#heard", has_text="açık").wait_for()


async def test_a_refused_connection_is_shown_at_once(counter: Counter):
    """The page's clock stands still, so it waits neither for a second nor for the silence that greys its cards."""
    tablet = await counter.armed(has_clock=True)
    order = await counter.order()
    await tablet.page.wait_for_selector(tablet.card(order))
    await tablet.page.wait_for_selector("#panel.live")
    await tablet.page.clock.pause_at(datetime.now().astimezone() + timedelta(seconds=5))
    await counter.stop()
    await tablet.page.locator("#panel.cut", has_text="yeniden bağlanıyor").wait_for()
    await tablet.page.locator("#bar.yellow", has_text="Bağlantı koptu, yeniden bağlanılıyor").wait_for()
