"""Problems that only a running daemon can know: of its database, its clock, its logins, the page that it serves.

Some are reported here when they are found (`begin`, `end`), the others are checked with each check of health.

Rules of this file:
- A till may hold the database for a moment: it is busy when that lasts, and slow when several units of work took long.
- Our clock is wrong when two Dates in a row say so: one alone may come out of a proxy's store.
- One token that ends early says nothing; several that died young mean that another program logs in.
- That a replica was replaced is reported for an hour: what it did meanwhile is done.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from orderbridge.clock import Clock, http_date
from orderbridge.observe import logs
from orderbridge.rules.problems import Code, Key, Problem, page_problems
from orderbridge.store.database import Database

if TYPE_CHECKING:
    from orderbridge.jobs.account import Account
    from orderbridge.jobs.context import Kept

DATE_EVERY_S = 10.0  # between two readings of the service's Date: thousands of answers a second have one
BUSY = timedelta(seconds=10)
# Reported only after BUSY: while one daemon follows another, and until the first answer after the machine was suspended.
PASSING = {Code.DATABASE_BUSY, Code.HEALTHCHECK_TAKEN, Code.CLOCK_WRONG}
CLOCK_WRONG_S = 60.0
DEAD_TOKENS = 3  # of an account within the hour
FENCED = timedelta(hours=1)
VERY_SLOW_S = 10.0
LARGE_WAL_BYTES = 64 * 1024 * 1024  # SQLite itself keeps it at some MB, unless a reader never ends
LOG_STUCK_S = 10.0
SLOW_TIMES = 3  # units of work that were slow, or one that was very slow, within
SLOW_WITHIN_S = 120.0


class DaemonProblems:
    """Those of one daemon."""

    def __init__(self, database: Database, clock: Clock, kept: "Kept") -> None:
        self._database, self._clock, self.kept = database, clock, kept
        self._begun: dict[Key, Problem] = {}
        self._since: dict[Key, datetime] = {}  # of those that are checked
        self._dated = float("-inf")
        self._dates: tuple[tuple[datetime, float], ...] = ()  # the last two, and our monotonic time of each
        self.broken_views: tuple[str, ...] = ()  # at the last check of health
        self.is_held = False  # by another program, so that the last check of health could not even read

    def begin(
        self,
        code: Code,
        subject: str = "",
        *,
        since: datetime | None = None,
        count: int = 1,
        account: str | None = None,
        **facts: object,
    ) -> None:
        """It is so until `end`. `since`: without it, the first call. `facts`: for its sentences; no customer's data."""
        if since is None:
            before = self._begun.get((code, subject))
            since = self._clock.now() if before is None else before.since
        texts = {name: str(value) for name, value in facts.items()}
        severity = code.kind.severity
        self._begun[code, subject] = Problem(code, subject, since, severity, count, account=account, facts=texts)

    def end(self, code: Code, subject: str = "") -> None:
        """It is no longer so."""
        self._begun.pop((code, subject), None)

    def has(self, code: Code, subject: str = "") -> bool:
        """Whether it has begun, and not ended."""
        return (code, subject) in self._begun

    def heard_date(self, date: str) -> None:
        """An answer's Date. One that cannot be read says nothing, and one alone may come out of a proxy's store."""
        now = self._clock.monotonic()
        if not date or now < self._dated + DATE_EVERY_S:
            return
        self._dated = now
        if (there := http_date(date)) is None:
            return
        there += timedelta(seconds=0.5)  # it has whole seconds only
        self._dates = (*self._dates[-1:], (there, now))

    def service_now(self) -> datetime | None:
        """How late it is by the service's clock, whatever was done to ours since; None: no answer had a Date yet."""
        return self._by_date(*self._dates[-1]) if self._dates else None

    def _by_date(self, there: datetime, at: float) -> datetime:
        return there + timedelta(seconds=self._clock.monotonic() - at)

    def problems(self, accounts: "Iterable[Account]" = ()) -> tuple[Problem, ...]:
        """All of it now. `accounts`: those that are at work."""
        now = self._clock.now()
        page = page_problems(self.kept.page(), now)
        checked = [*self._of_database(), *self._others(now), *_of_accounts(accounts), *page]
        self._since = {one.key: one.since or self._since.get(one.key, now) for one in checked}
        found = (replace(one, since=self._since[one.key]) for one in checked)
        return (*self._begun.values(), *(one for one in found if has_lasted(one, now)))

    def _of_database(self) -> Iterator[Problem]:
        trouble = self._database.trouble
        if trouble.kind is not None or self.is_held:
            yield _problem(Code.DATABASE_BUSY if trouble.kind is None else Code(f"database_{trouble.kind}"))
        if (seconds := too_slow(trouble.slow, self._clock.monotonic())) is not None:
            yield _problem(Code.DATABASE_SLOW, seconds=f"{seconds:.0f}")
        for view in self.broken_views:
            yield replace(_problem(Code.VIEW_BROKEN, view=view), subject=view)
        wal_bytes = 0 if self._database.file is None else self._database.file.log_size()
        if wal_bytes > LARGE_WAL_BYTES:
            yield _problem(Code.WAL_LARGE, megabytes=str(wal_bytes // 1_000_000))

    def _others(self, now: datetime) -> Iterator[Problem]:
        # Computed anew each time: a clock that is set after the last answer may be why no further one comes (TLS).
        offsets_s = [(now - self._by_date(*date)).total_seconds() for date in self._dates]
        if len(offsets_s) > 1 and min(map(abs, offsets_s)) > CLOCK_WRONG_S:
            yield _problem(Code.CLOCK_WRONG, offset=f"{offsets_s[-1]:+.0f}")
        if self.kept.cooldowns.is_scope_wrong:  # accounts share a cooldown although the configuration does not say so
            yield _problem(Code.COOLDOWN_SHARED)
        at, refused = self.kept.metrics.fenced_lately()
        if at is not None and now - at < FENCED:
            yield replace(_problem(Code.WRITES_FENCED, how_many=refused, count=str(refused)), since=at)
        if logs.stuck_s() >= LOG_STUCK_S:
            yield _problem(Code.LOG_NOT_READ)
        if (holder := self.kept.name_holder) is not None:
            yield _problem(Code.HEALTHCHECK_TAKEN, holder=holder)


def _of_accounts(accounts: "Iterable[Account]") -> Iterator[Problem]:
    for one in accounts:
        if (dead := one.session.died_young()) >= DEAD_TOKENS:
            yield _problem(Code.CREDENTIALS_SHARED, one.name, how_many=dead, count=str(dead))
        if one.reaches_none:
            yield _problem(Code.NO_RESTAURANT, one.name)
        if one.full_list:  # of documents that cannot be acknowledged
            yield _problem(Code.LIST_FULL, one.name, how_many=one.full_list, count=str(one.full_list))


def _problem(code: Code, account: str = "", *, how_many: int = 1, **facts: str) -> Problem:
    """Since when is not known here."""
    return Problem(code, account, None, code.kind.severity, how_many, account=account or None, facts=facts)


def too_slow(slow: Iterable[tuple[float, float]], now: float) -> float | None:
    """Seconds that the slowest unit of work of the last minutes took, if that is too much; else None.

    `slow`: when the last slow ones were done and how many seconds they took, the times and `now` by one clock.
    """
    lately = [seconds for at, seconds in slow if at > now - SLOW_WITHIN_S]
    worst = max(lately, default=0.0)
    return worst if len(lately) >= SLOW_TIMES or worst >= VERY_SLOW_S else None


def has_lasted(one: Problem, now: datetime) -> bool:
    """Whether it is a problem by now."""
    return one.code not in PASSING or one.since is None or abs(now - one.since) >= BUSY
