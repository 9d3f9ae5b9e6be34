"""The database of one life, without threads: its queue, slow and failing work, and the points of a crash."""

import asyncio
import heapq
import itertools
import sqlite3
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import sqlalchemy
from sqlalchemy import create_engine
from sqlalchemy.exc import DBAPIError, OperationalError
from tests.sim.plan import Crashed

from orderbridge.config import keys
from orderbridge.store.database import Database, Work

if TYPE_CHECKING:
    from tests.sim.life import Life


class Compiled:
    """A dialect, which keeps how values are converted, with its compiled statements."""

    def __init__(self) -> None:
        engine = create_engine("sqlite://")
        engine.connect().close()  # the dialect asks the driver for its features here
        self.dialect = engine.dialect
        self.statements: dict[Any, Any] = {}


_kept = Compiled()


def share_compiled(database: Database) -> None:
    """Let this database use what another one of this process has compiled."""
    database.engine.dialect = _kept.dialect
    database.engine.update_execution_options(compiled_cache=_kept.statements)


BUSY_TIMEOUT_S = keys.Database().busy_timeout_seconds  # the real database's threads wait so long for a till


class SimDatabase(Database):
    """The database as its threads work: one transaction at a time, urgent work first."""

    def __init__(self, life: "Life") -> None:
        self._life, self._sim = life, life.sim
        url, unsafe = self._sim.settings.database.url, self._sim.power is None
        super().__init__(url, busy_timeout_s=0.0, inline=True, accept_unsafe_durability=unsafe)
        self._writers: Any = _Queue(life, writes=True)
        self._readers: Any = _Queue(life, writes=False)
        self._working = ""
        share_compiled(self)
        sqlalchemy.event.listen(self.engine, "connect", self._connected)
        sqlalchemy.event.listen(self.engine, "before_cursor_execute", self._statement)

    def _connected(self, connection: sqlite3.Connection, _: object) -> None:
        self._sim.tell("connected", connection)
        self._sim.prepare(connection)

    def _statement(self, _: object, __: object, sql: str, parameters: object, *___: object) -> None:
        if "delivery_" in sql and not sql.startswith("SELECT"):
            self._sim.statements.append(sql)
            self._sim.tell("statement", sql, parameters)
        self._life.point("statement upgrade" if self._working == "try_upgrade" else "statement")

    async def wait_until_free(self) -> None:
        """Return at once: its queues never hang."""

    def write_now(self, work: Work[Any]) -> Any:
        name = self._working = _name_of(work)

        def whole(connection: sqlalchemy.Connection) -> Any:
            result = work(connection)
            self._may_break("COMMIT")
            self._life.point(f"before commit {name}")
            return result

        result = self._survive(lambda: Database.write_now(self, whole))
        self._sim.tell("committed", name)
        self._sim.statements.clear()
        self._life.point(f"after commit {name}")
        self._sim.till.notice()
        if self._sim.plan.restless or name == "Closures.carry_out":  # nothing else wakes the outbox then
            self._sim.woken()
        return result

    def _survive(self, call: Callable[[], Any]) -> Any:
        """Power may fail during a write or a flush. SQLite gets an error then, which reaches no other code."""
        if self._sim.power is None:
            return call()
        self._sim.power.fails = self._fails
        try:
            result = call()
        except DBAPIError:
            if self._life.alive:
                raise
        finally:
            self._sim.power.fails = lambda _: False
        if not self._life.alive:
            raise Crashed
        return result

    def _fails(self, what: str) -> bool:
        try:
            self._life.point(what)
        except Crashed:
            return True
        return False

    def _may_break(self, statement: str) -> None:
        if self._sim.disk_breaks():
            raise OperationalError(statement, None, sqlite3.OperationalError("disk I/O error"))

    def read_now(self, work: Work[Any], *, snapshot: bool = False) -> Any:
        """`snapshot` has no effect, because nothing writes during a read."""
        del snapshot
        self._working = ""
        self._may_break("SELECT")
        return super().read_now(work)


class _Queue:
    """Replaces store.workers.Workers: units of work in the order of the threads. A started one is not cancelled."""

    def __init__(self, life: "Life", *, writes: bool) -> None:
        self._life, self._sim, self._writes = life, life.sim, writes
        self._waiting: list[tuple[int, int, Callable[[], Any], asyncio.Future[Any]]] = []
        self._order = itertools.count()
        self._locked_since: float | None = None

    async def submit(self, call: Callable[[], Any], *, urgent: bool) -> Any:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        heapq.heappush(self._waiting, (0 if urgent else 1, next(self._order), call, future))
        if len(self._waiting) == 1:
            loop.call_later(self._takes(), self._next)
        return await future

    def close(self) -> None:
        """Waiting work is lost with its process."""

    def _next(self) -> None:
        loop = asyncio.get_running_loop()
        if not self._life.alive or (self._writes and self._waits_for_till(loop)):
            return
        _, _, call, future = heapq.heappop(self._waiting)
        began = time.process_time()
        try:
            settle = partial(future.set_result, call())
        except Crashed:
            return
        except BaseException as error:  # noqa: BLE001 - it belongs to the caller, whatever it is
            settle = partial(future.set_exception, error)
        self._sim.transactions += 1
        self._sim.transactions_took += time.process_time() - began
        if not future.done():
            settle()
        if self._writes:
            self._sim.moment("between units of work", "")
        if self._waiting:
            loop.call_later(self._takes(), self._next)

    def _takes(self) -> float:
        return self._sim.disk_takes(lambda: _name_of(self._waiting[0][2]))

    def _waits_for_till(self, loop: asyncio.AbstractEventLoop) -> bool:
        self._sim.moment("before a unit of work", "")
        now = loop.time()
        if self._locked_since is None:
            self._locked_since = now
        until = min(self._sim.till.locked_until, self._locked_since + BUSY_TIMEOUT_S)
        if until > now:
            loop.call_at(until, self._next)
            return True
        self._locked_since = None
        return False


def _name_of(work: Any) -> str:
    """The name of a unit of work, such as `Intake._write`."""
    while isinstance(work, partial) or work.__qualname__.startswith(("write_group.", "Database.")):
        if isinstance(work, partial):
            work = work.func
        else:
            names = work.__code__.co_freevars
            work = work.__closure__[names.index("work" if "work" in names else "call")].cell_contents
    return str(work.__qualname__).partition(".<locals>")[0]
