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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from orderbridge import config
from orderbridge.clock import Clock
from orderbridge.errors import Message, Over
from orderbridge.jobs.alarms import Alarms, Ping
from orderbridge.jobs.context import Kept
from orderbridge.jobs.daemon_problems import DaemonProblems
from orderbridge.jobs.open_problems import configured, read_problems
from orderbridge.jobs.problem_table import ProblemTable
from orderbridge.rules.health import late_after
from orderbridge.rules.notify import ALIKE_LIMIT, Event, EventKind, Key, OpenProblems, alike
from orderbridge.rules.problems import BY_TIME_ALONE, NO_DATABASE, OF_THE_DAEMON, Code, Problem, Severity
from orderbridge.store.database import Database
from orderbridge.store.failures import is_busy
from orderbridge.store.inspection import broken_views
from orderbridge.texts import problem_text

if TYPE_CHECKING:
    from orderbridge.jobs.account import Account

CLOCK_JUMP_S = 2.0
VIEWS_S = 30.0  # between two checks of the views, if none was broken
LATER_KNOWN = OF_THE_DAEMON - {Code.DATABASE_LOST}  # to a daemon that has just started; that its file is there it knows

_log = structlog.get_logger(__name__)


class Checkup:
    """The check, and what was reported by then."""

    def __init__(
        self,
        settings: config.Settings,
        database: Database,
        clock: Clock,
        accounts_at_work: "Callable[[], Iterable[Account]]" = tuple,
        names: Callable[[], Mapping[str, str]] | None = None,
        kept: Kept | None = None,
    ) -> None:
        """`names`: of all accounts there are, by fingerprint; without it, of those that are configured."""
        self._names = names or (lambda: configured(settings))
        self.known = DaemonProblems(database, clock, accounts_at_work, kept)
        self._settings = settings
        self._database = database
        self._clock = clock
        self.alarms = Alarms(settings.alarms, settings.language)
        self.alarms.on_sent = self._store_soon
        url = settings.alarms.ping_url
        ca_file = settings.marketplace.ca_file
        self.ping = None if url is None else Ping(url.get_secret_value(), clock=clock, ca_file=ca_file)
        self._storing: asyncio.Task[None] | None = None
        self.alike_limit = ALIKE_LIMIT
        self._former: OpenProblems | None = None
        self.begin_anew()
        self._unsure_until = self._ahead = self._next_views = 0.0
        self.others: Callable[[Connection], Iterable[Problem]] = lambda _: ()  # what other replicas know
        self.also: Callable[[Connection], object] = bool  # what else a check reads, before anything is decided

    def begin_anew(self) -> None:
        """What was reported and is written down was another's: at the start, and when this replica becomes the lead."""
        self._table = ProblemTable(self._database, self._clock, self._settings.language)
        self._remembered = False
        self._inherited: dict[Key, Problem] = {}
        self.history, self._former = self._former or OpenProblems(), None
        self._inherit(self.history.open().values())
        self._found: list[Problem] | None = None  # at the last check of which the alarms have heard

    def go_on(self, former: OpenProblems) -> None:
        """After a reload: what the log has of the daemon before is open, and does not begin again."""
        self._former = former
        self.begin_anew()
        self._former = former  # a replica has yet to become the lead once more

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
        for some in alike(self.history.check(found, self._clock.monotonic()), self.alike_limit):
            log_events(some, self._settings.language, self.alike_limit)

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
            self.known.begin(Code.ALARM_FAILING, reason=self.alarms.failure)
        else:
            self.known.end(Code.ALARM_FAILING)

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

    def _read(self, now: datetime, unsafe: Message | None, connection: Connection) -> list[Problem]:
        self.also(connection)
        if (monotonic := self._clock.monotonic()) >= self._next_views:
            self.known.broken_views = broken_views(connection)
            self._next_views = monotonic + (0.0 if self.known.broken_views else VIEWS_S)
        known = (*self.known.problems(), *self.others(connection))
        return read_problems(connection, self._settings, now, unsafe, known, self._names())

    async def _find(self) -> list[Problem]:
        """All problems. A database that cannot be read leaves what was open in the tables as it is."""
        now = self._clock.now()
        self._check_alarms()
        unsafe = self._database.durability.remedy
        try:
            found = await self._database.read(partial(self._read, now, unsafe))
        except DBAPIError as error:
            self.known.is_held = is_busy(error)  # locked rows can be read: this is a whole table
            known = self.known.problems()
            keys = {one.key for one in known}
            cause = next((one.code for one in known if one.code in NO_DATABASE), Code.DATABASE_FAILING)
            before = (one for key, one in self.history.open().items() if key not in keys)
            return [*known, *(replace(one, behind=cause) for one in before if one.code not in OF_THE_DAEMON)]
        self.known.is_held = False
        return found


def log_events(some: Sequence[Event], language: str, alike_limit: int) -> None:
    """One line for events that are alike."""
    event, problem = some[0], some[0].problem
    facts: dict[str, Any] = {"subject": problem.subject, "count": problem.count}
    if len(some) > alike_limit:
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
