"""The watchdog in virtual time: it detects a hung writer, and ignores a marketplace that is down for hours."""

import asyncio
import re
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from tests.jobs.conftest import OpenShop
from tests.jobs.shop import FakeClock, Shop

from orderbridge import config, service
from orderbridge import daemon as module
from orderbridge.daemon import Daemon
from orderbridge.jobs import upkeep
from orderbridge.observe.liveness import Pulse
from orderbridge.store.database import Database
from orderbridge_sandbox import Fault

UNIT = (Path(__file__).parents[2] / "deploy" / "orderbridge.service").read_text("utf-8")
DOWN_S = 1500.0  # longer than each wait that grows (rules.tokens)
LOOK_S = 10.0  # what is overdue stays so until it is heard of, and nothing here is heard of so soon


def of_unit(key: str) -> float:
    return float(re.findall(rf"(?m)^{key}=(\d+)", UNIT)[0])


# ---- a writer that hangs ---------------------------------------------------------------------------------------------


async def found_after(hung_at: float, clock: FakeClock) -> float:
    """Seconds from when a thread of the database is not free again until the watchdog is fed for the last time."""

    async def hear() -> None:
        if clock.monotonic() >= hung_at:
            await asyncio.Event().wait()

    pulse = Pulse()
    daemon: Any = SimpleNamespace(
        pulse=pulse,
        _clock=clock,
        _settings=SimpleNamespace(database=config.Database()),
        database=SimpleNamespace(hear=hear),
    )
    hearing = asyncio.create_task(Daemon._hear_database(daemon))
    await asyncio.sleep(0)
    fed = clock.monotonic()
    while pulse.hung(clock.monotonic()) is None:
        fed = clock.monotonic()
        await asyncio.sleep(service.ALIVE_S)
    hearing.cancel()
    return fed - hung_at


@pytest.mark.parametrize("hung_at", [0.0, 0.1, 2.5, 4.9, 5.0, 61.7])
async def test_a_writer_that_hangs_is_killed_and_started_anew_within_a_minute(hung_at: float, clock: FakeClock):
    silent = await found_after(hung_at, clock)
    assert silent + of_unit("WatchdogSec") + of_unit("RestartSec") <= 60


# ---- a marketplace that is down --------------------------------------------------------------------------------------


class _OnTheSpot(ThreadPoolExecutor):
    """Another thread's time is not simulated."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


async def never(*_: object) -> None:
    await asyncio.Event().wait()


@pytest.fixture
def seldom(monkeypatch: pytest.MonkeyPatch, clock: FakeClock) -> None:
    """Looks that have no part in it cost the hours."""

    class Now:
        @staticmethod
        def now(zone: Any = None) -> datetime:
            return clock.now().astimezone(zone)

    for part in ("schedulers.base", "executors.base", "triggers.date"):
        monkeypatch.setattr(f"apscheduler.{part}.datetime", Now)
    monkeypatch.setattr(Database, "watch", never)
    monkeypatch.setattr(upkeep, "HEALTH_S", 300.0)
    monkeypatch.setattr(upkeep, "SWEEP_S", 3600.0)
    monkeypatch.setattr(module, "WATCH_S", 60.0)
    for part in ("outbox", "outbox_reader"):
        monkeypatch.setattr(f"orderbridge.jobs.{part}.FLOOR_S", 60.0)


def line_cut(shop: Shop) -> None:
    shop.line.cut = {"*"}


def errors(shop: Shop) -> None:
    shop.world.faults.add(Fault(operation="*", status=500, times=None))


def silence(shop: Shop) -> None:
    shop.world.faults.add(Fault.hang("*", times=None))


@pytest.mark.slow
async def test_a_marketplace_that_is_down_for_hours_is_no_reason_to_start_anew(
    open_shop: OpenShop, clock: FakeClock, seldom: None
):
    asyncio.get_running_loop().set_default_executor(_OnTheSpot())
    shop = await open_shop()
    daemon = Daemon(shop.settings, clock=clock, random=Random(0), wire=shop._wire, database=shop.database)
    running = asyncio.create_task(daemon.run())
    await asyncio.sleep(120)
    assert shop.calls("get_current")
    for down in (line_cut, errors, silence):
        shop.world.faults.clear()
        shop.line.cut = set()
        down(shop)
        until = clock.monotonic() + DOWN_S
        while clock.monotonic() < until:
            assert daemon.hung() is None
            await asyncio.sleep(LOOK_S)
        assert not daemon.report.readiness().is_ready
    shop.world.faults.clear()
    order = shop.place()
    while not order.acknowledged:
        assert clock.monotonic() < until + DOWN_S
        await asyncio.sleep(LOOK_S)
    daemon.stop()
    await running
