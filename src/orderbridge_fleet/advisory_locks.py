"""PostgreSQL's advisory locks of one session, shared or not, and pg_locks, which shows those of all sessions.

A replica has a number, and holds the lock of that number while it lives. A bucket's lock has the bucket's number.
"""

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import Connection

from orderbridge.store.dialects.postgresql import LEAD
from orderbridge_fleet.lock_session import SILENT_S

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
END = f"SELECT pg_terminate_backend(pid, 1000) FROM ({HELD}) AS held WHERE class = {REPLICAS} AND number = %s"  # noqa: S608
# A replica that was stopped in the middle of a COPY is not idle to the server.
END_STUCK = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND usename = current_user"
    " AND application_name = %s AND xact_start < clock_timestamp() - interval '5 seconds'"
)
# FOR SHARE: nobody changes the epoch before this transaction ends. A replica that is stopped in the middle of it would
# keep its successor waiting, so the server ends it.
EPOCH = (
    f"SELECT epoch, set_config('idle_in_transaction_session_timeout', '{SILENT_S}s', true)"  # noqa: S608
    " FROM delivery_replicas WHERE replica = %s FOR SHARE"
)
NODE = "SELECT coalesce(host(inet_server_addr()), 'local') || ':' || coalesce(inet_server_port(), 0)"


class Row(NamedTuple):
    """A row of the survey: of a bucket its noted replica and the session that has its lock, of a replica its epoch."""

    what: int
    number: int
    replica: str | None
    session: int | None


def survey(connection: Connection) -> list[Row]:
    """All buckets and replicas with the sessions that hold their locks, our own session, and how many buckets there are."""
    return [Row(*row) for row in connection.exec_driver_sql(SURVEY)]


def join(connection: Connection, number: int) -> bool:
    """Count as one that lives. False: a daemon that works alone is there."""
    if not connection.exec_driver_sql(f"SELECT pg_try_advisory_lock_shared({LEAD})").scalar():
        return False
    connection.exec_driver_sql(
        f"SELECT pg_advisory_lock({REPLICAS}, {number})"
    )  # an error where our last session has it
    return True


def resign(connection: Connection, number: int) -> None:
    """Count no longer as one that lives. The buckets stay held."""
    connection.exec_driver_sql(f"SELECT pg_advisory_unlock({REPLICAS}, {number})")


def end_session_of(connection: Connection, number: int) -> None:
    """End the session of this replica that the server has not missed yet."""
    connection.exec_driver_sql(END, (number,)).all()


def end_transactions_of(connection: Connection, replica: str) -> None:
    """End the transactions in which a replica that vanished was stopped."""
    connection.exec_driver_sql(END_STUCK, (f"orderbridge {replica.rpartition(' ')[0]}",)).all()


def lock(connection: Connection, buckets: Sequence[int]) -> list[int]:
    """Those of these buckets whose locks were free."""
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
    """The epoch of a replica; nobody changes it before this transaction ends. None: the replica is gone."""
    return connection.exec_driver_sql(EPOCH, (replica,)).scalar()


def node_of(connection: Connection) -> str:
    """The server that the session is with."""
    return str(connection.exec_driver_sql(NODE).scalar())
