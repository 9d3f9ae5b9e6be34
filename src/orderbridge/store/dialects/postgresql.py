"""The dialect for PostgreSQL, with psycopg.

A trigger notifies once for each statement, and a separate connection listens.
"""

import asyncio
import contextlib
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sqlalchemy import URL, Connection, Engine, Numeric, func, select
from sqlalchemy.types import TypeEngine

from orderbridge.errors import Message, Unusable
from orderbridge.store.dialects import postgresql_sessions, servers
from orderbridge.store.dialects.face import READS, Dialect, Durable, Failover, Violated, readable

WAITS = {"on", "remote_apply"}
LEAD = int.from_bytes(b"orderbrg", "big")  # the number of the leader lock, in each database
ASK = (
    "SELECT current_setting('fsync'), current_setting('synchronous_commit'),"
    # A trigger of the POS, or a pooler, may have changed our session's setting; set it again.
    " set_config('synchronous_commit', 'on', false)"
)
# The session that holds one of our locks; its application_name has the host and process.
WORKER = (
    "SELECT application_name FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    " AND application_name LIKE 'orderbridge %%' AND pid IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory')"
)
MAY_MAKE = (
    "SELECT current_schema(), has_schema_privilege(current_schema(), 'CREATE'), current_setting('search_path'),"
    " current_user"
)
SCHEMA_NAME = re.compile(r'"((?:[^"]|"")+)"|([^", ]+)')  # in search_path: quoted or not
SEQUENCE = (
    "SELECT setval(sequence, greatest(top, 1)) FROM (SELECT pg_get_serial_sequence('{0}', 'id')::regclass AS sequence,"
    " (SELECT coalesce(max(id), 0) FROM {0}) AS top) AS found"
    " WHERE coalesce(pg_sequence_last_value(sequence), 0) NOT BETWEEN top AND 9223372036854775806"
)
CONTENTS = (
    "SELECT name FROM (SELECT relname AS name, relnamespace AS place FROM pg_class"
    " UNION ALL SELECT proname, pronamespace FROM pg_proc) AS found JOIN pg_namespace ON pg_namespace.oid = place"
    " WHERE nspname !~ '^pg_' AND nspname <> 'information_schema' ORDER BY name"
)
POOLED = "statement pooling mode"  # PgBouncer's error text
TRIGGER_RAISED = " at RAISE"  # in the context of an error from a trigger's RAISE, which may have any code


# ---- connections -----------------------------------------------------------------------------------------------------


def _check(connection: Connection) -> None:
    encoding = connection.exec_driver_sql("SHOW server_encoding").scalar()
    if encoding != "UTF8":
        raise Unusable("database.encoding", encoding=encoding)


def _lacks(connection: Connection) -> tuple[str, str] | None:
    """The missing right to create tables. A schema without USAGE appears as missing."""
    schema, may, path, user = connection.exec_driver_sql(MAY_MAKE).one()
    if may:
        return None
    quote = connection.dialect.identifier_preparer.quote
    named = [quoted.replace('""', '"') or bare for quoted, bare in SCHEMA_NAME.findall(path)]
    where = quote(schema or next((name for name in named if name and name != "$user"), "public"))
    rights = "CREATE" if schema else "USAGE, CREATE"
    return f"{rights} on schema {where}", f"GRANT USAGE, CREATE ON SCHEMA {where} TO {quote(user)};"


# ---- errors ----------------------------------------------------------------------------------------------------------
# SQLSTATEs, their classes (two characters), and parts of texts where psycopg has no code.


def _violated(error: Any, _: str) -> Violated:
    diagnosis: Any = getattr(error, "diag", None)
    state = getattr(error, "sqlstate", None)
    if state == "23505":
        return Violated(key=diagnosis.constraint_name)
    if state == "23502":
        return Violated(unfilled=f"{diagnosis.table_name}.{diagnosis.column_name}")
    return Violated()


