"""The dialect for SQLite, whose file we share with the POS.

- Transactions that write begin IMMEDIATE: a deferred BEGIN fails at once beside a second writer, whatever the timeout.
- WAL with synchronous=FULL: a commit is on disk when it returns.
- A time is text, so that any POS driver reads it; money is a double, exact after ROUND(x, 2).
- SQLite has no grants: triggers refuse what grants refuse on servers (the guard, below).
"""

import asyncio
import contextlib
import ctypes
import os
import socket
import sqlite3
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, Engine, Integer, event
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.types import UserDefinedType

from orderbridge.clock import SystemClock
from orderbridge.errors import Message, StoreError
from orderbridge.store.dialects import sqlite_checks
from orderbridge.store.dialects.face import READS, Dialect, Durable, Violated, inserting, readable

T = TypeVar("T")

BUSY_MS = 20  # SQLite retries after 1, 3 and 8 ms; then we start again
SYNCHRONOUS_FULL = 2
LOG_BYTES = 16 * 1024 * 1024  # a larger -wal is truncated at the next checkpoint


# ---- connections -----------------------------------------------------------------------------------------------------


def _options(_: URL, busy_timeout_s: float) -> dict[str, Any]:
    """Options for one writing and one reading connection, which may be made in any thread."""
    return {"connect_args": {"timeout": busy_timeout_s, "isolation_level": None, "check_same_thread": False}}


def _prepare(engine: Engine, busy_timeout_s: float) -> None:
    event.listen(engine, "connect", partial(_prepare_connection, busy_timeout_s))
    event.listen(engine, "begin", partial(_begin, busy_timeout_s))
    event.listen(engine, "commit", _close_guard)


def _prepare_connection(busy_timeout_s: float, connection: Any, _: Any) -> None:
    cursor = connection.cursor()
    # A POS may have written invalid UTF-8, which must not make a whole result unreadable.
    connection.text_factory = partial(str, encoding="utf-8", errors="replace")
    # While another program writes, changing to WAL fails at once, whatever the timeout.
    use_wal = partial(cursor.execute, "PRAGMA journal_mode = WAL")
    (mode,) = _while_busy(use_wal, busy_timeout_s, BUSY_MS / 1000).fetchone()
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.execute(f"PRAGMA journal_size_limit = {LOG_BYTES}")
    # The first read opens the -wal of a new WAL database, and so keeps it from being removed.
    cursor.execute("PRAGMA schema_version").fetchone()
    cursor.close()
    if mode != "wal":
        raise StoreError("database.no_wal", mode=mode)


def _while_busy(call: Callable[[], T], within_s: float, pause_s: float) -> T:
    """Call again while another program locks the database; return the result or raise its error."""
    clock = SystemClock()
    over = clock.monotonic() + within_s
    while True:
        try:
            return call()
        except (sqlite3.OperationalError, OperationalError) as error:
            if clock.monotonic() >= over or not any(words in str(error) for words in BUSY):
                raise
        time.sleep(pause_s)


def _begin(busy_timeout_s: float, connection: Connection) -> None:
    """Begin a transaction. SQLite's own retry every 100 ms would rarely succeed beside a POS that writes constantly."""
    connection.info.pop(_OPENED, None)
    if READS.items() <= connection.get_execution_options().items():
        _execute_directly(connection, "BEGIN")
        return
    driver = _driver_of(connection)
    driver.execute(f"PRAGMA busy_timeout = {min(BUSY_MS, round(busy_timeout_s * 1000))}")
    try:
        _while_busy(partial(_execute_directly, connection, "BEGIN IMMEDIATE"), busy_timeout_s, 0.0)
    finally:
        driver.execute(f"PRAGMA busy_timeout = {round(busy_timeout_s * 1000)}")
    _open_guard(connection)


SEQUENCE = (
    "UPDATE sqlite_sequence SET seq = (SELECT coalesce(max(id), 0) FROM {0})"
    " WHERE name = '{0}' AND seq = 9223372036854775807"
)


def _durability(connection: Connection) -> Durable:
    mode = connection.exec_driver_sql("PRAGMA journal_mode").scalar()
    synchronous = connection.exec_driver_sql("PRAGMA synchronous").scalar()
    return Durable(None if mode == "wal" and (synchronous or 0) >= SYNCHRONOUS_FULL else Message("database.wal_off"))


def _worker(connection: Connection) -> str | None:
    found = sqlite_checks.daemon_of(connection.engine.url.database or "")
    return found and f"{socket.gethostname()}, PID {found}"


