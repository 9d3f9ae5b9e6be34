"""The board's queries and writes, on every database; twenty concurrent taps make one row."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import event, select
from sqlalchemy.exc import IntegrityError
from tests.board.tablets import Shop, Tablet, opened
from tests.databases import SERVERS, SQLITE, only
from tests.store.conftest import database, kind, mariadb_pos, path, pos, postgresql_pos, url
from tests.store.samples import KEY, NOW, OTHER, RESTAURANT, key, order_row, put, put_action, put_order, rows

from orderbridge.actions import Subject
from orderbridge.model import Action
from orderbridge.store import tables
from orderbridge.store.database import Database
from orderbridge.store.ddl import time_text
from orderbridge_board import acts, cards, devices, queries, snapshot, watch
from orderbridge_board.devices import Device
from orderbridge_board.door import Refused

__all__ = ["database", "kind", "mariadb_pos", "path", "pos", "postgresql_pos", "url"]

ZONE = ZoneInfo("Europe/Istanbul")
DEVICE = Device("1", "Kasa", devices.ACT, NOW)
ACCEPT = {"action": "accept", "payment_key": KEY, "preparing_time": 20, "tries": 0, "revision": 1}
MOMENT = time_text(NOW)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
COUNT = "SELECT count(*) AS n FROM {}".format


def act(database: Database, mode: str, **changes: Any) -> Any:
    return database.write_now(lambda tx: acts.act(tx, ACCEPT | changes, DEVICE, mode, "tr", NOW, ZONE))["row"]


def silence(database: Database, *subjects: str, at: datetime = NOW) -> None:
    database.write_now(lambda tx: queries.silence(tx, subjects, "Kasa", at))


def silenced(database: Database, now: datetime = NOW) -> set[str]:
    return {*database.read_now(lambda tx: queries.silenced_at(tx, now))}


def pos_columns(pos: Any) -> tuple[int, str | None]:
    row = order_row(pos)
    return row["pos_revision"], row["pos_reference"]


def test_beside_a_till_the_board_writes_no_column_of_the_till(database, pos):
    put_order(pos, revision=3)
    assert act(database, "beside")["state"] == "pending"
    seen = {"subjects": ["x"], "payment_key": KEY, "revision": 2}
    database.write_now(lambda tx: acts.seen(tx, seen, DEVICE, "beside", NOW))
    assert pos_columns(pos) == (0, None)


def test_as_the_till_the_board_takes_over_the_revision_that_was_shown(database, pos):
    put_order(pos, "not-a-uuid", revision=2)
    with pytest.raises(Refused, match="not_understood"):  # by the INSERT, after the take-over
        act(database, "till", payment_key="not-a-uuid")
    assert rows(pos, "SELECT pos_revision AS n FROM delivery_orders") == [{"n": 0}]
    put_order(pos, OTHER, revision=2, pos_revision=1, pos_reference="A-1042")
    act(database, "till", payment_key=OTHER, revision=2)
    of_other = f"SELECT pos_revision AS n, pos_reference AS r FROM delivery_orders WHERE payment_key = '{OTHER}'"
    assert rows(pos, of_other) == [{"n": 2, "r": "A-1042"}]  # a reference that is there stays
    put_order(pos, revision=3)
    act(database, "till", revision=2)
    assert pos_columns(pos) == (2, "board")
    act(database, "till", revision=1)
    assert pos_columns(pos) == (2, "board")
    for revision in (4, 2**31, 2**40):
        with pytest.raises(Refused, match="order_gone"):
            act(database, "till", revision=revision, action="cancel", reason_id=1)
    for revision in (0, -1, True, 1.5, "1", None):
        with pytest.raises(Refused, match="not_understood"):
            act(database, "till", revision=revision, action="cancel", reason_id=1)
    assert pos_columns(pos) == (2, "board")
    seen = {"subjects": [], "payment_key": KEY.upper(), "revision": 3}
    database.write_now(lambda tx: acts.seen(tx, seen, DEVICE, "till", NOW))
    assert pos_columns(pos) == (3, "board")


def test_a_repeated_tap_finds_its_row_and_an_impossible_one_makes_none(database, pos):
    put_order(pos)
    first = act(database, "beside")
    assert act(database, "beside", preparing_time=60, payment_key=KEY.upper()) == first
    for tries in (1, -1):
        with pytest.raises(Refused, match="not_understood"):
            act(database, "beside", tries=tries)
    pos.execute("UPDATE delivery_actions SET state = 'failed', finished_utc = ?", (time_text(NOW),))
    assert act(database, "beside")["state"] == "failed"
    assert act(database, "beside", tries=1)["id"] > first["id"]
    assert rows(pos, COUNT("delivery_actions")) == [{"n": 2}]


WRONG = [
    {"action": None}, {"action": []}, {"action": "explode"}, {"payment_key": None}, {"payment_key": ["x"]},
    {"payment_key": ""}, {"payment_key": "x" * 300}, {"payment_key": KEY + "0"}, {"payment_key": "not-a-uuid"},
    {"payment_key": KEY[:-1] + "\x00"}, {"payment_key": KEY[:-1] + "\ud800"},
    *({"tries": tries} for tries in (None, -(2**60), True, 0.0, "0", 2**70)),
    *({"preparing_time": minutes} for minutes in (None, 0, 1441, 20.0, True, "20", 2**70)),
    {"action": "cancel", "reason_id": 9}, {"action": "cancel"},
    *({"action": "deactivate_food", "food_id": food, "account": "k"} for food in (None, 0, -1, 2**70, "1", True)),
    *({"action": "deactivate_food", "food_id": 1, "account": account} for account in (None, "", "k" * 201, "\x00")),
    {"action": "close_restaurant", "restaurant_id": "x"},
    {"action": "close_restaurant"},
]  # fmt: skip


@pytest.mark.parametrize("mode", ["beside", "till"])
def test_a_wrong_request_is_refused_with_a_sentence(mode, database, pos):
    put_order(pos)
    for changes in WRONG:
        with pytest.raises(Refused) as refused:
            act(database, mode, **changes)
        assert refused.value.key in {"not_understood", "order_gone"}, changes
    assert (rows(pos, COUNT("delivery_actions")), pos_columns(pos)) == ([{"n": 0}], (0, None))


def test_a_request_that_the_daemon_judges_becomes_a_row(database, pos):
    assert act(database, "beside", payment_key=OTHER)["state"] == "pending"  # an order that is not there
    assert act(database, "till", action="activate_food", food_id=7, account="another")["state"] == "pending"
    assert act(database, "till", action="open_restaurant", restaurant_id=RESTAURANT)["state"] == "pending"
    with pytest.raises(Refused, match="order_gone"):
        act(database, "till", payment_key=OTHER)


def test_only_waiting_rows_of_the_board_are_withdrawn(database, pos):
    ours, theirs = act(database, "beside")["id"], put_action(pos, request_id="till")
    database.write_now(lambda tx: acts.take_back(tx, {"id": ours}))
    assert rows(pos, "SELECT withdraw FROM delivery_actions WHERE withdraw = 1") == [{"withdraw": 1}]
    with pytest.raises(Refused, match="too_late") as refused:
        database.write_now(lambda tx: acts.take_back(tx, {"id": theirs}))
    assert refused.value.status == 409
    pos.execute("UPDATE delivery_actions SET withdraw = 0, attempts = 1")  # it may have had its effect
    with pytest.raises(Refused, match="too_late"):
        database.write_now(lambda tx: acts.take_back(tx, {"id": ours}))
    pos.execute("UPDATE delivery_actions SET state = 'done', attempts = 0")
    for row_id in (ours, theirs, 2**52, None, True, "1", 2**70):
        with pytest.raises(Refused):
            database.write_now(lambda tx, row_id=row_id: acts.take_back(tx, {"id": row_id}))


@pytest.mark.parametrize("action", ["on_the_way", "complete"])
def test_a_final_action_is_written_at_once_and_held_so_that_it_can_be_withdrawn(database, pos, action):
    put_order(pos)
    row = act(database, "beside", action=action)
    assert (row["state"], row["back"], row["held"]) == ("pending", True, snapshot.moment(NOW + cards.HOLD))
    assert act(database, "beside", action=action) == row
    database.write_now(lambda tx: acts.take_back(tx, {"id": row["id"]}))
    assert rows(pos, "SELECT count(*) AS n, sum(withdraw) AS back FROM delivery_actions") == [{"n": 1, "back": 1}]
    assert act(database, "beside")["held"] is None  # an accept is never delayed


def test_finished_orders_are_listed_and_those_put_away_can_return(database, pos):
    put_order(pos, order_number=1)
    put_order(pos, OTHER, order_number=2, payload="{}", ended_by="completed", ended_utc=time_text(NOW - HOUR / 2))
    silence(database, cards.silence_of("handed", KEY))

    def listed(now: datetime = NOW) -> list[tuple[int, str]]:
        return [(one["number"], one["how"]) for one in database.read_now(lambda tx: snapshot.recall(tx, now))]

    assert listed() == [(1, "handed"), (2, "completed")]
    database.write_now(lambda tx: acts.take_back(tx, {"subject": cards.silence_of("handed", KEY)}))
    assert (listed(), listed(NOW + HOUR)) == ([(2, "completed")], [])


def test_the_usual_minutes_are_the_most_frequent_ones_of_recent_accepts(database, pos):
    for place, minutes in enumerate((40, 40, 20, 40)):
        put_action(pos, request_id=f"r{place}", preparing_time=minutes)
    assert database.read_now(queries.usual_minutes) is None
    put_action(pos, request_id="r9", preparing_time=30)
    assert database.read_now(queries.usual_minutes) == 40


@only(*SERVERS)
def test_a_row_that_another_process_writes_meanwhile_is_found(database, pos):
    put_order(pos)

    def first(_: Any, __: Any, statement: str, *rest: Any) -> None:
        if statement.startswith("INSERT INTO delivery_actions") and not rows(pos, "SELECT id FROM delivery_actions"):
            put_action(pos, request_id=f"board:accept:{KEY}:0", preparing_time=7)
        if statement.startswith("INSERT INTO delivery_board") and not silenced(database):
            pos.execute(f"INSERT INTO delivery_board_silenced VALUES ('x', 'Mutfak', '{MOMENT}')")

    event.listen(database.engine, "before_cursor_execute", first)
    try:
        assert act(database, "beside")["minutes"] == 7
        silence(database, "x", "y")
    finally:
        event.remove(database.engine, "before_cursor_execute", first)
    assert (rows(pos, COUNT("delivery_actions")), silenced(database)) == ([{"n": 1}], {"x", "y"})


@pytest.fixture
def shop(url: str) -> Iterator[Shop]:
    database = Database(url)
    yield Shop(database=database)
    database.close()


async def test_twenty_taps_at_once_on_two_tablets_are_one_row(shop: Shop, database, pos):
    put_order(pos)
    async with opened(shop, board="till") as address:
        tablets = [Tablet(address, shop.pair(name=name)) for name in ("Kasa", "Mutfak")]
        taps = (one.post("act", ACCEPT | {"preparing_time": n + 1}) for n in range(10) for one in tablets)
        seen = (one.post("seen", {"subjects": ["a", "b"][::step]}) for one in tablets for step in (1, -1) * 5)
        answers = await asyncio.gather(*taps, *seen)
    assert Counter(answer.status for answer in answers) == {200: 40}
    assert len({json.dumps(answer.data["row"]) for answer in answers[:20]}) == 1
    assert rows(pos, COUNT("delivery_actions")) == [{"n": 1}]
    assert rows(pos, COUNT("delivery_board_silenced")) == [{"n": 2}]
    assert (pos_columns(pos), shop.woken) == ((1, "board"), 20)


CHANGES = [
    "UPDATE delivery_orders SET pos_revision = 1",
    "UPDATE delivery_orders SET revision = 3",
    f"UPDATE delivery_orders SET changed_utc = '{time_text(NOW + HOUR)}'",
    f"UPDATE delivery_orders SET ended_utc = '{MOMENT}' WHERE payment_key = '{OTHER}'",
    f"UPDATE delivery_orders SET pos_revision = revision WHERE payment_key = '{OTHER}'",  # read, after its end
    *(f"UPDATE delivery_actions SET {one}" for one in ("state = 'sending'", "attempts = 1", "withdraw = 1")),
    "UPDATE delivery_actions SET error_code = 'rate_limited'",
    "UPDATE delivery_actions SET next_attempt_utc = '2030-01-01 00:00:00.000'",
    f"UPDATE delivery_actions SET state = 'done', finished_utc = '{MOMENT}'",
    f"INSERT INTO delivery_actions (action, payment_key) VALUES ('complete', '{KEY}')",
    f"INSERT INTO delivery_board_silenced (subject, device, at_utc) VALUES ('x', 'Kasa', '{MOMENT}')",
    "INSERT INTO delivery_cancel_reasons (id, reason) VALUES (3, 'Yoğunluk')",  # read late
    f"INSERT INTO delivery_restaurants (id, account, name, status) VALUES ('{KEY}', 'k', 'n', 'Open')",
    f"UPDATE delivery_restaurants SET status = 'Closed', status_utc = '{MOMENT}'",
]


def test_every_visible_change_makes_a_new_version(database, pos):
    put_order(pos, revision=2)
    put_order(pos, OTHER)
    put_action(pos)
    versions = [database.read_now(queries.version)] * 2
    assert versions[0] == database.read_now(queries.version)
    for statement in CHANGES:
        pos.execute(statement)
        versions.append(database.read_now(queries.version))
    assert len(set(versions)) == len(CHANGES) + 1


def test_a_change_between_two_reads_makes_a_new_version_despite_a_clock_set_back(database, pos):
    put_action(pos, state="done", finished_utc=MOMENT)
    versions = [database.read_now(queries.version)]
    put_action(pos, request_id="b", state="done", finished_utc=time_text(NOW - HOUR))
    versions.append(database.read_now(queries.version))
    put_order(pos, ended_utc=MOMENT, ended_by="cancelled", status_id=6)
    put(pos, "delivery_order_events", payment_key=KEY, at_utc=MOMENT, event="cancelled")
    versions.append(database.read_now(queries.version))
    assert len(set(versions)) == 3


def test_open_orders_and_new_cancellations_are_shown_by_when_their_customers_ordered(database, pos):
    """A cancellation is sorted by its own arrival, not by that of its order."""
    gone = {"status": "CANCELED", "ended_by": "cancelled", "payload": "{}", "received_utc": time_text(NOW - DAY)}
    put_order(pos, KEY, **gone, ended_utc=time_text(NOW - 12 * HOUR))  # as long as a cancellation is shown
    put_order(pos, OTHER, **gone, ended_utc=time_text(NOW - 12.1 * HOUR))
    put_order(pos, RESTAURANT, **gone | {"ended_by": "completed"}, ended_utc=time_text(NOW))
    for number in (8, 7):
        put_order(pos, key(number), ordered_at=f"2026-03-01 15:0{9 - number}:00")
    shown = database.read_now(lambda tx: queries.orders_shown(tx, NOW))
    assert [row["payment_key"] for row in shown] == [KEY, key(8), key(7)]
    assert not {"customer_name", "customer_phone", "address", "building_no", "payload"} & shown[0].keys()


def test_items_with_their_options(database, pos):
    put_order(pos)
    for line in (2, 1):
        put(pos, "delivery_order_items", payment_key=KEY, line_no=line, name=f"food {line}")
        for option in (2, 1):
            values = {"line_no": line, "option_no": option, "option_name": f"option {line}.{option}"}
            put(pos, "delivery_order_item_options", payment_key=KEY, **values)
    found = database.read_now(lambda tx: queries.lines(tx, [KEY, OTHER]))
    shown = [(item.name, [one.option_name for one in of_item]) for item, of_item in found[KEY]]
    assert shown == [(f"food {line}", [f"option {line}.1", f"option {line}.2"]) for line in (1, 2)]


def test_a_silenced_sound_is_quiet_for_a_day(database):
    silence(database, "a", "b", "a")
    silence(database, "b", at=NOW + HOUR)
    late = NOW + DAY + HOUR / 2
    for now, left in ((NOW + DAY, {"a", "b"}), (late, {"b"})):
        assert silenced(database, now) == left
        assert database.read_now(lambda tx, now=now: queries.has_forgettable(tx, now)) == (now == late)
    assert database.write_now(lambda tx: queries.forget_silenced(tx, late)) == 1
    assert queries.STOP_SHOWN < queries.SILENT


def test_what_was_put_away_stays_so_for_as_long_as_its_order_is_open(database, pos):
    """A restaurant's computer is off at night, so an order that nothing completes is open for days."""
    put_order(pos)
    subject, late = cards.silence_of("handed", KEY), NOW + 3 * DAY
    silence(database, subject, cards.silence_of("handed", OTHER), "a")
    assert database.write_now(lambda tx: queries.forget_silenced(tx, late)) == 2
    assert not database.read_now(lambda tx: queries.has_forgettable(tx, late))
    assert silenced(database, late) == {subject}
    pos.execute("UPDATE delivery_orders SET ended_utc = ?, ended_by = 'silence'", (MOMENT,))
    assert silenced(database, late) == set()
    assert database.read_now(lambda tx: queries.has_forgettable(tx, late))
    assert database.write_now(lambda tx: queries.forget_silenced(tx, late)) == 1


