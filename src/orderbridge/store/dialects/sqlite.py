"""SQLite: one file, one writer, the POS beside us in the same file.

- Transactions that write begin IMMEDIATE: a deferred BEGIN fails at once beside a second writer, whatever the timeout.
- WAL with synchronous=FULL: what is committed is on disk.
- A time is text, so that any POS driver reads it; money is a double, exact after ROUND(x, 2).
- It has no grants: triggers refuse what grants refuse on servers (sqlite_guard.py).
"""

import socket
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Any

from sqlalchemy import URL, Connection, Engine, Integer, String, UnicodeText, event
from sqlalchemy.exc import OperationalError
from sqlalchemy.types import TypeEngine, UserDefinedType

from orderbridge.clock import SystemClock
from orderbridge.errors import StoreError
from orderbridge.message import Message
from orderbridge.store.dialects import sqlite_checks
from orderbridge.store.dialects.face import READS, Dialect, Durable, Granting, Violated, inserting, never
from orderbridge.store.dialects.sqlite_guard import (
    GUARD,
    GUARDS,
    REPLACED,
    driver_of,
    forget_guard,
    keep,
    open_guard,
    tell_driver,
    watch_commits,
)
from orderbridge.store.dialects.sqlite_watch import watch

LOOK_MS = 20  # SQLite looks after 1, 3 and 8 ms, and then we let it begin anew
SYNCHRONOUS_FULL = 2
LOG_BYTES = 16 * 1024 * 1024  # a -wal that had to grow beyond it shrinks once nobody reads what is old in it
WAL = "database.wal_off"


# ---- connections -----------------------------------------------------------------------------------------------------


def _options(_: URL, busy_timeout_s: float) -> dict[str, Any]:
    """One connection for the writer, one for the reader, made in whichever thread comes first."""
    return {"connect_args": {"timeout": busy_timeout_s, "isolation_level": None, "check_same_thread": False}}


def _prepare(engine: Engine, busy_timeout_s: float) -> None:
    event.listen(engine, "connect", partial(_prepare_connection, busy_timeout_s))
    event.listen(engine, "begin", partial(_begin, busy_timeout_s))
    watch_commits(engine)


def _prepare_connection(busy_timeout_s: float, connection: Any, _: Any) -> None:
    cursor = connection.cursor()
    # A POS may have written bytes that are no UTF-8: one cell must not make a whole page unreadable.
    connection.text_factory = partial(str, encoding="utf-8", errors="replace")
    mode = _use_wal(cursor, busy_timeout_s)
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.execute(f"PRAGMA journal_size_limit = {LOG_BYTES}")
    # A file that has just become WAL has its -wal opened, and held against removal, with the first reading.
    cursor.execute("PRAGMA schema_version").fetchone()
    cursor.close()
    if mode != "wal":
        raise StoreError("database.no_wal", mode=mode)


def _use_wal(cursor: Any, busy_timeout_s: float) -> str:
    """Of a file that is no WAL yet, SQLite refuses this at once while another program writes, whatever the timeout."""
    clock = SystemClock()
    over = clock.monotonic() + busy_timeout_s
    while True:
        try:
            return str(cursor.execute("PRAGMA journal_mode = WAL").fetchone()[0])
        except sqlite3.OperationalError as error:
            if clock.monotonic() >= over or not any(words in str(error) for words in BUSY):
                raise
        time.sleep(LOOK_MS / 1000)


def _begin(busy_timeout_s: float, connection: Connection) -> None:
    """SQLite itself looks every 100 ms: beside a POS that writes without a pause it would hardly ever get its turn."""
    forget_guard(connection)
    if READS.items() <= connection.get_execution_options().items():
        tell_driver(connection, "BEGIN")
        return
    clock = SystemClock()
    over = clock.monotonic() + busy_timeout_s
    driver = driver_of(connection)
    driver.execute(f"PRAGMA busy_timeout = {min(LOOK_MS, round(busy_timeout_s * 1000))}")
    try:
        while not _begins(connection, last=clock.monotonic() >= over):
            pass
    finally:
        driver.execute(f"PRAGMA busy_timeout = {round(busy_timeout_s * 1000)}")
    open_guard(connection)


def _begins(connection: Connection, *, last: bool) -> bool:
    try:
        tell_driver(connection, "BEGIN IMMEDIATE")
    except OperationalError as error:
        if last or not any(words in str(error.orig) for words in BUSY):
            raise
        return False
    return True