def _raised(error: Any) -> bool:
    """Whether a function's RAISE caused the error."""
    return TRIGGER_RAISED in (getattr(getattr(error, "diag", None), "context", None) or "")


# ---- promises --------------------------------------------------------------------------------------------------------


def _durability(connection: Connection) -> Durable:
    fsync, waits, _ = connection.exec_driver_sql(ASK).one()
    return Durable(
        Message("database.fsync") if fsync == "off" else None,
        None if waits in WAITS else Message("database.session", value=waits),
    )


def _failover(connection: Connection) -> Failover | None:
    standbys = connection.exec_driver_sql("SELECT sync_state FROM pg_stat_replication").scalars().all()
    names = connection.exec_driver_sql("SHOW synchronous_standby_names").scalar()
    if None in standbys:  # the state is visible only to pg_monitor
        return Failover(is_safe=False, message=Message("failover.unseen", count=len(standbys), user=_user(connection)))
    if names and not {"async", "potential"}.issuperset(standbys):
        return Failover(is_safe=True, message=Message("failover.synchronous", names=names))
    if names:
        return Failover(is_safe=False, message=Message("failover.none_connected", names=names))
    if standbys:
        return Failover(is_safe=False, message=Message("failover.standbys", count=len(standbys)))
    if postgresql_sessions.has_several(connection.engine.url):
        return Failover(is_safe=False, message=Message("failover.alone"))
    return None


def _user(connection: Connection) -> str:
    user = connection.exec_driver_sql("SELECT current_user").scalar() or ""
    return connection.dialect.identifier_preparer.quote(user)


# ---- other sessions --------------------------------------------------------------------------------------------------


@contextmanager
def _schema_lock(connection: Connection, name: str) -> Iterator[bool]:
    """A lock until the end of the transaction."""
    yield bool(connection.scalar(select(func.pg_try_advisory_xact_lock(func.hashtext(name)))))


def _worker(connection: Connection) -> str | None:
    found = connection.exec_driver_sql(WORKER).first()
    return None if found is None else f"{found[0].removeprefix('orderbridge ').replace(' ', ', PID ')}"


def _grantee(role: str, place: str | None) -> tuple[str, str, tuple[str, ...]]:
    who, where = servers.quoted(role, '"'), servers.quoted(place or "public", '"')
    return who, f"{where}.", (f"GRANT USAGE ON SCHEMA {where} TO {who};",)


# ---- listening for a POS's commits -----------------------------------------------------------------------------------
# If a server hangs, or the network is cut silently, a running statement would wait for hours, or without end. So the
# listening session sends a query every few seconds. Without an answer, all our sessions that wait for this server are
# closed: their work fails, and new sessions are made on the server of the address that then accepts writes.
#
# A transaction with a NOTIFY cannot be prepared for two-phase commit. A POS that uses it may disable our trigger; then
# the listening session polls with a short indexed query.

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from psycopg.pq.abc import PGconn

CHANNEL = "delivery_actions"
LISTEN_CHECK_S = 3.0  # between two checks
ANSWER_WITHIN_S = 5.0
POLL_S = 0.1  # without the trigger
LISTENS = (
    "SELECT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = to_regclass('delivery_actions')"
    " AND tgname = 'delivery_actions_wake' AND tgenabled <> 'D')"
)
NEWS = (
    f"{LISTENS}, count(*), sum(id), sum(withdraw) FROM"  # noqa: S608 - constants
    " (SELECT id, withdraw FROM delivery_actions WHERE state IN ('pending', 'sending')"
    " ORDER BY id DESC LIMIT 100) AS newest"
)
QUESTIONS = 2  # waits in two steps, so that a stalled event loop is not taken for a silent server


