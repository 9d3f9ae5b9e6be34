"""What is done for the whole database, once in a while: checks of health, sweeps. Of several replicas the lead does it."""

from collections.abc import Callable
from functools import partial

import structlog

from orderbridge.jobs.context import Context
from orderbridge.jobs.health import Checkup
from orderbridge.jobs.journal import Journal
from orderbridge.jobs.restore_check import RestoreCheck
from orderbridge.jobs.roster import Roster
from orderbridge.jobs.self_report import SelfReport, StartProgress, headline
from orderbridge.jobs.sweep import sweep, today
from orderbridge.jobs.timetable import Timetable
from orderbridge.observe import systemd
from orderbridge.store import starts
from orderbridge.store.group_commit import write_batch

SWEEP_S = 60.0
HEALTH_S = 5.0
STARTS_S = 5.0
JOBS = ("sweep", "health", "starts")

_log = structlog.get_logger(__name__)


class Upkeep:
    """Of one daemon."""

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
        """`begun`: how many accounts have been asked for since they came, of how many."""
        self.status = ""  # the line for systemd
        self._settings = context.settings
        self._roster = roster
        self._database = context.database
        self._clock = context.clock
        self._health = health
        self._restore_check = restore_check
        self._report = report
        self._journal = journal
        self._begun = begun
        self._progress = StartProgress(context.clock, context.settings.language)
        self._zone = context.zone

    def begin(self, timetable: Timetable) -> None:
        """From now on, again and again."""
        timetable.plan("sweep", SWEEP_S, self.sweep)
        timetable.plan("starts", STARTS_S, self.follow_starts)
        timetable.plan("health", 0.0, self.check)  # at once: a till asks for its lamp as soon as there are tables

    async def sweep(self) -> float:
        """What only time brings about. Returns the seconds until the next one."""
        if self._roster.owns(None):
            late = await today(self._database, self._settings, self._clock, self._health.known.service_now())
            await sweep(self._database, self._settings, self._clock, late)
            if self._journal is not None:
                await self._journal.tidy(self._settings.orders.retention_days, late)
        return SWEEP_S

    async def follow_starts(self) -> float:
        """When to begin with scheduled orders, and the moment itself. Returns the seconds until the next look."""
        if self._roster.owns(None):
            now = self._clock.now()
            found = await self._database.read(lambda tx: starts.due(tx, now, self._zone, self._minutes_of))
            raises = self._settings.alarms.not_started_minutes > 0
            note = partial(starts.note, raises_revision=raises)
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
        """One check of health, reported to everybody. Returns the seconds until the next one."""
        if self._journal is not None:
            self._journal.report(self._health.known)
        self._restore_check.check_file()
        if self._roster.owns(None):
            found = await self._health.check()
            await self._restore_check.follow()
        else:
            found = [one for one in self._health.known.problems() if one.behind is None]
        await self._roster.share_problems(found)
        self._report.checked(found)
        status = headline(found, len(self._roster.at_work), self._zone, self._settings.language)
        status = " ".join(filter(None, (self._progress.text(*self._begun()), status)))
        if status != self.status:
            self.status = status
            systemd.notify(f"{systemd.STATUS}{status}")
        asks_little = self._database.dialect.asks_little and not found
        return 2 * HEALTH_S if asks_little else HEALTH_S
