"""Creates and upgrades the schema, and refuses one of a newer program.

A current schema is recognized with one SELECT, without loading Alembic.
"""

import threading
from contextlib import suppress
from typing import Any

import structlog
from sqlalchemy import Connection, create_mock_engine, inspect, text
from sqlalchemy.exc import DBAPIError

from orderbridge.clock import SystemClock
from orderbridge.errors import Message, StoreError, Unusable
from orderbridge.store.ddl import execute
from orderbridge.store.dialects import of
from orderbridge.store.tables import HEAD, KNOWN, MIGRATIONS, SCHEMA_VERSION_TABLE, metadata
from orderbridge.store.write_guards import gone, on_version, renew

LOCK_WAIT_S = 60.0
LOCK_ASK_S = 0.5

_log = structlog.get_logger(__name__)


def locked() -> StoreError:
    """The error if another program has been changing the schema for LOCK_WAIT_S."""
    return StoreError("schema.locked", seconds=f"{LOCK_WAIT_S:.0f}")


def current(connection: Connection) -> str | None:
    """The revision of the database; None without our tables."""
    if not inspect(connection).has_table(SCHEMA_VERSION_TABLE):
        return None
    found = connection.execute(text(f"SELECT version_num FROM {SCHEMA_VERSION_TABLE}")).scalars().all()  # noqa: S608
    if len(found) > 1:
        raise Unusable("schema.rows", table=SCHEMA_VERSION_TABLE, count=len(found))
    return found[0] if found else None


def inspected(connection: Connection) -> str | None:
    """The revision, for commands that only read; None without our tables. Raises Unusable."""
    found = current(connection)
    refuse_unknown(found)
    if found is None:
        _refuse_unfinished(connection)
    return found


def _refuse_unfinished(connection: Connection) -> None:
    """Refuse tables without a version, because creating them again would fail."""
    there = {SCHEMA_VERSION_TABLE, *metadata.tables} & set(inspect(connection).get_table_names())
    if there:
        raise Unusable("schema.unfinished", tables=", ".join(sorted(there)))


def upgrade(connection: Connection) -> bool:
    """Upgrade the schema within the caller's transaction. Returns whether anything changed.

    A new database is created without Alembic, which takes half a second to load. Raises StoreError for a schema of a
    newer program, or if another program has been changing the schema for LOCK_WAIT_S.
    """
    clock = SystemClock()
    until = clock.monotonic() + LOCK_WAIT_S
    while (done := try_upgrade(connection)) is None:
        if clock.monotonic() >= until:
            raise locked()
        threading.Event().wait(LOCK_ASK_S)
    return done


def try_upgrade(connection: Connection) -> bool | None:
    """Upgrade without waiting. None: another program is changing the schema."""
    if current(connection) == HEAD:  # restore dropped triggers and wrong sequences
        execute(connection, gone(connection).values())
        set_sequences_right(connection)
        return False
    with of(connection.dialect.name).schema_lock(connection, SCHEMA_VERSION_TABLE) as taken:
        return _upgrade(connection) if taken else None


def set_sequences_right(connection: Connection) -> None:
    """Correct sequences, which may return used ids after a restore. Without the right, collisions are logged."""
    statement = of(connection.dialect.name).sequence
    for table in metadata.tables if statement else ():
        if any(column.identity for column in metadata.tables[table].columns):
            with suppress(DBAPIError), connection.begin_nested():
                if connection.exec_driver_sql(statement.format(table)).rowcount:
                    _log.warning("database.sequence_set", table=table)


def _upgrade(connection: Connection) -> bool:
    found = current(connection)
    if found == HEAD:
        return False
    if found is None:
        _refuse_unfinished(connection)
        if (lacking := of(connection.dialect.name).lacks(connection)) is not None:
            rights, statement = lacking
            raise Unusable(
                "schema.may_not_make",
                lacks=Message("schema.lacks", rights=rights),
                grant=Message("schema.grant", statement=statement),
            )
        make(connection)
        return True
    refuse_unknown(found)
    _log.info("schema.upgrading", found=found, to=HEAD)
    migrate(connection)
    return True


def make(connection: Connection) -> None:
    """Create all our objects in a new database."""
    metadata.create_all(connection, checkfirst=False)
    key = f"CONSTRAINT {SCHEMA_VERSION_TABLE}_pkc PRIMARY KEY (version_num)"  # as Alembic makes it
    version = f"CREATE TABLE {SCHEMA_VERSION_TABLE} (version_num VARCHAR(32) NOT NULL, {key})"
    insert = f"INSERT INTO {SCHEMA_VERSION_TABLE} VALUES ('{HEAD}')"  # noqa: S608
    execute(connection, [version, insert, *on_version(of(connection.dialect.name))])


def check(connection: Connection) -> None:
    """Refuse a database whose schema is not this program's."""
    if inspected(connection) != HEAD:
        raise StoreError("schema.not_current")


def check_known(connection: Connection) -> None:
    """Refuse a database without our tables, or with those of a newer program. An older schema can be read."""
    if inspected(connection) is None:
        raise StoreError("schema.not_current")


def migrate(connection: Connection) -> None:
    """Run the migrations that are missing, inside the caller's transaction."""
    from alembic import command  # noqa: PLC0415 - takes half a second to load
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
    renew(connection)


def offline_sql(url: str) -> str:
    """The DDL of a new database, for a DBA."""
    statements: list[str] = []

    def write(statement: Any, *_: Any, **__: Any) -> None:
        statements.append(str(statement.compile(dialect=connection.dialect)).strip())

    connection: Any = create_mock_engine(url, write, paramstyle="named")
    make(connection)
    return ";\n\n".join(["BEGIN", *statements, "COMMIT", ""])


def refuse_unknown(found: str | None) -> None:
    """Raise Unusable for the schema of a newer program."""
    if found not in {None, *KNOWN}:
        raise Unusable("schema.unknown", found=found, known=HEAD)
