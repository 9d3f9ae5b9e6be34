"""What a daemon is made of. What it does with it, from its start to its end, is in orderbridge.daemon."""

from random import Random
from zoneinfo import ZoneInfo

from orderbridge import __version__, config
from orderbridge.clock import Clock, SharedClock, SystemClock
from orderbridge.jobs.account import Account, token_writer
from orderbridge.jobs.health import Checkup
from orderbridge.jobs.journal import journal_of
from orderbridge.jobs.lanes import Lanes
from orderbridge.jobs.outbox import Outbox
from orderbridge.jobs.pollers import Pollers
from orderbridge.jobs.recurring import Recurring
from orderbridge.jobs.reference import Common
from orderbridge.jobs.restore_check import RestoreCheck
from orderbridge.jobs.roster import Roster
from orderbridge.jobs.self_report import SelfReport
from orderbridge.jobs.timetable import Timetable
from orderbridge.jobs.upkeep import JOBS as UPKEEP
from orderbridge.jobs.upkeep import Upkeep
from orderbridge.jobs.verdicts import Verdicts
from orderbridge.jobs.working import Working
from orderbridge.net.http import Wire
from orderbridge.observe.liveness import Pulse
from orderbridge.observe.metrics import Metrics
from orderbridge.rules.cooldown import Cooldowns
from orderbridge.rules.statuses import Statuses
from orderbridge.store.database import Database, open_database
from orderbridge_fleet.fleet import Fleet
from orderbridge_fleet.replica_problems import ReplicaProblems

POLL_RUNS_S = 300.0  # and ten times the timeout: a login, a list, what is written, the acknowledgements
# Of many accounts: who leaves at one moment finds the connections that the moment before has used. Of TLS each is worth
# a third of a megabyte.
MOST_IDLE = 64
GROUPED_FROM = 200  # accounts
TOKENS_S = 0.1  # of many accounts: for so long a token waits for others that are kept with it


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
        self._metrics = metrics or Metrics()
        self._machine = clock or SystemClock()
        self._clock = self._machine if not settings.fleet.from_database else SharedClock(self._machine)
        self._random = random or Random()  # noqa: S311 - it spreads waits, it guards nothing
        self._wire = wire or _wire(settings)
        self.database = database or _database(settings.database)
        self.cooldowns = cooldowns or Cooldowns()
        self._lanes = Lanes()
        self._token_group = token_writer(self.database, TOKENS_S if _is_many(settings) else 0.0)
        self._verdicts = Verdicts(
            settings.language, Statuses(settings.marketplace.needs_payment_status_id), self._metrics
        )
        self._zone = ZoneInfo(settings.marketplace.timezone)
        self.roster = Roster(settings.accounts)
        self.outbox = self._outbox()
        self.journal = journal_of(settings, self._clock, inline=self.database.inline)
        self._pollers = self._made_pollers()
        self._common = Common(self._clock)
        self.pulse = Pulse()
        self.timetable = self._timetable()
        self.health = self._checkup()
        self._pollers.known = self.health.known
        self.restore_check = RestoreCheck(
            settings, self.database, self._clock, self.health.known, self.roster.known.keys()
        )
        self.health.also = self.restore_check.read
        self.replica = ReplicaProblems(self.database)
        self.health.others = self.replica.others
        self.report = self._self_report()
        self.working = self._working()
        self.upkeep = self._upkeep()
        self.fleet = self._fleet()

    def _made_pollers(self) -> Pollers:
        return Pollers(
            self._settings.marketplace,
            self._settings.orders,
            self.roster.known.keys(),
            database=self.database,
            lanes=self._lanes,
            clock=self._clock,
            verdicts=self._verdicts,
            cooldowns=self.cooldowns,
            not_written=self.outbox.refused,
            metrics=self._metrics,
            journal=self.journal,
        )

    def _upkeep(self) -> Upkeep:
        return Upkeep(
            self._settings,
            self.roster,
            database=self.database,
            clock=self._clock,
            health=self.health,
            restore_check=self.restore_check,
            report=self.report,
            replica=self.replica,
            journal=self.journal,
            begun=self.working.begun,
        )

    def _self_report(self) -> SelfReport:
        if (
            not self._settings.fleet.from_database
        ):  # else accounts come by and by, and one at work may have been counted
            self._metrics.know(self.roster.known)
        self.database.on_work = self._metrics.worked
        return SelfReport(
            self._settings,
            self.roster.at_work,
            self.outbox,
            cooldowns=self.cooldowns,
            clock=self._clock,
            metrics=self._metrics,
            polls=lambda: self._lanes.polls,
        )

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

    def _outbox(self) -> Outbox:
        outbox = Outbox(
            self.roster,
            self._settings,
            database=self.database,
            lanes=self._lanes,
            clock=self._clock,
            random=self._random,
            verdicts=self._verdicts,
        )
        outbox.executor.on_restaurant = self._restaurant_set
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
            token_group=self._token_group,
        )

    def _working(self) -> Working:
        return Working(
            self.roster,
            make=self._account,
            recurring=self._recurring_of,
            pollers=self._pollers,
            outbox=self.outbox,
            cooldowns=self.cooldowns,
            poll_evenly=self._wire.poll_evenly,
            market=self._settings.marketplace,
            in_rhythm=self._settings.fleet.from_database,
            database=self.database,
            clock=self._clock,
            metrics=self._metrics,
        )

    def _fleet(self) -> Fleet | None:
        if not isinstance(self._clock, SharedClock):
            return None
        fleet = Fleet(
            self._settings,
            self.roster,
            self.working,
            database=self.database,
            clock=self._clock,
            known=self.health.known,
            metrics=self._metrics,
        )
        fleet.on_lead = self.health.begin_anew
        self.working.on_many = self.health.be_unsure
        fleet.lead_runs = lambda: self.timetable.runs_of(UPKEEP)
        self._wire.may_leave = fleet.may_leave
        return fleet

    def _recurring_of(self, account: Account) -> Recurring:
        return Recurring(
            account,
            self._pollers.poller(account),
            timetable=self.timetable,
            database=self.database,
            clock=self._clock,
            configured=self.roster.known.keys(),
            common=self._common,
            polled=self._polled,
        )

    def _polled(self, account: str, delivered: int, *, ok: bool = False) -> None:
        """Lanes are free again, polls have shown what they can: it concerns an account's own rows."""
        if ok and self.health.ping is not None:
            self.health.ping.polled()
        if delivered or self.outbox.queue.size(account):
            self.outbox.wake()

    def _restaurant_set(self, account: str, restaurant: str) -> None:
        if (jobs := self.working.recurring(account)) is not None:
            jobs.read_status(restaurant)


def _is_many(settings: config.Settings) -> bool:
    return settings.fleet.from_database or len(settings.accounts) >= GROUPED_FROM


def _wire(settings: config.Settings) -> Wire:
    market = settings.marketplace
    return Wire(
        base_url=market.base_url,
        timeout_s=market.timeout_seconds,
        ca_file=market.ca_file,
        user_agent=f"orderbridge/{__version__}",
        max_idle=max(settings.actions.max_in_flight, MOST_IDLE if _is_many(settings) else 0),
        requests_per_second=market.requests_per_second,
        logins_per_second=market.logins_per_second,
    )


def _database(chosen: config.Database) -> Database:
    return open_database(
        chosen.url,
        busy_timeout_s=chosen.busy_timeout_seconds,
        accept_unsafe_durability=chosen.accept_unsafe_durability,
    )
