"""What a daemon is made of. What it does with it, from its start to its end, is in orderbridge.daemon."""

from random import Random

from sqlalchemy import Connection

from orderbridge import __version__, config
from orderbridge.clock import Clock, SystemClock
from orderbridge.errors import Fenced
from orderbridge.extension import named
from orderbridge.jobs.accounts_at_work import AccountsAtWork, is_many
from orderbridge.jobs.context import Context
from orderbridge.jobs.health import Checkup
from orderbridge.jobs.journal import journal_of
from orderbridge.jobs.outbox import Outbox
from orderbridge.jobs.poll import Pollers
from orderbridge.jobs.restore_check import RestoreCheck
from orderbridge.jobs.roster import Roster
from orderbridge.jobs.self_report import SelfReport
from orderbridge.jobs.timetable import Timetable
from orderbridge.jobs.upkeep import Upkeep
from orderbridge.net.http import Wire
from orderbridge.observe.liveness import Pulse
from orderbridge.observe.metrics import Metrics
from orderbridge.rules.cooldown import Cooldowns
from orderbridge.store.database import Database, open_database

POLL_RUNS_S = 300.0  # and ten times the timeout: a login, a list, what is written, the acknowledgements
# Of many accounts: who leaves at one moment finds the connections that the moment before has used. Of TLS each is worth
# a third of a megabyte.
MOST_IDLE = 64


class Parts:
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
        self._machine = clock or SystemClock()
        self.roster = _roster(settings)
        self._clock = self.roster.clock(self._machine)
        self._wire = wire or _wire(settings)
        self._wire.may_leave = self.roster.may_send
        self.database = database or _database(settings.database)
        self.database.fence = self._fence
        self.cooldowns = cooldowns or Cooldowns()
        self._context = Context.of(settings, self.database, self._clock, random=random, metrics=metrics)
        self._metrics = self._context.metrics
        self.outbox = Outbox(self._context, self.roster)
        self.journal = journal_of(settings, self._clock, inline=self.database.inline)
        self.health = self._checkup()
        self._pollers = Pollers(
            self._context,
            self.roster.known.keys(),
            self.cooldowns,
            not_written=self.outbox.refused,
            journal=self.journal,
            known=self.health.known,
        )
        self.pulse = Pulse()
        self.timetable = self._timetable()
        self.restore_check = RestoreCheck(
            settings, self.database, self._clock, self.health.known, self.roster.known.keys()
        )
        self.health.also = self.restore_check.read
        self.health.others = self.roster.problems_elsewhere
        self.report = self._self_report()
        self.working = AccountsAtWork(
            self._context,
            self.roster,
            wire=self._wire,
            pollers=self._pollers,
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

    def _fence(self, connection: Connection) -> None:
        try:
            self.roster.fence(connection)
        except Fenced:
            self._metrics.fenced(self._clock.now())
            raise

    def _self_report(self) -> SelfReport:
        if (
            not self._settings.fleet.from_database
        ):  # else accounts come by and by, and one at work may have been counted
            self._metrics.know(self.roster.known)
        self.database.on_work = self._metrics.worked
        return SelfReport(self._context, self.roster.at_work, self.outbox, self.cooldowns)

    def _checkup(self) -> Checkup:
        at_work, known = self.roster.at_work, self.roster.known
        checkup = Checkup(
            self._settings,
            self.database,
            self._clock,
            accounts_at_work=at_work.values,
            names=lambda: {account.fingerprint: account.name for account in known.values() if account is not None},
        )
        checkup.known.fenced = self._metrics.fenced_lately
        checkup.known.is_scope_wrong = lambda: self.cooldowns.is_scope_wrong
        self._wire.on_date = checkup.known.heard_date
        return checkup

    def _timetable(self) -> Timetable:
        market = self._settings.marketplace

        def longest_s() -> float:
            """All log in, should no token be good any more."""
            logins_s = len(self.roster.known) / market.logins_per_second
            return POLL_RUNS_S + 10 * market.timeout_seconds + logins_s

        return Timetable(self._machine, self.database, self.pulse, longest_s=longest_s, metrics=self._metrics)


def _roster(settings: config.Settings) -> Roster:
    """Raises ConfigError where accounts are in the database and the fleet's package is not installed."""
    return named("fleet")().roster(settings) if settings.fleet.from_database else Roster(settings.accounts)


def _wire(settings: config.Settings) -> Wire:
    market = settings.marketplace
    return Wire(
        base_url=market.base_url,
        timeout_s=market.timeout_seconds,
        ca_file=market.ca_file,
        user_agent=f"orderbridge/{__version__}",
        max_idle=max(settings.actions.max_in_flight, MOST_IDLE if is_many(settings) else 0),
        requests_per_second=market.requests_per_second,
        logins_per_second=market.logins_per_second,
    )


def _database(chosen: config.Database) -> Database:
    return open_database(
        chosen.url,
        busy_timeout_s=chosen.busy_timeout_seconds,
        accept_unsafe_durability=chosen.accept_unsafe_durability,
    )
