"""The tables for a POS: plain SQL through a driver with default settings."""

import re
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from tests.databases import MARIADB, SQLITE, only

from tests.store.samples import (  # isort: skip
    KEY, NEEDED, NOT_NULL, NOW, NOW_TEXT, OTHER, RESTAURANT, TIME, TWICE, UNFIT, Pos, Refused, action_row, key, one,
    order_row, put, put_action, put_order, rows,
)  # fmt: skip
from orderbridge.model import ActionState
from orderbridge.store import tables
from orderbridge.store.database import Database
from orderbridge.store.ddl import time_text
from orderbridge.store.dialects.sqlite import read_time
from orderbridge.store.write_guards import INSERTED, WRITTEN_ONCE

DOCS = Path(__file__).parents[2] / "docs"
BEYOND = "9223372036854775808"  # one more than 64 bits hold
ARGUMENTS = {name: value for needed in NEEDED.values() for name, value in needed.items()}
WITHOUT_END = sorted(NEEDED.keys() - {"close_restaurant", "deactivate_food"})
ALSO_ALLOWED = {("activate_food", "restaurant_id"), ("deactivate_food", "restaurant_id")}
BAD_KEYS = [
    KEY.upper(), KEY.replace("b", "B", 1), KEY.replace("-", ""), f"{{{KEY}}}", KEY[:-1], f"{KEY}0", f"g{KEY[1:]}",
    "0b7e1c526-f0d-4c1e-9a55-3d2f8e6a7b10",  # hyphens in other places
    "", "100234", "%", "k" * 1_000_000, f"{KEY}\0x",
]  # fmt: skip
CHANGED_LATER: dict[str, Any] = {
    "id": 99, "action": "on_the_way", "payment_key": OTHER, "restaurant_id": RESTAURANT, "food_id": 56,
    "account": "besiktas", "preparing_time": 45, "reason_id": 2, "valid_minutes": 30, "request_id": "another",
    "created_by": "another till", "created_utc": "2026-01-01 00:00:00.000", "valid_until_minutes": 30,
}  # fmt: skip


@pytest.mark.parametrize("action", NEEDED)
def test_a_row_needs_the_arguments_of_its_action_and_takes_no_other(action, pos):
    row = action_row(pos, put(pos, "delivery_actions", action=action, **NEEDED[action]))
    assert {name: row[name] for name in NEEDED[action]} == NEEDED[action]
    pos.execute("DELETE FROM delivery_actions")
    for missing in NEEDED[action]:
        refused(pos, action=action, **NEEDED[action] | {missing: None})
        refused(pos, action=action, **{name: value for name, value in NEEDED[action].items() if name != missing})
    for more in ARGUMENTS.keys() - NEEDED[action].keys():
        if (action, more) not in ALSO_ALLOWED:
            refused(pos, action=action, **NEEDED[action] | {more: ARGUMENTS[more]})


@pytest.mark.parametrize("action, column, values", [
    ("accept", "preparing_time", [1, 1440, "25", 25.0]), ("accept", "valid_minutes", [1, 10080]),
    ("cancel", "reason_id", [8]), ("open_restaurant", "account", ["kadikoy"]),
    ("activate_food", "restaurant_id", [RESTAURANT]), ("activate_food", "food_id", [2**63 - 1]),
    ("close_restaurant", "valid_until_minutes", [1, 10080]), ("deactivate_food", "valid_until_minutes", [1, 10080]),
    ("complete", "created_by", ["kasa 2, Gülşah 🌯"]), ("complete", "request_id", ["x", "x" * 64]),
    ("complete", "state", [state.value for state in ActionState]),
])  # fmt: skip
def test_a_right_value_is_taken(action, column, values, pos):
    for value in values:
        kept = action_row(pos, put_action(pos, action, **{column: value}))[column]
        assert kept == (int(value) if column == "preparing_time" else value)
        assert pos.kind != SQLITE or type(kept) is (int if column == "preparing_time" else type(value))


