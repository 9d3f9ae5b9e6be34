"""SQLite: one file, one writer, the POS beside us in the same file.

- Transactions that write begin IMMEDIATE: a deferred BEGIN fails at once beside a second writer, whatever the timeout.
- WAL with synchronous=FULL: what is committed is on disk.
- A time is text, so that any POS driver reads it; money is a double, exact after ROUND(x, 2).
- It has no grants: triggers refuse what grants refuse on servers (sqlite_guard.py).
"""

import errno
import os
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, Integer, String, UnicodeText, event
from sqlalchemy.exc import DatabaseError, OperationalError
from sqlalchemy.types import TypeEngine, UserDefinedType

from orderbridge.clock import SystemClock
from orderbridge.errors import NoFile, StoreError, Unusable
from orderbridge.mounts import network_kind
from orderbridge.store.dialects import sqlite_errors
from orderbridge.store.dialects.face import READS, Dialect, Durable, Granting, Read, inserting, never
from orderbridge.store.dialects.sqlite_driver import driver_of, tell_driver
from orderbridge.store.dialects.sqlite_file import (
    BESIDE,
    SqliteFile,
    refuse_orphaned_wal,
    refuse_overwritten,
    refuse_two_names,
)
from orderbridge.store.dialects.sqlite_guard import (
    GUARD,
    GUARDS,
    REPLACED,
    forget_guard,
    keep,
    open_guard,
    watch_commits,
)
from orderbridge.store.dialects.sqlite_locks import daemon_of
from orderbridge.store.dialects.sqlite_watch import watch
from orderbridge.store.trouble import TroubleKind
from orderbridge.texts import say

LOOK_MS = 20  # SQLite looks after 1, 3 and 8 ms, and then we let it begin anew
LEAST_ROOM = 64 * 1024  # bytes: a transaction of a few orders
CHECKED_BYTES = 512 * 1024 * 1024  # about a second of reading
SYNCHRONOUS_FULL = 2
LOG_BYTES = 16 * 1024 * 1024  # a -wal that had to grow beyond it shrinks once nobody reads what is old in it
WAL = "database.wal_off"


# ---- connections -----------------------------------------------------------------------------------------------------


def _options(_: URL, busy_timeout_s: float) -> dict[str, Any]:
    """One connection for the writer, one for the reader, made in whichever thread comes first."""
    return {"connect_args": {"timeout": busy_timeout_s, "isolation_level": None, "check_same_thread": False}}


def _prepare(engine: Engine, busy_timeout_s: float) -> None:
    event.listen(engine, "connect", _prepare_connection)
    event.listen(engine, "begin", partial(_begin, busy_timeout_s))
    watch_commits(engine)


def _prepare_connection(connection: Any, _: Any) -> None:
    cursor = connection.cursor()
    # A POS may have written bytes that are no UTF-8: one cell must not make a whole page unreadable.
    connection.text_factory = partial(str, encoding="utf-8", errors="replace")
    mode = cursor.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.execute(f"PRAGMA journal_size_limit = {LOG_BYTES}")
    # A file that has just become WAL has its -wal opened, and held against removal, with the first reading.
    cursor.execute("PRAGMA schema_version").fetchone()
    cursor.close()
    if mode != "wal":
        raise StoreError(say("database.no_wal", mode=mode))


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
        if last or not any(words in str(error.orig) for words in sqlite_errors.BUSY):
            raise
        return False
    return True


