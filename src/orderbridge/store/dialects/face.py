"""Defines `Dialect`, the interface that the module of each database implements.

These modules do not know orders and accounts: names of our tables are passed as arguments.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import URL, Connection, Engine, Numeric, String, UnicodeText
from sqlalchemy import Dialect as Driver
from sqlalchemy.types import TypeEngine

from orderbridge.errors import Message
from orderbridge.store.dialects.sqlite_file import SqliteFile

Wake = Callable[[], None]
Read = Callable[[Callable[[Connection], Any]], Any]  # runs a unit of work that only reads


READS: Mapping[str, Any] = {"orderbridge_read": True}


class TroubleKind(StrEnum):
    """Why the database cannot be written."""

    FULL = "full"
    READ_ONLY = "read_only"
    BUSY = "busy"
    FAILING = "failing"  # anything else


class Durable(NamedTuple):
    """`remedy`: why a commit may be lost, and what to change. `undone`: a setting of our session that was corrected."""

    remedy: Message | None
    undone: Message | None = None


class Failover(NamedTuple):
    """The effect of a failover on acknowledged orders. `is_safe`: none would be lost."""

    is_safe: bool
    message: Message  # also a key in `status --json`


class Violated(NamedTuple):
    """The subject of a constraint error, as far as known.

    `key`: the name of a unique key or, if the database does not give it, its columns ("table.column, table.column").
    `unfilled`: a NOT NULL column ("table.column") without a value.
    """

    key: str | None = None
    unfilled: str | None = None


def inserting(mark: str, table: str, columns: Sequence[str]) -> str:
    """An INSERT for executemany, with the driver's placeholder."""
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join([mark] * len(columns))})"  # noqa: S608


async def readable(descriptor: int, within_s: float) -> bool:
    """Wait until the descriptor is readable, without reading. Returns False after the timeout."""
    there = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(descriptor, there.set)
    try:
        async with asyncio.timeout(within_s):
            await there.wait()
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(descriptor)
    return True


def nothing(*_: object) -> None:
    """A default that does nothing."""


def no_ddl(*_: object) -> tuple[str, ...]:
    """A default without DDL."""
    return ()


