"""Selects, locks and writes many rows at once, and checks that all were written.

- Where the database has arrays, a list is one parameter. So one prepared statement serves lists of every length.
- Rows that another session has locked are skipped without waiting. (SQLite locks the whole file; a server without SKIP
  LOCKED waits for at most two seconds.)
- A trigger may silently skip a row of a statement. This raises IntegrityError here.
- Many rows are passed directly to the driver, because SQLAlchemy's executemany costs more than SQLite's write.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from typing import Any, TypeVar

from sqlalchemy import (
    ARRAY,
    Boolean,
    ColumnElement,
    Connection,
    Dialect,
    Select,
    Table,
    Update,
    bindparam,
    insert,
    select,
)
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from orderbridge.store.dialects import of
from orderbridge.store.tables import actions, orders

BATCH = 500  # values in one list, which every database accepts
SHORT_WAY_FROM = 20  # from this many rows on, the driver is called directly

T = TypeVar("T")
Key = TypeVar("Key")
Row = tuple[Any, ...]


# ---- naming ----------------------------------------------------------------------------------------------------------


class in_list(FunctionElement[bool]):  # noqa: N801 - it reads as a part of SQL
    """Whether the column's value is one of `wanted`, which each execution passes."""

    inherit_cache = True
    type = Boolean()

    def __init__(self, column: ColumnElement[Any]) -> None:
        listed = column.in_(bindparam("wanted", expanding=True))
        super().__init__(listed, column, bindparam("wanted", type_=ARRAY(column.type)))

    def self_group(self, against: object = None) -> "in_list":  # noqa: ARG002 - as SQLAlchemy calls it
        """A plain condition. As a function it would be compared with 1, and use no index."""
        return self


@compiles(in_list)
def _in_list(element: in_list, compiler: SQLCompiler, **more: Any) -> str:
    listed, column, wanted = element.clauses
    if of(compiler.dialect.name).arrays:
        return f"{compiler.process(column, **more)} = ANY({compiler.process(wanted, **more)})"
    return compiler.process(listed, **more)


def batches(values: Iterable[T]) -> Iterator[list[T]]:
    """At most 500 values per statement."""
    listed = list(values)
    for start in range(0, len(listed), BATCH):
        yield listed[start : start + BATCH]


def alike(pairs: Iterable[tuple[Key, T]]) -> dict[Key, list[T]]:
    """Group the second values of pairs by the first."""
    found: dict[Key, list[T]] = {}
    for key, one in pairs:
        found.setdefault(key, []).append(one)
    return found


# ---- holding ---------------------------------------------------------------------------------------------------------


# The key columns by which rows are locked.
ROW: ColumnElement[int] = actions.c.id
ORDER: ColumnElement[str] = orders.c.payment_key


def lock(connection: Connection, column: ColumnElement[T], keys: Iterable[T]) -> set[T]:
    """Lock these rows for this transaction, and return those that exist and are not locked by other sessions."""
    wanted = set(keys)
    return _found(connection, _locking(_there(column)), wanted) if skips_locks(connection) else wanted


def lock_naming_held(connection: Connection, column: ColumnElement[T], keys: Iterable[T]) -> set[T]:
    """Lock these rows for this transaction, and return those that other sessions have locked."""
    if not skips_locks(connection):
        return set()
    wanted = set(keys)
    return _found(connection, _there(column), wanted - _found(connection, _locking(_there(column)), wanted))


def for_us(connection: Connection, query: Select[*tuple[Any, ...]]) -> Select[*tuple[Any, ...]]:
    """The query with FOR UPDATE, skipping rows that other sessions have locked."""
    return _locking(query) if skips_locks(connection) else query


def held_by_others(connection: Connection, column: ColumnElement[T], missing: Collection[T]) -> set[T]:
    """The rows that could not be locked but exist."""
    return _found(connection, _there(column), missing) if skips_locks(connection) else set()


def _found(connection: Connection, query: Select[*tuple[Any, ...]], wanted: Collection[Any]) -> set[Any]:
    found: set[Any] = set()
    for batch in batches(sorted(wanted)):
        found.update(connection.execute(query, {"wanted": batch}).scalars())
    return found


@cache  # used before each request
def _there(column: ColumnElement[Any]) -> Select[*tuple[Any, ...]]:
    return select(column).where(in_list(column))


@cache  # by the query's identity, because callers build each query once
def _locking(query: Select[*tuple[Any, ...]]) -> Select[*tuple[Any, ...]]:
    return query.with_for_update(skip_locked=True, key_share=True)


def skips_locks(connection: Connection) -> bool:
    """Whether this server knows SKIP LOCKED."""
    return of(connection.dialect.name).skips_locks(connection.dialect)


# ---- writing ---------------------------------------------------------------------------------------------------------


class LeftOut(Exception):
    """The statement succeeded, but not every row was written."""


def insert_all(connection: Connection, table: Table, columns: tuple[str, ...], rows: Sequence[Row]) -> None:
    """Insert these rows, in the order of `columns`. Raises IntegrityError if a trigger skipped one."""
    written = insert_rows(connection, table, columns, rows)
    counts = len(rows) == 1 or connection.dialect.supports_sane_multi_rowcount
    if counts and 0 <= written < len(rows):
        raise left_out("INSERT")


def insert_rows(connection: Connection, table: Table, columns: tuple[str, ...], rows: Sequence[Row]) -> int:
    """Insert these rows, in the order of `columns`. Returns the driver's row count."""
    if not rows:
        return 0
    statement, converters = _driver_insert(connection.dialect, table, columns)
    if statement is None or len(rows) < SHORT_WAY_FROM:
        named = [dict(zip(columns, row, strict=True)) for row in rows]
        return connection.execute(_insert(table), named).rowcount
    return connection.exec_driver_sql(statement, _converted(rows, converters)).rowcount


_insert = lru_cache(maxsize=64)(insert)  # so that SQLAlchemy's compilation is cached


@lru_cache(maxsize=64)
def _driver_insert(
    dialect: Dialect, table: Table, columns: tuple[str, ...]
) -> tuple[str | None, tuple[tuple[int, Callable[[Any], Any]], ...]]:
    """The INSERT in the driver's syntax, or None, and the converters of values by position."""
    statement = of(dialect.name).insert_many(dialect, table.name, columns)
    found = [table.c[name].type.dialect_impl(dialect).bind_processor(dialect) for name in columns]
    return statement, tuple((place, convert) for place, convert in enumerate(found) if convert is not None)


def _converted(rows: Sequence[Row], converters: tuple[tuple[int, Callable[[Any], Any]], ...]) -> list[Row]:
    """Convert the values by column, since rows of one write share many values."""
    columns: list[Sequence[Any]] = list(zip(*rows, strict=True))
    for place, convert in converters:
        made = {value: convert(value) for value in set(columns[place])}
        columns[place] = [made[value] for value in columns[place]]
    return list(zip(*columns, strict=True))


def update_one(connection: Connection, statement: Update) -> None:
    """Update an existing row. Raises IntegrityError if a trigger prevented it."""
    if connection.execute(statement).rowcount == 0:
        raise left_out("UPDATE")


def left_out(statement: str) -> IntegrityError:
    """The error for a row that a trigger skipped."""
    return IntegrityError(statement, None, LeftOut("row left out"))
