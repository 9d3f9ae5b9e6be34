"""Flushed data survive a power loss, in whichever way the disk loses the rest."""

import sqlite3
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from random import Random

import pytest
from tests.sim import vfs
from tests.sim.power import Disk
from tests.store.samples import key

from orderbridge.model import Document
from orderbridge.store import journal
from orderbridge.store.database import Database
from orderbridge.store.high_water import read_document, write_document

pytestmark = pytest.mark.skipif(bool(vfs.missing()), reason=vfs.missing())

NOW = datetime(2026, 3, 2, 9, tzinfo=UTC)
WAYS = 12
TABLE = "CREATE TABLE kept (number INTEGER)"
ROW = "INSERT INTO kept VALUES (1)"
ROWS = 5


@pytest.fixture
def left(tmp_path: Path):
    """What `look` finds after `work` and a power loss of each kind. What `work` opens is closed in between."""

    def left(work, look):
        found = []
        for way in range(WAYS):
            folder = tmp_path / str(way)
            folder.mkdir()
            disk = Disk(folder, Random(way))
            with disk.serving():
                with ExitStack() as opened:
                    work(folder, opened)
                    disk.cut()
                disk.put_back()
                found.append(look(folder))
        return found

    return left


def rows(folder: Path) -> int | None:
    with closing(sqlite3.connect(folder / "pos.db")) as again:
        try:
            return int(again.execute("SELECT count(*) FROM kept").fetchone()[0])
        except sqlite3.DatabaseError:
            return None


def test_a_commit_is_on_disk_before_the_wal_is_written_back(left):
    def work(folder, opened):
        database = opened.enter_context(closing(Database(f"sqlite:///{folder}/pos.db", inline=True)))
        for statement in (TABLE, *[ROW] * ROWS):
            database.write_now(lambda tx, statement=statement: tx.exec_driver_sql(statement))

    assert left(work, rows) == [ROWS] * WAYS


@pytest.mark.parametrize("synchronous", ["NORMAL", "OFF"])
def test_a_commit_that_is_not_flushed_is_lost(left, synchronous: str):
    """Otherwise the other tests would prove nothing."""

    def work(folder, opened):
        till = opened.enter_context(closing(sqlite3.connect(folder / "pos.db", isolation_level=None)))
        for statement in ("PRAGMA journal_mode = WAL", f"PRAGMA synchronous = {synchronous}", TABLE, *[ROW] * ROWS):
            till.execute(statement)

    assert set(left(work, rows)) - {ROWS}


def test_a_line_of_the_journal_is_on_disk_with_its_file_and_its_folder(left):
    raw = b'{"payment_key": "%s", "note": "%s"}' % (key(1).encode(), b"n" * 2000)
    order = Document(raw=raw, digest=sha256(raw).hexdigest(), payment_key=key(1), status_id=1)

    def read(folder):
        return [entry and journal.document(entry) for entry in journal.entries(journal.files(folder / "documents"))]

    def work(folder, _):
        for _ in range(2):
            journal.append(folder / "documents", [journal.line("kadikoy", order, NOW)], NOW)

    assert left(work, read) == [[raw, raw]] * WAYS


def test_the_mark_is_the_one_before_or_the_new_one_and_never_a_part_of_one(left):
    marks = [{"generation": number, "text": "x" * 2000} for number in range(3)]

    def work(folder, _):
        write_document(folder / "mark", marks[0])
        for mark in marks[1:]:
            write_document(folder / "mark", mark)

    found = left(work, lambda folder: read_document(folder / "mark") if (folder / "mark").exists() else marks[0])
    assert all(mark in marks for mark in found)
    assert len({mark["generation"] for mark in found}) > 1