Signs = frozenset[int | str]  # marks of an error: its number, its SQLSTATE, or a part of its text (with a space)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One database. Attributes with a default concern only one or two databases."""

    # ---- connections
    # A local file: one writing transaction at a time, a lock blocks all work, and times are from our clock.
    one_writer: bool
    reads: Mapping[str, Any] = field(default_factory=lambda: READS)  # execution options for reads
    # A provider may limit the number of queries: reads use sessions without transactions, and idle polling is rarer.
    asks_little: bool = False
    snapshot: Mapping[str, Any] = field(default_factory=lambda: READS)  # execution options for consistent reads
    options: Callable[[URL, float], dict[str, Any]]  # for create_engine, by address and busy timeout in seconds
    prepare: Callable[[Engine, float], None]  # sets up new connections and transactions
    file: Callable[[Engine, bool], SqliteFile | None] = nothing  # True: create a missing file
    check: Callable[[Connection], None] = nothing  # raises Unusable if it cannot store every order
    check_intact: Callable[[Engine, Collection[str], Read], None] = nothing  # raises StoreError for a damaged table
    # The missing right to create tables, and the statement that grants it.
    lacks: Callable[[Connection], tuple[str, str] | None] = nothing
    closed: Callable[[Engine], Path | None] = nothing  # the file, or one beside it, that this user cannot access

    # ---- errors
    busy: Signs  # another session holds a lock
    refused: Signs = frozenset()  # refused values, besides the driver's IntegrityError and DataError
    refuses: Callable[[Any], bool] = lambda *_: False  # whether it is a refused value by other properties
    # Errors of our own keys, sequences or guards that the driver reports as refused values.
    ours: Signs = frozenset()
    violated: Callable[[Any, str], Violated] = lambda *_: Violated()  # by the driver's error and the statement
    broken: Signs = frozenset()  # a missing object, usually named by a trigger of the POS
    full: Signs = frozenset()  # the disk is full
    read_only: Signs = frozenset()
    denied: Signs = frozenset()  # a missing right or a wrong password
    remedies: Mapping[int | str, str]  # sentences by a mark or a part of the error's text

    disk: Callable[[Engine], TroubleKind | None] = nothing  # a full or read-only disk, found without writing

    # ---- promises
    durability: Callable[[Connection], Durable]
    unsafe_is_refused: bool = False  # no configuration can accept lost commits
    failover: Callable[[Connection], Failover | None] = nothing  # None: there is no standby

    # ---- other sessions
    skips_locks: Callable[[Driver], bool]  # SELECT … FOR UPDATE SKIP LOCKED, by the server's version
    lead: Callable[[Connection], bool] | None  # take the leader lock for this session; None: the file's lock
    pooled: Callable[[URL, Mapping[str, Any]], bool] = lambda *_: False  # whether a pooler shares our sessions
    worker: Callable[[Connection], str | None] = nothing  # host and process of the daemon, if known
    schema_lock: Callable[[Connection, str], AbstractContextManager[bool]]  # one change of the schema at a time
    watch: Callable[[Engine, Wake], Coroutine[Any, Any, None]]  # called after commits of others
    # For a role and a schema or database: the grantee, the prefix of table names, and statements to grant first.
    grantee: Callable[[str, str | None], tuple[str, str, tuple[str, ...]] | None] = nothing
    make_role: str = ""  # with {name} and {password}; "": there are none
    drop_role: tuple[str, ...] = ()
    contents: str  # finds the names of all objects in the database
    arrays: bool = False  # a list can be one parameter, and data-modifying CTEs are supported
    schema_query: str | None = None  # finds the schema of our tables
    sequence: str = ""  # corrects a table's sequence, and returns a row if it was wrong
    # Shell commands to dump and restore: by address, file, and the tables and views.
    dump: Callable[[URL, str, Sequence[str]], tuple[str, str] | None] = nothing

    # ---- columns
    time: Callable[[], TypeEngine[Any]]  # UTC without a zone, three decimals
    money: Callable[[int, int], TypeEngine[Any]] = Numeric  # by its digits and decimals
    whole: Callable[[int], TypeEngine[Any]]  # an integer that a POS writes; a CHECK must see decimals
    # A text of at most this length (None: unbounded) with a binary collation.
    text: Callable[[int | None], TypeEngine[Any]] = lambda length: UnicodeText() if length is None else String(length)
    big: str = "BIGINT"  # 64 bits, for an autoincremented key
    utc_now: str
    checks_by_name: bool = False  # CHECKs are evaluated in the order of their names
    random_id: str

    # An INSERT for executemany in the driver's syntax; None: use SQLAlchemy's.
    insert_many: Callable[[Driver, str, Sequence[str]], str | None] = nothing

    # ---- tables
    table_options: Mapping[str, str] = field(default_factory=dict)
    is_one_of: Callable[[str, Sequence[str]], str] = lambda column, words: (
        f"{column} IN ({', '.join(map(repr, words))})"
    )
    # 1 to `most` characters.
    is_filled: Callable[[str, int], str] = lambda column, most: f"length({column}) BETWEEN 1 AND {most}"
    is_integer: Callable[[str], str | None] = nothing  # None: the type ensures it
    is_number: Callable[[str], str | None] = nothing
    is_whole: Callable[[str], str]
    is_uuid: Callable[[str], str]  # in lower case
    partial_indexes: bool
    computed: Callable[[str, Mapping[str, str]], tuple[str, ...]] = no_ddl  # columns in place of partial indexes
    view: str = "VIEW"  # the keyword, with the SQL security if needed
    # A trigger that refuses: name, table, event (`BEFORE UPDATE OF …`), condition, reason.
    refuse: Callable[[str, str, str, str, str], tuple[str, ...]] = no_ddl
    outside: str = ""  # the condition that a statement is not in one of our transactions
    guard: str | None = None  # the table whose row marks our transactions
    guards: tuple[str, ...] = ()  # DDL before all triggers that use it
    replaced: str = ""  # the condition that a row of delivery_actions has replaced another
    notify_changes: Callable[[str, str], tuple[str, ...]] = no_ddl  # wake the watch
