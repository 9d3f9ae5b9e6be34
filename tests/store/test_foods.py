"""The foods of the menu, and those that only orders have shown, on each database."""

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy.exc import IntegrityError
from tests.databases import SQLITE, only
from tests.store.samples import KEY, NOW, NOW_TEXT, OTHER, Pos, arrival, facts, item, put, rows

from orderbridge.model import Food
from orderbridge.store import foods, orders
from orderbridge.store.accounts import Entry, register
from orderbridge.store.database import Database

ACCOUNT = "kadikoy"
MINUTE, HALF_HOUR, DAY = timedelta(minutes=1), timedelta(minutes=30), timedelta(days=1)


def food(number: int, name: str | None = "Çorba", **changes: Any) -> Food:
    values: dict[str, Any] = {"category": "Çorbalar", "status": "active", "price": Decimal("12.5"), "payload": "{}"}
    return Food(number, name, **values | changes)


def take_in(database: Database, *listed: Food, began: datetime = NOW, now: datetime | None = None) -> Any:
    return database.write_now(lambda tx: foods.update_menu(tx, ACCOUNT, listed, began=began, now=now or began))


def whole(database: Database, *listed: Food, began: datetime = NOW) -> Any:
    changes = take_in(database, *listed, began=began)
    return changes + database.write_now(lambda tx: foods.mark_gone(tx, ACCOUNT, began=began, now=began))


def shown(pos: Pos, columns: str = "name, status, source, last_change, old_name") -> dict[int, tuple[Any, ...]]:
    found = rows(pos, f"SELECT food_id, {columns} FROM delivery_foods ORDER BY food_id")
    return {row.pop("food_id"): tuple(row.values()) for row in found}


def test_a_menu_is_stored_and_the_same_again_changes_nothing(database, pos):
    listed = [food(1), food(2, "İskender 🌯", status="inactive", price=None), food(2**63 - 1, None, category=None)]
    assert whole(database, *listed) == [("new", 1), ("new", 2), ("new", 2**63 - 1)]
    columns = "name, category, status, price, payload, source, gone_utc, last_change, old_name, changed_utc"
    before = shown(pos, columns)
    assert shown(pos)[2] == ("İskender 🌯", "inactive", "menu", "new", None)
    assert whole(database, *listed, began=NOW + HALF_HOUR) == []
    assert shown(pos, columns) == before
    assert len(set(shown(pos, "seen_utc").values())) == 1
    assert shown(pos, "seen_utc") != dict.fromkeys(before, (before[1][-1],)), "the sign is newer"


def test_a_renamed_food_is_an_event_with_the_old_name_and_a_new_category_is_not(database, pos):
    whole(database, food(1, "Adana"), food(2), food(3))
    changed = shown(pos, "changed_utc")[3]
    listed = [food(1, "Adana Dürüm"), food(2, None, category=None)]
    listed.append(food(3, category="Başlangıç", price=Decimal(20), payload="[]"))
    assert whole(database, *listed, began=NOW + DAY) == [("renamed", 1)]
    assert shown(pos)[1] == ("Adana Dürüm", "active", "menu", "renamed", "Adana")
    assert (shown(pos)[2], shown(pos, "category")[2]) == (("Çorba", "active", "menu", "new", None), ("Çorbalar",))
    assert (shown(pos, "category, payload")[3], shown(pos, "changed_utc")[3]) == (("Başlangıç", "[]"), changed)


def test_a_food_that_the_menu_lacks_is_gone_and_comes_back_or_is_deleted_long_after(database, pos):
    whole(database, food(1), food(2))
    put(pos, "delivery_foods", account="another", food_id=3, source="menu", seen_utc=NOW_TEXT, changed_utc=NOW_TEXT)
    assert whole(database, food(1), began=NOW + DAY) == [("gone", 2)]
    assert [one["food_id"] for one in database.read_now(lambda tx: foods.on_sale(tx, NOW + DAY))] == [3, 1]
    assert whole(database, food(1), began=NOW + 2 * DAY) == [], "it goes once"
    assert whole(database, food(1), food(2), food(3), began=NOW + 3 * DAY) == [("new", 3), ("back", 2)]
    assert shown(pos, "gone_utc, last_change")[2] == (None, "back")
    whole(database, food(1), began=NOW + 4 * DAY)
    whole(database, food(1), began=NOW + foods.KEPT + 3 * DAY)
    assert 2 in shown(pos)
    whole(database, food(1), began=NOW + foods.KEPT + 5 * DAY)
    assert 2 not in shown(pos)


