"""Old records are deleted, but none that a promise needs; a customer's number is found and blanked everywhere."""

import json
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from tests.store.samples import (  # isort: skip
    KEY, NOW, NOW_TEXT, OTHER, key, order_row, put, put_action, put_document, put_order, rows,
)  # fmt: skip

from orderbridge.document import Facts, columns_of
from orderbridge.store import quarantine, retention
from orderbridge.store.database import Database
from orderbridge.store.ddl import time_text

BEFORE = NOW + timedelta(hours=1)
LATE = time_text(BEFORE + timedelta(hours=1))
LONG_BEFORE = NOW - timedelta(days=9000)
DONE = {"state": "done", "finished_utc": NOW_TEXT}
NUMBER = "5551234567"
WRITTEN = [
    "5551234567", "05551234567", "+905551234567", "+90 (555) 123 45 67", "00 90 555 123-45-67", "0555.123.45.67",
    "۵۵۵۱۲۳۴۵۶۷",
]  # fmt: skip
PERSONAL = columns_of(Facts, personal=True)


def orders_deleted(database: Database) -> list[str]:
    keys = database.read_now(lambda tx: retention.old_orders(tx, BEFORE))
    return database.write_now(lambda tx: retention.delete_orders(tx, keys, before=BEFORE))


def actions_deleted(database: Database) -> list[int]:
    ids = database.read_now(lambda tx: retention.old_actions(tx, BEFORE))
    return database.write_now(lambda tx: retention.delete_actions(tx, ids, before=BEFORE))


def test_an_old_order_is_deleted_with_its_lines_and_events(database, pos):
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


def test_the_order_of_the_newest_event_and_a_reopened_one_are_kept(database, pos):
    """The newest event shows which of two copies of the tables is older."""
    for number in (1, 2, 3):
        put_order(pos, key(number), ended_utc=NOW_TEXT)
        put(pos, "delivery_order_events", payment_key=key(number), at_utc=NOW_TEXT, event="received")
    keys = database.read_now(lambda tx: retention.old_orders(tx, BEFORE))
    assert sorted(keys) == [key(1), key(2)]
    pos.execute("UPDATE delivery_orders SET ended_utc = NULL WHERE payment_key = ?", (key(1),))
    assert database.write_now(lambda tx: retention.delete_orders(tx, keys, before=BEFORE)) == [key(2)]
    assert (orders_deleted(database), len(rows(pos, "SELECT * FROM delivery_orders"))) == ([], 2)


def test_rows_go_with_their_requests_and_documents_once_they_have_left_quarantine(database, pos):
    old = [put_action(pos, **DONE), put_action(pos, "activate_food", **DONE)]
    new = put_action(pos, "complete", state="failed", finished_utc=LATE)
    for row in (*old, new):
        put(pos, "delivery_action_attempts", action_id=row, attempt=1, started_utc=NOW_TEXT)
    assert actions_deleted(database) == old
    assert [row["action_id"] for row in rows(pos, "SELECT action_id FROM delivery_action_attempts")] == [new]
    for digest, seen, resolved in (("a", NOW_TEXT, NOW_TEXT), ("b", NOW_TEXT, None), ("c", LATE, NOW_TEXT)):
        put_document(pos, payload_hash=digest, last_seen_utc=seen, resolved_utc=resolved)
    assert database.write_now(lambda tx: retention.delete_documents(tx, BEFORE)) == 1
    found = rows(pos, "SELECT payload_hash FROM delivery_quarantine ORDER BY id")
    assert [row["payload_hash"] for row in found] == ["b", "c"]


