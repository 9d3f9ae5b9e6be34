"""The tables in which the daemon keeps what it knows of itself: open problems, its sign of life, how far the books go.

A till reads the view delivery_alarms over them.
"""

from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    CreateView,
    Integer,
    Table,
    TypedColumns,
    literal_column,
    select,
    union_all,
)
from sqlalchemy import text as literal_text

from orderbridge.store.columns import big, code, foreign_code, utc, utc_now
from orderbridge.store.columns import text as long_text
from orderbridge.store.ddl import metadata

problems = Table(
    "delivery_problems",
    metadata,
    Column("code", code(), primary_key=True),
    Column("subject", foreign_code(), primary_key=True),
    Column("account", code()),
    Column("severity", code(), nullable=False),
    Column("level", Integer, nullable=False),
    Column("since_utc", utc()),
    Column("how_many", Integer, nullable=False),
    Column("cause", long_text(), nullable=False),
    Column("remedy", long_text(), nullable=False),
    Column("facts", long_text(), nullable=False),
    Column("told", Integer, nullable=False),
    Column("noted_utc", utc(), nullable=False),
)


class _Daemon(TypedColumns):
    id = Column(Integer, primary_key=True, autoincrement=False)
    seen_utc = Column(utc(), nullable=False)
    silent_from_utc = Column(utc(), nullable=False)
    cause = Column(long_text(), nullable=False)
    remedy = Column(long_text(), nullable=False)


daemon = Table("delivery_daemon", metadata, _Daemon)


class _Books(TypedColumns):
    id = Column(code(), primary_key=True)
    older_since_utc = Column(utc())
    last_known_utc = Column(utc())
    missing = Column(Integer)
    missing_numbers = Column(code())
    generation = Column(big(), nullable=False, server_default=literal_text("0"))


books = Table("delivery_books", metadata, _Books)


class _Lamps(TypedColumns):
    account = Column(code(), primary_key=True)
    lamp = Column(code(), nullable=False)
    since_utc = Column(utc(), nullable=False)
    code = Column(code())
    sentence = Column(long_text(), nullable=False)
    remedy = Column(long_text())


lamps = Table("delivery_lamps", metadata, _Lamps)

# What is wrong now. Once the daemon's sign of life is overdue, what it wrote says nothing: nobody polls, and that is all.
_SHOWN = ("code", "subject", "account", "severity", "level", "since_utc", "how_many", "cause", "remedy")
_lives = select(daemon.c.id).where(daemon.c.silent_from_utc >= utc_now()).exists()
_silence: list[ColumnElement[Any]] = [
    *(literal_column(word) for word in ("'not_polling'", "''", "NULL", "'severe'", "1")),
    daemon.c.seen_utc,
    literal_column("1"),
    daemon.c.cause,
    daemon.c.remedy,
]
alarms = CreateView(
    union_all(
        select(*(problems.c[name] for name in _SHOWN)).where(_lives),
        select(*_silence).where(daemon.c.silent_from_utc < utc_now()),
    ),
    "delivery_alarms",
    metadata=metadata,
).table

# The same for each account, as one lamp.
_dark: list[ColumnElement[Any]] = [
    lamps.c.account,
    literal_column("'red'"),
    daemon.c.seen_utc,
    literal_column("'not_polling'"),
    daemon.c.cause,
    daemon.c.remedy,
]
lamp = CreateView(
    union_all(
        select(lamps).where(_lives),
        select(*_dark).select_from(lamps.join(daemon, daemon.c.silent_from_utc < utc_now())),
    ),
    "delivery_lamp",
    metadata=metadata,
).table