@only(SQLITE)  # one database shows it
def test_a_failed_silencing_is_reported(database, pos):
    pos.execute("CREATE TRIGGER t BEFORE INSERT ON delivery_board_silenced BEGIN SELECT RAISE(ABORT, 'no'); END")
    with pytest.raises(IntegrityError):
        silence(database, "a")


def test_all_is_closed_without_open_orders_and_with_closed_restaurants(database, pos):
    assert not database.read_now(queries.is_closed)  # nothing is known
    put(pos, "delivery_restaurants", id=RESTAURANT, account="k", name="Kadıköy", status="Closed")
    assert database.read_now(queries.is_closed)
    put(pos, "delivery_restaurants", id=OTHER, account="k", name="Beşiktaş")
    assert not database.read_now(queries.is_closed)
    pos.execute("UPDATE delivery_restaurants SET status = 'Closed'")
    put_order(pos)
    assert not database.read_now(queries.is_closed)


def shown(database: Database, now: Any = NOW) -> Any:
    (food,) = database.read_now(lambda tx: snapshot.menu(tx, now, "tr", ZONE))["foods"]
    return food["off"], food["tries"], food["row"] and food["row"]["state"]


def food(pos: Any, **values: Any) -> None:
    known = {"account": "kadikoy", "food_id": 7, "name": "Dürüm", "source": "order"}
    put(pos, "delivery_foods", seen_utc=MOMENT, changed_utc=MOMENT, **known | values)