def _file(engine: Engine, makes_file: bool) -> SqliteFile | None:
    """None in memory, and where the file cannot be opened: SQLite's own attempt tells what is wrong."""
    path = engine.url.database or ""
    if path in {"", ":memory:"} or path.startswith("file:"):
        return None
    if (kind := network_kind(path)) is not None:
        raise Unusable(say("database.network", path=path, kind=kind))
    refuse_two_names(path)
    refuse_orphaned_wal(path)
    refuse_overwritten(path)
    if Path(path).is_dir():
        raise Unusable(say("database.is_folder", path=path))
    folder = Path(os.path.realpath(path)).parent  # of what a link points to
    if not folder.is_dir():  # its disk may be mounted a moment later: trying again helps
        raise StoreError(say("database.no_folder", path=path, folder=folder))
    if not makes_file and not Path(path).exists():
        if not os.access(Path(path).parent, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
            raise StoreError(say("database.folder_closed", path=path, folder=Path(path).parent))
        raise NoFile(say("database.no_file", path=path))
    try:
        file = SqliteFile(path)
    except OSError as error:
        if error.errno in {errno.EMFILE, errno.ENFILE}:
            raise StoreError(say("database.too_many_files", path=path)) from error
        return None
    file.watch(engine)
    return file


def _closed(engine: Engine) -> Path | None:
    """What is there and not for this user: the file, its folder or what is beside it. A read-only disk may come back."""
    path = Path(engine.url.database or "")
    if not path.parent.is_dir():
        return None
    beside = (Path(f"{path}{suffix}") for suffix in BESIDE)
    may = partial(os.access, mode=os.R_OK | os.W_OK, effective_ids=os.access in os.supports_effective_ids)
    denied = next((one for one in (path, path.parent, *beside) if one.exists() and not may(one)), None)
    return None if os.statvfs(path.parent).f_flag & os.ST_RDONLY else denied


def _check_intact(engine: Engine, tables: Collection[str], read: Read) -> None:
    """Nothing is written. Large files are not read."""
    path = Path(engine.url.database or "")
    if not path.is_file() or path.stat().st_size > CHECKED_BYTES:
        return
    try:
        found = read(partial(_damage, frozenset(tables)))
    except OperationalError:  # it could not be looked at: locked, or not readable
        raise
    except DatabaseError as error:
        found = str(error.orig)
    if found is not None:
        raise Unusable(say("database.damaged", path=path, found=found))


def _damage(tables: frozenset[str], connection: Connection) -> str | None:
    """The first thing that is wrong with these tables; the POS's own are the POS's."""
    there = set(connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'table'").scalars())
    # A row that slipped past a CHECK is a bad row and no damage: the outbox refuses it alone.
    connection.exec_driver_sql("PRAGMA ignore_check_constraints = ON")
    try:
        for table in sorted(there & tables):
            found = connection.exec_driver_sql(f"PRAGMA quick_check('{table}')").scalar()
            if found != "ok":
                return f"{table}: {' '.join(str(found).split())}"
    finally:
        connection.exec_driver_sql("PRAGMA ignore_check_constraints = OFF")
    return None


def _disk(engine: Engine) -> TroubleKind | None:
    path = engine.url.database or ""
    if path in {"", ":memory:"} or path.startswith("file:"):
        return None
    here = Path(path)
    found = os.statvfs(here.parent)
    if found.f_flag & os.ST_RDONLY or not all(os.access(one, os.W_OK) for one in (here, here.parent)):
        return TroubleKind.READ_ONLY
    if found.f_bavail * found.f_frsize < LEAST_ROOM:
        return TroubleKind.FULL
    try:  # a kernel that stopped writing after an error shows it nowhere else: a file without a name, gone at once
        os.close(os.open(here.parent, os.O_TMPFILE | os.O_WRONLY, 0o600))
    except OSError as error:
        if error.errno == errno.ENOSPC and found.f_files and not found.f_favail:
            return None  # no new file, but the files that are there are written to
        return REFUSALS.get(error.errno or 0)
    return None


REFUSALS: Mapping[int, TroubleKind] = {errno.EROFS: TroubleKind.READ_ONLY, errno.ENOSPC: TroubleKind.FULL}
SEQUENCE = (
    "UPDATE sqlite_sequence SET seq = (SELECT coalesce(max(id), 0) FROM {0})"
    " WHERE name = '{0}' AND seq = 9223372036854775807"
)


def _durability(connection: Connection) -> Durable:
    mode = connection.exec_driver_sql("PRAGMA journal_mode").scalar()
    synchronous = connection.exec_driver_sql("PRAGMA synchronous").scalar()
    return Durable(None if mode == "wal" and (synchronous or 0) >= SYNCHRONOUS_FULL else say(WAL))


def _worker(connection: Connection) -> str | None:
    found = daemon_of(connection.engine.url.database or "")
    return found and f"{socket.gethostname()}, PID {found}"


def _grants(_: str, __: str | None, on_tables: Granting) -> tuple[str, ...]:
    return on_tables(None)


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


def _guard_value(trigger: str, table: str, column: str, refused: str, why: str) -> tuple[str, ...]:
    when = f"BEFORE UPDATE OF {column} ON {table} WHEN {refused}"
    return (f"CREATE TRIGGER {trigger} {when} BEGIN SELECT RAISE(ABORT, '{why}'); END",)


DIALECT = Dialect(
    extra=None,
    one_writer=True,
    options=_options,
    prepare=_prepare,
    file=_file,
    check_intact=_check_intact,
    closed=_closed,
    disk=_disk,
    **sqlite_errors.SIGNS,
    durability=_durability,
    skips_locks=never,
    lead=None,
    worker=_worker,
    schema_lock=lambda *_: nullcontext(True),
    watch=watch,
    same_clock=True,
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
    adds_checks=False,
    is_filled=lambda column, most: f"length({column}) BETWEEN 1 AND {most}",
    is_integer=_is_integer,
    is_whole=_is_integer,
    is_uuid=_is_uuid,
    partial_indexes=True,
    guard_insert=_guard_insert,
    guard_update=_guard_update,
    guard_value=_guard_value,
    keep=keep,
    guard=GUARD,
    guards=GUARDS,
    replaced=REPLACED,
)
