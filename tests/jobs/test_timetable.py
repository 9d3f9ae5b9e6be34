"""When jobs run: on time, one at a time, whatever their results and whatever happens to the wall clock."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError
from structlog.testing import capture_logs
from tests.jobs.shop import FakeClock

from orderbridge.errors import FileLost
from orderbridge.jobs.timetable import AFTER_FAULT_S, MIN_WAIT_S, SPARE_TIMES, Timetable
from orderbridge.observe.liveness import Pulse

HOURS = (3600.0, -7200.0, 3600.0)


@pytest.fixture
def database() -> SimpleNamespace:
    return SimpleNamespace(trouble=None)


@pytest.fixture
async def timetable(
    clock: FakeClock, database: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> AsyncIterator[Timetable]:
    """One that has started; at the end the scheduler must have had nothing to say."""
    now = SimpleNamespace(now=lambda zone: clock.now().astimezone(zone))
    for part in ("schedulers.base", "executors.base", "triggers.date"):
        monkeypatch.setattr(f"apscheduler.{part}.datetime", now)
    timetable = Timetable(clock, database, Pulse(), longest_s=lambda: 500.0)
    yield timetable
    timetable.close()
    assert [record.getMessage() for record in caplog.get_records("call") if record.name.startswith("apscheduler")] == []


class Calls:
    """A job that notes when it is called, and does what the test says."""

    def __init__(self, clock: FakeClock, *ends: object, takes: float = 0.0) -> None:
        self._clock = clock
        self._ends = iter(ends)
        self.takes = takes
        self.at: list[float] = []
        self.at_once = self.most_at_once = 0

    async def __call__(self) -> float | None:
        self.at.append(round(self._clock.monotonic(), 2))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(self.takes)
            end = next(self._ends, None)
            if isinstance(end, BaseException):
                raise end
            return end  # type: ignore[return-value]
        finally:
            self.at_once -= 1


@pytest.mark.parametrize(
    "wait, takes, again, calls",
    [(1.0, 2.0, 30.0, [1.0, 33.0, 65.0]), (0.0, 0.0, 0.0, [0.0, MIN_WAIT_S, 2 * MIN_WAIT_S])],
)
async def test_a_job_is_called_when_it_is_due_and_counts_from_its_end(
    wait: float, takes: float, again: float, calls: list[float], timetable: Timetable, clock: FakeClock
):
    job = Calls(clock, again, again, None, takes=takes)
    timetable.plan("poll", wait, job)
    timetable.start()
    await asyncio.sleep(300)
    assert job.at == calls


async def test_a_job_planned_again_runs_only_at_its_new_time(timetable: Timetable, clock: FakeClock):
    timetable.start()
    for wait, expected in ((5.0, 5.0), (60.0, 65.0)):  # sooner than it was, and later
        job = Calls(clock)
        timetable.plan("renew", 20.0, job)
        timetable.plan("renew", wait, job)
        await asyncio.sleep(wait + 30)
        assert [round(at) for at in job.at] == [expected if wait < 60 else 95.0]


async def test_a_job_runs_once_at_a_time(timetable: Timetable, clock: FakeClock):
    """What comes due while it runs is called at its end, and what it then returned is not asked."""
    job = Calls(clock, 1000.0, takes=10.0)
    timetable.start()
    timetable.plan("lists", 0.0, job)
    await asyncio.sleep(1)
    timetable.plan("lists", 2.0, job)
    await asyncio.sleep(60)
    assert (job.at, job.most_at_once) == ([0.0, 10.0], 1)


async def test_a_job_removed_while_it_runs_finishes_and_is_not_called_again(timetable: Timetable, clock: FakeClock):
    job, other = Calls(clock, 1.0, takes=10.0), Calls(clock)
    timetable.start()
    timetable.plan("poll", 0.0, job, vital=True)
    timetable.plan("lists", 5.0, other)
    await asyncio.sleep(1)
    timetable.remove("poll")
    timetable.remove("lists")
    timetable.remove("nobody")
    assert len(timetable.in_flight(vital=True)) == 1
    await asyncio.sleep(60)
    assert (job.at, other.at, timetable.in_flight(vital=True)) == ([0.0], [], set())


async def test_after_the_close_nothing_is_called(timetable: Timetable, clock: FakeClock):
    job = Calls(clock, 1.0, 1.0)
    timetable.start()
    timetable.plan("poll", 0.0, job)
    await asyncio.sleep(0.5)
    timetable.close()
    timetable.plan("lists", 0.0, job)
    await asyncio.sleep(60)
    assert job.at == [0.0]


async def test_a_job_that_is_due_during_the_close_is_not_logged(
    timetable: Timetable, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
):
    timetable.start()
    timetable.plan("poll", 0.0, Calls(clock))
    clock_now = clock.now() + timedelta(seconds=1)
    monkeypatch.setattr(clock, "now", lambda: clock_now)
    timetable._scheduler.wakeup()  # as its own timer does
    timetable.close()
    await asyncio.sleep(1)


# ---- errors ----------------------------------------------------------------------------------------------------------


def busy() -> OperationalError:
    return OperationalError("UPDATE", None, sqlite3.OperationalError("database is locked"))


async def told(timetable: Timetable, job: Calls) -> list[tuple[str, str]]:
    with capture_logs() as lines:
        timetable.start()
        timetable.plan("sweep", 0.0, job)
        await asyncio.sleep(300)
    return [(line["log_level"], line["event"]) for line in lines]


@pytest.mark.parametrize("error", [RuntimeError("a fault of ours"), asyncio.CancelledError()])
async def test_a_job_that_crashes_is_logged_and_called_again(
    error: BaseException, timetable: Timetable, clock: FakeClock
):
    job = Calls(clock, error, None)
    assert await told(timetable, job) == [("error", "job.crashed")]
    assert job.at == [0.0, AFTER_FAULT_S]


async def test_a_job_blocked_by_a_lock_is_logged_once(timetable: Timetable, clock: FakeClock):
    job = Calls(clock, busy(), busy(), busy(), 0.0, busy(), None)
    levels = [level for level, _ in await told(timetable, job)]
    assert levels == ["error", "debug", "debug", "error"]


async def test_an_error_of_the_whole_database_is_not_logged_for_each_job(
    timetable: Timetable, clock: FakeClock, database: Any
):
    database.trouble = "it is away"
    assert await told(timetable, Calls(clock, busy())) == [("debug", "job.database_failed")]


async def test_a_lost_file_ends_the_job_without_a_retry(timetable: Timetable, clock: FakeClock):
    job = Calls(clock, FileLost("gone"))
    assert await told(timetable, job) == []
    assert job.at == [0.0]


# ---- clocks ----------------------------------------------------------------------------------------------------------


async def watched(timetable: Timetable) -> None:
    while True:
        await asyncio.sleep(1.0)
        timetable.check_clock()


async def test_a_clock_change_delays_a_job_by_at_most_a_second_and_is_logged(timetable: Timetable, clock: FakeClock):
    job = Calls(clock, *[30.0] * 20)
    timetable.start()
    watch = asyncio.ensure_future(watched(timetable))
    timetable.plan("poll", 0.0, job)
    with capture_logs() as lines:
        for by in HOURS:
            await asyncio.sleep(59.5)
            clock.ahead += timedelta(seconds=by)
        await asyncio.sleep(60)
    watch.cancel()
    assert all(29.9 <= later - sooner <= 31.1 for sooner, later in zip(job.at, job.at[1:], strict=False))
    assert len(job.at) == 8
    assert [(line["event"], line["seconds"]) for line in lines] == [("clock.jumped", by) for by in HOURS]


async def test_a_loop_that_stood_still_drops_no_job(timetable: Timetable, clock: FakeClock):
    """A machine that slept: everything is due at once, also for the scheduler."""
    jobs = [Calls(clock, *[1.0] * 100) for _ in range(20)]
    timetable.start()
    for number, job in enumerate(jobs):
        timetable.plan(f"poll {number}", 0.1 * number, job)
    await asyncio.sleep(5)
    before = [len(job.at) for job in jobs]
    asyncio.get_running_loop()._virtual.time += 3600.0  # type: ignore[attr-defined]
    for _ in range(5):
        timetable.check_clock()
    await asyncio.sleep(5)
    assert all(len(job.at) >= calls + 3 for job, calls in zip(jobs, before, strict=True))


# ---- ten thousand ----------------------------------------------------------------------------------------------------


async def test_accounts_that_come_and_go_leave_nothing_behind(timetable: Timetable, clock: FakeClock):
    timetable.start()
    for turn in range(30):
        for number in range(100):
            timetable.plan(f"lists {number}", 86400.0, Calls(clock))
            if turn % 2:
                timetable.remove(f"lists {number}")
    assert len(timetable._heap) <= SPARE_TIMES + 1