def test_a_switch_works_again_and_again_and_after_weeks(database, pos):
    food(pos)
    at, tapped = NOW, []
    for action in (Action.DEACTIVATE_FOOD, Action.ACTIVATE_FOOD, Action.DEACTIVATE_FOOD):
        pos.execute("UPDATE delivery_foods SET seen_utc = ?", (time_text(at),))
        off, tries, _ = shown(database, at)
        assert off is False or action is Action.ACTIVATE_FOOD
        tap = {"action": action, "food_id": 7, "account": "kadikoy", "tries": tries}
        row = act(database, "till", **tap)
        assert (act(database, "till", **tap), row["state"]) == (row, "pending")
        assert shown(database, at) == (off, tries, "pending")
        tapped.append(row["id"])
        pos.execute(
            f"UPDATE delivery_actions SET state = 'done', finished_utc = ? WHERE id = {row['id']}", (time_text(at),)
        )
        assert shown(database, at)[:2] == (action is Action.DEACTIVATE_FOOD, row["id"])
        at += DAY * (20 if action is Action.ACTIVATE_FOOD else 1)
    assert len(set(tapped)) == 3


def test_a_switch_concerns_its_own_account_or_all(database, pos):
    food(pos)
    put_action(pos, "deactivate_food", food_id=7, account="besiktas", state="done", finished_utc=time_text(NOW))
    assert shown(database)[0] is False
    put_action(pos, "deactivate_food", food_id=7, state="done", finished_utc=time_text(NOW), request_id="all")
    assert shown(database)[0] is True
    found = database.read_now(lambda tx: queries.newest_toggles(tx, NOW))
    assert {subject: len(some) for subject, some in found.items()} == {Subject.FOOD: 2, Subject.RESTAURANT: 0}