# ---- the guard -------------------------------------------------------------------------------------------------------
# In place of grants, triggers refuse writes unless the one row of delivery_guard is open.
#
# - Our transactions open it at their beginning and close it before the commit. No other connection sees it open, and a
#   rollback or a crash closes it.
# - A transaction without changes is rolled back, because the guard's two updates would cause a commit to disk and wake
#   all watchers.
# - If its table or its row is deleted, our next transaction restores it.
# - It uses no function and no pragma, so that the POS's statements always work.

GUARD = "delivery_guard"
_OPENED = "orderbridge_guard"  # in a connection's info: the change counters when the guard was opened


_OUTSIDE = f"(SELECT open FROM {GUARD}) = 0"  # noqa: S608 - a name of ours, as all here


def _refuse(trigger: str, table: str, statement: str, condition: str, why: str) -> tuple[str, ...]:
    return (
        f"CREATE TRIGGER {trigger} {statement} ON {table} WHEN {condition} BEGIN SELECT RAISE(ABORT, '{why}'); END",
    )


# `again_id`: the row of delivery_actions whose request_id was inserted again. INSERT OR IGNORE keeps that row; REPLACE
# deletes it without firing a trigger, so the trigger after it must look it up.
_TABLE = (
    f"CREATE TABLE {GUARD} (id INTEGER NOT NULL CONSTRAINT {GUARD}_pk PRIMARY KEY, open INTEGER DEFAULT 0 NOT NULL,"
    f" again_id INTEGER, CONSTRAINT {GUARD}_one_row CHECK (id = 1),"
    f" CONSTRAINT {GUARD}_open_0_or_more CHECK (typeof(open) = 'integer' AND open >= 0))"
)
_ROW = f"INSERT INTO {GUARD} (id) VALUES (1)"  # noqa: S608
_OPEN = f"UPDATE {GUARD} SET open = min(open, 1000000) + 1 WHERE id = 1"  # noqa: S608 - no overflow
_CLOSE = f"UPDATE {GUARD} SET open = max(open - 1, 0) WHERE id = 1"  # noqa: S608
_IS_MISSED = f"SELECT 1 FROM sqlite_master WHERE type = 'trigger' AND name = '{GUARD}_again'"  # noqa: S608
_AGAIN = (
    f"CREATE TRIGGER {GUARD}_again BEFORE INSERT ON delivery_actions"  # noqa: S608 - a name of ours, as all here
    " WHEN EXISTS (SELECT 1 FROM delivery_actions WHERE request_id = NEW.request_id) BEGIN"
    f" UPDATE {GUARD} SET again_id = (SELECT id FROM delivery_actions WHERE request_id = NEW.request_id); END"
)
_GONE = (
    f"CREATE TRIGGER {GUARD}_gone AFTER DELETE ON delivery_actions"  # noqa: S608
    f" WHEN OLD.id = (SELECT again_id FROM {GUARD}) BEGIN UPDATE {GUARD} SET again_id = NULL; END"
)
_WHY = f"{GUARD}: DELETE is for orderbridge alone; leave its one row"
GUARDS = (_TABLE, _ROW, _AGAIN, _GONE, *_refuse(f"{GUARD}_stays", GUARD, "BEFORE DELETE", _OUTSIDE, _WHY))
REPLACED = (
    "NOT EXISTS (SELECT 1 FROM delivery_actions"  # noqa: S608
    f" WHERE id = coalesce((SELECT again_id FROM {GUARD}), NEW.id))"
)


def _open_guard(connection: Connection) -> None:
    """Open the guard at the beginning of a writing transaction. A new or older file has none yet."""
    driver, changed = _driver_of(connection), 0
    try:
        changed = _execute_directly(connection, _OPEN)
    except OperationalError as error:
        if f"no such table: {GUARD}" not in str(error.orig):
            raise
        if not driver.execute(_IS_MISSED).fetchall():
            return
        connection.exec_driver_sql(_TABLE)  # it was dropped: without it the triggers would refuse everything
    if not changed:
        connection.exec_driver_sql(_ROW)
        _execute_directly(connection, _OPEN)
    connection.info[_OPENED] = _changes(driver)


def _close_guard(connection: Connection) -> None:
    before, driver = connection.info.pop(_OPENED, None), _driver_of(connection)
    if before is None or not driver.in_transaction:
        return
    if _changes(driver) == before:
        _execute_directly(connection, "ROLLBACK")
    else:
        _execute_directly(connection, _CLOSE)


def _changes(driver: sqlite3.Connection) -> tuple[int, int]:
    """Two counters: every written row and every schema change increases one of them."""
    return driver.total_changes, driver.execute("PRAGMA schema_version").fetchone()[0]


