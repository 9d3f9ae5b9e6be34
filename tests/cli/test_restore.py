"""db restore, db replay and db confirm-restore: their output, and the database afterwards."""

import json
import os
import shutil
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from hashlib import sha256

import pytest
from tests.cli.setups import HOLD, LEAD, program
from tests.cli.shell import document
from tests.store.samples import opened, put_action

from orderbridge.model import Document
from orderbridge.store import backup, journal

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
    return one(pos, "SELECT older_since_utc FROM delivery_books") != (None,)


def test_a_replay_reports_each_order_and_ends_the_alarm(run, pos, folder):
    make_older(pos)
    put(folder, KEYS[0])
    put(folder, KEYS[1], at=NOW - timedelta(days=9))
    ended = run("db", "replay")
    found = ("taken_in" in ended.out, "may have been printed" in ended.out, "closed" in ended.err)
    assert (ended.code, found, is_older(pos)) == (0, (True, True, True), False)
    assert one(pos, "SELECT payment_key, pos_revision FROM delivery_new_orders") == (KEYS[0], 0)
    assert one(pos, "SELECT count(*) FROM delivery_orders") == (1,), "a day before the copy's end, no more"
    again = run("db", "replay", "--since", "2020-01-01", "--json").json
    sums = dict.fromkeys(("new", "updated", "left", "torn"), 0) | {"orders": 2, "ended": 1, "known": 1}
    assert (again["sums"], [one["fate"] for one in again["orders"]]) == (sums, ["taken_in_ended"])


def test_a_named_file_is_replayed_whole(run, pos, folder, tmp_path):
    make_older(pos)
    put(folder, KEYS[0], at=NOW - timedelta(days=9))
    (file,) = journal.files(folder)
    assert run("db", "replay", file.rename(tmp_path / "from a backup.jsonl")).code == 0
    assert one(pos, "SELECT count(*) FROM delivery_orders") == (1,)


def test_a_command_before_the_start_finds_what_the_daemon_would(run, pos, path, folder):
    """The copy's unsent rows may have been sent since; afterwards this cannot be found out."""
    word = {"database": "a", "generation": 9, "event": 9, "order_number": 9, "next_poll": None, "at": NOW.isoformat()}
    word |= {"accounts_version": 0, "accounts": {}, "paired": 0, "revoked": 0, "devices": []}
    path.with_name("pos.db.last-word").write_text(json.dumps(word))
    pos.execute("INSERT INTO delivery_books (id) VALUES ('a')")
    put_action(pos, payment_key=KEYS[0], created_utc="2026-01-01 00:00:00.000")
    put(folder, KEYS[0])
    ended = run("db", "replay")
    assert ended.code == 0 and "closed" in ended.err
    assert one(pos, "SELECT state, error_code FROM delivery_actions") == ("failed", "outcome_unknown")


def test_the_high_water_mark_does_not_follow_a_damaged_file(run, pos, path, folder):
    mark = path.with_name("pos.db.last-word")
    mark.write_text("{}")
    put(folder, KEYS[0])
    (page,) = one(pos, "SELECT rootpage FROM sqlite_master WHERE name = 'delivery_board_devices'")
    (size,) = one(pos, "PRAGMA page_size")
    pos.close()
    with path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"U" * size)
    ended = run("db", "replay")
    assert ended.code == 1 and "is damaged" in ended.err and mark.read_text() == "{}"


def test_a_document_left_over_keeps_the_alarm_open(run, pos, folder):
    make_older(pos)
    put(folder, KEYS[0])
    pos.execute("CREATE TRIGGER no BEFORE INSERT ON delivery_orders BEGIN SELECT raise(ABORT, 'not mine'); END")
    ended = run("db", "replay")
    assert ended.code == 1 and "refused" in ended.out and "run this again" in ended.err and is_older(pos) is True


def test_without_a_journal_the_remedy_is_named(run, pos, configure, folder):
    ended = run("db", "replay")
    assert ended.code == 1 and ended.out == "" and str(folder) in ended.err
    folder.write_text("no folder")
    assert "cannot be read" in run("db", "replay").err
    missing = run("db", "replay", folder.with_name("no.jsonl"))
    assert missing.code == 1 and "cannot be read" in missing.err


def test_confirm_restore_ends_the_alarm(run, pos):
    make_older(pos)
    assert "closed" in run("db", "confirm-restore").out
    assert not is_older(pos)
    ended = run("db", "confirm-restore")
    assert ended.code == 0 and "nothing to do" in ended.out