def test_the_menus_status_counts_before_what_was_switched_here(database, pos):
    food(pos, status="inactive", source="menu", category="Dürümler")
    (one,) = database.read_now(lambda tx: snapshot.menu(tx, NOW, "tr", ZONE))["foods"]
    assert (one["off"], one["category"]) == (True, "Dürümler")
    pos.execute("UPDATE delivery_foods SET status = 'active'")
    put_action(pos, "deactivate_food", food_id=7, account="kadikoy", state="done", finished_utc=time_text(NOW))
    assert shown(database)[0] is False
    pos.execute("UPDATE delivery_foods SET status = NULL")
    assert shown(database)[0] is True


TO_MIDNIGHT = 24 * 60 - (NOW.astimezone(ZONE).hour * 60 + NOW.astimezone(ZONE).minute)
CLOSE, OPEN = ({"action": f"{word}_restaurant", "restaurant_id": RESTAURANT} for word in ("close", "open"))
FOOD_OFF = {"action": "deactivate_food", "food_id": 7, "account": "kadikoy"}


@pytest.mark.parametrize("until, minutes", [(None, None), (30, 30), ("today", TO_MIDNIGHT), (10080, 10080)])
def test_a_closure_from_the_board_ends_at_the_chosen_time(until, minutes, database, pos):
    for wrong in (0, -1, 10081, "tomorrow", True, 1.5, []):
        with pytest.raises(Refused):
            act(database, "beside", **CLOSE, until=wrong)
    for asked, kept in ((CLOSE, minutes), (FOOD_OFF, minutes), (OPEN, None)):
        row = act(database, "beside", **asked, until=until)
        (found,) = rows(pos, f"SELECT valid_until_minutes AS m FROM delivery_actions WHERE id = {row['id']}")
        assert found["m"] == kept
    assert rows(pos, COUNT("delivery_actions")) == [{"n": 3}]


