"""What fits on which glass, and what the head of the page shows of the board itself."""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta

import pytest
import pytest_asyncio
from tests.board.browser.counter import LISTEN, PLAIN, Browser, Counter, Tablet, opened
from tests.test_daemon import Till, certificates, sandbox, till, until, world

from orderbridge_board import changes
from orderbridge_sandbox import Sandbox
from orderbridge_sandbox.scenery import KADIKOY

__all__ = ["certificates", "sandbox", "till", "world"]

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

RUSH = 12
# All of it lies on the glass, below the head and the lane's name.
WHOLE = """(all) => [...document.querySelectorAll(all)].filter((one) => {
  const { top, bottom, left, right } = one.getBoundingClientRect();
  return top >= document.querySelector("#top").getBoundingClientRect().bottom && bottom <= innerHeight && left >= 0 && right <= innerWidth;
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
PAIR = [
    {"id": "5b1c9b1e-0000-4000-8000-000000000001", "food_id": 1005, "name": "Kıymalı Pide", "price": 219.9},
    {"id": "5b1c9b1e-0000-4000-8000-000000000002", "food_id": 1006, "name": "Ayran", "price": 35},
]
FOODS = [one | {"note": "", "quantity": 1, "total": one["price"], "option_groups": []} for one in PAIR]


@pytest_asyncio.fixture(loop_scope="session")
async def counter(sandbox: Sandbox, till: Till, chromium: Browser) -> AsyncIterator[Counter]:
    async with opened(sandbox, till, chromium) as counter:
        yield counter


async def rush(counter: Counter) -> Tablet:
    """Twelve orders of two lines, on a tablet that has come to rest."""
    document = PLAIN | {"foods": FOODS, "total": 254.9}
    for _ in range(RUSH):
        counter.world.place_order(restaurant_id=KADIKOY, document=document)
    tablet = await counter.tablet()
    await tablet.arm()
    await tablet.page.locator("#cards .card").nth(RUSH - 1).wait_for()
    return tablet


async def test_a_rush_fits_on_each_glass(counter: Counter):
    """Of twelve orders as many as can be are answered without scrolling; and no page is wider than its screen."""
    tablet = await rush(counter)
    for width, height, what, least in (
        (1280, 800, ".card [data-do=accept]", 6),
        (1920, 1080, ".card [data-do=accept]", 9),
        (800, 480, ".card", 2),
        (360, 740, ".card", 1),
    ):
        await tablet.page.set_viewport_size({"width": width, "height": height})
        await tablet.page.wait_for_function(AT_REST)
        assert await tablet.page.evaluate(WHOLE, what) >= least, (width, height)
        assert not await tablet.page.evaluate(WIDER), (width, height)


async def test_all_reasons_for_a_cancel_and_the_button_that_confirms_stand_on_a_small_glass(counter: Counter):
    tablet = await counter.tablet(viewport={"width": 800, "height": 480})
    await tablet.arm()
    order = await counter.order()
    await tablet.tap(order, "cancel")
    choices = tablet.page.locator("dialog [data-do=choose]")
    assert await choices.count() > 5
    assert await tablet.page.evaluate(HIDDEN) == [False]
    await choices.last.click()
    await tablet.page.wait_for_selector("dialog [data-do=confirm]:enabled")
    assert await tablet.page.evaluate(HIDDEN) == [False]


async def test_the_head_says_that_it_lives_who_is_open_and_who_can_be_heard(
    counter: Counter, till: Till, monkeypatch: pytest.MonkeyPatch
):
    """Also where no order is; and the sound is tried at a touch."""
    monkeypatch.setattr(changes, "BEAT_S", 600.0)
    tablet = await counter.tablet("Tezgâh")
    other = await counter.tablet("Mutfak")
    await until(lambda: till.rows("SELECT id FROM delivery_restaurants WHERE status = 'Open'"))
    change = "UPDATE delivery_restaurants SET status_since_utc = '2026-03-01 09:30:00.000000', status_by = 'Mutfak'"
    await asyncio.to_thread(till.plant, change)
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


async def test_a_connection_that_is_refused_is_said_at_once(counter: Counter):
    """With a clock that stands still: nothing waits for a second, let alone for the silence that makes cards grey."""
    tablet = await counter.tablet()
    await tablet.page.clock.install()
    await tablet.arm()
    order = await counter.order()
    await tablet.page.wait_for_selector(tablet.card(order))
    await tablet.page.wait_for_selector("#panel.live")
    await tablet.page.clock.pause_at(datetime.now().astimezone() + timedelta(seconds=5))
    await counter.stop()
    await tablet.page.locator("#panel.cut", has_text="yeniden bağlanıyor").wait_for()
    await tablet.page.locator("#bar.yellow", has_text="Bağlantı koptu, yeniden bağlanılıyor").wait_for()
