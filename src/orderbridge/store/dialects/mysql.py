"""The dialect for MariaDB and MySQL, with PyMySQL.

- The server closes the connection on a statement longer than max_allowed_packet. This looks like a server failure, and
  the rest of the batch would be repeated without end. So such a statement is refused here, before it is sent.
- DDL ends transactions. Computed columns replace partial indexes.
- There are no notifications. A thread polls with a short indexed query: often after recent work, rarely when idle.
"""

import asyncio
import contextlib
import re
import shlex
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from sqlalchemy import URL, Connection, Engine, Numeric, event, func, select
from sqlalchemy import Dialect as Driver
from sqlalchemy.exc import DBAPIError
from sqlalchemy.types import TypeEngine

from orderbridge.errors import Message, StoreError
from orderbridge.store.dialects import servers
from orderbridge.store.dialects.face import READS, Dialect, Durable, Failover, Violated, inserting

# The driver has no keepalive settings. The read timeout must exceed a schema change.
LIMITS = {"connect_timeout": 5, "read_timeout": 75, "write_timeout": 20}
_HEADER_BYTES = 64  # more than what the protocol puts before a statement
_MAX_CHARACTER = 4  # bytes
BUSY_POLL_S = 0.015
OPEN_POLL_S = 0.055  # with a recently changed order, which will soon be answered
IDLE_POLL_S = 1.1  # keeps the total below 10,000 queries an hour, a provider's limit
BUSY_POLLS = 20_000  # five minutes after a change, because more rows usually follow
STOP_WITHIN_S = 2.0
# Detects new rows and `withdraw`. Sums, because ids may be committed out of order; only the newest rows, because with a
# long queue the outbox is awake anyway.
NEWS = (
    "SELECT (SELECT 1 FROM delivery_orders WHERE ended_utc IS NULL"
    " AND changed_utc > utc_timestamp(3) - INTERVAL 10 MINUTE LIMIT 1), COUNT(*), SUM(id), SUM(withdraw) FROM"
    " (SELECT id, withdraw FROM delivery_actions WHERE state = 'pending' ORDER BY id DESC LIMIT 100) AS newest"
)
TABLE_LOCK = "SET lock_wait_timeout = {}"  # for LOCK TABLES or DDL of other sessions; the default is a day
DDL_LOCK_S = 60  # a schema change waits for the tills' transactions
ASK = "SELECT @@innodb_flush_log_at_trx_commit, @@log_bin, @@sync_binlog"
CONTENTS = (
    "SELECT table_name FROM information_schema.tables WHERE table_schema = database()"
    " UNION ALL SELECT routine_name FROM information_schema.routines WHERE routine_schema = database()"
)
LEAD = "CONCAT('orderbridge ', SHA1(IFNULL(DATABASE(), '')))"  # lock names are global on the server


# ---- connections -----------------------------------------------------------------------------------------------------


def _options(url: URL, _: float) -> dict[str, Any]:
    ours = url.get_driver_name() == "pymysql"
    limits = LIMITS | {"cursorclass": cursor_class()} if ours else {}
    # Overrides the address: another charset would refuse emojis, or turn them into question marks.
    charset = {"charset": "utf8mb4"} if ours else {}
    # A returned session has ended its transaction; no extra ROLLBACK.
    return {**servers.OPTIONS, "pool_reset_on_return": None, "connect_args": servers.limits(url, limits) | charset}


def _prepare(engine: Engine, _: float) -> None:
    servers.prepare_sessions(
        engine,
        f"SET SESSION TRANSACTION ISOLATION LEVEL {servers.OPTIONS['isolation_level']}",
        f"SET innodb_lock_wait_timeout = {servers.LOCK_TIMEOUT_S}",
        TABLE_LOCK.format(servers.LOCK_TIMEOUT_S),
        "SET time_zone = '+00:00'",
        "SET sql_safe_updates = 0, sql_select_limit = DEFAULT, sql_big_selects = 1",
    )
    if engine.dialect.driver == "pymysql":
        event.listen(engine, "connect", _ask_limit)


