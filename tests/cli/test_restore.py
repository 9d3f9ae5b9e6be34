"""db replay, db confirm-restore: what a technician sees, and what becomes of the database."""

import json
from datetime import UTC, datetime, timedelta
from hashlib import sha256

import pytest

from orderbridge.model import Document
from orderbridge.store import journal

KEYS = [f"00000000-0000-4000-8000-00000000000{number}" for number in range(3)]
NOW = datetime.now(UTC)


def put(folder, key, at=NOW, **more):
    raw = json.dumps({"id": 7, "payment_key": key, "status_id": 1, "foods": []} | more).encode()
    document = Document(raw=raw, digest=sha256(raw).hexdigest(), payment_key=key, status_id=1)
    journal.append(folder, [journal.line("kadikoy", document, at)], at)


@pytest.fixture
def folder(path):
    return path.with_name("pos.db.documents")


def make_older(pos):
    pos.execute(
        "INSERT INTO delivery_books (id, older_since_utc, last_known_utc, missing) VALUES ('a', ?, ?, 2)",
        (f"{NOW:%Y-%m-%d %H:%M:%S}.000", f"{NOW - timedelta(hours=1):%Y-%m-%d %H:%M:%S}.000"),
    )


def one(pos, sql):
    return tuple(pos.execute(sql).fetchone())


def is_older(pos):
    return pos.execute("SELECT older_since_utc FROM delivery_books").fetchone()[0] is not None


def test_a_replay_says_what_became_of_each_order_and_closes_the_alarm(run, pos, folder):
    make_older(pos)
    put(folder, KEYS[0])
    put(folder, KEYS[1], at=NOW - timedelta(days=9))
    ended = run("db", "replay")
    assert ended.code == 0
    assert "taken_in" in ended.out
    assert "may have been printed" in ended.out
    assert "closed" in ended.err
    assert not is_older(pos)
    found = pos.execute("SELECT payment_key, pos_revision FROM delivery_new_orders").fetchall()
    assert [tuple(row) for row in found] == [(KEYS[0], 0)]
    assert one(pos, "SELECT count(*) FROM delivery_orders") == (1,), "a day before the copy's end, no more"
    again = run("db", "replay", "--since", "2020-01-01", "--json")
    assert again.json["sums"] == {
        "orders": 2, "new": 0, "ended": 1, "updated": 0, "known": 1, "left": 0, "torn": 0
    }  # fmt: skip
    assert [one["fate"] for one in again.json["orders"]] == ["taken_in_ended"]


def test_before_the_daemon_starts_it_sees_what_the_daemon_would(run, pos, path, folder):
    """What the copy had still to send may have been sent: afterwards nobody could tell."""
    word = {"database": "a", "generation": 9, "event": 9, "order_number": 9, "next_poll": None, "at": NOW.isoformat()}
    word |= {"accounts_version": 0, "accounts": {}, "paired": 0, "revoked": 0, "devices": []}
    path.with_name("pos.db.last-word").write_text(json.dumps(word))
    pos.execute("INSERT INTO delivery_books (id) VALUES ('a')")
    columns = "action, payment_key, preparing_time, created_utc"
    pos.execute(
        f"INSERT INTO delivery_actions ({columns}) VALUES ('accept', ?, 20, '2026-01-01 00:00:00.000')", KEYS[:1]
    )
    put(folder, KEYS[0])
    ended = run("db", "replay")
    assert (ended.code, "closed" in ended.err) == (0, True)
    assert one(pos, "SELECT state, error_code FROM delivery_actions") == ("failed", "outcome_unknown")


def test_of_a_file_that_is_named_all_is_taken_in(run, pos, folder, tmp_path):
    put(folder, KEYS[0])
    (file,) = journal.files(folder)
    elsewhere = file.rename(tmp_path / "from a backup.jsonl")
    assert run("db", "replay", elsewhere).code == 0
    assert one(pos, "SELECT count(*) FROM delivery_orders") == (1,)


def test_what_is_not_taken_in_keeps_the_alarm_open(run, pos, folder):
    make_older(pos)
    put(folder, KEYS[0])
    pos.execute("CREATE TRIGGER no BEFORE INSERT ON delivery_orders BEGIN SELECT raise(ABORT, 'not mine'); END")
    ended = run("db", "replay")
    assert ended.code == 1
    assert "refused" in ended.out
    assert "once more" in ended.err
    assert is_older(pos)


def test_without_a_journal_the_remedy_is_said(run, pos, configure, folder):
    ended = run("db", "replay")
    assert (ended.code, ended.out) == (1, "")
    assert str(folder) in ended.err
    folder.write_text("no folder")
    assert "cannot be read" in run("db", "replay").err
    missing = run("db", "replay", folder.with_name("no.jsonl"))
    assert (missing.code, "cannot be read" in missing.err) == (1, True)


def test_a_person_who_has_looked_closes_the_alarm(run, pos):
    make_older(pos)
    assert "closed" in run("db", "confirm-restore").out
    assert not is_older(pos)
    ended = run("db", "confirm-restore")
    assert (ended.code, "nothing to do" in ended.out) == (0, True)
