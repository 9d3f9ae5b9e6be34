"""Several replicas on one MariaDB or MySQL: named locks of one session. Who has one, the server says to who asks by name.

- Such a lock is never shared. A replica has one of some slots, and whoever works alone has the lead; each takes its own
  first and then looks for the other's, so that of two at the same time at most one goes on.
- The servers of a Galera cluster know nothing of each other's locks.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

from orderbridge.store.dialects import fleet
from orderbridge.store.dialects.fleet import FleetDialect, Node

SETTLE = (
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    f"SET wait_timeout = {fleet.SILENT_S}",
    f"SET innodb_lock_wait_timeout = {fleet.LOCK_S}",
    f"SET lock_wait_timeout = {fleet.LOCK_S}",
)
SLOTS = 32  # replicas at most
NAME = "CONCAT('orderbridge ', SHA1(IFNULL(DATABASE(), '')))"  # a name for the whole server
LEAD = f"GET_LOCK({NAME}, 0)"
LED = f"IS_USED_LOCK({NAME})"
SLOT = f"CONCAT({NAME}, ' s{{}}')"
REPLICAS = f"COALESCE({', '.join(f'IS_USED_LOCK({SLOT.format(slot)})' for slot in range(SLOTS))})"
SURVEY = (
    f"SELECT {fleet.BUCKET}, bucket, replica, IS_USED_LOCK(CONCAT({NAME}, ' b', bucket)) FROM delivery_buckets"  # noqa: S608 - constants
    f" UNION ALL SELECT {fleet.REPLICA}, epoch, replica, IS_USED_LOCK(CONCAT({NAME}, ' r', number))"
    " FROM delivery_replicas"
    f" UNION ALL SELECT {fleet.OURSELVES}, CONNECTION_ID(), NULL, NULL"
    f" UNION ALL SELECT {fleet.COUNT}, buckets, NULL, NULL FROM delivery_fleet WHERE id = 1"
)
FENCE = "SELECT epoch FROM delivery_replicas WHERE replica = %s LOCK IN SHARE MODE"
NODE = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('wsrep_on', 'wsrep_node_name', 'hostname')"


def _limits() -> dict[str, Any]:
    from pymysql.cursors import Cursor  # noqa: PLC0415 - a driver is imported where it is used

    within = {"read_timeout": fleet.CALL_S, "write_timeout": fleet.CALL_S}
    return {"connect_timeout": fleet.CONNECT_S, "cursorclass": Cursor, **within}


def lead(connection: Connection) -> bool:
    """The right to work alone, for this session. While replicas are there it is not even touched."""
    if connection.exec_driver_sql(f"SELECT {REPLICAS}").scalar() is not None:
        return False
    if connection.exec_driver_sql(f"SELECT {LEAD}").scalar() != 1:
        return False
    if connection.exec_driver_sql(f"SELECT {REPLICAS}").scalar() is None:
        return True
    connection.exec_driver_sql(f"SELECT RELEASE_LOCK({NAME})")
    return False


def worker(connection: Connection) -> int | None:
    """The session that works alone, or one of a replica."""
    return connection.exec_driver_sql(f"SELECT COALESCE({LED}, {REPLICAS})").scalar()


def _join(connection: Connection, number: int) -> bool:
    is_free = (f"GET_LOCK({SLOT.format(slot)}, 0) = 1" for slot in range(SLOTS))
    slot = next((one for one in is_free if connection.exec_driver_sql(f"SELECT {one}").scalar()), None)
    if slot is None or connection.exec_driver_sql(f"SELECT {LED}").scalar() is not None:
        return False
    present = f"SELECT GET_LOCK(CONCAT({NAME}, ' r{number}'), {fleet.LOCK_S})"
    if connection.exec_driver_sql(present).scalar() != 1:
        raise OperationalError(present, {}, TimeoutError())  # a session of ours is there still
    return True


def _absent(connection: Connection, number: int) -> None:
    connection.exec_driver_sql(f"SELECT RELEASE_LOCK(CONCAT({NAME}, ' r{number}'))")


def _end(connection: Connection, number: int) -> None:
    found = connection.exec_driver_sql(f"SELECT IS_USED_LOCK(CONCAT({NAME}, ' r{number}'))").scalar()
    if found is not None:
        connection.exec_driver_sql(f"KILL {int(found)}")


def _each(connection: Connection, call: str, buckets: Sequence[int]) -> list[int]:
    if not buckets:
        return []
    said = connection.exec_driver_sql("SELECT " + ", ".join(call.format(bucket) for bucket in buckets)).one()
    return [bucket for bucket, yes in zip(buckets, said, strict=True) if yes == 1]


def _lock(connection: Connection, buckets: Sequence[int]) -> list[int]:
    return _each(connection, f"GET_LOCK(CONCAT({NAME}, ' b{{}}'), 0)", buckets)


def _unlock(connection: Connection, buckets: Sequence[int]) -> None:
    _each(connection, f"RELEASE_LOCK(CONCAT({NAME}, ' b{{}}'))", buckets)


def _node(connection: Connection) -> Node:
    said = {str(name): str(value) for name, value in connection.exec_driver_sql(NODE)}
    is_shared = said.get("wsrep_on") == "ON"
    if is_shared:  # what is read now has all that was written elsewhere
        connection.exec_driver_sql("SET wsrep_sync_wait = 7")
    return Node(said["wsrep_node_name"] if is_shared else said["hostname"], is_shared)


def _tie(connection: Connection) -> None:
    """One that was stopped in the middle of an answer is not idle to the server: hence the second limit."""
    idle = "idle_transaction_timeout" if getattr(connection.dialect, "is_mariadb", False) else "wait_timeout"
    for limit in (idle, "net_write_timeout"):
        connection.exec_driver_sql(f"SET {limit} = {fleet.SILENT_S}")


FLEET = FleetDialect(
    driver="pymysql",
    limits=_limits,
    line=lambda connection: int(connection._sock.fileno()),  # noqa: SLF001 - it says it nowhere else
    settle=SETTLE,
    join=_join,
    absent=_absent,
    end=_end,
    survey=SURVEY,
    lock=_lock,
    unlock=_unlock,
    node=_node,
    fence=FENCE,
    tie=_tie,
)