async def _watch(engine: Engine, wake: Callable[[], None]) -> None:
    """Call `wake` after each commit with a notification."""
    import psycopg  # noqa: PLC0415 - only with this database

    losses = servers.Losses("wake.listening_again")
    while True:
        try:
            arguments, options = engine.dialect.create_connect_args(engine.url)
            limits = postgresql_sessions.limits(engine.url)
            options = postgresql_sessions.arranged({**limits, **options, "autocommit": True})
            async with await _connected(psycopg, arguments, options) as connection:
                connection.add_notify_handler(lambda _: wake())  # for notifications that arrive with an answer
                await connection.execute(f"SET lock_timeout = '{servers.LOCK_TIMEOUT_S}s'")
                await connection.execute(f"LISTEN {CHANNEL}")
                losses.recovered()
                wake()  # for earlier commits
                if not await _listen(connection, wake):
                    postgresql_sessions.note_server(options, None)
                    servers.end_silent(engine, connection)
                    raise TimeoutError
        except (psycopg.Error, OSError) as error:
            wait = losses.lost(error)
        await asyncio.sleep(wait)


async def _listen(connection: "AsyncConnection[Any]", wake: Callable[[], None]) -> bool:
    """Call `wake` for notifications until the server stops answering. Raises psycopg.Error if the session ends."""
    listens, seen = True, None
    while True:
        # The driver's own wait would wake up ten times a second.
        if await readable(connection.fileno(), LISTEN_CHECK_S if listens else POLL_S):
            _read_notifications(connection.pgconn, wake)
            continue
        answer = await _answer(connection, LISTENS if listens else NEWS)
        if answer is None:
            return False
        listens, *found = answer
        if found and found != seen:
            seen = found
            wake()


async def _connected(driver: Any, arguments: Any, options: Mapping[str, Any]) -> "AsyncConnection[Any]":
    try:
        connection: AsyncConnection[Any] = await driver.AsyncConnection.connect(*arguments, **options)
    except driver.Error:
        postgresql_sessions.note_server(options, None)
        raise
    postgresql_sessions.note_server(options, connection)
    return connection


def _read_notifications(session: "PGconn", wake: Callable[[], None]) -> None:
    """Read notifications and call `wake`. Raises psycopg.Error if the session has ended."""
    session.consume_input()
    while session.notifies() is not None:
        wake()


async def _answer(connection: "AsyncConnection[Any]", question: str) -> Sequence[Any] | None:
    """The row of a query; None if the server does not answer in time. Raises psycopg.Error if the session has ended."""
    asked = asyncio.create_task(connection.execute(question))
    try:
        for _ in range(QUESTIONS):
            await asyncio.wait([asked], timeout=ANSWER_WITHIN_S / QUESTIONS)
            if asked.done():
                return await asked.result().fetchone()
    finally:
        if not asked.done():  # cancelling the statement would take as long again
            servers.disconnect(connection)
            with contextlib.suppress(Exception):
                await asked
    return None


# ---- columns and tables ----------------------------------------------------------------------------------------------


def _time() -> TypeEngine[Any]:
    from sqlalchemy.dialects.postgresql import TIMESTAMP  # noqa: PLC0415 - it loads the driver's dialect

    return TIMESTAMP(timezone=False, precision=3)


def _is_uuid(column: str) -> str:
    return f"{column} IS NULL OR {column} ~ '{servers.UUID_PATTERN}'"


def _notify_changes(table: str, column: str) -> tuple[str, ...]:
    """A trigger that notifies once for each statement."""
    body = f"$$BEGIN PERFORM pg_notify('{CHANNEL}', ''); RETURN NULL; END$$"
    when = f"AFTER INSERT OR UPDATE OF {column} ON {table} FOR EACH STATEMENT"
    return (
        f"CREATE FUNCTION delivery_wake() RETURNS trigger LANGUAGE plpgsql AS {body}",
        f"CREATE TRIGGER {table}_wake {when} EXECUTE FUNCTION delivery_wake()",
    )