def _ask_limit(connection: Any, _: Any) -> None:
    """Read the limit for a new connection. A changed setting affects only new connections."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT @@max_allowed_packet")
        connection.max_allowed_packet = cursor.fetchone()[0]


@cache
def cursor_class() -> Any:
    """PyMySQL's cursor with a check of the limit. The driver is imported only when used."""
    from pymysql import DataError  # noqa: PLC0415
    from pymysql.cursors import Cursor  # noqa: PLC0415

    class Measured(Cursor):  # type: ignore[misc]  # the driver has no types
        def __init__(self, connection: Any) -> None:
            super().__init__(connection)
            self._limit = connection.max_allowed_packet - _HEADER_BYTES
            self.max_stmt_length = min(Cursor.max_stmt_length, self._limit)

        def execute(self, query: Any, args: Any = None) -> int:
            statement = self.mogrify(query, args)
            if len(statement) * _MAX_CHARACTER > self._limit and _bytes_of(statement) > self._limit:
                raise DataError(PACKET_TOO_LARGE, "statement exceeds max_allowed_packet")
            return int(super().execute(statement))

    return Measured


def _bytes_of(statement: str | bytes | bytearray) -> int:
    return len(statement.encode("utf-8", "replace") if isinstance(statement, str) else statement)


# ---- errors ----------------------------------------------------------------------------------------------------------
# Error numbers of the server, and parts of texts where a number is not enough.

PACKET_TOO_LARGE = 1153  # the server's own number for it
# All primary keys are named PRIMARY. So our keys are recognized by the value: a generated id, an order's line, an
# attempt.
OWN_ENTRY = re.compile(
    r"Duplicate entry '(0|9223372036854775807|[0-9a-f-]{36}(-\d+)+|\d+-\d+)' for key '(\w+\.)?PRIMARY'"
)
ENTRY_KEY = re.compile(r"Duplicate entry '.*' for key '(?:\w+\.)?(\w+)'", re.DOTALL)
UNFILLED = re.compile(r"(?:field|column) '(\w+)'", re.IGNORECASE)
INTO = re.compile(r"\s*INSERT INTO `?(\w+)")
LAST_NUMBER = 4999  # of the server's own errors; a trigger's SIGNAL may have any MYSQL_ERRNO


def _violated(error: Any, statement: str) -> Violated:
    number, text = (error.args or (0,))[0], str(error)
    if number in {1062, 1586}:
        entry = ENTRY_KEY.search(text)
        if entry is None or (entry[1] == "PRIMARY" and OWN_ENTRY.search(text) is None):
            return Violated()
        return Violated(key=entry[1])
    column, table = UNFILLED.search(text), INTO.match(statement)
    if number in {167, 1048, 1264, 1364} and column is not None and table is not None:
        return Violated(unfilled=f"{table[1]}.{column[1]}")
    return Violated()


def _signalled(error: Any) -> bool:
    """Whether a trigger's SIGNAL set the number. Numbers above 15 bits arrive as negative ones."""
    number = error.args[0] if error.args else 0
    return isinstance(number, int) and not 0 <= number <= LAST_NUMBER


# ---- promises --------------------------------------------------------------------------------------------------------


def _durability(connection: Connection) -> Durable:
    flush, log_bin, sync = connection.exec_driver_sql(ASK).one()
    if flush not in {1, 3}:  # 3 is stricter, and only in MariaDB
        return Durable(Message("database.flush"))
    return Durable(Message("database.binlog") if flush == 1 and log_bin and sync != 1 else None)


def _failover(connection: Connection) -> Failover | None:
    values = dict(
        tuple(row)
        for question in ("VARIABLES LIKE 'wsrep_on'", "STATUS LIKE 'Rpl_semi_sync_%'", "STATUS LIKE 'Slaves_connected'")
        for row in connection.exec_driver_sql(f"SHOW GLOBAL {question.replace('%', '%%')}")
    )
    if values.get("wsrep_on") == "ON":
        return Failover(is_safe=True, message=Message("failover.galera"))
    waits = [
        name for name, value in values.items() if name.endswith(("master_status", "source_status")) and value == "ON"
    ]
    if waits:
        return Failover(is_safe=True, message=Message("failover.semi_synchronous"))
    replicas = int(values.get("Slaves_connected", 0))
    if not replicas:
        return None
    return Failover(is_safe=False, message=Message("failover.replicas", count=replicas))


# ---- other sessions --------------------------------------------------------------------------------------------------


