"""Runs each job when it is due, with a heap of due times and a single APScheduler job for the earliest of them.

APScheduler does not hold all jobs itself, because it scans all of them at each change (ten thousand accounts have forty
thousand jobs), and because it waits by the wall clock, which can be set.

- A job returns the seconds until its next run. A fixed interval would count from the start of a run, so that a poll
  would drift into the cooldown.
- A job runs once at a time. If it is due while it runs, it runs again afterwards, so that an account that leaves and
  comes back is not polled twice at once.
- A job that raises is logged and scheduled again. Database errors are logged once until the job succeeds; trouble of
  the whole database is logged elsewhere, and a lost file ends the daemon.
- Due times use the monotonic clock. `check_clock`, called every second, corrects APScheduler's date after the wall
  clock was set, so a job is at most one second late.
- The APScheduler job only starts tasks, so misfires and overlaps cannot occur. Its date is modified instead of adding a
  job each time, which would cost more than running it.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from heapq import heapify, heappop, heappush

import structlog
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.base import BaseTrigger
from sqlalchemy.exc import DBAPIError

from orderbridge.clock import Clock, wall_ahead
from orderbridge.errors import Over
from orderbridge.observe.liveness import Pulse
from orderbridge.observe.metrics import POLL_LATE_SECONDS, Metrics
from orderbridge.store.database import Database
from orderbridge.store.failures import remedy

AFTER_FAULT_S = 5.0  # until the next run of a job that raised
LATE_S = 120.0  # a vital job that is later than this counts as hung
MIN_WAIT_S = 0.02  # between two wake-ups; jobs that are due within it run together
ROUNDED_S = 0.001  # added to a date, which has whole microseconds, so that it is not too early
CLOCK_JUMP_S = 2.0
CLOCK_TOLERANCE_S = 0.05  # tolerated change of the wall clock against the monotonic one
UNARMED = timedelta(days=1)  # until the date is set
SPARE_TIMES = 100  # stale entries in the heap, in addition to the number of jobs

Job = Callable[[], Awaitable[float | None]]  # returns the seconds until its next run; None: no more runs

_log = structlog.get_logger(__name__)


class _WhenDue(BaseTrigger):  # type: ignore[misc]
    """A trigger without dates of its own: the timetable sets them."""

    def get_next_fire_time(self, _: datetime | None, now: datetime) -> datetime:
        return now + UNARMED


@dataclass(slots=True, order=True)
class _Entry:
    """A waiting job. The heap compares due times alone."""

    due: float
    name: str = field(compare=False)
    job: Job = field(compare=False)
    vital: bool = field(compare=False)


@dataclass(slots=True)
class _Run:
    """A running job. `stays`: it was not removed meanwhile."""

    task: asyncio.Task[None]
    vital: bool
    stays: bool = True


class Timetable:
    """All jobs, when each is due, and which run."""

    def __init__(
        self,
        clock: Clock,
        database: Database,
        pulse: Pulse,
        *,
        longest_s: Callable[[], float],
        metrics: Metrics,
    ) -> None:
        """`pulse` watches the vital jobs: one is hung if it starts too late or runs longer than `longest_s`."""
        self._metrics = metrics
        self._clock = clock
        self._database = database
        self._pulse = pulse
        self._longest_s = longest_s
        self._entries: dict[str, _Entry] = {}
        self._heap: list[_Entry] = []  # all entries and some stale ones
        self._running: dict[str, _Run] = {}
        self._failed: set[str] = set()  # jobs whose last run had a database error
        self._is_closed = False
        self._woke = self._next_wake = -math.inf
        self._ahead = self._armed_ahead = 0.0
        self._scheduler = AsyncIOScheduler(
            timezone="UTC", job_defaults={"misfire_grace_time": None, "coalesce": True, "max_instances": 100}
        )

    def start(self) -> None:
        """Begin to run jobs."""
        self._ahead = wall_ahead(self._clock)
        self._scheduler.start()
        self._scheduler.add_job(self._run_due, _WhenDue(), id="due")
        self._arm_anew()

    def plan(self, name: str, wait_s: float, job: Job, *, vital: bool = False) -> None:
        """Schedule `job`, replacing a waiting one of this name.

        `vital`: the pulse watches it, and a stop waits for it.
        """
        if self._is_closed:
            return
        entry = _Entry(self._clock.monotonic() + wait_s, name, job, vital)
        self._entries[name] = entry
        heappush(self._heap, entry)
        if vital:
            self._pulse.expect(name, entry.due + LATE_S)
        if len(self._heap) > 2 * len(self._entries) + SPARE_TIMES:
            self._heap = [*self._entries.values()]
            heapify(self._heap)
        self._arm()

    def remove(self, name: str) -> None:
        """Remove a job. A run under way continues."""
        self._entries.pop(name, None)
        self._failed.discard(name)
        self._pulse.excuse(name)
        if (run := self._running.get(name)) is not None:
            run.stays = False

    def runs_of(self, names: Iterable[str]) -> set[asyncio.Task[None]]:
        """The running tasks of these jobs."""
        return {self._running[name].task for name in names if name in self._running}

    def in_flight(self, *, vital: bool) -> set[asyncio.Task[None]]:
        """The running tasks of vital jobs, or of the others."""
        return {run.task for run in self._running.values() if run.vital is vital}

    def close(self) -> None:
        """Start no more jobs. Running ones are left to the caller."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._scheduler.running:
            self._scheduler.remove_all_jobs()  # else it may start a due job, cancel it and log a traceback
            self._scheduler.shutdown(wait=False)

    # ---- the one job of the scheduler --------------------------------------------------------------------------------

    def check_clock(self) -> None:
        """Correct the wake-up after the wall clock was set. Call this every second."""
        ahead = wall_ahead(self._clock)
        if abs(ahead - self._armed_ahead) > CLOCK_TOLERANCE_S:
            self._arm_anew()
        if abs(jumped := ahead - self._ahead) > CLOCK_JUMP_S:
            _log.warning("clock.jumped", seconds=round(jumped, 1))
            self._ahead += jumped

    def _arm_anew(self) -> None:
        self._next_wake = math.inf
        self._arm()

    def _arm(self) -> None:
        """Set the wake-up to the first due time, unless an earlier one is set."""
        if not self._heap or not self._scheduler.running:
            return
        wake = max(self._heap[0].due, self._woke + MIN_WAIT_S)
        if wake < self._next_wake:
            self._next_wake = wake
            self._armed_ahead = wall_ahead(self._clock)
            run_date = self._clock.now() + timedelta(seconds=wake - self._clock.monotonic() + ROUNDED_S)
            self._scheduler.modify_job("due", next_run_time=run_date)

    async def _run_due(self) -> None:
        """Start the due jobs. This never waits."""
        if self._is_closed:
            return
        self._woke = self._clock.monotonic()
        while self._heap and self._heap[0].due <= self._woke:
            entry = heappop(self._heap)
            if self._entries.get(entry.name) is entry and entry.name not in self._running:
                del self._entries[entry.name]
                self._running[entry.name] = _Run(asyncio.create_task(self._run(entry)), entry.vital)
                if entry.vital:
                    self._pulse.expect(entry.name, self._woke + self._longest_s())
                    self._metrics.observe(POLL_LATE_SECONDS, self._woke - entry.due)
        self._arm_anew()

    # ---- one run of a job --------------------------------------------------------------------------------------------

    async def _run(self, entry: _Entry) -> None:
        wait: float | None = AFTER_FAULT_S
        try:
            wait = await entry.job()
            self._failed.discard(entry.name)
        except Over:
            wait = None  # logged elsewhere; the daemon ends
        except DBAPIError as error:
            log = _log.debug if entry.name in self._failed or self._database.trouble else _log.error
            self._failed.add(entry.name)
            log("job.database_failed", job=entry.name, error=type(error.orig).__name__, remedy=remedy(error))
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - logged; the job is rescheduled
            if not self._is_closed:  # else the next start runs it again
                _log.error("job.crashed", job=entry.name, exc_info=error)
        finally:
            self._finish(entry, wait)

    def _finish(self, entry: _Entry, wait: float | None) -> None:
        run = self._running.pop(entry.name)
        if not run.stays:
            self._failed.discard(entry.name)
        if (waiting := self._entries.get(entry.name)) is not None:  # it may be due already
            heappush(self._heap, waiting)
            self._arm()
        elif run.stays and wait is not None:
            self.plan(entry.name, max(wait, MIN_WAIT_S), entry.job, vital=entry.vital)
