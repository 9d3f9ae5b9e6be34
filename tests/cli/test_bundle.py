"""The support bundle leaks no planted value, from any column or log line, and works when other parts fail."""

import io
import itertools
import json
import re
import zipfile
from urllib.parse import quote

import pytest
from sqlalchemy import select
from tests.cli.shell import APP, REST
from tests.cli.test_looking import put_account
from tests.store.samples import KEY, NOW_TEXT, opened, put, put_action, put_order

from orderbridge.cli import bundle
from orderbridge.clock import SystemClock
from orderbridge.model import Action, ActionState, LastChange
from orderbridge.rules.lifecycle import STATUS_NAMES
from orderbridge.rules.problems import Code
from orderbridge.store import own_tables, tables
from orderbridge.store.database import Database

PERSONS = "Canan Kanarya|05551234567|+90 555 123 45 67|Serçe Sokak|zili çalmayın|sakaadres@posta.example".split("|")
PARTS = ("Canan", "Kanarya", "5551234567", "555 123", "Serçe", "Sokak", "çalmayın", "sakaadres")


def forms(word: str) -> set[str]:
    return {word, word.lower(), word.upper(), quote(word), json.dumps(word)[1:-1], word.encode("utf-8").hex()}


def opened_zip(data: bytes) -> dict[str, str]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


def leaked(data: bytes) -> list[str]:
    texts = opened_zip(data)
    whole = "\n".join([*texts, *texts.values()]).casefold()
    wanted = {form.casefold() for word in (*PARTS, APP, REST) for form in forms(word)}
    return sorted(form for form in wanted if form in whole)


@pytest.fixture
def planted(pos):
    """Write a person's data into every column that accepts text."""
    put_account(pos)
    words = itertools.cycle(PERSONS)
    customer = {"name": PERSONS[0], "phone": PERSONS[1]}
    payload = json.dumps({"customer": customer, PERSONS[3]: [PERSONS[4]], "note": PERSONS[2]})
    put_order(pos, KEY, problem="missing:foods", payload=payload)
    put(pos, "delivery_order_items", payment_key=KEY, line_no=1)
    put(pos, "delivery_order_item_options", payment_key=KEY, line_no=1, option_no=1)
    put(pos, "delivery_order_events", payment_key=KEY, at_utc=NOW_TEXT, event="received")
    row = put_action(pos, state="failed", finished_utc=NOW_TEXT)
    put(pos, "delivery_action_attempts", action_id=row, attempt=1, started_utc=NOW_TEXT)
    times = {"first_seen_utc": NOW_TEXT, "last_seen_utc": NOW_TEXT}
    put(pos, "delivery_quarantine", account="kadikoy", payload=payload, payload_hash="d", reason="not_json", **times)
    for trigger in pos.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        pos.execute(f"DROP TRIGGER {trigger['name']}")
    pos.execute("PRAGMA ignore_check_constraints = ON")
    kept = "payment_key fingerprint payload payload_hash state reason request_id problem account".split()
    for table in (t for t in tables.metadata.sorted_tables if not t.is_view):
        for column in table.columns:
            is_text = column.type.python_type is str and column.name not in kept
            if is_text and not column.name.endswith("_utc") and not column.primary_key:
                pos.execute(f"UPDATE {table.name} SET {column.name} = ?", (next(words),))
    pos.execute("UPDATE delivery_actions SET state = 'failed', request_id = ?", (PERSONS[0],))


@pytest.fixture
def log(tmp_path):
    file = tmp_path / "log.txt"
    lines = [f"2026-03-01T12:00:00Z [error] orders.polled account=cadde7 new=3 note={word}" for word in PERSONS]
    lines += [json.dumps({"event": "x", "phone": word, "deep": [word], word: 1}) for word in PERSONS]
    lines += [f"RuntimeError: {word} was not taken {APP} {REST}" for word in PERSONS]
    lines += [f'  File "/home/canan/{word}/orderbridge/cli/main.py", line 7, in main' for word in PERSONS]
    lines += ["canan.kanarya canan_kanarya Canan"]
    file.write_text("\n".join(lines), "utf-8")
    return file


def made(run, tmp_path, *arguments: object) -> bytes:
    file = tmp_path / "bundle.zip"
    assert (run("support-bundle", file, *arguments).code, file.stat().st_mode & 0o777) == (0, 0o600)
    return file.read_bytes()


def test_no_customer_and_no_secret_is_in_the_bundle(run, configure, tmp_path, planted, log, pos):
    data = made(run, tmp_path, "--order", KEY, "--log", log)
    texts = opened_zip(data)
    told, log_text = json.loads(texts[f"orders/{KEY}.json"]), texts["log.txt"]
    assert {"about.json", "configuration.json", "status.json", "schema.json"} <= texts.keys()
    assert (leaked(data), told["order"]["payload"]["customer"]) == ([], {"name": "text(13)", "phone": "text(11)"})
    assert (told["order"]["account"], told["order"]["problem"]) == ("kadikoy", "missing:foods")
    assert told["actions"][0]["action"] == "accept"
    assert "2026-03-01T12:00:00Z [error] orders.polled account=*** new=3\n" in log_text
    assert [words for words in ("orderbridge/cli/main.py:7 main", "\nRuntimeError\n") if words not in log_text] == []


