"""status, orders, order KEY, quarantine list: what people and programs see."""

import sqlite3
from datetime import UTC, datetime, timedelta

import pytest
from tests.cli.shell import APP, NOBODY, REST, account, document
from tests.store.samples import KEY, NOW_TEXT, OTHER, Row, key, put, put_action, put_order

from orderbridge.config import fingerprint
from orderbridge.store.columns import time_text


def ago(seconds: float) -> str:
    return time_text(datetime.now(UTC) - timedelta(seconds=seconds))


def put_account(pos: sqlite3.Connection, name: str = "kadikoy", rest: str = REST, **changes: object) -> None:
    values: Row = {"state": "ok", "last_poll_utc": ago(5), "last_poll_ok_utc": ago(5)}
    put(pos, "delivery_accounts", fingerprint=fingerprint(NOBODY, APP, rest), name=name, **values | changes)


# ---- status ----------------------------------------------------------------------------------------------------------


def test_an_account_that_polls_is_healthy(run, pos):
    put_account(pos)
    ended = run("status")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("healthy\n")
    assert "kadikoy" in ended.out


@pytest.mark.parametrize(
    "changes",
    [
        {"state": "login_refused", "last_error": "login: invalid_credentials"},
        {"state": "unreachable"},
        {"state": "failing"},
        {"state": "new", "last_poll_ok_utc": None},
        {"last_poll_ok_utc": None},
        {"last_poll_ok_utc": "soon"},
        {"last_poll_ok_utc": ago(3 * 30 + 20 + 5)},
    ],
    ids=["login refused", "unreachable", "failing", "new", "never polled", "unreadable", "three polls missed"],
)
def test_an_account_that_does_not_poll_needs_a_look(changes, run, pos):
    put_account(pos, **changes)
    ended = run("status")
    assert ended.code == 1
    assert ended.out.startswith("NEEDS A LOOK")
    assert run("status", "--json").json["healthy"] is False


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"last_poll_utc": ago(300), "last_poll_ok_utc": ago(300)}, True),
        ({"state": "failing", "last_poll_utc": ago(300)}, True),
        ({"state": "new", "last_poll_utc": None, "last_poll_ok_utc": None}, True),
        ({"state": "new", "last_poll_ok_utc": None}, False),
        ({"state": "failing"}, False),
        ({"state": "unreachable", "last_poll_utc": ago(300)}, False),
        ({"state": "login_refused", "last_poll_utc": None}, False),
    ],
    ids=["stopped", "stopped while failing", "never", "just begun", "failing", "no line for a login", "login refused"],
)
def test_a_daemon_that_no_longer_tries_is_asked_for(changes, said, run, pos):
    put_account(pos, **changes)
    assert ("Is `orderbridge run` running?" in run("status").err) == said


def test_two_missed_polls_are_no_illness(run, pos):
    put_account(pos, last_poll_ok_utc=ago(3 * 30 + 20 - 10))
    assert run("status").code == 0


def test_one_ill_account_among_healthy_ones_needs_a_look(run, configure, pos):
    configure(document(accounts=account() + account("moda", "another")))
    put_account(pos)
    put_account(pos, "moda", "another", state="failing")
    ended = run("status", "--json")
    assert ended.code == 1
    assert {one["name"]: one["healthy"] for one in ended.json["accounts"]} == {"kadikoy": True, "moda": False}


def test_an_account_that_left_the_configuration_is_not_looked_at(run, pos):
    put_account(pos)
    put_account(pos, "gone", "its secret", state="failing")
    ended = run("status", "--json")
    assert ended.code == 0
    assert [one["name"] for one in ended.json["accounts"]] == ["kadikoy"]


def test_a_former_pair_of_secrets_is_not_looked_at(run, pos):
    put_account(pos)
    put_account(pos, rest="the former one", last_poll_ok_utc=ago(86_400))
    assert run("status").code == 0


def test_before_the_first_poll_the_remedy_is_said(run, pos):
    ended = run("status")
    assert ended.code == 1
    assert "Is `orderbridge run` running?" in ended.err


