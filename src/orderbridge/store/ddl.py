"""How our tables are written on each database: what a partial index, a CHECK or a trigger is there.

No table stands here: tables.py and own_tables.py say what there is.

What a partial index serves on SQLite and PostgreSQL, a computed column of ours serves on MariaDB and MySQL, which have
no such index. Those columns are not part of the contract.
"""

from collections.abc import Callable, Iterable
from typing import Any

from sqlalchemy import (
    DDL,
    CheckConstraint,
    Column,
    ColumnElement,
    Connection,
    CreateView,
    Index,
    MetaData,
    Table,
    event,
    text,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import CreateIndex, CreateTable
from sqlalchemy.sql.compiler import DDLCompiler, SQLCompiler
from sqlalchemy.sql.visitors import InternalTraversal

from orderbridge.model import Action, ActionState
from orderbridge.store.dialects import of
from orderbridge.store.dialects.face import Dialect

metadata = MetaData(
    naming_convention={
        "pk": "%(table_name)s_pk",
        "fk": "%(table_name)s_%(column_0_name)s_fk",
        "uq": "%(table_name)s_%(column_0_name)s_uq",
        "ck": "%(table_name)s_%(constraint_name)s",
        "ix": "%(table_name)s_%(column_0_name)s_ix",
    }
)
_WHERE = "where"  # in an index's info

Condition = str | Callable[[Dialect], str | None]  # of a constraint; None: not on this database


# An option that names its dialect loads that dialect: all of them together are 4 MiB. So each gets its own with the DDL.
@compiles(CreateTable)
def _create_table(create: CreateTable, compiler: DDLCompiler, **options: Any) -> str:
    if create.element.metadata is metadata and (ours := of(compiler.dialect.name).table_options):
        create.element.dialect_options[compiler.dialect.name].update(ours)
    return str(compiler.visit_create_table(create, **options))  # type: ignore[no-untyped-call]


@compiles(CreateIndex)
def _create_index(create: CreateIndex, compiler: DDLCompiler, **options: Any) -> str:
    if _WHERE in create.element.info and of(compiler.dialect.name).partial_indexes:
        create.element.dialect_options[compiler.dialect.name]["where"] = text(create.element.info[_WHERE])
    return str(compiler.visit_create_index(create, **options))  # type: ignore[no-untyped-call]


# Somebody drops the user who made the tables: on MariaDB a view that runs as its maker would be an error from then on.
@compiles(CreateView)
def _create_view(create: CreateView, compiler: DDLCompiler, **options: Any) -> str:
    view = of(compiler.dialect.name).view
    return str(compiler.visit_create_view(create, **options)).replace(" VIEW ", f" {view} ", 1)


class Written(ColumnElement[Any]):
    """A piece of SQL that each database has in its own words.

    What says them is its name in SQLAlchemy's cache: without one, a statement is compiled at each of its executions.
    """

    inherit_cache = True
    _traverse_internals = [("written", InternalTraversal.dp_plain_obj)]  # noqa: RUF012 - as SQLAlchemy's own have it

    def __init__(self, written: Callable[[Dialect], str | None]) -> None:
        self.written = written


@compiles(Written)
def _write(element: Written, compiler: SQLCompiler, **_: Any) -> str:
    return str(element.written(of(compiler.dialect.name)))


def _on(wanted: Callable[[Dialect], object]) -> dict[str, Any]:
    """Of a constraint or an index that only some databases have."""
    return {"callable_": lambda *_, dialect, **__: bool(wanted(of(dialect.name)))}


def check(condition: Condition, label: str) -> CheckConstraint:
    if isinstance(condition, str):
        return CheckConstraint(text(condition), name=label)
    return CheckConstraint(Written(condition), name=label).ddl_if(**_on(condition))


def check_words(column: str, words: type[Action] | type[ActionState]) -> CheckConstraint:
    """One of these words and no other."""
    listed = [str(word) for word in words]
    return check(lambda dialect: dialect.is_one_of(column, listed), f"{column}_known")


def check_filled(column: str, most: int) -> CheckConstraint:
    """A text of one character or more. SQLite alone would keep a longer one than the column is declared for."""
    return check(lambda dialect: dialect.is_filled(column, most), f"{column}_1_to_{most}_characters")


def check_integer(column: str) -> CheckConstraint:
    return check(lambda dialect: dialect.is_integer(column), f"{column}_integer")


def check_number(column: str) -> CheckConstraint:
    return check(lambda dialect: dialect.is_number(column), f"{column}_number")


def check_whole(column: str) -> CheckConstraint:
    """A whole number of 64 bits."""
    return check(lambda dialect: dialect.is_whole(column), f"{column}_integer")


def check_uuid(column: str) -> CheckConstraint:
    """A key is a UUID in lower case: an upper-case one would never match the order it means."""
    return check(lambda dialect: dialect.is_uuid(column), f"{column}_uuid")


def serve(label: str, condition: str, column: Column[Any], *equal: Column[Any]) -> None:
    """An index of the rows in question alone. Where there is no partial one, `equal` go before the column."""
    index = Index(label, column, info={_WHERE: condition})
    index.ddl_if(**_on(lambda dialect: dialect.partial_indexes))
    if equal:
        Index(label, *equal, column).ddl_if(**_on(lambda dialect: not dialect.partial_indexes))


def after(table: Table, statements: Callable[[Dialect], Iterable[str]]) -> None:
    """DDL that only some databases need, once the table is there."""

    def run(_: Table, connection: Connection, **__: Any) -> None:
        execute(connection, statements(of(connection.dialect.name)))

    event.listen(table, "after_create", run)


def execute(connection: Connection, statements: Iterable[str]) -> None:
    """DDL as it is written: a sign of percent is one."""
    for statement in statements:
        connection.execute(DDL(statement.replace("%", "%%")))  # type: ignore[no-untyped-call]
