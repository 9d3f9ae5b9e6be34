"""Database, which connects the async jobs with blocking drivers, on real files."""

import asyncio
import contextlib
import itertools
import os
import queue
import re
import sqlite3
import stat
import sys
import threading
import traceback
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import Connection, event, make_url, select, text
from sqlalchemy.exc import DatabaseError, DBAPIError, IntegrityError, OperationalError
from tests.databases import MARIADB, POSTGRESQL, SERVERS, SQLITE, only, own_database
from tests.store.samples import KEY, OTHER, TWICE, Pos, key, opened, order_row, put_order, rows

from orderbridge.config.addresses import database_address
from orderbridge.errors import Fenced, StoreError
from orderbridge.store import tables, workers
from orderbridge.store.database import Database, open_database
from orderbridge.store.dialects import sqlite, sqlite_checks
from orderbridge.store.failures import is_broken, is_busy
from orderbridge.texts import sentence

WITHIN_S = 60.0
NOTE = "acısız 🌶, ğüşiöç"
UNREAD = "*** in database main *** Page 2: unable to get the page. error code="
CORRUPT = DatabaseError("PRAGMA", None, sqlite3.DatabaseError("database disk image is malformed"))
SESSION = {
    SQLITE: {"PRAGMA journal_mode": "wal", "PRAGMA synchronous": 2, "PRAGMA foreign_keys": 1},
    POSTGRESQL: {
        "SHOW transaction_isolation": "read committed", "SHOW lock_timeout": "2s", "SHOW synchronous_commit": "on",
    },
    MARIADB: {
        "SELECT @@tx_isolation": "READ-COMMITTED", "SELECT @@innodb_lock_wait_timeout": 2,
        "SELECT @@lock_wait_timeout": 2, "SELECT @@time_zone": "+00:00", "SELECT @@character_set_connection": "utf8mb4",
    },
}  # fmt: skip


@pytest.fixture
async def threaded(database: Database, url: str) -> AsyncIterator[Database]:
    threaded = Database(url)
    yield threaded
    await asyncio.to_thread(threaded.close)


@pytest.fixture(params=["threads", "inline"])
def either(request: pytest.FixtureRequest, database: Database, url: str) -> Iterator[Database]:
    either = Database(url, inline=request.param == "inline")
    yield either
    either.close()


def insert(connection: Connection, payment_key: str = KEY) -> str:
    at = "'2026-03-01 12:00:00.250'"
    columns = "payment_key, account, status, received_utc, changed_utc"
    row = f"INSERT INTO delivery_orders ({columns}) VALUES ('{payment_key}', 'kadikoy', 'RECEIVED', {at}, {at})"
    connection.exec_driver_sql(row)
    return payment_key


def count(connection: Connection) -> int:
    return connection.execute(text("SELECT count(*) FROM delivery_orders")).scalar_one()


def orders(connection: Connection) -> list[str]:
    return list(connection.scalars(select(tables.orders.c.payment_key)))


async def test_work_is_committed_when_it_returns_and_rolled_back_whole_when_it_raises(either, pos):
    def work(connection: Connection) -> None:
        insert(connection, OTHER)
        raise LookupError("no")

    with pytest.raises(LookupError, match="no"):
        await either.run(work)
    assert rows(pos, "SELECT * FROM delivery_orders") == []
    assert await either.run(insert) == KEY  # the worker is still alive
    assert order_row(pos)["payment_key"] == KEY
    with pytest.raises(IntegrityError, match=TWICE) as caught:
        await either.run(insert)
    assert not is_busy(caught.value)
    with pytest.raises(DBAPIError, match=r"no such table|does not exist|doesn't exist") as caught:
        await either.read(lambda tx: tx.execute(text("SELECT :name FROM nowhere"), {"name": "Ayşe"}))
    assert "Ayşe" not in str(caught.value)
    assert await either.read(count) == 1


def closed(_: Connection) -> None:
    raise Fenced("fleet.fenced")


async def test_the_fence_is_checked_first_in_each_writing_transaction(either: Database):
    asked: list[list[str]] = []
    either.fence = lambda connection: asked.append(orders(connection))
    await either.run(insert)
    assert (await either.read(orders), asked) == ([KEY], [[]])
    either.fence = closed
    with pytest.raises(Fenced, match=r"fleet\.fenced"):
        await either.run(lambda tx: insert(tx, OTHER))
    assert await either.read(orders) == [KEY]


