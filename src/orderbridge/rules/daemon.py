"""What is wrong with the daemon's own means: its database, its clock, its logins, its place among replicas.

Rules of this file:
- A till may hold the database for a moment: it is busy when that lasts, and slow when several units of work took long.
- Our clock is wrong when two Dates in a row say so: one alone may come out of a proxy's store.
- A token that is over is none of ours to tell; several that died young are somebody else's logins.
- A log that nobody reads for a while is one whose lines are dropped soon.
- That a replica was replaced is told for an hour: what it did meanwhile is done.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from orderbridge.rules.problems import Code, Problem, severity_of

BUSY = timedelta(seconds=10)
# Told only after BUSY: while one daemon follows another, and until the first answer after the machine was suspended.
PASSING = {Code.DATABASE_BUSY, Code.HEALTHCHECK_TAKEN, Code.CLOCK_WRONG}
CLOCK_WRONG_S = 60.0
MOST_DEAD = 3  # tokens of an account within the hour
FENCED = timedelta(hours=1)
SILENT = timedelta(seconds=90)  # without a sign of life for so long, nobody polls
VERY_SLOW_S = 10.0
LARGE_WAL_BYTES = 64 * 1024 * 1024  # SQLite itself keeps it at some MB, unless somebody reads without an end
LOG_STUCK_S = 10.0
MOST_SLOW = 3  # units of work that were slow, or one that was very slow, within
SLOW_WITHIN_S = 120.0


@dataclass(frozen=True, slots=True)
class DaemonFacts:
    """What it has seen of itself. `trouble`: why the database takes nothing; `slowest_s`: or takes too long for it.

    `offsets_s`: by which our clock is ahead of the service's, the last two that were measured. `died_young`: tokens of each
    account that worked, and were refused long before their end. `fenced`: when this replica was last replaced, and how many
    of its writes were refused. `full_lists`: accounts whose list is full of documents that cannot be acknowledged, and how many.
    """

    trouble: Code | None = None
    slowest_s: float | None = None
    offsets_s: tuple[float, ...] = ()
    died_young: tuple[tuple[str, int], ...] = ()
    is_scope_wrong: bool = False  # accounts share a cooldown although the configuration does not say so
    without_restaurants: tuple[str, ...] = ()  # accounts whose secrets reach none
    fenced: tuple[datetime | None, int] = (None, 0)
    full_lists: tuple[tuple[str, int], ...] = ()
    broken_views: tuple[str, ...] = ()
    wal_bytes: int = 0
    log_stuck_s: float = 0.0  # for so long whoever reads the log has taken no line
    name_holder: str | None = None  # who answers `orderbridge healthcheck` in our place


def problems(facts: DaemonFacts, now: datetime) -> Iterator[Problem]:
    """All of it, without the time since when it is so where the facts do not say it."""
    yield from _of_the_database(facts)
    if len(facts.offsets_s) > 1 and min(map(abs, facts.offsets_s)) > CLOCK_WRONG_S:
        yield _problem(Code.CLOCK_WRONG, offset=f"{facts.offsets_s[-1]:+.0f}")
    for account, dead in facts.died_young:
        if dead >= MOST_DEAD:
            yield _problem(Code.CREDENTIALS_SHARED, account, how_many=dead, count=str(dead))
    if facts.is_scope_wrong:
        yield _problem(Code.COOLDOWN_SHARED)
    for account in facts.without_restaurants:
        yield _problem(Code.NO_RESTAURANT, account)
    for account, stuck in facts.full_lists:
        yield _problem(Code.LIST_FULL, account, how_many=stuck, count=str(stuck))
    at, refused = facts.fenced
    if at is not None and now - at < FENCED:
        yield _problem(Code.WRITES_FENCED, since=at, how_many=refused, count=str(refused))
    if facts.log_stuck_s >= LOG_STUCK_S:
        yield _problem(Code.LOG_NOT_READ)
    if facts.name_holder is not None:
        yield _problem(Code.HEALTHCHECK_TAKEN, holder=facts.name_holder)


def _of_the_database(facts: DaemonFacts) -> Iterator[Problem]:
    if facts.trouble is not None:
        yield _problem(facts.trouble)
    if facts.slowest_s is not None:
        yield _problem(Code.DATABASE_SLOW, seconds=f"{facts.slowest_s:.0f}")
    for view in facts.broken_views:
        yield Problem(Code.VIEW_BROKEN, view, None, severity_of(Code.VIEW_BROKEN), facts={"view": view})
    if facts.wal_bytes > LARGE_WAL_BYTES:
        yield _problem(Code.WAL_LARGE, megabytes=str(facts.wal_bytes // 1_000_000))


def _problem(
    code: Code, account: str = "", *, since: datetime | None = None, how_many: int = 1, **facts: str
) -> Problem:
    return Problem(code, account, since, severity_of(code), how_many, account=account or None, facts=facts)


def too_slow(slow: Iterable[tuple[float, float]], now: float) -> float | None:
    """Seconds that the slowest unit of work of the last minutes took, if that is too much; None: it is not.

    `slow`: when the last slow ones were done and how many seconds they took, the times and `now` by one clock.
    """
    lately = [seconds for at, seconds in slow if at > now - SLOW_WITHIN_S]
    worst = max(lately, default=0.0)
    return worst if len(lately) >= MOST_SLOW or worst >= VERY_SLOW_S else None


def has_lasted(one: Problem, now: datetime) -> bool:
    """Whether it is one by now."""
    return one.code not in PASSING or one.since is None or abs(now - one.since) >= BUSY
