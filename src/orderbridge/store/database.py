"""One seam between the async world and the database: `Database.run(work)`.

Rules of this file:
- A unit of work is a plain function of a connection, run whole in one transaction in a worker thread. No HTTP call can
  sit inside a transaction, and `inline=True` runs it on the spot, for tests on a virtual clock.
- Urgent work (verdicts) goes before the rest. A database with one writer has one thread that writes.
- What differs from database to database is in dialects/.
"""

import asyncio
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import Any, TypedDict, TypeVar, Unpack

from sqlalchemy import Connection, Engine, create_engine, event, make_url
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
    """The POS's database, or our own SQLite file. Raises StoreError when it cannot be used as it is."""

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
        apart = {"isolation_level": "AUTOCOMMIT", "skip_autocommit_rollback": True}
        self._reading = _engine(url, busy_timeout_s, **apart) if self.dialect.asks_little else self.engine
        self.file = self.dialect.file(self.engine, makes_file)
        self.trouble = Trouble()
        self.durability = Durability(accept_unsafe=accept_unsafe_durability)
        self.inline = inline
        one = self.dialect.one_writer
        self._writers = None if inline else Workers(1 if one else SERVER_THREADS, "db-write")
        self._readers = None if inline else Workers(1, "db-read") if one else self._writers
        self._apart = None if inline else Workers(1, "apart")  # one: a large list at a time takes memory enough
        self.on_work: Callable[[str, float, bool], None] = lambda _doing, _seconds, _failed: (
            None
        )  # of each unit of work
        self.on_written: Callable[[], None] = lambda: None  # after each unit of work that may have written
        self.fence: Callable[[Connection], None] = lambda _: None  # begins each writing transaction; raises Fenced

    async def run(self, work: Work[T], *, urgent: bool = False) -> T:
        """Run `work` in one transaction of its own; commit when it returns, roll back when it raises."""
        return await self._submit("write", self._writers, lambda: self.write_now(work), urgent=urgent)

    async def read(self, work: Work[T], *, snapshot: bool = False) -> T:
        """Run `work`, which writes nothing. `snapshot`: all that it reads is of one moment."""
        return await self._submit("read", self._readers, lambda: self.read_now(work, snapshot=snapshot), urgent=False)

    async def apart(self, call: Callable[[], T]) -> T:
        """Run what takes its time and asks no database: the loop goes on meanwhile."""
        return call() if self._apart is None else await self._apart.submit(call, urgent=False)

    async def beside(self, call: Callable[[], T]) -> T:
        """Run what reads or writes a file beside the database, whose disk may hang: in a thread of its own.

        Raises TimeoutError, an OSError, when it takes longer than `BESIDE_S`.
        """
        if self.inline:
            return call()
        async with asyncio.timeout(BESIDE_S):
            return await detached(call)

    async def hear(self) -> None:
        """Until a thread that writes and one that reads are free for another unit of work. Neither asks the database."""
        for workers in (self._writers, self._readers):
            if workers is not None:
                await workers.submit(lambda: None, urgent=True)

    async def watch(self, wake: Callable[[], None]) -> None:
        """Call `wake` soon after each commit of another process; runs until it is cancelled."""
        await self.dialect.watch(self.engine, wake)

    async def _submit(self, doing: str, workers: Workers | None, call: Callable[[], T], *, urgent: bool) -> T:
        now = asyncio.get_running_loop().time
        began = 0.0

        def timed() -> T:
            nonlocal began
            began = now()  # not before: what waits for another unit of work of ours waits for no till
            return call()

        try:
            result = timed() if workers is None else await workers.submit(timed, urgent=urgent)
        except DBAPIError as error:
            self.on_work(doing, now() - (began or now()), True)
            # Whether the next unit of work would fail, too: on a server a lock concerns some rows, a value that work.
            if not is_refusal(error) and (self.dialect.one_writer or not is_busy(error)):
                found = kind(error)
                if found is TroubleKind.FAILING:  # a disk that became read-only is a mere "disk I/O error" to SQLite
                    found = self.dialect.disk(self.engine) or found
                self.trouble.failed(doing, type(error.orig).__name__, remedy(error), found)
            raise
        self.trouble.worked(doing)
        self.trouble.waited(took := now() - began, now())
        self.on_work(doing, took, False)
        if doing == "write":
            self.on_written()
        return result

    def write_now(self, work: Work[T]) -> T:
        """`run` for a caller that has no event loop."""
        try:
            with self.engine.begin() as connection:
                self.check_file()
                self.fence(connection)
                result = work(connection)
        except DBAPIError as error:
            if is_ours(error):  # so that what is tried again can be written
                with suppress(DBAPIError), self.engine.begin() as connection:
                    set_sequences_right(connection)
            raise
        self.check_file()  # what went into a file that is gone was not written
        return result

    def read_now(self, work: Work[T], *, snapshot: bool = False) -> T:
        """`read` for a caller that has no event loop."""
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
        """What keeps this work from being done, if it is one of the known ones."""
        try:
            self.write_now(work)
        except DBAPIError as error:
            found = kind(error)
            return None if found is TroubleKind.FAILING else found
        return None

    def check_file(self) -> None:
        """Raise FileLost when the SQLite file is no longer the one at its path."""
        if self.file is not None:
            self.file.check()

    def is_unattended(self) -> bool:
        """Whether certainly no daemon works on it now. Of a server that is unknown: a session that was cut comes back."""
        return self.file is not None and not self.file.is_locked()

    def refuse_pooler(self) -> None:
        """Raise Unusable behind a pooler that gives a session to others: the right to work would go with it."""
        if self.dialect.pooled(self.engine.url, self.dialect.options(self.engine.url, 0.0)):
            raise Unusable("database.pooled")

    def refuse_closed(self) -> None:
        """Raise Closed where this user may read and not write, as beside another one's -shm. Nothing is written."""
        closed = self.dialect.closed(self.engine)
        if closed is None:
            return
        try:
            self.write_now(lambda _: None)
        except DBAPIError as error:
            if is_busy(error):  # another program writes to it, so we could not find out
                return
            raise Closed("database.closed", path=closed, remedy=remedy(error)) from error

    def check_durability(self) -> Message | None:
        """None when a commit is on disk once it returns; else the sentence that says what to change (promise 1)."""
        return self.read_now(self.durability.judge)

    def check_intact(self) -> None:
        """Raise StoreError when the database finds one of our tables damaged. Nothing is written."""
        self.dialect.check_intact(self.engine, metadata.tables, self.read_now)

    def close(self) -> None:
        """End the worker threads, once what was submitted is done, and the connections."""
        for workers in {self._writers, self._readers, self._apart} - {None}:
            workers.close()  # type: ignore[union-attr]
        for engine in {self.engine, self._reading}:
            pool = engine.pool
            engine.dispose()
            # What a thread still has in hand, in a server's silence, is closed when it gives it back.
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
            hide_parameters=True,  # an error's text is logged, and a statement's parameters are customers' data
            pool_use_lifo=True,  # what was used last is used next: its statements are prepared and its caches are warm
            **{**dialect.options(parsed, busy_timeout_s), **more},
        )
    except ArgumentError as error:
        raise Unusable("database.no_url", reason=error) from error
    except ValueError:  # without its text: that quotes what may be a part of the password
        raise Unusable("database.no_port") from None
    except (NoSuchModuleError, ModuleNotFoundError) as error:
        name = parsed.get_backend_name()
        if not dialect.extra:
            raise Unusable("database.no_url", reason=name) from error
        raise Unusable("database.no_driver", name=name, scheme=DRIVERS[name]) from error
    dialect.prepare(engine, busy_timeout_s)
    return engine