class Gate:
    """Work that occupies a worker until the gate is opened."""

    def __init__(self) -> None:
        self.entered, self.opened = threading.Event(), threading.Event()

    def __call__(self, _: Connection) -> None:
        self.entered.set()
        assert self.opened.wait(WITHIN_S)

    async def hold(self, database: Database) -> asyncio.Task[None]:
        task = asyncio.create_task(database.run(self))
        assert await asyncio.to_thread(self.entered.wait, WITHIN_S)
        return task


async def submit(database: Database, work: Any, **how: bool) -> asyncio.Task[Any]:
    """A task after its first step, so that its work is in the queue."""
    task = asyncio.create_task(database.run(work, **how))
    await asyncio.sleep(0)
    return task


def holds(waiting: queue.Queue[Any], number: int) -> bool:
    """Whether this amount of work is in a queue whose worker is busy."""
    with waiting.not_empty:
        return waiting.not_empty.wait_for(lambda: waiting._qsize() >= number, WITHIN_S)


@only(SQLITE)  # one worker, so that the order can be seen
async def test_urgent_work_goes_first_and_work_of_a_cancelled_caller_is_still_done(threaded):
    errors: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    gate, done = Gate(), []
    tasks = [await gate.hold(threaded)]
    for name, urgent in [("first", False), ("second", False), ("verdict", True), ("third", False), ("last", True)]:
        tasks.append(await submit(threaded, lambda _, name=name: done.append(name), urgent=urgent))
    tasks[2].cancel()
    gate.opened.set()
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert await threaded.run(count) == 0
    assert done == ["verdict", "last", "first", "second", "third"]
    assert ([type(end) for end in ends if end], errors) == ([asyncio.CancelledError], [])


@pytest.mark.parametrize("hangs", [False, True])
async def test_the_close_waits_only_briefly_for_an_abandoned_thread(hangs: bool, monkeypatch):
    """The interpreter would abort on one in the middle of an import; one that waits for a silent server is left."""
    monkeypatch.setattr(workers, "SETTLE_WITHIN_S", 0.05 if hangs else 30.0)
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        may_end.wait(30.0)
        ended.set()

    waiting = asyncio.create_task(workers.detached(work))
    await asyncio.to_thread(begun.wait, 30.0)
    waiting.cancel()
    if not hangs:
        threading.Timer(0.05, may_end.set).start()
    await asyncio.to_thread(workers.settle)
    assert ended.is_set() is not hangs
    may_end.set()


async def test_closing_waits_for_what_was_submitted_and_ends_the_threads(url, database, pos):
    before = set(threading.enumerate())
    closing = Database(url)
    made = set(threading.enumerate()) - before
    assert made
    gate = Gate()
    held = await gate.hold(closing)
    last = await submit(closing, insert)
    close = asyncio.create_task(asyncio.to_thread(closing.close))
    assert closing._writers is not None
    stays = 2 if len(closing._writers._threads) == 1 else 1  # other threads do the submitted work, and end
    assert await asyncio.to_thread(holds, closing._writers._queue, stays)
    gate.opened.set()
    await asyncio.gather(held, last, close)
    assert order_row(pos)["payment_key"] == KEY
    assert not made & set(threading.enumerate())


async def test_closing_does_not_wait_for_ever_for_a_server_that_does_not_answer(url, database, monkeypatch):
    monkeypatch.setattr(workers, "CLOSE_WITHIN_S", 0.01)
    closing = Database(url)
    closed: list[object] = []
    event.listen(closing.engine.pool, "close", lambda connection, _: closed.append(connection))
    gate = Gate()
    held = await gate.hold(closing)
    closing.close()
    assert not held.done()
    closed.clear()
    gate.opened.set()
    await held
    assert len(closed) == 1, "its connection is not left to the garbage collector"


def test_closing_waits_for_one_thread_as_long_as_for_all_of_them(monkeypatch):
    waited: list[float] = []
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "join", lambda _, timeout: waited.append(timeout))
        workers.Workers(4, "db-test").close()
    assert min(waited) > workers.CLOSE_WITHIN_S / 2


