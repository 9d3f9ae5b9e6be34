"""What `check` asks of a database that is there: may we do all that we have to, and does it write? Nothing is left behind.

Rights are tried, not read: each statement concerns no row, and is refused all the same where the right is missing.
"""

from collections.abc import Iterator, Sequence

from sqlalchemy import Column, Connection, Table, text
from sqlalchemy.exc import DBAPIError

from orderbridge.store.failures import is_busy, is_denied
from orderbridge.store.tables import SCHEMA_VERSION_TABLE, metadata


def try_writing(connection: Connection) -> None:
    """Write one row as it is. Raises DBAPIError where nothing can be written."""
    connection.execute(text(f"UPDATE {SCHEMA_VERSION_TABLE} SET version_num = version_num"))  # noqa: S608


def lacking_rights(connection: Connection) -> list[str]:
    """What this user may not do, as "UPDATE on delivery_orders"."""
    return [
        f"{statement.partition(' ')[0]} on {table.name}"
        for table in metadata.sorted_tables
        for statement in _statements(table)
        if _is_denied(connection, statement)
    ]


def broken_views(connection: Connection) -> tuple[str, ...]:
    """Our views that cannot be read: dropped, without a column, or their maker is gone. Looked at through a till's door."""
    views = [table for table in metadata.sorted_tables if table.is_view]
    return () if _can_read(connection, views) else tuple(one.name for one in views if not _can_read(connection, [one]))


def _can_read(connection: Connection, views: Sequence[Table]) -> bool:
    shown = (f"(SELECT {', '.join(one.columns.keys())} FROM {one.name}) AS shown" for one in views)  # noqa: S608
    try:
        connection.exec_driver_sql(" UNION ALL ".join(f"SELECT 1 FROM {one} WHERE 1 = 0" for one in shown))  # noqa: S608
    except DBAPIError as error:
        if error.connection_invalidated or is_busy(error):
            raise
        return False
    return True


def _statements(table: Table) -> Iterator[str]:
    names = [column.name for column in table.columns if _is_ours(column)]
    listed, name = ", ".join(names), table.name
    yield f"SELECT {listed} FROM {name} WHERE 1 = 0"  # noqa: S608 - names of ours, as all here
    if table.is_view:
        return
    yield f"INSERT INTO {name} ({listed}) SELECT {listed} FROM {name} WHERE 1 = 0"  # noqa: S608
    yield f"UPDATE {name} SET {names[0]} = {names[0]} WHERE 1 = 0"  # noqa: S608
    yield f"DELETE FROM {name} WHERE 1 = 0"  # noqa: S608


def _is_ours(column: Column[object]) -> bool:
    return column.computed is None


def _is_denied(connection: Connection, statement: str) -> bool:
    try:
        with connection.begin_nested():
            connection.exec_driver_sql(statement)
    except DBAPIError as error:
        if not is_denied(error):
            raise
        return True
    return False