def test_a_menu_that_was_requested_before_a_switch_keeps_the_status(database, pos):
    whole(database, food(1))
    later = NOW + HALF_HOUR
    database.write_now(lambda tx: foods.set_status(tx, ACCOUNT, 1, "inactive", later))
    take_in(database, food(1, "Ezogelin"), began=later - MINUTE, now=later + MINUTE)
    assert shown(pos)[1][:2] == ("Ezogelin", "inactive")
    assert whole(database, food(2), began=later - MINUTE) == [("new", 2)], "and it is not gone"
    take_in(database, food(1), began=later + MINUTE)
    assert shown(pos)[1][1] == "active"


def test_a_time_in_the_future_proves_nothing_and_is_corrected(database, pos):
    """The clock was set back."""
    whole(database, food(1, status="inactive"), began=NOW + DAY)
    wanted = [(ACCOUNT, 1)]
    assert database.read_now(lambda tx: foods.statuses(tx, wanted, NOW)) == {}
    whole(database, food(1), began=NOW)
    assert shown(pos)[1][1] == "active"
    (found,) = database.read_now(lambda tx: foods.statuses(tx, wanted, NOW)).values()
    assert (found.status, found.seen_utc) == ("active", NOW)


def order_of(database: Database, key: str, *numbers: int | None, now: datetime = NOW, name: str = "Dürüm") -> None:
    new = arrival(key, facts=facts(items=tuple(item(food_id=number, name=name) for number in numbers)))
    database.write_now(lambda tx: orders.insert_new(tx, ACCOUNT, [new], now))


def test_an_order_brings_the_foods_that_are_not_known(database, pos):
    whole(database, food(1, "Ezogelin"))
    order_of(database, KEY, 1, 7, 7, None, 0, -5)
    assert shown(pos) == {1: ("Ezogelin", "active", "menu", "new", None), 7: ("Dürüm", None, "order", "new", None)}
    order_of(database, OTHER, 7, name="Başka ad", now=NOW + MINUTE)
    assert shown(pos)[7][0] == "Dürüm", "the menu says how it is called"
    assert whole(database, food(1, "Ezogelin"), food(7, "Dürüm"), began=NOW + HALF_HOUR) == []
    assert shown(pos)[7] == ("Dürüm", "active", "menu", "new", None)


def test_a_food_that_no_menu_has_is_listed_for_a_week_and_deleted_long_after_its_last_order(database, pos):
    def listed(now: datetime) -> list[int]:
        return [one["food_id"] for one in database.read_now(lambda tx: foods.on_sale(tx, now))]

    order_of(database, KEY, 7)
    assert (listed(NOW + 7 * DAY), listed(NOW + 8 * DAY)) == ([7], [])
    order_of(database, OTHER, 7, now=NOW + 2 * DAY)
    assert listed(NOW + 8 * DAY) == [7]
    assert whole(database, food(1), began=NOW + 2 * DAY + foods.KEPT) == [("new", 1)]
    assert shown(pos, "gone_utc, last_change")[7] == (None, "new")
    whole(database, food(1), began=NOW + foods.KEPT + 3 * DAY)
    assert set(shown(pos)) == {1}


@only(SQLITE)
def test_an_order_is_stored_though_its_food_is_refused(database, pos):
    pos.execute("CREATE TRIGGER mine BEFORE INSERT ON delivery_foods BEGIN SELECT RAISE(ABORT, 'no'); END")
    order_of(database, KEY, 7)
    assert (rows(pos, "SELECT food_id FROM delivery_order_items"), shown(pos)) == ([{"food_id": 7}], {})


def test_a_food_that_another_session_has_just_inserted_blocks_no_order_and_no_later_menu(database, pos, monkeypatch):
    order_of(database, KEY, 7)
    with monkeypatch.context() as patched:
        for name in ("_SIGNS", "_KNOWN"):  # these do not see it yet
            query = getattr(foods, name)
            patched.setattr(foods, name, query.where(query.selected_columns.food_id < 0))
        order_of(database, OTHER, 7)
        assert len(rows(pos, "SELECT 1 FROM delivery_order_items WHERE food_id = 7")) == 2
        with pytest.raises(IntegrityError):
            take_in(database, food(7))
    assert take_in(database, food(7, "Dürüm"), began=NOW + MINUTE) == []


def test_a_menu_is_requested_once_per_interval_by_all_processes(database):
    database.write_now(lambda tx: register(tx, [Entry("f", ACCOUNT)]))

    def reserve(now: datetime) -> float:
        until, longest = now + HALF_HOUR, timedelta(hours=6)
        return database.write_now(lambda tx: foods.reserve(tx, "f", now=now, until=until, longest=longest))

    assert [reserve(NOW), reserve(NOW + MINUTE), reserve(NOW + HALF_HOUR)] == [0.0, 29 * 60.0, 0.0]
    assert reserve(NOW - DAY) == 0.0, "the clock was set back"
    wait = database.write_now(lambda tx: foods.reserve(tx, "another", now=NOW, until=NOW, longest=HALF_HOUR))
    assert wait == HALF_HOUR.total_seconds(), "it is not registered here"