@pytest.mark.parametrize("hours, shown", [(1, "%H:%M"), (30, "%d.%m. %H:%M")])
def test_the_page_shows_until_when(hours, shown, database, pos):
    put(pos, "delivery_restaurants", account="kadikoy", id=RESTAURANT, status="Closed")
    until = NOW + hours * HOUR
    done = {"state": "done", "finished_utc": MOMENT, "until_utc": time_text(until), "restaurant_id": RESTAURANT}
    row = put_action(pos, "close_restaurant", **done)
    (one,) = database.read_now(lambda tx: snapshot.menu(tx, NOW, "tr", ZONE))["restaurants"]
    assert one["until"] == until.astimezone(ZONE).strftime(shown)
    pos.execute(f"UPDATE delivery_actions SET withdraw = 1 WHERE id = {row}")
    (one,) = database.read_now(lambda tx: snapshot.menu(tx, NOW, "tr", ZONE))["restaurants"]
    assert one["until"] is None


def test_a_code_is_good_for_ten_minutes_and_a_thousand_tries(database, pos, monkeypatch):
    monkeypatch.setattr(devices, "MOST_TRIES", 3)

    def pair(code: str, after: timedelta = timedelta(0)) -> bool:
        return database.write_now(lambda tx: devices.pair(tx, code, "Kasa", NOW + after)) is not None

    code = database.write_now(lambda tx: devices.new_code(tx, devices.ACT, NOW))
    assert len(code) == 8
    assert not pair(code, devices.CODE_LIFE)
    assert pair(code, devices.CODE_LIFE - timedelta(seconds=1))
    code = database.write_now(lambda tx: devices.new_code(tx, devices.LOOK, NOW))
    assert not any(pair("x") for _ in range(devices.MOST_TRIES))
    assert database.read_now(lambda tx: devices.good_code(tx, NOW)) is None
    assert not pair(code)
    assert database.read_now(devices.wrong_tries) == devices.MOST_TRIES
    code = database.write_now(lambda tx: devices.new_code(tx, devices.LOOK, NOW))
    assert not any(pair("x") for _ in range(devices.MOST_TRIES - 1))
    assert not pair(code, -timedelta(seconds=1))  # a clock set back would prolong it
    assert pair(code)
    listed = {one["name"]: one["role"] for one in database.read_now(devices.listed)}
    assert listed == {"Kasa": "act", "Kasa 2": "look"}
    assert [database.write_now(lambda tx: devices.revoke(tx, "Kasa", NOW)) for _ in range(2)] == [True, False]
    ids = [one["id"] for one in rows(pos, "SELECT id FROM delivery_board_devices")]
    (left,) = database.read_now(devices.listed)
    assert database.read_now(lambda tx: devices.paired(tx, [*ids, "another"])) == {left["id"]}
    assert database.read_now(lambda tx: devices.paired(tx, [])) == set()


