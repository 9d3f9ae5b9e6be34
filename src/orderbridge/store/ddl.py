"""The building blocks of our DDL on each database: types, defaults, CHECKs, partial indexes and triggers.

The tables are in tables.py and own_tables.py. From docs/design.md, Database contract:

- A time is UTC with three decimals; on SQLite it is text, so that any POS driver reads it.
- Money is NUMERIC(14, 4); on SQLite a NUMERIC is a double, exact after ROUND(x, 2).
- Keys and codes compare byte by byte, also on MariaDB, whose default collations ignore case.
- MariaDB and MySQL have computed columns in place of partial indexes. These are not part of the contract.
"""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import Any

from sqlalchemy import (
    DDL,
    BigInteger,
    CheckConstraint,
    Column,
    ColumnElement,
    Connection,
    CreateView,
    DateTime,
    Index,
    MetaData,
    Numeric,
    String,
    Table,
    Unicode,
    event,
    text,
)
from sqlalchemy import Dialect as Driver
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import CreateIndex, CreateTable
from sqlalchemy.sql.compiler import DDLCompiler, SQLCompiler
from sqlalchemy.sql.functions import GenericFunction
from sqlalchemy.sql.visitors import InternalTraversal
from sqlalchemy.types import TypeDecorator, TypeEngine

from orderbridge.model import Action, ActionState, text_of
from orderbridge.store.dialects import of
from orderbridge.store.dialects.face import Dialect

# ---- columns ---------------------------------------------------------------------------------------------------------

MONEY_DIGITS = 14
MONEY_DECIMALS = 4
WHOLE_DIGITS = 19
NAME_LENGTH = 255
KEY_LENGTH = 36
CODE_LENGTH = 64


def time_text(moment: datetime) -> str:
    """A moment in the format of SQLite's columns: UTC, `YYYY-MM-DD HH:MM:SS.mmm`."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(" ", "milliseconds")


def as_stored(moment: datetime) -> datetime:
    """A moment rounded as in a column: UTC, whole milliseconds."""
    utc = moment.astimezone(UTC)
    return utc.replace(microsecond=utc.microsecond // 1000 * 1000)


class Utc(TypeDecorator[datetime]):
    """A moment in UTC with three decimals; aware in Python."""

    impl = DateTime
    cache_ok = True

    def load_dialect_impl(self, dialect: Driver) -> TypeEngine[Any]:
        return of(dialect.name).time()  # a type_descriptor would lose the precision

    def process_bind_param(self, value: datetime | None, _: Driver) -> datetime | None:
        return None if value is None else as_stored(value).replace(tzinfo=None)

    def process_result_value(self, value: Any, _: Driver) -> datetime | None:
        # PyMySQL returns 0000-00-00 as text.
        return value.replace(tzinfo=UTC) if isinstance(value, datetime) else None


class Money(TypeDecorator[Decimal]):
    """An amount, exact to four decimals."""

    impl = Numeric
    cache_ok = True

    def load_dialect_impl(self, dialect: Driver) -> TypeEngine[Any]:
        return dialect.type_descriptor(of(dialect.name).money(MONEY_DIGITS, MONEY_DECIMALS))

    def process_result_value(self, value: Any, _: Driver) -> Decimal | None:
        if value is None:
            return None
        try:
            return round(Decimal(str(value)), MONEY_DECIMALS)
        except ArithmeticError:
            return None


class Whole(TypeDecorator[int]):
    """An integer that a POS writes. It is NUMERIC on servers, whose INTEGER would silently round 25.5.

    A CHECK refuses decimals. On SQLite it is INTEGER, with a CHECK of typeof.
    """

    impl = Numeric
    cache_ok = True

    def load_dialect_impl(self, dialect: Driver) -> TypeEngine[Any]:
        return dialect.type_descriptor(of(dialect.name).whole(WHOLE_DIGITS))

    def process_result_value(self, value: Any, _: Driver) -> int | None:
        # Another type, possible on SQLite without its CHECK, is kept: the outbox refuses the row.
        return int(value) if isinstance(value, Decimal) else value


class Text(TypeDecorator[str]):
    """A text with a binary collation; unbounded without a length."""

    impl = Unicode
    cache_ok = True

    def __init__(self, length: int | None = None) -> None:
        super().__init__(length)
        self.length = length

    def load_dialect_impl(self, dialect: Driver) -> TypeEngine[Any]:
        return dialect.type_descriptor(of(dialect.name).text(self.length))


class Big(BigInteger):
    """A 64-bit integer; INTEGER on SQLite, which an autoincremented primary key requires."""


@compiles(Big)
def _big(_: Big, compiler: SQLCompiler, **__: Any) -> str:
    return of(compiler.dialect.name).big


def payload_of(raw: bytes) -> str:
    """The text of a document without U+0000, which PostgreSQL refuses, and which ends a text in many SQLite drivers."""
    return text_of(raw).replace("\0", "\ufffd")


# Typed factories for Column, so that mypy knows the value types.
Texts = Callable[[], TypeEngine[str]]
utc: Callable[[], TypeEngine[datetime]] = Utc
money: Callable[[], TypeEngine[Decimal]] = Money
whole: Callable[[], TypeEngine[int]] = Whole
big: Callable[[], TypeEngine[int]] = Big
key: Texts = partial(Text, KEY_LENGTH)  # a UUID
code: Texts = partial(Text, CODE_LENGTH)  # our own: a state, a code, an account's name, a fingerprint
foreign_code: Texts = partial(Text, NAME_LENGTH)  # of the marketplace or the POS; cut like a name
name: Texts = partial(Unicode, NAME_LENGTH)  # cut at 255 characters
long_text: Texts = Text


class utc_now(GenericFunction[datetime]):  # noqa: N801 - a function of SQL
    """The server's clock, UTC, three decimals."""

    type = Utc()
    inherit_cache = True


