"""When each job runs: a heap of due times, and the one APScheduler job that looks at its top.

Jobs come and go by name at any time, ten thousand accounts' among them. A look costs what is due and no more.

Rules of this file:
- A job says at its end when it wants to be called again. An interval would count from the start, and a poll would drift
  into the cooldown.
- A job of one name runs once at a time. What comes due while it runs is called when it has ended, and an account that
  leaves and comes back does not poll beside itself.
- An error costs one run: it is told, and the job is called again. Trouble of the database is told once, until the job
  has ended well; what concerns all of the database is not told here at all, and a lost file ends the daemon elsewhere.
- Due times are those of the monotonic clock. APScheduler waits by the wall clock, which can be set: `look_at_clock`, once
  a second, has it wait anew then. A clock that was set costs a job that second and no more.
- APScheduler gets one job with one date at a time. Its own rules for what it thinks is late or runs twice (misfires,
  instances) concern only the look, which is over at once, so it never has anything to say about them. The job stays, and
  its date is set anew: a job that is added is looked over each time, which takes longer than the look.
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
LEAST_WAIT_S = 0.02  # between two looks: jobs that are due closer together run together
ROUNDED_S = 0.001  # a date has whole microseconds: a look just before the time would be one too many
CLOCK_JUMP_S = 2.0
CLOCK_PLAY_S = 0.05  # by which the wall clock may differ from what it was when the wait began
UNARMED = timedelta(days=1)  # a look's own date after it, until it is armed: it arms itself
SPARE_TIMES = 100  # times of jobs that have left or were moved may lie in the heap, beside as many as there are jobs

Job = Callable[[], Awaitable[float | None]]  # returns the seconds until it is called again; None: not again

_log = structlog.get_logger(__name__)


class _WhenDue(BaseTrigger):  # type: ignore[misc]
    """The look's: the timetable sets its date."""

    def get_next_fire_time(self, _: datetime | None, now: datetime) -> datetime:
        return now + UNARMED


@dataclass(slots=True, order=True)
class _Entry:
    """A job that waits. In the heap it is looked at for its time alone."""

    due: float
    name: str = field(compare=False)
    job: Job = field(compare=False)
    vital: bool = field(compare=False)


@dataclass(slots=True)
class _Run:
    """A job that is called just now. `stays`: it has not left meanwhile."""

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
        """`pulse` hears of the vital jobs: one that is not called in its time hangs, and one that runs for `longest_s`."""
        self._metrics = metrics or Metrics()
        self._clock = clock
        self._database = database
        self._pulse = pulse
        self._longest_s = longest_s
        self._entries: dict[str, _Entry] = {}
        self._heap: list[_Entry] = []  # all entries, and some that are none any more
        self._running: dict[str, _Run] = {}
        self._failed: set[str] = set()  # jobs whose last run the database did not let end
        self._is_closed = False
        self._looked = self._next_look = -math.inf
        self._ahead = self._armed_ahead = 0.0
        self._scheduler = AsyncIOScheduler(
            timezone="UTC", job_defaults={"misfire_grace_time": None, "coalesce": True, "max_instances": 100}
        )

    def start(self) -> None:
        """From now on what is due is called."""
        self._ahead = self._wall_ahead()
        self._scheduler.start()
        self._scheduler.add_job(self._look, _WhenDue(), id="look")
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
        """Do not call it again; a run of it that is under way goes on to its end."""
        self._entries.pop(name, None)
        self._failed.discard(name)
        self._pulse.excuse(name)
        if (run := self._running.get(name)) is not None:
            run.stays = False

    def runs(self, name: str) -> bool:
        """Whether it is called just now."""
        return name in self._running

    def runs_of(self, names: Iterable[str]) -> set[asyncio.Task[None]]:
        """Their runs that are under way."""
        return {self._running[name].task for name in names if name in self._running}

    def cut(self, name: str) -> None:
        """End a run of it where it is."""
        if (run := self._running.get(name)) is not None:
            run.task.cancel()

    def in_flight(self, *, vital: bool) -> set[asyncio.Task[None]]:
        """The runs that a stop waits for, or the others."""
        return {run.task for run in self._running.values() if run.vital is vital}

    def close(self) -> None:
        """Call nothing any more. What runs is left to the caller."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._scheduler.running:
            self._scheduler.remove_all_jobs()  # it would begin one that is due just now, cancel it and log a traceback
            self._scheduler.shutdown(wait=False)

    # ---- the one job of the scheduler --------------------------------------------------------------------------------

    def look_at_clock(self) -> None:
        """To be called every second or so: whatever the wall clock was set to, the wait is right again."""
        ahead = self._wall_ahead()
        if abs(ahead - self._armed_ahead) > CLOCK_PLAY_S:
            self._arm_anew()
        if abs(jumped := ahead - self._ahead) > CLOCK_JUMP_S:
            _log.warning("clock.jumped", seconds=round(jumped, 1))
            self._ahead += jumped

    def _wall_ahead(self) -> float:
        return self._clock.now().timestamp() - self._clock.monotonic()

    def _arm_anew(self) -> None:
        self._next_look = math.inf
        self._arm()

    def _arm(self) -> None:
        """Have the next look taken when the first job is due, if it is not to be taken before."""
        if not self._heap or not self._scheduler.running:
            return
        look = max(self._heap[0].due, self._looked + LEAST_WAIT_S)
        if look < self._next_look:
            self._next_look = look
            self._armed_ahead = self._wall_ahead()
            run_date = self._clock.now() + timedelta(seconds=look - self._clock.monotonic() + ROUNDED_S)
            self._scheduler.modify_job("look", next_run_time=run_date)

    async def _look(self) -> None:
        """Call what is due. Nothing in here waits."""
        if self._is_closed:
            return
        self._looked = self._clock.monotonic()
        while self._heap and self._heap[0].due <= self._looked:
            entry = heappop(self._heap)
            if self._entries.get(entry.name) is entry and entry.name not in self._running:
                del self._entries[entry.name]
                self._running[entry.name] = _Run(asyncio.create_task(self._run(entry)), entry.vital)
                if entry.vital:
                    self._pulse.expect(entry.name, self._looked + self._longest_s())
                    self._metrics.observe(POLL_LATE_SECONDS, self._looked - entry.due)
        self._arm_anew()

    # ---- one run of a job --------------------------------------------------------------------------------------------

    async def _run(self, entry: _Entry) -> None:
        wait: float | None = AFTER_FAULT_S
        try:
            wait = await entry.job()
            self._failed.discard(entry.name)
        except Over:
            wait = None  # the daemon's watch over its database tells it, and ends all
        except DBAPIError as error:
            self._tell_failure(entry.name, error)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - it is told, and costs one run
            if not self._is_closed:  # else it is one that is read again at the next start, and no news
                _log.error("job.crashed", job=entry.name, exc_info=error)
        finally:
            self._ended(entry, wait)

    def _ended(self, entry: _Entry, wait: float | None) -> None:
        run = self._running.pop(entry.name)
        if not run.stays:
            self._failed.discard(entry.name)
        if (waiting := self._entries.get(entry.name)) is not None:  # its time may have come and gone
            heappush(self._heap, waiting)
            self._arm()
        elif run.stays and wait is not None:
            self.plan(entry.name, max(wait, LEAST_WAIT_S), entry.job, vital=entry.vital)

    def _tell_failure(self, name: str, error: DBAPIError) -> None:
        told = _log.debug if name in self._failed or self._database.trouble else _log.error
        self._failed.add(name)
        told("job.database_failed", job=name, error=type(error.orig).__name__, remedy=remedy(error))
