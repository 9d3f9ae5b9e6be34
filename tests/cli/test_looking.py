"""The output of status, orders, order KEY and quarantine list, for people and programs."""

import re
import sqlite3
from datetime import UTC, datetime, timedelta

import pytest
from tests.cli.shell import APP, NOBODY, REST, account, document
from tests.store.samples import KEY, NOW_TEXT, OTHER, Row, key, put, put_action, put_document, put_order

from orderbridge.config import fingerprint
from orderbridge.store.ddl import time_text
from orderbridge.texts import SENTENCES


def ago(seconds: float) -> str:
    return time_text(datetime.now(UTC) - timedelta(seconds=seconds))


def put_account(pos: sqlite3.Connection, name: str = "kadikoy", rest: str = REST, **changes: object) -> None:
    values: Row = {"state": "ok", "last_poll_utc": ago(5), "last_poll_ok_utc": ago(5)}
    put(pos, "delivery_accounts", fingerprint=fingerprint(NOBODY, APP, rest), name=name, **values | changes)


def test_unknown_values_are_shown_unchanged(run, pos):
    assert "Is `orderbridge run` running?" in run("status").out  # before the first poll
    put_account(pos, state="asleep")
    for value in ("soon", None):
        pos.execute("UPDATE delivery_accounts SET last_poll_ok_utc = ?", (value,))
        assert "asleep" in run("status").out
        assert [one["code"] for one in run("status", "--json").json["problems"]] == ["no_good_poll"]


def test_a_removed_account_and_a_former_pair_of_secrets_are_not_shown(run, pos):
    put_account(pos)
    put_account(pos, "gone", "its secret", state="failing")
    put_account(pos, rest="the former one", last_poll_ok_utc=ago(86_400))
    ended = run("status", "--json")
    assert (ended.code, [one["name"] for one in ended.json["accounts"]]) == (0, ["kadikoy"])


def test_the_status_counts_what_waits(run, pos):
    put_account(pos)
    put_order(pos, key(1), received_utc=ago(5))
    put_order(pos, key(2), revision=2, pos_revision=1)
    put_order(pos, key(3), ended_utc=NOW_TEXT)
    put_action(pos)
    put_action(pos, state="done")
    put_document(pos)
    told = run("status", "--json").json
    assert told["orders"] == {"new": 1, "changed": 1, "open": 2}
    assert (told["actions_unfinished"], told["quarantined"], told["light"]) == (1, 1, "yellow")
    lines = run("status").out.splitlines()
    assert "  orders         1 new, 1 changed, 2 open: RECEIVED 2" in lines
    assert "  quarantine     1" in lines
    assert any(line.endswith("  quarantine  menu") for line in lines)  # a column of its own, only with a document
    assert any(line.startswith("  actions        1 waiting, 0 failed within a day, the oldest") for line in lines)


# The order's columns, how many seconds ago it came in, and its cure.
PLANTED: dict[str, tuple[Row, float, str]] = {
    "not_taken_over": ({"pos_revision": 0}, 200, "pos_revision = 1, status_id = 2"),
    "unanswered": ({}, 200, "status_id = 2"),
    "contents_outdated": ({"status_id": 2, "problem": "contents_outdated"}, 30, "problem = NULL"),
}


@pytest.mark.parametrize("code", PLANTED)
def test_a_problem_is_shown_until_it_is_cured(code, run, pos):
    columns, age, cure = PLANTED[code]
    put_account(pos)
    put_order(pos, **{"status_id": 1, "pos_revision": 1, "received_utc": ago(age), "changed_utc": ago(30)} | columns)
    ended = run("status", "--json")
    assert (ended.code, ended.json["healthy"], ended.json["light"]) == (1, False, "red")
    (problem,) = ended.json["problems"]
    assert problem["code"] == code and problem["count"] == 1 and problem["since"] < ago(0)
    for_people = run("status").out
    assert f": needs attention (red)\n\n{code}" in for_people
    assert f"  {problem['cause']}\n  {problem['remedy']}\n" in for_people
    pos.execute(f"UPDATE delivery_orders SET {cure}")
    assert run("status").out.splitlines()[0].endswith(": healthy")