def test_a_result_that_arrives_after_the_loop_is_closed_is_closed():
    go_on, unwanted = threading.Event(), []

    async def leave() -> None:
        task = asyncio.create_task(workers.detached(lambda: go_on.wait() and "opened", unwanted=unwanted.append))
        await asyncio.sleep(0)
        task.cancel()

    before = set(threading.enumerate())
    asyncio.run(leave())
    (left,) = (thread for thread in set(threading.enumerate()) - before if thread.name == "db-detached")
    go_on.set()
    left.join(WITHIN_S)
    assert unwanted == ["opened"]


@only(SQLITE)
def test_a_second_writer_waits_at_the_begin_of_its_transaction(path, database, pos):
    quick = Database(f"sqlite:///{path}", inline=True, busy_timeout_s=0.05)
    began: list[str] = []
    pos.execute("BEGIN IMMEDIATE")
    with pytest.raises(OperationalError, match="database is locked") as caught:
        quick.write_now(lambda _: began.append("the work"))
    assert began == []
    assert is_busy(caught.value)
    assert quick.read_now(count) == 0  # reading goes on
    pos.execute("ROLLBACK")
    assert quick.write_now(insert) == KEY
    quick.close()


@only(SQLITE)
def test_a_row_against_a_check_and_a_lock_are_not_damage(url, database, pos):
    pos.execute("PRAGMA ignore_check_constraints = ON")
    pos.execute("INSERT INTO delivery_actions (action, food_id) VALUES ('dance', 1)")
    database.check_intact()
    with pytest.raises(IntegrityError, match="CHECK"):  # our own sessions still check it
        database.write_now(lambda tx: tx.exec_driver_sql("INSERT INTO delivery_actions (action) VALUES ('sing')"))
    database.close()
    pos.execute("PRAGMA locking_mode = EXCLUSIVE")
    pos.execute("BEGIN IMMEDIATE")
    waiting = Database(url, busy_timeout_s=0, inline=True)
    with pytest.raises(OperationalError, match="locked"):
        waiting.check_intact()
    waiting.close()


@only(SQLITE)
@pytest.mark.parametrize("checks, error", [
    ([f"{UNREAD}8458"], "unreadable"), ([f"{UNREAD}11", f"{UNREAD}11"], "damaged"), ([CORRUPT, CORRUPT], "damaged"),
    ([CORRUPT, None], ""), (["Page 2: never used", f"{UNREAD}266"], "unreadable"),
])  # fmt: skip
def test_a_read_error_is_not_reported_as_damage(checks, error, database):
    def read(_: object) -> str | None:
        if isinstance(found := checks.pop(0), Exception):
            raise found
        return found

    with pytest.raises(StoreError, check=lambda e: e.code == f"database.{error}") if error else nullcontext():
        sqlite_checks.check_intact(database.engine, (), read)
    assert checks == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files for others")
def test_a_new_file_gets_the_owner_of_its_folder_and_a_private_mode(tmp_path):
    """A command run by root leaves no file that the daemon cannot use. An existing file keeps its owner."""
    for number, (mask, mode) in enumerate([(0o000, 0o660), (0o022, 0o640), (0o077, 0o600), (0o007, 0o660)]):
        (folder := tmp_path / str(number)).mkdir(0o777)
        os.chown(folder, 12345, 12346)
        for owner in (12345, 54321):
            before = os.umask(mask)
            try:
                made = open_database(f"sqlite:///{folder}/new.db", inline=True)
                made.write_now(lambda tx: tx.exec_driver_sql("CREATE TABLE IF NOT EXISTS t (a INTEGER)"))
                found = {file.name: file.stat() for file in folder.iterdir()}
                made.close()
            finally:
                os.umask(before)
            assert found.keys() == {"new.db", "new.db-wal", "new.db-shm"}
            owned = {(one.st_uid, one.st_gid, stat.S_IMODE(one.st_mode)) for one in found.values()}
            assert owned == {(owner, 12346, mode)}
            os.chown(folder / "new.db", 54321, 12346)


