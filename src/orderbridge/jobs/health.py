"""Health, watched while the daemon runs: the log and whoever else is told hear of each problem's beginning and its end.

A look, in this order:
    what is wrong   one read: the tables, what this daemon alone knows, what other replicas have written down. Where the
                    database cannot be read, what was open stays open, behind that.
    who is told     the log, then the alarms and the ping, which work without a database.
    what is shown   the lamps, then delivery_problems with the sign of life, and how bad each was when it was told.

Not everything that is found is believed at once:
- `_unsure_until`: before that, when the last good poll was says nothing (`be_unsure`). What is wrong by time alone stands
  behind itself: it neither begins nor ends, and its lamp is yellow.
- `_remembered`: what the daemon before this one had told was read. One that ends sooner leaves that as it stands.
- `_before`: of that, and of what the log was told before a reload, what only a daemon can know and this one has had no
  time to find out. Until `_unsure_until` it stands behind itself, too, so that its end is not told too early.
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
from orderbridge.errors import Over
from orderbridge.jobs.daemon_problems import AtWork, DaemonProblems
from orderbridge.jobs.findings import configured, looked
from orderbridge.jobs.lamps import Lamps
from orderbridge.jobs.problem_table import LOST, ProblemTable
from orderbridge.rules.health import late_after
from orderbridge.rules.notify import MOST, MOST_ALIKE, Edges, Event, EventKind, alike
from orderbridge.rules.problems import BY_TIME_ALONE, NO_DATABASE, OF_THE_DAEMON, Code, Problem, Severity
from orderbridge.store.database import Database
from orderbridge.store.failures import is_busy
from orderbridge.store.inspection import broken_views
from orderbridge.texts import problem_text

if TYPE_CHECKING:
    from orderbridge.jobs.alarms import Alarms
    from orderbridge.jobs.ping import Ping

CLOCK_JUMP_S = 2.0
VIEWS_S = 30.0  # between two looks at the views, of which none was broken
LATER_KNOWN = OF_THE_DAEMON - {Code.DATABASE_LOST}  # to a daemon that has just started; that its file is there it knows

_log = structlog.get_logger(__name__)


class Watch:
    """What the log was told, and is told: the beginning of each problem, that it gets worse, and its end."""

    def __init__(self, language: str, most_alike: int = MOST_ALIKE, most: int = MOST) -> None:
        """`most_alike`: more of one kind are told in one line. `most`: messages of one problem in ten minutes."""
        self._language = language
        self._most_alike = most_alike
        self._edges = Edges(most)

    @property
    def open(self) -> dict[tuple[Code, str], Problem]:
        """What was told and is not over."""
        return {one.key: one for one in self._edges.open()}

    def go_on(self, before: "Watch") -> None:
        """After another one of this process, whose words may have been of another language."""
        self._edges = before._edges  # noqa: SLF001 - of the same class

    def see(self, found: Iterable[Problem], monotonic: float) -> None:
        """Tell what is new and what is over since the last time; what many have in common in one line."""
        for some in alike(self._edges.see(found, monotonic), self._most_alike):
            self._tell(some)

    def _tell(self, some: Sequence[Event]) -> None:
        event, problem = some[0], some[0].problem
        facts: dict[str, Any] = {"subject": problem.subject, "count": problem.count}
        if len(some) > self._most_alike:
            facts = {"subjects": [one.problem.subject for one in some[:MOST_ALIKE]], "count": len(some)}
        if flapped := max(one.flapped for one in some):
            facts["flapped"] = flapped
        if event.kind == EventKind.ENDED:
            seconds = round(max(one.seconds for one in some))
            _log.info("problem.ended", code=problem.code, **facts, seconds=seconds)
            return
        told = _log.error if problem.severity == Severity.SEVERE else _log.warning
        if problem.since is not None:
            facts["since"] = problem.since.isoformat()
        cause, remedy = problem_text(problem.code, self._language, **problem.facts)
        # Its detail is not for the log: an answer's own words may hold a customer's name.
        facts |= {"problem_level": problem.level, "cause": cause, "remedy": remedy}
        told(f"problem.{event.kind}", code=problem.code, **facts)


class Checkup:
    """What is wrong, asked again and again while the daemon runs."""

    def __init__(
        self,
        settings: config.Settings,
        database: Database,
        clock: Clock,
        accounts_at_work: Callable[[], Iterable[AtWork]] = tuple,
        names: Callable[[], Mapping[str, str]] | None = None,
    ) -> None:
        """`names`: of all accounts there are, by fingerprint; without it, of those that are configured."""
        self._names = names or (lambda: configured(settings))
        self.known = DaemonProblems(database, clock, accounts_at_work)
        self._settings = settings
        self._database = database
        self._clock = clock
        self.alarms = _alarms(settings)
        if self.alarms is not None:
            self.alarms.on_told = self._note_soon
        self.ping = _ping(settings, clock)
        self._noting: asyncio.Task[None] | None = None
        self._former: Watch | None = None  # of the daemon before this one in the process
        self.begin_anew()
        self._unsure_until = self._ahead = self._next_views = 0.0
        self.others: Callable[[Connection], Iterable[Problem]] = lambda _: ()  # what other replicas know
        self.also: Callable[[Connection], object] = bool  # what else a look reads, before anything is decided

    def begin_anew(self) -> None:
        """What was told and is written down was another's: at the start, and when this replica becomes the lead."""
        language = self._settings.language
        self.table = ProblemTable(self._database, self._clock, language)
        self._lamps = Lamps(self._database, self._clock, language)
        self.watch = Watch(language)
        self._remembered = False  # what was told by the daemon before
        self._before: dict[tuple[Code, str], Problem] = {}  # of that, what is not yet to be known by this one
        former, self._former = self._former, None
        if former is not None:
            self._take(former)
        self._seen: list[Problem] | None = None  # at the last look of which the alarms have heard

    def go_on(self, former: Watch) -> None:
        """After a reload: what the log was told by the daemon before is open, and has not begun again."""
        self._take(former)
        self._former = former  # a replica has yet to become the lead once more

    def _take(self, former: Watch) -> None:
        self.watch.go_on(former)
        self._keep(former.open.values())

    def _keep(self, told: Iterable[Problem]) -> None:
        self._before |= {one.key: replace(one, behind=one.code) for one in told if one.code in LATER_KNOWN}

    def _with_before(self, found: Sequence[Problem]) -> list[Problem]:
        seen = {one.key for one in found}
        return [*found, *(one for key, one in self._before.items() if key not in seen)]

    def be_unsure(self, starts_for_s: float = 0.0) -> None:
        """When the last good poll was says nothing for a while: after a start, a clock that was set, a database that took nothing.

        `starts_for_s`: so long it takes until each account was asked for once.
        """
        late = late_after(self._settings.marketplace.cooldown_seconds)
        until = self._clock.monotonic() + late.total_seconds() + starts_for_s
        self._unsure_until = max(self._unsure_until, until)
        self._ahead = self._wall_ahead()

    def _wall_ahead(self) -> float:
        return self._clock.now().timestamp() - self._clock.monotonic()

    async def look(self) -> list[Problem]:
        """One look, and what has changed is told. Returns what is wrong."""
        found = await self._found()
        # Only now: the clock may have been set while we read. And what could not be noted, was perhaps no silence.
        if abs(self._wall_ahead() - self._ahead) > CLOCK_JUMP_S or self._database.trouble:
            self.be_unsure()
        if self._clock.monotonic() < self._unsure_until:
            found = [replace(one, behind=one.code) if one.code in BY_TIME_ALONE else one for one in found]
        else:
            self._before = {}
        self.watch.see(self._with_before(found), self._clock.monotonic())
        visible = [one for one in found if one.behind is None]
        await self._tell(found)
        self._seen = visible
        with contextlib.suppress(DBAPIError, Over):  # the next look tries again
            # Before the sign of life: what a dead daemon showed is no longer so.
            await self._lamps.show(self._names().values(), found)
        await self._note_told()
        return visible

    async def _note_told(self) -> None:
        """What is open, and what of it was told: a daemon that is killed a moment later has a successor who knows."""
        if self._seen is not None:
            await self.table.note(self._seen, self.alarms.told() if self.alarms is not None else {})

    async def _tell(self, found: Sequence[Problem]) -> None:
        """Who is outside. What the daemon before this one has told is not told again."""
        monotonic = self._clock.monotonic()
        if self.alarms is not None:
            if not self._remembered:
                with contextlib.suppress(DBAPIError, Over):  # the next look tries again
                    told = await self.table.begin()
                    self.alarms.remember(told, monotonic)
                    if monotonic < self._unsure_until:
                        self._keep(told)
                    self._remembered = True
            self.alarms.see(self._with_before(found), monotonic)
        if self.ping is not None:
            self.ping.saw(any(one.severity == Severity.SEVERE and one.behind is None for one in found))

    def _note_alarms(self) -> None:
        """A command that fails reports nothing, not even itself: `status` and the board do."""
        failure = self.alarms and self.alarms.failure
        if not failure:
            self.known.end(Code.ALARM_FAILING)
        elif not self.known.has(Code.ALARM_FAILING):
            self.known.begin(Code.ALARM_FAILING, reason=failure)

    def _note_soon(self) -> None:
        """Beside the alarms: the next one does not wait for a database that hangs."""
        if self._noting is None or self._noting.done():
            self._noting = asyncio.create_task(self._note_told())

    async def lost(self) -> None:
        """The database's file is gone, and with it this daemon: nobody else is left to tell, and the next one tells its end."""
        lost = Problem(*LOST, self._clock.now(), Severity.SEVERE)
        open_ones = [replace(one, behind=lost.code) for one in self.watch.open.values()]
        self.watch.see([lost, *open_ones], self._clock.monotonic())
        await self._tell([lost, *open_ones])
        self._seen, self._remembered = [lost, *open_ones], True
        await self._note_told()

    async def close(self) -> None:
        """What is being told gets a moment, and is noted, so that the next daemon does not tell it again.

        A daemon that ends before its first look is over knows nothing of what was told: it leaves that as it stands.
        """
        if self.alarms is not None:
            await self.alarms.close()
            if self._remembered:
                await self._note_told()
        if self._noting is not None:
            self._noting.cancel()
            await asyncio.gather(self._noting, return_exceptions=True)
        if self.ping is not None:
            await self.ping.close()

    def _read(self, now: datetime, unsafe: str | None, connection: Connection) -> list[Problem]:
        self.also(connection)
        if (monotonic := self._clock.monotonic()) >= self._next_views:
            self.known.broken_views = broken_views(connection)
            self._next_views = monotonic + (0.0 if self.known.broken_views else VIEWS_S)
        known = (*self.known.problems(), *self.others(connection))
        return looked(connection, self._settings, now, unsafe, known, self._names())

    async def _found(self) -> list[Problem]:
        """What stands in the database, and what is known besides. One that cannot be read leaves what was open as it is."""
        now = self._clock.now()
        self._note_alarms()
        unsafe = self._database.durability.remedy
        try:
            found = await self._database.read(partial(self._read, now, unsafe))
        except DBAPIError as error:
            self.known.is_held = is_busy(error)  # rows that somebody holds can be read: this is a whole table
            known = self.known.problems()
            before = (one for key, one in self.watch.open.items() if key not in {new.key for new in known})
            cause = next((one.code for one in known if one.code in NO_DATABASE), Code.DATABASE_FAILING)
            return [*known, *(replace(one, behind=cause) for one in before if one.code not in OF_THE_DAEMON)]
        self.known.is_held = False
        return found


def _alarms(settings: config.Settings) -> "Alarms | None":
    """Who is not told costs nothing."""
    if not settings.alarms.command:
        return None
    from orderbridge.jobs.alarms import Alarms  # noqa: PLC0415 - only where it is wanted

    return Alarms(settings.alarms, settings.language)


def _ping(settings: config.Settings, clock: Clock) -> "Ping | None":
    if settings.alarms.ping_url is None:
        return None
    from orderbridge.jobs.ping import Ping  # noqa: PLC0415 - as above

    url = settings.alarms.ping_url.get_secret_value()
    return Ping(url, clock=clock, ca_file=settings.marketplace.ca_file)
