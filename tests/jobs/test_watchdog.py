"""The watchdog in virtual time: it detects a hung writer. tests/deploy/test_liveness.py has the rest."""

import asyncio
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.jobs.shop import FakeClock

from orderbridge import config, service
from orderbridge.daemon import START_S, Daemon
from orderbridge.observe.liveness import Pulse

UNIT = (Path(__file__).parents[2] / "deploy" / "orderbridge.service").read_text("utf-8")


def of_unit(key: str) -> float:
    return float(re.findall(rf"(?m)^{key}=(\d+)", UNIT)[0])


async def found_after(hung_at: float, clock: FakeClock) -> float:
    """Seconds from when a thread of the database hangs until the watchdog is fed for the last time."""

    async def never() -> None:
        if clock.monotonic() >= hung_at:
            await asyncio.Event().wait()

    pulse = Pulse()
    settings, database = SimpleNamespace(database=config.Database()), SimpleNamespace(wait_until_free=never)
    daemon = SimpleNamespace(pulse=pulse, _clock=clock, _settings=settings, database=database)
    hearing = asyncio.create_task(Daemon._check_threads(daemon))
    await asyncio.sleep(0)
    fed = clock.monotonic()
    while pulse.hung(clock.monotonic()) is None:
        fed = clock.monotonic()
        await asyncio.sleep(service.ALIVE_S)
    hearing.cancel()
    return fed - hung_at


@pytest.mark.parametrize("hung_at", [0.0, 0.1, 2.5, 4.9, 5.0, 61.7])
async def test_a_hanging_writer_is_killed_and_restarted_within_a_minute(hung_at: float, clock: FakeClock):
    assert await found_after(hung_at, clock) + of_unit("WatchdogSec") + of_unit("RestartSec") <= 60
    assert START_S + of_unit("WatchdogSec") < of_unit("TimeoutStartSec")  # until READY it is not yet watched
