"""`orderbridge accounts`: the commands on accounts in the database, and what they must never print."""

import io
import json
import re
import sqlite3
import sys
import zipfile
from pathlib import Path

import click
import pytest
from tests.cli.shell import Configure, Run, account, document
from tests.store.samples import KEY, NOW_TEXT, RESTAURANT, put, put_action, put_order

from orderbridge.config.keys import new_master_key

MASTER = new_master_key()
SECRETS = ("app-secret-4711", "rest-secret-0815")
FLEET = '[fleet]\naccounts = "database"\nmaster_key_file = "master.key"\n'
HEAD = "name;app_secret_key;rest_secret_key;auto_accept_minutes"


@pytest.fixture(autouse=True)
def fleet(configure: Configure, tmp_path: Path, pos: sqlite3.Connection) -> None:
    (tmp_path / "master.key").write_text(f"{MASTER}\n")
    (tmp_path / "master.key").chmod(0o600)
    configure(document(more=FLEET, accounts=" "))


@pytest.fixture
def add(run: Run, tmp_path: Path):
    def add(name: str = "kadikoy", *options: object, secrets: tuple[str, str] = ("", "")):
        app, rest = tmp_path / "app", tmp_path / "rest"
        app.write_text(f"{secrets[0] or SECRETS[0]}\n")
        rest.write_bytes(b"\xef\xbb\xbf" + f"{secrets[1] or f'{SECRETS[1]}-{name}'}\r\n".encode())
        return run("accounts", "add", name, "--app-secret-key-file", app, "--rest-secret-key-file", rest, *options)

    return add


@pytest.fixture
def bring(run: Run, tmp_path: Path):
    def bring(text: str, *options: object):
        (tmp_path / "accounts.csv").write_text(text, "utf-8")
        return run("accounts", "import", tmp_path / "accounts.csv", *options)

    return bring


def listed(run: Run) -> dict[str, bool]:
    return {one["name"]: one["enabled"] for one in run("accounts", "list", "--json").json}


def csv_of(*lines: str) -> str:
    return "\r\n".join([HEAD, *lines, ""])


def test_an_account_is_replaced_only_with_the_option(add, run, pos):
    add()
    changed = ("kadikoy", "--auto-accept-minutes", 5)
    refused = add(*changed)
    assert refused.code == 1 and "add --replace" in refused.err
    assert run("accounts", "show", "kadikoy", "--json").json["auto_accept_minutes"] is None
    assert add(*changed, "--replace").out == "kadikoy: changed.\n"
    assert run("accounts", "show", "kadikoy", "--json").json["auto_accept_minutes"] == 5
    version = "SELECT accounts_version FROM delivery_fleet"
    before = pos.execute(version).fetchone()[0]
    assert (add(*changed, "--replace").out, pos.execute(version).fetchone()[0]) == ("kadikoy: unchanged.\n", before)


def test_add_has_the_options_of_the_file_and_takes_steps_as_json(add, bring, run):
    rules = ["--restaurant", f"{RESTAURANT.upper()}=40", "--restaurant", KEY]
    assert add("kadikoy", "--auto-accept-minutes", 25, "--auto-accept-scheduled", *rules).code == 0
    shown = run("accounts", "show", "kadikoy", "--json").json
    assert (shown["auto_accept_minutes"], shown["auto_accept_scheduled"]) == (25, True)
    plain = {"id": KEY, "auto_accept_minutes": None, "auto_accept_steps": None}
    assert shown["restaurants"] == [plain | {"id": RESTAURANT, "auto_accept_minutes": 40}, plain]
    assert f"{RESTAURANT}=40, {KEY}=-" in run("accounts", "show", "kadikoy").out
    one = {"name": "moda", "app_secret_key": "a", "rest_secret_key": "b", "auto_accept_steps": [[0, 20], [30, 0]]}
    rule = {"id": RESTAURANT, "auto_accept_steps": [[0, 15], [9, 0]]}
    assert bring(json.dumps(one | {"restaurants": [rule]})).code == 0
    out = run("accounts", "show", "moda").out
    assert "0:20, 30:0" in out and f"{RESTAURANT}=0:15, 9:0" in out