def refused(pos: Pos, match: str = ".", /, **values: object) -> None:
    with pytest.raises(Refused, match=match if pos.kind == SQLITE else f"{match}|{UNFIT}"):
        put(pos, "delivery_actions", **values)
    assert rows(pos, "SELECT * FROM delivery_actions") == []


@pytest.mark.interface("Endpoints 8", "Endpoints 11", "Endpoints 14", "Endpoints 15")
@pytest.mark.parametrize("match, action, column, values", [
    ("action_known", "complete", "action", ["dance", "ACCEPT", "complete ", "complete\0", "", 7]),
    ("preparing_time", "accept", "preparing_time", [0, -5, 1441, 25.5, "soon", "25 dk", "", BEYOND, float("inf")]),
    ("reason_id", "cancel", "reason_id", [0, -1, 9, 1.5, "no courier", ""]),
    ("food_id_integer", "activate_food", "food_id", ["köfte", 1.5, "", BEYOND, "NaN", "Infinity"]),
    ("food_id_1_or_more", "deactivate_food", "food_id", [0, -1, -(2**63)]),
    ("valid_minutes", "complete", "valid_minutes", [0, -1, 10081, 1.5, "soon", ""]),
    ("valid_until", "close_restaurant", "valid_until_minutes", [0, -1, 10081, 1.5, "soon", ""]),
    *(("valid_until", action, "valid_until_minutes", [30]) for action in WITHOUT_END),
    ("payment_key_uuid", "complete", "payment_key", BAD_KEYS),
    ("restaurant_id_uuid", "open_restaurant", "restaurant_id", BAD_KEYS),
    ("restaurant_id_uuid", "activate_food", "restaurant_id", ["Kadıköy"]),
    ("state_known|leave them out", "complete", "state", ["invented", "PENDING"]),
    ("withdraw", "complete", "withdraw", [2, -1, "yes"]),
    ("request_id_1_to_64", "complete", "request_id", ["", "x" * 65]),
    *((NOT_NULL, "complete", column, [None]) for column in ("state", "withdraw", "request_id", "created_utc")),
])  # fmt: skip
def test_a_value_that_can_never_be_right_is_refused(match, action, column, values, pos):
    for value in values:
        refused(pos, match, **{"action": action, **NEEDED[action], column: value})


@only(SQLITE)
def test_what_a_server_would_convert_is_refused(pos):
    odd = (KEY.encode(), f"{KEY} ", f"{KEY}\n")
    for match, values in (
        ("action_known", {"action": b"accept", "payment_key": KEY}),
        ("preparing_time", {"action": "accept", "payment_key": KEY, "preparing_time": b"25"}),
        ("food_id_integer", {"action": "activate_food", "food_id": b"55"}),
        *(("payment_key_uuid", {"action": "complete", "payment_key": bad}) for bad in odd),
        ("withdraw", {"action": "complete", "payment_key": KEY, "withdraw": 0.5}),
    ):
        refused(pos, match, **values)


def test_an_unknown_action_is_reported_first(pos):
    for columns in (
        {}, {"payment_key": KEY, "preparing_time": 25}, {"payment_key": KEY, "reason_id": 9}, {"food_id": 1.5},
        {"payment_key": KEY.upper()}, {"restaurant_id": KEY, "valid_minutes": 10**6},
        {"payment_key": KEY, "request_id": ""}, {"payment_key": KEY, "withdraw": 2},
    ):  # fmt: skip
        with pytest.raises(Refused, match="delivery_actions_action_known"):
            put(pos, "delivery_actions", action="cook", **columns)


def test_a_missing_or_foreign_argument_is_named(pos):
    for name, columns in (
        ("order_action_names_its_order", {"action": "accept", "preparing_time": 25}),
        ("order_action_names_its_order", {"action": "complete", "payment_key": KEY, "food_id": 55}),
        ("restaurant_action_names_its_restaurant", {"action": "open_restaurant", "payment_key": KEY}),
        ("food_action_names_its_food", {"action": "deactivate_food"}),
        ("accept_needs_preparing_time", {"action": "accept", "payment_key": KEY}),
        ("accept_needs_preparing_time", {"action": "complete", "payment_key": KEY, "preparing_time": 25}),
        ("cancel_needs_reason_id", {"action": "cancel", "payment_key": KEY}),
        (NOT_NULL, {"payment_key": KEY}),
    ):
        refused(pos, name, **columns)


