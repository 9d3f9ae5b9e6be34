"""Classifies database errors (busy, refused value, missing right, …) and names their remedies.

`Trouble` tracks whether the database accepts our work. Only the first failure and the recovery are logged, because the
database is used every second; of trouble that comes and goes, once a minute.

The marks of all dialects are tried, since they do not overlap.
"""

import asyncio
from collections import deque
from functools import cache
from math import inf

import structlog
from sqlalchemy import PrimaryKeyConstraint, UniqueConstraint
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, OperationalError

from orderbridge.errors import Message
from orderbridge.net.connector import exhausted
from orderbridge.store.dialects import FAMILIES, of
from orderbridge.store.dialects.face import Dialect, Signs, TroubleKind
from orderbridge.store.tables import metadata, orders

LOG_WAIT_S = 1.0  # a longer unit of work has waited for another program, and is logged
LOG_AGAIN_S = 60.0  # between two such lines, and between two about the same trouble
SLOW_S = 2.0  # a longer unit of work counts as slow
KEPT_SLOW = 10  # slow ones that are kept; jobs.daemon_problems judges them

_log = structlog.get_logger(__name__)


def is_busy(error: DBAPIError) -> bool:
    """Whether another session holds a lock, so that the work should be tried again."""
    return any(_shows(error, one.busy) for one in _all())


def is_refusal(error: DBAPIError) -> bool:
    """Whether a type, a constraint or a trigger of the POS refuses these values for good."""
    refuses = isinstance(error, IntegrityError | DataError) or any(
        _shows(error, one.refused) or one.refuses(error.orig) for one in _all()
    )
    return refuses and not is_ours(error)


def is_ours(error: DBAPIError) -> bool:
    """Whether it concerns a key, a default, a sequence or the guard of our tables, and so not an order's values."""
    if error.orig is None:
        return False
    keys, filled = _own()
    for one in _all():
        key, unfilled = one.violated(error.orig, error.statement or "")
        if _shows(error, one.ours) or key in keys or unfilled in filled:
            return True
    return False


@cache
def _own() -> tuple[frozenset[str], frozenset[str]]:
    """Our own unique keys (names and columns), and the columns with our own defaults."""
    keys: set[str] = {"PRIMARY"}
    filled: set[str] = set()
    for table in metadata.tables.values():
        named = [one for one in table.constraints if isinstance(one, PrimaryKeyConstraint | UniqueConstraint)]
        # Another account may store the same order at once.
        for one in () if table.is_view or table is orders else (*named, *(one for one in table.indexes if one.unique)):
            keys |= {str(one.name), ", ".join(f"{table.name}.{column.name}" for column in one.columns)}
        filled |= {f"{table.name}.{one.name}" for one in table.columns if one.identity or one.server_default}
    return frozenset(keys), frozenset(filled)


def is_broken(error: DBAPIError) -> bool:
    """Whether a missing object is named, usually by a trigger of the POS, which must be repaired."""
    return not is_busy(error) and any(_shows(error, one.broken) for one in _all())


def is_denied(error: DBAPIError) -> bool:
    """Whether a right is missing or the password is wrong, so that a person is needed."""
    return any(_shows(error, one.denied) for one in _all())


def kind(error: DBAPIError) -> TroubleKind:
    """Why the database cannot be written."""
    if any(_shows(error, one.full) for one in _all()):
        return TroubleKind.FULL
    if any(_shows(error, one.read_only) for one in _all()):
        return TroubleKind.READ_ONLY
    return TroubleKind.BUSY if is_busy(error) else TroubleKind.FAILING


@cache
def _all() -> tuple[Dialect, ...]:
    return tuple(of(name) for name in FAMILIES)


def _shows(error: DBAPIError, signs: Signs) -> bool:
    words = (sign for sign in signs if isinstance(sign, str) and " " in sign)
    return not _codes(error).isdisjoint(signs) or any(one in str(error.orig) for one in words)


def _codes(error: DBAPIError) -> set[object]:
    """The SQLSTATE with its class, and the driver's error number."""
    original = error.orig
    state = getattr(original, "sqlstate", None) or ""
    return {state, state[:2], *(original.args[:1] if original else ())}


def remedy(error: DBAPIError) -> Message:
    """What a technician can do about trouble with the database."""
    if reason := exhausted(error.orig):
        return Message(f"line.{reason}")
    remedies = [item for one in _all() for item in one.remedies.items()]
    for sign, sentence in remedies:
        if sign in _codes(error):
            return Message(sentence)
    for judge, sentence in ((is_refusal, "refuses"), (is_ours, "own_key"), (is_busy, "busy")):
        if judge(error):
            return Message(f"database.{sentence}")
    for sign, sentence in remedies:
        if isinstance(sign, str) and sign in str(error.orig):
            return Message(sentence)
    if is_denied(error):
        return Message("database.denied")
    if is_broken(error):
        return Message("database.no_such_table")
    return Message("database.unreachable" if isinstance(error, OperationalError) else "database.unknown")


class Trouble:
    """Tracks failures and slow work. `doing`: the kind of work, since one kind may fail while another works."""

    def __init__(self) -> None:
        self._failing: dict[str, Message] = {}  # failing kinds of work with their remedies
        self._kinds: dict[str, TroubleKind] = {}
        self._failures = 0
        self._logged: dict[str, float] = {}  # when each remedy was logged
        self._is_logged = False  # and its recovery was not
        self._waited_until = 0.0
        self.slow: deque[tuple[float, float]] = deque(maxlen=KEPT_SLOW)  # end (loop's clock) and duration

    def __bool__(self) -> bool:
        """Whether some work fails now."""
        return bool(self._failing)

    @property
    def kind(self) -> TroubleKind | None:
        """The kind of the current trouble, or None."""
        return self._kinds.get("write") or self._kinds.get("read") or next(iter(self._kinds.values()), None)

    def failed(self, doing: str, error: str, remedy: Message, kind: TroubleKind = TroubleKind.FAILING) -> None:
        """Note a failure that the unit of work did not cause."""
        now = asyncio.get_running_loop().time()
        self._failures += 1
        is_open = self._is_logged and remedy in self._failing.values()
        if not is_open and now >= self._logged.get(str(remedy), -inf) + LOG_AGAIN_S:
            _log.error("database.failed", doing=doing, error=error, remedy=remedy)
            self._logged[str(remedy)], self._is_logged = now, True
        self._failing[doing] = remedy
        self._kinds[doing] = kind

    def worked(self, doing: str) -> None:
        """Note a success."""
        self._kinds.pop(doing, None)
        if doing not in {"read", "write"} and doing in self._failing:
            self.slow.clear()  # slow work had the same cause
        if self._failing.pop(doing, None) is not None and not self._failing and self._is_logged:
            _log.info("database.recovered", failures=self._failures)
            self._failures, self._is_logged = 0, False

    def waited(self, seconds: float, now: float) -> None:
        """Note the duration of a unit of work. `now`: by the loop's clock."""
        if seconds >= SLOW_S:
            self.slow.append((now, seconds))
        if seconds >= LOG_WAIT_S and now >= self._waited_until:
            self._waited_until = now + LOG_AGAIN_S
            _log.warning("database.waited", seconds=round(seconds, 1), remedy=Message("log.short_transactions"))