def test_secrets_come_from_standard_input_a_line_each_or_what_is_missing_is_named(run, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "stdin", io.StringIO("one\r\ntwo\n"))
    assert run("accounts", "add", "kadikoy", "--app-secret-key-file", "-", "--rest-secret-key-file", "-").code == 0
    assert listed(run) == {"kadikoy": True}
    ended = run("accounts", "add", "kadikoy")
    assert ended.code == 2 and "--app-secret-key-file, --rest-secret-key-file" in ended.err
    ended = run("accounts", "add", "x", "--app-secret-key-file", tmp_path / "no", "--rest-secret-key-file", "-")
    assert ended.code == 78 and f"{tmp_path}/no" in ended.err
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(csv_of("moda;a;b;").encode())))
    assert (run("accounts", "import", "-").code, listed(run)) == (0, {"kadikoy": True, "moda": True})


def test_on_a_terminal_secrets_are_asked_for_and_not_shown(run, monkeypatch):
    terminal, asked = io.StringIO(), list(SECRETS)
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stdin", terminal)
    monkeypatch.setattr(click.termui, "hidden_prompt_func", lambda _: asked.pop(0))
    ended = run("accounts", "add", "kadikoy")
    assert (ended.code, asked) == (0, [])
    assert not [secret for secret in SECRETS if secret in ended.out + ended.err]


def test_what_can_never_be_right_is_refused(add, run):
    for name, options, secret, message in (
        ("Kadikoy", (), "", "is not an account name"),
        ("kadikoy", ("--auto-accept-minutes", 0), "", "auto_accept_minutes: must be 1 or more"),
        ("kadikoy", ("--restaurant", "x=5"), "", "is not a restaurant id"),
        ("kadikoy", ("--restaurant", f"{RESTAURANT}=x"), "", "must be a whole number"),
        ("kadikoy", ("--restaurant", RESTAURANT, "--restaurant", RESTAURANT), "", "is listed twice"),
        ("kadikoy", (), " ", "is empty"),
        ("kadikoy", (), "a\0b", "control character"),
        ("kadikoy", (), "'quoted'", "quotation"),
    ):
        ended = add(name, *options, secrets=(secret, ""))
        assert ended.code == 78 and message in ended.err
    assert listed(run) == {}


def test_an_account_moves_from_the_file_into_the_database(add, bring, run, configure):
    """It is first imported as it is, then removed from the file, so that no order is missed."""
    configure(document(more=FLEET, accounts=account() + account("moda", "other")))
    moved = add(secrets=("sandbox-app-secret", "sandbox-kadikoy-secret"))
    assert moved.code == 0 and "1 of them are in the configuration file" in moved.err
    line = "moda;sandbox-app-secret;other;"
    assert bring(csv_of(line)).code == 0
    assert "line 2 has it, too" in bring(csv_of(line, line)).err
    assert "the configuration file has this account" in bring(csv_of("moda;sandbox-app-secret;another;")).err
    configure(document(more=FLEET, accounts=" "))
    assert listed(run) == {"kadikoy": True, "moda": True}


def test_the_list_says_where_each_comes_from_and_how_it_was_polled(add, run, configure, config_file, pos):
    add("moda")
    configure(document(more=FLEET, accounts=account()))
    fingerprint = pos.execute("SELECT fingerprint FROM delivery_account_settings").fetchone()[0]
    values = {"state": "login_refused", "last_poll_ok_utc": NOW_TEXT}
    put(pos, "delivery_accounts", fingerprint=fingerprint, name="moda", **values)
    found = run("accounts", "list", "--json").json
    assert {one["name"]: one["source"] for one in found} == {"kadikoy": str(config_file), "moda": "database"}
    (moda,) = [one for one in found if one["name"] == "moda"]
    assert values.items() <= moda.items()
    out = run("accounts", "list").out
    assert str(config_file) in out and "login refused" in out and run("accounts", "show", "kadikoy").code == 0


