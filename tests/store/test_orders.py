"""Orders: which columns each function writes, and which it must not touch."""

from dataclasses import fields
from datetime import timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from tests.databases import SERVERS, SQLITE, only

from tests.store.samples import (  # isort: skip
    KEY, LATER, LATER_TEXT, NOW, NOW_TEXT, OTHER, Pos, Row, arrival, became, difference, facts, item, key, one, option,
    order_row, put, put_action, put_order, rows,
)  # fmt: skip
from orderbridge.document import Facts
from orderbridge.model import Change, Differs, EndedBy, LastChange, Stored
from orderbridge.store import orders, retention
from orderbridge.store.database import Database
from orderbridge.store.rows import BATCH, ORDER, lock, skips_locks

CONTENTS = {"differs": Differs.PRINT, "last_change": LastChange.CONTENTS}
STATUS = {"last_change": LastChange.STATUS}
CONFIRMED = arrival(status_id=2, status="CONFIRMED", status_text="Onaylandı", digest="d2")
CANCELED = arrival(status_id=6, status="CANCELED", ended_by=EndedBy.CANCELLED)
PRIVATE = "note customer_name customer_phone address address_description apartment_no building_no".split()
PRIVATE += "neighborhood_name district_name city_name payload".split()


def change(**values: Any) -> Change:
    """A delivery without news whose status counts."""
    usual: dict[str, Any] = {"status_counts": True, "differs": Differs.NOTHING}
    return Change(**usual | dict.fromkeys(("ended_by", "last_change", "problem")) | values)


def insert(database: Database, *new: orders.Arrival) -> None:
    database.write_now(lambda tx: orders.insert_new(tx, "kadikoy", new or (arrival(),), NOW))


def stored(database: Database, payment_key: str = KEY) -> Stored:
    return database.read_now(lambda tx: orders.stored(tx, [payment_key]))[payment_key]


def deliver(database: Database, delivered: orders.Arrival, **what: Any) -> None:
    known = stored(database, delivered.order.payment_key)
    database.write_now(lambda tx: orders.update_delivered(tx, known, delivered, change(**what), LATER))


def story(pos: Pos, payment_key: str = KEY) -> list[tuple[Any, ...]]:
    query = "SELECT * FROM delivery_order_events WHERE payment_key = ? ORDER BY id"
    columns = ("at_utc", "event", "status_id", "status", "detail")
    return [tuple(row[column] for column in columns) for row in rows(pos, query, payment_key)]


def cells(pos: Pos, columns: str, payment_key: str = KEY) -> tuple[Any, ...]:
    return tuple(order_row(pos, payment_key)[column] for column in columns.split())


def take_over(pos: Pos) -> None:
    pos.execute("UPDATE delivery_orders SET pos_revision = 1, pos_reference = 'A-7'")


def test_a_new_order_is_stored_whole_with_its_lines_and_options_numbered(database, pos):
    two = item(name="Lahmacun", options=(option(option_name="Acılı"), option(option_name="Soğanlı")))
    insert(database, arrival(facts=facts(items=(item(options=()), two))))
    row = order_row(pos)
    given = {field.name: getattr(facts(), field.name) for field in fields(Facts) if field.name != "items"}
    expected = {name: float(value) if isinstance(value, Decimal) else value for name, value in given.items()}
    assert {name: row[name] for name in expected} == expected
    others = {name: row[name] for name in row.keys() - expected.keys()}
    assert {name: value for name, value in others.items() if value is not None} == {
        "payment_key": KEY, "account": "kadikoy", "status_id": 1, "service_status_id": 1, "status": "RECEIVED",
        "status_text": "Onay Bekliyor", "payload": '{"id": 100234}', "payload_hash": "d1", "revision": 1,
        "last_change": "new", "received_utc": NOW_TEXT, "changed_utc": NOW_TEXT, "pos_revision": 0,
        "contents_revision": 1,
    }  # fmt: skip
    assert story(pos) == [(NOW_TEXT, "received", 1, "RECEIVED", None)]
    lines = rows(pos, "SELECT line_no, name, price, quantity FROM delivery_order_items ORDER BY line_no")
    assert [tuple(line.values()) for line in lines] == [(1, "Adana Dürüm", 110.25, 2), (2, "Lahmacun", 110.25, 2)]
    chosen = rows(pos, "SELECT line_no, option_no, option_name, price FROM delivery_order_item_options")
    assert [tuple(row.values()) for row in chosen] == [(2, 1, "Acılı", 15), (2, 2, "Soğanlı", 15)]


