"""The daemon: builds everything, puts it on the timetable, and stops in order.

Stopping: take nothing more, finish what is in flight, write its ends, close.
"""

import asyncio
from collections.abc import Coroutine
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import structlog

from orderbridge import __version__, config
from orderbridge.clock import Clock, SystemClock
from orderbridge.errors import FileLost, StoreError
from orderbridge.jobs.account import Account, start_accounts
from orderbridge.jobs.books import Books
from orderbridge.jobs.health import Checkup
from orderbridge.jobs.journal import journal_of
from orderbridge.jobs.lamps import headline
from orderbridge.jobs.lanes import Lanes
from orderbridge.jobs.outbox import Outbox
from orderbridge.jobs.polling import Polling
from orderbridge.jobs.recurring import Recurring
from orderbridge.jobs.reference import Common
from orderbridge.jobs.self_report import SelfReport
from orderbridge.jobs.sweep import sweep, today
from orderbridge.jobs.timetable import Timetable
from orderbridge.jobs.verdicts import Verdicts
from orderbridge.net.http import Wire
from orderbridge.observe import systemd
from orderbridge.observe.liveness import Pulse
from orderbridge.observe.metrics import Metrics
from orderbridge.rules.audience import Audience
from orderbridge.rules.cooldown import Cooldowns, phase
from orderbridge.rules.turns import Member, names_of
from orderbridge.store import schema, wake
from orderbridge.store.accounts import Entry
from orderbridge.store.database import Database, open_database
from orderbridge.texts import say
from orderbridge.web.watched import AtWork

if TYPE_CHECKING:
    from orderbridge.jobs.board import BoardWatch

