"""Runs each job when it is due. One APScheduler job is set to the earliest due time of a heap.

APScheduler does not hold each job itself: ten thousand accounts have forty thousand jobs that come and go, and it goes
through all of them at each change; and it waits by the wall clock, which can be set.

- A job returns the seconds until its next run. An interval would count from the start of a run, and a poll would drift
  into the cooldown.
- A job of one name runs once at a time. What comes due meanwhile runs when it has ended, so an account that leaves and
  comes back is not polled twice at once.
- An error costs one run: it is logged, and the job runs again. Errors of the database are logged once until the job
  succeeds; one that concerns the whole database is not logged here, and a lost file ends the daemon elsewhere.
- Due times are those of the monotonic clock. `check_clock`, called every second, sets APScheduler's date anew after the
  wall clock was set, so a clock that is set delays a job by a second at most.
- The APScheduler job only starts tasks and returns at once, so misfires and overlapping runs cannot occur. It stays, and
  its date is modified: to add a job costs more than to run it.
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

from orderbridge.clock import Clock
from orderbridge.errors import Over
from orderbridge.observe.liveness import Pulse
from orderbridge.observe.metrics import POLL_LATE_SECONDS, Metrics
from orderbridge.store.database import Database
from orderbridge.store.failures import remedy

AFTER_FAULT_S = 5.0  # a job that ended in an error is called again
LATE_S = 120.0  # after its time: what is vital hangs
LEAST_WAIT_S = 0.02  # between two wake-ups: jobs that are due closer together run together
ROUNDED_S = 0.001  # a date has whole microseconds: a wake-up just before the time would be one too many
CLOCK_JUMP_S = 2.0
CLOCK_PLAY_S = 0.05  # by which the wall clock may differ from what it was when the wait began
UNARMED = timedelta(days=1)  # the next date until a wake-up has set it
SPARE_TIMES = 100  # stale entries that the heap may hold, beside as many as there are jobs

Job = Callable[[], Awaitable[float | None]]  # returns the seconds until it is called again; None: not again

_log = structlog.get_logger(__name__)


class _WhenDue(BaseTrigger):  # type: ignore[misc]
    """The timetable sets the date."""

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
    """A running job. `stays`: it has not left meanwhile."""

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
        metrics: Metrics | None = None,
    ) -> None:
        """`pulse` follows the vital jobs: one hangs that does not start in time, or runs for longer than `longest_s`."""
        self._metrics = metrics or Metrics()
        self._clock = clock
        self._database = database
        self._pulse = pulse
        self._longest_s = longest_s
        self._entries: dict[str, _Entry] = {}
        self._heap: list[_Entry] = []  # all entries, and stale ones
        self._running: dict[str, _Run] = {}
        self._failed: set[str] = set()  # jobs whose last run ended in an error of the database
        self._is_closed = False
        self._woke = self._next_wake = -math.inf
        self._ahead = self._armed_ahead = 0.0
        self._scheduler = AsyncIOScheduler(
            timezone="UTC", job_defaults={"misfire_grace_time": None, "coalesce": True, "max_instances": 100}
        )

    def start(self) -> None:
        """From now on what is due runs."""
        self._ahead = self._wall_ahead()
        self._scheduler.start()
        self._scheduler.add_job(self._run_due, _WhenDue(), id="due")
        self._arm_anew()

    def plan(self, name: str, wait_s: float, job: Job, *, vital: bool = False) -> None:
        """Call `job` in so many seconds, in place of what waits under this name.

        `vital`: it has to keep moving, and a stop waits for its end.
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

    def leave(self, name: str) -> None:
        """Do not run it again; a run that is under way goes on to its end."""
        self._entries.pop(name, None)
        self._failed.discard(name)
        self._pulse.excuse(name)
        if (run := self._running.get(name)) is not None:
            run.stays = False

    def runs_of(self, names: Iterable[str]) -> set[asyncio.Task[None]]:
        """Their runs that are under way."""
        return {self._running[name].task for name in names if name in self._running}

    def in_flight(self, *, vital: bool) -> set[asyncio.Task[None]]:
        """The runs that a stop waits for, or the others."""
        return {run.task for run in self._running.values() if run.vital is vital}

    def close(self) -> None:
        """Start nothing more. What runs is left to the caller."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._scheduler.running:
            self._scheduler.remove_all_jobs()  # it would start one that is due now, cancel it and log a traceback
            self._scheduler.shutdown(wait=False)

    # ---- the one job of the scheduler --------------------------------------------------------------------------------

    def check_clock(self) -> None:
        """To be called every second: after the wall clock was set, wait anew."""
        ahead = self._wall_ahead()
        if abs(ahead - self._armed_ahead) > CLOCK_PLAY_S:
            self._arm_anew()
        if abs(jumped := ahead - self._ahead) > CLOCK_JUMP_S:
            _log.warning("clock.jumped", seconds=round(jumped, 1))
            self._ahead += jumped

    def _wall_ahead(self) -> float:
        return self._clock.now().timestamp() - self._clock.monotonic()

    def _arm_anew(self) -> None:
        self._next_wake = math.inf
        self._arm()

    def _arm(self) -> None:
        """Wake up when the first job is due, unless an earlier wake-up is set."""
        if not self._heap or not self._scheduler.running:
            return
        wake = max(self._heap[0].due, self._woke + LEAST_WAIT_S)
        if wake < self._next_wake:
            self._next_wake = wake
            self._armed_ahead = self._wall_ahead()
            run_date = self._clock.now() + timedelta(seconds=wake - self._clock.monotonic() + ROUNDED_S)
            self._scheduler.modify_job("due", next_run_time=run_date)

    async def _run_due(self) -> None:
        """Start what is due. Nothing in here waits."""
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
            wait = None  # the daemon's watch over its database logs it, and ends the daemon
        except DBAPIError as error:
            log = _log.debug if entry.name in self._failed or self._database.trouble else _log.error
            self._failed.add(entry.name)
            log("job.database_failed", job=entry.name, error=type(error.orig).__name__, remedy=remedy(error))
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - it is logged, and costs one run
            if not self._is_closed:  # else the next start runs it again
                _log.error("job.crashed", job=entry.name, exc_info=error)
        finally:
            self._finish(entry, wait)

    def _finish(self, entry: _Entry, wait: float | None) -> None:
        run = self._running.pop(entry.name)
        if not run.stays:
            self._failed.discard(entry.name)
        if (waiting := self._entries.get(entry.name)) is not None:  # its time may be over
            heappush(self._heap, waiting)
            self._arm()
        elif run.stays and wait is not None:
            self.plan(entry.name, max(wait, LEAST_WAIT_S), entry.job, vital=entry.vital)