# The statements at the beginning and end of each transaction are sent directly to the driver: SQLAlchemy takes ten
# times as long as SQLite for them. It would also roll back after a failed statement.


def _driver_of(connection: Connection) -> sqlite3.Connection:
    """The driver's own connection."""
    return connection.connection.driver_connection  # type: ignore[return-value]


def _execute_directly(connection: Connection, statement: str) -> int:
    """Execute a statement in the driver. Returns the row count. Raises SQLAlchemy's errors, without a rollback."""
    try:
        return _driver_of(connection).execute(statement).rowcount
    except sqlite3.Error as error:
        raise DBAPIError.instance(
            statement, None, error, sqlite3.Error, hide_parameters=True, dialect=connection.dialect
        ) from error


# ---- waking the outbox -----------------------------------------------------------------------------------------------
# Detects commits of a POS with inotify and SQLite's change counter.
#
# inotify reports that the -wal file was written, before the commit is visible. After a notice, `PRAGMA data_version`,
# which changes with commits of other programs, is read repeatedly on a separate connection. It reads a few bytes of
# shared memory, so it runs on the event loop. Without inotify the counter is read at intervals.
#
# The file itself is never opened here: closing a descriptor would release SQLite's POSIX locks.

WATCH_S = 0.05  # interval without notices: a delay of 25 ms on average, 0.5 % of a core
FALLBACK_S = 1.0  # interval with notices, in case one is lost
ASK_S = 0.001  # first interval after a notice
LONGER = 1.25  # factor of the interval while the counter is unchanged
REST_S = 0.005  # pause after a commit, which limits wake-ups to 200 a second
IN_MODIFY = 0x2
MAX_BYTES = 65536  # of notices that are read at once


async def _watch(engine: Engine, wake: Callable[[], None]) -> None:
    """Call `wake` soon after each commit of another program, until cancelled."""
    path = str(engine.url.database)
    connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    with contextlib.closing(connection), contextlib.closing(Notices(path)) as notices:
        seen: int | None = None
        ask_in = ASK_S
        while True:
            noticed = notices.take()  # before the counter, so that a later commit causes another notice
            version = _version(connection)
            if version is not None and version != seen:
                # A notice at this commit may already belong to the next one.
                ask_in = ASK_S if noticed or seen is None else FALLBACK_S
                seen = version
                wake()
                await asyncio.sleep(REST_S)
                continue
            rest = FALLBACK_S if version is not None and notices.arm() else WATCH_S
            if noticed:
                ask_in = ASK_S
                await asyncio.sleep(ask_in)  # ignores further notices: a large transaction causes thousands
            else:
                ask_in = min(ask_in * LONGER, rest)
                await notices.within(ask_in)


def _version(connection: sqlite3.Connection) -> int | None:
    """The change counter; None on an error, which the writer will report."""
    try:
        return int(connection.execute("PRAGMA data_version").fetchone()[0])
    except sqlite3.Error:
        return None


class Notices:
    """inotify notices for the -wal of a database. Without inotify it only waits for the time."""

    def __init__(self, path: str) -> None:
        self._path = os.fsencode(os.path.realpath(path) + "-wal")  # beside the file, not beside a link to it
        self._library, self._descriptor = _begun()

    def close(self) -> None:
        """End the watch."""
        if self._descriptor is not None:
            os.close(self._descriptor)

    def arm(self) -> bool:
        """Watch the file that is at the path now. Watching it again has no effect."""
        if self._library is None or self._descriptor is None:
            return False
        return bool(self._library.inotify_add_watch(self._descriptor, self._path, IN_MODIFY) >= 0)

    def take(self) -> bool:
        """Whether there are notices; they are consumed."""
        if self._descriptor is not None:
            with contextlib.suppress(BlockingIOError):
                return bool(os.read(self._descriptor, MAX_BYTES))
        return False

    async def within(self, seconds: float) -> None:
        """Wait for a notice without consuming it, at most for this time."""
        if self._descriptor is None:
            await asyncio.sleep(seconds)
        else:
            await readable(self._descriptor, seconds)


def _begun() -> tuple[ctypes.CDLL | None, int | None]:
    try:
        library = ctypes.CDLL(None)
        descriptor = library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    except (AttributeError, OSError, TypeError):  # another system
        return None, None
    return library, descriptor if descriptor >= 0 else None


# ---- errors ----------------------------------------------------------------------------------------------------------
# Parts of error texts, because most errors have the same number, and the driver's names of constraint errors.

