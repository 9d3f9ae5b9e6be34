"""What a tablet shows while the connection is lost, and after it is restored."""

import asyncio
from datetime import UTC, datetime, timedelta
from random import Random
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy.exc import OperationalError
from tests.board.browser.counter import Counter, Tablet
from tests.test_daemon import UNTIL_CLEARED_S, WITHIN_S, until

from orderbridge.jobs import upkeep
from orderbridge_board import changes
from orderbridge_sandbox import Fault, Sandbox, World

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

ZONE = ZoneInfo("Europe/Istanbul")
BEATS = """
globalThis.beats = 0;
const listen = EventSource.prototype.addEventListener;
EventSource.prototype.addEventListener = function (name, hear) {
  return listen.call(this, name, (event) => { hear(event); if (name === "beat") beats += 1; });
};
"""
CUTS = 20
STEP_MS = 500  # by the page's own clock
SHOWN = """() => [...document.querySelectorAll(".card:not(.gone)")].map((card) => [
  card.dataset.key, card.querySelector("h3").textContent, card.querySelectorAll(".items > li").length,
  card.classList.contains("stop"),
]).sort()"""
TABLES = """
SELECT payment_key, '#' || order_number AS number,
  (SELECT count(*) FROM delivery_order_items AS item WHERE item.payment_key = o.payment_key) AS items,
  status = 'CANCELED' AS is_stopped
FROM delivery_orders AS o WHERE o.ended_by IS NULL OR o.ended_by = 'cancelled'
"""


async def test_a_page_without_a_sign_of_life_shows_it_and_sounds(counter: Counter, monkeypatch: pytest.MonkeyPatch):
    """It does so 25 seconds after the last sign. When the connection is back, all is as before."""
    assert changes.BEAT_S <= 10.0
    monkeypatch.setattr(changes, "BEAT_S", 0.2)
    tablet = await counter.armed(script=BEATS, has_clock=True)
    order = await counter.order()
    await tablet.hears("new")
    await tablet.accept(order)
    await tablet.is_silent()
    moments = [datetime.now(ZONE)]
    rounds = 0
    # With a beat in between, 20 s are too short for a warning. A round counts only if no state was fetched meanwhile.
    while rounds < 3:
        taken = asked_for(tablet, "/board/state")
        await tablet.page.evaluate("beats = 0")
        await tablet.page.wait_for_function("() => beats > 1")
        await tablet.page.clock.fast_forward(20_000)
        assert not await is_grey(tablet)
        rounds = rounds + 1 if asked_for(tablet, "/board/state") == taken else 0
    assert opened_streams(tablet) == 1  # so the connection was never lost, not even for a moment
    await counter.stop()
    moments.append(datetime.now(ZONE))
    await tablet.page.clock.fast_forward(600_000)  # ten minutes, so that the shown time is not the present one
    await tablet.page.locator("#bar.red", has_text="Tablet bilgisayara ulaşamıyor").wait_for()
    message = await tablet.page.locator("#bar").text_content() or ""
    assert any(f"Gösterilen: saat {moment:%H:%M}" in message for moment in moments)
    assert await is_grey(tablet)
    assert await tablet.page.evaluate("getComputedStyle(document.querySelector('.card')).filter") == "grayscale(1)"
    await tablet.hears("line")
    await counter.start()
    await until_fresh(tablet)
    await tablet.is_silent()


async def test_a_change_without_an_event_is_seen_with_the_next_beat(counter: Counter, monkeypatch: pytest.MonkeyPatch):
    async def beat(*_: object) -> bool:
        await asyncio.sleep(0.1)
        return False

    monkeypatch.setattr(changes.Stream, "_news", beat)
    tablet = await counter.armed(script=BEATS)
    await tablet.page.wait_for_function("() => beats > 1")  # the events of the new connection are over
    order = await counter.order()
    await tablet.hears("new")
    await tablet.page.wait_for_selector(tablet.card(order))


async def is_grey(tablet: Tablet) -> bool:
    return "stale" in (await tablet.page.get_attribute("body", "class") or "")


async def until_fresh(tablet: Tablet) -> None:
    while await is_grey(tablet):
        await tablet.page.clock.run_for(STEP_MS)