def test_an_account_of_the_file_is_changed_in_the_file_and_others_are_prepared_beside_it(run, add, configure):
    configure(document(more=FLEET, accounts=account()))
    for words in (("disable",), ("enable",), ("remove",)):
        ended = run("accounts", *words, "kadikoy")
        assert ended.code == 1 and "Change the file" in ended.err
    assert "is in the configuration file" in add("kadikoy").err
    assert "has the same secrets as kadikoy" in add("x", secrets=("sandbox-app-secret", "sandbox-kadikoy-secret")).err
    configure(document(more='[fleet]\nmaster_key_file = "master.key"\n'))
    ended = add("moda")
    assert ended.code == 0 and "not polled yet" in ended.err
    assert "has the same secrets as moda" in add("x", secrets=("", f"{SECRETS[1]}-moda")).err
    assert listed(run) == {"kadikoy": True, "moda": True}


def test_without_a_master_key_the_remedy_is_named_and_the_accounts_of_the_file_are_listed(run, configure):
    configure(document())
    for words in (("add", "x"), ("import", "x"), ("key", "--rotate")):
        ended = run("accounts", *words)
        assert ended.code == 78 and "fleet.master_key_file" in ended.err
    assert listed(run) == {"kadikoy": True}


def test_accounts_are_disabled_enabled_and_removed_and_of_several_names_an_unknown_one_stops_all(add, run):
    add()
    add("moda")
    for word in ("remove", "disable", "enable", "show"):
        ended = run("accounts", word, *(["unknown"] if word == "show" else ["kadikoy", "unknown"]))
        assert ended.code == 1 and "No such account" in ended.err
    assert run("accounts", "disable", "moda", "kadikoy").out == "moda: disabled.\nkadikoy: disabled.\n"
    assert listed(run) == {"kadikoy": False, "moda": False}
    assert run("accounts", "disable", "moda").out == "moda: unchanged.\n"
    assert run("accounts", "enable", "moda").out == "moda: enabled.\n"
    assert (run("accounts", "remove", "kadikoy").out, listed(run)) == ("kadikoy: removed.\n", {"moda": True})
    assert (run("accounts", "remove", "kadikoy").code, add().out) == (1, "kadikoy: added.\n")


@pytest.mark.parametrize("order, row, counted", [
    ({}, None, "1 open orders, 0 actions"), ({"ended_utc": NOW_TEXT}, {}, "0 open orders, 1 actions"),
    (None, {"action": "close_restaurant", "restaurant_id": RESTAURANT}, "0 open orders, 1 actions"),
    (None, {"action": "activate_food", "account": "kadikoy"}, "0 open orders, 1 actions"),
], ids=["open order", "row of its order", "row of its restaurant", "row that names it"])  # fmt: skip
def test_a_busy_account_is_removed_only_by_force(order, row, counted, add, run, pos):
    add()
    add("moda")
    put(pos, "delivery_restaurants", account="kadikoy", id=RESTAURANT)
    put_action(pos, "activate_food", account="kadikoy", state="done")
    if order is not None:
        put_order(pos, account="kadikoy", **order)
    if row is not None:
        put_action(pos, **row)
    refused = run("accounts", "remove", "kadikoy", "moda")
    assert refused.code == 1 and counted in refused.err and "--force" in refused.err
    assert listed(run) == {"kadikoy": True, "moda": True}
    disabled = run("accounts", "disable", "kadikoy")
    assert disabled.code == 0 and counted[:13] in disabled.err
    forced = run("accounts", "remove", "kadikoy", "--force")
    assert forced.code == 0 and counted in forced.err and "takes both over" in forced.err
    assert listed(run) == {"moda": True}


