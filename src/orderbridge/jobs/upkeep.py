"""The regular jobs for the whole database: health checks, sweeps and scheduled orders. Also reports the daemon's state.

A sweep ends silent orders, and blanks and deletes what was kept long enough. Among replicas only the lead does this.

Readiness, the status line for systemd and the gauges use the last health check in memory, and so cost no query.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from zoneinfo import ZoneInfo

import structlog

from orderbridge import config
from orderbridge.clock import Clock
from orderbridge.jobs.account import Account, Roster
from orderbridge.jobs.closures import CLOSURES_S, Closures
from orderbridge.jobs.context import Context
from orderbridge.jobs.health_check import Checkup
from orderbridge.jobs.journal_writer import Journal
from orderbridge.jobs.learned import contradictions
from orderbridge.jobs.outbox import Outbox
from orderbridge.jobs.restore_check import RestoreCheck
from orderbridge.jobs.timetable import Timetable
from orderbridge.observe import systemd
from orderbridge.observe.metrics import ACTIONS_OPEN, PROBLEMS, REQUESTS_UNDER_WAY, TOKEN_EXPIRES, WORKING
from orderbridge.rules.health import late_after, late_in_turn
from orderbridge.rules.problems import NO_DATABASE, Code, Problem, Readiness, lamp_of
from orderbridge.store import order_times, quarantine, retention
from orderbridge.store.database import Database
from orderbridge.store.group_commit import write_batch
from orderbridge.store.schema import set_sequences_right
from orderbridge.texts import problem_text, say

SWEEP_S = 60.0
SWEEP_AGAIN_S = 5.0  # with more that is due; a large fleet has a million orders a day
HEALTH_S = 5.0
STARTS_S = 5.0
JOBS = ("sweep", "health", "starts", "closures")
MANY_ACCOUNTS = 100  # from which on the progress of a start is shown
PROGRESS_S = 30.0  # between two log lines
CHECK_S = 15.0  # plus the busy timeout: a longer health check counts as hung

_log = structlog.get_logger(__name__)


async def today(
    database: Database, settings: config.Settings, clock: Clock, service_now: datetime | None = None
) -> datetime:
    """A safe current time for deleting old data: our clock may have been set years ahead.

    `service_now`: the marketplace's time, if known; otherwise the newest orders show the time.
    """
    now, zone = clock.now(), ZoneInfo(settings.marketplace.timezone)
    if service_now is not None:
        return min(now, service_now)
    return await database.read(lambda tx: retention.plausible_now(tx, now, zone))


async def sweep(database: Database, settings: config.Settings, clock: Clock, late: datetime) -> float:
    """Sweep with one short transaction for each kind of data. Locked rows wait for the next sweep.

    `late`: the time from `today`. Returns the seconds until the next sweep.
    """
    now = clock.now()
    if database.dialect.sequence:  # a sequence that was set back would make a till's INSERT fail
        await database.run(set_sequences_right)
    ended, refused = await _end_silent(database, settings, now)
    blanked = 0
    if settings.orders.retention_days:
        before = late - timedelta(days=settings.orders.retention_days)
        old = await database.read(lambda tx: retention.with_old_contents(tx, before))
        emptied, kept = await write_batch(database, partial(retention.blank_old, before=before), old)
        refused += len(kept)
        blanked = len(emptied) + await database.run(lambda tx: quarantine.blank_old(tx, before, now))
    deleted, kept_rows = await _delete_old(database, settings, late) if settings.orders.records_days else (0, 0)
    refused += kept_rows
    if ended or blanked or deleted or refused:
        _log.info("orders.swept", ended=ended, blanked=blanked, deleted=deleted, refused=refused)
    return SWEEP_S if blanked + deleted < retention.SWEEP else SWEEP_AGAIN_S


async def _delete_old(database: Database, settings: config.Settings, late: datetime) -> tuple[int, int]:
    """Delete old records, so that disk use stays bounded. Returns the counts of deleted and refused records."""
    before = late - timedelta(days=settings.orders.records_days)
    rows = await database.read(lambda tx: retention.old_actions(tx, before))
    gone, kept = await write_batch(database, partial(retention.delete_actions, before=before), rows)
    keys = await database.read(lambda tx: retention.old_orders(tx, before))
    over, kept_orders = await write_batch(database, partial(retention.delete_orders, before=before), keys)
    documents = await database.run(lambda tx: retention.delete_documents(tx, before))
    return len(gone) + len(over) + documents, len(kept) + len(kept_orders)


async def _end_silent(database: Database, settings: config.Settings, now: datetime) -> tuple[int, int]:
    """End silent orders. Returns the counts of ended and refused orders."""
    after = timedelta(hours=settings.orders.silence_hours)
    fresh = await database.read(lambda tx: order_times.to_count(tx, now))
    _, refused = await write_batch(database, partial(order_times.count_from_here, now=now), fresh)
    quiet = await database.read(lambda tx: order_times.silent(tx, after, now))
    end = partial(order_times.end_silent, now=now, silence=after)
    ended, kept = await write_batch(database, end, quiet)
    return len(ended), len(refused) + len(kept)


def headline(found: Sequence[Problem], accounts: int, zone: ZoneInfo, language: str) -> str:
    """The worst problem and the number of others in one line, for `systemctl status`."""
    if not found:
        return say("status.green", language, count=accounts)
    first = found[0]
    light = say(f"lights.{lamp_of(first)}", language)
    since = "" if first.since is None else say("status.since", language, time=first.since.astimezone(zone))
    cause, _ = problem_text(first.code, language, **first.facts)
    subject = f"{first.subject}: " if first.subject else ""
    more = f"+{len(found) - 1}" if len(found) > 1 else ""
    beside = ", ".join(filter(None, (since, more)))
    return f"{light}: {subject}{cause}{f' ({beside})' if beside else ''}"


class SelfReport:
    """The state that one daemon reports: readiness, problems and gauges."""

    def __init__(self, context: Context, accounts: Mapping[str, Account], outbox: Outbox) -> None:
        settings = context.settings
        self._accounts, self._outbox, self._cooldowns = accounts, outbox, context.kept.cooldowns
        self._clock, self._metrics, self._lanes = context.clock, context.metrics, context.lanes
        self._late = late_after(settings.marketplace.cooldown_seconds)
        self._busy_timeout_s = settings.database.busy_timeout_seconds
        self._checked: float | None = None
        self.problems: tuple[Problem, ...] = ()  # of the last health check

    def checked(self, found: Collection[Problem]) -> None:
        """Take the problems from a health check."""
        self._checked = self._clock.monotonic()
        self.problems = tuple(found)

    def readiness(self) -> Readiness:
        """The current readiness."""
        if self._checked is None:  # the start is not finished
            return Readiness(is_working=True)
        now, good = self._clock.monotonic(), self._metrics.good_polls
        is_checked = now - self._checked <= CHECK_S + self._busy_timeout_s
        answers = is_checked and not NO_DATABASE & {one.code for one in self.problems}
        polled = (now - good[name] <= self._late_s(one) for name, one in self._accounts.items() if name in good)
        is_polled = not self._accounts or any(polled)  # one account is enough
        return Readiness(is_working=True, database_answers=answers, is_polled=is_polled, problems=self.problems)

    def _late_s(self, account: Account) -> float:
        return late_in_turn(self._late, len(self._cooldowns.in_turn(account.fingerprint))).total_seconds()

    def measure(self) -> None:
        """Set the gauges."""
        show = self._metrics.set
        show(WORKING, to=1)
        for account in self._accounts.values():
            token = account.session.current
            show(TOKEN_EXPIRES, account.name, to=0 if token is None else token.expires_utc.timestamp())
        unresolved = len(self._outbox.queue.unresolved)
        show(ACTIONS_OPEN, "waiting", to=len(self._outbox.queue) - unresolved)
        show(ACTIONS_OPEN, "unresolved", to=unresolved)
        show(REQUESTS_UNDER_WAY, "poll", to=self._lanes.polls)
        show(REQUESTS_UNDER_WAY, "action", to=self._outbox.executor.under_way.total())
        self._metrics.clear(PROBLEMS)
        for one in self.problems:
            self._metrics.count(PROBLEMS, one.code, one.severity, by=one.count)


class Upkeep:
    """The regular jobs of one daemon."""

    def __init__(
        self,
        context: Context,
        roster: Roster,
        *,
        health: Checkup,
        restore_check: RestoreCheck,
        report: SelfReport,
        journal: Journal | None,
        begun: Callable[[], tuple[int, int]],
    ) -> None:
        """`begun` returns how many accounts had their first poll, and how many there are."""
        self.status = ""  # the line for systemd
        self._settings, self._database, self._clock = context.settings, context.database, context.clock
        self._zone, self._own_problems, self._learned = context.zone, context.own_problems, context.kept.learned
        self._roster, self._health, self._restore_check = roster, health, restore_check
        self._report, self._journal, self._begun = report, journal, begun
        self.closures = Closures(context, roster, restore_check)
        self._start_logged: float | None = None  # time of the last log line; None: no start is under way

    def begin(self, timetable: Timetable) -> None:
        """Schedule the jobs."""
        timetable.plan("sweep", SWEEP_S, self.sweep)
        timetable.plan("starts", STARTS_S, self.follow_starts)
        timetable.plan("closures", CLOSURES_S, self.closures.follow)
        timetable.plan("health", 0.0, self.check)  # at once: a till may read its lamp immediately

    async def sweep(self) -> float:
        """Sweep. Returns the seconds until the next run."""
        wait_s = SWEEP_S
        if self._roster.owns(None):
            late = await today(self._database, self._settings, self._clock, self._own_problems.service_now())
            wait_s = await sweep(self._database, self._settings, self._clock, late)
            if self._journal is not None:
                await self._journal.tidy(self._settings.orders.retention_days, late)
        await self.learn()
        return wait_s

    async def learn(self) -> None:
        """Store what the marketplace has shown, and compare it with the configuration."""
        await self._learned.store(self._database, self._clock.now())
        market = self._settings.marketplace
        found = await self._database.read(lambda tx: contradictions(tx, market))
        for key, seen in found.items():
            facts = {"option": key, "seen": seen, "value": getattr(market, key)}
            self._own_problems.report(Code.LEARNED_OTHERWISE, key, is_open=seen is not None, **facts)

    async def follow_starts(self) -> float:
        """Update the start times of scheduled orders, and log those that begin.

        Returns the seconds until the next run.
        """
        if self._roster.owns(None):
            now = self._clock.now()
            found = await self._database.read(lambda tx: order_times.due(tx, now, self._zone, self._minutes_of))
            note = partial(order_times.note, raises_revision=self._settings.alarms.not_started_minutes > 0)
            written, _ = await write_batch(self._database, lambda tx, some: note(tx, now, some), found)
            for one in written:
                if one.begins:
                    _log.info("order.start", payment_key=one.payment_key)
        return STARTS_S

    def _minutes_of(self, account: str, restaurant_id: str | None) -> int:
        known = self._roster.known.get(account)
        minutes = None if known is None else known.auto_accept(restaurant_id)
        return minutes or self._settings.orders.preparing_minutes

    async def check(self) -> float:
        """Check the health and report it. Returns the seconds until the next run."""
        if self._journal is not None:
            self._journal.report(self._own_problems)
        self._restore_check.check_file()
        if self._roster.owns(None):
            found = await self._health.check()
            await self._restore_check.follow()
        else:
            found = [one for one in self._own_problems.problems(self._roster.at_work.values()) if one.behind is None]
        await self._roster.share_problems(found)
        self._report.checked(found)
        status = headline(found, len(self._roster.at_work), self._zone, self._settings.language)
        status = " ".join(filter(None, (self._start_progress(), status)))
        if status != self.status:
            self.status = status
            systemd.notify(f"{systemd.STATUS}{status}")
        asks_little = self._database.dialect.asks_little and not found
        return 2 * HEALTH_S if asks_little else HEALTH_S

    def _start_progress(self) -> str:
        """The progress of the start of many accounts as a sentence, logged from time to time; else empty."""
        begun, accounts = self._begun()
        is_starting, now, logged = begun < accounts >= MANY_ACCOUNTS, self._clock.monotonic(), self._start_logged
        if (is_starting and (logged is None or now >= logged + PROGRESS_S)) or (not is_starting and logged is not None):
            _log.info("accounts.started", done=begun, of=accounts)
            self._start_logged = now if is_starting else None
        return say("status.starting", self._settings.language, done=begun, count=accounts) if is_starting else ""
