"""Orders: what each function writes, and what it must leave alone."""

from dataclasses import fields
from datetime import timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from tests.databases import SERVERS, only
from tests.store.samples import (
    KEY,
    LATER,
    LATER_TEXT,
    NOW,
    NOW_TEXT,
    OTHER,
    Pos,
    Row,
    arrival,
    became,
    difference,
    facts,
    item,
    key,
    one,
    option,
    order_row,
    put,
    put_action,
    put_order,
    rows,
)

from orderbridge.document import Facts
from orderbridge.model import Change, Differs, EndedBy, LastChange, Stored
from orderbridge.store import orders, retention
from orderbridge.store.database import Database
from orderbridge.store.rows import BATCH, ORDER, lock, skips_locks

POS_COLUMNS = {"pos_revision", "pos_reference", "pos_total"}
DAY = timedelta(hours=24)


def change(**values: Any) -> Change:
    """A delivery that brings nothing new and counts."""
    usual: dict[str, Any] = {
        "status_counts": True,
        "status_changed": False,
        "differs": Differs.NOTHING,
        "reopened": False,
        "ended_by": None,
        "last_change": None,
        "problem": None,
    }
    return Change(**usual | values)


def insert(database: Database, *new: orders.Arrival) -> None:
    database.write_now(lambda tx: orders.insert_new(tx, "kadikoy", new or (arrival(),), NOW))


def stored(database: Database, payment_key: str = KEY) -> Stored:
    return database.read_now(lambda tx: orders.stored(tx, [payment_key]))[payment_key]


def deliver(database: Database, delivered: orders.Arrival, **what: Any) -> None:
    """A later delivery of an order that is stored."""
    known = stored(database, delivered.order.payment_key)
    database.write_now(lambda tx: orders.update_delivered(tx, known, delivered, change(**what), LATER))


def story(pos: Pos, payment_key: str = KEY) -> list[tuple[Any, ...]]:
    columns = ("at_utc", "event", "status_id", "status", "detail")
    query = "SELECT * FROM delivery_order_events WHERE payment_key = ? ORDER BY id"
    return [tuple(row[column] for column in columns) for row in rows(pos, query, payment_key)]


def take_over(pos: Pos, revision: int = 1) -> None:
    pos.execute("UPDATE delivery_orders SET pos_revision = ?, pos_reference = 'A-7'", (revision,))


# ---- insert_new ------------------------------------------------------------------------------------------------------


def test_a_new_order_is_stored_whole(database, pos):
    insert(database)
    row = order_row(pos)
    expected = {field.name: getattr(facts(), field.name) for field in fields(Facts) if field.name != "items"}
    assert {name: row[name] for name in expected} == {
        name: float(value) if isinstance(value, Decimal) else value for name, value in expected.items()
    }
    others = {name: row[name] for name in row.keys() - expected.keys()}
    assert {name: value for name, value in others.items() if value is not None} == {
        "payment_key": KEY,
        "account": "kadikoy",
        "status_id": 1,
        "service_status_id": 1,
        "status": "RECEIVED",
        "status_text": "Onay Bekliyor",
        "payload": '{"id": 100234}',
        "payload_hash": "d1",
        "revision": 1,
        "last_change": "new",
        "received_utc": NOW_TEXT,
        "changed_utc": NOW_TEXT,
        "pos_revision": 0,
        "contents_revision": 1,
    }
    assert story(pos) == [(NOW_TEXT, "received", 1, "RECEIVED", None)]


def test_the_lines_and_options_of_a_new_order_are_numbered(database, pos):
    two = item(name="Lahmacun", options=(option(option_name="Acılı"), option(option_name="Soğanlı")))
    insert(database, arrival(facts=facts(items=(item(options=()), two))))
    lines = rows(pos, "SELECT line_no, name, price, quantity FROM delivery_order_items ORDER BY line_no")
    assert [tuple(line.values()) for line in lines] == [(1, "Adana Dürüm", 110.25, 2), (2, "Lahmacun", 110.25, 2)]
    chosen = rows(pos, "SELECT line_no, option_no, option_name, price FROM delivery_order_item_options")
    assert [tuple(row.values()) for row in chosen] == [(2, 1, "Acılı", 15), (2, 2, "Soğanlı", 15)]


