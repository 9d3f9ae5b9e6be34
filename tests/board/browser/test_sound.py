"""Which sounds play, on which tablet and until when, and the alarm if no tablet has its sound on."""

import asyncio

import pytest
from tests.board.browser.conftest import FLAGS
from tests.board.browser.counter import ALERTS, CHROMIUM, LISTEN, Counter, async_playwright
from tests.test_daemon import until

from orderbridge.jobs import upkeep
from orderbridge_board import changes, watch

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

LATE = "UPDATE delivery_actions SET finished_utc = '2020-01-01 00:00:00.000000' WHERE action = 'accept'"
# Playwright's evaluate would count as a touch, so the page logs its state.
TELL = """setInterval(() => {
  console.log(globalThis.orderbridgeSound?.state(), document.querySelector("#arm, #cards")?.id);
}, 300)"""
HIDE = """(state) => {
  Object.defineProperty(document, "visibilityState", { configurable: true, get: () => state });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


async def test_a_new_order_rings_everywhere_until_it_is_taken(counter: Counter):
    """When the till or one tablet takes the order, both tablets become silent."""
    assert changes.POLL_S <= 0.5  # so that it takes less than a second
    tablets = [await counter.armed(name, script=ALERTS) for name in ("Tezgâh", "Mutfak")]
    for tablet in tablets:
        await tablet.is_silent()
    order = await counter.order()
    for tablet in tablets:
        await tablet.hears("new")
        assert await tablet.page.evaluate("orderbridgeSound.state()") == "running"
    await counter.run("UPDATE delivery_orders SET pos_revision = revision WHERE payment_key = ?", order.key)
    for tablet in tablets:
        await tablet.is_silent()
    other = await counter.order()
    for tablet in tablets:
        await tablet.hears("new")
    await tablets[0].accept(other)
    for tablet in tablets:
        await tablet.is_silent()
        await tablet.shows(other, "Kabul (25 dk): tamam")
        for _ in range(2):  # draws all cards again, twice
            await tablet.page.click("#language")
        said = [f"Yeni sipariş {one.number}" for one in (order, other)]
        assert await tablet.page.evaluate("alerts") == said, "once an order, however often it is painted"
        assert tablet.complaints == []


async def test_four_distinct_sounds(counter: Counter, world, monkeypatch):
    monkeypatch.setattr(upkeep, "HEALTH_S", 0.2)
    tablet = await counter.armed(script=LISTEN)
    heard: dict[str, set[str]] = {}

    async def hear(name: str) -> None:
        await tablet.page.wait_for_function("(name) => orderbridgeSound.sounding().join() === name", arg=name)
        await tablet.page.evaluate("played.length = 0")
        await tablet.page.wait_for_function("() => played.length > 1")
        await tablet.hears(name)
        heard[name] = set(await tablet.page.evaluate("played"))

    order = await counter.order()
    await hear("new")
    await asyncio.to_thread(world.cancel_by_customer, order.key)
    await hear("cancelled")
    await tablet.tap(order, "stop")
    await tablet.is_silent()
    other = await counter.order()
    await tablet.accept(other)
    await tablet.shows(other, "tamam")
    await counter.plant(LATE)
    await tablet.page.reload()
    await tablet.arm()
    await hear("overdue")
    await tablet.tap(other, "seen")
    await tablet.is_silent()
    world.refuse_account("kadikoy")
    await hear("line")
    assert len(heard) == 4
    assert not any(one & two for one in heard.values() for two in heard.values() if one is not two)
    await tablet.page.locator("#bar.red", has_text="Platform girişi kabul etmiyor").wait_for()
    await tablet.page.click("#mute")
    await tablet.is_silent()


async def test_the_sound_needs_one_touch_or_the_flag(counter: Counter):
    tablet = await counter.tablet()
    await tablet.page.add_init_script(TELL)
    await tablet.open()
    await until(lambda: tablet.printed.count("suspended arm") > 4)  # 1.5 s: longer than it tries by itself
    assert "running arm" not in tablet.printed
    await tablet.page.mouse.click(640, 450)
    await until(lambda: tablet.printed[-1] == "running cards")
    await counter.order()
    await tablet.hears("new")
    async with async_playwright() as playwright:
        flag = "--autoplay-policy=no-user-gesture-required"
        kiosk = await playwright.chromium.launch(executable_path=CHROMIUM, args=[*FLAGS, flag])
        untouched = await counter.tablet("Kiosk", kiosk)
        await untouched.open()
        await untouched.hears("new")
        assert await untouched.page.locator("#arm").count() == 0
        await kiosk.close()


async def test_a_muted_tablet_shows_it_and_the_daemon_reports_it(counter: Counter, monkeypatch):
    assert watch.HEARD_S + watch.CHECK_S <= 15.0
    monkeypatch.setattr(upkeep, "HEALTH_S", 0.2)
    monkeypatch.setattr(watch, "HEARD_S", 6.0)  # a tablet reports itself every 5 s
    tablet = await counter.armed()
    counter.service.extensions["board"].audible_tablets._sure_from = 0.0
    bar = tablet.page.locator("#bar.red", has_text="SES KAPALI")
    for deafen, mend in (("orderbridgeSound.suspend()", None), (f"({HIDE})('hidden')", f"({HIDE})('visible')")):
        await until(lambda: "board_unheard" not in counter.problems())
        await tablet.page.evaluate(deafen)
        await bar.wait_for()
        await until(lambda: "board_unheard" in counter.problems())
        if mend is None:
            await bar.click()
        else:
            await tablet.page.evaluate(mend)
        await bar.wait_for(state="hidden")
    await until(lambda: "board_unheard" not in counter.problems())
