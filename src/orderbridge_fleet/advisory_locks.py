"""PostgreSQL's advisory locks for replicas and buckets, in a session that ends soon after its replica fails.

A replica holds the lock of its number while it lives, and the locks of its buckets. The server releases them when the
session ends, and ends a session that is idle for SILENT_S. So a replica that was killed, stopped or cut off has lost
its locks by then. A call that takes longer than CALL_S is cut on our side.
"""

import contextlib
import os
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import URL, Connection, event

from orderbridge.errors import Unusable
from orderbridge.store.dialects.postgresql import LEAD
from orderbridge.store.dialects.postgresql_sessions import changes_process, lasting_sessions

SILENT_S = 6  # the replica sends a query every second
STUCK_S = 5  # the age of a failed replica's transaction that its successor ends
CALL_S = 4.0  # for all queries of one call
LOCK_S = 1  # for one lock; a failed replica's transaction may still hold it
LIMITS = {
    "connect_timeout": 3,
    "keepalives_idle": 2,
    "keepalives_interval": 1,
    "keepalives_count": 3,
    "tcp_user_timeout": 4000,
}
SETTINGS = (
    f"SET idle_session_timeout = '{SILENT_S}s'",
    f"SET idle_in_transaction_session_timeout = '{SILENT_S}s'",
    f"SET lock_timeout = '{LOCK_S}s'",
    f"SET statement_timeout = '{LOCK_S + 1}s'",
    "SET synchronous_commit = on",
)
OLDEST = 140000  # the first version with idle_session_timeout

BUCKETS = int.from_bytes(b"orbu", "big")  # the class of the locks of buckets
REPLICAS = int.from_bytes(b"orre", "big")  # and of replicas
BUCKET, REPLICA, OURSELVES, COUNT = range(4)  # `Row.what`
HELD = (
    "SELECT classid::bigint AS class, objid::bigint AS number, pid FROM pg_locks WHERE locktype = 'advisory'"
    " AND objsubid = 2 AND granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
SURVEY = (
    f"WITH held AS MATERIALIZED ({HELD})"  # noqa: S608 - constants
    f" SELECT {BUCKET}, bucket::bigint, replica, pid FROM delivery_buckets"
    f" LEFT JOIN held ON class = {BUCKETS} AND held.number = bucket"
    f" UNION ALL SELECT {REPLICA}, epoch, replica, pid FROM delivery_replicas"
    f" LEFT JOIN held ON class = {REPLICAS} AND held.number = delivery_replicas.number"
    f" UNION ALL SELECT {OURSELVES}, pg_backend_pid(), NULL, NULL"
    f" UNION ALL SELECT {COUNT}, buckets, NULL, NULL FROM delivery_fleet WHERE id = 1"
)
END = (
    f"SELECT pg_terminate_backend(pid, 1000) FROM ({HELD}) AS held"  # noqa: S608
    f" WHERE class = {REPLICAS} AND number = %s"
)
# A replica that was stopped in the middle of a COPY is not idle to the server.
END_STUCK = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"  # noqa: S608 - constants
    " WHERE datname = current_database() AND usename = current_user"
    f" AND application_name = %s AND xact_start < clock_timestamp() - interval '{STUCK_S} seconds'"
)
# FOR SHARE: no other session changes the epoch before this transaction ends. A replica that is stopped meanwhile would
# block its successor, so the server ends the idle transaction.
EPOCH = (
    f"SELECT epoch, set_config('idle_in_transaction_session_timeout', '{SILENT_S}s', true)"  # noqa: S608
    " FROM delivery_replicas WHERE replica = %s FOR SHARE"
)
NODE = "SELECT coalesce(host(inet_server_addr()), 'local') || ':' || coalesce(inet_server_port(), 0)"


class Row(NamedTuple):
    """A row of the survey: a bucket with its replica and the session of its lock, or a replica with its epoch."""

    what: int
    number: int
    replica: str | None
    session: int | None


def survey(connection: Connection) -> list[Row]:
    """All buckets and replicas with the sessions that hold their locks, our own session, and the number of buckets."""
    return [Row(*row) for row in connection.exec_driver_sql(SURVEY)]


