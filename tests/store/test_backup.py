"""The copy of a SQLite file: complete, of one moment, and never a partial file under its name."""

import os
import sqlite3
import stat
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.conftest import Disk
from tests.jobs.shop import raising
from tests.wording import says

from orderbridge.errors import StoreError
from orderbridge.store import backup


@pytest.fixture
def source(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A file in WAL mode that another program has open, with rows that are only in its -wal."""
    connection = sqlite3.connect(tmp_path / "pos.db", isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE sums (amount INTEGER)")
    connection.execute("INSERT INTO sums VALUES (1), (-1)")
    yield connection
    connection.close()


def amounts(path: Path) -> list[int]:
    with closing(sqlite3.connect(path)) as connection:
        return [amount for (amount,) in connection.execute("SELECT amount FROM sums")]


def copied(tmp_path: Path, name: str = "copy.db") -> Path:
    target = tmp_path / name
    assert backup.copy(tmp_path / "pos.db", target) == target.stat().st_size
    return target


def beside(path: Path) -> list[str]:
    return sorted(one.name for one in path.parent.iterdir() if one.name.startswith(path.name))


@pytest.mark.parametrize("has_links", [True, False], ids=["usual", "without hard links"])
def test_the_copy_has_the_rows_of_the_wal_and_only_its_owner_can_read_it(has_links, tmp_path, source, monkeypatch):
    if not has_links:
        monkeypatch.setattr(os, "link", raising(PermissionError(1, "Operation not permitted")))
    target = copied(tmp_path)
    assert (beside(target), stat.S_IMODE(target.stat().st_mode), amounts(target)) == (["copy.db"], 0o600, [1, -1])


def test_the_copy_shows_one_moment_and_blocks_no_writer(tmp_path: Path, source) -> None:
    source.execute("CREATE TABLE ballast (bytes BLOB)")
    source.execute("INSERT INTO ballast VALUES (zeroblob(20000000))")
    ended = threading.Event()
    written: list[int] = []

    def write() -> None:
        writer = sqlite3.connect(tmp_path / "pos.db", isolation_level=None, timeout=0)  # it does not wait
        while not ended.is_set():
            writer.execute("INSERT INTO sums VALUES (?), (?)", (len(written), -len(written)))
            written.append(1)
        writer.close()

    till = threading.Thread(target=write)
    till.start()
    try:
        while len(written) < 10 and till.is_alive():
            ended.wait(0.001)
        found = [amounts(copied(tmp_path, f"copy{number}.db")) for number in range(3)]
    finally:
        ended.set()
        till.join()
    assert len(written) > 10
    assert [sum(one) for one in found] == [0, 0, 0]
    assert len(found[0]) <= len(found[2]) <= len(amounts(tmp_path / "pos.db"))


@pytest.mark.parametrize("there", ["file", "link", "itself"])
def test_an_existing_file_is_never_overwritten(there: str, tmp_path: Path, source) -> None:
    target = tmp_path / ("pos.db" if there == "itself" else "copy.db")
    if there == "file":
        target.write_text("mine")
    elif there == "link":
        target.symlink_to(tmp_path / "nowhere")
    before = beside(target), target.lstat().st_ino
    with pytest.raises(StoreError, check=says("already exists")):
        backup.copy(tmp_path / "pos.db", target)
    assert (beside(target), target.lstat().st_ino) == before


def test_a_file_created_meanwhile_is_not_overwritten(tmp_path: Path, source, monkeypatch) -> None:
    fill = backup._fill

    def fill_late(one: Path, other: Path) -> None:
        fill(one, other)
        (tmp_path / "copy.db").write_text("mine")

    monkeypatch.setattr(backup, "_fill", fill_late)
    with pytest.raises(StoreError, check=says("already exists")):
        copied(tmp_path)
    assert ((tmp_path / "copy.db").read_text(), beside(tmp_path / "copy.db")) == ("mine", ["copy.db"])


def test_a_damaged_file_is_refused_and_no_copy_is_kept(tmp_path: Path, source) -> None:
    source.execute("CREATE TABLE more (bytes BLOB)")
    source.execute("INSERT INTO more VALUES (zeroblob(100000))")
    root = source.execute("SELECT rootpage FROM sqlite_master WHERE name = 'sums'").fetchone()[0]
    size = source.execute("PRAGMA page_size").fetchone()[0]
    source.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    source.close()
    with (tmp_path / "pos.db").open("r+b") as file:
        file.seek((root - 1) * size)
        file.write(b"\xa5" * size)
    with pytest.raises(StoreError, check=says(r"pos\.db is damaged")):
        copied(tmp_path)
    assert beside(tmp_path / "copy.db") == []


def test_a_copy_that_cannot_be_read_does_not_mean_damage(tmp_path: Path, source, monkeypatch) -> None:
    monkeypatch.setattr(backup, "_damage", lambda _: "Page 2: unable to get the page. error code=8458")
    with pytest.raises(StoreError, check=says("code=8458")) as caught:
        copied(tmp_path)
    assert caught.value.code == "backup.not_written"


def test_a_copy_removes_the_rest_of_a_killed_one_and_of_two_with_one_name_one_is_refused(
    tmp_path: Path, source
) -> None:
    target, partial = tmp_path / "copy.db", tmp_path / "copy.db.partial"
    partial.write_bytes(b"as one leaves it that was killed")
    with backup._ours(partial), pytest.raises(StoreError, check=says("Another backup is writing")):
        copied(tmp_path)
    assert (amounts(copied(tmp_path)), beside(target)) == ([1, -1], ["copy.db"])


def test_a_full_disk_leaves_no_half_file_and_a_read_only_folder_is_named(tmp_path: Path, source, disk: Disk) -> None:
    source.execute("CREATE TABLE ballast (bytes BLOB)")
    source.execute("INSERT INTO ballast VALUES (zeroblob(9000000))")
    with pytest.raises(StoreError, check=says("Make room")):
        backup.copy(tmp_path / "pos.db", disk.place / "copy.db")
    assert list(disk.place.iterdir()) == []
    disk.mount("remount,ro")
    with pytest.raises(StoreError, check=says("name a folder that this user may write to")):
        backup.copy(tmp_path / "pos.db", disk.place / "copy.db")