@pytest.fixture
def copy(template, tmp_path):
    (tmp_path / "other disk").mkdir()
    copy = tmp_path / "other disk" / "copy?.db"
    with closing(sqlite3.connect(template)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
        target.execute("INSERT INTO delivery_books (id) VALUES ('a')")
        target.commit()
    copy.chmod(0o400)
    return copy


def keys(path):
    with opened(path) as connection:
        return [key for (key,) in connection.execute("SELECT payment_key FROM delivery_orders ORDER BY 1")]


def beside(path):
    return sorted(one.name for one in path.parent.iterdir() if one.name.startswith(path.name))


SERVICE, ROOT = (12345, 12346), (0, 0)
OWNED = [  # the former file, its folder, and the restored file
    ((*SERVICE, 0o640), (*SERVICE, 0o700), (*SERVICE, 0o640)),
    (None, (*SERVICE, 0o700), (*SERVICE, 0o600)),
    (None, (*SERVICE, 0o2770), (*SERVICE, 0o660)),
    ((*ROOT, 0o600), (*SERVICE, 0o700), (*SERVICE, 0o600)),  # root has copied the former file back by `cp -p`
    ((*SERVICE, 0o660), (0, SERVICE[1], 0o2775), (*SERVICE, 0o660)),
    ((*ROOT, 0o600), (*ROOT, 0o755), (*ROOT, 0o600)),
]


def give(path, uid, gid, mode):
    os.chown(path, uid, gid)
    path.chmod(mode)


def owner(path):
    return path.stat().st_uid, path.stat().st_gid


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")
@pytest.mark.parametrize("former, folder, restored", OWNED)
def test_a_restored_file_belongs_to_the_services_user(former, folder, restored, command, template, copy, tmp_path):
    place = tmp_path / "state"
    place.mkdir()
    path, config = place / "pos.db", tmp_path / "own.toml"
    config.write_text(document(database=f'url = "sqlite:///{path}"'), "utf-8")
    if former is not None:
        give(shutil.copy(template, path), *former)
    give(place, *folder)
    ended = command("db", "restore", copy, "--config", config)
    assert ended.code == 0, ended
    assert (*owner(path), path.stat().st_mode & 0o777) == restored
    replaced = {one for one in place.iterdir() if ".replaced-" in one.name}
    assert {owner(one) for one in {*place.iterdir()} - {path} - replaced} <= {folder[:2], restored[:2]}
    assert len(replaced) == (former is not None)


def test_a_restore_reads_the_journal_and_reports_what_is_left(run, template, path, folder, copy):
    shutil.copy(template, path)
    path.with_name("pos.db-wal").write_bytes(b"the newest orders")
    before = path.read_bytes()
    put(folder, KEYS[0])
    ended = run("db", "restore", copy)
    assert ended.code == 0, ended
    assert keys(path) == [KEYS[0]]
    (former,) = path.parent.glob("pos.db.replaced-*")
    found = {one.name: one.read_bytes() for one in former.iterdir()}
    assert found == {"pos.db": before, "pos.db-wal": b"the newest orders"} and str(former) in ended.out
    assert ended.out.index("taken_in") < ended.out.index("no right is missing") < ended.out.index("confirm-restore")
    assert keys(copy) == [], "the copy stays as it is"


TILL = HOLD.replace("BEGIN IMMEDIATE", "SELECT * FROM delivery_orders")  # and has the file open
WORKS = {"pos.db-shm", "pos.db-wal"}


def refused(run, path, target, said):
    before, there = path.read_bytes(), set(beside(path)) - WORKS
    ended = run("db", "restore", target)
    assert ended.code != 0 and said in ended.err, ended.err
    assert (path.read_bytes(), set(beside(path)) - WORKS) == (before, there)


@pytest.mark.parametrize("other, said", [(LEAD, "systemctl stop"), (TILL, "open in another program")])
def test_nothing_is_restored_while_the_database_is_in_use(other, said, run, pos, path, copy):
    pos.close()
    with program(other, path):
        refused(run, path, copy, said)


def alter(copy, statement):
    with closing(sqlite3.connect(copy)) as connection, connection:
        connection.execute(statement)


VERSION = "UPDATE delivery_schema_version SET version_num = '{}'".format
SPOILT = {
    "text": (lambda copy: copy.write_text("CREATE TABLE delivery_orders;"), "not an intact copy"),
    "empty": (lambda copy: copy.write_bytes(b""), "not an intact copy"),
    "half": (lambda copy: copy.write_bytes(copy.read_bytes()[: copy.stat().st_size // 2]), "not an intact copy"),
    "another program's": (lambda copy: copy.unlink() or alter(copy, "CREATE TABLE sums (n)"), "not an intact copy"),
    "newer": (lambda copy: alter(copy, VERSION("0999")), "0999"),
    "nothing": (lambda copy: copy.unlink(), "does not exist"),
    "folder": (lambda copy: copy.unlink() or copy.mkdir(), "directory"),
}


@pytest.mark.parametrize("kind", SPOILT)
def test_only_a_valid_backup_is_restored(kind, run, pos, path, copy):
    spoil, message = SPOILT[kind]
    pos.close()
    refused(run, path, path, "Name the backup")
    copy.chmod(0o600)
    spoil(copy)
    refused(run, path, copy, message)


def test_a_failed_restore_puts_the_former_files_back(run, template, path, copy, monkeypatch):
    shutil.copy(template, path)
    before = path.read_bytes()

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(backup, "_give_name", fail)
    ended = run("db", "restore", copy)
    assert ended.code == 1 and "No space left" in ended.err
    assert (path.read_bytes(), beside(path)) == (before, ["pos.db"])


def test_a_copy_of_an_older_schema_stays_as_it_is(run, path, copy):
    """A person may return to an older version. Whichever version starts upgrades the tables."""
    copy.chmod(0o600)
    alter(copy, VERSION("0009"))
    ended = run("db", "restore", copy)
    assert ended.code == 0 and "then run `orderbridge db replay`" in ended.out, ended
    with opened(path) as connection:
        assert one(connection, "SELECT version_num FROM delivery_schema_version") == ("0009",)