def join(connection: Connection, number: int) -> bool:
    """Take the lock of our number, which marks us as living. Returns False if a single daemon works."""
    if not connection.exec_driver_sql(f"SELECT pg_try_advisory_lock_shared({LEAD})").scalar():
        return False
    connection.exec_driver_sql(
        f"SELECT pg_advisory_lock({REPLICAS}, {number})"
    )  # fails while our previous session has it
    return True


def resign(connection: Connection, number: int) -> None:
    """Release the lock of our number. The buckets stay locked."""
    connection.exec_driver_sql(f"SELECT pg_advisory_unlock({REPLICAS}, {number})")


def end_session_of(connection: Connection, number: int) -> None:
    """End a remaining session of this replica."""
    connection.exec_driver_sql(END, (number,)).all()


def end_transactions_of(connection: Connection, replica: str) -> None:
    """End transactions that a failed replica left open."""
    connection.exec_driver_sql(END_STUCK, (f"orderbridge {replica.rpartition(' ')[0]}",)).all()


def lock(connection: Connection, buckets: Sequence[int]) -> list[int]:
    """Lock the free ones of these buckets, and return them."""
    return _each(connection, "pg_try_advisory_lock", buckets)


def unlock(connection: Connection, buckets: Sequence[int]) -> None:
    """Free the locks of these buckets."""
    _each(connection, "pg_advisory_unlock", buckets)


def _each(connection: Connection, function: str, buckets: Sequence[int]) -> list[int]:
    """The buckets for which the function returns true."""
    if not buckets:
        return []
    query = f"SELECT bucket, {function}({BUCKETS}, bucket) FROM unnest(%s::int[]) AS bucket"  # noqa: S608
    return [bucket for bucket, is_true in connection.exec_driver_sql(query, (list(buckets),)) if is_true]


def epoch_of(connection: Connection, replica: str) -> int | None:
    """Lock and read the epoch of a replica; None if the replica was removed."""
    return connection.exec_driver_sql(EPOCH, (replica,)).scalar()


def node_of(connection: Connection) -> str:
    """The server of the session."""
    return str(connection.exec_driver_sql(NODE).scalar())


class LockSession:
    """A connection that is cut if a call takes too long, because the server or the network may hang."""

    def __init__(self, url: URL, options: Mapping[str, Any]) -> None:
        """`options`: for create_engine, as for any session of ours."""
        self._engine = lasting_sessions(url, options, **LIMITS)
        self._sockets: dict[int, socket.socket] = {}
        self._is_late = False
        self._guard = threading.Lock()
        event.listen(self._engine, "connect", self._know, insert=True)
        event.listen(self._engine, "close", self._forget)

    def open(self) -> Connection:
        """Open a session that no pooler shares. Raises Unusable."""
        connection = self._engine.connect()
        try:
            self._check(connection)
        except BaseException:
            connection.invalidate()
            connection.close()
            raise
        return connection

    def _check(self, connection: Connection) -> None:
        if int(connection.exec_driver_sql("SELECT current_setting('server_version_num')").scalar_one()) < OLDEST:
            raise Unusable("fleet.old_server", oldest=OLDEST // 10000)
        if changes_process(connection, self._engine):
            raise Unusable("database.pooled")

    def close(self) -> None:
        """Open no more sessions."""
        self._engine.dispose()

    @contextlib.contextmanager
    def limited(self) -> Iterator[None]:
        """A block whose queries fail after CALL_S."""
        self._is_late = False
        timer = threading.Timer(CALL_S, self._cut)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _know(self, connection: Any, _: Any) -> None:
        """Copy the descriptor, because the driver may close its own while we cut."""
        with self._guard:
            self._sockets[id(connection)] = socket.socket(fileno=os.dup(connection.fileno()))
        if self._is_late:
            self._cut()

    def _cut(self) -> None:
        with self._guard:
            self._is_late = True
            for line in self._sockets.values():
                with contextlib.suppress(OSError):
                    line.shutdown(socket.SHUT_RDWR)

    def _forget(self, connection: Any, _: Any) -> None:
        with self._guard:
            line = self._sockets.pop(id(connection), None)
        if line is not None:
            line.close()