def test_polls_are_counted_in_slots_of_ten_minutes_for_two_days(database):
    counts = {"k": {"polls": 2, "failed": 1, "logins": 0}}
    for at in (NOW, NOW + timedelta(minutes=9), NOW + timedelta(minutes=10)):
        database.write_now(lambda tx, at=at: watch.add_polls(tx, counts, at))
    found = database.read_now(lambda tx: watch.polls_since(tx, NOW - DAY))
    assert [(row["polls"], row["failed"]) for row in found] == [(4, 2), (2, 1)]
    database.write_now(lambda tx: watch.add_polls(tx, counts, NOW + watch.KEPT + timedelta(minutes=5)))
    assert len(database.read_now(lambda tx: watch.polls_since(tx, NOW - DAY))) == 2


def test_a_snapshot_shows_one_moment_despite_writes(database, pos):
    """Otherwise the page could show an order as RECEIVED beside its finished accept, and it would be accepted again."""
    put_order(pos, revision=2)

    def read(connection):
        before = connection.execute(select(tables.orders.c.revision)).scalar_one()
        pos.execute("UPDATE delivery_orders SET revision = 3")
        return before, connection.execute(select(tables.orders.c.revision)).scalar_one()

    assert database.read_now(read, snapshot=True) == (2, 2)
