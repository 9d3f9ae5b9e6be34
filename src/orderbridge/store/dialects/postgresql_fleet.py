"""Several replicas on one PostgreSQL: advisory locks of one session, shared or not, and pg_locks, where all are seen.

A pooler that gives a session's process to others after each transaction would give our locks with it: refused.
"""

from collections.abc import Sequence

from sqlalchemy import Connection, Engine

from orderbridge.errors import Unusable
from orderbridge.store.dialects import fleet
from orderbridge.store.dialects.fleet import FleetDialect
from orderbridge.store.dialects.postgresql_sessions import begin_with_the_last
from orderbridge.texts import say

LEAD = int.from_bytes(b"orderbrg", "big")  # each database has its own numbers
BUCKETS = int.from_bytes(b"orbu", "big")
REPLICAS = int.from_bytes(b"orre", "big")
LIMITS = {
    "connect_timeout": fleet.CONNECT_S,
    "keepalives_idle": 2,
    "keepalives_interval": 1,
    "keepalives_count": 3,
    "tcp_user_timeout": 4000,
    "prepare_threshold": None,
}
SETTLE = (
    f"SET idle_session_timeout = '{fleet.SILENT_S}s'",
    f"SET idle_in_transaction_session_timeout = '{fleet.SILENT_S}s'",
    f"SET lock_timeout = '{fleet.LOCK_S}s'",
    f"SET statement_timeout = '{fleet.LOCK_S + 1}s'",
    "SET synchronous_commit = on",
)
OLDEST = 140000  # idle_session_timeout came with it
ROUNDS = 8  # on a busy pooler one alone shows nothing, once in ten times
LEADING = f"SELECT pg_try_advisory_lock_shared({LEAD})"
PRESENT = f"SELECT pg_advisory_lock({REPLICAS}, {{}})"
HELD = (
    "SELECT classid::bigint AS class, objid::bigint AS number, pid FROM pg_locks WHERE locktype = 'advisory'"
    " AND objsubid = 2 AND granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
SURVEY = (
    f"WITH held AS MATERIALIZED ({HELD})"  # noqa: S608 - constants
    f" SELECT {fleet.BUCKET}, bucket::bigint, replica, pid FROM delivery_buckets"
    f" LEFT JOIN held ON class = {BUCKETS} AND held.number = bucket"
    f" UNION ALL SELECT {fleet.REPLICA}, epoch, replica, pid FROM delivery_replicas"
    f" LEFT JOIN held ON class = {REPLICAS} AND held.number = delivery_replicas.number"
    f" UNION ALL SELECT {fleet.OURSELVES}, pg_backend_pid(), NULL, NULL"
    f" UNION ALL SELECT {fleet.COUNT}, buckets, NULL, NULL FROM delivery_fleet WHERE id = 1"
)
END = f"SELECT pg_terminate_backend(pid, 1000) FROM ({HELD}) AS held WHERE class = {REPLICAS} AND number = %s"  # noqa: S608
# One that was stopped in the middle of a COPY is not idle to the server.
END_STUCK = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND usename = current_user"
    " AND application_name = %s AND xact_start < clock_timestamp() - interval '5 seconds'"
)
# A replica that is stopped in the middle of a transaction would keep its successor from its place.
FENCE = (
    f"SELECT epoch, set_config('idle_in_transaction_session_timeout', '{fleet.SILENT_S}s', true)"  # noqa: S608
    " FROM delivery_replicas WHERE replica = %s FOR SHARE"
)
NODE = "SELECT coalesce(host(inet_server_addr()), 'local') || ':' || coalesce(inet_server_port(), 0)"


def _session(connection: Connection) -> int:
    return int(connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one())


def _refuse(connection: Connection, engine: Engine) -> None:
    if int(connection.exec_driver_sql("SELECT current_setting('server_version_num')").scalar_one()) < OLDEST:
        raise Unusable(say("fleet.old_server", oldest=OLDEST // 10000))
    _refuse_pooler(connection, engine)


def _refuse_pooler(connection: Connection, engine: Engine) -> None:
    """Behind a pooler two sessions share a process in turn; while one of them is in a transaction, the other moves on."""
    mine = _session(connection)
    with engine.connect() as other:
        theirs = _session(other)
        if mine == theirs or any(_moves(connection, mine, other, theirs) for _ in range(ROUNDS)):
            raise Unusable(say("database.pooled"))


def _moves(connection: Connection, mine: int, other: Connection, theirs: int) -> bool:
    """Whether one of two sessions is with another process than before."""
    other.exec_driver_sql("BEGIN")
    moved = _session(other) != theirs or _session(connection) != mine
    other.exec_driver_sql("ROLLBACK")
    return moved or _session(other) != theirs


def _join(connection: Connection, number: int) -> bool:
    if not connection.exec_driver_sql(LEADING).scalar():
        return False
    connection.exec_driver_sql(PRESENT.format(number))  # an error, where a session of ours has it still
    return True


def _absent(connection: Connection, number: int) -> None:
    connection.exec_driver_sql(f"SELECT pg_advisory_unlock({REPLICAS}, {number})")


def _each(connection: Connection, function: str, buckets: Sequence[int]) -> list[int]:
    """Of which buckets the function says yes."""
    if not buckets:
        return []
    ask = f"SELECT bucket, {function}({BUCKETS}, bucket) FROM unnest(%s::int[]) AS bucket"  # noqa: S608
    said = connection.exec_driver_sql(ask, (list(buckets),))
    return [bucket for bucket, yes in said if yes]


def _lock(connection: Connection, buckets: Sequence[int]) -> list[int]:
    return _each(connection, "pg_try_advisory_lock", buckets)


def _unlock(connection: Connection, buckets: Sequence[int]) -> None:
    _each(connection, "pg_advisory_unlock", buckets)


def _end_stuck(connection: Connection, replica: str) -> None:
    connection.exec_driver_sql(END_STUCK, (f"orderbridge {replica.rpartition(' ')[0]}",)).all()


FLEET = FleetDialect(
    driver="psycopg",
    limits=LIMITS,
    line=lambda connection: int(connection.fileno()),
    refuse=_refuse,
    refuse_pooler=_refuse_pooler,
    reach=begin_with_the_last,
    settle=SETTLE,
    join=_join,
    absent=_absent,
    end=lambda connection, number: (connection.exec_driver_sql(END, (number,)).all(), None)[1],
    survey=SURVEY,
    lock=_lock,
    unlock=_unlock,
    node=lambda connection: str(connection.exec_driver_sql(NODE).scalar()),
    end_stuck=_end_stuck,
    fence=FENCE,
)
