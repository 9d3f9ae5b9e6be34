"""What a till holds: rows that it has written and not committed. They are left out, and nobody waits for them.

SQLite's transaction holds everything; a server that cannot skip a lock waits for it, two seconds at most.
"""

from collections.abc import Collection, Iterable
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, select

from orderbridge.store.dialects import of
from orderbridge.store.in_list import batches, in_list
from orderbridge.store.tables import actions, orders


def lock_rows(connection: Connection, ids: Iterable[int]) -> set[int]:
    """Hold these outbox rows for this transaction. Returns those that it holds now: they are there, and nobody else's."""
    return _free(connection, actions.c.id, set(ids))


def lock_orders(connection: Connection, keys: Iterable[str]) -> set[str]:
    """The same as `lock_rows`, of orders."""
    return _free(connection, orders.c.payment_key, set(keys))


def lock_rows_naming_held(connection: Connection, ids: Iterable[int]) -> set[int]:
    """Hold these rows for this transaction. Returns those that somebody else holds; what is not there is not held."""
    return _held(connection, actions.c.id, set(ids))


def lock_orders_naming_held(connection: Connection, keys: Iterable[str | None]) -> set[str | None]:
    """The same as `lock_rows_naming_held`, of orders."""
    return _held(connection, orders.c.payment_key, {key for key in keys if key is not None})


def for_us(connection: Connection, query: Select[*tuple[Any, ...]]) -> Select[*tuple[Any, ...]]:
    """The query with its rows held for this transaction; the ones that somebody else holds are left out."""
    return _locking(query) if skips_locks(connection) else query


def _held(connection: Connection, column: ColumnElement[Any], wanted: Collection[Any]) -> set[Any]:
    missing = set(wanted) - _free(connection, column, wanted)
    there: set[Any] = set()
    for batch in batches(sorted(missing)):
        there.update(connection.execute(_there(column), {"wanted": batch}).scalars())
    return there


def _free(connection: Connection, column: ColumnElement[Any], wanted: Collection[Any]) -> set[Any]:
    if not skips_locks(connection):
        return set(wanted)
    free: set[Any] = set()
    for batch in batches(sorted(wanted)):
        free.update(connection.execute(_not_held(column), {"wanted": batch}).scalars())
    return free


@cache  # what is asked before each request is built once
def _there(column: ColumnElement[Any]) -> Select[*tuple[Any, ...]]:
    return select(column).where(in_list(column))


@cache  # by the query's identity: the callers' are made once
def _locking(query: Select[*tuple[Any, ...]]) -> Select[*tuple[Any, ...]]:
    return query.with_for_update(skip_locked=True, key_share=True)


@cache
def _not_held(column: ColumnElement[Any]) -> Select[*tuple[Any, ...]]:
    return _there(column).with_for_update(skip_locked=True, key_share=True)


def skips_locks(connection: Connection) -> bool:
    """Whether this server knows SKIP LOCKED."""
    return of(connection.dialect.name).skips_locks(connection.dialect)
