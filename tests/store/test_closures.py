"""Closures as the view shows them, and their planned ends, on every database."""

from datetime import timedelta

import pytest
from tests.store.samples import NOW, NOW_TEXT, RESTAURANT, AnyPos, at, put, put_action, rows

from orderbridge.store import closures, problem_rows
from orderbridge.store.ddl import time_text

UNTIL = NOW + timedelta(minutes=30)
FOOD = 1005
PAIRS = [("close_restaurant", "open_restaurant", {}), ("deactivate_food", "activate_food", {"food_id": FOOD})]
both = pytest.mark.parametrize("action, opposite, subject", PAIRS)


def done(pos: AnyPos, action: str, **columns: object) -> int:
    return put_action(pos, action, **{"state": "done", "finished_utc": NOW_TEXT, "known_by": "answer"} | columns)


def ends(pos: AnyPos, action: str = "close_restaurant", **columns: object) -> int:
    return done(pos, action, valid_until_minutes=30, until_utc=time_text(UNTIL), **columns)


def shown(pos: AnyPos) -> list[int]:
    return [row["action_id"] for row in rows(pos, "SELECT action_id FROM delivery_closures ORDER BY action_id")]


def test_a_closure_is_shown_with_names_times_and_who_closed_it(database, pos):
    put(pos, "delivery_restaurants", account="kadikoy", id=RESTAURANT, name="Kadıköy", status="Closed")
    food = {"account": "kadikoy", "food_id": FOOD, "name": "Köfte", "source": "menu"}
    put(pos, "delivery_foods", **food, seen_utc=NOW_TEXT, changed_utc=NOW_TEXT)
    shop = ends(pos, restaurant_id=RESTAURANT, created_by="kasa 1")
    sold_out = done(pos, "deactivate_food", food_id=FOOD, account="kadikoy", created_by="kasa 2")
    both = {"account": "kadikoy", "since_utc": NOW_TEXT}
    assert rows(pos, "SELECT * FROM delivery_closures ORDER BY action_id") == [
        both
        | {"action_id": shop, "action": "close_restaurant", "restaurant_id": RESTAURANT, "restaurant_name": "Kadıköy"}
        | {"food_id": None, "food_name": None, "until_utc": time_text(UNTIL), "created_by": "kasa 1"},
        both
        | {"action_id": sold_out, "action": "deactivate_food", "restaurant_id": None, "restaurant_name": None}
        | {"food_id": FOOD, "food_name": "Köfte", "until_utc": None, "created_by": "kasa 2"},
    ]


@both
def test_the_newest_row_that_is_done_counts(action, opposite, subject, database, pos):
    first = ends(pos, action, **subject)
    for state in ("pending", "sending", "refused", "failed", "expired", "withdrawn", "superseded"):
        put_action(pos, opposite, state=state, **subject)
    assert shown(pos) == [first]
    assert [done(pos, action, **subject)] == shown(pos)
    done(pos, opposite, **subject)
    assert shown(pos) == []


@both
def test_a_closing_committed_late_counts_after_an_opening_of_a_higher_number(action, opposite, subject, database, pos):
    late = ends(pos, action, created_utc=at(0), finished_utc=at(5), **subject)
    done(pos, opposite, created_utc=at(1), finished_utc=at(2), **subject)
    (plan,) = database.read_now(closures.planned)
    assert (shown(pos), database.read_now(lambda tx: closures.newer(tx, plan))) == ([late], [])
    done(pos, opposite, created_utc=at(-3600), finished_utc=at(-3599), **subject)  # the clock was set back
    assert (shown(pos), len(database.read_now(lambda tx: closures.newer(tx, plan)))) == ([], 1)