def test_the_status_counts_what_waits(run, pos):
    put_account(pos)
    put_order(pos, key(1))
    put_order(pos, key(2), revision=2, pos_revision=1)
    put_order(pos, key(3), ended_utc=NOW_TEXT)
    put_action(pos)
    put_action(pos, state="done")
    put(
        pos,
        "delivery_quarantine",
        account="kadikoy",
        payload="?",
        payload_hash="d",
        reason="not_json",
        first_seen_utc=NOW_TEXT,
        last_seen_utc=NOW_TEXT,
    )
    told = run("status", "--json").json
    assert told["orders"] == {"new": 1, "changed": 1, "open": 2}
    assert (told["actions_unfinished"], told["quarantined"]) == (1, 1)
    lines = run("status").out.splitlines()
    assert {"orders new: 1", "orders open: 2", "actions unfinished: 1", "quarantined: 1"} <= set(lines)


def test_times_are_shown_as_the_columns_write_them(run, pos):
    put_account(pos, last_poll_utc=NOW_TEXT)
    assert run("status", "--json").json["accounts"][0]["last_poll_utc"] == NOW_TEXT


# ---- orders ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def five(pos: sqlite3.Connection) -> None:
    """One order in each part of its life, the first one received first."""
    lives: list[Row] = [
        {},
        {"pos_revision": 1},
        {"pos_revision": 1, "revision": 2},
        {"ended_utc": NOW_TEXT},
        {"pos_revision": 1, "revision": 2, "ended_utc": NOW_TEXT},
    ]
    for number, columns in enumerate(lives):
        put_order(pos, key(number), received_utc=f"2026-03-01 12:00:0{number}.000", **columns)


@pytest.mark.parametrize(
    "option, shown",
    [
        ((), [2, 1, 0]),
        (("--new",), [0]),
        (("--changed",), [4, 2]),
        (("--all",), [4, 3, 2, 1, 0]),
        (("--all", "--limit", 2), [4, 3]),
    ],
    ids=["open", "new", "changed", "all", "limited"],
)
def test_orders_are_listed_the_newest_first(option, shown, run, five):
    listed = run("orders", *option, "--json")
    assert listed.code == 0
    assert [row["payment_key"] for row in listed.json] == [key(number) for number in shown]


def test_orders_are_a_table_for_people(run, pos):
    put_order(pos, order_number=100234, restaurant_name="Kadıköy\nŞube", total="235.50", problem="missing:foods")
    head, line = run("orders").out.splitlines()
    assert head.split()[:3] == ["received_utc", "payment_key", "account"]
    assert [
        word for word in [KEY, "100234", "RECEIVED", "Kadıköy Şube", "235.5000", "missing:foods"] if word in line
    ] == [KEY, "100234", "RECEIVED", "Kadıköy Şube", "235.5000", "missing:foods"]
    assert "2026-03-01 12:00:00 " in line


def test_no_orders_are_said_on_the_stream_for_messages(run, pos):
    ended = run("orders")
    assert (ended.code, ended.out, ended.err) == (0, "", "No orders.\n")


# ---- order KEY -------------------------------------------------------------------------------------------------------


@pytest.fixture
def whole(pos: sqlite3.Connection) -> None:
    """An order with a line, an option, an event and an action, beside another order."""
    put_order(pos, OTHER)
    put_order(pos, KEY, customer_name="Ayşe", total="235.50", payload='{"id": 1}', payload_hash="d1")
    put(pos, "delivery_order_items", payment_key=KEY, line_no=1, name="Adana Dürüm", price="110.25")
    put(pos, "delivery_order_item_options", payment_key=KEY, line_no=1, option_no=1, option_name="Ayran")
    put(pos, "delivery_order_events", payment_key=KEY, at_utc=NOW_TEXT, event="received", status="RECEIVED")
    put_action(pos, payment_key=KEY, created_by="kasa 2")
    put_action(pos, "complete", payment_key=OTHER)