def test_minutes_that_are_zero_turn_a_problem_off(run, configure, pos):
    put_account(pos)
    late = {"received_utc": ago(200), "changed_utc": ago(150)}
    gone = {"revision": 2, "last_change": "cancelled", "ended_by": "cancelled", "status_id": 6, "ended_utc": ago(150)}
    for number, columns in enumerate(({}, {"pos_revision": 1}, {"pos_revision": 1} | gone)):
        put_order(pos, key(number), **late | {"status_id": 1} | columns)
    codes = {"not_taken_over", "unanswered", "cancellation_unseen"}
    for code in codes:
        configure(document(more=f"[alarms]\n{code}_minutes = 0"))
        assert {one["code"] for one in run("status", "--json").json["problems"]} == codes - {code}


def test_of_many_accounts_those_with_a_problem_are_shown(run, configure, pos):
    names = [f"branch-{number}" for number in range(21)]
    configure(document(accounts="".join(account(name, name) for name in names)))
    for name in names:
        put_account(pos, name, name, state="failing" if name == "branch-7" else "ok")
    out = run("status").out
    assert "accounts: 21, with a problem: 1\n" in out
    assert "branch-7 " in out and "branch-0 " not in out
    (well,) = [line for line in out.splitlines() if line.startswith("healthy: ")]
    assert well.startswith("healthy: branch-0, branch-1, branch-10, ")
    assert "branch-7" not in well and "branch-8" in well and len(run("status", "--json").json["accounts"]) == 21


@pytest.fixture
def five(pos: sqlite3.Connection) -> None:
    taken_over, changed = {"pos_revision": 1}, {"pos_revision": 1, "revision": 2}
    lives: list[Row] = [{}, taken_over, changed, {"ended_utc": NOW_TEXT}, changed | {"ended_utc": NOW_TEXT}]
    for number, columns in reversed([*enumerate(lives)]):  # not in the order of the result
        put_order(pos, key(number), received_utc=f"2026-03-01 12:00:0{number}.000", **columns)


def test_orders_are_listed_the_newest_first_and_those_of_one_moment_by_key(run, five, pos):
    wanted = {"": [2, 1, 0], "--new": [0], "--changed": [4, 2], "--all": [4, 3, 2, 1, 0], "--all --limit 2": [4, 3]}
    for option, shown in wanted.items():
        listed = run("orders", *option.split(), "--json").json
        assert [row["payment_key"] for row in listed] == [key(number) for number in shown]
    pos.execute("UPDATE delivery_orders SET received_utc = ?", (NOW_TEXT,))
    assert [row["payment_key"] for row in run("orders", "--all", "--json").json] == [key(number) for number in range(5)]


def test_orders_are_a_table_for_people(run, pos):
    put_order(pos, order_number=100234, restaurant_name="Kadıköy\nŞube", total="235.50", problem="missing:foods")
    head, line = run("orders").out.splitlines()
    assert head.split()[:4] == ["received", "number", "key", "account"]
    cells = ("2026-03-01 15:00", "100234", KEY[:8], "kadikoy", "RECEIVED", "Kadıköy Şube", "235.50", "missing:foods")
    assert re.fullmatch(" +".join(cells), line)
    assert len(line) <= 100


@pytest.fixture
def whole(pos: sqlite3.Connection) -> None:
    put_order(pos, OTHER)
    named = {"order_number": 100001, "pos_reference": "A-7", "customer_name": "Ayşe", "total": "235.50"}
    put_order(pos, KEY, payload='{"id": 1}', payload_hash="d1", **named)
    put(pos, "delivery_order_items", payment_key=KEY, line_no=1, name="Adana Dürüm", price="110.25")
    put(pos, "delivery_order_item_options", payment_key=KEY, line_no=1, option_no=1, option_name="Ayran")
    put(pos, "delivery_order_events", payment_key=KEY, at_utc=NOW_TEXT, event="received", status="RECEIVED")
    tried = {"attempt": 1, "started_utc": NOW_TEXT, "detail": "HTTP 503"}
    row, other = put_action(pos, payment_key=KEY, created_by="kasa 2"), put_action(pos, "complete", payment_key=OTHER)
    for action_id, code in ((row, "service_error"), (other, "bad_gateway")):
        put(pos, "delivery_action_attempts", action_id=action_id, error_code=code, **tried)


