"""docs/examples/shell/pos.sh, run on a SQLite file with one new order."""

import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from tests.store.samples import KEY, in_its_place, put_order

from orderbridge.store import schema
from orderbridge.store.database import Database

SCRIPT = Path(__file__).parents[2] / "docs" / "examples" / "shell" / "pos.sh"

pytestmark = pytest.mark.skipif(shutil.which("sqlite3") is None, reason="not installed: sqlite3")


def test_it_takes_an_order_over_prints_it_and_accepts_it(tmp_path: Path) -> None:
    path = tmp_path / "pos.db"
    database = Database(f"sqlite:///{path}", inline=True)
    database.write_now(schema.upgrade)
    database.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as pos:
        with in_its_place(pos):
            put_order(pos, order_number=1042)
        with subprocess.Popen(["sh", SCRIPT, path], stdout=subprocess.PIPE, text=True) as till:
            assert till.stdout is not None
            printed = till.stdout.readline().strip() or till.stdout.readline().strip()  # the first line is empty
            asked = "SELECT action, payment_key, preparing_time, created_by FROM delivery_actions"
            while not (rows := pos.execute(asked).fetchall()):
                assert till.poll() is None
            till.kill()
        assert printed == "SH-1042"
        assert rows == [("accept", KEY, 25, "SH")]
        assert pos.execute("SELECT pos_revision, pos_reference FROM delivery_orders").fetchall() == [(1, "SH-1042")]
