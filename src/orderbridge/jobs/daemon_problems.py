"""What only the daemon at work can know of what is wrong: its database, its clock, its logins.

Whoever finds out says so here (`begin`, `end`), or is asked at each look: the database's trouble, the service's Date,
tokens that died young, whether this replica was replaced (rules.daemon decides), the page that is served (rules.page).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Protocol

from orderbridge.clock import Clock, http_date
from orderbridge.observe import output
from orderbridge.rules import daemon, page
from orderbridge.rules.problems import Code, Problem, severity_of
from orderbridge.store.database import Database
from orderbridge.store.trouble import TroubleKind

DATE_EVERY_S = 10.0  # between two looks at the service's Date: thousands of answers a second have one

OF_TROUBLE: Mapping[TroubleKind, Code] = {
    TroubleKind.FULL: Code.DATABASE_FULL,
    TroubleKind.READ_ONLY: Code.DATABASE_READ_ONLY,
    TroubleKind.BUSY: Code.DATABASE_BUSY,
    TroubleKind.FAILING: Code.DATABASE_FAILING,
}


class Login(Protocol):
    """What is asked of an account's session."""

    def died_young(self) -> int:
        """How many tokens of the last hour worked, and were refused long before their end."""
        ...


class AtWork(Protocol):
    """What is asked of an account."""

    name: str
    full_list: int
    reaches_none: bool

    @property
    def session(self) -> Login:
        """Its logins."""
        ...


class DaemonProblems:
    """Says at each look what is so. `accounts`: those that are at work."""

    def __init__(self, database: Database, clock: Clock, accounts: Callable[[], Iterable[AtWork]] = tuple) -> None:
        self._database = database
        self._clock = clock
        self._accounts = accounts
        self._said: dict[tuple[Code, str], Problem] = {}
        self._since: dict[tuple[Code, str], datetime] = {}  # of what was found by asking
        self._dated = float("-inf")
        self._heard: tuple[tuple[datetime, float], ...] = ()  # the last two Dates, and our monotonic time of each
        self.page: Callable[[], page.Page] = page.Page  # what is served stands beside the daemon, and outlives it
        self.fenced: Callable[[], tuple[datetime | None, int]] = lambda: (None, 0)  # outlives the daemon, too
        self.is_scope_wrong: Callable[[], bool] = lambda: False  # the cooldowns outlive the daemon
        self.name_holder: Callable[[], str | None] = lambda: None  # asked of the service, which answers healthcheck
        self.broken_views: tuple[str, ...] = ()  # at the last look at health
        self.is_held = False  # by another program, so that the last look at health could not even read

    def begin(
        self,
        code: Code,
        subject: str = "",
        *,
        since: datetime | None = None,
        count: int = 1,
        detail: str | None = None,
        account: str | None = None,
        **facts: object,
    ) -> None:
        """From now on it is so. `facts`: for its sentences; our own words and numbers, and nobody's data."""
        texts = {name: str(value) for name, value in facts.items()}
        since = since or self._clock.now()
        self._said[code, subject] = Problem(
            code, subject, since, severity_of(code), count, detail, account=account, facts=texts
        )

    def end(self, code: Code, subject: str = "") -> None:
        """It is no longer so."""
        self._said.pop((code, subject), None)

    def has(self, code: Code, subject: str = "") -> bool:
        """Whether it was said, and not that it is over."""
        return (code, subject) in self._said

    def heard_date(self, date: str) -> None:
        """An answer's Date. One that cannot be read says nothing, and one alone may come out of a proxy's store."""
        now = self._clock.monotonic()
        if not date or now < self._dated + DATE_EVERY_S:
            return
        self._dated = now
        if (there := http_date(date)) is None:
            return
        there += timedelta(seconds=0.5)  # it has whole seconds only
        self._heard = (*self._heard[-1:], (there, now))

    def service_now(self) -> datetime | None:
        """How late it is by the service's clock, whatever was done to ours since; None: it was not heard."""
        return self._by_date(*self._heard[-1]) if self._heard else None

    def _by_date(self, there: datetime, at: float) -> datetime:
        return there + timedelta(seconds=self._clock.monotonic() - at)

    def problems(self) -> tuple[Problem, ...]:
        """All of it now."""
        now = self._clock.now()
        asked = [*daemon.problems(self._facts(), now), *page.problems(self.page(), now)]
        self._since = {one.key: one.since or self._since.get(one.key, now) for one in asked}
        found = (replace(one, since=self._since[one.key]) for one in asked)
        return (*self._said.values(), *(one for one in found if daemon.has_lasted(one, now)))

    def _facts(self) -> daemon.DaemonFacts:
        trouble = self._database.trouble
        kind = trouble.kind or (TroubleKind.BUSY if self.is_held else None)
        return daemon.DaemonFacts(
            trouble=None if kind is None else OF_TROUBLE[kind],
            slowest_s=daemon.too_slow(trouble.slow, self._clock.monotonic()),
            # Asked anew each time: a clock that is set after the last answer may be why no further one comes (TLS).
            offsets_s=tuple((self._clock.now() - self._by_date(*heard)).total_seconds() for heard in self._heard),
            died_young=tuple((one.name, one.session.died_young()) for one in self._accounts()),
            is_scope_wrong=self.is_scope_wrong(),
            without_restaurants=tuple(one.name for one in self._accounts() if one.reaches_none),
            full_lists=tuple((one.name, one.full_list) for one in self._accounts() if one.full_list),
            fenced=self.fenced(),
            broken_views=self.broken_views,
            wal_bytes=0 if self._database.file is None else self._database.file.log_size(),
            log_stuck_s=output.stuck_s(),
            name_holder=self.name_holder(),
        )
