"""One seam between the async world and the database: `Database.run(work)`.

Rules of this file:
- A unit of work is a plain function of a connection, run whole in one transaction in a worker thread. No HTTP call can
  sit inside a transaction, and `inline=True` runs it on the spot, for tests on a virtual clock.
- SQLite has one writer thread. Its transactions begin IMMEDIATE: a deferred BEGIN fails at once beside a second writer,
  whatever the timeout. Urgent work (verdicts) goes before the rest.
- What is committed is on disk: WAL with synchronous=FULL, synchronous_commit=on. Promise 1 hangs on it.
"""

import asyncio
import contextlib
import itertools
import os
import queue
import sqlite3
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, Engine, ExceptionContext, create_engine, event, make_url
from sqlalchemy.exc import (
    ArgumentError,
    DatabaseError,
    DataError,
    DBAPIError,
    IntegrityError,
    NoSuchModuleError,
    OperationalError,
)

from orderbridge.clock import SystemClock
from orderbridge.errors import StoreError
from orderbridge.store.tables import metadata
from orderbridge.store.trouble import Trouble

T = TypeVar("T")
Work = Callable[[Connection], T]

SERVER_THREADS = 4
LOOK_MS = 20  # SQLite looks after 1, 3 and 8 ms, and then we let it begin anew
LOCK_TIMEOUT_S = 2
LEAVE_WITHIN_S = 6.0  # more than a writer of SQLite waits for the file
# A server that vanishes without a word (power, cable, firewall) is noticed within half a minute, not within hours.
POSTGRESQL_LIMITS = {
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
# The driver has no keepalive times; its reading has to outlast the 60 s in which another program changes the schema.
PYMYSQL_LIMITS = {"connect_timeout": 5, "read_timeout": 75, "write_timeout": 20}
CHECKED_BYTES = 512 * 1024 * 1024  # about a second of reading
DAMAGED = (
    "Nothing was written to it. Stop the POS, keep a copy of the file, and put a backup in its place, "
    "or rescue what can be read: sqlite3 FILE .recover"
)
EXTRAS = {"postgresql": "postgresql", "mysql": "mysql", "mariadb": "mysql", "mssql": "mssql"}


class Database:
    """The POS's database, or our own SQLite file. Raises StoreError when it cannot be used as it is."""

    def __init__(
        self,
        url: str,
        *,
        busy_timeout_s: float = 5.0,
        accept_unsafe_durability: bool = False,
        inline: bool = False,
    ) -> None:
        self.engine = _engine(url, busy_timeout_s)
        self.is_sqlite = self.engine.dialect.name == "sqlite"
        self.trouble = Trouble()
        self._accept_unsafe = accept_unsafe_durability
        self._reading: dict[str, Any] = {"orderbridge_read": True}
        if self.engine.dialect.name == "postgresql":
            # READ COMMITTED sees each statement's own moment anyway: BEGIN and COMMIT would be two journeys for nothing.
            self._reading["isolation_level"] = "AUTOCOMMIT"
        self._writers = None if inline else Workers(1 if self.is_sqlite else SERVER_THREADS, "db-write")
        self._readers = None if inline else Workers(1, "db-read") if self.is_sqlite else self._writers

    async def run(self, work: Work[T], *, urgent: bool = False) -> T:
        """Run `work` in one transaction of its own; commit when it returns, roll back when it raises."""
        return await self._submit("write", self._writers, lambda: self.write_now(work), urgent=urgent)

    async def read(self, work: Work[T]) -> T:
        """Run `work`, which writes nothing."""
        return await self._submit("read", self._readers, lambda: self.read_now(work), urgent=False)

    async def _submit(self, doing: str, workers: "Workers | None", call: Callable[[], T], *, urgent: bool) -> T:
        now = asyncio.get_running_loop().time
        began = 0.0

        def timed() -> T:
            nonlocal began
            began = now()  # not before: what waits for another unit of work of ours waits for no till
            return call()

        try:
            result = timed() if workers is None else await workers.submit(timed, urgent=urgent)
        except DBAPIError as error:
            if self._is_ill(error):
                self.trouble.failed(doing, type(error.orig).__name__, remedy(error))
            raise
        self.trouble.worked(doing)
        self.trouble.waited(now() - began, now())
        return result

    def _is_ill(self, error: DBAPIError) -> bool:
        """Whether the next unit of work would fail, too. On a server a lock concerns some rows, a value that work."""
        return not is_refusal(error) and (self.is_sqlite or not is_busy(error))

    def write_now(self, work: Work[T]) -> T:
        """`run` for a caller that has no event loop."""
        with self.engine.begin() as connection:
            return work(connection)

    def read_now(self, work: Work[T]) -> T:
        """`read` for a caller that has no event loop."""
        with self.engine.connect().execution_options(**self._reading) as connection, connection.begin():
            return work(connection)

    def check_durability(self) -> str | None:
        """None when a commit is on disk once it returns; else the sentence that says what to change (promise 1)."""
        said = self.read_now(_durability_remedy)
        return None if self._accept_unsafe and self.engine.dialect.name in {"mysql", "mariadb"} else said

    def check_intact(self) -> None:
        """Raise StoreError when SQLite finds one of our tables damaged. Nothing is written. Large files are not read."""
        path = Path(self.engine.url.database or "")
        if not self.is_sqlite or not path.is_file() or path.stat().st_size > CHECKED_BYTES:
            return
        try:
            found = self.read_now(_damage)
        except OperationalError:  # it could not be looked at: locked, or not readable
            raise
        except DatabaseError as error:
            found = str(error.orig)
        if found is not None:
            raise StoreError(f"The SQLite file {path} is damaged ({found}). {DAMAGED}")

    def close(self) -> None:
        """End the worker threads, once what was submitted is done, and the connections."""
        for workers in {self._writers, self._readers} - {None}:
            workers.close()  # type: ignore[union-attr]
        self.engine.dispose()


def is_busy(error: DBAPIError) -> bool:
    """Whether somebody else holds the database or a row: wait and try again; nothing is wrong with the work."""
    text = str(error.orig)
    return (
        not _codes(error).isdisjoint({"55P03", "40P01", "40001", 1205, 1213})
        or "database is locked" in text
        or "database table is locked" in text
    )


def is_refusal(error: DBAPIError) -> bool:
    """Whether the database does not take these values, by a type, a constraint or a trigger: it never will.

    A trigger's own error is P0001 on PostgreSQL and 1644 on MariaDB and MySQL; their CHECK is 4025 and 3819.
    """
    return isinstance(error, IntegrityError | DataError) or not _codes(error).isdisjoint({"P0001", 1644, 4025, 3819})


def _codes(error: DBAPIError) -> set[object]:
    """The SQLSTATE and the driver's number; PyMySQL has both, and its SQLSTATE says less."""
    original = error.orig
    return {getattr(original, "sqlstate", None), *(original.args[:1] if original else ())}


class Workers:
    """Threads over one queue. Urgent work overtakes what waits; within a class, first come, first served."""

    def __init__(self, threads: int, name: str) -> None:
        self._queue: queue.PriorityQueue[tuple[int, int, Callable[[], None] | None]] = queue.PriorityQueue()
        self._order = itertools.count()
        self._threads = [threading.Thread(target=self._work, name=name, daemon=True) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    async def submit(self, call: Callable[[], T], *, urgent: bool) -> T:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def job() -> None:
            result, failed = None, None
            try:
                result = call()
            except BaseException as error:  # noqa: BLE001 - it belongs to the caller, whatever it is
                failed = error
            with contextlib.suppress(RuntimeError):  # the loop is closed: the program ends
                loop.call_soon_threadsafe(_deliver, future, result, failed)

        self._queue.put((0 if urgent else 1, next(self._order), job))
        return await future

    def _work(self) -> None:
        while (job := self._queue.get()[2]) is not None:
            job()

    def close(self) -> None:
        """End them, once what was submitted is done. One that hangs in a server's silence is left to the process."""
        for _ in self._threads:
            self._queue.put((2, next(self._order), None))
        for thread in self._threads:
            thread.join(LEAVE_WITHIN_S / len(self._threads))


def _deliver(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():  # the caller was cancelled; the work is done all the same
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


def _engine(url: str, busy_timeout_s: float) -> Engine:
    try:
        parsed = make_url(url)
        # An error's text is logged, and a statement's parameters are customers' data.
        options: dict[str, Any] = {"hide_parameters": True}
        if parsed.get_backend_name() == "sqlite":
            _make_file(parsed.database or "")
            # One connection for the writer, one for the reader, made in whichever thread comes first.
            options["connect_args"] = {
                "timeout": busy_timeout_s,
                "isolation_level": None,
                "check_same_thread": False,
            }
        else:
            options |= {"pool_pre_ping": True, "isolation_level": "READ COMMITTED", "connect_args": limits(parsed)}
        engine = create_engine(parsed, **options)
    except ArgumentError as error:
        raise StoreError(f"database.url cannot be read: {error}. Example: sqlite:///orderbridge.db") from error
    except (NoSuchModuleError, ModuleNotFoundError) as error:
        backend = parsed.get_backend_name()
        extra = EXTRAS.get(backend)
        remedy = f"Install it: pip install 'orderbridge[{extra}]'" if extra else "Use sqlite, postgresql or mysql."
        raise StoreError(f"The driver for {backend} is missing. {remedy}") from error
    _prepare(engine, busy_timeout_s)
    return engine


def limits(url: URL) -> dict[str, Any]:
    """How long a connection waits for a server that does not say a word. What the URL itself says stands."""
    chosen = {"psycopg": POSTGRESQL_LIMITS, "pymysql": PYMYSQL_LIMITS}.get(url.get_driver_name(), {})
    return {name: value for name, value in chosen.items() if name not in url.query}


def _make_file(path: str) -> None:
    """A new database is made by the umask's rules: SQLite itself would keep a POS of the same group from writing."""
    with contextlib.suppress(OSError):  # whatever is wrong, SQLite's own attempt tells it
        os.close(os.open(path, os.O_CREAT | os.O_RDONLY, 0o666))


def _prepare(engine: Engine, busy_timeout_s: float) -> None:
    match engine.dialect.name:
        case "sqlite":
            event.listen(engine, "connect", _prepare_sqlite)
            event.listen(engine, "begin", partial(_begin_sqlite, busy_timeout_s))
        case "postgresql":
            _on_connect(engine, "SET synchronous_commit = on", f"SET lock_timeout = '{LOCK_TIMEOUT_S}s'")
            if engine.dialect.driver == "psycopg":
                event.listen(engine, "connect", _read_every_time)
            event.listen(engine, "handle_error", _without_values)
        case "mysql" | "mariadb":
            _on_connect(engine, f"SET innodb_lock_wait_timeout = {LOCK_TIMEOUT_S}", "SET time_zone = '+00:00'")
        case "mssql":
            _on_connect(engine, f"SET LOCK_TIMEOUT {LOCK_TIMEOUT_S * 1000}")


def _prepare_sqlite(connection: Any, _: Any) -> None:
    cursor = connection.cursor()
    # A POS may have written bytes that are no UTF-8: one cell must not make a whole page unreadable.
    connection.text_factory = partial(str, encoding="utf-8", errors="replace")
    mode = cursor.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()
    if mode != "wal":
        raise StoreError(
            f"The SQLite file cannot use WAL (journal mode is {mode}). Put it on a local disk: a network file system "
            "cannot be shared safely."
        )


def _begin_sqlite(busy_timeout_s: float, connection: Connection) -> None:
    """SQLite itself looks every 100 ms: beside a POS that writes without a pause it would hardly ever get its turn."""
    if connection.get_execution_options().get("orderbridge_read", False):
        connection.exec_driver_sql("BEGIN")
        return
    clock = SystemClock()
    over = clock.monotonic() + busy_timeout_s
    driver: sqlite3.Connection = connection.connection.driver_connection  # type: ignore[assignment]
    driver.execute(f"PRAGMA busy_timeout = {min(LOOK_MS, round(busy_timeout_s * 1000))}")
    try:
        while not _begins(connection, last=clock.monotonic() >= over):
            pass
    finally:
        driver.execute(f"PRAGMA busy_timeout = {round(busy_timeout_s * 1000)}")


def _begins(connection: Connection, *, last: bool) -> bool:
    try:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    except OperationalError as error:
        if last or not is_busy(error):
            raise
        return False
    return True


def _on_connect(engine: Engine, *statements: str) -> None:
    def prepare(connection: Any, _: Any) -> None:
        cursor = connection.cursor()
        for statement in statements:
            cursor.execute(statement)
        cursor.close()
        connection.commit()

    event.listen(engine, "connect", prepare)


def _read_every_time(connection: Any, _: Any) -> None:
    """PostgreSQL keeps times that Python has not, like infinity; the driver would give up the whole page for one."""
    from psycopg import DataError as NoTime  # noqa: PLC0415 - a driver is imported where it is used
    from psycopg.types.datetime import TimestampLoader  # noqa: PLC0415

    class Lenient(TimestampLoader):
        def load(self, data: Any) -> Any:
            try:
                return super().load(data)
            except NoTime:
                return None

    connection.adapters.register_loader("timestamp", Lenient)


def _without_values(context: ExceptionContext) -> None:
    """PostgreSQL tells the failing row whole in an error's DETAIL; an error's text is logged and printed."""
    original = context.original_exception
    primary = getattr(getattr(original, "diag", None), "message_primary", None)
    if primary and context.sqlalchemy_exception is not None:
        original.args = (primary,)
        context.sqlalchemy_exception.args = (f"({type(original).__name__}) {primary}",)


def _refuse_encoding(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        encoding = connection.exec_driver_sql("SHOW server_encoding").scalar()
        if encoding != "UTF8":
            raise StoreError(
                f"The database's encoding is {encoding}, which cannot hold every order. "
                "Make one for orderbridge with ENCODING 'UTF8' TEMPLATE template0."
            )


def _durability_remedy(connection: Connection) -> str | None:
    match connection.dialect.name:
        case "postgresql":
            if connection.exec_driver_sql("SHOW fsync").scalar() == "off":
                raise StoreError("PostgreSQL runs with fsync = off: a power cut loses orders. Set fsync = on.")
        case "mysql" | "mariadb":
            if connection.exec_driver_sql("SELECT @@innodb_flush_log_at_trx_commit").scalar() != 1:
                return "Set innodb_flush_log_at_trx_commit = 1; until then no order is acknowledged."
    return None


def open_database(
    url: str, *, busy_timeout_s: float = 5.0, accept_unsafe_durability: bool = False, inline: bool = False
) -> Database:
    """A database that answered once. Raises StoreError with the remedy when it does not."""
    database = Database(
        url, busy_timeout_s=busy_timeout_s, accept_unsafe_durability=accept_unsafe_durability, inline=inline
    )
    try:
        database.read_now(lambda connection: connection.exec_driver_sql("SELECT 1").scalar())
        database.read_now(_refuse_encoding)
    except StoreError:
        database.close()
        raise
    except DBAPIError as error:
        where = database.engine.url.render_as_string(hide_password=True)
        database.close()
        raise StoreError(f"The database {where} does not answer: {error.orig}. {remedy(error)}") from error
    return database


def _damage(connection: Connection) -> str | None:
    """The first thing that is wrong with our tables; the POS's own are the POS's."""
    there = set(connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'table'").scalars())
    # A row that slipped past a CHECK is a bad row and no damage: the outbox refuses it alone.
    connection.exec_driver_sql("PRAGMA ignore_check_constraints = ON")
    try:
        for table in sorted(there & metadata.tables.keys()):
            found = connection.exec_driver_sql(f"PRAGMA quick_check('{table}')").scalar()
            if found != "ok":
                return f"{table}: {' '.join(str(found).split())}"
    finally:
        connection.exec_driver_sql("PRAGMA ignore_check_constraints = OFF")
    return None


def remedy(error: DBAPIError) -> str:
    """What a technician can do about trouble with the database."""
    text = str(error.orig)
    if is_busy(error):
        return "Another program holds the database; it is tried again. POS transactions should be short."
    if "disk is full" in text or "disk I/O error" in text:
        return "The disk is full or failing: make room."
    if "unable to open database file" in text:
        return "Make the folder and let this user write to it."
    if "file is not a database" in text or "malformed" in text:
        return f"The file is no SQLite file (name another one in database.url) or damaged. {DAMAGED}"
    if "readonly" in text:
        return "Let this user write to the file and to its folder."
    if "read-only" in text:
        return (
            "The server takes no writes: it may be a standby. Name the one that does in database.url, or let it write."
        )
    if isinstance(error, OperationalError):
        return "Check database.url: host, port, user and password, and that the server runs."
    return "Check database.url."
