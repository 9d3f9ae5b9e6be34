"""Runs units of work on the database in worker threads: `Database.run(work)`.

Rules of this file:

- A unit of work is a function of a connection, which runs in one transaction in a worker thread. So no HTTP request can
  happen inside a transaction. `inline=True` runs it without a thread, for tests with a virtual clock.
- Urgent work (verdicts) goes first. SQLite has one writing thread.
- Differences between databases are in dialects/.
"""

import asyncio
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import Any, TypedDict, TypeVar, Unpack

from sqlalchemy import Connection, Engine, ExceptionContext, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError

from orderbridge.config import Database as Configured
from orderbridge.config.addresses import DRIVERS, secrets_of, without_password
from orderbridge.errors import Closed, Message, StoreError, Unusable
from orderbridge.store.dialects import of
from orderbridge.store.dialects.face import TroubleKind
from orderbridge.store.failures import Trouble, is_busy, is_denied, is_ours, is_refusal, kind, remedy
from orderbridge.store.inspection import Durability
from orderbridge.store.schema import set_sequences_right
from orderbridge.store.tables import metadata
from orderbridge.store.workers import Workers, detached

T = TypeVar("T")
Work = Callable[[Connection], T]

SERVER_THREADS = 4
BESIDE_S = 5.0


class Database:
    """The POS's database, or our own SQLite file. Raises StoreError if it cannot be used."""

    def __init__(
        self,
        url: str,
        *,
        busy_timeout_s: float = 5.0,
        accept_unsafe_durability: bool = False,
        inline: bool = False,
        makes_file: bool = True,
    ) -> None:
        self.engine = _engine(url, busy_timeout_s)
        self.dialect = of(self.engine.dialect.name)
        autocommit = {"isolation_level": "AUTOCOMMIT", "skip_autocommit_rollback": True}
        self._reading = _engine(url, busy_timeout_s, **autocommit) if self.dialect.asks_little else self.engine
        self.file = self.dialect.file(self.engine, makes_file)
        self.trouble = Trouble()
        self.durability = Durability(accept_unsafe=accept_unsafe_durability)
        self.inline = inline
        one = self.dialect.one_writer
        self._writers = None if inline else Workers(1 if one else SERVER_THREADS, "db-write")
        self._readers = None if inline else Workers(1, "db-read") if one else self._writers
        self._thread = None if inline else Workers(1, "cpu")  # one thread: a large list takes much memory
        self.on_work: Callable[[str, float, bool], None] = lambda _doing, _seconds, _failed: None  # after each one
        self.on_written: Callable[[], None] = lambda: None  # after each unit of work that may have written
        self.fence: Callable[[Connection], None] = lambda _: None  # at the start of each writing transaction

    async def run(self, work: Work[T], *, urgent: bool = False, is_long: bool = False) -> T:
        """Run `work` in its own transaction: commit if it returns, roll back if it raises.

        `is_long`: it takes long by itself, and does not count as slow.
        """
        return await self._submit("write", self._writers, lambda: self.write_now(work), urgent=urgent, is_long=is_long)

    async def read(self, work: Work[T], *, snapshot: bool = False) -> T:
        """Run `work`, which only reads. `snapshot`: all reads see one moment."""
        return await self._submit("read", self._readers, lambda: self.read_now(work, snapshot=snapshot))

    async def in_thread(self, call: Callable[[], T]) -> T:
        """Run CPU-bound work in a thread, without the database."""
        return call() if self._thread is None else await self._thread.submit(call, urgent=False)

    async def in_own_thread(self, call: Callable[[], T]) -> T:
        """Like `in_thread`, in a separate thread, so that nothing else waits for it."""
        return call() if self.inline else await detached(call)

    async def access_file(self, call: Callable[[], T]) -> T:
        """Access a file beside the database in a separate thread, because its disk may hang.

        Raises TimeoutError (an OSError) after BESIDE_S.
        """
        async with asyncio.timeout(BESIDE_S):
            return await self.in_own_thread(call)

    async def wait_until_free(self) -> None:
        """Wait until a writing and a reading thread are free. This sends nothing to the database."""
        for workers in (self._writers, self._readers):
            if workers is not None:
                await workers.submit(lambda: None, urgent=True)

    async def watch(self, wake: Callable[[], None]) -> None:
        """Call `wake` soon after each commit of another process, until cancelled."""
        await self.dialect.watch(self.engine, wake)

    async def _submit(
        self, doing: str, workers: Workers | None, call: Callable[[], T], *, urgent: bool = False, is_long: bool = False
    ) -> T:
        now = asyncio.get_running_loop().time
        began = 0.0

        def timed() -> T:
            nonlocal began
            began = now()  # excludes the wait for our own units of work
            return call()

        try:
            result = timed() if workers is None else await workers.submit(timed, urgent=urgent)
        except DBAPIError as error:
            self.on_work(doing, now() - (began or now()), True)
            # Only errors that concern further work: not a refused value, and on a server not a lock.
            if not is_refusal(error) and (self.dialect.one_writer or not is_busy(error)):
                found = kind(error)
                if found is TroubleKind.FAILING:  # SQLite reports a read-only disk as "disk I/O error"
                    found = self.dialect.disk(self.engine) or found
                self.trouble.failed(doing, type(error.orig).__name__, remedy(error), found)
            raise
        self.trouble.worked(doing)
        self.on_work(doing, took := now() - began, False)
        if not is_long:
            self.trouble.waited(took, now())
        if doing == "write":
            self.on_written()
        return result

    def write_now(self, work: Work[T]) -> T:
        """Like `run`, without an event loop."""
        try:
            with self.engine.begin() as connection:
                self.check_file()
                self.fence(connection)
                result = work(connection)
        except DBAPIError as error:
            if is_ours(error):  # repair sequences, so that the next try succeeds
                with suppress(DBAPIError), self.engine.begin() as connection:
                    set_sequences_right(connection)
            raise
        self.check_file()  # a commit to a removed file is lost
        return result

    def read_now(self, work: Work[T], *, snapshot: bool = False) -> T:
        """Like `read`, without an event loop."""
        options = self.dialect.snapshot if snapshot else self.dialect.reads
        engine = self.engine if snapshot else self._reading
        with (
            engine.connect().execution_options(**options) as connection,
            connection.begin() if engine is self.engine else nullcontext(),
        ):
            result = work(connection)
        self.check_file()
        return result

    def hindrance(self, work: Work[None]) -> TroubleKind | None:
        """Try this work. Returns the kind of trouble that prevents it, if known."""
        try:
            self.write_now(work)
        except DBAPIError as error:
            found = kind(error)
            return None if found is TroubleKind.FAILING else found
        return None

    def check_file(self) -> None:
        """Raise FileLost if the SQLite file at the path was replaced or removed."""
        if self.file is not None:
            self.file.check()

    def is_unattended(self) -> bool:
        """Whether certainly no daemon works on it. Unknown (False) for a server, because a session may reconnect."""
        return self.file is not None and not self.file.is_locked()

    def refuse_pooler(self) -> None:
        """Raise Unusable behind a pooler that shares sessions: the leader lock belongs to a session."""
        if self.dialect.pooled(self.engine.url, self.dialect.options(self.engine.url, 0.0)):
            raise Unusable("database.pooled")

    def refuse_closed(self) -> None:
        """Raise Closed if this user can read but not write, for example another user's -shm. Writes nothing."""
        closed = self.dialect.closed(self.engine)
        if closed is None:
            return
        try:
            self.write_now(lambda _: None)
        except DBAPIError as error:
            if is_busy(error):  # unknown while another program writes
                return
            raise Closed("database.closed", path=closed, remedy=remedy(error)) from error

    def check_durability(self) -> Message | None:
        """None if commits are durable (promise 1); else the sentence about what to change."""
        return self.read_now(self.durability.judge)

    def check_intact(self) -> None:
        """Raise StoreError if one of our tables is damaged. Writes nothing."""
        self.dialect.check_intact(self.engine, metadata.tables, self.read_now)

    def close(self) -> None:
        """End the worker threads after their submitted work, and close the connections."""
        for workers in {self._writers, self._readers, self._thread} - {None}:
            workers.close()  # type: ignore[union-attr]
        for engine in {self.engine, self._reading}:
            pool = engine.pool
            engine.dispose()
            # A connection that a thread still uses is closed when it is returned.
            event.listen(pool, "checkin", lambda _, record: record.invalidate())
            pool.dispose()
        if self.file is not None:
            self.file.close()