def test_an_order_tells_its_whole_story(run, whole):
    told = run("order", KEY, "--json").json
    assert told.keys() == {"order", "items", "options", "events", "actions"}
    assert (told["order"]["payment_key"], told["order"]["total"]) == (KEY, "235.5000")
    assert [(item["name"], item["price"]) for item in told["items"]] == [("Adana Dürüm", "110.2500")]
    assert [option["option_name"] for option in told["options"]] == ["Ayran"]
    assert [(event["at_utc"], event["event"]) for event in told["events"]] == [(NOW_TEXT, "received")]
    assert [(action["action"], action["created_by"]) for action in told["actions"]] == [("accept", "kasa 2")]


def test_an_order_is_told_to_people_without_its_document(run, whole):
    out = run("order", KEY).out
    assert f"payment_key: {KEY}\n" in out
    assert "customer_name: Ayşe\n" in out
    assert "Adana Dürüm" in out
    assert "payload" not in out
    assert OTHER not in out


@pytest.mark.parametrize("part", [KEY[:1], KEY[:8].upper(), KEY])
def test_the_first_characters_are_enough(part, run, whole):
    assert f"payment_key: {KEY}\n" in run("order", part).out


@pytest.mark.parametrize("part", ["", "7", "%", "_b7e", f"{KEY}0"], ids=["two of them", "none", "%", "_", "too long"])
def test_a_key_that_does_not_mean_one_order_is_said(part, run, whole):
    ended = run("order", part)
    assert (ended.code, ended.out) == (1, "")
    assert "No single order" in ended.err
    assert "orderbridge orders --all" in ended.err


def test_an_order_of_which_little_is_known_is_shown(run, pos):
    put_order(pos)
    ended = run("order", KEY)
    assert ended.code == 0
    assert ended.err.count("none") == 4


# ---- quarantine ------------------------------------------------------------------------------------------------------


def test_what_is_in_quarantine_is_listed_without_its_document(run, pos):
    for number, resolved in enumerate([None, NOW_TEXT]):
        put(
            pos,
            "delivery_quarantine",
            account="kadikoy",
            payload='{"customer": "Ayşe"}',
            payload_hash=f"d{number}",
            reason="payment_key_missing",
            first_seen_utc=NOW_TEXT,
            last_seen_utc=NOW_TEXT,
            resolved_utc=resolved,
        )
    (listed,) = run("quarantine", "list", "--json").json
    assert (listed["id"], listed["reason"], listed["times_seen"]) == (1, "payment_key_missing", 1)
    out = run("quarantine", "list").out
    assert "payment_key_missing" in out
    assert "Ayşe" not in out


def test_an_empty_quarantine_is_said(run, pos):
    assert run("quarantine", "list").err == "Nothing is in quarantine.\n"


def put_document(pos: sqlite3.Connection, payload: str, digest: str = "d", payment_key: str | None = KEY) -> None:
    put(
        pos,
        "delivery_quarantine",
        account="kadikoy",
        payment_key=payment_key,
        payload=payload,
        payload_hash=digest,
        reason="database_refused",
        first_seen_utc=NOW_TEXT,
        last_seen_utc=NOW_TEXT,
    )


def test_documents_are_taken_in_when_the_cause_is_gone(run, pos):
    put_document(pos, f'{{"payment_key": "{KEY}", "status_id": 1}}')
    ended = run("quarantine", "retry", "--json")
    assert ended.code == 0
    assert ended.json == [{"id": 1, "payment_key": KEY, "outcome": "taken_in", "reason": None}]
    assert run("orders", "--json").json[0]["payment_key"] == KEY
    assert "Nothing is in quarantine" in run("quarantine", "retry").err


def test_a_document_whose_cause_is_still_there_stays_and_the_exit_code_says_so(run, pos):
    put_document(pos, '{"payment_key": "seven"}', payment_key=None)
    ended = run("quarantine", "retry", "1")
    assert ended.code == 1
    assert "payment_key_invalid" in ended.out
    assert run("quarantine", "list", "--json").json[0]["id"] == 1


def test_a_document_that_is_not_there_is_told(run, pos):
    ended = run("quarantine", "retry", "17")
    assert ended.code == 1
    assert "Not in quarantine: [17]" in ended.err
