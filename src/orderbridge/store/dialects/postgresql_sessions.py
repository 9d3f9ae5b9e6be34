"""Makes sessions on PostgreSQL, chooses among several servers, and detects unconfirmed commits and poolers.

If an address has several servers, the driver tries them in order for each session, and waits some seconds for a server
that does not answer. After a failover this is the first one, and a replica has less time than that to check its locks.
So a session first tries the server that accepted the last one.
"""

import os
import socket
import threading
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any
from weakref import WeakSet, ref

from sqlalchemy import URL, Connection, Engine, ExceptionContext, NullPool, create_engine, event
from sqlalchemy import Dialect as Driver

from orderbridge.store.dialects import servers

# A server that disappears (power, cable, firewall) is noticed within half a minute instead of hours.
LIMITS = {
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
PRIMARY = {"target_session_attrs": "read-write"}  # the server that accepts writes
SEVERAL = {**PRIMARY, "connect_timeout": 3}  # a short wait for a server that does not answer
UNCONFIRMED = "SyncRepWaitForLSN"  # the server's function that warns; the text would depend on its language

Server = tuple[str, str]  # host, port

_guard = threading.Lock()
_first: dict[frozenset[Server], Server] = {}  # the server to try first, for each set of servers


def limits(url: URL) -> dict[str, Any]:
    if url.get_driver_name() != "psycopg":
        return {}
    return servers.limits(url, LIMITS | (SEVERAL if has_several(url) else {}))


def hosts_of(url: URL) -> dict[str, str]:
    """`host` and `port` of the address, with commas if there are several servers."""
    _, arguments = url.get_dialect()().create_connect_args(url)
    return {name: str(arguments[name]) for name in ("host", "port") if str(arguments.get(name, "")).strip(",")}


def has_several(url: URL) -> bool:
    return "," in hosts_of(url).get("host", "")


def options(url: URL, _: float) -> dict[str, Any]:
    if url.get_driver_name() != "psycopg":
        return {**servers.OPTIONS, "connect_args": {}}
    # The name shows a technician the process.
    named = servers.limits(url, {"application_name": f"orderbridge {socket.gethostname()[:40]} {os.getpid()}"})
    # Overrides the address, the environment and the database: in another encoding an emoji would fail a whole poll.
    return {**servers.OPTIONS, "connect_args": limits(url) | named | {"client_encoding": "utf8"}}


def prepare(engine: Engine, _: float) -> None:
    servers.prepare_sessions(engine, "SET synchronous_commit = on", f"SET lock_timeout = '{servers.LOCK_TIMEOUT_S}s'")
    if engine.dialect.driver == "psycopg":
        event.listen(engine, "connect", _read_every_time)
        event.listen(engine, "do_executemany", _copy)
        _refuse_unconfirmed(engine)
        prefer_last_server(engine)
    event.listen(engine, "handle_error", _without_values)


def _read_every_time(connection: Any, _: Any) -> None:
    """Read times that Python lacks, like infinity, as None. The driver would fail for the whole result."""
    from psycopg import DataError as NoTime  # noqa: PLC0415 - a driver is imported where it is used
    from psycopg.types.datetime import TimestampLoader  # noqa: PLC0415

    class Lenient(TimestampLoader):
        def load(self, data: Any) -> Any:
            try:
                return datetime.fromisoformat(str(data, "ascii"))  # nearly always
            except ValueError:
                pass
            try:
                return super().load(data)
            except NoTime:
                return None

    connection.adapters.register_loader("timestamp", Lenient)


def insert_many(driver: Driver, table: str, columns: Sequence[str]) -> str | None:
    """COPY, which takes a fifth of the time of INSERTs, but counts rows and fires triggers like them."""
    return f"COPY {table} ({', '.join(columns)}) FROM STDIN" if driver.driver == "psycopg" else None


def _copy(cursor: Any, statement: str, rows: Iterable[Sequence[Any]], _: Any) -> bool:
    """Execute a COPY. Returns False for any other statement."""
    if not statement.startswith("COPY "):
        return False
    with cursor.copy(statement) as copy:
        for row in rows:
            copy.write_row(row)
    return True


def _without_values(context: ExceptionContext) -> None:
    """Remove the DETAIL from an error, because it quotes the row, and errors are logged."""
    original = context.original_exception
    primary = getattr(getattr(original, "diag", None), "message_primary", None)
    if primary and context.sqlalchemy_exception is not None:
        original.args = (primary,)
        context.sqlalchemy_exception.args = (f"({type(original).__name__}) {primary}",)


# ---- unconfirmed commits ---------------------------------------------------------------------------------------------
# If a COMMIT that waits for a synchronous standby is cancelled (by an operator or statement_timeout), the server only
# warns and reports success. A failover would lose its data, so it counts as failed here, and nothing is acknowledged.
# Later commits wait for the standby again, which receives all changes in order.


def _refuse_unconfirmed(engine: Engine) -> None:
    """Make an unconfirmed commit raise psycopg's OperationalError."""
    unconfirmed: WeakSet[Any] = WeakSet()
    commit = engine.dialect.do_commit

    def listen(connection: Any, _: Any) -> None:
        connection.add_notice_handler(partial(_notice, ref(connection), unconfirmed))

    def do_commit(connection: Any) -> None:
        commit(connection)
        session = connection.driver_connection
        if session in unconfirmed:
            unconfirmed.discard(session)
            raise engine.dialect.loaded_dbapi.OperationalError(UNCONFIRMED)

    event.listen(engine, "connect", listen)
    setattr(engine.dialect, "do_commit", do_commit)  # noqa: B010 - of this engine alone


def _notice(session: "ref[Any]", unconfirmed: "WeakSet[Any]", diagnostic: Any) -> None:
    if diagnostic.source_function == UNCONFIRMED and (connection := session()) is not None:
        unconfirmed.add(connection)


# ---- several servers -------------------------------------------------------------------------------------------------


def arranged(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The driver's arguments, with the servers in the order to try them."""
    servers = _servers(arguments)
    if not servers:
        return dict(arguments)
    with _guard:
        first = _first.get(frozenset(servers), servers[0])
    place = servers.index(first)
    hosts, ports = zip(*servers[place:], *servers[:place], strict=True)
    return {**arguments, "host": ",".join(hosts), "port": ",".join(ports)}


def note_server(arguments: Mapping[str, Any], session: Any) -> None:
    """Note the server of this session.

    None: no session was made in time, so the next one tries another server first.
    """
    servers = _servers(arguments)
    if servers:
        found = servers[1] if session is None else (session.info.host, str(session.info.port))
        with _guard:
            _first[frozenset(servers)] = found if found in servers else servers[0]


def _servers(arguments: Mapping[str, Any]) -> list[Server]:
    """The servers; empty if there is only one, or if `hostaddr` is given, which would have to be reordered, too."""
    hosts = str(arguments.get("host", "")).split(",")
    ports = str(arguments.get("port", "")).split(",")
    if len(hosts) == 1 or "hostaddr" in arguments:
        return []
    ports = ports * len(hosts) if len(ports) == 1 else ports
    return [(host, port or "5432") for host, port in zip(hosts, ports, strict=True)]


def prefer_last_server(engine: Engine) -> None:
    """Make each session of the engine try the last server first, if the address names several."""
    if not _servers(engine.dialect.create_connect_args(engine.url)[1]):
        return

    def connect(dialect: Any, _: Any, positional: Any, arguments: dict[str, Any]) -> Any:
        named = arranged(arguments)
        try:
            session = dialect.connect(*positional, **named)
        except dialect.loaded_dbapi.Error:
            note_server(named, None)
            raise
        note_server(named, session)
        return session

    event.listen(engine, "do_connect", connect)


# ---- poolers ---------------------------------------------------------------------------------------------------------


ROUNDS = 8  # a busy pooler hides it in one round of ten


def is_pooled(url: URL, options: Mapping[str, Any]) -> bool:
    """Whether the address leads to a pooler that shares sessions. `options`: for create_engine."""
    if url.get_driver_name() != "psycopg":
        return False
    engine = lasting_sessions(url, options)
    with engine.connect() as connection:
        return changes_process(connection, engine)


def lasting_sessions(url: URL, options: Mapping[str, Any], **limits: Any) -> Engine:
    """An engine with autocommit and without prepared statements, which poolers refuse. `limits`: for psycopg."""
    arguments = {**options["connect_args"], "prepare_threshold": None, **limits}
    given = {**options, "isolation_level": "AUTOCOMMIT", "connect_args": arguments}
    engine = create_engine(url, hide_parameters=True, poolclass=NullPool, **given)
    prefer_last_server(engine)
    return engine


def changes_process(connection: Connection, engine: Engine) -> bool:
    """Whether two sessions share a server process, or change it while one is in a transaction."""
    with engine.connect() as other:
        before = process_of(connection), process_of(other)
        return before[0] == before[1] or any(_changes(connection, other, before) for _ in range(ROUNDS))


def process_of(connection: Connection) -> int:
    """The number of the server process that answers."""
    return int(connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one())


def _changes(connection: Connection, other: Connection, before: tuple[int, int]) -> bool:
    other.exec_driver_sql("BEGIN")
    within = process_of(connection), process_of(other)
    other.exec_driver_sql("ROLLBACK")
    return within != before or process_of(other) != before[1]