class random_id(GenericFunction[str]):  # noqa: N801 - a function of SQL
    """A random key of at most 64 characters."""

    type = String()
    inherit_cache = True


@compiles(utc_now)
@compiles(random_id)
def _in_own_words(function: utc_now | random_id, compiler: SQLCompiler, **_: Any) -> str:
    return str(getattr(of(compiler.dialect.name), function.name))


# ---- tables ----------------------------------------------------------------------------------------------------------

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


# Options are added here, because naming a dialect in a table would load it, and all dialects take 4 MiB.
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


# On MariaDB a view that runs with its creator's rights would fail once that user is dropped.
@compiles(CreateView)
def _create_view(create: CreateView, compiler: DDLCompiler, **options: Any) -> str:
    view = of(compiler.dialect.name).view
    return str(compiler.visit_create_view(create, **options)).replace(" VIEW ", f" {view} ", 1)


class Written(ColumnElement[Any]):
    """A piece of SQL that differs between databases.

    The function that writes it is the key in SQLAlchemy's cache; without a key the statement would be compiled each
    time.
    """

    inherit_cache = True
    _traverse_internals = [("written", InternalTraversal.dp_plain_obj)]  # noqa: RUF012 - as in SQLAlchemy's own classes

    def __init__(self, written: Callable[[Dialect], str | None]) -> None:
        self.written = written


@compiles(Written)
def _write(element: Written, compiler: SQLCompiler, **_: Any) -> str:
    return str(element.written(of(compiler.dialect.name)))


def _on(wanted: Callable[[Dialect], object]) -> dict[str, Any]:
    """Arguments that limit a constraint or an index to some databases."""
    return {"callable_": lambda *_, dialect, **__: bool(wanted(of(dialect.name)))}


def check(condition: Condition, label: str) -> CheckConstraint:
    if isinstance(condition, str):
        return CheckConstraint(text(condition), name=label)
    return CheckConstraint(Written(condition), name=label).ddl_if(**_on(condition))


def check_words(column: str, words: type[Action] | type[ActionState]) -> CheckConstraint:
    """A CHECK that allows only these values."""
    listed = [str(word) for word in words]
    return check(lambda dialect: dialect.is_one_of(column, listed), f"{column}_known")


def check_integer(column: str) -> CheckConstraint:
    return check(lambda dialect: dialect.is_integer(column), f"{column}_integer")


def check_whole(column: str) -> CheckConstraint:
    """A CHECK for a 64-bit integer."""
    return check(lambda dialect: dialect.is_whole(column), f"{column}_integer")


def check_uuid(column: str) -> CheckConstraint:
    """A CHECK for a UUID in lower case, since an upper-case one would match no order."""
    return check(lambda dialect: dialect.is_uuid(column), f"{column}_uuid")


def serve(label: str, condition: str, column: Column[Any], *equal: Column[Any]) -> None:
    """A partial index; without partial indexes, one on the columns `equal` and the column."""
    index = Index(label, column, info={_WHERE: condition})
    index.ddl_if(**_on(lambda dialect: dialect.partial_indexes))
    if equal:
        Index(label, *equal, column).ddl_if(**_on(lambda dialect: not dialect.partial_indexes))


def index_where(label: str, condition: str, *columns: Column[Any]) -> None:
    """A partial index; without partial indexes, one of all rows."""
    Index(label, *columns, info={_WHERE: condition})


def after(table: Table, statements: Callable[[Dialect], Iterable[str]]) -> None:
    """Run DDL, which may differ between databases, after the table is created."""

    def run(_: Table, connection: Connection, **__: Any) -> None:
        execute(connection, statements(of(connection.dialect.name)))

    event.listen(table, "after_create", run)


def execute(connection: Connection, statements: Iterable[str]) -> None:
    """Execute DDL literally, including percent signs."""
    for statement in statements:
        connection.execute(DDL(statement.replace("%", "%%")))  # type: ignore[no-untyped-call]