def test_a_food_without_an_account_belongs_to_the_default_account(database, pos):
    for name in ("adalar", "moda"):
        put(pos, "delivery_accounts", fingerprint=name, name=name)
        food = {"account": name, "food_id": FOOD, "name": f"Köfte {name}", "source": "menu"}
        put(pos, "delivery_foods", **food, seen_utc=NOW_TEXT, changed_utc=NOW_TEXT)
    done(pos, "deactivate_food", food_id=FOOD)
    database.write_now(lambda tx: problem_rows.note_alive(tx, timedelta(seconds=90), "", "", "moda"))
    found = rows(pos, "SELECT account, food_name FROM delivery_closures")
    assert found == [{"account": "moda", "food_name": "Köfte moda"}]


def test_each_restaurant_and_each_food_of_a_menu_has_its_own_closure(database, pos):
    other = RESTAURANT.replace("7", "8")
    for account, key in (("kadikoy", RESTAURANT), ("besiktas", other)):
        put(pos, "delivery_accounts", fingerprint=account, name=account)
        put(pos, "delivery_restaurants", account=account, id=key)
    both = [ends(pos, restaurant_id=key) for key in (RESTAURANT, other)]
    foods = [ends(pos, "deactivate_food", food_id=FOOD, account=name) for name in ("kadikoy", "besiktas")]
    assert shown(pos) == [*both, *foods]
    done(pos, "activate_food", food_id=FOOD, restaurant_id=other)  # the menu of besiktas
    done(pos, "open_restaurant", restaurant_id=RESTAURANT)
    assert shown(pos) == [both[1], foods[0]]


def test_a_restaurant_that_the_marketplace_reopened_is_no_closure(database, pos):
    put(pos, "delivery_restaurants", account="kadikoy", id=RESTAURANT, status="Closed")
    food = {"account": "kadikoy", "food_id": FOOD, "status": "inactive", "source": "menu"}
    put(pos, "delivery_foods", **food, seen_utc=NOW_TEXT, changed_utc=NOW_TEXT)
    both = [ends(pos), ends(pos, "deactivate_food", food_id=FOOD, account="kadikoy")]
    assert shown(pos) == both
    pos.execute("UPDATE delivery_foods SET status = 'active'")
    assert shown(pos) == both[:1]
    pos.execute("UPDATE delivery_restaurants SET status = 'Open'")
    assert shown(pos) == []


def test_a_planned_end_is_claimed_once_and_can_be_withdrawn_and_newer_rows_concern_the_same_place(database, pos):
    row = ends(pos)
    done(pos, "deactivate_food", food_id=FOOD, restaurant_id=RESTAURANT)
    newer = put_action(pos, "open_restaurant")
    (plan,) = database.read_now(closures.planned)
    assert (plan.id, plan.until_utc, plan.valid_until_minutes, plan.withdraw) == (row, UNTIL, 30, 0)
    assert [one.id for one in database.read_now(lambda tx: closures.newer(tx, plan))] == [newer]
    pos.execute(f"UPDATE delivery_actions SET withdraw = 1 WHERE id = {row}")
    assert rows(pos, "SELECT until_utc FROM delivery_closures WHERE action_id = ?", row) == [{"until_utc": None}]
    pos.execute("UPDATE delivery_actions SET withdraw = 0")
    assert [database.write_now(lambda tx: closures.set_end(tx, plan, None)) for _ in range(2)] == [True, False]
    assert database.read_now(closures.planned) == []


def test_the_opposite_row_names_the_same_subject_and_is_written_once(database, pos):
    row = ends(pos, "deactivate_food", food_id=FOOD, account="kadikoy", restaurant_id=RESTAURANT)
    (plan,) = database.read_now(closures.planned)
    database.write_now(lambda tx: closures.end(tx, plan))
    written = rows(pos, "SELECT * FROM delivery_actions ORDER BY id")[1]
    expected = {"action": "activate_food", "food_id": FOOD, "account": "kadikoy", "restaurant_id": RESTAURANT}
    expected |= {"request_id": f"until:{row}", "created_by": "orderbridge", "state": "pending", "valid_minutes": 10080}
    assert {name: written[name] for name in expected} == expected
    with pytest.raises(Exception, match=r"(?i)unique|duplicate"):
        database.write_now(lambda tx: closures.end(tx, plan))