def test_an_order_that_comes_with_its_end_is_ended(database, pos):
    insert(database, arrival(status_id=6, status="CANCELED", ended_by=EndedBy.CANCELLED))
    row = order_row(pos)
    assert (row["ended_utc"], row["ended_by"], row["revision"]) == (NOW_TEXT, "cancelled", 1)
    assert rows(pos, "SELECT * FROM delivery_new_orders") == []


def test_what_could_not_be_read_is_said(database, pos):
    insert(database, arrival(problems=("not_a_number:total", "missing:foods"), facts=facts(total=None, items=())))
    assert order_row(pos)["problem"] == "not_a_number:total,missing:foods"
    assert order_row(pos)["total"] is None


def test_an_order_of_which_nothing_can_be_read_is_stored(database, pos):
    nothing = facts(**dict.fromkeys(field.name for field in fields(Facts)) | {"items": ()})
    insert(database, arrival(status_id=None, status="UNKNOWN", status_text=None, facts=nothing))
    row = order_row(pos)
    assert (row["status_id"], row["service_status_id"], row["status"]) == (None, None, "UNKNOWN")
    assert row["payload"] == '{"id": 100234}'


def test_a_zero_character_in_the_document_is_replaced_because_no_other_database_takes_it(database, pos):
    insert(database, arrival(raw=b"a\0b"))
    assert order_row(pos)["payload"] == "a\ufffdb"
    deliver(database, arrival(raw=b"c\0d"))
    assert order_row(pos)["payload"] == "c\ufffdd"


def test_many_new_orders_are_stored_together(database, pos):
    insert(database, *(arrival(key(number)) for number in range(150)))
    for table in ("delivery_orders", "delivery_order_items", "delivery_order_item_options", "delivery_order_events"):
        assert one(pos, f"SELECT count(DISTINCT payment_key) AS n FROM {table}")["n"] == 150


# ---- stored, payloads ------------------------------------------------------------------------------------------------


def test_what_is_known_of_an_order_is_told(database):
    insert(database, arrival(problems=("missing:foods",)))
    assert stored(database) == Stored(
        payment_key=KEY,
        account="kadikoy",
        status_id=1,
        service_status_id=1,
        revision=1,
        digest="d1",
        courier_type="restaurant",
        acknowledged_status_id=None,
        ended_by=None,
        problem="missing:foods",
    )


def test_an_unknown_key_is_missing_from_the_answer(database):
    insert(database)
    found = database.read_now(lambda tx: (orders.stored(tx, [KEY, OTHER]), orders.payloads(tx, [KEY, OTHER])))
    assert [set(answer) for answer in found] == [{KEY}, {KEY}]


@pytest.mark.parametrize("ask", [orders.stored, orders.payloads], ids=["stored", "payloads"])
@pytest.mark.parametrize("count", [0, 1, BATCH, BATCH + 1])
def test_any_number_of_keys_can_be_asked_for(ask, count, database):
    if count:
        insert(database, *(arrival(key(number), facts=facts(items=())) for number in range(count)))
    assert len(database.read_now(lambda tx: ask(tx, (key(number) for number in range(count))))) == count


def test_no_statement_has_more_parameters_than_an_old_sqlite_takes():
    assert max(BATCH, retention.SWEEP) + 10 < 999


def test_a_blanked_document_is_told_as_none(database, pos):
    put_order(pos, payload=None)
    assert database.read_now(lambda tx: orders.payloads(tx, [KEY])) == {KEY: None}


@pytest.mark.parametrize(
    "state, found",
    [("sending", {KEY}), ("pending", set()), ("done", set()), ("refused", set()), ("failed", set())],
)
def test_an_order_with_a_row_on_the_wire_or_unresolved_is_found(state, found, database, pos):
    put_action(pos, "complete", state=state)
    assert database.read_now(lambda tx: orders.with_unresolved_rows(tx, [KEY, OTHER])) == found


def test_of_a_list_that_takes_several_questions_every_unresolved_row_is_found(database, pos):
    put_action(pos, "complete", state="sending")
    many = [key(number) for number in range(100, 100 + 2 * BATCH)]
    assert database.read_now(lambda tx: orders.with_unresolved_rows(tx, [KEY, *many])) == {KEY}


def test_a_row_of_another_order_says_nothing_about_this_one(database, pos):
    put_action(pos, "complete", state="sending")
    assert database.read_now(lambda tx: orders.with_unresolved_rows(tx, [OTHER])) == set()


# ---- free ------------------------------------------------------------------------------------------------------------