class Options(TypedDict, total=False):
    """Of a Database. `makes_file`: a SQLite file that is not there is made. Commands that only read want an error instead."""

    busy_timeout_s: float
    accept_unsafe_durability: bool
    inline: bool
    makes_file: bool


def open_database(url: str, **options: Unpack[Options]) -> Database:
    """A database that answered once. Raises StoreError with the remedy when it does not."""
    database = Database(url, **options)
    try:
        database.read_now(lambda connection: connection.exec_driver_sql("SELECT 1").scalar())
        database.read_now(database.dialect.check)
    except StoreError:
        database.close()
        raise
    except TypeError as error:
        database.close()
        if "unexpected keyword argument" not in str(error):  # a fault of ours, and not the address's
            raise
        raise Unusable("database.no_parameter", url=without_password(url)) from None
    except DBAPIError as error:
        database.close()
        # A right or a password takes a person. A server or a database that is not there may still come by itself, when
        # machines and containers start side by side: to try again helps, and that is what other exit codes than 78 mean.
        kind = Closed if is_denied(error) or database.dialect.closed(database.engine) else StoreError
        reason = str(error.orig)
        for secret in secrets_of(url):
            reason = reason.replace(secret, "***")
        reason = " ".join(reason.split()).rstrip(".?")
        raise kind("database.no_answer", url=without_password(url), said=reason, remedy=remedy(error)) from None
    return database


def open_configured(chosen: Configured, **options: Unpack[Options]) -> Database:
    """The database of a configuration, as `open_database` opens it."""
    options["busy_timeout_s"] = chosen.busy_timeout_seconds
    options["accept_unsafe_durability"] = chosen.accept_unsafe_durability
    return open_database(chosen.url, **options)
