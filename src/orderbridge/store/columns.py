"""Column types and defaults that come out the same on every database (docs/design.md, Database contract).

Rules of this file:
- A time is UTC with three decimals; on SQLite it is text, so that any POS driver reads it.
- Money is NUMERIC(14, 4); on SQLite a NUMERIC is a double, exact after ROUND(x, 2).
- Keys and codes compare byte by byte, also on MariaDB, whose default collations ignore case.
"""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import BigInteger, DateTime, Dialect, Numeric, String, Unicode, UnicodeText
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

    def process_bind_param(self, value: int | None, _: Dialect) -> Any:
        return value

    def process_result_value(self, value: Any, _: Dialect) -> int | None:
        # What is no number, on SQLite without its CHECK, stays as it is: the outbox refuses it with a reason.
        return int(value) if isinstance(value, Decimal) else value


class Key(TypeDecorator[str]):
    """A short text that is compared byte by byte, everywhere."""

    impl = Unicode
    cache_ok = True

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.length = length

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(of(dialect.name).text(self.length))


class LongText(TypeDecorator[str]):
    """A text without a bound."""

    impl = UnicodeText
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(of(dialect.name).text(None))


class Big(BigInteger):
    """A 64-bit integer; on SQLite the word INTEGER, which alone can be a growing primary key."""


@compiles(Big)
def _big(_: Big, compiler: SQLCompiler, **__: Any) -> str:
    return of(compiler.dialect.name).big


def without_nul(payload: str) -> str:
    """A document as any database takes it: PostgreSQL refuses U+0000, and most drivers of SQLite end a text there."""
    return payload.replace("\0", "\ufffd")


def utc() -> TypeEngine[datetime]:
    """A moment in UTC with three decimals; aware in Python."""
    return Utc()


def money() -> TypeEngine[Decimal]:
    """An amount, exact to four decimals."""
    return Money()


def whole() -> TypeEngine[int]:
    """A whole number of 64 bits that a POS writes."""
    return Whole()


def key() -> TypeEngine[str]:
    """A UUID as text of 36 characters."""
    return Key(KEY_LENGTH)


def code() -> TypeEngine[str]:
    """A short word of ours: a state, a code, an account's name, a fingerprint."""
    return Key(CODE_LENGTH)


def foreign_code() -> TypeEngine[str]:
    """A code or id of the service or of the POS, whose length is theirs: cut at 255 characters like a name."""
    return Key(NAME_LENGTH)


def name() -> TypeEngine[str]:
    """A text that is cut at 255 characters."""
    return Unicode(NAME_LENGTH)


def text() -> TypeEngine[str]:
    """A text without a bound."""
    return LongText()


def big() -> TypeEngine[int]:
    """A 64-bit integer."""
    return Big()


class utc_now(GenericFunction[datetime]):  # noqa: N801 - a function of SQL
    """The server's clock, UTC, three decimals."""

    type = Utc()
    inherit_cache = True


class random_id(GenericFunction[str]):  # noqa: N801 - a function of SQL
    """A fresh random key of at most 64 characters."""

    type = String()
    inherit_cache = True


@compiles(utc_now)
def _utc_now(_: utc_now, compiler: SQLCompiler, **__: Any) -> str:
    return of(compiler.dialect.name).utc_now


@compiles(random_id)
def _random_id(_: random_id, compiler: SQLCompiler, **__: Any) -> str:
    return of(compiler.dialect.name).random_id