def test_a_new_order_can_be_special(database, pos):
    nothing = facts(**dict.fromkeys(field.name for field in fields(Facts)) | {"items": ()})
    unread = arrival(status_id=None, status="UNKNOWN", status_text=None, facts=nothing)
    for new, columns, expected in (
        (CANCELED, "ended_utc ended_by revision", (NOW_TEXT, "cancelled", 1)),
        (arrival(problems=("b:total", "a:foods")), "problem", ("b:total,a:foods",)),
        (arrival(raw=b"a\0b"), "payload", ("a\ufffdb",)),
        (unread, "status_id service_status_id status total payload", (None, None, "UNKNOWN", None, '{"id": 100234}')),
    ):
        pos.execute("DELETE FROM delivery_orders")
        insert(database, new)
        assert cells(pos, columns) == expected
        assert len(rows(pos, "SELECT * FROM delivery_new_orders")) == (new is not CANCELED)


def test_a_stored_order_is_read_and_an_unknown_key_is_not_in_the_answer(database, pos):
    insert(database, arrival(problems=("missing:foods",)))
    put_order(pos, key(1), payload=None)
    expected = Stored(
        payment_key=KEY, account="kadikoy", status_id=1, service_status_id=1, revision=1, digest="d1",
        courier_type="restaurant", acknowledged_status_id=None, ended_by=None, problem="missing:foods",
    )  # fmt: skip
    assert database.read_now(lambda tx: orders.stored(tx, [KEY, OTHER])) == {KEY: expected}
    payloads = database.read_now(lambda tx: orders.payloads(tx, [KEY, OTHER, key(1)]))
    assert payloads == {KEY: '{"id": 100234}', key(1): None}


@pytest.mark.parametrize("ask", [orders.stored, orders.payloads], ids=["stored", "payloads"])
def test_any_number_of_keys_can_be_read(ask, database):
    assert max(BATCH, retention.SWEEP) + 10 < 999, "as many parameters as an old SQLite takes"
    insert(database, *(arrival(key(number), facts=facts(items=())) for number in range(BATCH + 1)))
    for count in (0, 1, BATCH, BATCH + 1):
        assert len(database.read_now(lambda tx, count=count: ask(tx, map(key, range(count))))) == count


def test_an_order_with_an_unresolved_row_is_found_in_any_number_of_keys(database, pos):
    for number, state in enumerate(["pending", "done", "refused", "failed"]):
        put_action(pos, "complete", payment_key=key(number), state=state)
    put_action(pos, "complete", state="sending")
    for asked, found in (([KEY, *map(key, range(2 * BATCH))], {KEY}), ([OTHER], set())):
        assert database.read_now(lambda tx, asked=asked: orders.with_unresolved_rows(tx, asked)) == found


@pytest.mark.parametrize("by", ["changed_utc", "acknowledged_utc", "delivered", "status_withheld"])
def test_an_order_has_news_from_its_last_change_delivery_or_acknowledgement_on(database, pos, by):
    put_order(pos, **{"changed_utc": "2020-01-01 00:00:00.000"} | ({by: NOW_TEXT} if by.endswith("_utc") else {}))
    event = "ended" if by.endswith("_utc") else by
    database.write_now(lambda tx: orders.append_events(tx, NOW, [(KEY, event, 2, "CONFIRMED", None)]))
    moments = [NOW + timedelta(seconds=seconds) for seconds in (-1, 0, 1)]
    news = [database.read_now(lambda tx, at=at: orders.has_news_since(tx, KEY, at)) for at in moments]
    assert news == [True, True, False]


