"""Old records are deleted, on every database, but none that a promise needs."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from tests.store.samples import KEY, NOW, NOW_TEXT, key, put, put_action, put_document, put_order, rows

from orderbridge.store import retention
from orderbridge.store.database import Database
from orderbridge.store.ddl import time_text

BEFORE = NOW + timedelta(hours=1)
LATE = time_text(BEFORE + timedelta(hours=1))
LONG_BEFORE = NOW - timedelta(days=9000)
DONE = {"state": "done", "finished_utc": NOW_TEXT}
ZONE = ZoneInfo("Europe/Istanbul")


def orders_deleted(database: Database) -> list[str]:
    keys = database.read_now(lambda tx: retention.old_orders(tx, BEFORE))
    return database.write_now(lambda tx: retention.delete_orders(tx, keys, before=BEFORE))


def actions_deleted(database: Database) -> list[int]:
    ids = database.read_now(lambda tx: retention.old_actions(tx, BEFORE))
    return database.write_now(lambda tx: retention.delete_actions(tx, ids, before=BEFORE))


def test_an_order_that_is_long_over_goes_with_its_lines_and_its_story(database, pos):
    for one in (KEY, key(1)):
        put_order(pos, one, ended_utc=NOW_TEXT if one == KEY else LATE)
        put(pos, "delivery_order_items", payment_key=one, line_no=1)
        put(pos, "delivery_order_item_options", payment_key=one, line_no=1, option_no=1)
        put(pos, "delivery_order_events", payment_key=one, at_utc=NOW_TEXT, event="received")
    assert orders_deleted(database) == [KEY]
    for table in ("delivery_orders", "delivery_order_items", "delivery_order_item_options", "delivery_order_events"):
        assert [row["payment_key"] for row in rows(pos, f"SELECT payment_key FROM {table}")] == [key(1)]
    assert orders_deleted(database) == []


@pytest.mark.parametrize("state", ["pending", "sending"])
def test_what_is_open_or_has_an_unfinished_row_stays(state, database, pos):
    put_order(pos, key(1))
    put_order(pos, key(2), ended_utc=NOW_TEXT)
    row = put_action(pos, "complete", payment_key=key(2), state=state)
    assert (orders_deleted(database), actions_deleted(database)) == ([], [])
    pos.execute("UPDATE delivery_actions SET state = 'done', finished_utc = ? WHERE id = ?", (NOW_TEXT, row))
    assert (orders_deleted(database), actions_deleted(database)) == ([key(2)], [row])


def test_the_order_of_the_newest_event_stays_and_one_that_was_taken_up_again(database, pos):
    """The newest event shows which of two copies of the tables is older."""
    for number in (1, 2, 3):
        put_order(pos, key(number), ended_utc=NOW_TEXT)
        put(pos, "delivery_order_events", payment_key=key(number), at_utc=NOW_TEXT, event="received")
    keys = database.read_now(lambda tx: retention.old_orders(tx, BEFORE))
    assert sorted(keys) == [key(1), key(2)]
    pos.execute("UPDATE delivery_orders SET ended_utc = NULL WHERE payment_key = ?", (key(1),))
    assert database.write_now(lambda tx: retention.delete_orders(tx, keys, before=BEFORE)) == [key(2)]
    assert orders_deleted(database) == []
    assert len(rows(pos, "SELECT * FROM delivery_orders")) == 2


def test_rows_go_with_their_requests_whatever_they_are_about(database, pos):
    old = [put_action(pos, **DONE), put_action(pos, "activate_food", **DONE)]
    new = put_action(pos, "complete", state="failed", finished_utc=LATE)
    for row in (*old, new):
        put(pos, "delivery_action_attempts", action_id=row, attempt=1, started_utc=NOW_TEXT)
    assert actions_deleted(database) == old
    assert [row["action_id"] for row in rows(pos, "SELECT action_id FROM delivery_action_attempts")] == [new]


def test_documents_go_once_they_have_left_quarantine(database, pos):
    for digest, seen, resolved in (("a", NOW_TEXT, NOW_TEXT), ("b", NOW_TEXT, None), ("c", LATE, NOW_TEXT)):
        put_document(pos, payload_hash=digest, last_seen_utc=seen, resolved_utc=resolved)
    assert database.write_now(lambda tx: retention.delete_documents(tx, BEFORE)) == 1
    found = rows(pos, "SELECT payload_hash FROM delivery_quarantine ORDER BY id")
    assert [row["payload_hash"] for row in found] == ["b", "c"]


@pytest.mark.parametrize("years, believed", [(-1, "now"), (0, "now"), (1, "date"), (30, "date")])
def test_a_clock_that_is_ahead_is_believed_only_as_far_as_the_orders_are_dated(years, believed, database, pos):
    for number in range(9):
        put_order(pos, key(number), ordered_at="2026-03-01 15:00:00" if number < 6 else "9999-12-31 99:00:00")
        put(pos, "delivery_order_events", payment_key=key(number), at_utc=NOW_TEXT, event="received")
    now = NOW + timedelta(days=365 * years)
    found = database.read_now(lambda tx: retention.believed(tx, now, ZONE))
    assert found == (now if believed == "now" else datetime(2026, 3, 3, 12, tzinfo=UTC))


def test_orders_of_no_possible_date_say_nothing_about_the_clock_so_that_none_is_believed(database, pos):
    assert database.read_now(lambda tx: retention.believed(tx, NOW, ZONE)) < LONG_BEFORE
    for number, date in enumerate(["0001-01-01 00:00:00", "9999-12-31 23:59:59"]):
        pos.execute("DELETE FROM delivery_order_events")
        put_order(pos, key(number), ordered_at=date)
        put(pos, "delivery_order_events", payment_key=key(number), at_utc=NOW_TEXT, event="received")
        assert database.read_now(lambda tx: retention.believed(tx, NOW, ZONE)) < LONG_BEFORE