SWEEP_S = 60.0
HEALTH_S = 5.0
START_S = 900.0  # for a large database to be checked and upgraded; then it hangs
POLL_RUNS_S = 300.0  # and ten times the timeout: a login, a list, what is written, the acknowledgements
ANSWER_S = 10.0  # and the busy timeout: for the threads that work on the database
ANSWER_EVERY_S = 5.0
STOP_S = 45.0  # for what is in flight; the unit's TimeoutStopSec is longer
NOTE_S = 5.0  # for what polls could not note before
WATCH_S = 1.0  # between two looks at the clock and at the database's file

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
        cooldowns: Cooldowns | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        """`cooldowns`: of the daemon before this one in the same process; a clock that was set cannot shorten them."""
        self._settings = settings
        self._metrics = metrics or Metrics()
        self._clock = clock or SystemClock()
        self._random = random or Random()  # noqa: S311 - it spreads waits, it guards nothing
        self._wire = wire or _wire(settings)
        self.database = database or _database(settings.database)
        self.cooldowns = cooldowns or Cooldowns()
        self._lanes = Lanes()
        self._verdicts = Verdicts(settings.language, settings.marketplace.needs_payment_status_id, self._metrics)
        self._zone = ZoneInfo(settings.marketplace.timezone)
        self.accounts = {account.name: self._account(account) for account in settings.accounts}
        self.outbox = self._outbox()
        self.journal = journal_of(settings, self._clock, inline=self.database.inline)
        self._pollers = Polling(
            settings.marketplace,
            self.accounts,
            database=self.database,
            lanes=self._lanes,
            clock=self._clock,
            verdicts=self._verdicts,
            cooldowns=self.cooldowns,
            not_written=self.outbox.refused,
            metrics=self._metrics,
            journal=self.journal,
        )
        self._common = Common(self._clock)
        self.audience = Audience(self._clock.monotonic())
        self.pulse = Pulse()
        self.timetable = self._timetable()
        self.health = self._checkup()
        self._books = Books(settings, self.database, self._clock, self.health.known)
        self.health.also = self._books.read
        self.report = self._self_report()
        self._board = self._board_watch()
        self.status = ""  # the line for systemd
        self._recurring: dict[str, Recurring] = {}  # of the accounts that have started
        self._stopping = asyncio.Event()

    def _board_watch(self) -> "BoardWatch | None":
        """Where there is no board it costs nothing."""
        if self._settings.web.board == "off":
            return None
        from orderbridge.jobs.board import BoardWatch  # noqa: PLC0415 - only where it is on

        return BoardWatch(self.database, self._clock, self._metrics, self.accounts, self.audience)

    def _self_report(self) -> SelfReport:
        self._metrics.know(self.accounts)
        self.database.on_work = self._metrics.worked
        return SelfReport(
            self._settings,
            self.accounts,
            self.outbox,
            cooldowns=self.cooldowns,
            clock=self._clock,
            metrics=self._metrics,
            polls=lambda: self._lanes.polls,
        )

    def _checkup(self) -> Checkup:
        logins = [(account.name, account.session) for account in self.accounts.values()]
        checkup = Checkup(self._settings, self.database, self._clock, logins)
        self._wire.on_date = checkup.known.heard_date
        return checkup

    def _timetable(self) -> Timetable:
        longest_s = POLL_RUNS_S + 10 * self._settings.marketplace.timeout_seconds
        return Timetable(self._clock, self.database, self.pulse, longest_s=longest_s, metrics=self._metrics)

    def _outbox(self) -> Outbox:
        outbox = Outbox(
            self.accounts,
            self._settings,
            database=self.database,
            lanes=self._lanes,
            clock=self._clock,
            random=self._random,
            verdicts=self._verdicts,
        )
        outbox.on_restaurant = self._restaurant_set
        return outbox

    def _account(self, account: config.Account) -> Account:
        return Account(
            account,
            wire=self._wire,
            database=self.database,
            clock=self._clock,
            random=self._random,
            zone=self._zone,
            cooldown_s=self._settings.marketplace.cooldown_seconds,
            metrics=self._metrics,
        )

    def _recurring_of(self, account: Account) -> Recurring:
        return Recurring(
            account,
            self._pollers.poller(account),
            timetable=self.timetable,
            database=self.database,
            clock=self._clock,
            configured=self.accounts.keys(),
            common=self._common,
            polled=self._polled,
        )

    def _polled(self, account: str, delivered: int, *, ok: bool = False) -> None:
        """Lanes are free again, polls have shown what they can: it concerns an account's own rows."""
        if ok and self.health.ping is not None:
            self.health.ping.polled()
        if delivered or self.outbox.queue.size(account):
            self.outbox.wake()

    async def run(self) -> None:
        """Until `stop`; what is in flight is finished first. A start that waits for the database is given up."""
        stopping = asyncio.create_task(self._stopping.wait())
        self.pulse.expect("start", self._clock.monotonic() + START_S)
        starting = asyncio.create_task(self._start())
        background: list[asyncio.Task[None]] = []
        try:
            await asyncio.wait([stopping, starting], return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                background += [asyncio.create_task(task) for task in starting.result()]
                # None of them ends by itself. If one does, it has failed: stop in order, and let systemd start anew.
                await asyncio.wait([stopping, *background], return_when=asyncio.FIRST_COMPLETED)
            failed = next((task for task in background if task.done()), None)
            if failed is not None and isinstance(error := failed.exception(), FileLost):
                _log.error("database.file_lost", remedy=str(error))
                await self.health.lost()
        finally:
            self.stop()
            starting.cancel()
            await asyncio.gather(stopping, starting, return_exceptions=True)
            await self._finish(background)
        if failed is not None:
            failed.result()

    def stop(self) -> None:
        """Finish what is in flight, then end `run`."""
        self._stopping.set()
        self.pulse.end()

    def at_work(self) -> AtWork:
        """What the board reads and wakes."""
        return AtWork(
            self._settings,
            self.database,
            self._clock,
            self.audience,
            problems=lambda: self.report.problems,
            wake=self.outbox.wake,
        )

    def hung(self) -> str | None:
        """What in here hangs, so that a restart would help; None: nothing does."""
        return self.pulse.hung(self._clock.monotonic())

    # ---- starting ----------------------------------------------------------------------------------------------------

    async def _start(self) -> list[Coroutine[Any, Any, None]]:
        await asyncio.to_thread(self.database.check_intact)
        await self._upgrade()
        await self.database.read(self.database.durability.ask)
        await self._books.start()
        await self.outbox.recover()
        await self._start_accounts()
        self.health.be_unsure()
        self.report.saw(())  # the database has answered; what is wrong, the first look tells
        self.timetable.take("sweep", SWEEP_S, self._sweep)
        self.timetable.take("health", HEALTH_S, self._look_at_health)
        self.timetable.start()
        self.pulse.excuse("start")
        systemd.notify(systemd.READY)
        _log.info("daemon.started", version=__version__, accounts=len(self.accounts))
        watching = wake.watch(self.database.engine, self.outbox.wake)
        return [self.outbox.run(), watching, self._watch(), self._hear_database()]

    async def _upgrade(self) -> None:
        """Another program that is at it is waited for here, and not in the database: a stop must not wait, too."""
        until = None
        while not await self.database.run(schema.try_upgrade):
            if until is None:
                until = self._clock.monotonic() + schema.LOCK_WAIT_S
                _log.warning("schema.waiting", reason=say("log.schema_waiting"))
            elif self._clock.monotonic() >= until:
                raise StoreError(schema.locked())
            await asyncio.sleep(schema.LOCK_ASK_S)

    async def _start_accounts(self) -> None:
        members = [Member(a.fingerprint, a.name, a.application) for a in self.accounts.values()]
        new = self.cooldowns.take(members, self._settings.marketplace.cooldown_seconds)
        starting, entries = {}, []
        for place, account in enumerate(self.accounts.values()):
            who, late = account.fingerprint, phase(place, len(members), self.cooldowns.cooldown_s)
            starting[account.name] = late if who in new else 0.0
            first_poll = self._clock.now() + timedelta(seconds=starting[account.name])
            entries.append(Entry(who, account.name, names_of(self.cooldowns.in_turn(who)), first_poll))
        await start_accounts(self.database, self.accounts.values(), entries)
        for name, late in starting.items():
            self._recurring[name] = self._recurring_of(self.accounts[name])
            self._recurring[name].begin(late)

    # ---- what is done beside the accounts' jobs ----------------------------------------------------------------------

    def _restaurant_set(self, account: str, restaurant: str) -> None:
        self._recurring[account].read_status(restaurant)

    async def _sweep(self) -> float:
        late = await today(self.database, self._settings, self._clock, self.health.known.service_now())
        await sweep(self.database, self._settings, self._clock, late)
        if self.journal is not None:
            await self.journal.tidy(self._settings.orders.retention_days, late)
        if self._board is not None:
            await self._board.note()
        return SWEEP_S

    async def _look_at_health(self) -> float:
        if self.journal is not None:
            self.journal.tell(self.health.known)
        if self._board is not None:
            await self._board.look(self.health.known)
        found = await self.health.look()
        await self._books.follow()
        self.report.saw(found)
        status = headline(found, len(self.accounts), self._zone, self._settings.language)
        if status != self.status:
            self.status = status
            systemd.notify(f"STATUS={status}")
        return HEALTH_S

    async def _watch(self) -> None:
        """The database's file, and the clock."""
        while True:
            await asyncio.sleep(WATCH_S)
            self.database.check_file()
            self.timetable.look_at_clock()

    async def _hear_database(self) -> None:
        """A thread that waits for the database for longer than a lock or a driver's own limit allows, hangs."""
        longest = ANSWER_EVERY_S + ANSWER_S + self._settings.database.busy_timeout_seconds
        while True:
            self.pulse.expect("database", self._clock.monotonic() + longest)
            await self.database.hear()
            await asyncio.sleep(ANSWER_EVERY_S)

    # ---- stopping ----------------------------------------------------------------------------------------------------

    async def _finish(self, background: list[asyncio.Task[None]]) -> None:
        self.timetable.close()
        self._pollers.close()
        polls, others = self.timetable.in_flight(vital=True), self.timetable.in_flight(vital=False)
        _log.info("daemon.stopping", in_flight=len(polls))
        outbox, unimportant = background[:1], [*background[1:], *others]  # lists are read again at the next start
        for task in unimportant:
            task.cancel()
        self.outbox.stop()
        late: set[asyncio.Task[None]] = set()
        if busy := {*outbox, *polls}:
            _, late = await asyncio.wait(busy, timeout=STOP_S)
        if late:  # the database is gone; the next start finds what was on the wire, and clears it up
            _log.error("daemon.stopped_early", unfinished=len(late))
            for task in late:
                task.cancel()
        elif background:  # else it never began, and the tables may not even be there
            await self._note_rest()
        if self.journal is not None:
            await self.journal.close()
        # Of a file that is lost the outbox hears, too: nobody has looked at that error yet.
        await asyncio.gather(*unimportant, *busy, return_exceptions=True)
        for account in self.accounts.values():
            await account.close()
        await self._wire.close()
        await self.health.close()
        self.database.close()
        _log.info("daemon.stopped")

    async def _note_rest(self) -> None:
        """What polls could not note before. A database that says nothing is not waited for."""
        rest = asyncio.gather(self._pollers.note_rest(), self._books.look())
        await asyncio.wait([rest], timeout=NOTE_S)
        rest.cancel()
        await asyncio.gather(rest, return_exceptions=True)


def _wire(settings: config.Settings) -> Wire:
    market = settings.marketplace
    return Wire(
        base_url=market.base_url,
        timeout_s=market.timeout_seconds,
        ca_file=market.ca_file,
        user_agent=f"orderbridge/{__version__}",
        max_idle=settings.actions.max_in_flight,
    )


def _database(chosen: config.Database) -> Database:
    return open_database(
        chosen.url,
        busy_timeout_s=chosen.busy_timeout_seconds,
        accept_unsafe_durability=chosen.accept_unsafe_durability,
    )
