"""Checks the health regularly, and reports each change to the log, the alarm command and the tables.

One check has three steps:

    find     read the tables, this daemon's own problems and those of other replicas. While the database cannot be read,
             the open problems stay open, suppressed by that problem.
    report   to the log, then to the alarm command and the ping, which need no database.
    store    delivery_problems and delivery_lamps with the sign of life, and the severity reported to the command.

Problems are suppressed during warm-up. A suppressed problem (`behind`) neither begins nor ends:

- Until `_unsure_until`, the time of the last good poll means nothing (`expect_late_polls`). Problems that follow from
  time alone are suppressed, and their accounts are yellow.
- `_remembered`: the reports of the previous daemon were read. A daemon that ends before that does not change them.
- `_inherited` are reported problems that only a daemon can detect, and that this one had no time to detect yet. They
  are suppressed until `_unsure_until`, so that they do not end too early.
"""

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

import structlog
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from orderbridge.clock import wall_ahead
from orderbridge.errors import Message, Over
from orderbridge.jobs.account import Roster
from orderbridge.jobs.alarms import Alarms, Ping
from orderbridge.jobs.context import Context
from orderbridge.jobs.open_problems import read_problems
from orderbridge.jobs.problem_table import ProblemTable
from orderbridge.jobs.restore_check import RestoreCheck
from orderbridge.rules.health import late_after
from orderbridge.rules.problems import (
    ALIKE_LIMIT,
    BY_TIME_ALONE,
    NO_DATABASE,
    OF_THE_DAEMON,
    Code,
    Event,
    EventKind,
    Key,
    OpenProblems,
    Problem,
    Severity,
    alike,
)
from orderbridge.store.failures import is_busy
from orderbridge.store.inspection import broken_views
from orderbridge.texts import problem_text

CLOCK_JUMP_S = 2.0
VIEWS_S = 30.0  # between two checks of the views, if none was broken
LATER_KNOWN = OF_THE_DAEMON - {Code.DATABASE_LOST, Code.DATABASE_RESTORED}  # not known right after a start

_log = structlog.get_logger(__name__)