def test_a_file_switches_to_wal_mode_beside_a_program_that_writes(tmp_path, monkeypatch):
    url = f"sqlite:///{tmp_path}/new.db"
    with opened(tmp_path / "new.db") as pos:
        pos.execute("CREATE TABLE t (a INTEGER)")
        pos.execute("BEGIN IMMEDIATE")
        assert "Another program holds the database" in remedy(url, busy_timeout_s=0.0)
        assert pos.execute("PRAGMA journal_mode").fetchone()[0] == "delete"
        monkeypatch.setattr("time.sleep", lambda _: pos.execute("COMMIT"))
        open_database(url, inline=True).close()
        assert pos.execute("SELECT * FROM t").fetchall() == []
        assert pos.execute("PRAGMA journal_mode").fetchone()[0] == "wal"


def test_the_error_of_a_server_that_does_not_answer_shows_no_password():
    for address in (
        "postgresql+psycopg://u:hunter22@127.0.0.1:1/d",
        "postgresql+psycopg://u@127.0.0.1:1/d?password=hunter22&sslpassword=hunter22",
        "postgresql+psycopg://u:x@hunter22@127.0.0.1:1/d",
        "postgresql+psycopg://u@127.0.0.1:1/d?passwrd=hunter22",  # a parameter that the driver does not know
        "mysql+pymysql://u@127.0.0.1:1/d?password=hunter22",
        "mysql+pymysql://u:hunter%2222@127.0.0.1:1/d",
    ):
        with pytest.raises(StoreError) as caught:
            open_database(database_address(address), inline=True)
        assert "hunter" not in "".join(traceback.format_exception(caught.value))
        assert "host, port, user and password" in sentence(caught.value) or "passwrd" in address


async def test_a_session_has_the_settings_that_the_store_needs(kind, threaded):
    def ask(connection: Connection) -> dict[str, Any]:
        return {question: connection.exec_driver_sql(question).scalar() for question in SESSION[kind]}

    assert await threaded.run(ask) == await threaded.read(ask) == SESSION[kind]


@pytest.mark.postgresql
def test_a_postgresql_database_that_is_not_utf8_is_refused(postgresql_server):
    options = " ENCODING 'LATIN5' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
    with own_database(postgresql_server, f"obs_latin_{os.getpid()}", options) as url:
        assert re.search(r"LATIN5.*ENCODING 'UTF8'", remedy(url))


@only(*SERVERS)
def test_every_letter_is_kept_with_any_character_set_of_address_or_database(kind: str, request: pytest.FixtureRequest):
    utf8 = {POSTGRESQL: "", MARIADB: " CHARACTER SET utf8mb4"}[kind]
    with own_database(request.getfixturevalue(f"{kind}_server"), f"obs_letters_{os.getpid()}", utf8) as url:
        if kind == POSTGRESQL:
            with Pos.at(url) as pos:
                pos.execute(f"ALTER DATABASE {make_url(url).database} SET client_encoding = 'WIN1254'")
        else:
            assert "parameter that the driver does not know" in remedy(f"{url}?bogus=x")
        for address in [url] if kind == POSTGRESQL else [f"{url}?charset=utf8", f"{url}?charset=latin1"]:
            database = open_database(address, inline=True)
            for statement in ("DROP TABLE IF EXISTS notes", "CREATE TABLE notes (note TEXT)"):
                database.write_now(lambda tx, statement=statement: tx.exec_driver_sql(statement))
            database.write_now(lambda tx: tx.execute(text("INSERT INTO notes VALUES (:note)"), {"note": NOTE}))
            assert database.read_now(lambda tx: tx.exec_driver_sql("SELECT note FROM notes").scalar()) == NOTE
            database.close()


@only(*SERVERS)
@pytest.mark.parametrize("savepoint", [False, True])
def test_a_deadlock_is_a_busy_database(savepoint, database, url, pos):
    """Of two sessions that lock two rows in opposite order the server ends one. MariaDB's error names its savepoint."""
    for number in range(5):
        put_order(pos, key(number))
    ready = threading.Barrier(2, timeout=WITHIN_S)
    busy: list[tuple[bool, bool]] = []

    def take(first: str, second: str) -> None:
        def work(connection: Connection) -> None:
            connection.exec_driver_sql(f"UPDATE delivery_orders SET note = 'x' WHERE payment_key {first}")
            ready.wait()
            with connection.begin_nested() if savepoint else contextlib.nullcontext():
                connection.exec_driver_sql(f"UPDATE delivery_orders SET note = 'x' WHERE payment_key {second}")

        rival = Database(url, inline=True)
        try:
            rival.write_now(work)
        except DBAPIError as error:
            busy.append((is_busy(error), is_broken(error)))
        rival.close()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(take, (f"> '{key(0)}'", f"= '{key(0)}'"), (f"= '{key(0)}'", f"= '{key(1)}'")))
    assert set(busy) == {(True, False)}


