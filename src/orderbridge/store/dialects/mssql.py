"""SQL Server, by pymssql. Nothing here ran on one: what would be sent to it is kept in tests/store/mssql, to be read."""

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

from sqlalchemy import URL, Engine, Numeric, Unicode
from sqlalchemy.types import TypeEngine

from orderbridge.store.dialects import servers
from orderbridge.store.dialects.face import (
    Dialect,
    Durable,
    Granting,
    never,
    no_watch,
)


def _options(_: URL, __: float) -> dict[str, Any]:
    return dict(servers.OPTIONS)


def _prepare(engine: Engine, _: float) -> None:
    servers.prepare_sessions(engine, f"SET LOCK_TIMEOUT {servers.LOCK_TIMEOUT_S * 1000}")


def _grants(role: str, _: str | None, on_tables: Granting) -> tuple[str, ...]:
    note = "-- SQL Server grants INSERT on whole tables only."
    closed = role.replace("]", "]]")
    return (note, *on_tables(f"[{closed}]", "", insert_columns=False))


def _time() -> TypeEngine[Any]:
    from sqlalchemy.dialects.mssql import DATETIME2  # noqa: PLC0415 - a dialect's own types cost a tenth of a start

    return DATETIME2(precision=3)  # type: ignore[no-untyped-call]


def _text(length: int | None) -> TypeEngine[Any]:
    from sqlalchemy.dialects.mssql import NVARCHAR  # noqa: PLC0415 - as above

    # NVARCHAR(max); NTEXT cannot be compared, and is deprecated.
    return NVARCHAR() if length is None else Unicode(length, collation="Latin1_General_BIN2")


def _is_uuid(column: str) -> str:
    like = "-".join("[0-9a-f]" * part for part in servers.UUID_PARTS)
    return f"{column} IS NULL OR {column} LIKE '{like}'"


def _computed(table: str, columns: Mapping[str, str]) -> tuple[str, ...]:
    added = ", ".join(f"{name} AS ({expression}) PERSISTED" for name, expression in columns.items())
    return (f"ALTER TABLE {table} ADD {added}",)


DIALECT = Dialect(
    extra="mssql",
    one_writer=False,
    options=_options,
    prepare=_prepare,
    busy=frozenset({1205}),
    full=frozenset({1105, 9002}),
    read_only=frozenset({3906}),
    remedies={1105: servers.FULL},
    durability=lambda _: Durable(None),
    skips_locks=never,  # it would leave the words out without saying so
    lead=lambda _: True,
    schema_lock=lambda *_: nullcontext(True),
    watch=no_watch,
    grants=_grants,
    time=_time,
    whole=lambda digits: Numeric(digits + 2, 2),
    text=_text,
    utc_now="SYSUTCDATETIME()",
    random_id="CONVERT(nvarchar(36), NEWID())",
    is_filled=lambda column, most: f"len({column}) BETWEEN 1 AND {most}",
    is_whole=servers.is_whole,
    is_uuid=_is_uuid,
    partial_indexes=True,
    comparing_indexes=False,
    computed=_computed,
)