SEQUENCE = (
    "UPDATE sqlite_sequence SET seq = (SELECT coalesce(max(id), 0) FROM {0})"
    " WHERE name = '{0}' AND seq = 9223372036854775807"
)


def _durability(connection: Connection) -> Durable:
    mode = connection.exec_driver_sql("PRAGMA journal_mode").scalar()
    synchronous = connection.exec_driver_sql("PRAGMA synchronous").scalar()
    return Durable(None if mode == "wal" and (synchronous or 0) >= SYNCHRONOUS_FULL else Message(WAL))


def _worker(connection: Connection) -> str | None:
    found = sqlite_checks.daemon_of(connection.engine.url.database or "")
    return found and f"{socket.gethostname()}, PID {found}"


def _grants(_: str, __: str | None, on_tables: Granting) -> tuple[str, ...]:
    return on_tables(None)


# ---- errors ----------------------------------------------------------------------------------------------------------
# Words of their texts, because most have one number, and the driver's name of a constraint.

_NO_DATABASE = "database.no_database"
# Of an expression in a trigger, a CHECK or an index of the POS, for this row's values.
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
    """The moment that a text of ours names; None for anything else, so that one bad cell harms only itself."""
    if not isinstance(text, str):
        return None
    try:
        return datetime.fromisoformat(text).replace(tzinfo=None)
    except ValueError:
        return None


class _Money(UserDefinedType[Any]):
    """NUMERIC as SQLite understands it: an affinity. SQLAlchemy's own type would warn at every value."""

    cache_ok = True

    def __init__(self, digits: int, decimals: int) -> None:
        self.digits, self.decimals = digits, decimals

    def get_col_spec(self, **_: Any) -> str:
        return f"NUMERIC({self.digits}, {self.decimals})"

    def bind_processor(self, _: Any) -> Callable[[Decimal | None], str | None]:
        # Text: the column's affinity turns it into the nearest number, without a float of ours in between.
        return lambda amount: None if amount is None else str(amount)


def _text(length: int | None) -> TypeEngine[Any]:
    return UnicodeText() if length is None else String(length)


# ---- tables ----------------------------------------------------------------------------------------------------------


def _is_integer(column: str) -> str:
    """It would keep 25.5 or 'soon' in an INTEGER column."""
    return f"typeof({column}) IN ('integer', 'null')"


def _is_uuid(column: str) -> str:
    glob = "-".join("[0-9a-f]" * part for part in (8, 4, 4, 4, 12))
    # GLOB stops at U+0000, so the length is that of the bytes.
    return f"{column} IS NULL OR {column} GLOB '{glob}' AND length(CAST({column} AS BLOB)) = 36"


def _guard_insert(trigger: str, table: str, refused: str, why: str) -> tuple[str, ...]:
    return (
        f"CREATE TRIGGER {trigger} BEFORE INSERT ON {table} WHEN {refused} BEGIN SELECT RAISE(ABORT, '{why}'); END",
    )


def _guard_update(trigger: str, table: str, columns: Sequence[str], why: str) -> tuple[str, ...]:
    changed = " OR ".join(f"NEW.{column} IS NOT OLD.{column}" for column in columns)
    when = f"BEFORE UPDATE OF {', '.join(columns)} ON {table} WHEN {changed}"
    return (f"CREATE TRIGGER {trigger} {when} BEGIN SELECT RAISE(ABORT, '{why}'); END",)


DIALECT = Dialect(
    extra=None,
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
    broken=frozenset({"no such table", "no such column", "no such function"}),
    remedies=REMEDIES,
    durability=_durability,
    skips_locks=never,
    lead=None,
    worker=_worker,
    schema_lock=lambda *_: nullcontext(True),
    watch=watch,
    sequence=SEQUENCE,
    grants=_grants,
    time=_Time,
    money=_Money,
    whole=lambda _: Integer(),
    text=_text,
    big="INTEGER",
    utc_now="strftime('%Y-%m-%d %H:%M:%f', 'now')",
    random_id="lower(hex(randomblob(16)))",
    insert_many=lambda _, table, columns: inserting("?", table, columns),
    is_filled=lambda column, most: f"length({column}) BETWEEN 1 AND {most}",
    is_integer=_is_integer,
    is_number=lambda column: f"typeof({column}) IN ('integer', 'real', 'null')",  # it alone would keep '12,50'
    is_whole=_is_integer,
    is_uuid=_is_uuid,
    partial_indexes=True,
    guard_insert=_guard_insert,
    guard_update=_guard_update,
    keep=keep,
    guard=GUARD,
    guards=GUARDS,
    replaced=REPLACED,
)
