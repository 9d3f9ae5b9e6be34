"""The daemon: builds all parts from one configuration, starts them, runs, and stops in order.

To stop, it takes no new work, finishes what is in flight, writes the outcomes, and closes.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import structlog
from sqlalchemy import Connection

from orderbridge import __version__, config
from orderbridge.clock import Clock, SystemClock
from orderbridge.errors import Fenced, FileLost, Over
from orderbridge.extension import named
from orderbridge.jobs.account import Account, Roster
from orderbridge.jobs.accounts_at_work import AccountsAtWork
from orderbridge.jobs.context import Context, Kept
from orderbridge.jobs.daemon_problems import DaemonProblems
from orderbridge.jobs.health_check import Checkup
from orderbridge.jobs.journal_writer import Journal
from orderbridge.jobs.outbox import Outbox
from orderbridge.jobs.poll import Polls
from orderbridge.jobs.restore_check import RestoreCheck
from orderbridge.jobs.timetable import Timetable
from orderbridge.jobs.upkeep import SelfReport, Upkeep
from orderbridge.net.http import Wire
from orderbridge.observe import systemd
from orderbridge.observe.liveness import Pulse
from orderbridge.observe.metrics import Metrics
from orderbridge.rules.problems import Problem
from orderbridge.store import schema
from orderbridge.store.database import Database, open_configured
from orderbridge.store.leader import end_replicas
from orderbridge.texts import say

START_S = 900.0  # to check and upgrade a large database; a longer start counts as hung
ANSWER_S = 10.0  # plus the busy timeout: for a thread that works on the database
ANSWER_EVERY_S = 5.0
STOP_S = 45.0  # for work in flight; the unit's TimeoutStopSec is longer
DRAIN_S = 25.0  # of STOP_S, to release a replica's buckets
NOTE_S = 5.0  # for poll notes that could not be written before
POLL_RUNS_S = 300.0  # plus ten timeouts: a login, a list, the writes, the acknowledgements
# Idle connections: with many accounts each poll reuses those of earlier polls. A TLS connection takes a third of a
# megabyte.
MAX_IDLE = 64
WATCH_S = 1.0  # between two checks of the clock and of the database

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RunningDaemon:
    """The parts of a running daemon that extensions use."""

    settings: config.Settings
    database: Database
    clock: Clock
    metrics: Metrics
    accounts: Mapping[str, Account]
    timetable: Timetable
    own_problems: DaemonProblems  # also for the extension's own problems
    problems: Callable[[], Sequence[Problem]]  # all open problems at the last health check
    wake: Callable[[], None]  # for a new row in the outbox


class Daemon:
    """One run of the daemon."""

    def __init__(
        self,
        settings: config.Settings,
        *,
        clock: Clock | None = None,
        random: Random | None = None,
        wire: Wire | None = None,
        database: Database | None = None,
        kept: Kept | None = None,
    ) -> None:
        """`kept` is the state of the previous daemon in this process."""
        self._settings = settings
        self._machine = clock or SystemClock()
        self.roster = _roster(settings)
        self._clock = self.roster.clock(self._machine)
        self._wire = wire or _wire(settings)
        self.database = database or open_configured(settings.database)
        self._context = Context.of(settings, self.database, self._clock, random=random, kept=kept)
        self._kept, self._metrics = self._context.kept, self._context.metrics
        self.database.on_work = self._metrics.worked
        if settings.fleet.from_database:
            self.database.fence, self._wire.may_send = self._fence, self.roster.may_send
        else:  # a fleet's accounts come later
            self._metrics.know(self.roster.known)
        self.outbox = Outbox(self._context, self.roster)
        folder, run = settings.journal, self.database.in_own_thread
        self.journal = None if folder is None else Journal(folder, clock=self._clock, run=run)
        self.own_problems = self._context.own_problems
        self._wire.on_date = self.own_problems.note_date
        self.pulse = Pulse()
        self.timetable = Timetable(
            self._machine, self.database, self.pulse, longest_s=self._longest_s, metrics=self._metrics
        )
        self._make_jobs()
        self._stopping, self._is_ending, self._is_fenced = asyncio.Event(), False, False

    def _make_jobs(self) -> None:
        known = self.roster.known.keys()
        self._polls = Polls(self._context, known, not_written=self._not_written, journal=self.journal)
        self.restore_check = RestoreCheck(self._context, known)
        self.health = Checkup(self._context, self.roster, self.restore_check)
        self.report = SelfReport(self._context, self.roster.at_work, self.outbox)
        self.working = AccountsAtWork(
            self._context,
            self.roster,
            wire=self._wire,
            polls=self._polls,
            outbox=self.outbox,
            timetable=self.timetable,
            health=self.health,
        )
        self.upkeep = Upkeep(
            self._context,
            self.roster,
            health=self.health,
            restore_check=self.restore_check,
            report=self.report,
            journal=self.journal,
            begun=self.working.begun,
        )

    def _not_written(self) -> int:
        """The number of outbox rows that the database refuses, or that another session keeps locked."""
        return self.outbox.not_written() + len(self.upkeep.closures.refused) + self._kept.holds_rows

    def _fence(self, connection: Connection) -> None:
        try:
            self.roster.fence(connection)
        except Fenced:
            self._metrics.fenced(self._clock.now())
            raise

    def _longest_s(self) -> float:
        """The longest normal poll: in the worst case all accounts have to log in first."""
        market = self._settings.marketplace
        return POLL_RUNS_S + 10 * market.timeout_seconds + len(self.roster.known) / market.logins_per_second

    async def run(self) -> None:
        """Run until `stop`, then finish what is in flight. A start that still waits for the database is cancelled."""
        stopping = asyncio.create_task(self._stopping.wait())
        self.pulse.expect("start", self._clock.monotonic() + START_S)
        starting = asyncio.create_task(self._start())
        background: list[asyncio.Task[None]] = []
        fleet: list[asyncio.Task[None]] = []
        try:
            await asyncio.wait([stopping, starting], return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                background += [asyncio.create_task(task) for task in starting.result()]
                fleet += [asyncio.create_task(task) for task in self.roster.tasks()]
                # These tasks end only by failure. Then the daemon stops in order, and systemd restarts it.
                await asyncio.wait([stopping, *background, *fleet], return_when=asyncio.FIRST_COMPLETED)
            failed = next((task for task in (*background, *fleet) if task.done()), None)
            if failed is not None and isinstance(error := failed.exception(), Over):
                await self._report_end(error)
        finally:
            self.stop()
            starting.cancel()
            await asyncio.gather(stopping, starting, return_exceptions=True)
            await self._finish(background, fleet)
        if failed is not None:
            failed.result()

    async def _report_end(self, error: Over) -> None:
        """Log why the run ended. A replaced replica raises no alarm: its successor does."""
        if isinstance(error, FileLost):
            _log.error("database.file_lost", remedy=error.message)
            await self.health.lost()
        else:
            self._is_fenced = True
            _log.error("daemon.fenced", reason=error.message)

    def stop(self, *, for_good: bool = False) -> None:
        """End `run` after the work in flight. `for_good`: release this replica's buckets, since it will not restart."""
        self._is_ending |= for_good
        self._stopping.set()
        self.pulse.end()

    def for_extensions(self) -> RunningDaemon:
        """The parts that extensions may use."""
        return RunningDaemon(
            settings=self._settings,
            database=self.database,
            clock=self._clock,
            metrics=self._metrics,
            accounts=self.roster.at_work,
            timetable=self.timetable,
            own_problems=self.own_problems,
            problems=lambda: self.report.problems,
            wake=self.outbox.wake,
        )

    def hung(self) -> str | None:
        """What hangs, so that a restart would help; None if nothing does."""
        return self.pulse.hung(self._clock.monotonic())

    # ---- starting ----------------------------------------------------------------------------------------------------

    async def _start(self) -> list[Coroutine[Any, Any, None]]:
        await asyncio.to_thread(self.database.check_intact)
        await self._upgrade()
        if not self._settings.fleet.from_database:
            await self.database.run(end_replicas)
        await self.database.read(self.database.durability.ask)
        self.health.reset()
        self._kept.cooldowns.hold(self._clock.monotonic() + await self.restore_check.start())
        await self.roster.begin(self)
        await self.outbox.recover()  # before any decision about the accounts' rows
        self.health.expect_late_polls(self.working.starts_for_s)
        self.report.checked(())  # the database answers; the first check finds the problems
        self.upkeep.begin(self.timetable)
        self.timetable.start()
        self.pulse.excuse("start")
        self._kept.begun.set()
        systemd.notify(systemd.READY)
        _log.info("daemon.started", version=__version__, accounts=len(self.roster.at_work))
        watching = self.database.watch(self.outbox.wake)
        return [self.outbox.run(), watching, self._watch(), self._check_threads()]

    async def _upgrade(self) -> None:
        """Upgrade the schema. Wait for another program's upgrade here, not in the database, so that a stop is quick."""
        until = None
        while await self.database.run(schema.try_upgrade, is_long=True) is None:
            if until is None:
                until = self._clock.monotonic() + schema.LOCK_WAIT_S
                _log.warning("schema.waiting", reason=say("log.schema_waiting"))
            elif self._clock.monotonic() >= until:
                raise schema.locked()
            await asyncio.sleep(schema.LOCK_ASK_S)

    # ---- beside the accounts' jobs -----------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Check every second that the database file is there and that the clock has not jumped."""
        while True:
            await asyncio.sleep(WATCH_S)
            self.database.check_file()
            self.timetable.check_clock()

    async def _check_threads(self) -> None:
        """Watch the database's threads: one that waits longer than locks and drivers allow is hung."""
        longest = ANSWER_EVERY_S + ANSWER_S + self._settings.database.busy_timeout_seconds
        while True:
            self.pulse.expect("database", self._clock.monotonic() + longest)
            await self.database.wait_until_free()
            await asyncio.sleep(ANSWER_EVERY_S)

    # ---- stopping ----------------------------------------------------------------------------------------------------

    async def _finish(self, background: list[asyncio.Task[None]], fleet: list[asyncio.Task[None]]) -> None:
        """Finish and close all tasks. The `fleet` tasks hold our buckets and end last."""
        until = self._clock.monotonic() + (0.0 if self._is_fenced else STOP_S)
        await self._drain(fleet)
        self.timetable.close()
        self._polls.close()
        self._wire.prepare_stop()
        polls, others = self.timetable.in_flight(vital=True), self.timetable.in_flight(vital=False)
        _log.info("daemon.stopping", in_flight=len(polls))
        outbox, unimportant = background[:1], [*background[1:], *others]  # the next start reads lists again
        for task in unimportant:
            task.cancel()
        self.outbox.stop()
        late: set[asyncio.Task[None]] = set()
        if busy := {*outbox, *polls}:
            _, late = await asyncio.wait(busy, timeout=max(until - self._clock.monotonic(), 0.0))
        if late:  # the database is unreachable or not ours; the next start recovers what was in flight
            _log.error("daemon.stopped_early", unfinished=len(late))
            for task in late:
                task.cancel()
        elif background:  # else the start failed, and the tables may be missing
            await self._note_rest()
        if self.journal is not None:
            await self.journal.close()
        # Retrieve the exceptions: the outbox may have failed on the lost file, too.
        await asyncio.gather(*unimportant, *busy, return_exceptions=True)
        await self._close(fleet)
        _log.info("daemon.stopped")

    async def _close(self, fleet: list[asyncio.Task[None]]) -> None:
        for task in fleet:
            task.cancel()
        await asyncio.gather(*fleet, return_exceptions=True)
        await self.roster.close()
        for account in self.roster.at_work.values():
            await account.close()
        await self._wire.close()
        await self.health.close()
        self.database.close()

    async def _drain(self, tasks: list[asyncio.Task[None]]) -> None:
        """Release each bucket of an ending replica as soon as it is idle."""
        if not tasks or not self._is_ending or self._is_fenced:
            return
        draining = asyncio.create_task(self.roster.drain())
        await asyncio.wait({draining, *tasks}, timeout=DRAIN_S, return_when=asyncio.FIRST_COMPLETED)
        draining.cancel()
        await asyncio.gather(draining, return_exceptions=True)

    async def _note_rest(self) -> None:
        """Write the remaining poll notes and counts, for at most NOTE_S: the database may hang."""
        rest = asyncio.gather(self.working.note_rest(), self.restore_check.close(), self.upkeep.learn())
        await asyncio.wait([rest], timeout=NOTE_S)
        rest.cancel()
        await asyncio.gather(rest, return_exceptions=True)


def _roster(settings: config.Settings) -> Roster:
    """The accounts. Raises ConfigError if they are in the database and the fleet's package is not installed."""
    return named("fleet")().roster(settings) if settings.fleet.from_database else Roster(settings.accounts)


def _wire(settings: config.Settings) -> Wire:
    market = settings.marketplace
    return Wire(
        base_url=market.base_url,
        timeout_s=market.timeout_seconds,
        ca_file=market.ca_file,
        max_idle=max(settings.actions.max_in_flight, MAX_IDLE),
        requests_per_second=market.requests_per_second,
        logins_per_second=market.logins_per_second,
    )
