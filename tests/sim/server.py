"""A fleet's simulated database server: sessions, their locks, and open transactions.

The tables are in the simulation's SQLite file. This adds what SQLite lacks: session locks, a silent session that the
server ends, a transaction that locks a replica's row, and late or lost answers.
"""

import itertools
import math
import re
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, ScalarResult, StaticPool, create_engine
from sqlalchemy.exc import OperationalError
from tests.sim import blocking_call
from tests.sim.life import LIFE
from tests.sim.plan import Crashed

from orderbridge.store.dialects.postgresql_sessions import LIMITS
from orderbridge_fleet import advisory_locks

from orderbridge_fleet.advisory_locks import (  # isort: skip
    BUCKET, BUCKETS, CALL_S, COUNT, LOCK_S, OURSELVES, REPLICA, REPLICAS, SILENT_S, STUCK_S, Row,
)  # fmt: skip

if TYPE_CHECKING:
    from tests.sim.life import Life
    from tests.sim.simulation import Sim

Key = tuple[int, int]  # the class of a lock, and its number

LOST_S = LIMITS["tcp_user_timeout"] / 1000  # until a session notices a lost server
LOOK_S = 0.05
_OPEN = "UPDATE delivery_guard SET open = open + 1"
_CLOSE = "UPDATE delivery_guard SET open = open - 1"
_TIMEOUT = re.compile(r"SET idle_session_timeout = '(\d+)s'")
_RAISES_EPOCH = "UPDATE delivery_replicas SET epoch="


def lost(said: str) -> OperationalError:
    return OperationalError("?", None, sqlite3.OperationalError(said), connection_invalidated=True)


@dataclass(eq=False)
class Session:
    number: int
    life: "Life"
    heard: float
    locks: set[Key] = field(default_factory=set)
    silent_s: float = math.inf  # seconds of silence until the server ends it
    is_over: bool = False


@dataclass(eq=False)
class Transaction:
    """An open transaction of a replica. It locks the replica's row."""

    life: "Life"
    began: float
    over_at: float
    is_over: bool = False