def test_orders_that_nobody_holds_are_free(database):
    insert(database, arrival(), arrival(OTHER))
    assert database.write_now(lambda tx: lock(tx, ORDER, [KEY, OTHER])) == {KEY, OTHER}
    assert database.write_now(lambda tx: lock(tx, ORDER, [])) == set()


@only(*SERVERS)
def test_an_order_that_a_till_holds_is_left_out_without_waiting(database, pos):
    insert(database, arrival(), arrival(OTHER))
    pos.execute("BEGIN")
    pos.execute("UPDATE delivery_orders SET pos_revision = 1 WHERE payment_key = ?", (KEY,))
    assert database.write_now(lambda tx: lock(tx, ORDER, [KEY, OTHER])) == {OTHER}


@pytest.mark.parametrize(
    "name, is_mariadb, version, skips",
    [
        ("postgresql", False, (15, 20), True),
        ("mysql", True, (10, 5, 29), False),
        ("mysql", True, (10, 6, 0), True),
        ("mysql", False, (5, 7), False),
        ("mysql", False, (8, 0, 40), True),
        ("sqlite", False, (3, 40), False),
    ],
)
def test_only_a_server_that_can_skip_locks_is_asked_to(name, is_mariadb, version, skips):
    dialect = SimpleNamespace(name=name, is_mariadb=is_mariadb, server_version_info=version)
    connection: Any = SimpleNamespace(dialect=dialect)
    assert skips_locks(connection) == skips


# ---- update_delivered ------------------------------------------------------------------------------------------------


def test_a_delivery_with_another_status_is_a_revision(database, pos):
    insert(database)
    take_over(pos)
    deliver(
        database,
        arrival(status_id=2, status="CONFIRMED", status_text="Onaylandı", digest="d2"),
        status_changed=True,
        last_change=LastChange.STATUS,
    )
    row = order_row(pos)
    assert (row["status_id"], row["service_status_id"], row["status"]) == (2, 2, "CONFIRMED")
    assert (row["status_text"], row["payload_hash"]) == ("Onaylandı", "d2")
    assert (row["revision"], row["last_change"], row["changed_utc"]) == (2, "status", LATER_TEXT)
    assert story(pos)[1:] == [(LATER_TEXT, "status", 2, "CONFIRMED", None)]
    assert len(rows(pos, "SELECT * FROM delivery_changed_orders")) == 1


@pytest.mark.parametrize(
    "differs, printed",
    [(Differs.NOTHING, 1), (Differs.DETAILS, 1), (Differs.PRINT, 4)],
)
def test_the_revision_to_print_anew_is_the_one_that_changed_items_notes_or_money(differs, printed, database, pos):
    insert(database)
    pos.execute("UPDATE delivery_orders SET revision = 3")
    deliver(database, arrival(digest="d2"), differs=differs, last_change=LastChange.CONTENTS)
    row = order_row(pos)
    assert (row["revision"], row["contents_revision"]) == (4, printed)
    for view in ("new", "open"):
        assert one(pos, f"SELECT contents_revision FROM delivery_{view}_orders")["contents_revision"] == printed


def test_a_delivery_leaves_the_columns_of_the_pos_and_the_account_alone(database, pos):
    insert(database)
    take_over(pos)
    before = order_row(pos)
    deliver(
        database,
        arrival(status_id=2, status="CONFIRMED", facts=facts(note="yeni")),
        differs=Differs.PRINT,
        last_change=LastChange.CONTENTS,
    )
    changed = difference(before, order_row(pos))
    assert changed.isdisjoint(POS_COLUMNS | {"account", "received_utc", "acknowledged_utc", "acknowledged_status_id"})


def test_an_echo_with_the_same_contents_is_no_revision(database, pos):
    insert(database)
    before = order_row(pos)
    deliver(database, arrival(status_id=1, digest="d2", raw=b'{"id":100234}'))
    assert difference(before, order_row(pos)) == {"payload", "payload_hash"}
    assert story(pos)[1:] == [(LATER_TEXT, "delivered", 1, "RECEIVED", None)]


def test_lines_that_vanished_go_and_options_with_them(database, pos):
    insert(database, arrival(facts=facts(items=(item(), item(name="Lahmacun")))))
    deliver(
        database,
        arrival(facts=facts(items=(item(name="Ayran", options=()),))),
        differs=Differs.PRINT,
        last_change=LastChange.CONTENTS,
    )
    assert [row["name"] for row in rows(pos, "SELECT * FROM delivery_order_items")] == ["Ayran"]
    assert rows(pos, "SELECT * FROM delivery_order_item_options") == []