WRONG_LINES = {
    "Besiktas;x;y;": "name: … is not an account name",
    "uskudar;x;;": "rest_secret_key: is missing",
    "moda;x;z;": "line 2 has it, too",
    "sisli;x;y;": "it has the same secrets as line 2",
    "fatih;x;w;0": "auto_accept_minutes: must be 1 or more",
    "eyup;kadikoys;secret;": "it has the same secrets as the account kadikoy",
    "file;x;u;": "name: the configuration file has this account, too",
}
WRONG = csv_of("moda;x;y;", *WRONG_LINES)
TOLD = dict(enumerate(WRONG_LINES.values(), start=3))


def test_every_wrong_line_is_named_and_nothing_is_written_but_the_right_ones_with_the_option(bring, run, configure):
    configure(document(more=FLEET, accounts=account("file")))
    bring(csv_of("kadikoy;kadikoys;secret;"))
    ended = bring(WRONG)
    assert (ended.code, ended.out) == (1, "")
    message = {int(line.split()[1].rstrip(":")): line for line in ended.err.splitlines() if line.startswith("line ")}
    assert message.keys() == TOLD.keys()
    assert {number: TOLD[number] for number in message if TOLD[number] not in message[number]} == {}
    assert "nothing was written" in ended.err
    assert listed(run) == {"file": True, "kadikoy": True}
    ended = bring(WRONG, "--skip-wrong", "--json")
    assert (ended.code, ended.json["added"], [one["line"] for one in ended.json["wrong"]]) == (1, ["moda"], [*TOLD])
    assert listed(run) == {"file": True, "kadikoy": True, "moda": True}


def test_of_many_wrong_lines_the_first_are_shown_and_shifted_columns_show_no_secret(bring):
    ended = bring(csv_of(*(f"X{number};a;b;" for number in range(70))))
    assert ended.err.count("is not an account name") == 50
    assert "20 more wrong lines" in ended.err
    secret = "Geheim-4711-XYZ"
    rows = [f"{secret};a;b;", f"moda;a;b;{secret}"]
    wrong = json.dumps({"name": "x", "app_secret_key": "a", "rest_secret_key": "b", "restaurants": [{"id": secret}]})
    for text in (csv_of(*rows), wrong):
        for more in ((), ("--json",)):
            ended = bring(text, *more)
            assert ended.code == 1 and secret not in ended.out + ended.err


@pytest.mark.slow
def test_ten_thousand_accounts_are_imported_at_once_and_listed(bring, run):
    ended = bring(csv_of(*(f"branch-{number:05};app;rest-{number};" for number in range(10_000))))
    assert ended.out == "New: 10000, changed: 0, unchanged: 0.\n"
    assert len(run("accounts", "list").out.splitlines()) == 10_001


def test_a_new_key_needs_no_configuration_and_a_rotation_says_when_the_old_one_may_go(command, add, run, tmp_path):
    assert re.fullmatch(r"[\w+/]{43}=\n", command("accounts", "key").out)
    add()
    add("moda")
    new = new_master_key()
    (tmp_path / "master.key").write_text(new)
    shown = run("accounts", "show", "kadikoy", "--json").json
    assert shown["fault"] == "key_unknown" and "Add that key again" in shown["remedy"]
    (tmp_path / "master.key").write_text(f"{new}\n{MASTER}\n")
    ended = run("accounts", "key", "--rotate")
    assert ended.code == 0 and "2 now, 0 before" in ended.out and "other lines may be removed" in ended.out
    assert "0 now, 2 before" in run("accounts", "key", "--rotate").out
    (tmp_path / "master.key").write_text(f"{new}\n")
    assert "fault" not in run("accounts", "show", "kadikoy", "--json").json
    assert "has one line" in run("accounts", "key", "--rotate").out


def test_a_partial_rotation_says_to_keep_the_old_keys(add, run, tmp_path, pos):
    add()
    add("moda")
    pos.execute("UPDATE delivery_account_settings SET sealed = 'AAAA' WHERE name = 'moda'")
    (tmp_path / "master.key").write_text(f"{new_master_key()}\n{MASTER}\n")
    ended = run("accounts", "key", "--rotate")
    assert ended.code == 1 and "1 now" in ended.out and "Keep the old lines" in ended.err
    assert "moda: The row is damaged" in ended.err