def _engine(url: str, busy_timeout_s: float, **more: Any) -> Engine:
    try:
        parsed = make_url(url)
        dialect = of(parsed.get_backend_name())
        engine = create_engine(
            parsed,
            hide_parameters=True,  # errors are logged, and parameters hold customers' data
            pool_use_lifo=True,  # the last used connection has prepared statements
            **{**dialect.options(parsed, busy_timeout_s), **more},
        )
    except ArgumentError as error:
        raise Unusable("database.no_url", reason=error) from error
    except ValueError:  # its text may quote a part of the password
        raise Unusable("database.no_port") from None
    except (NoSuchModuleError, ModuleNotFoundError) as error:
        name = parsed.get_backend_name()
        if dialect.one_writer:  # its driver is a part of Python
            raise Unusable("database.no_url", reason=name) from error
        raise Unusable("database.no_driver", name=name, scheme=DRIVERS[name]) from error
    dialect.prepare(engine, busy_timeout_s)
    if not dialect.one_writer:
        event.listen(engine, "handle_error", _end_limited)
    return engine


def _end_limited(context: ExceptionContext) -> None:
    """End a session that may not work or was too slow: it keeps the rights and settings with which it began."""
    error, connection = context.sqlalchemy_exception, context.connection
    if connection is None or not connection.in_transaction() or not isinstance(error, DBAPIError):
        return  # outside a transaction SQLAlchemy itself tries what the server offers
    if kind(error) is TroubleKind.READ_ONLY or is_denied(error) or remedy(error).key == "database.time_limit":
        connection.detach()  # closed instead of returned to the pool


