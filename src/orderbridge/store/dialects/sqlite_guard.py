"""What grants are on servers: triggers that refuse, unless the one row of delivery_guard is open.

- A transaction of ours opens it at its beginning and closes it before its commit. No other connection ever sees it open,
  and a rollback or a crash closes it.
- One that changed nothing is rolled back: the guard's two words alone would be a commit to the disk, and a notice to all
  who wait for one, ourselves among them.
- Its table or its row may be taken away by somebody: the next transaction of ours puts it back, and no order waits.
- A POS's own statements must go on working whatever is missing here, so that there is no function and no pragma in it.
"""

import sqlite3

from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import DBAPIError, OperationalError

GUARD = "delivery_guard"
OPENED = "min(open, 1000000) + 1"  # somebody may have left the largest number there
_OPENED = "orderbridge_guard"  # in a connection's info: what had been changed when the guard was opened


def keep(trigger: str, table: str, statement: str, condition: str, why: str) -> tuple[str, ...]:
    """Refuse the statement (`BEFORE UPDATE OF …`) while the guard is closed and the condition holds."""
    when = f"WHEN (SELECT open FROM {GUARD}) = 0{condition and f' AND ({condition})'}"  # noqa: S608
    return (f"CREATE TRIGGER {trigger} {statement} ON {table} {when} BEGIN SELECT RAISE(ABORT, '{why}'); END",)


# `again_id`: the row of delivery_actions whose request_id somebody wrote once more. INSERT OR IGNORE leaves it where it
# is; REPLACE takes it away without a word to any trigger, so that the trigger after it has to look.
_TABLE = (
    f"CREATE TABLE {GUARD} (id INTEGER NOT NULL CONSTRAINT {GUARD}_pk PRIMARY KEY, open INTEGER DEFAULT 0 NOT NULL,"
    f" again_id INTEGER, CONSTRAINT {GUARD}_one_row CHECK (id = 1),"
    f" CONSTRAINT {GUARD}_open_0_or_more CHECK (typeof(open) = 'integer' AND open >= 0))"
)
_ROW = f"INSERT INTO {GUARD} (id) VALUES (1)"  # noqa: S608
_AGAIN = (
    f"CREATE TRIGGER {GUARD}_again BEFORE INSERT ON delivery_actions"  # noqa: S608 - a name of ours, as all here
    " WHEN EXISTS (SELECT 1 FROM delivery_actions WHERE request_id = NEW.request_id) BEGIN"
    f" UPDATE {GUARD} SET again_id = (SELECT id FROM delivery_actions WHERE request_id = NEW.request_id); END"
)
_GONE = (
    f"CREATE TRIGGER {GUARD}_gone AFTER DELETE ON delivery_actions"  # noqa: S608
    f" WHEN OLD.id = (SELECT again_id FROM {GUARD}) BEGIN UPDATE {GUARD} SET again_id = NULL; END"
)
_WHY = f"{GUARD}: DELETE is for orderbridge alone; leave its one row"
GUARDS = (
    _TABLE,
    _ROW,
    _AGAIN,
    _GONE,
    *keep(f"{GUARD}_stays", GUARD, "BEFORE DELETE", "", _WHY),
)
REPLACED = f"NOT EXISTS (SELECT 1 FROM delivery_actions WHERE id = coalesce((SELECT again_id FROM {GUARD}), NEW.id))"  # noqa: S608


def watch_commits(engine: Engine) -> None:
    """Close the guard before each commit."""
    event.listen(engine, "commit", _close)


def forget_guard(connection: Connection) -> None:
    """At the beginning of a transaction."""
    connection.info.pop(_OPENED, None)


def open_guard(connection: Connection) -> None:
    """Once a transaction that writes has begun. A file that is new, or of an older version, has no guard yet."""
    driver = driver_of(connection)
    changed = _set(connection, OPENED)
    if changed is None:
        if not _is_missed(driver):
            return
        connection.exec_driver_sql(_TABLE)  # somebody has dropped it: without it the triggers let nothing through
    if not changed:
        connection.exec_driver_sql(_ROW)
        _set(connection, OPENED)
    connection.info[_OPENED] = _changes(driver)


def _close(connection: Connection) -> None:
    before, driver = connection.info.pop(_OPENED, None), driver_of(connection)
    if before is None or not driver.in_transaction:
        return
    if _changes(driver) == before:
        tell_driver(connection, "ROLLBACK")
    else:
        _set(connection, "max(open - 1, 0)")


def _is_missed(driver: sqlite3.Connection) -> bool:
    """Whether the triggers that ask it are there."""
    there = f"SELECT 1 FROM sqlite_master WHERE type = 'trigger' AND name = '{GUARD}_again'"  # noqa: S608
    return bool(driver.execute(there).fetchall())


def _set(connection: Connection, value: str) -> int | None:
    """How many rows it has: 1, or 0 when somebody has taken it away. None: there is no such table."""
    try:
        return tell_driver(connection, f"UPDATE {GUARD} SET open = {value} WHERE id = 1")  # noqa: S608
    except OperationalError as error:
        if f"no such table: {GUARD}" in str(error.orig):
            return None
        raise


def _changes(driver: sqlite3.Connection) -> tuple[int, int]:
    """Two numbers: any row that is written, and any change of the schema, makes one of them another."""
    return driver.total_changes, driver.execute("PRAGMA schema_version").fetchone()[0]


# What is said in each transaction goes to the driver itself: SQLAlchemy takes ten times as long for a statement as SQLite
# does for one of these, and each transaction has three of them. Where no transaction has begun for it, it also undoes all
# that a failed statement stands in.


def driver_of(connection: Connection) -> sqlite3.Connection:
    """The driver's own connection."""
    return connection.connection.driver_connection  # type: ignore[return-value]


def tell_driver(connection: Connection, statement: str) -> int:
    """How many rows it has changed. Its errors are SQLAlchemy's, which everybody knows; nothing is undone."""
    try:
        return driver_of(connection).execute(statement).rowcount
    except sqlite3.Error as error:
        raise DBAPIError.instance(
            statement, None, error, sqlite3.Error, hide_parameters=True, dialect=connection.dialect
        ) from error
