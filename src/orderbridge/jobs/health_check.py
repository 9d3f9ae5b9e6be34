"""What is wrong, checked again and again while the daemon runs; the log, the alarm command and the tables hear of changes.

One check, in this order:
    what is wrong     one read: the tables, what this daemon alone knows, what other replicas have written down. Where the
                      database cannot be read, what was open stays open, behind that.
    what is reported  the log, then the alarm command and the ping, which work without a database.
    what is shown     delivery_problems and delivery_lamps with the sign of life, and how bad each problem was when the
                      command heard of it.

Not everything that is found is believed at once:
- `_unsure_until`: before that, the time of the last good poll says nothing (`be_unsure`). A problem by time alone is put
  behind itself: it neither begins nor ends, and its account is yellow.
- `_remembered`: what the daemon before this one had reported was read. A daemon that ends sooner leaves it as it stands.
- `_inherited`: of that, and of what the log had before a reload, the problems that only a daemon can know and this one has
  had no time to find out. Until `_unsure_until` they are behind themselves, too, so that they do not end too early.
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
LATER_KNOWN = OF_THE_DAEMON - {Code.DATABASE_LOST}  # to a daemon that has just started; that its file is there it knows

_log = structlog.get_logger(__name__)


class Checkup:
    """The check, and what was reported by then."""

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
        self._found: list[Problem] | None = None  # at the last check of which the alarms have heard
        self._unsure_until = self._ahead = self._next_views = 0.0
        self.begin_anew()

    @property
    def history(self) -> OpenProblems:
        """What was reported. After a reload what is open in the log of the daemon before does not begin again."""
        return self._kept.history

    def begin_anew(self) -> None:
        """At the start, and when this replica becomes the lead: what is written down was reported by another."""
        if self._found is not None:
            self._kept.history = OpenProblems()
        self._table = ProblemTable(self._database, self._clock, self._settings.language)
        self._remembered, self._found = False, None
        self._inherited: dict[Key, Problem] = {}
        self._inherit(self.history.open().values())

    def _inherit(self, reported: Iterable[Problem]) -> None:
        self._inherited |= {one.key: replace(one, behind=one.code) for one in reported if one.code in LATER_KNOWN}

    def be_unsure(self, starts_for_s: float = 0.0) -> None:
        """The last good poll says nothing for a while: after a start, a clock that was set, a database that took nothing.

        `starts_for_s`: so long it takes until each account was asked for once.
        """
        late = late_after(self._settings.marketplace.cooldown_seconds)
        until = self._clock.monotonic() + late.total_seconds() + starts_for_s
        self._unsure_until = max(self._unsure_until, until)
        self._ahead = self._wall_ahead()

    def _wall_ahead(self) -> float:
        return self._clock.now().timestamp() - self._clock.monotonic()

    async def check(self) -> list[Problem]:
        """One check; what has changed is reported. Returns what is wrong."""
        found = await self._find()
        # Only now: the clock may have been set during the read. And a poll may have been good and could not be noted.
        if abs(self._wall_ahead() - self._ahead) > CLOCK_JUMP_S or self._database.trouble:
            self.be_unsure()
        if self._clock.monotonic() < self._unsure_until:
            found = [replace(one, behind=one.code) if one.code in BY_TIME_ALONE else one for one in found]
        else:
            self._inherited = {}
        await self._report(found)
        await self._store()
        return [one for one in found if one.behind is None]

    async def _report(self, found: list[Problem]) -> None:
        """To the log and to who is outside. What the daemon before this one has reported is not reported again."""
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
        """What is open, and what of it the command has heard: a daemon that is killed now has a successor who knows."""
        if self._found is not None:
            await self._table.store(self._found, self._names().values(), self.history.heard())

    def _store_soon(self) -> None:
        """Beside the alarms: the next one does not wait for a database that hangs."""
        if self._storing is None or self._storing.done():
            self._storing = asyncio.create_task(self._store())

    def _check_alarms(self) -> None:
        """A command that fails reports nothing, not even itself: `status` and the board do."""
        if self.alarms.failure is not None:
            self.own_problems.begin(Code.ALARM_FAILING, reason=self.alarms.failure)
        else:
            self.own_problems.end(Code.ALARM_FAILING)

    async def lost(self) -> None:
        """The database's file is gone, and with it this daemon: it reports that, and the next one reports its end."""
        lost = Problem(Code.DATABASE_LOST, "", self._clock.now(), Severity.SEVERE)
        opened = [replace(one, behind=lost.code) for one in self.history.open().values()]
        await self._report([lost, *opened])
        self._remembered = True
        await self._store()

    async def close(self) -> None:
        """A running command gets a moment, and what it heard is stored, so that the next daemon does not report it again.

        A daemon that ends before its first check is over does not know what was reported: it leaves that as it stands.
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
        """All problems. A database that cannot be read leaves what was open in the tables as it is."""
        now = self._clock.now()
        self._check_alarms()
        unsafe = self._database.durability.remedy
        try:
            found = await self._database.read(partial(self._read, now, unsafe))
        except DBAPIError as error:
            self.own_problems.is_held = is_busy(error)  # locked rows can be read: this is a whole table
            known = self._known()
            keys = {one.key for one in known}
            cause = next((one.code for one in known if one.code in NO_DATABASE), Code.DATABASE_FAILING)
            before = (one for key, one in self.history.open().items() if key not in keys)
            return [*known, *(replace(one, behind=cause) for one in before if one.code not in OF_THE_DAEMON)]
        self.own_problems.is_held = False
        return found


def log_events(some: Sequence[Event], language: str) -> None:
    """One line for events that are alike."""
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
    # Its detail is not for the log: an answer's own words may hold a customer's name.
    facts |= {"problem_level": problem.level, "cause": cause, "remedy": remedy}
    log = _log.error if problem.severity == Severity.SEVERE else _log.warning
    log(f"problem.{event.kind}", code=problem.code, **facts)