def test_orders_are_locked_and_one_that_a_till_holds_is_left_out_without_waiting(kind, database, pos):
    insert(database, arrival(), arrival(OTHER))
    assert database.write_now(lambda tx: lock(tx, ORDER, [KEY, OTHER])) == {KEY, OTHER}
    assert database.write_now(lambda tx: lock(tx, ORDER, [])) == set()
    if kind != SQLITE:
        pos.execute("BEGIN")
        pos.execute("UPDATE delivery_orders SET pos_revision = 1 WHERE payment_key = ?", (KEY,))
        assert database.write_now(lambda tx: lock(tx, ORDER, [KEY, OTHER])) == {OTHER}


def test_skip_locked_is_used_only_where_the_server_supports_it():
    for name, is_mariadb, version, skips in (
        ("postgresql", False, (15, 20), True), ("mysql", True, (10, 5, 29), False), ("mysql", True, (10, 6, 0), True),
        ("mysql", False, (5, 7), False), ("mysql", False, (8, 0, 40), True), ("sqlite", False, (3, 40), False),
    ):  # fmt: skip
        dialect = SimpleNamespace(name=name, is_mariadb=is_mariadb, server_version_info=version)
        connection: Any = SimpleNamespace(dialect=dialect)
        assert skips_locks(connection) == skips


def test_a_delivery_with_another_status_is_a_revision_and_writes_no_line(database, pos):
    insert(database)
    take_over(pos)
    pos.execute("UPDATE delivery_order_items SET name = 'as it was'")
    deliver(database, CONFIRMED, **STATUS)
    columns = "status_id service_status_id status status_text payload_hash revision last_change changed_utc"
    assert cells(pos, columns) == (2, 2, "CONFIRMED", "Onaylandı", "d2", 2, "status", LATER_TEXT)
    assert story(pos)[1:] == [(LATER_TEXT, "status", 2, "CONFIRMED", None)]
    assert len(rows(pos, "SELECT * FROM delivery_changed_orders")) == 1
    assert one(pos, "SELECT name FROM delivery_order_items")["name"] == "as it was"


@pytest.mark.parametrize("differs, printed", [(Differs.NOTHING, 1), (Differs.DETAILS, 1), (Differs.PRINT, 4)])
def test_contents_revision_grows_only_with_items_notes_or_money(differs, printed, database, pos):
    insert(database)
    pos.execute("UPDATE delivery_orders SET revision = 3")
    deliver(database, arrival(digest="d2"), differs=differs, last_change=LastChange.CONTENTS)
    assert cells(pos, "revision contents_revision") == (4, printed)
    for view in ("new", "open"):
        assert one(pos, f"SELECT contents_revision FROM delivery_{view}_orders")["contents_revision"] == printed


def test_a_delivery_changes_no_column_of_the_pos_and_an_unchanged_one_makes_no_revision(database, pos):
    insert(database)
    take_over(pos)
    before = order_row(pos)
    deliver(database, arrival(status_id=1, digest="d2", raw=b'{"id":100234}'))
    assert difference(before, order_row(pos)) == {"payload", "payload_hash"}
    assert story(pos)[1:] == [(LATER_TEXT, "delivered", 1, "RECEIVED", None)]
    deliver(database, arrival(status_id=2, status="CONFIRMED", facts=facts(note="yeni"), raw=b"c\0d"), **CONTENTS)
    kept = "pos_revision pos_reference pos_total account received_utc acknowledged_utc acknowledged_status_id"
    assert difference(before, order_row(pos)).isdisjoint(kept.split())
    assert cells(pos, "payload note") == ("c\ufffdd", "yeni")