def remedy(url: str, **how: Any) -> str:
    with pytest.raises(StoreError) as caught:
        open_database(url, inline=True, **how).close()
    return sentence(caught.value)


def test_a_file_that_is_no_database_or_on_a_disk_without_wal_is_refused_and_closed(tmp_path):
    """SQLite's file access without locks fails in the same way as a network file system."""
    path = tmp_path / "menu.db"
    path.write_text("Adana Dürüm 110,25\n" * 100, "utf-8")
    error = remedy(f"sqlite:///{path}")
    for words in (f"sqlite:///{path} does not answer", "not a SQLite file", "database.url"):
        assert words in error
    assert path.read_text("utf-8").startswith("Adana")
    assert [file.name for file in tmp_path.iterdir()] == ["menu.db"]
    error = remedy(f"sqlite:///file:{tmp_path}/pos.db?vfs=unix-none&uri=true")
    assert re.search("cannot use WAL.*local disk", error)


@pytest.mark.parametrize("scheme", ["postgresql+psycopg", "mysql+pymysql", "mariadb+pymysql"])
def test_a_driver_that_is_not_installed_is_named_with_the_command_that_installs_it(scheme, monkeypatch):
    module = scheme.partition("+")[2]
    for name in [name for name in sys.modules if name == module or name.startswith(f"{module}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    error = remedy(f"{scheme}://pos:hunter22@db.example/pos")
    assert "pip install --require-hashes --no-deps -r requirements.lock" in error
    lock = (Path(__file__).parents[2] / "requirements.lock").read_text()
    assert re.search(rf"^{module}==", lock, re.MULTILINE)
    assert "hunter22" not in error


def test_an_address_that_cannot_be_read_comes_with_an_example():
    for url in ("", "nonsense", "pos.db", "nosuch://db.example/pos"):
        assert "Example: sqlite:///orderbridge.db" in remedy(url)


def test_a_bug_is_not_called_a_wrong_address(monkeypatch, tmp_path):
    monkeypatch.setattr(Database, "read_now", lambda *_: iter(None))
    with pytest.raises(TypeError, match="not iterable"):
        open_database(f"sqlite:///{tmp_path}/pos.db", inline=True)


def test_a_locked_file_is_tried_again_until_it_is_free(tmp_path, monkeypatch):
    """SQLite alone tries ten times a second, and rarely meets the pause of a till that writes all the time."""
    database = Database(f"sqlite:///{tmp_path}/pos.db", busy_timeout_s=1.0, inline=True)
    database.write_now(lambda tx: None)
    seconds = itertools.count(step=0.05)  # a slow machine, on which a try takes longer than the waits
    monkeypatch.setattr(sqlite, "SystemClock", lambda: SimpleNamespace(monotonic=lambda: next(seconds)))
    tries, execute = [], sqlite._execute_directly
    monkeypatch.setattr(sqlite, "_execute_directly", lambda tx, words: tries.append(words) or execute(tx, words))
    with opened(tmp_path / "pos.db") as till:
        till.execute("BEGIN IMMEDIATE")
        with pytest.raises(OperationalError, match="locked"):
            database.write_now(lambda tx: None)
        till.execute("ROLLBACK")
    database.close()
    assert tries.count("BEGIN IMMEDIATE") > 10


async def test_inline_work_runs_at_once_and_other_work_in_threads(database, threaded):
    before = set(threading.enumerate())  # one that an earlier test left may end meanwhile
    for does in (database.run, database.read):
        assert await does(lambda _: threading.current_thread()) is threading.current_thread()
    assert set(threading.enumerate()) <= before
    writer = await threaded.run(lambda _: threading.current_thread())
    reader = await threaded.read(lambda _: threading.current_thread())
    assert threading.current_thread() not in {writer, reader}
    if threaded.dialect.one_writer:
        assert writer is not reader
        assert await threaded.run(lambda _: threading.current_thread()) is writer
    gate = Gate()
    held = await gate.hold(threaded)
    assert await asyncio.wait_for(threaded.read(count), WITHIN_S) == 0, "it waits for no writer"
    gate.opened.set()
    await held
