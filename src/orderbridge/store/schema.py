"""The schema's version: bring it up to date, refuse one that is newer than this program.

`HEAD` is written here as well as in the newest migration (a test holds the two equal), so that an up-to-date database
is recognised with one SELECT and without loading Alembic.
"""

import contextlib
import io
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, func, inspect, select, text

from orderbridge.errors import StoreError
from orderbridge.store.tables import SCHEMA_VERSION_TABLE, metadata

if TYPE_CHECKING:
    from alembic.config import Config

HEAD = "0001"
LOCK_WAIT_S = 60


def current(connection: Connection) -> str | None:
    """The revision that the database has; None when our tables are not there yet."""
    if not inspect(connection).has_table(SCHEMA_VERSION_TABLE):
        return None
    return connection.execute(text(f"SELECT version_num FROM {SCHEMA_VERSION_TABLE}")).scalar()  # noqa: S608


def upgrade(connection: Connection) -> bool:
    """Bring the tables up to this program's revision, inside the caller's transaction. True when something was done.

    A new database is made from the tables themselves: the same thing as all migrations (a test holds them against each
    other), without the half second that loading Alembic takes. Raises StoreError when the database was made by a newer
    program: nothing is touched then.
    """
    if current(connection) == HEAD:
        return False
    with _alone(connection):
        return _upgrade(connection)


@contextlib.contextmanager
def _alone(connection: Connection) -> Iterator[None]:
    """One upgrade at a time: a replica that starts meanwhile waits, and finds it done. SQLite has one writer anyway."""
    match connection.dialect.name:
        case "postgresql":  # until the transaction ends
            connection.execute(select(func.pg_advisory_xact_lock(func.hashtext(SCHEMA_VERSION_TABLE))))
            yield
        case "mysql" | "mariadb":  # where DDL ends transactions
            name = func.concat(func.database(), ".", SCHEMA_VERSION_TABLE)
            connection.execute(select(func.get_lock(name, LOCK_WAIT_S)))
            try:
                yield
                connection.exec_driver_sql(
                    "COMMIT"
                )  # before the next one looks: the DDL has ended the transaction anyway
            finally:
                connection.execute(select(func.release_lock(name)))
        case _:
            yield


def _upgrade(connection: Connection) -> bool:
    found = current(connection)
    if found == HEAD:
        return False
    if found is None and not inspect(connection).has_table(SCHEMA_VERSION_TABLE):
        metadata.create_all(connection, checkfirst=False)
        key = f"CONSTRAINT {SCHEMA_VERSION_TABLE}_pkc PRIMARY KEY (version_num)"  # as Alembic makes it
        connection.execute(text(f"CREATE TABLE {SCHEMA_VERSION_TABLE} (version_num VARCHAR(32) NOT NULL, {key})"))
        connection.execute(text(f"INSERT INTO {SCHEMA_VERSION_TABLE} VALUES ('{HEAD}')"))  # noqa: S608
        return True
    _refuse_unknown(found)
    migrate(connection)
    return True


def check(connection: Connection) -> None:
    """Refuse a database that this program cannot use as it stands."""
    found = current(connection)
    _refuse_unknown(found)
    if found != HEAD:
        raise StoreError("The database has no current orderbridge tables. Run `orderbridge db upgrade`.")


def migrate(connection: Connection, revision: str = "head") -> None:
    """Run the migrations up to `revision`, inside the caller's transaction."""
    from alembic import command  # noqa: PLC0415 - half a second, and only needed when there is something to do

    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, revision)


def offline_sql(url: str) -> str:
    """The DDL from nothing to this revision, for a DBA to read and run."""
    from alembic import command  # noqa: PLC0415 - as above

    out = io.StringIO()
    config = _config()
    config.output_buffer = out
    config.set_main_option("sqlalchemy.url", url.replace("%", "%%"))
    command.upgrade(config, "head", sql=True)
    return out.getvalue()


def _refuse_unknown(found: str | None) -> None:
    if found is not None and found > HEAD:
        raise StoreError(
            f"The database has schema {found}, this program knows up to {HEAD}. "
            "Install the newer orderbridge that made it; nothing was changed."
        )


def _config() -> "Config":
    from alembic.config import Config  # noqa: PLC0415 - as above

    config = Config()
    config.set_main_option("script_location", str(_migrations()).replace("%", "%%"))
    return config


def _migrations() -> Path:
    """In a wheel the migrations lie inside the package, in a checkout beside src."""
    packaged = Path(str(files("orderbridge") / "migrations"))
    return packaged if packaged.is_dir() else Path(__file__).parents[3] / "migrations"
