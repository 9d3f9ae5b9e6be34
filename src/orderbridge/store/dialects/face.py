"""What each database's file has to say: one `Dialect`, whole, or it cannot be made.

The file of a database knows nothing of orders and accounts: what concerns our tables comes as an argument.
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

Ring = Callable[[], None]
Read = Callable[[Callable[[Connection], Any]], Any]  # a unit of work that writes nothing, done


READS: Mapping[str, Any] = {"orderbridge_read": True}


class TroubleKind(StrEnum):
    """What keeps the database from taking our work."""

    FULL = "full"
    READ_ONLY = "read_only"
    BUSY = "busy"
    FAILING = "failing"  # anything else


class Durable(NamedTuple):
    """`remedy`: why a commit may be lost, and what to change. `undone`: what was wrong in our session and is set again."""

    remedy: Message | None
    undone: Message | None = None


class Failover(NamedTuple):
    """What one would do to acknowledged orders, and whether none is lost."""

    is_safe: bool
    said: Message  # the key of `status --json`, too


class Violated(NamedTuple):
    """What an error of values is about, as far as it says so.

    `key`: the name of a unique key, or where the database does not say it, the columns ("table.column, table.column").
    `unfilled`: a column ("table.column") that may not be NULL and was.
    """

    key: str | None = None
    unfilled: str | None = None


def inserting(mark: str, table: str, columns: Sequence[str]) -> str:
    """The statement that a driver takes many times over, with its mark for a value."""
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join([mark] * len(columns))})"  # noqa: S608


async def readable(descriptor: int, within_s: float) -> bool:
    """Whether there is something to read, as soon as there is; it is not read. False: the time is over.

    Without a thread, and without a clock that ticks meanwhile.
    """
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
    """Where there is nothing to do, or to say."""


def no_ddl(*_: object) -> tuple[str, ...]:
    """What this database does otherwise, or not at all."""
    return ()


Signs = frozenset[int | str]  # of an error: the server's number, an SQLSTATE, or words (with a space) of its text


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One database, from the first connection to the last index. What has a default is a matter of one or two of them."""

    # ---- connections
    extra: str | None  # by which pip installs its driver
    # A file of this machine: one transaction writes at a time, a lock concerns all work, and its times are ours.
    one_writer: bool
    reads: Mapping[str, Any] = field(default_factory=lambda: READS)  # execution options of what only reads
    # A provider may limit the questions of an hour: what only reads needs no COMMIT, in sessions of its own, and where
    # nothing goes on little is asked.
    asks_little: bool = False
    snapshot: Mapping[str, Any] = field(
        default_factory=lambda: READS
    )  # and of what has to see one moment in all it reads
    options: Callable[[URL, float], dict[str, Any]]  # for create_engine, by the address and the busy timeout in seconds
    prepare: Callable[[Engine, float], None]  # what each new connection and transaction begins with
    file: Callable[[Engine, bool], SqliteFile | None] = nothing  # and whether to make one that is not there
    check: Callable[[Connection], None] = nothing  # raises Unusable when it cannot hold every order
    check_intact: Callable[[Engine, Collection[str], Read], None] = nothing  # raises StoreError for a damaged table
    # The right to make tables, by name, and the statement that grants it, where this user has not got it.
    lacks: Callable[[Connection], tuple[str, str] | None] = nothing
    closed: Callable[[Engine], Path | None] = (
        nothing  # the file, or what belongs to it, that is there and not for this user
    )

    # ---- errors
    busy: Signs  # another session holds the database or a row: nothing is wrong with the work
    refused: Signs = frozenset()  # values that it does not take, beyond the driver's IntegrityError and DataError
    refuses: Callable[[Any], bool] = lambda *_: False  # whether the driver's error is one of those by what else it says
    # Of a key, a sequence or a guard of ours, although the driver calls it an error of values.
    ours: Signs = frozenset()
    violated: Callable[[Any, str], Violated] = lambda *_: Violated()  # by the driver's error and the statement
    broken: Signs = frozenset()  # something is named that is not there, as a rule by a trigger of the POS
    full: Signs = frozenset()  # no room is left
    read_only: Signs = frozenset()  # it can be read, and nothing can be written
    denied: Signs = frozenset()  # the user lacks a right, or the password is wrong
    remedies: Mapping[int | str, str]  # the sentence of what a technician can do, by a sign or any words of the error

    disk: Callable[[Engine], TroubleKind | None] = nothing  # what can be seen without writing: it is full, or read-only

    # ---- promises
    durability: Callable[[Connection], Durable]
    unsafe_is_refused: bool = False  # no setting accepts that commits get lost
    failover: Callable[[Connection], Failover | None] = nothing  # None: there is nothing to fail over to

    # ---- together with others
    skips_locks: Callable[[Driver], bool]  # SELECT … FOR UPDATE SKIP LOCKED, by the server's version
    lead: Callable[[Connection], bool] | None  # take the right to work, for this session; None: it is the file's lock
    pooled: Callable[[URL, Mapping[str, Any]], bool] = lambda *_: (
        False
    )  # by create_engine's options: a pooler shares our sessions
    worker: Callable[[Connection], str | None] = nothing  # who works on it: host and process, as far as is known
    schema_lock: Callable[[Connection, str], AbstractContextManager[bool]]  # one change of the schema at a time
    watch: Callable[[Engine, Ring], Coroutine[Any, Any, None]]  # ring after commits of others
    # By a role and a schema or database: whom GRANT names, what stands before a table's name, and what is granted first.
    grantee: Callable[[str, str | None], tuple[str, str, tuple[str, ...]] | None] = nothing
    arrays: bool = False  # a list of values is one parameter, and what writes may stand within a statement
    schema_query: str | None = None  # in which schema our tables are, where the address does not say it
    sequence: str = ""  # the statement that sets a table's sequence right, of one row where it was wrong
    # The commands that write these tables to a file and put them back: the address, the file, the tables and views.
    dump: Callable[[URL, str, Sequence[str]], tuple[str, str] | None] = nothing

    # ---- columns
    time: Callable[[], TypeEngine[Any]]  # UTC without a zone, three decimals
    money: Callable[[int, int], TypeEngine[Any]] = Numeric  # of so many digits and decimals
    whole: Callable[[int], TypeEngine[Any]]  # a whole number that a POS writes: decimals must be seen by a CHECK
    # Of at most so many characters, None: unbounded; compared byte by byte.
    text: Callable[[int | None], TypeEngine[Any]] = lambda length: UnicodeText() if length is None else String(length)
    big: str = "BIGINT"  # 64 bits; what can be a growing key
    utc_now: str
    checks_by_name: bool = False  # constraints are asked in the order of their names, not in that of the table
    random_id: str

    # Into a table, of many rows' columns, in the driver's own words; None: SQLAlchemy's way is the only one.
    insert_many: Callable[[Driver, str, Sequence[str]], str | None] = nothing

    # ---- tables
    table_options: Mapping[str, str] = field(default_factory=dict)
    is_one_of: Callable[[str, Sequence[str]], str] = lambda column, words: (
        f"{column} IN ({', '.join(map(repr, words))})"
    )
    # One character or more, at most so many.
    is_filled: Callable[[str, int], str] = lambda column, most: f"length({column}) BETWEEN 1 AND {most}"
    is_integer: Callable[[str], str | None] = nothing  # None: the type sees to it
    is_number: Callable[[str], str | None] = nothing
    is_whole: Callable[[str], str]
    is_uuid: Callable[[str], str]  # in lower case
    partial_indexes: bool
    computed: Callable[[str, Mapping[str, str]], tuple[str, ...]] = no_ddl  # columns in place of partial indexes
    view: str = "VIEW"  # the word, and with whose rights it is read
    # A trigger that refuses: its name, the table, the statement (`BEFORE UPDATE OF …`), the condition, why.
    refuse: Callable[[str, str, str, str, str], tuple[str, ...]] = no_ddl
    outside: str = ""  # the condition that a statement is in no transaction of ours
    guard: str | None = None  # the table whose row is open in our transactions
    guards: tuple[str, ...] = ()  # what is made before all triggers that ask it
    replaced: str = ""  # the condition that a row of delivery_actions has just taken another's place
    tell_changes: Callable[[str, str], tuple[str, ...]] = no_ddl  # wake the watch after INSERT, UPDATE of that column