def test_a_status_that_does_not_count_is_withheld_but_the_contents_are_stored(database, pos):
    insert(database)
    end = {"status_id": 6, "status": "CANCELED", "status_text": "İptal", "ended_by": EndedBy.CANCELLED}
    deliver(database, arrival(**end, facts=facts(note="yeni")), status_counts=False, **CONTENTS)
    assert cells(pos, "status_id service_status_id status status_text") == (1, 1, "RECEIVED", "Onay Bekliyor")
    assert cells(pos, "ended_utc ended_by note last_change") == (None, None, "yeni", "contents")
    assert order_row(pos)["payload_hash"] is None  # so that the next delivery is read, even with the same bytes
    assert story(pos)[1:] == [(LATER_TEXT, "status_withheld", 6, "CANCELED", None)]


def test_a_delivered_end_ends_the_order_and_only_the_same_end_again_keeps_its_time(database, pos):
    ended = arrival(OTHER, 6, status="CANCELED", ended_by=EndedBy.CANCELLED)
    insert(database, arrival(), ended)
    deliver(database, CANCELED, ended_by=EndedBy.CANCELLED, last_change=LastChange.CANCELLED)
    assert cells(pos, "ended_utc ended_by last_change") == (LATER_TEXT, "cancelled", "cancelled")
    deliver(database, ended, ended_by=EndedBy.CANCELLED)
    assert cells(pos, "ended_utc", OTHER) == (NOW_TEXT,)
    another = arrival(OTHER, 5, status="COMPLETE_WITH_PAYMENT", ended_by=EndedBy.COMPLETED)
    deliver(database, another, ended_by=EndedBy.COMPLETED, last_change=LastChange.ENDED)
    assert cells(pos, "ended_utc ended_by", OTHER) == (LATER_TEXT, "completed")
    deliver(database, arrival(OTHER), last_change=LastChange.STATUS)
    assert cells(pos, "ended_utc ended_by revision", OTHER) == (None, None, 3)


def set_status(database: Database, status_id: int, *, shown: bool = True) -> None:
    database.write_now(lambda tx: orders.set_status(tx, [became(stored(database), status_id, shown=shown)], LATER))


def test_a_verdict_writes_the_status_of_its_order_and_the_same_again_is_no_revision(database, pos):
    insert(database, arrival(), arrival(OTHER))
    take_over(pos)
    before, other = order_row(pos), order_row(pos, OTHER)
    set_status(database, 2)
    after = order_row(pos)
    written = "status_id service_status_id status revision last_change changed_utc"
    assert cells(pos, written) == (2, 2, "CONFIRMED", 2, "status", LATER_TEXT)
    assert difference(before, after) <= {*written.split(), "status_text"}
    set_status(database, 2)
    assert (order_row(pos), order_row(pos, OTHER)) == (after, other)
    set_status(database, 5, shown=False)  # inferred, not shown
    assert cells(pos, "status_id service_status_id revision ended_by") == (5, 2, 3, "completed")


def test_a_note_changes_one_order_only(database, pos):
    insert(database, arrival(), arrival(OTHER))
    other, events, done = order_row(pos, OTHER), story(pos), [(KEY, 1, "RECEIVED", LATER)]
    for write, written in (
        (lambda tx: orders.doubt_status(tx, [(KEY, "status_doubtful")]), {"problem": "status_doubtful"}),
        (lambda tx: orders.adopt(tx, KEY, "besiktas"), {"account": "besiktas"}),
        (lambda tx: orders.mark_acknowledged(tx, []), {}),
        (lambda tx: orders.append_events(tx, NOW, []), {}),
        (lambda tx: orders.insert_new(tx, "kadikoy", (), NOW), {}),
        (lambda tx: orders.mark_acknowledged(tx, done), {"acknowledged_utc": LATER_TEXT, "acknowledged_status_id": 1}),
    ):
        before = order_row(pos)
        assert (order_row(pos, OTHER), story(pos)) == (other, events)
        database.write_now(write)
        after = order_row(pos)
        assert {name: after[name] for name in difference(before, after)} == written
    assert story(pos) == [*events, (LATER_TEXT, "acknowledged", 1, "RECEIVED", None)]
    marks = [(KEY, 1, "RECEIVED", NOW), (OTHER, None, "UNKNOWN", LATER)]
    database.write_now(lambda tx: orders.mark_acknowledged(tx, marks))
    noted = [cells(pos, "acknowledged_status_id acknowledged_utc", which) for which in (KEY, OTHER)]
    assert noted == [(1, NOW_TEXT), (None, LATER_TEXT)]