def test_an_order_shows_its_whole_history(run, whole):
    told = run("order", KEY, "--json").json
    assert told.keys() == {"order", "items", "options", "events", "actions", "attempts", "story", "waits_for"}
    assert (told["order"]["payment_key"], told["order"]["total"]) == (KEY, "235.5000")
    assert [(item["name"], item["price"]) for item in told["items"]] == [("Adana Dürüm", "110.2500")]
    assert [option["option_name"] for option in told["options"]] == ["Ayran"]
    assert [(event["at_utc"], event["event"]) for event in told["events"]] == [(NOW_TEXT, "received")]
    assert [(action["action"], action["created_by"]) for action in told["actions"]] == [("accept", "kasa 2")]
    (tried,) = told["attempts"]
    assert (tried["attempt"], tried["error_code"], tried["detail"]) == (1, "service_error", "HTTP 503")


def test_an_order_is_found_by_number_reference_or_part_of_its_key(run, whole):
    for part in (KEY[:1], KEY[:8].upper(), KEY, KEY.upper(), "100001", "A-7"):
        out = run("order", part).out
        assert re.search(rf"^  payment_key +{KEY}$", out, re.MULTILINE)
        assert re.search(r"^  customer_name +Ayşe$", out, re.MULTILINE)
        assert "Adana Dürüm" in out and "service_error" in out.partition("\nhistory (")[2]
        assert not re.search(f"payload|{OTHER}", out), "people see no document, and no other order"
    listed = {row["payment_key"]: row["items"] for row in run("orders", "--json").json}
    found = [(line["line_no"], [option["option_name"] for option in line["options"]]) for line in listed[KEY]]
    assert (found, listed[OTHER]) == ([(1, ["Ayran"])], [])


def test_a_key_that_means_no_order_is_reported_and_one_that_means_several_lists_them(run, whole, pos):
    for part in ("7", "%", "_b7e", f"{KEY}0", "a-7", "9" * 19, "9" * 5000):
        ended = run("order", part)
        assert (ended.code, ended.out) == (1, "")
        assert "No order has the number, payment_key or reference" in ended.err
    pos.execute("UPDATE delivery_orders SET order_number = 100001")
    for part in ("100001", ""):
        ended = run("order", part)
        assert ended.code == 1 and KEY in ended.out and OTHER in ended.out
        assert "matches 2 orders. Name one of them by its payment_key." in ended.err
    assert {one["payment_key"] for one in run("order", "100001", "--json").json} == {KEY, OTHER}


def test_an_empty_result_is_reported_on_stderr(run, pos):
    messages = {"orders": "No orders.\n", "quarantine list": "Nothing is in quarantine.\n"}
    messages |= {"actions list": "The outbox is empty.\n", "foods": f"{SENTENCES['listing.no_foods']['en']}\n"}
    for words, message in messages.items():
        ended = run(*words.split())
        assert (ended.code, ended.out, ended.err, run(*words.split(), "--json").json) == (0, "", message, [])


def test_what_is_in_quarantine_is_listed_without_its_document(run, pos):
    for number, resolved in enumerate([None, NOW_TEXT]):
        document = {"payload": '{"customer": "Ayşe"}', "reason": "payment_key_missing"}
        put_document(pos, payload_hash=f"d{number}", resolved_utc=resolved, **document)
    (listed,) = run("quarantine", "list", "--json").json
    assert (listed["id"], listed["reason"], listed["times_seen"]) == (1, "payment_key_missing", 1)
    out = run("quarantine", "list").out
    assert "payment_key_missing" in out and "Ayşe" not in out