def test_a_clock_is_trusted_only_up_to_the_dates_of_the_orders(database, pos):
    def plausible_now(now: datetime) -> datetime:
        return database.read_now(lambda tx: retention.plausible_now(tx, now, ZoneInfo("Europe/Istanbul")))

    assert plausible_now(NOW) < LONG_BEFORE
    for number, date in enumerate(["0001-01-01 00:00:00", "9999-12-31 23:59:59"]):  # impossible dates
        put_order(pos, key(100 + number), ordered_at=date)
        put(pos, "delivery_order_events", payment_key=key(100 + number), at_utc=NOW_TEXT, event="received")
        assert plausible_now(NOW) < LONG_BEFORE
    for number in range(9):
        put_order(pos, key(number), ordered_at="2026-03-01 15:00:00" if number < 6 else "9999-12-31 99:00:00")
        put(pos, "delivery_order_events", payment_key=key(number), at_utc=NOW_TEXT, event="received")
    year = timedelta(days=365)
    assert (plausible_now(NOW - year), plausible_now(NOW)) == (NOW - year, NOW)
    assert plausible_now(NOW + year) == plausible_now(NOW + 30 * year) == datetime(2026, 3, 3, 12, tzinfo=UTC)


def test_a_phone_number_is_found_in_any_form():
    found = retention.pattern(NUMBER)
    for phone in WRITTEN:
        assert retention.normal(phone) == NUMBER
        assert not phone.isascii() or found.search(f'{{"phone": "{phone}", "id": 7}}')
    assert not any(found.search(f'{{"id": "{longer}"}}') for longer in (f"9{NUMBER}", f"{NUMBER}0"))
    assert [retention.normal(phone) for phone in ("", "123456", "no number", "+")] == [None] * 4, "too few digits"


def test_documents_in_quarantine_are_found_by_the_number_in_them_or_by_their_order(database, pos):
    """They are also found by another document of their order. A remaining older one would be stored as the newest."""
    payloads = [json.dumps({"customer": {"phone": "0555 123 45 67"}}), "not json 5551234567", "another", "of the order"]
    keys = dict(zip(payloads, [OTHER, None, None, KEY], strict=True)) | {"with a masked number": OTHER}
    for number, (payload, payment_key) in enumerate(keys.items()):
        put_document(pos, payload=payload, payload_hash=f"{number}", payment_key=payment_key)
    found = database.read_now(lambda tx: retention.find(tx, phones=[NUMBER], keys=[KEY]))
    assert len(found.documents) == database.write_now(lambda tx: quarantine.blank(tx, found.documents, NOW)) == 4
    left = rows(pos, "SELECT payload, resolved_utc FROM delivery_quarantine ORDER BY id")
    assert [row["payload"] for row in left] == ["", "", "another", "", ""]
    assert [row["resolved_utc"] is None for row in left] == [False, False, True, False, False]


def test_all_that_names_a_customer_is_blanked_and_nothing_else_and_an_open_order_only_by_force(database, pos):
    put_order(pos, key(1), customer_name="Ayşe")
    for one in (KEY, OTHER):
        put_order(pos, one, ended_utc=NOW_TEXT, payload="{}", total=10, **dict.fromkeys(PERSONAL, "Ayşe"))
        put(pos, "delivery_order_items", payment_key=one, line_no=1, name="Dürüm", note="Ayşe")
        put(pos, "delivery_order_events", payment_key=one, at_utc=NOW_TEXT, event="x", detail="Ayşe")
        row = put_action(pos, payment_key=one, state="done")
        put(pos, "delivery_action_attempts", action_id=row, attempt=1, started_utc=NOW_TEXT, detail="Ayşe")
    before = order_row(pos, OTHER)
    assert database.write_now(lambda tx: retention.blank(tx, [KEY, key(1)], with_open=False)) == [KEY]
    assert order_row(pos, key(1))["customer_name"] == "Ayşe"
    assert database.write_now(lambda tx: retention.blank(tx, [key(1)], with_open=True)) == [key(1)]
    assert order_row(pos, key(1))["customer_name"] is None
    after = order_row(pos, KEY)
    assert {after[name] for name in (*PERSONAL, "payload")} == {None}
    assert (float(after["total"]), after["ended_utc"], after["revision"]) == (10, NOW_TEXT, 1)
    assert order_row(pos, OTHER) == before
    for table, column in (("order_items", "note"), ("order_events", "detail"), ("action_attempts", "detail")):
        found = rows(pos, f"SELECT {column} FROM delivery_{table}")
        assert sorted(str(row[column]) for row in found) == ["Ayşe", "None"]