def _dump(url: URL, file: str, _: Sequence[str]) -> tuple[str, str]:
    """Commands without the trigger's function, which `db upgrade` creates."""
    query = postgresql_sessions.hosts_of(url) | {
        name: str(url.query[name]) for name in ("sslmode", "sslrootcert") if name in url.query
    }
    query |= postgresql_sessions.PRIMARY if postgresql_sessions.has_several(url) else {}
    address = URL.create("postgresql", url.username, database=url.database, query=query)
    place = shlex.quote(f"--dbname={address.render_as_string()}")
    name = shlex.quote(file)
    return (
        f"pg_dump {place} --format=custom --table='delivery_*' --file={name}",
        f"orderbridge db upgrade && pg_restore {place} --clean --if-exists --no-owner --single-transaction {name}",
    )


DIALECT = Dialect(
    one_writer=False,
    # In READ COMMITTED each statement has its own snapshot anyway, so that BEGIN and COMMIT would be wasted round
    # trips.
    reads={**READS, "isolation_level": "AUTOCOMMIT"},
    snapshot={**READS, "isolation_level": "REPEATABLE READ"},
    options=postgresql_sessions.options,
    prepare=postgresql_sessions.prepare,
    check=_check,
    lacks=_lacks,
    busy=frozenset({"55P03", "40P01", "40001"}),
    # Classes: CASE without a match, a query of one row that has several, an external routine, a broken trigger's
    # protocol, WITH CHECK OPTION, limits of one row (an index entry that is too long), PL/pgSQL.
    refused=frozenset({"20", "21", "27", "2D", "2F", "38", "39", "40002", "44", "54", "P0"}),
    refuses=_raised,
    ours=frozenset({"2200H", "NOTIFY queue"}),  # a sequence at its end; the server's queue is full
    violated=_violated,
    full=frozenset({"53100", "No space left"}),
    read_only=frozenset({"25006"}),
    broken=frozenset({"42P01", "42703", "42883"}),
    # psycopg has no SQLSTATE for a refused connection, only the server's text.
    denied=frozenset(
        {
            "42501",
            "3F000",
            "28P01",
            "28000",
            "password authentication failed",
            'FATAL:  role "',
            "no pg_hba.conf entry",
            POOLED,
        }
    ),
    remedies={
        "3D000": "database.none_there",
        'FATAL:  database "': "database.none_there",
        "26000": "database.pooled",  # a prepared statement is missing or exists already, in another session
        "42P05": "database.pooled",
        POOLED: "database.pooled",
        "53100": "database.server_full",
        "too many connections for": "database.user_limit",
        **dict.fromkeys(("57014", "25P03"), "database.time_limit"),
        "53300": "database.too_many",
        "too many clients": "database.too_many",
        "connection slots are reserved": "database.too_many",
        postgresql_sessions.UNCONFIRMED: "database.unconfirmed",
        "read-only": "database.standby",
    },
    durability=_durability,
    unsafe_is_refused=True,
    checks_by_name=True,
    failover=_failover,
    skips_locks=lambda _: True,
    worker=_worker,
    lead=lambda connection: bool(connection.exec_driver_sql(f"SELECT pg_try_advisory_lock({LEAD})").scalar()),
    schema_lock=_schema_lock,
    watch=_watch,
    pooled=postgresql_sessions.is_pooled,
    grantee=_grantee,
    make_role="CREATE ROLE {name} LOGIN PASSWORD '{password}'",
    drop_role=("GRANT {name} TO CURRENT_USER", "DROP OWNED BY {name}", "DROP ROLE {name}"),
    contents=CONTENTS,
    arrays=True,
    sequence=SEQUENCE,
    schema_query="SELECT current_schema()",
    dump=_dump,
    time=_time,
    whole=lambda _: Numeric(),  # keeps what is written, so that the CHECK sees it
    utc_now="timezone('utc', clock_timestamp())",
    random_id="CAST(gen_random_uuid() AS VARCHAR)",
    insert_many=postgresql_sessions.insert_many,
    is_whole=servers.is_whole,
    is_uuid=_is_uuid,
    partial_indexes=True,
    notify_changes=_notify_changes,
)