def test_the_same_request_is_taken_once_and_an_id_is_never_used_twice(pos):
    first = put_action(pos, "complete", request_id="receipt 7")
    with pytest.raises(Refused, match=TWICE):
        put_action(pos, "complete", request_id="receipt 7")
    assert len(rows(pos, "SELECT id FROM delivery_actions")) == 1
    pos.execute("DELETE FROM delivery_actions")
    assert put_action(pos) > first


def test_a_row_cannot_be_changed_to_a_wrong_one(pos):
    row_id = put_action(pos)
    before = action_row(pos, row_id)
    for change in ("withdraw = 2", "withdraw = NULL", "state = 'gone'", "preparing_time = 0"):
        with pytest.raises(Refused):
            pos.execute(f"UPDATE delivery_actions SET {change}")
    assert action_row(pos, row_id) == before


@only(SQLITE)
def test_on_sqlite_what_a_row_asks_for_stays_as_it_was_inserted(pos):
    assert set(CHANGED_LATER) == set(WRITTEN_ONCE) == {*INSERTED, "id", "created_utc"} - {"withdraw"}
    row_id = put_action(pos, "deactivate_food", account="kadikoy", valid_minutes=20, created_by="till 1")
    for state in ("pending", "sending", "done"):
        pos.execute("UPDATE delivery_actions SET state = ?", (state,))
        before = action_row(pos, row_id)
        for column, value in [*CHANGED_LATER.items(), *((column, None) for column in CHANGED_LATER if column != "id")]:
            if before[column] != value:
                with pytest.raises(Refused, match="set withdraw = 1 and insert another row"):
                    pos.execute(f"UPDATE delivery_actions SET {column} = ?, withdraw = 1", (value,))
        pos.execute(f"UPDATE delivery_actions SET {', '.join(f'{name} = {name}' for name in before)}")  # no change
        assert action_row(pos, row_id) == before


def test_the_daemon_fills_in_what_the_pos_leaves_out(pos):
    before = datetime.now(UTC)
    found = [action_row(pos, put_action(pos)) for _ in range(50)]
    row, times = found[0], [row["created_utc"] for row in found]
    created = datetime.fromisoformat(times[0]).replace(tzinfo=UTC)
    rounded = timedelta(milliseconds=1)
    assert before - rounded <= created <= datetime.now(UTC) + rounded
    assert all(TIME.fullmatch(time) for time in times)
    assert times == sorted(times)
    assert (row["state"], row["withdraw"], row["attempts"]) == ("pending", 0, 0)
    empty = ("next_attempt_utc", "expires_utc", "http_status", "error_code", "error_text", "known_by", "finished_utc")
    assert [row[name] for name in empty] == [None] * len(empty)
    requests = {row["request_id"] for row in found}
    assert len(requests) == 50
    assert all(re.fullmatch("[0-9a-f-]{32,36}", request_id) for request_id in requests)


@pytest.mark.parametrize("column, right, wrong", [
    ("pos_revision", [0, 1, 3, "2"], [4, -1, "new", "", None]),
    ("pos_total", [235.5, 0, -3, "12.25"], ["12,25", "", "12.25 TL"]),
])  # fmt: skip
def test_a_till_writes_a_revision_that_it_has_read_and_a_total_that_is_a_number(column, right, wrong, pos):
    put_order(pos, revision=3)
    for value in right:
        pos.execute(f"UPDATE delivery_orders SET {column} = ?, pos_reference = 'A-1042'", (value,))
        assert float(order_row(pos)[column]) == float(value)
    for value in wrong:
        with pytest.raises(Refused, match=f"{column}|{UNFIT}"):
            pos.execute(f"UPDATE delivery_orders SET {column} = ?", (value,))
        assert float(order_row(pos)[column]) == float(right[-1])


