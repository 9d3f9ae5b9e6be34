"""A customer's number is found in every notation, and is blanked everywhere, on every database."""

import json

import pytest
from tests.store.samples import (
    KEY,
    NOW,
    NOW_TEXT,
    OTHER,
    order_row,
    put,
    put_action,
    put_document,
    put_order,
    rows,
)

from orderbridge.document import Facts, columns_of
from orderbridge.store import retention

NUMBER = "5551234567"
WRITTEN = [
    "5551234567", "05551234567", "+905551234567", "+90 (555) 123 45 67", "00 90 555 123-45-67", "0555.123.45.67",
    "۵۵۵۱۲۳۴۵۶۷",
]  # fmt: skip
PERSONAL = columns_of(Facts, personal=True)


def test_a_number_is_one_in_all_its_forms_and_is_found_in_a_text():
    found = retention.pattern(NUMBER)
    for phone in WRITTEN:
        assert retention.normal(phone) == NUMBER
        assert not phone.isascii() or found.search(f'{{"phone": "{phone}", "id": 7}}')
    assert not found.search(f'{{"id": "9{NUMBER}"}}')
    assert not found.search(f'{{"id": "{NUMBER}0"}}')
    assert [retention.normal(phone) for phone in ("", "123456", "no number", "+")] == [None] * 4, "too few digits"


def test_documents_in_quarantine_are_found_by_the_number_in_them_or_by_their_order(database, pos):
    """Also by another document of their order: an older one that is left alone would be taken in as its newest."""
    payloads = [json.dumps({"customer": {"phone": "0555 123 45 67"}}), "not json 5551234567", "another", "of the order"]
    keys = dict(zip(payloads, [OTHER, None, None, KEY], strict=True)) | {
        "of the same order, with a masked number": OTHER
    }
    for number, (payload, payment_key) in enumerate(keys.items()):
        put_document(pos, payload=payload, payload_hash=f"{number}", payment_key=payment_key)
    found = database.read_now(lambda tx: retention.find(tx, phones=[NUMBER], keys=[KEY]))
    assert len(found.documents) == 4
    assert database.write_now(lambda tx: retention.blank_documents(tx, found.documents, NOW)) == 4
    left = rows(pos, "SELECT payload, resolved_utc FROM delivery_quarantine ORDER BY id")
    assert [row["payload"] for row in left] == ["", "", "another", "", ""]
    assert [row["resolved_utc"] is None for row in left] == [False, False, True, False, False]


def test_all_that_names_a_customer_is_blanked_and_nothing_else(database, pos):
    for one in (KEY, OTHER):
        put_order(pos, one, ended_utc=NOW_TEXT, payload="{}", total=10, **dict.fromkeys(PERSONAL, "Ayşe"))
        put(pos, "delivery_order_items", payment_key=one, line_no=1, name="Dürüm", note="Ayşe")
        put(pos, "delivery_order_events", payment_key=one, at_utc=NOW_TEXT, event="x", detail="Ayşe")
        row = put_action(pos, payment_key=one, state="done")
        put(pos, "delivery_action_attempts", action_id=row, attempt=1, started_utc=NOW_TEXT, detail="Ayşe")
    before = order_row(pos, OTHER)
    assert database.write_now(lambda tx: retention.blank(tx, [KEY], with_open=False)) == [KEY]
    after = order_row(pos, KEY)
    assert {after[name] for name in (*PERSONAL, "payload")} == {None}
    assert (float(after["total"]), after["ended_utc"], after["revision"]) == (10, NOW_TEXT, 1)
    assert order_row(pos, OTHER) == before
    for table, column in (("order_items", "note"), ("order_events", "detail"), ("action_attempts", "detail")):
        found = rows(pos, f"SELECT {column} FROM delivery_{table}")
        assert sorted(str(row[column]) for row in found) == ["Ayşe", "None"]


@pytest.mark.parametrize("force", [False, True])
def test_an_open_order_is_blanked_only_by_force(force, database, pos):
    put_order(pos, customer_name="Ayşe")
    done = database.write_now(lambda tx: retention.blank(tx, [KEY], with_open=force))
    assert (done == [KEY], order_row(pos)["customer_name"] is None) == (force, force)
