"""Many rows at once: named in a statement, held for a transaction, and written so that none is missing afterwards.

- A list of values is one parameter where the database has arrays: one text for lists of every length, which is prepared
  once. Written out, each length would be a statement of its own, and each value a cast to render.
- A till holds rows that it has written and not committed. They are left out, and nothing waits for them. (SQLite's
  transaction holds everything; a server that cannot skip a lock waits for it, two seconds at most.)
- A trigger can let a statement run and leave its row out. That is an IntegrityError here.
- Many rows go to the driver as plain values, with the statement written once: SQLAlchemy's own way to a driver costs more
  than a database in a file takes to write them.
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

BATCH = 500  # values in one list: every database takes it
SHORT_WAY_FROM = 20  # rows from which on the short way is worth it

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
        """It is a condition as it stands: were it compared with 1, as a function would be, no index would serve."""
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
    """What is written with the same values goes into one statement: the second of each pair, by the first."""
    found: dict[Key, list[T]] = {}
    for key, one in pairs:
        found.setdefault(key, []).append(one)
    return found


# ---- holding ---------------------------------------------------------------------------------------------------------


# Which rows are locked, their key says.
ROW: ColumnElement[int] = actions.c.id
ORDER: ColumnElement[str] = orders.c.payment_key


def lock(connection: Connection, column: ColumnElement[T], keys: Iterable[T]) -> set[T]:
    """Lock these rows for this transaction. Returns those that it holds now: they are there, and no other session's."""
    wanted = set(keys)
    return _found(connection, _locking(_there(column)), wanted) if skips_locks(connection) else wanted


def lock_naming_held(connection: Connection, column: ColumnElement[T], keys: Iterable[T]) -> set[T]:
    """Lock these rows for this transaction. Returns those that another session holds; what is not there is not held."""
    if not skips_locks(connection):
        return set()
    wanted = set(keys)
    return _found(connection, _there(column), wanted - _found(connection, _locking(_there(column)), wanted))


def for_us(connection: Connection, query: Select[*tuple[Any, ...]]) -> Select[*tuple[Any, ...]]:
    """The query with its rows held for this transaction; the ones that another session holds are left out."""
    return _locking(query) if skips_locks(connection) else query


def held_by_others(connection: Connection, column: ColumnElement[T], missing: Collection[T]) -> set[T]:
    """Of what could not be held the ones that are there."""
    return _found(connection, _there(column), missing) if skips_locks(connection) else set()


def _found(connection: Connection, query: Select[*tuple[Any, ...]], wanted: Collection[Any]) -> set[Any]:
    found: set[Any] = set()
    for batch in batches(sorted(wanted)):
        found.update(connection.execute(query, {"wanted": batch}).scalars())
    return found


@cache  # what is asked before each request is built once
def _there(column: ColumnElement[Any]) -> Select[*tuple[Any, ...]]:
    return select(column).where(in_list(column))


@cache  # by the query's identity: the callers' are made once
def _locking(query: Select[*tuple[Any, ...]]) -> Select[*tuple[Any, ...]]:
    return query.with_for_update(skip_locked=True, key_share=True)


def skips_locks(connection: Connection) -> bool:
    """Whether this server knows SKIP LOCKED."""
    return of(connection.dialect.name).skips_locks(connection.dialect)


# ---- writing ---------------------------------------------------------------------------------------------------------


class LeftOut(Exception):
    """The statement ran, and not every row was written."""


def insert_all(connection: Connection, table: Table, columns: tuple[str, ...], rows: Sequence[Row]) -> None:
    """Insert these rows, in the order of `columns`. Raises IntegrityError when one is left out."""
    written = insert_rows(connection, table, columns, rows)
    counts = len(rows) == 1 or connection.dialect.supports_sane_multi_rowcount
    if counts and 0 <= written < len(rows):
        raise left_out("INSERT")


def insert_rows(connection: Connection, table: Table, columns: tuple[str, ...], rows: Sequence[Row]) -> int:
    """Insert these rows, in the order of `columns`. Returns how many were written, as far as the driver says."""
    if not rows:
        return 0
    statement, converters = _driver_insert(connection.dialect, table, columns)
    if statement is None or len(rows) < SHORT_WAY_FROM:
        named = [dict(zip(columns, row, strict=True)) for row in rows]
        return connection.execute(_insert(table), named).rowcount
    return connection.exec_driver_sql(statement, _converted(rows, converters)).rowcount


_insert = lru_cache(maxsize=64)(insert)  # SQLAlchemy keeps with a statement what it has once found out of it


@lru_cache(maxsize=64)
def _driver_insert(
    dialect: Dialect, table: Table, columns: tuple[str, ...]
) -> tuple[str | None, tuple[tuple[int, Callable[[Any], Any]], ...]]:
    """The statement in the driver's own words, None where there is none; and by place what makes a driver's value."""
    statement = of(dialect.name).insert_many(dialect, table.name, columns)
    found = [table.c[name].type.dialect_impl(dialect).bind_processor(dialect) for name in columns]
    return statement, tuple((place, convert) for place, convert in enumerate(found) if convert is not None)


def _converted(rows: Sequence[Row], converters: tuple[tuple[int, Callable[[Any], Any]], ...]) -> list[Row]:
    """Column by column: rows that are written together have many values in common, their time above all."""
    columns: list[Sequence[Any]] = list(zip(*rows, strict=True))
    for place, convert in converters:
        made = {value: convert(value) for value in set(columns[place])}
        columns[place] = [made[value] for value in columns[place]]
    return list(zip(*columns, strict=True))


def update_one(connection: Connection, statement: Update) -> None:
    """Update one row that is there. Raises IntegrityError when it is left as it was."""
    if connection.execute(statement).rowcount == 0:
        raise left_out("UPDATE")


def left_out(statement: str) -> IntegrityError:
    """What is raised then."""
    return IntegrityError(statement, None, LeftOut("row left out"))
