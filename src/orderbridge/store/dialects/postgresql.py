"""PostgreSQL, by psycopg.

A trigger of ours notifies, once for each statement, and a connection of our own listens.
"""

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from sqlalchemy import URL, Connection, Engine, ExceptionContext, Numeric, String, UnicodeText, event, func, select
from sqlalchemy import Dialect as Driver
from sqlalchemy.types import TypeEngine

from orderbridge.errors import Unusable
from orderbridge.store.dialects import (
    postgresql_commit,
    postgresql_errors,
    postgresql_fleet,
    postgresql_hosts,
    postgresql_watch,
    servers,
)
from orderbridge.store.dialects.face import (
    READS,
    Dialect,
    Durable,
    Failover,
    Granting,
)
from orderbridge.texts import say

# A server that vanishes without a word (power, cable, firewall) is noticed within half a minute, not within hours.
LIMITS = {
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
PRIMARY = {"target_session_attrs": "read-write"}  # of several servers the one that takes writes
SEVERAL = {**PRIMARY, "connect_timeout": 3}  # one that says nothing is passed over, by each new session
WAITS = {"on", "remote_apply"}
LEAD = f"SELECT pg_try_advisory_lock({postgresql_fleet.LEAD})"
ASK = (
    "SELECT current_setting('fsync'), current_setting('synchronous_commit'),"
    # A trigger of the POS, or a pooler, may have undone what our session said: it is said anew for this transaction.
    " set_config('synchronous_commit', 'on', false)"
)
# Who holds one of our locks: sessions say of themselves who they are.
WORKER = (
    "SELECT application_name FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    " AND application_name LIKE 'orderbridge %%' AND pid IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory')"
)
MAY_MAKE = (
    "SELECT current_schema(), has_schema_privilege(current_schema(), 'CREATE'), current_setting('search_path'),"
    " current_user"
)
SEQUENCE = (
    "SELECT setval(sequence, greatest(top, 1)) FROM (SELECT pg_get_serial_sequence('{0}', 'id')::regclass AS sequence,"
    " (SELECT coalesce(max(id), 0) FROM {0}) AS top) AS found"
    " WHERE coalesce(pg_sequence_last_value(sequence), 0) NOT BETWEEN top AND 9223372036854775806"
)
FSYNC = "database.fsync"
SESSION = "database.session"


# ---- connections -----------------------------------------------------------------------------------------------------


def _limits(url: URL) -> dict[str, Any]:
    if url.get_driver_name() != "psycopg":
        return {}
    return servers.limits(url, LIMITS | (SEVERAL if _has_several(url) else {}))


def _servers(url: URL) -> dict[str, str]:
    """`host` and `port`, of several servers with commas, in whichever form the address names them."""
    _, arguments = url.get_dialect()().create_connect_args(url)
    return {name: str(arguments[name]) for name in ("host", "port") if str(arguments.get(name, "")).strip(",")}


def _has_several(url: URL) -> bool:
    return "," in _servers(url).get("host", "")


def _options(url: URL, _: float) -> dict[str, Any]:
    if url.get_driver_name() != "psycopg":
        return {**servers.OPTIONS, "connect_args": {}}
    named = servers.limits(url, {"application_name": servers.our_name()})
    # Whatever the address, the environment or the database itself says: in another encoding one emoji stops a whole poll.
    return {**servers.OPTIONS, "connect_args": _limits(url) | named | {"client_encoding": "utf8"}}


def _prepare(engine: Engine, _: float) -> None:
    servers.prepare_sessions(engine, "SET synchronous_commit = on", f"SET lock_timeout = '{servers.LOCK_TIMEOUT_S}s'")
    if engine.dialect.driver == "psycopg":
        event.listen(engine, "connect", _read_every_time)
        event.listen(engine, "do_executemany", _copy)
        postgresql_commit.refuse_unconfirmed(engine)
        postgresql_hosts.begin_with_the_last(engine)
    event.listen(engine, "handle_error", _without_values)


def _read_every_time(connection: Any, _: Any) -> None:
    """The server keeps times that Python has not, like infinity; the driver would give up the whole page for one."""
    from psycopg import DataError as NoTime  # noqa: PLC0415 - a driver is imported where it is used
    from psycopg.types.datetime import TimestampLoader  # noqa: PLC0415

    class Lenient(TimestampLoader):
        def load(self, data: Any) -> Any:
            try:
                return datetime.fromisoformat(str(data, "ascii"))  # as nearly all are
            except ValueError:
                pass
            try:
                return super().load(data)
            except NoTime:
                return None

    connection.adapters.register_loader("timestamp", Lenient)


def _insert_many(driver: Driver, table: str, columns: Sequence[str]) -> str | None:
    """It takes a fifth of the time that INSERTs take; rows are counted, and triggers fire, as by them."""
    return f"COPY {table} ({', '.join(columns)}) FROM STDIN" if driver.driver == "psycopg" else None


def _copy(cursor: Any, statement: str, rows: Iterable[Sequence[Any]], _: Any) -> bool:
    """What the engine does with a COPY in place of one statement a row. False: it is none."""
    if not statement.startswith("COPY "):
        return False
    with cursor.copy(statement) as copy:
        for row in rows:
            copy.write_row(row)
    return True


def _without_values(context: ExceptionContext) -> None:
    """The server tells the failing row whole in an error's DETAIL; an error's text is logged and printed."""
    original = context.original_exception
    primary = getattr(getattr(original, "diag", None), "message_primary", None)
    if primary and context.sqlalchemy_exception is not None:
        original.args = (primary,)
        context.sqlalchemy_exception.args = (f"({type(original).__name__}) {primary}",)


def _check(connection: Connection) -> None:
    encoding = connection.exec_driver_sql("SHOW server_encoding").scalar()
    if encoding != "UTF8":
        raise Unusable(say("database.encoding", encoding=encoding))


def _lacks(connection: Connection) -> tuple[str, str] | None:
    """Of a schema that this user may not look into, the server says that there is none."""
    schema, may, path, user = connection.exec_driver_sql(MAY_MAKE).one()
    if may:
        return None
    quote = connection.dialect.identifier_preparer.quote
    named = [name.strip().strip('"') for name in path.split(",")]
    where = quote(schema or next((name for name in named if name and name != "$user"), "public"))
    rights = "CREATE" if schema else "USAGE, CREATE"
    return f"{rights} on schema {where}", f"GRANT USAGE, CREATE ON SCHEMA {where} TO {quote(user)};"


# ---- promises --------------------------------------------------------------------------------------------------------


def _durability(connection: Connection) -> Durable:
    fsync, waits, _ = connection.exec_driver_sql(ASK).one()
    return Durable(say(FSYNC) if fsync == "off" else None, None if waits in WAITS else say(SESSION, value=waits))


def _failover(connection: Connection) -> Failover | None:
    standbys = connection.exec_driver_sql("SELECT sync_state FROM pg_stat_replication").scalars().all()
    names = connection.exec_driver_sql("SHOW synchronous_standby_names").scalar()
    if None in standbys:  # the rows are there for everybody; what is in them for pg_monitor alone
        return Failover(is_safe=False, said=say("failover.unseen", count=len(standbys), user=_user(connection)))
    if names and not {"async", "potential"}.issuperset(standbys):
        return Failover(is_safe=True, said=say("failover.synchronous", names=names))
    if names:
        return Failover(is_safe=False, said=say("failover.none_connected", names=names))
    if standbys:
        return Failover(is_safe=False, said=say("failover.standbys", count=len(standbys)))
    return Failover(is_safe=False, said=say("failover.alone")) if _has_several(connection.engine.url) else None


def _user(connection: Connection) -> str:
    user = connection.exec_driver_sql("SELECT current_user").scalar() or ""
    return connection.dialect.identifier_preparer.quote(user)


# ---- together with others --------------------------------------------------------------------------------------------


@contextmanager
def _schema_lock(connection: Connection, name: str) -> Iterator[bool]:
    """Until the transaction ends."""
    yield bool(connection.scalar(select(func.pg_try_advisory_xact_lock(func.hashtext(name)))))


async def _watch(engine: Engine, wake: Callable[[], None]) -> None:
    await postgresql_watch.watch(engine, wake, _limits(engine.url))


def _worker(connection: Connection) -> str | None:
    found = connection.exec_driver_sql(WORKER).first()
    return None if found is None else f"{found[0].removeprefix('orderbridge ').replace(' ', ', PID ')}"


def _grants(role: str, place: str | None, on_tables: Granting) -> tuple[str, ...]:
    who, where = servers.quoted(role, '"'), servers.quoted(place or "public", '"')
    return (f"GRANT USAGE ON SCHEMA {where} TO {who};", *on_tables(who, f"{where}."))


# ---- columns and tables ----------------------------------------------------------------------------------------------


def _time() -> TypeEngine[Any]:
    from sqlalchemy.dialects.postgresql import TIMESTAMP  # noqa: PLC0415 - and with it the driver's dialect

    return TIMESTAMP(timezone=False, precision=3)


def _text(length: int | None) -> TypeEngine[Any]:
    return UnicodeText() if length is None else String(length)


def _is_uuid(column: str) -> str:
    return f"{column} IS NULL OR {column} ~ '{servers.UUID_PATTERN}'"


def _tell_changes(table: str, column: str) -> tuple[str, ...]:
    """One statement wakes once, however many rows it writes."""
    body = f"$$BEGIN PERFORM pg_notify('{postgresql_watch.CHANNEL}', ''); RETURN NULL; END$$"
    when = f"AFTER INSERT OR UPDATE OF {column} ON {table} FOR EACH STATEMENT"
    return (
        f"CREATE FUNCTION delivery_wake() RETURNS trigger LANGUAGE plpgsql AS {body}",
        f"CREATE TRIGGER {table}_wake {when} EXECUTE FUNCTION delivery_wake()",
    )


def _dump(url: URL, file: str, _: Sequence[str]) -> tuple[str, str]:
    """Without the function of the trigger, which belongs to no table: `db upgrade` makes it where it is not."""
    query = _servers(url) | {name: str(url.query[name]) for name in ("sslmode", "sslrootcert") if name in url.query}
    query |= PRIMARY if _has_several(url) else {}
    address = URL.create("postgresql", url.username, database=url.database, query=query)
    place = shlex.quote(f"--dbname={address.render_as_string()}")
    name = shlex.quote(file)
    return (
        f"pg_dump {place} --format=custom --table='delivery_*' --file={name}",
        f"orderbridge db upgrade && pg_restore {place} --clean --if-exists --no-owner --single-transaction {name}",
    )


DIALECT = Dialect(
    extra="postgresql",
    one_writer=False,
    # READ COMMITTED sees each statement's own moment anyway: BEGIN and COMMIT would be two journeys for nothing.
    reads={**READS, "isolation_level": "AUTOCOMMIT"},
    snapshot={**READS, "isolation_level": "REPEATABLE READ"},
    options=_options,
    prepare=_prepare,
    check=_check,
    lacks=_lacks,
    **postgresql_errors.SIGNS,
    durability=_durability,
    unsafe_is_refused=True,
    checks_by_name=True,
    failover=_failover,
    skips_locks=lambda _: True,
    worker=_worker,
    lead=lambda connection: bool(connection.exec_driver_sql(LEAD).scalar()),
    schema_lock=_schema_lock,
    watch=_watch,
    fleet=postgresql_fleet.FLEET,
    grants=_grants,
    arrays=True,
    sequence=SEQUENCE,
    schema_query="SELECT current_schema()",
    dump=_dump,
    time=_time,
    whole=lambda _: Numeric(),  # keeps what is written, so that the CHECK sees it
    text=_text,
    utc_now="timezone('utc', clock_timestamp())",
    random_id="CAST(gen_random_uuid() AS VARCHAR)",
    insert_many=_insert_many,
    is_filled=lambda column, most: f"length({column}) BETWEEN 1 AND {most}",
    is_whole=servers.is_whole,
    is_uuid=_is_uuid,
    partial_indexes=True,
    tell_changes=_tell_changes,
)