def test_an_order_is_unique_begins_with_revision_1_and_is_deleted_with_its_lines(pos):
    if pos.kind == SQLITE:
        pos.execute("PRAGMA foreign_keys = ON")
    row = order_row(pos, put_order(pos))
    assert (row["revision"], row["last_change"], row["pos_revision"], row["pos_reference"]) == (1, "new", 0, None)
    with pytest.raises(Refused, match=TWICE):
        put_order(pos)
    put(pos, "delivery_order_items", payment_key=KEY, line_no=1)
    put(pos, "delivery_order_item_options", payment_key=KEY, line_no=1, option_no=1)
    pos.execute("DELETE FROM delivery_orders")
    assert rows(pos, "SELECT payment_key FROM delivery_order_items") == []
    assert rows(pos, "SELECT payment_key FROM delivery_order_item_options") == []


def through(database: Database, column: str, value: Any) -> Any:
    """The value read from an order's column after this one was written. The order is deleted again."""
    new = {"payment_key": KEY, "account": "kadikoy", "status": "RECEIVED", "received_utc": NOW, "changed_utc": NOW}
    with database.engine.begin() as connection:
        connection.execute(tables.orders.delete())
        connection.execute(tables.orders.insert().values(**new | {column: value}))
        return connection.execute(select(tables.orders.c[column])).scalar_one()


def test_an_amount_is_read_as_it_was_written_and_a_till_can_read_and_add_it_exactly_to_two_decimals(database, pos):
    listed = "0 0.01 0.10 0.29 1.15 2.675 19.90 235.50 1005.005 9999999999.99 -12.34".split()
    for amount in (None, *map(Decimal, listed)):
        assert through(database, "total", amount) == amount
        if pos.kind == SQLITE and amount is not None:
            assert one(pos, "SELECT typeof(total) AS kind FROM delivery_orders")["kind"] in ("integer", "real")
        seen = one(pos, "SELECT ROUND(total, 2) AS total FROM delivery_orders")["total"]
        if amount is None or amount == round(amount, 2):
            assert amount == (None if seen is None else Decimal(str(seen)))
    pos.execute("DELETE FROM delivery_orders")
    amounts = [Decimal(cents) / 100 for cents in range(0, 20_000, 7)]
    columns = {"account": "k", "status": "x", "received_utc": NOW, "changed_utc": NOW}
    many = [{"payment_key": key(n), "total": amount, **columns} for n, amount in enumerate(amounts)]
    with database.engine.begin() as connection:
        connection.execute(tables.orders.insert(), many)
    read = rows(pos, "SELECT ROUND(total, 2) AS total FROM delivery_orders ORDER BY payment_key")
    assert [Decimal(str(row["total"])) for row in read] == amounts
    total = one(pos, "SELECT ROUND(SUM(total), 2) AS total FROM delivery_orders")["total"]
    assert Decimal(str(total)) == sum(amounts)


def test_a_text_is_read_as_it_was_written_and_compared_letter_by_letter(database, pos):
    emoji, quotes = "Çığ, Şişli, İĞDIR ığüşöç 🌯🇹🇷👩‍🍳 a\ufffdb", 'O\'Neil "dürüm"; DROP TABLE x --'
    for text in (emoji, quotes, "bir\niki\tüç\r\n", "ş" * 100_000):
        assert through(database, "note", text) == order_row(pos)["note"] == text
    pos.execute("UPDATE delivery_orders SET pos_reference = 'A-1'")
    assert rows(pos, "SELECT * FROM delivery_orders WHERE pos_reference = 'a-1'") == []


