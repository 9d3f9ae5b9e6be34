"""A SQLite file that was overwritten in place is detected; SQLite's own writes are not (dialects.sqlite_file)."""

import contextlib
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.wording import says

from orderbridge.errors import FileLost, Unusable
from orderbridge.store.database import Database, open_database
from orderbridge.store.dialects import sqlite_file
from orderbridge.store.dialects.sqlite_checks import refuse_overwritten

Till = sqlite3.Connection


@pytest.fixture
def database(path: Path) -> Iterator[Database]:
    database = open_database(f"sqlite:///{path}", inline=True)
    add(database, 300)
    yield database
    database.close()


@pytest.fixture
def till(database: Database, path: Path) -> Iterator[Till]:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as till:
        yield till


def add(database: Database, rows: int = 1) -> None:
    def work(connection) -> None:
        connection.exec_driver_sql("CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, x TEXT)")
        for _ in range(rows):
            connection.exec_driver_sql("INSERT INTO t (x) VALUES (?)", ("x" * 500,))

    database.write_now(work)


def by_sqlite(till: Till, copy: Path) -> None:
    with contextlib.closing(sqlite3.connect(copy)) as target:
        till.backup(target)


def by_vacuum(till: Till, copy: Path) -> None:
    till.execute(f"VACUUM INTO '{copy}'")


def by_cp(till: Till, copy: Path) -> None:
    till.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copyfile(till.execute("PRAGMA database_list").fetchone()[2], copy)


def checkpoint(till: Till) -> None:
    till.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


@pytest.mark.parametrize("is_copied_since", [False, True], ids=["nothing copied since", "a checkpoint since"])
@pytest.mark.parametrize("how", [by_sqlite, by_vacuum, by_cp])
def test_overwriting_the_file_counts_as_a_lost_file(database, till, path, how, is_copied_since):
    copy = path.with_name("copy.db")
    how(till, copy)
    database.check_file()
    add(database, 50)
    if is_copied_since:
        checkpoint(till)
    database.check_file()
    if how is by_cp and not is_copied_since:
        return  # the same bytes as before, since all later changes are in the -wal
    shutil.copyfile(copy, path)
    with pytest.raises(FileLost, check=says("overwrote")):
        add(database)
    log = path.with_name("pos.db-wal").read_bytes()
    database.close()
    till.close()
    assert path.with_name("pos.db-wal").read_bytes() == log, "the newest orders are in it"
    with pytest.raises(Unusable, check=says("move")):
        refuse_overwritten(str(path))
    path.with_name("pos.db-wal").rename(path.with_name("away"))
    refuse_overwritten(str(path))


@pytest.mark.parametrize("how", ["emptied", "an older one"])
def test_overwriting_its_wal_counts_as_a_lost_file(database, till, path, how):
    """SQLite would continue behind the gap, and at the next checkpoint copy the gap into the file."""
    log, older = path.with_name("pos.db-wal"), path.with_name("older")
    shutil.copyfile(log, older)
    till.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    add(database)
    database.check_file()
    shutil.copyfile("/dev/null" if how == "emptied" else older, log)
    with pytest.raises(FileLost, check=says("overwrote")):
        add(database)
    till.close()
    database.close()
    with pytest.raises(Unusable, check=says("move")):
        refuse_overwritten(str(path))
    with contextlib.closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as reader:  # without its -wal
        assert reader.execute("SELECT count(*) FROM t").fetchone() == (300,)


def reads_meanwhile(till: Till) -> None:
    till.execute("BEGIN")
    till.execute("SELECT count(*) FROM t").fetchone()


LEGAL: dict[str, Callable[[Till], object]] = {
    "a checkpoint": checkpoint,
    "a -wal that begins anew": lambda till: till.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall(),
    "a VACUUM": lambda till: till.execute("VACUUM"),
    "a reader that stays": reads_meanwhile,
    "a till's own rows": lambda till: till.execute("INSERT INTO t (x) SELECT x FROM t LIMIT 50"),
    "deleted rows": lambda till: till.execute("DELETE FROM t WHERE id % 3 = 0"),
    "a table of the POS": lambda till: till.execute("CREATE TABLE IF NOT EXISTS own (x)"),
    "a change of times alone": lambda till: Path(till.execute("PRAGMA database_list").fetchone()[2]).touch(),
}


@pytest.mark.parametrize("what", LEGAL)
def test_sqlites_own_writes_are_not_a_lost_file(database: Database, till: Till, what: str):
    for step in (what, "a VACUUM", what, "a -wal that begins anew", what):
        with contextlib.suppress(sqlite3.OperationalError):  # a VACUUM within a transaction
            LEGAL[step](till)
        database.check_file()
        if till.in_transaction:
            till.execute("COMMIT")
        add(database, 3)
        checkpoint(till)
        database.check_file()


def test_a_new_wal_between_two_reads_of_one_check_is_not_a_lost_file(database, till, path, monkeypatch):
    def then_changed(read):
        def reading(descriptor: int):
            found = read(descriptor)
            while changes:
                till.execute(changes.pop(0)).fetchall()
            return found

        return reading

    till.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
    os.utime(path, (1, 1))  # a file of just now would be compared again
    database.check_file()
    changes = ["UPDATE t SET x = 'y'", "PRAGMA wal_checkpoint(RESTART)", "INSERT INTO t (x) VALUES ('z')"]
    for name in ("_key", "_state"):
        monkeypatch.setattr(sqlite_file, name, then_changed(getattr(sqlite_file, name)))
    for _ in range(3):
        database.check_file()