class Checkup:
    """Runs the health checks and keeps the reported problems."""

    def __init__(self, context: Context, roster: Roster, restore_check: RestoreCheck) -> None:
        self._settings, self._database, self._clock = context.settings, context.database, context.clock
        self._kept, self.own_problems = context.kept, context.own_problems
        self._roster, self._restore_check = roster, restore_check
        chosen = self._settings.alarms
        self.alarms = Alarms(chosen, self._settings.language, self._store_soon)
        ca_file = self._settings.marketplace.ca_file
        url = chosen.ping_url
        self.ping = None if url is None else Ping(url.get_secret_value(), clock=self._clock, ca_file=ca_file)
        self._storing: asyncio.Task[None] | None = None
        self._found: list[Problem] | None = None  # at the last reported check
        self._unsure_until = self._ahead = self._next_views = 0.0
        self.reset()

    @property
    def history(self) -> OpenProblems:
        """The reported problems. They survive a reload, so that they are not reported again."""
        return self._kept.history

    def reset(self) -> None:
        """Start without a history: at the start, and when this replica becomes the lead."""
        if self._found is not None:
            self._kept.history = OpenProblems()
        self._table = ProblemTable(self._database, self._clock, self._settings)
        self._remembered, self._found = False, None
        self._inherited: dict[Key, Problem] = {}
        self._inherit(self.history.open().values())

    def _inherit(self, reported: Iterable[Problem]) -> None:
        self._inherited |= {one.key: replace(one, behind=one.code) for one in reported if one.code in LATER_KNOWN}

    def expect_late_polls(self, starts_for_s: float = 0.0) -> None:
        """Ignore the time of the last good poll for a while: after a start, a clock change or a database failure.

        `starts_for_s`: how long the first polls of all accounts take.
        """
        late = late_after(self._settings.marketplace.cooldown_seconds)
        until = self._clock.monotonic() + late.total_seconds() + starts_for_s
        self._unsure_until = max(self._unsure_until, until)
        self._ahead = wall_ahead(self._clock)

    async def check(self) -> list[Problem]:
        """Check the health once and report changes. Returns the open problems."""
        found = await self._find()
        # Only now, since the clock may be set during the read. With database trouble a good poll may not be noted.
        is_troubled = self._database.trouble or self.own_problems.is_held
        if abs(wall_ahead(self._clock) - self._ahead) > CLOCK_JUMP_S or is_troubled:
            self.expect_late_polls()
        if self._clock.monotonic() < self._unsure_until:
            found = [replace(one, behind=one.code) if one.code in BY_TIME_ALONE else one for one in found]
        else:
            self._inherited = {}
        await self._report(found)
        await self._store()
        return [one for one in found if one.behind is None]

    async def _report(self, found: list[Problem]) -> None:
        """Report to the log, the alarm command and the ping. Reports of the previous daemon are not repeated."""
        monotonic = self._clock.monotonic()
        self._log(self._with_inherited(found))
        if not self._remembered:
            with contextlib.suppress(DBAPIError, Over):  # the next check tries again
                reported = await self._table.begin()
                self.history.remember(reported, monotonic)
                if monotonic < self._unsure_until:
                    self._inherit(reported)
                self._remembered = True
        behind = {one.key for one in self._with_inherited(found) if one.behind is not None}
        self.alarms.check(self.history, behind, monotonic)
        if self.ping is not None:
            self.ping.checked(any(one.severity == Severity.SEVERE and one.behind is None for one in found))
        self._found = found

    def _log(self, found: Iterable[Problem]) -> None:
        for some in alike(self.history.check(found, self._clock.monotonic()), ALIKE_LIMIT):
            log_events(some, self._settings.language)

    def _with_inherited(self, found: Sequence[Problem]) -> list[Problem]:
        seen = {one.key for one in found}
        return [*found, *(one for key, one in self._inherited.items() if key not in seen)]

    async def _store(self) -> None:
        """Store the open problems and those reported to the command, for the next daemon."""
        if self._found is not None:
            names, reported = self._names().values(), self.history.reported()
            self.own_problems.is_held = await self._table.store(self._found, names, reported)

    def _store_soon(self) -> None:
        """Store in the background, so that the next alarm does not wait for the database."""
        if self._storing is None or self._storing.done():
            self._storing = asyncio.create_task(self._store())

    async def lost(self) -> None:
        """Report that the database file is gone, which ends the daemon. The next daemon reports the problem's end."""
        lost = Problem(Code.DATABASE_LOST, "", self._clock.now(), Severity.SEVERE)
        opened = [replace(one, behind=lost.code) for one in self.history.open().values()]
        await self._report([lost, *opened])
        self._remembered = True
        await self._store()

    async def close(self) -> None:
        """Wait briefly for a running command and store what it reported, so that the next daemon does not repeat it.

        Before its first check, the daemon does not know what was reported and stores nothing.
        """
        await self.alarms.close()
        if self._remembered and self._settings.alarms.command:
            await self._store()
        if self._storing is not None:
            self._storing.cancel()
            await asyncio.gather(self._storing, return_exceptions=True)
        if self.ping is not None:
            await self.ping.close()

    def _names(self) -> dict[str, str]:
        return {one.fingerprint: one.name for one in self._roster.known.values() if one is not None}

    def _read(self, now: datetime, unsafe: Message | None, connection: Connection) -> list[Problem]:
        self._restore_check.read(connection)
        if (monotonic := self._clock.monotonic()) >= self._next_views:
            self.own_problems.broken_views = broken_views(connection)
            self._next_views = monotonic + (0.0 if self.own_problems.broken_views else VIEWS_S)
        known = (*self._known(), *self._roster.problems_elsewhere(connection))
        return read_problems(connection, self._settings, now, unsafe, known, self._names())

    def _known(self) -> tuple[Problem, ...]:
        return self.own_problems.problems(self._roster.at_work.values())

    async def _find(self) -> list[Problem]:
        """All problems. If the database cannot be read, those from the tables stay open."""
        now = self._clock.now()
        failure = self.alarms.failure
        self.own_problems.report(Code.ALARM_FAILING, is_open=failure is not None, reason=failure)
        unsafe = self._database.durability.remedy
        try:
            return await self._database.read(partial(self._read, now, unsafe))
        except DBAPIError as error:
            self.own_problems.is_held = is_busy(error)  # a whole table is locked, since locked rows can be read
            known = self._known()
            keys = {one.key for one in known}
            # None: it is not reported yet, and so hides none.
            cause = next((one.code for one in known if one.code in NO_DATABASE), None)
            before = (one for key, one in self.history.open().items() if key not in keys)
            return [*known, *(replace(one, behind=cause) for one in before if one.code not in OF_THE_DAEMON)]


def log_events(some: Sequence[Event], language: str) -> None:
    """Log similar events in one line."""
    event, problem = some[0], some[0].problem
    facts: dict[str, Any] = {"subject": problem.subject, "count": problem.count}
    if len(some) > ALIKE_LIMIT:
        facts = {"subjects": [one.problem.subject for one in some[:ALIKE_LIMIT]], "count": len(some)}
    if flapped := max(one.flapped for one in some):
        facts["flapped"] = flapped
    if event.kind == EventKind.ENDED:
        seconds = round(max(one.seconds for one in some))
        _log.info("problem.ended", code=problem.code, **facts, seconds=seconds)
        return
    if problem.since is not None:
        facts["since"] = problem.since.isoformat()
    cause, remedy = problem_text(problem.code, language, **problem.facts)
    # The detail is not logged: an answer may hold a customer's name.
    facts |= {"problem_level": problem.level, "cause": cause, "remedy": remedy}
    log = _log.error if problem.severity == Severity.SEVERE else _log.warning
    log(f"problem.{event.kind}", code=problem.code, **facts)
