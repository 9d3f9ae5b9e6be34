"""When jobs run: on time, one at a time, whatever their results and whatever happens to the wall clock."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs
from tests.jobs.shop import FakeClock, database_error

from orderbridge.errors import FileLost
from orderbridge.jobs.timetable import AFTER_FAULT_S, MIN_WAIT_S, SPARE_TIMES, Timetable
from orderbridge.observe.liveness import Pulse
from orderbridge.observe.metrics import Metrics

HOURS = (3600.0, -7200.0, 3600.0)
CRASHED, LOCKED = [("error", "job.crashed")], database_error()
ONCE = [(level, "job.database_failed") for level in ("error", "debug", "debug", "error")]


@pytest.fixture
def database() -> SimpleNamespace:
    return SimpleNamespace(trouble=None)


@pytest.fixture
async def timetable(clock, database, monkeypatch, caplog) -> AsyncIterator[Timetable]:
    """A started timetable, whose scheduler must not have logged anything at the end."""
    now = SimpleNamespace(now=lambda zone: clock.now().astimezone(zone))
    for part in ("schedulers.base", "executors.base", "triggers.date"):
        monkeypatch.setattr(f"apscheduler.{part}.datetime", now)
    timetable = Timetable(clock, database, Pulse(), longest_s=lambda: 500.0, metrics=Metrics())
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


@pytest.mark.parametrize("wait, takes, again, calls", [
    (1.0, 2.0, 30.0, [1.0, 33.0, 65.0]), (0.0, 0.0, 0.0, [0.0, MIN_WAIT_S, 2 * MIN_WAIT_S]),
])  # fmt: skip
async def test_a_job_is_called_when_it_is_due_and_counts_from_its_end(wait, takes, again, calls, timetable, clock):
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
    """If it becomes due while it runs, it runs again at its end, whatever it returned."""
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


async def test_a_job_that_is_due_during_the_close_is_not_logged(timetable, clock, monkeypatch):
    timetable.start()
    timetable.plan("poll", 0.0, Calls(clock))
    clock_now = clock.now() + timedelta(seconds=1)
    monkeypatch.setattr(clock, "now", lambda: clock_now)
    timetable._scheduler.wakeup()  # as its own timer does
    timetable.close()
    await asyncio.sleep(1)


async def told(timetable: Timetable, job: Calls) -> list[tuple[str, str]]:
    with capture_logs() as lines:
        timetable.start()
        timetable.plan("sweep", 0.0, job)
        await asyncio.sleep(300)
    return [(line["log_level"], line["event"]) for line in lines]


@pytest.mark.parametrize("ends, trouble, logged, calls", [
    ([RuntimeError("a fault of ours"), None], None, CRASHED, [0.0, AFTER_FAULT_S]),
    ([asyncio.CancelledError(), None], None, CRASHED, [0.0, AFTER_FAULT_S]),
    ([LOCKED, LOCKED, LOCKED, 0.0, LOCKED, None], None, ONCE, None),
    ([LOCKED], "it is away", ONCE[1:2], None),  # which is not logged for each job
    ([FileLost("gone")], None, [], [0.0]),
], ids=["a crash", "cancelled", "a lock: once", "the whole database is away", "a lost file: no retry"])  # fmt: skip
async def test_a_job_that_fails_is_logged_and_called_again(ends, trouble, logged, calls, timetable, clock, database):
    database.trouble = trouble
    job = Calls(clock, *ends)
    assert await told(timetable, job) == logged
    assert calls is None or job.at == calls


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


async def test_accounts_that_come_and_go_leave_nothing_behind(timetable: Timetable, clock: FakeClock):
    timetable.start()
    for turn in range(30):
        for number in range(100):
            timetable.plan(f"lists {number}", 86400.0, Calls(clock))
            if turn % 2:
                timetable.remove(f"lists {number}")
    assert len(timetable._heap) <= SPARE_TIMES + 1