class Server:
    """The server that all replicas share."""

    def __init__(self, sim: "Sim") -> None:
        self._sim = sim
        self._chance = sim.plan.stream("fleet server")
        self._numbers = itertools.count(101)
        self._sessions: dict[int, Session] = {}
        self.owners: dict[Key, Session] = {}
        self.lost_at: dict[Key, float] = {}  # when a lock's session last ended
        self._open: dict[str, list[Transaction]] = defaultdict(list)  # by replica
        self._beginning: Transaction | None = None
        self.is_down = False
        self.heard: dict[int, float] = {}  # by process: when its session last asked
        self.cut: dict[int, float] = {}  # by process: when its cut ends
        self._engine = create_engine(
            f"sqlite:///{sim.path}",
            poolclass=StaticPool,
            isolation_level="AUTOCOMMIT",
            connect_args={"check_same_thread": False},
        )
        self.tables = self._engine.connect()
        driver: Any = self.tables.connection.driver_connection
        driver.create_function("strftime", -1, sim.clock.strftime)

    def close(self) -> None:
        self.tables.close()
        self._engine.dispose()

    def latency(self) -> float:
        """Seconds of half a round trip; sometimes a packet is resent."""
        return 0.3 if self._chance.random() < 0.002 and not self._sim.is_calm else 0.002

    def is_slow_back(self) -> bool:
        """Whether the delay comes after the server's part, so that the answer may be lost."""
        return self._chance.random() < 0.5

    def is_cut(self, life: "Life") -> bool:
        return self._sim.now() < self.cut.get(life.process, 0.0)

    def travel(self, life: "Life", until: float) -> None:
        """Wait for a round trip of a blocking call. It fails at `until`."""
        blocking_call.rest(2 * self.latency())
        self.look(life, until)

    def look(self, life: "Life", until: float) -> None:
        """Wait while the line is cut, at most until then."""
        while self.is_cut(life):
            if self._sim.now() >= until:
                raise lost("cut")
            blocking_call.rest(min(self.cut[life.process], until) - self._sim.now() + 1e-3)
        if not life.alive:
            raise Crashed
        # After a pause the answer may be read before the timer ends the call.
        if self._sim.now() > until and self._chance.random() < 0.5:
            raise lost("late")
        if self.is_down:
            raise lost("connection refused")

    def new_session(self, life: "Life") -> Session:
        session = Session(next(self._numbers), life, self._sim.now())
        self._sessions[session.number] = session
        return session

    def sweep(self) -> None:
        """End sessions that were silent for too long."""
        now = self._sim.now()
        for session in [one for one in self._sessions.values() if one.heard + one.silent_s < now]:
            self.end(session)
        for transaction in chain(*self._open.values()):
            transaction.is_over |= transaction.over_at < now
        for replica, some in self._open.items():
            self._open[replica] = [one for one in some if not one.is_over]

    def end(self, session: Session) -> None:
        session.is_over = True
        self._sessions.pop(session.number, None)
        for key in session.locks:
            del self.owners[key]
            self.lost_at[key] = self._sim.now()
        session.locks.clear()

    def end_all_of(self, life: "Life | None" = None) -> None:
        """End all sessions of a process that has ended, or of the server."""
        for session in [one for one in self._sessions.values() if life in {None, one.life}]:
            self.end(session)
        for transaction in chain(*self._open.values()):
            transaction.is_over |= life in {None, transaction.life}

    def lock(self, session: Session, key: Key) -> bool:
        owner = self.owners.setdefault(key, session)
        if owner is session:
            session.locks.add(key)
        return owner is session

    def unlock(self, session: Session, key: Key) -> None:
        if key in session.locks:
            session.locks.discard(key)
            del self.owners[key]

    @contextmanager
    def transaction(self, life: "Life") -> Iterator[Transaction]:
        """A replica's transaction, from its fence on."""
        silent_s = math.inf if self._chance.random() < 0.4 else SILENT_S
        one = Transaction(life, self._sim.now(), self._sim.now() + silent_s)
        try:
            yield one
        finally:
            one.is_over = True

    @contextmanager
    def beginning(self, one: Transaction) -> Iterator[None]:
        """The fence reads the epoch, and locks the replica's row."""
        self._beginning = one
        try:
            yield
        finally:
            self._beginning = None

    def epoch_of(self, connection: Connection, replica: str) -> int | None:
        if self._beginning is not None:
            self._open[replica].append(self._beginning)
        query = "SELECT epoch FROM delivery_replicas WHERE replica = ?"
        return connection.exec_driver_sql(query, (replica,)).scalar()

    def refuse_locked(self, replica: str) -> None:
        self.sweep()
        if any(not one.is_over for one in self._open[replica]):
            self._sim.trace.note("server", "waits for a transaction", of=replica)
            raise OperationalError("?", None, sqlite3.OperationalError("database is locked"))

    def end_transactions_of(self, replica: str) -> None:
        old = self._sim.now() - STUCK_S
        for one in self._open[replica]:
            one.is_over |= one.began < old


def _set(sql: str, session: Session) -> None:
    if found := _TIMEOUT.match(sql):
        session.silent_s = float(found[1])


class LockConnection:
    """A replica's connection of the session that holds its locks."""

    def __init__(self, server: Server, life: "Life", until: Callable[[], float]) -> None:
        self.server, self._life, self._until = server, life, until
        self.session = server.new_session(life)
        self._is_writing = False

    def ask(self, act: Callable[[Session], Any]) -> Any:
        server, session = self.server, self.session
        is_slow_back = server.is_slow_back()
        (server.look if is_slow_back else server.travel)(self._life, self._until())
        server.sweep()
        if session.is_over:
            raise lost("the session has ended")
        session.heard = server.heard[self._life.process] = self._life.sim.now()
        result = act(session)
        (server.travel if is_slow_back else server.look)(self._life, self._until())
        return result

    def exec_driver_sql(self, sql: str, values: tuple[Any, ...] = ()) -> Any:
        match sql.split(maxsplit=1)[0]:
            case "SET":
                self.ask(partial(_set, sql))
            case "BEGIN":
                self.ask(lambda _: None)
                self._begin()
            case "ROLLBACK":  # after a wait for another transaction's lock
                self._rollback()
                blocking_call.rest(LOCK_S)
            case "COMMIT":
                self._commit()
                self.server.travel(self._life, self._until())  # a fault here leaves the commit unknown
            case _:
                return self._perform(lambda tables: tables.exec_driver_sql(sql, values).freeze()())
        return None

    def _begin(self) -> None:
        self.server.tables.exec_driver_sql("BEGIN IMMEDIATE")
        self.server.tables.exec_driver_sql(_OPEN)
        self._is_writing = True

    def _rollback(self) -> None:
        self._is_writing = False
        self.server.tables.exec_driver_sql("ROLLBACK")

    def _commit(self) -> None:
        self._is_writing = False
        self.server.tables.exec_driver_sql(_CLOSE)
        self.server.tables.exec_driver_sql("COMMIT")
        self._life.sim.tell("moved")

    def execute(self, statement: Any, values: Sequence[Mapping[str, Any]] | None = None) -> Any:
        if not statement.is_dml:
            return self._perform(lambda tables: tables.execute(statement).freeze()())
        if self._is_writing:
            return self._write(statement, values)
        return self.ask(lambda _: self._write_alone(statement, values))

    def scalars(self, statement: Any) -> ScalarResult[Any]:
        return self.execute(statement).scalars()

    def scalar(self, statement: Any) -> Any:
        return self.execute(statement).scalar()

    def _perform(self, read: Callable[[Connection], Any]) -> Any:
        return read(self.server.tables) if self._is_writing else self.ask(lambda _: read(self.server.tables))

    def _write_alone(self, statement: Any, values: Any) -> Any:
        self._begin()
        try:
            result = self._write(statement, values)
        except BaseException:
            self._rollback()
            raise
        self._commit()
        return result

    def _write(self, statement: Any, values: Any) -> Any:
        compiled = statement.compile(self.server.tables)
        if str(compiled).startswith(_RAISES_EPOCH):
            self.server.refuse_locked(str(compiled.params["replica_1"]))
        return self.server.tables.execute(statement, values)

    def invalidate(self) -> None:
        """Close the connection. The server notices, unless the line is cut."""
        if not self.server.is_cut(self._life) and self._life.alive:
            self.server.end(self.session)

    def close(self) -> None:
        """Nothing is left to close."""


