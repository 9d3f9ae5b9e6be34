"""The problems that only a running daemon can detect: of its database, its clock, its logins and its web page.

Some are reported with `begin` and `end` when they are found; the others are computed at each health check.

Rules of this file:
- The database is busy only if a lock lasts: a till may hold one briefly. It is slow if several units of work were
  slow.
- Our clock is wrong if two Date headers in a row differ from it: a single one may come from a proxy's cache.
- Several tokens that ended early mean that another program logs in; one means nothing.
- A replaced replica is reported for an hour.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from orderbridge.clock import Clock, http_date
from orderbridge.observe import logs
from orderbridge.rules.problems import Code, Key, Problem, page_problems
from orderbridge.store.database import Database

if TYPE_CHECKING:
    from orderbridge.jobs.account import Account
    from orderbridge.jobs.context import Kept

DATE_EVERY_S = 10.0  # between two uses of a Date header
BUSY = timedelta(seconds=10)
# Reported only after BUSY: a restart, or resuming a suspended machine, may cause them briefly.
PASSING = {Code.DATABASE_BUSY, Code.HEALTHCHECK_TAKEN, Code.CLOCK_WRONG}
CLOCK_WRONG_S = 60.0
ENDED_TOKENS = 3  # of an account within the hour
FENCED = timedelta(hours=1)
VERY_SLOW_S = 10.0
LARGE_WAL_BYTES = 64 * 1024 * 1024  # SQLite keeps it at some MB unless a read transaction never ends
LOG_STUCK_S = 10.0
SLOW_TIMES = 3  # slow units of work within SLOW_WITHIN_S, or one of VERY_SLOW_S, are a problem
SLOW_WITHIN_S = 120.0


class DaemonProblems:
    """The open problems of one daemon."""

    def __init__(self, database: Database, clock: Clock, kept: "Kept") -> None:
        self._database, self._clock, self.kept = database, clock, kept
        self._begun: dict[Key, Problem] = {}
        self._since: dict[Key, datetime] = {}  # of the computed problems
        self._dated = float("-inf")
        self._dates: tuple[tuple[datetime, float], ...] = ()  # the last two Date headers with our monotonic time
        self.broken_views: tuple[str, ...] = ()  # at the last health check
        self.is_held = False  # another program blocked the last health check's read or write

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
        """Open a problem until `end`.

        `since` defaults to the first call. `facts` fill its sentences: no customer data.
        """
        if since is None:
            before = self._begun.get((code, subject))
            since = self._clock.now() if before is None else before.since
        texts = {name: str(value) for name, value in facts.items()}
        severity = code.kind.severity
        self._begun[code, subject] = Problem(code, subject, since, severity, count, account=account, facts=texts)

    def report(self, code: Code, subject: str = "", *, is_open: bool, **facts: Any) -> None:
        """Open a problem, or close it."""
        if is_open:
            self.begin(code, subject, **facts)
        else:
            self.end(code, subject)

    def end(self, code: Code, subject: str = "") -> None:
        """Close a problem."""
        self._begun.pop((code, subject), None)

    def has(self, code: Code, subject: str = "") -> bool:
        """Whether the problem is open."""
        return (code, subject) in self._begun

    def note_date(self, date: str) -> None:
        """Note the Date header of an answer; an unreadable one is ignored."""
        now = self._clock.monotonic()
        if not date or now < self._dated + DATE_EVERY_S:
            return
        self._dated = now
        if (there := http_date(date)) is None:
            return
        there += timedelta(seconds=0.5)  # the header has whole seconds
        self._dates = (*self._dates[-1:], (there, now))

    def service_now(self) -> datetime | None:
        """The time by the marketplace's clock, independent of ours; None before the first Date header."""
        return self._by_date(*self._dates[-1]) if self._dates else None

    def _by_date(self, there: datetime, at: float) -> datetime:
        return there + timedelta(seconds=self._clock.monotonic() - at)

    def problems(self, accounts: "Iterable[Account]" = ()) -> tuple[Problem, ...]:
        """All problems that are open now. `accounts`: those of this process."""
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
        # Computed each time: if the clock was set after the last answer, TLS may fail and no further answer comes.
        offsets_s = [(now - self._by_date(*date)).total_seconds() for date in self._dates]
        if len(offsets_s) > 1 and min(map(abs, offsets_s)) > CLOCK_WRONG_S:
            yield _problem(Code.CLOCK_WRONG, offset=f"{offsets_s[-1]:+.0f}")
        if self.kept.cooldowns.is_scope_wrong:  # the marketplace's cooldown is shared more widely than configured
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
        if (ended := one.session.early_ends()) >= ENDED_TOKENS:
            yield _problem(Code.CREDENTIALS_SHARED, one.name, how_many=ended, count=str(ended))
        if one.reaches_none:
            yield _problem(Code.NO_RESTAURANT, one.name)
        if one.full_list:  # documents that cannot be acknowledged fill it
            yield _problem(Code.LIST_FULL, one.name, how_many=one.full_list, count=str(one.full_list))
        for restaurant_id, name, limit in one.overloads:
            found = _problem(Code.AUTO_ACCEPT_PAUSED, one.name, name=name or one.name, limit=str(limit))
            yield replace(found, subject=restaurant_id or one.name)


def _problem(code: Code, account: str = "", *, how_many: int = 1, **facts: str) -> Problem:
    """A problem without its beginning, which `problems` fills in."""
    return Problem(code, account, None, code.kind.severity, how_many, account=account or None, facts=facts)


def too_slow(slow: Iterable[tuple[float, float]], now: float) -> float | None:
    """The seconds of the slowest recent unit of work, if that counts as slow; else None.

    `slow`: the end and the duration of the last slow ones, by the clock of `now`.
    """
    lately = [seconds for at, seconds in slow if at > now - SLOW_WITHIN_S]
    worst = max(lately, default=0.0)
    return worst if len(lately) >= SLOW_TIMES or worst >= VERY_SLOW_S else None


def has_lasted(one: Problem, now: datetime) -> bool:
    """Whether the problem has lasted long enough to be reported."""
    return one.code not in PASSING or one.since is None or abs(now - one.since) >= BUSY
