"""Inspects the database: durability of commits (promise 1), our rights, and the views.

- Durability is checked with each poll's note, and in each transaction with orders to acknowledge, because a server's
  settings may change. While a commit may be lost, nothing is acknowledged. Changes are logged.
- Rights are tested with statements that affect no row, which fail without the right.
"""

import threading
from collections.abc import Iterator, Sequence

import structlog
from sqlalchemy import Connection, Table
from sqlalchemy.exc import DBAPIError

from orderbridge.errors import Message
from orderbridge.store.dialects import of
from orderbridge.store.failures import is_busy, is_denied
from orderbridge.store.tables import metadata

_log = structlog.get_logger(__name__)


class Durability:
    """The durability of commits. `remedy`: why nothing may be acknowledged, and what to change; None: durable."""

    def __init__(self, *, accept_unsafe: bool = False) -> None:
        self._accept_unsafe = accept_unsafe
        self._guard = threading.Lock()
        self._undone = False
        self.remedy: Message | None = None

    def ask(self, connection: Connection) -> None:
        """Check the durability, remember the result and log a change."""
        remedy = self.judge(connection)
        with self._guard:
            before, self.remedy = self.remedy, remedy
        if remedy is not None and remedy != before:
            _log.error("database.unsafe_durability", remedy=remedy)
        elif remedy is None and before is not None:
            _log.info("database.safe_durability")

    def judge(self, connection: Connection) -> Message | None:
        """The remedy, or None. PostgreSQL without fsync is never accepted."""
        dialect = of(connection.dialect.name)
        if self._accept_unsafe and not dialect.unsafe_is_refused:
            return None
        remedy, undone = dialect.durability(connection)
        if undone is not None and not self._undone:
            _log.warning("database.session_changed", remedy=undone)
        self._undone = undone is not None
        return remedy


def lacking_rights(connection: Connection) -> list[str]:
    """The missing rights of this user, such as "UPDATE on delivery_orders"."""
    return [
        f"{statement.partition(' ')[0]} on {table.name}"
        for table in metadata.sorted_tables
        for statement in _statements(table)
        if _is_denied(connection, statement)
    ]


def broken_views(connection: Connection) -> tuple[str, ...]:
    """Our views that cannot be read: dropped, changed, or their creator was dropped."""
    views = [table for table in metadata.tables.values() if table.is_view]  # sorting them takes long
    return () if _can_read(connection, views) else tuple(one.name for one in views if not _can_read(connection, [one]))


def _can_read(tx: Connection, views: Sequence[Table]) -> bool:
    shown = (f"(SELECT {', '.join(one.columns.keys())} FROM {one.name}) AS shown" for one in views)  # noqa: S608
    try:
        tx.exec_driver_sql(" UNION ALL ".join(f"SELECT 1 FROM {one} WHERE 1 = 0" for one in shown))  # noqa: S608
    except DBAPIError as error:
        if error.connection_invalidated or is_busy(error):
            raise
        return False
    return True


def _statements(table: Table) -> Iterator[str]:
    names = [column.name for column in table.columns if column.computed is None]
    listed, name = ", ".join(names), table.name
    yield f"SELECT {listed} FROM {name} WHERE 1 = 0"  # noqa: S608 - names of ours, as all here
    if table.is_view:
        return
    yield f"INSERT INTO {name} ({listed}) SELECT {listed} FROM {name} WHERE 1 = 0"  # noqa: S608
    yield f"UPDATE {name} SET {names[0]} = {names[0]} WHERE 1 = 0"  # noqa: S608
    yield f"DELETE FROM {name} WHERE 1 = 0"  # noqa: S608


def _is_denied(connection: Connection, statement: str) -> bool:
    try:
        with connection.begin_nested():
            connection.exec_driver_sql(statement)
    except DBAPIError as error:
        if not is_denied(error):
            raise
        return True
    return False