def _skips_locks(driver: Driver) -> bool:
    version = driver.server_version_info or (0,)
    return version >= ((10, 6) if getattr(driver, "is_mariadb", False) else (8,))


@contextmanager
def _schema_lock(connection: Connection, _: str) -> Iterator[bool]:
    name = func.concat("orderbridge schema ", func.sha1(func.database()))  # 64 characters at most
    taken = connection.scalar(select(func.get_lock(name, 0)))
    if taken is None:
        raise StoreError("schema.no_lock")
    if not taken:
        yield False
        return
    try:
        connection.exec_driver_sql(TABLE_LOCK.format(DDL_LOCK_S))
        yield True
        # Commit before the lock is released; the DDL has ended the transaction anyway.
        connection.exec_driver_sql("COMMIT")
    finally:
        connection.exec_driver_sql(TABLE_LOCK.format(servers.LOCK_TIMEOUT_S))
        connection.execute(select(func.release_lock(name)))


async def _watch(engine: Engine, wake: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()
    stop = threading.Event()
    thread = threading.Thread(
        target=_poll, args=(engine, lambda: loop.call_soon_threadsafe(wake), stop), name="db-watch", daemon=True
    )
    thread.start()
    try:
        await asyncio.Event().wait()
    finally:
        stop.set()
        thread.join(STOP_WITHIN_S)


def _poll(engine: Engine, wake: Callable[[], object], stop: threading.Event) -> None:
    losses = servers.Losses("wake.looking_again")
    while not stop.is_set():
        try:
            with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                losses.recovered()
                try:
                    _poll_on(connection.connection.cursor(), wake, stop)
                except engine.dialect.loaded_dbapi.Error:
                    connection.invalidate()  # else the pool would try to reset it, and log the failure
                    raise
        except (DBAPIError, engine.dialect.loaded_dbapi.Error) as error:
            stop.wait(losses.lost(error))


def _poll_on(cursor: Any, wake: Callable[[], object], stop: threading.Event) -> None:
    seen: object = None
    busy = 0
    while not stop.is_set():
        cursor.execute(NEWS)
        is_open, *found = cursor.fetchone()
        if found != seen:
            seen, busy = found, 0 if seen is None else BUSY_POLLS
            with contextlib.suppress(RuntimeError):  # the event loop is closed at the end
                wake()
        busy = max(busy - 1, 0)
        stop.wait(BUSY_POLL_S if busy else OPEN_POLL_S if is_open else IDLE_POLL_S)


def _worker(connection: Connection) -> str | None:
    """The daemon's user and host. The process would need the performance schema."""
    number = connection.exec_driver_sql(f"SELECT IS_USED_LOCK({LEAD})").scalar()
    if number is None:
        return None
    ask = "SELECT host, user FROM information_schema.processlist WHERE id = %s"
    host, user = connection.exec_driver_sql(ask, (number,)).first() or ("?", "?")
    return f"{user}@{host}, connection {number}"


def _grantee(role: str, place: str | None) -> tuple[str, str, tuple[str, ...]]:
    """`name` is a role, or a user on any host; `name@host` is a user."""
    name, at, host = role.rpartition("@")
    who = f"{servers.quoted(name, '`')}@{servers.quoted(host, '`')}" if at else servers.quoted(role, "`")
    return who, f"{servers.quoted(place, '`')}." if place else "", ()


# ---- columns and tables ----------------------------------------------------------------------------------------------


def _time() -> TypeEngine[Any]:
    from sqlalchemy.dialects.mysql import DATETIME  # noqa: PLC0415 - a dialect's own types cost a tenth of a start

    return DATETIME(fsp=3)


def _text(length: int | None) -> TypeEngine[Any]:
    from sqlalchemy.dialects.mysql import LONGTEXT, VARCHAR  # noqa: PLC0415 - as above

    return LONGTEXT() if length is None else VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")


def _computed(table: str, columns: Mapping[str, str]) -> tuple[str, ...]:
    added = ", ".join(
        f"ADD COLUMN {name} {'DATETIME(3)' if name.endswith('_utc') else 'SMALLINT'}"
        f" GENERATED ALWAYS AS ({expression}) STORED INVISIBLE"
        for name, expression in columns.items()
    )
    return (f"ALTER TABLE {table} {added}",)


def _dump(url: URL, file: str, tables: Sequence[str]) -> tuple[str, str]:
    """Commands with all table names, because mariadb-dump knows no patterns. It asks for the password."""
    query = url.query
    parts = {"socket": query.get("unix_socket"), "host": url.host, "port": url.port, "user": url.username}
    given = [shlex.quote(f"--{name}={value}") for name, value in parts.items() if value]
    at = " ".join([*given, *(["--password"] if url.password else [])])
    database, name = shlex.quote(url.database or ""), shlex.quote(file)
    how = "--single-transaction --hex-blob --default-character-set=utf8mb4"
    return (
        f"mariadb-dump {at} {how} --result-file={name} {database} {' '.join(tables)}",
        f"mariadb {at} --default-character-set=utf8mb4 {database} < {name}",
    )


DIALECT = Dialect(
    one_writer=False,
    options=_options,
    prepare=_prepare,
    # After a deadlock within a savepoint, the error names only the missing savepoint.
    busy=frozenset({1205, 1213, "SAVEPOINT sa_savepoint"}),
    refused=frozenset(
        {
            *(1642, 1643, 1644, 1645, 4025, 3819),  # a trigger's own error; a CHECK of MariaDB, of MySQL
            *(167, 1136, 1364, 1292, 1301, 1365, 1369, 1411, 1690),  # a value: none, of another type, out of range
            *(1172, 1242, 1329, 1339),  # in a trigger: a query of one row that has none or several, CASE
            *(1422, 1424, 1442, 1456),  # in a trigger: COMMIT, recursion, a change of the table itself
            *(1118, 1526, 1557, 1713, 1748, 1761, 1762, 1859),  # a row's size, partition, or foreign key
            *(3140, 3141, 3143, 3156, 4038),  # JSON
        }
    ),
    refuses=_signalled,
    ours=frozenset({1467}),  # no id is left
    violated=_violated,
    full=frozenset({28, 1021, 1114, "No space left"}),
    read_only=frozenset({1036, 1290, 1836, 3100}),
    broken=frozenset({1054, 1146, 1305}),
    denied=frozenset({1044, 1045, 1142, 1227, 1698, 1820, 1862, 3118, 4151}),  # also: expired, locked
    remedies={
        PACKET_TOO_LARGE: "database.too_large",
        1049: "database.none_there",
        **dict.fromkeys((1021, 1114), "database.server_full"),
        1040: "database.too_many",
        **dict.fromkeys((1203, 1226), "database.user_limit"),
        **dict.fromkeys((1969, 3024), "database.time_limit"),
        "read-only": "database.standby",
    },
    durability=_durability,
    failover=_failover,
    skips_locks=_skips_locks,
    worker=_worker,
    asks_little=True,
    snapshot={**READS, "isolation_level": "REPEATABLE READ"},
    lead=lambda connection: connection.exec_driver_sql(f"SELECT GET_LOCK({LEAD}, 0)").scalar() == 1,
    schema_lock=_schema_lock,
    watch=_watch,
    grantee=_grantee,
    make_role="CREATE USER {name} IDENTIFIED BY '{password}'",
    drop_role=("DROP USER {name}",),
    contents=CONTENTS,
    time=_time,
    whole=lambda digits: Numeric(digits + 2, 2),
    text=_text,
    utc_now="utc_timestamp(3)",
    random_id="uuid()",
    insert_many=lambda _, table, columns: inserting("%s", table, columns),
    # Overrides the server's defaults: joining two collations is an error.
    table_options={"charset": "utf8mb4", "collate": "utf8mb4_bin", "engine": "InnoDB"},
    # BINARY, because a comparison ignores trailing spaces.
    is_one_of=lambda column, words: f"CAST({column} AS BINARY) IN ({', '.join(map(repr, words))})",
    is_filled=lambda column, most: f"char_length({column}) BETWEEN 1 AND {most}",
    is_whole=servers.is_whole,
    is_uuid=lambda column: f"{column} IS NULL OR {column} REGEXP '{servers.UUID_PATTERN}'",
    partial_indexes=False,
    computed=_computed,
    view="SQL SECURITY INVOKER VIEW",
    dump=_dump,
)