def alive(pos: sqlite3.Connection, seconds: int = 60) -> None:
    when = f"strftime('%Y-%m-%d %H:%M:%f', 'now', '{seconds:+} seconds')"
    put(pos, "delivery_daemon", id=1, seen_utc=NOW_TEXT, silent_from_utc="", cause="Nobody polls.", remedy="Start it.")
    pos.execute(f"UPDATE delivery_daemon SET silent_from_utc = {when}")


def light(pos: sqlite3.Connection, name: str, colour: str = "green", code: str | None = None) -> None:
    row = (name, colour, NOW_TEXT, code, f"It is {colour}.", None)
    pos.execute("INSERT INTO delivery_lamps VALUES (?, ?, ?, ?, ?, ?)", row)


@pytest.fixture
def three(bring, pos):
    bring(csv_of("kadikoy;a;b;", "moda;a;c;", "sisli;a;d;", "closed;a;e;"))


def test_branches_with_problems_are_listed_first_and_others_by_an_option(three, run, pos, configure):
    run("accounts", "disable", "closed")
    alive(pos)
    light(pos, "kadikoy")
    light(pos, "moda", "yellow", "login_refused")
    light(pos, "sisli", "red", "unreachable")
    light(pos, "closed", "red")
    ended = run("status", "--branches")
    first, second, last = ended.out.splitlines()
    assert (ended.code, ended.err) == (1, "")
    assert re.fullmatch(r"red     sisli  since 2026-03-01 15:00 \(\d+ d ago\)  It is red.", first)
    assert second.startswith("yellow  moda ")
    assert last == "1 of 3 healthy"
    shown = run("status", "--branches", "--json").json
    assert (shown["well"], shown["accounts"]) == (1, 3)
    assert [one["account"] for one in shown["branches"]] == ["sisli", "moda"]
    assert shown["branches"][0]["code"] == "unreachable"
    assert len(run("status", "--branches", "--all").out.splitlines()) == 4
    configure(document(more=FLEET, accounts=account("file")))
    shown = run("status", "--branches", "--all", "--json").json
    assert [one["account"] for one in shown["branches"]] == ["sisli", "file", "moda", "kadikoy"]
    pos.execute("UPDATE delivery_lamps SET lamp = 'green'")
    light(pos, "file")
    ended = run("status", "--branches")
    assert (ended.code, ended.out) == (0, "4 of 4 healthy\n")


def test_a_branch_without_a_daemon_is_dark_and_a_silent_daemon_makes_all_red(three, run, pos):
    alive(pos)
    light(pos, "kadikoy")
    put(pos, "delivery_problems", code="account_unreadable", subject="moda", account="moda", severity="severe", level=1,
        how_many=1, cause="Does not open.", remedy="Enter it anew.", facts="{}", told=0, noted_utc=NOW_TEXT,
    )  # fmt: skip
    lines = run("status", "--branches").out.splitlines()
    assert [line.split()[:2] for line in lines] == [["red", "moda"], ["dark", "closed"], ["dark", "sisli"], ["1", "of"]]
    assert "Does not open. Enter it anew." in lines[0]
    assert "No daemon serves this account yet." in lines[1]
    pos.execute("DELETE FROM delivery_daemon")
    alive(pos, -5)
    shown = run("status", "--branches", "--json").json
    assert (shown["well"], shown["branches"][0]["code"]) == (0, "not_polling")


def checked(run: Run) -> list[tuple[str, str, str]]:
    found = run("check", "--json").json
    return [(one["level"], one["detail"], one["remedy"]) for one in found if one["check"] == "account_settings"]


