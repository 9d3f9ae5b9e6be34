"""The SQLite file: whether it is still the one at its path, and how its locks are kept."""

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

import pytest
from sqlalchemy import Connection, text
from tests.databases import SQLITE, only
from tests.store.samples import opened
from tests.store.test_sessions import note
from tests.wording import says

from orderbridge.errors import FileLost, StoreError, Unusable
from orderbridge.store.database import Database
from orderbridge.store.leader import LeaderLock

pytestmark = only(SQLITE)
# Locks a file and says so, until it is killed.
HOLDS = "import fcntl, sys; f = open(sys.argv[1], 'a'); fcntl.flock(f, 2); print(flush=True); sys.stdin.read()"


def beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def replace(path: Path) -> None:
    other = beside(path, "-new")
    other.write_bytes(path.read_bytes())
    other.replace(path)


LOST = {
    "removed": Path.unlink,
    "moved while": lambda path: path.rename(beside(path, "-old")),
    "replaced by a copy of itself": replace,
    "its -wal removed": lambda path: beside(path, "-wal").unlink(),
    "its -wal replaced": lambda path: replace(beside(path, "-wal")),
    "its -shm removed": lambda path: beside(path, "-shm").unlink(),
}


def forget(connection: Connection) -> None:
    connection.execute(text("DELETE FROM delivery_cancel_reasons"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_a_folder_that_this_user_may_not_enter_is_named(path: Path, kind: str):
    os.seteuid(65534)
    try:
        with pytest.raises(StoreError, check=says(f"may not enter {path.parent}")):
            Database(f"sqlite:///{path}")
    finally:
        os.seteuid(0)


def test_no_file_is_created_beside_a_wal_without_its_file(path: Path, database: Database):
    """SQLite would delete the -wal, and with it every order since the last checkpoint."""
    database.write_now(note)
    path.rename(beside(path, "-old"))
    kept = beside(path, "-wal").read_bytes()
    with pytest.raises(Unusable, check=says("Put the file back beside it")):
        Database(f"sqlite:///{path}")
    assert not path.exists()
    assert beside(path, "-wal").read_bytes() == kept
    beside(path, "-old").rename(path)
    with opened(path) as pos:
        assert len(pos.execute("SELECT * FROM delivery_cancel_reasons WHERE id = 100").fetchall()) == 1


@pytest.mark.parametrize("how", LOST)
def test_nothing_is_written_to_a_file_that_is_no_longer_at_its_path(how: str, path: Path, database: Database):
    database.write_now(forget)
    LOST[how](path)
    done: list[bool] = []
    with pytest.raises(FileLost, check=says("Restore a file only while orderbridge and the POS are stopped")):
        database.write_now(lambda _: done.append(True))
    assert done == []
    if how == "moved while":
        assert not path.exists(), "no new one is made"
        beside(path, "-old").rename(path)
        database.write_now(note)


@pytest.mark.parametrize("how", LOST)
@pytest.mark.parametrize("is_write", [True, False], ids=["commit", "read"])
def test_a_transaction_fails_if_the_file_was_lost_during_it(is_write: bool, how: str, path: Path, database: Database):
    def work(connection: Connection) -> None:
        if is_write:
            note(connection)
        LOST[how](path)

    database.write_now(forget)
    with pytest.raises(FileLost):
        (database.write_now if is_write else database.read_now)(work)


def test_a_checkpoint_a_vacuum_and_other_programs_are_not_a_lost_file(path: Path, database: Database):
    database.write_now(note)
    for statement in ("PRAGMA wal_checkpoint(TRUNCATE)", "VACUUM", "DELETE FROM delivery_cancel_reasons"):
        elsewhere(path, statement)
        assert database.read_now(lambda tx: tx.exec_driver_sql("SELECT 1").scalar()) == 1
    database.write_now(note)
    database.engine.dispose()  # the last connection removes -wal and -shm, and new ones are made
    database.write_now(forget)


def elsewhere(path: Path, statement: str) -> None:
    """Execute a statement in another process, which closes the file at its end."""
    script = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.isolation_level = None; c.execute(sys.argv[2])"
    subprocess.run([sys.executable, "-c", script, path, statement], check=True)


def test_opening_the_file_twice_releases_no_lock(path: Path, url: str, database: Database):
    """A reload does so. Without the lock, a till that closes the file would remove the -wal in use."""
    first = Database(url, inline=True)
    first.write_now(forget)
    database.engine.dispose()
    Database(url, inline=True).close()
    elsewhere(path, "SELECT 1")
    first.write_now(note)
    assert beside(path, "-wal").exists()
    elsewhere(path, "UPDATE delivery_cancel_reasons SET reason = 'seen'")
    read = text("SELECT reason FROM delivery_cancel_reasons")
    assert first.read_now(lambda tx: tx.execute(read).scalar()) == "seen"
    first.write_now(forget)
    first.close()


def test_many_reloads_leave_no_descriptor_behind(path: Path, database: Database):
    before = open_descriptors(path.parent)
    for name in ["pos.db", "own.db"] * 10:
        other = Database(f"sqlite:///{path.with_name(name)}", inline=True)
        assert other.read_now(lambda tx: tx.exec_driver_sql("SELECT 1").scalar()) == 1
        other.close()
        other.close()
    assert open_descriptors(path.parent) == before


def open_descriptors(folder: Path) -> list[str]:
    """The open descriptors of this folder. Those of earlier tests are closed at any garbage collection."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the descriptor of the listing itself
            found.append(str(descriptor.readlink()))
    return sorted(name for name in found if name.startswith(str(folder)))


def test_asking_whether_a_daemon_works_blocks_none(path: Path, database: Database):
    assert database.is_unattended()
    with subprocess.Popen([sys.executable, "-c", HOLDS, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as daemon:
        assert daemon.stdout is not None
        daemon.stdout.readline()
        assert not database.is_unattended()
        daemon.kill()
    assert database.is_unattended()
    lock = LeaderLock(database)
    assert lock.take()
    assert not database.is_unattended(), "of its own process, too"
    with closing(sqlite3.connect(path)) as till, till:
        till.execute("BEGIN IMMEDIATE")
        till.execute("COMMIT")
    elsewhere(path, "BEGIN IMMEDIATE")  # the lock stops no till
    lock.close()
    assert database.is_unattended()


def test_a_daemon_that_waits_on_a_lost_file_does_not_become_its_leader(path: Path, database: Database):
    lock = LeaderLock(database)
    shutil.move(path, beside(path, "-old"))
    with pytest.raises(FileLost):
        lock.take()
    shutil.move(beside(path, "-old"), path)
    assert lock.take()
    lock.close()