def test_a_time_is_kept_as_text_in_utc_with_three_decimals(database, pos):
    for moment, text in (
        (NOW, NOW_TEXT),
        (datetime(2026, 3, 1, 15, 0, 0, 999_999, timezone(timedelta(hours=3))), "2026-03-01 12:00:00.999"),
        (datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC), "2026-12-31 23:59:59.000"),
    ):
        read = through(database, "received_utc", moment)
        assert order_row(pos)["received_utc"] == text == time_text(moment)
        assert read == moment.replace(microsecond=moment.microsecond // 1000 * 1000)
        assert read.tzinfo is UTC


@only(SQLITE)
def test_a_cell_that_is_no_time_or_no_amount_reads_as_none(database, pos):
    put_order(pos, total="bedava")
    query = select(tables.orders.c.ended_utc, tables.orders.c.total)
    for cell in ("", "soon", "01.03.2026 12:00", 5, 1.5, b"2026", None):
        assert read_time(cell) is None
        pos.execute("UPDATE delivery_orders SET ended_utc = ?", (cell,))
        assert database.read_now(lambda tx: tuple(tx.execute(query).one())) == (None, None)


def test_a_view_shows_the_orders_that_it_promises(pos):
    cancelled, completed = ({"ended_utc": NOW_TEXT, "ended_by": by} for by in ("cancelled", "completed"))
    for number, (columns, views) in enumerate([
        ({}, {"new", "open"}),
        ({"revision": 4}, {"new", "open"}),  # changed before it was read
        ({"pos_revision": 1, "pos_total": 12.25}, {"open"}),
        ({"revision": 3, "pos_revision": 2}, {"changed", "open"}),
        ({"revision": 2} | cancelled, set()),  # before it was taken over
        ({"revision": 2, "pos_revision": 1} | cancelled, {"changed"}),
        ({"revision": 4, "pos_revision": 4} | completed, set()),
    ]):  # fmt: skip
        put_order(pos, key(number), **columns)
        query = "SELECT pos_total FROM delivery_{}_orders WHERE payment_key = ?"
        shown = {view: rows(pos, query.format(view), key(number)) for view in ("new", "changed", "open")}
        assert {view for view, found in shown.items() if found} == views
        assert all(row["pos_total"] == columns.get("pos_total") for found in shown.values() for row in found)


def test_a_view_has_all_columns_of_the_orders_except_internal_ones(pos):
    ours = {"silence_from", "service_key"} | ({"pos_is_behind", "contents_ended_utc"} if pos.kind == MARIADB else set())
    later = ["start_utc", "remarks"]  # a server adds a column at the end of a view only

    def columns(name: str) -> list[str]:
        return [column[0] for column in pos.execute(f"SELECT * FROM {name} WHERE 1 = 0").description]

    shown = [column for column in columns("delivery_orders") if column not in {*ours, *later}]
    for view, more in (("new", []), ("changed", []), ("open", ["needs_answer_since"])):
        assert columns(f"delivery_{view}_orders") == shown + more + later


def test_an_open_order_says_since_when_it_needs_an_answer(pos):
    for number, (status_id, asked, waits) in enumerate([
        (1, [], True), (2, [], False), (None, [], False), (1, [("complete", "pending")], True),
        (1, [("accept", "pending")], False), (1, [("cancel", "sending")], False),
        (1, [("accept", "done")], False),  # the status follows
        (1, [("accept", "failed"), ("accept", "withdrawn"), ("cancel", "refused")], True),
    ]):  # fmt: skip
        put_order(pos, key(number), status_id=status_id)
        for action, state in asked:
            put_action(pos, action, payment_key=key(number), state=state)
        query = "SELECT needs_answer_since FROM delivery_open_orders WHERE payment_key = ?"
        assert one(pos, query, key(number))["needs_answer_since"] == (NOW_TEXT if waits else None)


@pytest.mark.parametrize("page", ["pos-reference.md", "pos-basvuru.md"])
@pytest.mark.parametrize("column, wrong", [(1, {"preparing_time": None}), (2, {"request_id": "receipt 7"})])
def test_the_references_have_the_words_of_each_database(page, column, wrong, pos):
    """The reference lists the messages for a failed CHECK and a repeated request_id."""
    put_action(pos, "complete", request_id="receipt 7")
    with pytest.raises(Refused) as refusal:
        put_action(pos, "accept", **wrong)
    found = re.search(rf"(?im)^\| {pos.kind} (.*)$", (DOCS / page).read_text("utf-8"))
    assert found is not None
    words = found[1].split("|")[column].partition("`")[2].strip("` ")
    assert re.search(".*".join(re.escape(part.strip()) for part in words.split("…")), str(refusal.value))