def refuse(pos: sqlite3.Connection, payload: str, digest: str = "d", payment_key: str | None = KEY) -> None:
    now = dict.fromkeys(("first_seen_utc", "last_seen_utc"), ago(5))
    put_document(pos, payment_key=payment_key, payload=payload, payload_hash=digest, reason="database_refused", **now)


def test_documents_are_stored_when_the_cause_is_gone_and_stay_while_it_is_there(run, pos):
    refuse(pos, f'{{"payment_key": "{KEY}", "status_id": 1}}')
    ended = run("quarantine", "retry", "--json")
    assert (ended.code, ended.json) == (0, [{"id": 1, "payment_key": KEY, "outcome": "taken_in", "reason": None}])
    assert run("orders", "--json").json[0]["payment_key"] == KEY
    assert "Nothing is in quarantine" in run("quarantine", "retry").err
    refuse(pos, '{"payment_key": "seven"}', digest="other", payment_key=None)
    ended = run("quarantine", "retry", "2")
    assert ended.code == 1 and "payment_key_invalid" in ended.out
    assert run("quarantine", "list", "--json").json[0]["id"] == 2
    ended = run("quarantine", "retry", "17")
    assert ended.code == 1 and "Not in quarantine: [17]" in ended.err


def test_a_reading_command_makes_no_file(run, tmp_path):
    for words in ("status", "orders", f"order {KEY}", "quarantine list", f"accept {KEY} --minutes 20", "actions list"):
        ended = run(*words.split())
        assert (ended.code, ended.out) == (1, "")
        assert "pos.db does not exist" in ended.err and "db upgrade" in ended.err
    assert list(tmp_path.rglob("pos.db*")) == []


HIDDEN = '[[accounts]]\nname = "{}"\napp_secret_key_file = "not-here/app"\nrest_secret_key_file = "not-here/rest"\n'
NEED_NONE = "orders; order KEY; accept KEY --minutes 20; actions list; foods; quarantine list; accounts list; day"


def test_a_command_that_reads_or_writes_the_database_needs_no_secret(run, pos, configure):
    configure(document(accounts=HIDDEN.format("kadikoy") + HIDDEN.format("besiktas")))
    put_order(pos, KEY)
    for words in [*NEED_NONE.replace("KEY", KEY).split("; "), "config show", "db backup copy.db"]:
        ended = run(*words.split())
        assert ended.code == 0 and "secret" not in ended.err, words
    for words in ("run", "check", "accounts cooldown"):
        ended = run(*words.split())
        assert ended.code == 78 and "app_secret_key" in ended.out + ended.err, words


def test_status_without_secrets_knows_the_accounts_that_were_polled(run, pos, configure):
    configure(document(accounts=HIDDEN.format("kadikoy") + HIDDEN.format("besiktas")))
    put_account(pos, rest="former", state="login_refused", last_poll_utc=ago(90))
    put_account(pos)
    ended = run("status", "--json")
    assert [(one["name"], one["healthy"]) for one in ended.json["accounts"]] == [("kadikoy", True)]
    assert [one["subject"] for one in ended.json["problems"]] == ["besiktas"]  # which was not polled yet


STEERING = "kapı\x1b[2J\x1b[8m\x07\x9b2J\u202etxt.exe\u2066\rüst\ttab"


def test_no_command_prints_terminal_control_characters(run, pos):
    """Rows of older versions, and what a till writes, may hold anything."""
    named = {"restaurant_name": STEERING, "customer_name": STEERING, "note": STEERING, "pos_reference": STEERING}
    put_account(pos, last_error=STEERING, state="failing")
    put_order(pos, KEY, **named)
    put_action(pos, payment_key=KEY, created_by=STEERING, error_text=STEERING, state="failed")
    for words in ("orders", "orders --json", f"order {KEY}", f"order {KEY} --json", "actions list", "status"):
        ended = run(*words.split())
        shown = ended.out + ended.err
        assert not [letter for letter in STEERING if letter in shown and not letter.isprintable() and letter != "\t"]
    assert "\\u202e" in run("order", KEY).out
    assert run("order", KEY, "--json").json["order"]["note"] == STEERING