_NO_DATABASE = "database.no_database"
# Errors of expressions in a trigger, a CHECK or an index of the POS.
REFUSED = frozenset(
    {"malformed JSON", "JSON path error", "integer overflow", "levels of trigger recursion", "pattern too complex"}
)
UNIQUE = {"SQLITE_CONSTRAINT_PRIMARYKEY", "SQLITE_CONSTRAINT_UNIQUE", "SQLITE_CONSTRAINT_ROWID"}
BUSY = frozenset({"database is locked", "database table is locked"})
REMEDIES: Mapping[int | str, str] = {
    "disk is full": "database.disk_full",
    "disk I/O error": "database.disk_full",
    "unable to open database file": "database.cannot_open",
    "file is not a database": _NO_DATABASE,
    "malformed": _NO_DATABASE,
    "readonly": "database.readonly",
}


def _violated(error: Any, _: str) -> Violated:
    about = str(error).partition(" constraint failed: ")[2]
    name = getattr(error, "sqlite_errorname", None)
    if name == "SQLITE_CONSTRAINT_NOTNULL":
        return Violated(unfilled=about)
    return Violated(key=about) if name in UNIQUE else Violated()


# ---- columns ---------------------------------------------------------------------------------------------------------


class _Time(UserDefinedType[Any]):
    """Text, `YYYY-MM-DD HH:MM:SS.mmm`."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return "VARCHAR(23)"

    def bind_processor(self, _: Any) -> Callable[[datetime | None], str | None]:
        return lambda moment: None if moment is None else moment.isoformat(" ", "milliseconds")

    def result_processor(self, *_: Any) -> Callable[[Any], datetime | None]:
        return read_time


def read_time(text: object) -> datetime | None:
    """Parse a time; None for anything else, so that a bad cell affects only itself."""
    if not isinstance(text, str):
        return None
    try:
        return datetime.fromisoformat(text).replace(tzinfo=None)
    except ValueError:
        return None


class _Money(UserDefinedType[Any]):
    """NUMERIC as SQLite's affinity. SQLAlchemy's own type would warn at every value."""

    cache_ok = True

    def __init__(self, digits: int, decimals: int) -> None:
        self.digits, self.decimals = digits, decimals

    def get_col_spec(self, **_: Any) -> str:
        return f"NUMERIC({self.digits}, {self.decimals})"

    def bind_processor(self, _: Any) -> Callable[[Decimal | None], str | None]:
        # Text, which the column's affinity converts to the nearest number.
        return lambda amount: None if amount is None else str(amount)


# ---- tables ----------------------------------------------------------------------------------------------------------


def _is_integer(column: str) -> str:
    """A CHECK for integers: SQLite would store 25.5 or 'soon' in an INTEGER column."""
    return f"typeof({column}) IN ('integer', 'null')"


def _is_uuid(column: str) -> str:
    glob = "-".join("[0-9a-f]" * part for part in (8, 4, 4, 4, 12))
    # GLOB stops at U+0000, so the length is that of the bytes.
    return f"{column} IS NULL OR {column} GLOB '{glob}' AND length(CAST({column} AS BLOB)) = 36"


DIALECT = Dialect(
    one_writer=True,
    options=_options,
    prepare=_prepare,
    file=sqlite_checks.opened,
    check_intact=sqlite_checks.check_intact,
    closed=sqlite_checks.closed,
    disk=sqlite_checks.disk,
    busy=BUSY,
    refused=REFUSED,
    ours=frozenset({f"constraint failed: {GUARD}"}),
    violated=_violated,
    full=frozenset({"disk is full"}),
    read_only=frozenset({"readonly database"}),
    broken=frozenset({"no such table", "no such column", "no such function", "has no column named"}),
    remedies=REMEDIES,
    durability=_durability,
    skips_locks=lambda _: False,
    lead=None,
    worker=_worker,
    schema_lock=lambda *_: nullcontext(True),
    watch=_watch,
    contents="SELECT name FROM sqlite_master WHERE name NOT LIKE 'sqlite%%'",
    sequence=SEQUENCE,
    time=_Time,
    money=_Money,
    whole=lambda _: Integer(),
    big="INTEGER",
    utc_now="strftime('%Y-%m-%d %H:%M:%f', 'now')",
    random_id="lower(hex(randomblob(16)))",
    insert_many=lambda _, table, columns: inserting("?", table, columns),
    is_integer=_is_integer,
    is_number=lambda column: f"typeof({column}) IN ('integer', 'real', 'null')",  # SQLite would store '12,50'
    is_whole=_is_integer,
    is_uuid=_is_uuid,
    partial_indexes=True,
    refuse=_refuse,
    outside=_OUTSIDE,
    guard=GUARD,
    guards=GUARDS,
    replaced=REPLACED,
)