class Options(TypedDict, total=False):
    """Options of Database. `makes_file`: create a missing SQLite file; for commands that read, it is an error."""

    busy_timeout_s: float
    accept_unsafe_durability: bool
    inline: bool
    makes_file: bool


def open_database(url: str, **options: Unpack[Options]) -> Database:
    """Open a database and test it with a query. Raises StoreError."""
    database = Database(url, **options)
    try:
        database.read_now(lambda connection: connection.exec_driver_sql("SELECT 1").scalar())
        database.read_now(database.dialect.check)
    except StoreError:
        database.close()
        raise
    except TypeError as error:
        database.close()
        if "unexpected keyword argument" not in str(error):  # a bug
            raise
        raise Unusable("database.no_parameter", url=without_password(url)) from None
    except DBAPIError as error:
        database.close()
        # A missing right or a wrong password needs a person (78). An unreachable server may still be starting, so that
        # a retry helps (other exit codes).
        kind = Closed if is_denied(error) or database.dialect.closed(database.engine) else StoreError
        reason = str(error.orig)
        for secret in secrets_of(url):
            reason = reason.replace(secret, "***")
        reason = " ".join(reason.split()).rstrip(".?")
        raise kind("database.no_answer", url=without_password(url), reason=reason, remedy=remedy(error)) from None
    return database


def open_configured(chosen: Configured, **options: Unpack[Options]) -> Database:
    """Open the database of a configuration."""
    options["busy_timeout_s"] = chosen.busy_timeout_seconds
    options["accept_unsafe_durability"] = chosen.accept_unsafe_durability
    return open_database(chosen.url, **options)
