"""What a database's error means: wait, never, a person is needed; and what a technician can do about it.

`Trouble` notes whether the database takes our work. Logged are the first failure and the first success after it: the
database is asked every second, and a line each time would fill the log while another program holds it.

An error does not say which database it is from, and their signs differ: those of all of them are tried.
"""

from collections import deque
from functools import cache

import structlog
from sqlalchemy import PrimaryKeyConstraint, UniqueConstraint
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, OperationalError

from orderbridge.errors import Message
from orderbridge.net.connector import exhausted
from orderbridge.store.dialects import FAMILIES, of
from orderbridge.store.dialects.face import Dialect, Signs, TroubleKind
from orderbridge.store.tables import metadata

LOG_WAIT_S = 1.0  # a unit of work takes milliseconds; this one has waited for another program
LOG_AGAIN_S = 60.0  # a POS that makes us wait all day is logged once a minute
SLOW_S = 2.0  # no transaction takes so long
KEPT_SLOW = 10  # the last ones; jobs.daemon_problems decides how many of them are too many

_log = structlog.get_logger(__name__)


def is_busy(error: DBAPIError) -> bool:
    """Whether another session holds the database or a row: wait and try again; nothing is wrong with the work."""
    return any(_shows(error, one.busy) for one in _all())


def is_refusal(error: DBAPIError) -> bool:
    """Whether the database does not take these values, by a type, a constraint or a trigger of the POS: it never will."""
    refuses = isinstance(error, IntegrityError | DataError) or any(
        _shows(error, one.refused) or one.refuses(error.orig) for one in _all()
    )
    return refuses and not is_ours(error)


def is_ours(error: DBAPIError) -> bool:
    """Whether it is about a key, a default, a sequence or the guard of our tables: no order is to blame for that."""
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
    """Our unique keys, by name and by columns, and the columns that are filled by our own defaults."""
    keys: set[str] = {"PRIMARY"}
    filled: set[str] = set()
    for table in metadata.tables.values():
        named = [one for one in table.constraints if isinstance(one, PrimaryKeyConstraint | UniqueConstraint)]
        for one in () if table.is_view else (*named, *(index for index in table.indexes if index.unique)):
            keys |= {str(one.name), ", ".join(f"{table.name}.{column.name}" for column in one.columns)}
        filled |= {f"{table.name}.{one.name}" for one in table.columns if one.identity or one.server_default}
    return frozenset(keys), frozenset(filled)


def is_broken(error: DBAPIError) -> bool:
    """Whether something is named that is not there, as a rule by a trigger of the POS: so it stays until it is mended."""
    return not is_busy(error) and any(_shows(error, one.broken) for one in _all())


def is_denied(error: DBAPIError) -> bool:
    """Whether this user lacks a right or the password is wrong: it takes a person."""
    return any(_shows(error, one.denied) for one in _all())


def kind(error: DBAPIError) -> TroubleKind:
    """What keeps the database from taking our work."""
    for found, signs in (
        (TroubleKind.FULL, [one.full for one in _all()]),
        (TroubleKind.READ_ONLY, [one.read_only for one in _all()]),
        (TroubleKind.BUSY, [one.busy for one in _all()]),
    ):
        if any(_shows(error, some) for some in signs):
            return found
    return TroubleKind.FAILING


@cache
def _all() -> tuple[Dialect, ...]:
    return tuple(of(name) for name in FAMILIES)


def _shows(error: DBAPIError, signs: Signs) -> bool:
    words = (sign for sign in signs if isinstance(sign, str) and " " in sign)
    return not _codes(error).isdisjoint(signs) or any(one in str(error.orig) for one in words)


def _codes(error: DBAPIError) -> set[object]:
    """The SQLSTATE with its class, and the driver's number; PyMySQL has both, and its SQLSTATE says less."""
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
    """Hears how work ended. `doing`: reading, writing, or what of it; one may fail and not the other."""

    def __init__(self) -> None:
        self._failing: dict[str, Message] = {}  # what is failing, and the message about it
        self._kinds: dict[str, TroubleKind] = {}
        self._failures = 0
        self._waited_until = 0.0
        self.slow: deque[tuple[float, float]] = deque(maxlen=KEPT_SLOW)  # when by the loop's clock, how many seconds

    def __bool__(self) -> bool:
        """Whether something fails now; the log says so."""
        return bool(self._failing)

    @property
    def kind(self) -> TroubleKind | None:
        """What fails now; None: nothing does."""
        return self._kinds.get("write") or self._kinds.get("read") or next(iter(self._kinds.values()), None)

    def failed(self, doing: str, error: str, remedy: Message, kind: TroubleKind = TroubleKind.FAILING) -> None:
        """A unit of work failed, and it was not to blame."""
        self._failures += 1
        if remedy not in self._failing.values():
            _log.error("database.failed", doing=doing, error=error, remedy=remedy)
        self._failing[doing] = remedy
        self._kinds[doing] = kind

    def worked(self, doing: str) -> None:
        """A unit of work was done."""
        self._kinds.pop(doing, None)
        if doing not in {"read", "write"} and doing in self._failing:
            self.slow.clear()  # what was slow meanwhile had the same reason
        if self._failing.pop(doing, None) is not None and not self._failing:
            _log.info("database.recovered", failures=self._failures)
            self._failures = 0

    def waited(self, seconds: float, now: float) -> None:
        """How long a unit of work took, by the loop's clock."""
        if seconds >= SLOW_S:
            self.slow.append((now, seconds))
        if seconds >= LOG_WAIT_S and now >= self._waited_until:
            self._waited_until = now + LOG_AGAIN_S
            _log.warning("database.waited", seconds=round(seconds, 1), remedy=Message("log.short_transactions"))