def test_check_names_unreadable_accounts_by_their_fault_and_only_a_few_of_many(bring, run, pos):
    bring(csv_of(*(f"b{number};app;rest-{number};" for number in range(9))))
    pos.execute("UPDATE delivery_account_settings SET sealed = 'AAAA' WHERE name = 'b0'")
    pos.execute("UPDATE delivery_account_settings SET key_id = 'x' WHERE name > 'b1'")
    good, unknown, damaged = checked(run)
    assert good == ("ok", "1 open, 0 disabled", "")
    assert unknown[:2] == ("failed", "7: b2, b3, b4, b5, b6 +2") and "Add that key again" in unknown[2]
    assert damaged[:2] == ("failed", "1: b0") and "is damaged" in damaged[2]
    assert run("check").code != 0


def test_check_says_that_a_rotation_is_not_finished_or_that_the_address_is_another_one(three, run, tmp_path, configure):
    (tmp_path / "master.key").write_text(f"{new_master_key()}\n{MASTER}\n")
    configure(document(more=FLEET, accounts=" ", base_url="https://127.0.0.1:2"))
    rotate = "Run `orderbridge accounts key --rotate`."
    found = ["4 account(s) are encrypted with a former master key", "4 were stored with another marketplace.base_url"]
    assert sorted(checked(run)[1:]) == [("warning", detail, rotate) for detail in found]
    run("accounts", "key", "--rotate")
    run("accounts", "disable", "moda")
    assert checked(run) == [("ok", "3 open, 1 disabled", "")]
    assert re.search(r"master key +[0-9a-f]{16}", run("check").out)


@pytest.mark.parametrize("secrets", [("moda", "other"), ("other", "sandbox-kadikoy-secret")], ids=["name", "secrets"])
def test_check_sees_an_account_that_is_in_the_file_too(secrets, run, bring, configure):
    bring(csv_of(f"{secrets[0]};sandbox-app-secret;{secrets[1]};"))
    configure(document(more=FLEET, accounts=account("moda")))
    assert checked(run)[1][:2] == ("failed", f"1: {secrets[0]}")


def test_check_says_that_there_are_no_accounts_yet_but_only_in_a_fleet(run, configure):
    assert checked(run)[0][:2] == ("warning", "there are none yet")
    configure(document())
    assert checked(run) == []


def test_a_food_is_for_an_account_of_the_database_that_is_there(run, add):
    add()
    assert "No such account" in run("food", "on", 55, "--account", "unknown").err
    assert run("food", "on", 55, "--account", "kadikoy").code == 0


def test_no_command_shows_a_secret_nor_does_the_support_bundle(add, bring, run, tmp_path):
    shown = [add(), add("moda", secrets=(SECRETS[0], "short")), bring(csv_of(f"uskudar;{SECRETS[0]};{SECRETS[1]};"))]
    assert run("support-bundle", tmp_path / "bundle.zip").code == 0
    with zipfile.ZipFile(tmp_path / "bundle.zip") as packed:
        text = b"".join(packed.read(name) for name in packed.namelist())
    assert b"master_key" in text
    own = "list, list --json, show kadikoy, show kadikoy --json, disable moda, key --rotate, remove moda"
    shown += [run("accounts", *line.split()) for line in own.split(", ")]
    shown += [run(*line.split()) for line in ("check --settings", "status", "status --json", "check", "check --json")]
    shown += [bring(csv_of(f"x;{SECRETS[0]};'{SECRETS[1]}';")), bring(f"{SECRETS[0]};{SECRETS[1]}")]
    printed = "".join(ended.out + ended.err for ended in shown)
    assert [secret for secret in (*SECRETS, MASTER) if secret in printed or secret.encode() in text] == []


def test_status_as_a_whole_knows_the_accounts_of_the_database(three, run, pos):
    for name, fingerprint in pos.execute("SELECT name, fingerprint FROM delivery_account_settings").fetchall():
        put(pos, "delivery_accounts", fingerprint=fingerprint, name=name, state="ok", last_poll_ok_utc=NOW_TEXT)
    run("accounts", "disable", "closed")
    assert {one["name"] for one in run("status", "--json").json["accounts"]} == {"kadikoy", "moda", "sisli"}