def test_what_opens_the_board_is_not_in_the_bundle(run, tmp_path, planted, path):
    """No code, no cookie, no hash of either and no tablet's name, even if an order's history or the log has it."""
    devices = pytest.importorskip("orderbridge_board.devices")
    queries = pytest.importorskip("orderbridge_board.queries")
    database, now = Database(f"sqlite:///{path}"), SystemClock().now()
    try:
        code = database.write_now(lambda tx: devices.new_code(tx, devices.ACT, now))
        cookie = database.write_now(lambda tx: devices.pair(tx, code, "Kanarya Tezgah", now))
        waiting = database.write_now(lambda tx: devices.new_code(tx, devices.ACT, now))
        database.write_now(lambda tx: queries.silence(tx, ["cancelled:Kanarya"], "Kanarya Tezgah", now))
        (device,) = database.read_now(devices.listed)
        both = (select(own_tables.devices), select(own_tables.pairing))
        kept = database.read_now(lambda tx: [row for asked in both for row in tx.execute(asked)])
    finally:
        database.close()
    with opened(path) as pos:
        pos.execute("UPDATE delivery_actions SET created_by = 'Kanarya Tezgah'")
    log = tmp_path / "log.txt"
    log.write_text(f"2026-03-01T12:00:00Z [info] x device=Kanarya cookie={cookie}\n")
    data = made(run, tmp_path, "--order", KEY, "--log", log)
    assert leaked(data) == []
    whole = "\n".join(opened_zip(data).values())
    secrets = {code, cookie, waiting, device["id"], kept[0].cookie_hash, *(row.code_hash for row in kept[1:])}
    assert (len(secrets), [one for one in secrets if one in whole]) == (6, [])
    assert "delivery_board_devices" in whole  # the schema names the tables


def test_a_bundle_is_made_without_a_database_or_a_configuration_and_says_so(run, command, tmp_path, path, log):
    texts = opened_zip(made(run, tmp_path, "--log", log))
    assert {"log.txt", "configuration.json"} <= texts.keys()
    assert {"status.json", "schema.json"} <= set(json.loads(texts["about.json"])["missing"])
    path.write_bytes(b"Canan Kanarya" * 1000)
    (tmp_path / "bundle.zip").unlink()
    assert leaked(made(run, tmp_path, "--log", log)) == []
    file = tmp_path / "another.zip"
    assert command("support-bundle", file, "--log", log, "--config", tmp_path / "none.toml").code == 0
    assert "configuration.json" in json.loads(opened_zip(file.read_bytes())["about.json"])["missing"]


def test_no_file_is_overwritten_and_on_a_full_disk_none_is_left_half(run, tmp_path, monkeypatch, pos):
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    (tmp_path / "bundle.zip").write_text("mine")
    ended = run("support-bundle", tmp_path / "bundle.zip")
    assert ended.code == 1 and "not overwritten" in ended.err and (tmp_path / "bundle.zip").read_text() == "mine"
    (tmp_path / "link.zip").symlink_to(tmp_path / "elsewhere")
    assert (run("support-bundle", tmp_path / "link.zip").code, (tmp_path / "elsewhere").exists()) == (1, False)
    monkeypatch.setattr("orderbridge.cli.bundle.os.fsync", full)
    ended = run("support-bundle", tmp_path / "half.zip")
    assert ended.code == 1 and "No space left on device" in ended.err and "`-`" in ended.err
    assert not (tmp_path / "half.zip").exists()


@pytest.mark.parametrize("said", [
    "0555 123 45 67", "daire 7", "call=05551234567 seconds=5551234567", "x=Canan reason='Canan Kanarya'",
    "canan.kanarya", '{"event": "Canan Kanarya", "error": "Canan", "code": "Canan", "canan": 1}',
    '{"event": ["canan.kanarya"], "level": "Canan", "time": "Canan", "account": "canan"}',
    "[info ] canan.kanarya@posta.example account=canan",
    '{"deep": ["a code=canan b"], "Reason2": "x reason=canan", "error": ["canan"]}',
])  # fmt: skip
def test_only_listed_fields_of_a_log_line_are_kept(said):
    shown = bundle.log_line(said, {"kadikoy"})
    assert ("***" in shown, {"555", "7", "canan"} & set(re.findall(r"[^\W_]+", shown.casefold()))) == (True, set())


AT, FACTS = "2026-03-01T12:00:00.250Z", "account=kadikoy code=login_refused seconds=2.5"
AS_JSON = {"account": "kadikoy", "code": "login_refused", "seconds": 2.5, "cause": "It is refused."}
FORMS = {
    "console": f"{AT} [warning  ] problem.began             {FACTS} remedy='Check the \"key\"'",
    "journal": f"{AT} host orderbridge[7]: event=problem.began {FACTS}",
    "json": json.dumps({"time": AT, "level": "warning", "event": "problem.began"} | AS_JSON),
}


@pytest.mark.parametrize("form", FORMS)
def test_each_form_of_the_log_is_read(form):
    shown = bundle.log_line(FORMS[form], {"kadikoy"}).replace("[warning] ", "")
    assert shown == f"{AT} problem.began {FACTS}"


def test_each_code_of_ours_stays():
    ours = [str(code) for words in (Action, ActionState, Code, LastChange) for code in words]
    assert [code for code in (*ours, *STATUS_NAMES.values()) if bundle.value(code) != code] == []


def test_the_listed_columns_are_there():
    for part, listed in bundle.COLUMNS.items():
        assert set(listed.split()) <= set(getattr(tables, {"order": "orders"}.get(part, part)).c.keys())
