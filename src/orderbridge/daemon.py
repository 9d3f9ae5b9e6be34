"""The daemon: builds everything, lets APScheduler call the jobs, and stops in order.

Rules of this file:
- The truth about when something may be done is in the tables and in the jobs; the scheduler only calls.
- The poll arms itself after each run: an interval counts from the start and would drift into the cooldown.
- Stopping: take nothing more, finish what is in flight, write its ends, close. APScheduler's own shutdown cancels, so
  the waiting is done here.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import structlog
from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_MAX_INSTANCES, JobExecutionEvent, JobSubmissionEvent
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from sqlalchemy.exc import DBAPIError

from orderbridge import __version__, config
from orderbridge.clock import Clock, SystemClock
from orderbridge.jobs.account import Account
from orderbridge.jobs.drain import Outbox
from orderbridge.jobs.lanes import Lanes
from orderbridge.jobs.poll import Poller
from orderbridge.jobs.reference import read_lists, read_statuses
from orderbridge.jobs.sweep import sweep
from orderbridge.jobs.verdicts import Verdicts
from orderbridge.marketplace.http import Wire
from orderbridge.model import Token
from orderbridge.observe import systemd
from orderbridge.store import schema, wake
from orderbridge.store.database import Database, open_database, remedy

LISTS_S = 24 * 3600.0
LISTS_AGAIN_S = 60.0  # after a failure
STATUSES_S = 300.0
SWEEP_S = 60.0
AFTER_FAULT_S = 5.0  # when a job ended in an error that it does not know
LEAST_WAIT_S = 0.05  # a job armed before its last run is over would be skipped, and a skipped date job is gone
STOP_S = 45.0  # for what is in flight; the unit's TimeoutStopSec is longer
CLOCK_WATCH_S = 1.0
CLOCK_JUMP_S = 2.0

_log = structlog.get_logger(__name__)


class Daemon:
    """Everything that runs, built from one configuration."""

    def __init__(
        self,
        settings: config.Settings,
        *,
        clock: Clock | None = None,
        random: Random | None = None,
        wire: Wire | None = None,
        database: Database | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock or SystemClock()
        random = random or Random()  # noqa: S311 - it spreads waits, it guards nothing
        market = settings.marketplace
        self._wire = wire or Wire(
            base_url=market.base_url,
            timeout_s=market.timeout_seconds,
            ca_file=market.ca_file,
            user_agent=f"orderbridge/{__version__}",
            max_idle=settings.actions.max_in_flight,
        )
        self.database = database or open_database(
            settings.database.url,
            busy_timeout_s=settings.database.busy_timeout_seconds,
            accept_unsafe_durability=settings.database.accept_unsafe_durability,
        )
        self._zone = ZoneInfo(market.timezone)
        self._lanes = Lanes()
        self._verdicts = Verdicts(settings.language, market.needs_payment_status_id)
        self.accounts = {
            account.name: Account(
                account, wire=self._wire, database=self.database, clock=self._clock, random=random, zone=self._zone
            )
            for account in settings.accounts
        }
        self.outbox = Outbox(
            self.accounts,
            settings,
            database=self.database,
            lanes=self._lanes,
            clock=self._clock,
            random=random,
            verdicts=self._verdicts,
        )
        self._scheduler = AsyncIOScheduler(
            timezone="UTC", job_defaults={"misfire_grace_time": None, "coalesce": True, "max_instances": 1}
        )
        self._due: dict[str, tuple[float, Callable[[], Awaitable[float | None]]]] = {}
        self._failed: set[str] = set()  # jobs whose last run the database did not let end
        self._polling: set[asyncio.Task[Any]] = set()
        self._other: set[asyncio.Task[Any]] = set()
        self._stopping = asyncio.Event()
        self._last_word = systemd.STOPPING

    async def run(self) -> None:
        """Until `stop`; what is in flight is finished first."""
        background = [asyncio.create_task(task) for task in await self._start()]
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            # None of the others ends by itself. If one does, it has failed: stop in order, and let systemd start anew.
            await asyncio.wait([stopping, *background], return_when=asyncio.FIRST_COMPLETED)
            failed = next((task for task in background if task.done()), None)
        finally:
            self.stop()
            await self._finish(background)
        if failed is not None:
            failed.result()

    def stop(self, word: str = systemd.STOPPING) -> None:
        """Finish what is in flight, then end `run`. `word` tells systemd why."""
        self._last_word = word
        self._stopping.set()

    # ---- starting ----------------------------------------------------------------------------------------------------

    async def _start(self) -> list[Coroutine[Any, Any, None]]:
        await asyncio.to_thread(self.database.check_intact)
        await self.database.run(schema.upgrade)
        unsafe = await asyncio.to_thread(self.database.check_durability)
        if unsafe is not None:
            _log.error("database.unsafe_durability", remedy=unsafe)
        await self.outbox.recover()
        self._scheduler.add_listener(self._job_failed, EVENT_JOB_ERROR)
        self._scheduler.add_listener(self._job_skipped, EVENT_JOB_MAX_INSTANCES)
        self._scheduler.start()
        for account in self.accounts.values():
            await account.start()
            self._start_account(account, may_acknowledge=unsafe is None)
        self._arm("sweep", SWEEP_S, self._sweep)
        systemd.notify(systemd.READY)
        _log.info("daemon.started", version=__version__, accounts=len(self.accounts))
        return [self.outbox.run(), wake.watch(self.database.engine, self.outbox.wake), self._watch_clock()]

    def _start_account(self, account: Account, *, may_acknowledge: bool) -> None:
        market = self._settings.marketplace
        poller = Poller(
            account,
            database=self.database,
            lanes=self._lanes,
            clock=self._clock,
            verdicts=self._verdicts,
            configured=tuple(self.accounts),
            cooldown_s=market.cooldown_seconds,
            timeout_s=market.timeout_seconds,
            needs_payment_id=market.needs_payment_status_id,
            may_acknowledge=may_acknowledge,
        )

        async def poll() -> float:
            try:
                return (await poller.tick()).again_in
            finally:
                self.outbox.wake()  # lanes are free again, looks were had

        async def lists() -> float:
            return LISTS_S if await read_lists(account, self.database, tuple(self.accounts)) else LISTS_AGAIN_S

        async def statuses() -> float:
            await read_statuses(account, self.database, self._clock)
            return STATUSES_S

        async def renew() -> float | None:
            if (wait := account.renew_in()) is not None and wait <= 0:
                await account.renew()
                wait = account.renew_in()
            return None if wait is None else max(wait, LISTS_AGAIN_S if wait <= 0 else 0.0)

        def has_token(_: Token) -> None:
            self._arm(f"renew {account.name}", max(account.renew_in() or 0.0, 1.0), renew)

        account.on_token = has_token
        if account.session.current is not None:
            has_token(account.session.current)
        self._arm(f"poll {account.name}", 0.0, poll)
        self._arm(f"lists {account.name}", 0.5, lists)  # the orders first
        self._arm(f"statuses {account.name}", 2.0, statuses)

    # ---- scheduling --------------------------------------------------------------------------------------------------

    def _arm(self, name: str, wait: float, job: Callable[[], Awaitable[float | None]]) -> None:
        """Call `job` after `wait` seconds. What it returns is the wait until it is called again; None: not again."""
        self._due[name] = (self._clock.monotonic() + wait, job)
        run_date = self._clock.now() + timedelta(seconds=wait)
        self._scheduler.add_job(self._call, "date", run_date=run_date, args=(name, job), id=name, replace_existing=True)

    async def _call(self, name: str, job: Callable[[], Awaitable[float | None]]) -> None:
        if self._stopping.is_set():
            return
        self._due.pop(name, None)
        task = asyncio.ensure_future(job())
        busy = self._polling if name.startswith("poll ") else self._other
        busy.add(task)
        task.add_done_callback(busy.discard)
        wait: float | None = AFTER_FAULT_S
        try:
            # Shielded: the scheduler cancels its jobs when it stops, and what is in flight has to be finished.
            wait = await asyncio.shield(task)
            self._failed.discard(name)
        except asyncio.CancelledError:
            if not self._stopping.is_set():  # else it is one that is read again at the next start, and no news
                raise
        except DBAPIError as error:
            # Told once; of trouble that concerns all the database has told itself.
            told = _log.debug if name in self._failed or self.database.trouble else _log.error
            self._failed.add(name)
            told("job.database_failed", job=name, error=type(error.orig).__name__, remedy=remedy(error))
        finally:
            if wait is not None and not self._stopping.is_set() and name not in self._due:
                self._arm(name, max(wait, LEAST_WAIT_S), job)

    def _job_failed(self, event: JobExecutionEvent) -> None:
        if isinstance(event.exception, asyncio.CancelledError) and self._stopping.is_set():
            return  # `_finish` ended it
        _log.error("job.crashed", job=event.job_id, exc_info=event.exception)

    def _job_skipped(self, event: JobSubmissionEvent) -> None:
        """The scheduler thought that the last run was not over, and dropped the job. It is armed again."""
        if event.job_id in self._due:
            self._arm(event.job_id, LEAST_WAIT_S, self._due[event.job_id][1])

    async def _watch_clock(self) -> None:
        """The scheduler waits by the wall clock. When that jumps, every job is armed anew by the monotonic one."""
        ahead = self._ahead()
        while True:
            await asyncio.sleep(CLOCK_WATCH_S)
            systemd.notify(systemd.ALIVE)
            if abs(self._ahead() - ahead) > CLOCK_JUMP_S:
                _log.warning("clock.jumped", seconds=round(self._ahead() - ahead, 1))
                ahead = self._ahead()
                for name, (due, job) in list(self._due.items()):
                    self._arm(name, max(due - self._clock.monotonic(), 0.0), job)

    def _ahead(self) -> float:
        return self._clock.now().timestamp() - self._clock.monotonic()

    async def _sweep(self) -> float:
        await sweep(self.database, self._settings, self._clock)
        return SWEEP_S

    # ---- stopping ----------------------------------------------------------------------------------------------------

    async def _finish(self, background: list[asyncio.Task[None]]) -> None:
        systemd.notify(self._last_word)
        _log.info("daemon.stopping", in_flight=len(self._polling))
        outbox, waker, clock_watch = background
        unimportant = [waker, *self._other]  # lists and statuses are read again at the next start
        for task in unimportant:
            task.cancel()
        self.outbox.stop()
        _, late = await asyncio.wait([outbox, *self._polling], timeout=STOP_S)
        if late:  # the database is gone; the next start finds what was on the wire, and clears it up
            _log.error("daemon.stopped_early", unfinished=len(late))
            for task in late:
                task.cancel()
        clock_watch.cancel()  # last of all: until here it tells systemd that we are alive
        await asyncio.gather(*unimportant, *late, clock_watch, return_exceptions=True)
        self._scheduler.shutdown(wait=False)
        for account in self.accounts.values():
            await account.close()
        await self._wire.close()
        self.database.close()
        _log.info("daemon.stopped")
