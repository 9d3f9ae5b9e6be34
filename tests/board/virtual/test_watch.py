"""The alarm that no tablet can be heard, the polls of a day as a picture, and no needless writes."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable

import pytest
from tests.jobs.shop import Shop

from orderbridge.clock import SystemClock
from orderbridge.daemon import RunningDaemon
from orderbridge.jobs.daemon_problems import DaemonProblems
from orderbridge.observe.metrics import POLLS, Metrics
from orderbridge.rules.problems import Code
from orderbridge_board import queries
from orderbridge_board.devices import ACT, Device
from orderbridge_board.watch import CHECK_S, HEARD_S, SURE_S, AudibleTablets, BoardWatch
from orderbridge_sandbox.scenery import KADIKOY

OpenShop = Callable[..., Awaitable[Shop]]
TABLET = Device("1", "Kasa", ACT, SystemClock().now())


def known_of(shop: Shop) -> DaemonProblems:
    return shop.context.own_problems


def watch_of(shop: Shop, known: DaemonProblems, metrics: Metrics | None = None) -> tuple[BoardWatch, AudibleTablets]:
    tablets = AudibleTablets(shop.clock.monotonic())
    daemon = RunningDaemon(
        settings=shop.settings, database=shop.database, clock=shop.clock, metrics=metrics or Metrics(),
        accounts=shop.accounts, timetable=None, own_problems=known, problems=known.problems, wake=lambda: None,
    )  # fmt: skip
    return BoardWatch(daemon, tablets), tablets


async def told_after(watch: BoardWatch, known: DaemonProblems) -> float:
    waited = 0.0
    await watch.check()
    while not known.has(Code.BOARD_UNHEARD):
        await asyncio.sleep(CHECK_S)
        waited += CHECK_S
        await watch.check()
    return waited


async def test_board_unheard_begins_within_15_s_and_ends_with_an_audible_tablet(shop: Shop):
    known = known_of(shop)
    watch, tablets = watch_of(shop, known)
    assert await told_after(watch, known) == SURE_S  # after a start tablets come back by themselves
    tablets.heard(TABLET, shop.clock.monotonic(), audible=True)
    await watch.check()
    assert not known.has(Code.BOARD_UNHEARD)
    tablets.heard(TABLET, shop.clock.monotonic(), audible=False)
    assert HEARD_S < await told_after(watch, known) <= 15


@pytest.mark.plays_daemon
async def test_a_closed_restaurant_needs_no_listener(shop: Shop):
    known = known_of(shop)
    watch, _ = watch_of(shop, known)
    shop.till.execute("INSERT INTO delivery_restaurants (id, account, name) VALUES (?, 'k', 'n')", (KADIKOY,))
    await asyncio.sleep(SURE_S)
    for status in ("Closed", "Open", "Closed"):
        shop.till.execute("UPDATE delivery_restaurants SET status = ?", (status,))
        await watch.check()
        assert known.has(Code.BOARD_UNHEARD) is (status == "Open")


async def test_polls_and_logins_are_kept_and_nothing_is_written_when_nothing_happened(shop: Shop):
    metrics = Metrics()
    metrics.know(shop.names)
    watch, _ = watch_of(shop, known_of(shop), metrics)
    await shop.poll()
    for result in ("ok", "ok", "service_failed"):
        metrics.count(POLLS, shop.names[0], result)
    for is_written in (True, False):
        before = version(shop.till)
        await watch.count()
        assert (version(shop.till) > before) == is_written
        (slot,) = shop.rows("SELECT account, polls, failed, logins FROM delivery_board_slots")
        assert tuple(slot.values()) == (shop.names[0], 3, 1, 1)
    await shop.database.run(lambda tx: queries.silence(tx, ["x"], "Kasa", shop.clock.now()))
    shop.clock.ahead += queries.SILENT * 1.1
    await watch.count()
    assert shop.count("delivery_board_silenced") == 0


def version(till: sqlite3.Connection) -> int:
    """A new version after each commit of another session."""
    return int(till.execute("PRAGMA data_version").fetchone()[0])