def test_another_orders_lines_stay(database, pos):
    insert(database, arrival(), arrival(OTHER))
    deliver(database, arrival(facts=facts(items=())), differs=Differs.PRINT, last_change=LastChange.CONTENTS)
    assert [row["payment_key"] for row in rows(pos, "SELECT * FROM delivery_order_items")] == [OTHER]
    assert order_row(pos, OTHER)["revision"] == 1


def test_lines_that_did_not_change_are_not_written_again(database, pos):
    insert(database)
    pos.execute("UPDATE delivery_order_items SET name = 'as it was'")
    deliver(database, arrival(status_id=2, status="CONFIRMED"), status_changed=True, last_change=LastChange.STATUS)
    assert one(pos, "SELECT name FROM delivery_order_items")["name"] == "as it was"


def test_a_status_that_does_not_count_is_withheld_but_the_contents_are_stored(database, pos):
    insert(database)
    deliver(
        database,
        arrival(
            status_id=6, status="CANCELED", status_text="İptal", ended_by=EndedBy.CANCELLED, facts=facts(note="yeni")
        ),
        status_counts=False,
        differs=Differs.PRINT,
        last_change=LastChange.CONTENTS,
    )
    row = order_row(pos)
    assert (row["status_id"], row["service_status_id"], row["status"]) == (1, 1, "RECEIVED")
    assert (row["status_text"], row["ended_utc"], row["ended_by"]) == ("Onay Bekliyor", None, None)
    assert (row["note"], row["last_change"]) == ("yeni", "contents")
    assert row["payload_hash"] is None  # so that the next delivery is read, even with the same bytes
    assert story(pos)[1:] == [(LATER_TEXT, "status_withheld", 6, "CANCELED", None)]


def test_a_delivered_end_ends_the_order(database, pos):
    insert(database)
    deliver(
        database,
        arrival(status_id=6, status="CANCELED", ended_by=EndedBy.CANCELLED),
        status_changed=True,
        ended_by=EndedBy.CANCELLED,
        last_change=LastChange.CANCELLED,
    )
    row = order_row(pos)
    assert (row["ended_utc"], row["ended_by"], row["last_change"]) == (LATER_TEXT, "cancelled", "cancelled")


def test_the_same_end_again_keeps_its_time(database, pos):
    insert(database, arrival(status_id=6, status="CANCELED", ended_by=EndedBy.CANCELLED))
    deliver(database, arrival(status_id=6, status="CANCELED", ended_by=EndedBy.CANCELLED), ended_by=EndedBy.CANCELLED)
    assert order_row(pos)["ended_utc"] == NOW_TEXT


def test_a_delivery_takes_an_end_by_silence_back(database, pos):
    insert(database)
    pos.execute("UPDATE delivery_orders SET ended_utc = ?, ended_by = 'silence'", (NOW_TEXT,))
    deliver(database, arrival(), reopened=True, last_change=LastChange.STATUS)
    row = order_row(pos)
    assert (row["ended_utc"], row["ended_by"], row["revision"]) == (None, None, 2)


@pytest.mark.parametrize("problem", [None, "missing:foods,status_doubtful"])
def test_problems_are_those_that_the_change_leaves(problem, database, pos):
    insert(database, arrival(problems=("missing:foods",)))
    deliver(database, arrival(), problem=problem)
    assert order_row(pos)["problem"] == problem


# ---- set_status, doubt_status ----------------------------------------------------------------------------------------


def set_status(database: Database, status_id: int, *, shown: bool = True) -> None:
    known = stored(database)
    database.write_now(lambda tx: orders.set_status(tx, [became(known, status_id, shown=shown)], LATER))


def test_a_verdict_writes_the_status_and_is_a_revision(database, pos):
    insert(database)
    take_over(pos)
    before = order_row(pos)
    set_status(database, 2)
    after = order_row(pos)
    assert (after["status_id"], after["service_status_id"], after["status"]) == (2, 2, "CONFIRMED")
    assert (after["revision"], after["last_change"], after["changed_utc"]) == (2, "status", LATER_TEXT)
    written = {"status_id", "service_status_id", "status", "status_text", "revision", "last_change", "changed_utc"}
    assert difference(before, after) <= written


