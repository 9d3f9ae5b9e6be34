"""The demo plays orders through, from the marketplace to the till and back, and leaves a database behind."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from orderbridge_sandbox import demo


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "LONGEST_S", 300.0)


def test_every_order_ends_and_the_file_shows_it(tmp_path: Path) -> None:
    database, message = tmp_path / "demo.db", list[str]()
    assert demo.play(3, database, message.append) == 0, "\n".join(message)
    assert database.stat().st_mode & 0o007 == 0, "customers' data, private"
    with closing(sqlite3.connect(database)) as connection:
        statuses = connection.execute("SELECT status, pos_reference FROM delivery_orders ORDER BY pos_reference")
        done = "COMPLETE_WITH_PAYMENT"
        assert statuses.fetchall() == [(done, "A-1"), (done, "A-2"), ("CANCELED", "A-3")]
        verdicts = connection.execute("SELECT DISTINCT state, known_by FROM delivery_actions").fetchall()
        assert verdicts == [("done", "answer")]
        not_acknowledged = "SELECT count(*) FROM delivery_orders WHERE acknowledged_utc IS NULL"
        assert connection.execute(not_acknowledged).fetchone() == (0,)
    assert any("accept A-1, preparing_time 25" in line for line in message)
    demo.play(1, database, lambda _: None)
    with closing(sqlite3.connect(database)) as connection:
        assert connection.execute("SELECT count(*) FROM delivery_orders").fetchone() == (4,), "others than before"
