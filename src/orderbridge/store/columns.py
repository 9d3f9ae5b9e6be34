"""Column types and defaults that come out the same on every database (DESIGN: the database contract).

Rules of this file:
- A time is UTC with three decimals; on SQLite it is text, so that any POS driver reads it.
- Money is NUMERIC(14, 4); on SQLite a NUMERIC is a double, exact after ROUND(x, 2).
- Keys and codes compare byte by byte, also on MariaDB, whose default collations ignore case.
"""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import BigInteger, DateTime, Dialect, Integer, Numeric, String, Unicode, UnicodeText
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import GenericFunction
from sqlalchemy.types import TypeDecorator, TypeEngine, UserDefinedType

MONEY_DIGITS = 14
MONEY_DECIMALS = 4
WHOLE_DIGITS = 19
NAME_LENGTH = 255
KEY_LENGTH = 36
CODE_LENGTH = 64

_TIME_FORMAT = "%Y-%m-%d %H:%M:%S"


def time_text(moment: datetime) -> str:
    """A moment as our columns write it: UTC, `YYYY-MM-DD HH:MM:SS.mmm`."""
    utc = moment.astimezone(UTC)
    return f"{utc:{_TIME_FORMAT}}.{utc.microsecond // 1000:03d}"


def read_time(text: object) -> datetime | None:
    """The moment that a text of ours names; None for anything else, so that one bad cell harms only itself."""
    if not isinstance(text, str):
        return None
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:
        return None


class Utc(TypeDecorator[datetime]):
    """A moment in UTC with three decimals; aware in Python."""

    impl = DateTime
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        # A dialect's own types are imported where they are used: all of them together cost a tenth of a start.
        match dialect.name:
            case "sqlite":
                return dialect.type_descriptor(String(23))
            case "postgresql":
                from sqlalchemy.dialects.postgresql import TIMESTAMP  # noqa: PLC0415

                return TIMESTAMP(timezone=False, precision=3)  # a type_descriptor would forget the precision
            case "mysql" | "mariadb":
                from sqlalchemy.dialects.mysql import DATETIME  # noqa: PLC0415

                return DATETIME(fsp=3)
            case "mssql":
                from sqlalchemy.dialects.mssql import DATETIME2  # noqa: PLC0415

                return DATETIME2(precision=3)  # type: ignore[no-untyped-call]
            case _:
                return dialect.type_descriptor(DateTime())

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        if value is None:
            return None
        if dialect.name == "sqlite":
            return time_text(value)
        utc = value.astimezone(UTC).replace(tzinfo=None)
        return utc.replace(microsecond=utc.microsecond // 1000 * 1000)

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        if dialect.name == "sqlite":
            return read_time(value)
        # PyMySQL gives a time that is none, 0000-00-00, as text.
        return value.replace(tzinfo=UTC) if isinstance(value, datetime) else None


class _SqliteNumeric(UserDefinedType[Any]):
    """NUMERIC as SQLite understands it: an affinity. SQLAlchemy's own type would warn at every value."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return f"NUMERIC({MONEY_DIGITS}, {MONEY_DECIMALS})"


class Money(TypeDecorator[Decimal]):
    """An amount, exact to four decimals."""

    impl = Numeric
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if dialect.name == "sqlite":
            return dialect.type_descriptor(_SqliteNumeric())
        return dialect.type_descriptor(Numeric(MONEY_DIGITS, MONEY_DECIMALS))

    def process_bind_param(self, value: Decimal | None, dialect: Dialect) -> Any:
        # Text: the column's affinity turns it into the nearest number, without a float of ours in between.
        return str(value) if value is not None and dialect.name == "sqlite" else value

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
        match dialect.name:
            case "sqlite":
                return dialect.type_descriptor(Integer())
            case "postgresql":
                return dialect.type_descriptor(Numeric())  # keeps what is written, so that the CHECK sees it
            case _:
                return dialect.type_descriptor(Numeric(WHOLE_DIGITS + 2, 2))

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
        length = self.length
        match dialect.name:
            case "mysql" | "mariadb":
                from sqlalchemy.dialects.mysql import VARCHAR  # noqa: PLC0415 - see Utc

                return dialect.type_descriptor(VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin"))
            case "mssql":
                return dialect.type_descriptor(Unicode(length, collation="Latin1_General_BIN2"))
            case _:
                return dialect.type_descriptor(String(length))


class LongText(TypeDecorator[str]):
    """A text without a bound."""

    impl = UnicodeText
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if dialect.name in {"mysql", "mariadb"}:
            from sqlalchemy.dialects.mysql import LONGTEXT  # noqa: PLC0415 - see Utc

            return dialect.type_descriptor(LONGTEXT())
        if dialect.name == "mssql":
            from sqlalchemy.dialects.mssql import NVARCHAR  # noqa: PLC0415 - see Utc

            return dialect.type_descriptor(NVARCHAR())  # NVARCHAR(max); NTEXT cannot be compared, and is deprecated
        return dialect.type_descriptor(UnicodeText())


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
    """A 64-bit integer; on SQLite the word INTEGER, which alone can be a growing primary key."""
    return BigInteger().with_variant(Integer(), "sqlite")


class utc_now(GenericFunction[datetime]):  # noqa: N801 - a function of SQL
    """The server's clock, UTC, three decimals."""

    type = Utc()
    inherit_cache = True


class random_id(GenericFunction[str]):  # noqa: N801 - a function of SQL
    """A fresh random key of at most 64 characters."""

    type = String()
    inherit_cache = True


@compiles(utc_now, "sqlite")
def _utc_now_sqlite(*_: Any, **__: Any) -> str:
    return "strftime('%Y-%m-%d %H:%M:%f', 'now')"


@compiles(utc_now, "postgresql")
def _utc_now_postgresql(*_: Any, **__: Any) -> str:
    return "timezone('utc', clock_timestamp())"


@compiles(utc_now, "mysql", "mariadb")
def _utc_now_mysql(*_: Any, **__: Any) -> str:
    return "utc_timestamp(3)"


@compiles(utc_now, "mssql")
def _utc_now_mssql(*_: Any, **__: Any) -> str:
    return "SYSUTCDATETIME()"


@compiles(random_id, "sqlite")
def _random_id_sqlite(*_: Any, **__: Any) -> str:
    return "lower(hex(randomblob(16)))"


@compiles(random_id, "postgresql")
def _random_id_postgresql(*_: Any, **__: Any) -> str:
    return "CAST(gen_random_uuid() AS VARCHAR)"


@compiles(random_id, "mysql", "mariadb")
def _random_id_mysql(*_: Any, **__: Any) -> str:
    return "uuid()"


@compiles(random_id, "mssql")
def _random_id_mssql(*_: Any, **__: Any) -> str:
    return "CONVERT(nvarchar(36), NEWID())"
