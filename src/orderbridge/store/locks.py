"""What a till holds: rows that it has written and not committed. They are left out, and nobody waits for them.

SQLite's transaction holds everything; a server that cannot skip a lock waits for it, two seconds at most.
"""

from collections.abc import Collection, Iterable, Iterator
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, bindparam, select

from orderbridge.store.tables import actions, orders

BATCH = 500  # values in one IN list


def free_rows(connection: Connection, ids: Iterable[int]) -> set[int]:
    """Of these outbox rows, the ones that are there and that nobody else holds. They are held for this transaction."""
    return _free(connection, actions.c.id, set(ids))


def free_orders(connection: Connection, keys: Iterable[str]) -> set[str]:
    """The same as `free_rows`, of orders."""
    return _free(connection, orders.c.payment_key, set(keys))


def held_rows(connection: Connection, ids: Iterable[int]) -> set[int]:
    """The ones that somebody else holds; the others are held for this transaction. What is not there is not held."""
    return _held(connection, actions.c.id, set(ids))


def held_orders(connection: Connection, keys: Iterable[str | None]) -> set[str | None]:
    """The same as `held_rows`, of orders."""
    return _held(connection, orders.c.payment_key, {key for key in keys if key is not None})


def _held(connection: Connection, column: ColumnElement[Any], wanted: Collection[Any]) -> set[Any]:
    if not skips_locks(connection):
        return set()
    there: set[Any] = set()
    for batch in _batches(wanted):
        there.update(connection.execute(_there(column), {"wanted": batch}).scalars())
    return there - _free(connection, column, there)


def _free(connection: Connection, column: ColumnElement[Any], wanted: Collection[Any]) -> set[Any]:
    if not skips_locks(connection):
        return set(wanted)
    free: set[Any] = set()
    for batch in _batches(wanted):
        free.update(connection.execute(_not_held(column), {"wanted": batch}).scalars())
    return free


@cache  # what is asked before each request is built once
def _there(column: ColumnElement[Any]) -> Select[Any]:
    return select(column).where(column.in_(bindparam("wanted", expanding=True)))


@cache
def _not_held(column: ColumnElement[Any]) -> Select[Any]:
    return _there(column).with_for_update(skip_locked=True, key_share=True)


def _batches(wanted: Collection[Any]) -> Iterator[list[Any]]:
    listed = sorted(wanted)
    for start in range(0, len(listed), BATCH):
        yield listed[start : start + BATCH]


def skips_locks(connection: Connection) -> bool:
    """Whether this server knows SKIP LOCKED."""
    version = connection.dialect.server_version_info or (0,)
    match connection.dialect.name:
        case "postgresql":
            return True
        case "mysql" | "mariadb":
            is_mariadb = getattr(connection.dialect, "is_mariadb", False)
            return version >= ((10, 6) if is_mariadb else (8,))
    return False