@pytest.mark.parametrize(
    "status_id, ended_by, last_change", [(6, EndedBy.CANCELLED, "cancelled"), (5, EndedBy.COMPLETED, "ended")]
)
def test_a_verdict_can_end_the_order(status_id, ended_by, last_change, database, pos):
    insert(database)
    set_status(database, status_id)
    row = order_row(pos)
    assert (row["ended_utc"], row["ended_by"], row["last_change"]) == (LATER_TEXT, ended_by, last_change)
    assert row["revision"] == 2


def test_a_verdict_with_the_stored_status_is_no_revision(database, pos):
    insert(database, arrival(status_id=2, status="CONFIRMED"))
    before = order_row(pos)
    set_status(database, 2)
    assert difference(before, order_row(pos)) == set()


def test_a_verdict_of_another_order_is_not_written_here(database, pos):
    insert(database, arrival(), arrival(OTHER))
    set_status(database, 2)
    assert order_row(pos, OTHER)["status_id"] == 1


@pytest.mark.parametrize(
    "before, after",
    [(None, None), ("status_doubtful", None), ("missing:foods,status_doubtful", "missing:foods")],
)
def test_an_ok_takes_the_doubt_away_and_nothing_else(before, after, database, pos):
    put_order(pos, problem=before, status_id=1)
    set_status(database, 2)
    assert order_row(pos)["problem"] == after


def test_a_status_that_is_only_concluded_is_not_the_services_own(database, pos):
    put_order(pos, status_id=16, service_status_id=16, problem="status_doubtful")
    set_status(database, 5, shown=False)
    row = order_row(pos)
    assert (row["status_id"], row["service_status_id"], row["problem"]) == (5, 16, "status_doubtful")
    assert (row["revision"], row["ended_by"]) == (2, "completed")


def test_a_doubt_is_no_news_for_a_till(database, pos):
    insert(database)
    before = order_row(pos)
    database.write_now(lambda tx: orders.doubt_status(tx, [(KEY, "status_doubtful")]))
    assert order_row(pos)["problem"] == "status_doubtful"
    assert difference(before, order_row(pos)) == {"problem"}


# ---- adopt, mark_acknowledged, tell ----------------------------------------------------------------------------------


def test_another_account_takes_one_order_over(database, pos):
    insert(database, arrival(), arrival(OTHER))
    before = order_row(pos)
    database.write_now(lambda tx: orders.adopt(tx, KEY, "besiktas"))
    assert difference(before, order_row(pos)) == {"account"}
    assert [order_row(pos, which)["account"] for which in (KEY, OTHER)] == ["besiktas", "kadikoy"]


def test_an_acknowledgement_is_noted_with_its_status_and_time(database, pos):
    insert(database, arrival(), arrival(OTHER))
    before = order_row(pos)
    database.write_now(lambda tx: orders.mark_acknowledged(tx, [(KEY, 1, "RECEIVED", LATER)]))
    after = order_row(pos)
    assert (after["acknowledged_utc"], after["acknowledged_status_id"]) == (LATER_TEXT, 1)
    assert difference(before, after) == {"acknowledged_utc", "acknowledged_status_id"}
    assert story(pos)[1:] == [(LATER_TEXT, "acknowledged", 1, "RECEIVED", None)]
    assert order_row(pos, OTHER)["acknowledged_utc"] is None


def test_many_acknowledgements_are_noted_each_with_its_own(database, pos):
    insert(database, arrival(), arrival(OTHER))
    marks = [(KEY, 1, "RECEIVED", NOW), (OTHER, None, "UNKNOWN", LATER)]
    database.write_now(lambda tx: orders.mark_acknowledged(tx, marks))
    columns = ("acknowledged_status_id", "acknowledged_utc")
    noted = {key: tuple(order_row(pos, key)[name] for name in columns) for key in (KEY, OTHER)}
    assert noted == {KEY: (1, NOW_TEXT), OTHER: (None, LATER_TEXT)}


@pytest.mark.parametrize(
    "write",
    [
        lambda tx: orders.mark_acknowledged(tx, []),
        lambda tx: orders.append_events(tx, NOW, []),
        lambda tx: orders.insert_new(tx, "kadikoy", (), NOW),
    ],
    ids=["acknowledgements", "lines", "orders"],
)
def test_nothing_to_note_writes_nothing(write, database, pos):
    insert(database)
    before = rows(pos, "SELECT * FROM delivery_order_events")
    database.write_now(write)
    assert rows(pos, "SELECT * FROM delivery_order_events") == before