class LockSession:
    """Replaces advisory_locks.LockSession."""

    def __init__(self, *_: object) -> None:
        self._life, self._until = LIFE.get(), 0.0
        self._server = self._life.sim.fleet.server

    def open(self) -> LockConnection:
        self._server.travel(self._life, self._until)
        connection = LockConnection(self._server, self._life, lambda: self._until)
        self._server.travel(self._life, self._until)
        return connection

    def close(self) -> None:
        """There is no pool."""

    @contextmanager
    def limited(self) -> Iterator[None]:
        self._until = self._life.sim.now() + CALL_S
        yield


def survey(connection: LockConnection) -> list[Row]:
    def look(session: Session) -> list[Row]:
        server = connection.server

        held = {key: owner.number for key, owner in server.owners.items()}
        found = server.tables.exec_driver_sql("SELECT bucket, replica FROM delivery_buckets").all()
        rows = [Row(BUCKET, number, replica, held.get((BUCKETS, number))) for number, replica in found]
        known = server.tables.exec_driver_sql("SELECT number, epoch, replica FROM delivery_replicas").all()
        rows += [Row(REPLICA, epoch, replica, held.get((REPLICAS, number))) for number, epoch, replica in known]
        count = server.tables.exec_driver_sql("SELECT buckets FROM delivery_fleet WHERE id = 1").scalar()
        return [*rows, Row(OURSELVES, session.number, None, None), *([Row(COUNT, count, None, None)] if count else [])]

    return connection.ask(look)


def join(connection: LockConnection, number: int) -> bool:
    if not connection.ask(lambda session: connection.server.lock(session, (REPLICAS, number))):
        blocking_call.rest(LOCK_S)
        raise OperationalError("?", None, sqlite3.OperationalError("database is locked"))
    return True


def resign(connection: LockConnection, number: int) -> None:
    connection.ask(lambda session: connection.server.unlock(session, (REPLICAS, number)))


def end_session_of(connection: LockConnection, number: int) -> None:
    def end(_: Session) -> None:
        if (owner := connection.server.owners.get((REPLICAS, number))) is not None:
            connection.server.end(owner)

    connection.ask(end)


def end_transactions_of(connection: LockConnection, replica: str) -> None:
    connection.ask(lambda _: connection.server.end_transactions_of(replica))


def lock(connection: LockConnection, buckets: Sequence[int]) -> list[int]:
    def take(session: Session) -> list[int]:
        return [number for number in buckets if connection.server.lock(session, (BUCKETS, number))]

    return connection.ask(take) if buckets else []


def unlock(connection: LockConnection, buckets: Collection[int]) -> None:
    def free(session: Session) -> None:
        for number in buckets:
            connection.server.unlock(session, (BUCKETS, number))

    if buckets:
        connection.ask(free)


def node_of(connection: LockConnection) -> str:
    return str(connection.ask(lambda _: "simulated:5432"))


IN_PLACE = (survey, join, resign, end_session_of, end_transactions_of, lock, unlock, node_of)
assert all(hasattr(advisory_locks, function.__name__) for function in IN_PLACE)