async def test_a_stream_that_was_cut_silently_is_opened_again(counter: Counter, monkeypatch: pytest.MonkeyPatch):
    """A router that has forgotten the connection gives no error, so the page does not wait for one."""
    monkeypatch.setattr(changes, "BEAT_S", UNTIL_CLEARED_S)  # it stays open and silent
    tablet = await counter.armed(has_clock=True)
    await until(lambda: opened_streams(tablet) == 1)
    await tablet.page.clock.fast_forward(26_000)
    await until(lambda: opened_streams(tablet) == 2)
    await until_fresh(tablet)


def asked_for(tablet: Tablet, path: str) -> int:
    return sum(url.partition("?")[0].endswith(path) for url in tablet.asked)


def opened_streams(tablet: Tablet) -> int:
    return asked_for(tablet, "/board/stream")


async def test_a_clock_set_back_does_not_hide_an_outdated_page(counter: Counter):
    tablet = await counter.armed(has_clock=True)
    order = await counter.order()
    age = tablet.page.locator(f"{tablet.card(order)} .age", has_text="YENİ")
    await age.wait_for()
    for days in (-1, 1):
        await tablet.page.clock.set_system_time(datetime.now(UTC) + timedelta(days=days))
        await tablet.page.clock.run_for(2_000)
        await age.wait_for()
        await until_fresh(tablet)
    await counter.stop()
    await tablet.page.clock.set_system_time(datetime.now(UTC) - timedelta(days=1))
    await tablet.page.clock.fast_forward(26_000)
    assert await is_grey(tablet)


async def test_an_unreadable_state_is_shown_as_outdated_despite_heartbeats(counter: Counter, monkeypatch):
    monkeypatch.setattr(changes, "BEAT_S", 0.1)
    tablet = await counter.armed(has_clock=True)
    monkeypatch.setattr(counter.daemon.database, "read", fails)
    await tablet.page.locator("#bar.red", has_text="Veritabanı yanıt vermiyor").wait_for()
    assert not await is_grey(tablet)
    await tablet.page.clock.fast_forward(26_000)
    assert await is_grey(tablet)
    monkeypatch.undo()
    await until_fresh(tablet)
    await tablet.page.locator("#bar.red").wait_for(state="hidden")


async def fails(*_: object, **__: object) -> None:
    raise OperationalError("", {}, Exception())


async def test_the_broken_link_is_named(counter: Counter, sandbox: Sandbox, world: World, monkeypatch):
    monkeypatch.setattr(upkeep, "HEALTH_S", 0.2)
    tablet = await counter.armed()
    bar = tablet.page.locator("#bar")
    world.faults.add(Fault(operation="get_current", status=500, times=None))
    await bar.filter(has_text="Platformdan sipariş alınamıyor.").wait_for()
    world.faults.clear()
    await bar.filter(has_text="Platformdan sipariş alınamıyor.").wait_for(state="hidden")
    order = await counter.order()
    await tablet.accept(order)
    await tablet.shows(order, "tamam")
    await counter.plant("UPDATE delivery_orders SET received_utc = ?", "2026-01-01 00:00:00.000000")
    await bar.filter(has_text="Kasa siparişleri okumuyor.").wait_for()
    await counter.run("UPDATE delivery_orders SET pos_revision = revision")
    await asyncio.to_thread(sandbox.stop)
    await bar.filter(has_text="İnternet ya da platform hattı kopuk.").wait_for()


async def test_after_each_cut_the_page_equals_the_tables(counter: Counter):
    """The page reads whole states, so it also shows what it missed while the line was cut."""
    chance = Random(12)
    tablet = await counter.armed(has_clock=True)
    for number in range(CUTS):
        await cut(counter, chance, number)
        async with asyncio.timeout(WITHIN_S):
            while await tablet.page.evaluate(SHOWN) != sorted([*row.values()] for row in await counter.rows(TABLES)):
                await tablet.page.clock.run_for(STEP_MS)
    assert tablet.complaints == []


async def cut(counter: Counter, chance: Random, number: int) -> None:
    """Cut the line in one of several ways, while orders come and go."""
    if number % 7 == 6:
        await counter.stop()
        placed = counter.world.place_order(restaurant_id="11111111-1111-4111-8111-111111111111")
        await counter.start()
        await until(lambda: placed.acknowledged)
        return
    server = counter.service._listening._server
    for connection in [*server.streams, *(server.opened if chance.random() < 0.5 else ())]:
        connection.transport.abort()
    placed = await counter.order()
    if chance.random() < 0.5:
        await asyncio.to_thread(counter.world.cancel_by_customer, placed.key)