# ---- blank_old -------------------------------------------------------------------------------------------------------

PRIVATE = set(
    "note customer_name customer_phone address address_description apartment_no building_no neighborhood_name"
    " district_name city_name payload".split()
)


def blank(database: Database) -> int:
    old = database.read_now(lambda tx: retention.with_old_contents(tx, LATER))
    return len(database.write_now(lambda tx: retention.blank_old(tx, old, before=LATER)))


def ended(database: Database, pos: Pos, at: str | None) -> Row:
    insert(database)
    pos.execute("UPDATE delivery_orders SET ended_utc = ?, ended_by = 'completed'", (at,))
    return order_row(pos)


def test_what_names_a_customer_is_emptied_and_what_was_sold_stays(database, pos):
    before = ended(database, pos, NOW_TEXT)
    assert blank(database) == 1
    after = order_row(pos)
    emptied = difference(before, after)
    assert emptied == {*PRIVATE, "payload_hash"}  # the same delivery again is news
    assert {after[column] for column in emptied} == {None}
    assert one(pos, "SELECT name, note, total FROM delivery_order_items") == {
        "name": "Adana Dürüm",
        "note": None,
        "total": 235.5,
    }


def test_the_services_words_about_its_actions_go_with_its_customer(database, pos):
    ended(database, pos, NOW_TEXT)
    put_order(pos, OTHER)
    for payment_key in (KEY, OTHER):
        row_id = put_action(pos, "complete", payment_key=payment_key)
        put(pos, "delivery_action_attempts", action_id=row_id, attempt=1, started_utc=NOW_TEXT, detail="Ayşe Yılmaz")
    blank(database)
    details = rows(pos, "SELECT detail FROM delivery_action_attempts ORDER BY action_id")
    assert details == [{"detail": None}, {"detail": "Ayşe Yılmaz"}]


def test_an_order_that_comes_back_before_it_is_blanked_keeps_its_customer(database, pos):
    ended(database, pos, NOW_TEXT)
    old = database.read_now(lambda tx: retention.with_old_contents(tx, LATER))
    pos.execute("UPDATE delivery_orders SET ended_utc = NULL")
    before = order_row(pos)
    assert (old, database.write_now(lambda tx: retention.blank_old(tx, old, before=LATER))) == ([KEY], [])
    assert order_row(pos) == before


@only(*SERVERS)
def test_an_old_order_that_a_till_holds_is_blanked_later(database, pos):
    for payment_key in (KEY, OTHER):
        put_order(pos, payment_key, ended_utc=NOW_TEXT, payload="{}")
    pos.execute("BEGIN")
    pos.execute("UPDATE delivery_orders SET pos_reference = 'A-7' WHERE payment_key = ?", (KEY,))
    assert blank(database) == 1
    pos.execute("COMMIT")
    assert blank(database) == 1


@pytest.mark.parametrize("at", [LATER_TEXT, None], ids=["ended later", "open"])
def test_an_order_that_is_not_old_keeps_its_customer(at, database, pos):
    before = ended(database, pos, at)
    assert blank(database) == 0
    assert order_row(pos) == before


def test_a_blanked_order_is_not_blanked_again(database, pos):
    ended(database, pos, NOW_TEXT)
    assert [blank(database), blank(database)] == [1, 0]


def test_old_orders_are_blanked_in_short_transactions(database, pos):
    pos.execute("BEGIN")
    for number in range(retention.SWEEP + 3):
        put_order(pos, key(number), ended_utc=NOW_TEXT, payload="{}")
    pos.execute("COMMIT")
    assert [blank(database) for _ in range(3)] == [retention.SWEEP, 3, 0]


# ---- counts ----------------------------------------------------------------------------------------------------------


def test_the_counts_are_those_of_the_views(database, pos):
    put_order(pos, key(1))
    put_order(pos, key(2), pos_revision=1)
    put_order(pos, key(3), pos_revision=1, revision=2)
    put_order(pos, key(4), pos_revision=1, revision=2, ended_utc=NOW_TEXT)
    put_order(pos, key(5), ended_utc=NOW_TEXT)
    told = database.read_now(orders.counts)
    assert told == {"new": 1, "changed": 2, "open": 3}
    for view, number in told.items():
        assert len(rows(pos, f"SELECT * FROM delivery_{view}_orders")) == number
