"""Column types and defaults that come out the same on every database (docs/design.md, Database contract).

Rules of this file:
- A time is UTC with three decimals; on SQLite it is text, so that any POS driver reads it.
- Money is NUMERIC(14, 4); on SQLite a NUMERIC is a double, exact after ROUND(x, 2).
- Keys and codes compare byte by byte, also on MariaDB, whose default collations ignore case.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import Any

from sqlalchemy import BigInteger, DateTime, Dialect, Numeric, String, Unicode
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import GenericFunction
from sqlalchemy.types import TypeDecorator, TypeEngine

from orderbridge.store.dialects import of

MONEY_DIGITS = 14
MONEY_DECIMALS = 4
WHOLE_DIGITS = 19
NAME_LENGTH = 255
KEY_LENGTH = 36
CODE_LENGTH = 64


def time_text(moment: datetime) -> str:
    """A moment as SQLite's columns have it: UTC, `YYYY-MM-DD HH:MM:SS.mmm`."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(" ", "milliseconds")


def as_stored(moment: datetime) -> datetime:
    """A moment as it comes back from a column: UTC, whole milliseconds."""
    utc = moment.astimezone(UTC)
    return utc.replace(microsecond=utc.microsecond // 1000 * 1000)


class Utc(TypeDecorator[datetime]):
    """A moment in UTC with three decimals; aware in Python."""

    impl = DateTime
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return of(dialect.name).time()  # a type_descriptor would forget the precision

    def process_bind_param(self, value: datetime | None, _: Dialect) -> datetime | None:
        return None if value is None else as_stored(value).replace(tzinfo=None)

    def process_result_value(self, value: Any, _: Dialect) -> datetime | None:
        # PyMySQL gives a time that is none, 0000-00-00, as text.
        return value.replace(tzinfo=UTC) if isinstance(value, datetime) else None


class Money(TypeDecorator[Decimal]):
    """An amount, exact to four decimals."""

    impl = Numeric
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(of(dialect.name).money(MONEY_DIGITS, MONEY_DECIMALS))

    def process_result_value(self, value: Any, _: Dialect) -> Decimal | None:
        if value is None:
            return None
        try:
            return round(Decimal(str(value)), MONEY_DECIMALS)
        except ArithmeticError:
            return None


class Whole(TypeDecorator[int]):
    """A whole number that a POS writes. A server's INTEGER would round 25.5 without a word, and never say so.

    So it is NUMERIC there, and a CHECK refuses decimals; on SQLite it is INTEGER, and a CHECK asks for typeof.
    """

    impl = Numeric
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(of(dialect.name).whole(WHOLE_DIGITS))

    def process_result_value(self, value: Any, _: Dialect) -> int | None:
        # What is no number, on SQLite without its CHECK, stays as it is: the outbox refuses it with a reason.
        return int(value) if isinstance(value, Decimal) else value


class Text(TypeDecorator[str]):
    """A text that is compared byte by byte, everywhere; without a length unbounded."""

    impl = Unicode
    cache_ok = True

    def __init__(self, length: int | None = None) -> None:
        super().__init__(length)
        self.length = length

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(of(dialect.name).text(self.length))


class Big(BigInteger):
    """A 64-bit integer; on SQLite the word INTEGER, which alone can be a growing primary key."""


@compiles(Big)
def _big(_: Big, compiler: SQLCompiler, **__: Any) -> str:
    return of(compiler.dialect.name).big


def without_nul(payload: str) -> str:
    """A document as any database takes it: PostgreSQL refuses U+0000, and most drivers of SQLite end a text there."""
    return payload.replace("\0", "\ufffd")


# What a Column takes. By the classes themselves mypy would not know what the column holds.
Texts = Callable[[], TypeEngine[str]]
utc: Callable[[], TypeEngine[datetime]] = Utc
money: Callable[[], TypeEngine[Decimal]] = Money
whole: Callable[[], TypeEngine[int]] = Whole
big: Callable[[], TypeEngine[int]] = Big
key: Texts = partial(Text, KEY_LENGTH)  # a UUID
code: Texts = partial(Text, CODE_LENGTH)  # a short word of ours: a state, a code, an account's name, a fingerprint
foreign_code: Texts = partial(Text, NAME_LENGTH)  # of the service or the POS, whose length is theirs: cut like a name
name: Texts = partial(Unicode, NAME_LENGTH)  # cut at 255 characters
long_text: Texts = Text


class utc_now(GenericFunction[datetime]):  # noqa: N801 - a function of SQL
    """The server's clock, UTC, three decimals."""

    type = Utc()
    inherit_cache = True


class random_id(GenericFunction[str]):  # noqa: N801 - a function of SQL
    """A fresh random key of at most 64 characters."""

    type = String()
    inherit_cache = True


@compiles(utc_now)
@compiles(random_id)
def _in_own_words(function: utc_now | random_id, compiler: SQLCompiler, **_: Any) -> str:
    return str(getattr(of(compiler.dialect.name), function.name))
