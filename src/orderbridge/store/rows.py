"""Writing rows that have to be there afterwards: a trigger can let a statement run and leave its row out.

Many rows go to the driver as plain values, with the statement written once: SQLAlchemy's own way to a driver costs more
than a database in a file takes to write them. What is refused then, or left out, is told as of one row alone.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, Dialect, Table, Update, insert
from sqlalchemy.exc import IntegrityError

from orderbridge.store.dialects import of

SHORT_WAY_FROM = 20  # rows from which on the short way is worth it

Row = tuple[Any, ...]


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