def blank(database: Database) -> int:
    old = database.read_now(lambda tx: retention.with_old_contents(tx, LATER))
    return len(database.write_now(lambda tx: retention.blank_old(tx, old, before=LATER)))


def ended(database: Database, pos: Pos, at: str) -> Row:
    insert(database)
    pos.execute("UPDATE delivery_orders SET ended_utc = ?, ended_by = 'completed'", (at,))
    return order_row(pos)


def test_customer_data_is_blanked_once_and_the_sale_is_kept(database, pos):
    before = ended(database, pos, NOW_TEXT)
    put_order(pos, OTHER)
    for payment_key in (KEY, OTHER):
        row_id = put_action(pos, "complete", payment_key=payment_key)
        put(pos, "delivery_action_attempts", action_id=row_id, attempt=1, started_utc=NOW_TEXT, detail="Ayşe Yılmaz")
    assert [blank(database), blank(database)] == [1, 0]
    after = order_row(pos)  # a repeated delivery would count as new
    assert {column: after[column] for column in difference(before, after)} == dict.fromkeys([*PRIVATE, "payload_hash"])
    sold = one(pos, "SELECT name, note, total FROM delivery_order_items")
    assert sold == {"name": "Adana Dürüm", "note": None, "total": 235.5}
    details = rows(pos, "SELECT detail FROM delivery_action_attempts ORDER BY action_id")
    assert details == [{"detail": None}, {"detail": "Ayşe Yılmaz"}]


def test_a_recent_or_reopened_order_keeps_its_customer(database, pos):
    before = ended(database, pos, LATER_TEXT)
    assert (blank(database), order_row(pos)) == (0, before)
    pos.execute("UPDATE delivery_orders SET ended_utc = ?", (NOW_TEXT,))
    old = database.read_now(lambda tx: retention.with_old_contents(tx, LATER))
    pos.execute("UPDATE delivery_orders SET ended_utc = NULL")
    before = order_row(pos)
    assert (old, database.write_now(lambda tx: retention.blank_old(tx, old, before=LATER))) == ([KEY], [])
    assert (order_row(pos), blank(database)) == (before, 0)


@only(*SERVERS)
def test_an_old_order_that_a_till_holds_is_blanked_later(database, pos):
    for payment_key in (KEY, OTHER):
        put_order(pos, payment_key, ended_utc=NOW_TEXT, payload="{}")
    pos.execute("BEGIN")
    pos.execute("UPDATE delivery_orders SET pos_reference = 'A-7' WHERE payment_key = ?", (KEY,))
    assert blank(database) == 1
    pos.execute("COMMIT")
    assert blank(database) == 1


def test_old_orders_are_blanked_in_short_transactions(database, pos, monkeypatch):
    monkeypatch.setattr(retention, "SWEEP", 2)
    for number in range(3):
        put_order(pos, key(number), ended_utc=NOW_TEXT, payload="{}")
    assert [blank(database) for _ in range(3)] == [2, 1, 0]


def test_missing_lines_are_deleted_with_their_options_and_those_of_other_orders_stay(database, pos):
    insert(database, arrival(facts=facts(items=(item(), item(name="Lahmacun")))), arrival(OTHER))
    deliver(database, arrival(facts=facts(items=(item(name="Ayran", options=()),))), **CONTENTS)
    lines = rows(pos, "SELECT payment_key, name FROM delivery_order_items ORDER BY payment_key")
    assert [tuple(line.values()) for line in lines] == [(KEY, "Ayran"), (OTHER, "Adana Dürüm")]
    assert [row["payment_key"] for row in rows(pos, "SELECT * FROM delivery_order_item_options")] == [OTHER]
    assert order_row(pos, OTHER)["revision"] == 1
