"""The menu, read from the sandbox in each shape, and what it proves about a food's row."""

import asyncio
from dataclasses import replace

import pytest
from sqlalchemy.exc import IntegrityError
from structlog.testing import capture_logs
from tests.jobs.shop import Shop, text_of

from orderbridge.jobs.menu import AGAIN_S, EVERY, LONGEST, read_menu
from orderbridge.store import foods
from orderbridge_sandbox import Fault, When
from orderbridge_sandbox.options import MenuShape

EVERY_S, LONGEST_S = EVERY.total_seconds(), LONGEST.total_seconds()
FAULTS = {
    **{str(status): Fault(operation="get_foods", status=status, times=None) for status in (429, 500, 404)},
    "no answer": Fault.drop("get_foods", times=None),
    "silence": Fault.hang("get_foods", times=None),
}


async def read(shop: Shop, name: str = "") -> float:
    return await read_menu(shop.accounts[name or shop.names[0]])


def shown(shop: Shop) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in shop.rows("SELECT food_id, name, category, status FROM delivery_foods")]


def noted(shop: Shop) -> tuple[object, ...]:
    return tuple(shop.one("SELECT menu_next_utc, menu_read_utc, menu_error FROM delivery_accounts").values())


@pytest.mark.interface("Menu item", "Menu listing")
@pytest.mark.parametrize("shape", MenuShape)
async def test_the_menu_is_stored_whatever_its_shape(open_shop, shape: MenuShape):
    shop = await open_shop("chain")
    shop.world.set_options(menu_shape=shape)
    shop.world.inactive_foods = frozenset({("chain", 3002)})
    began = shop.clock.now()
    assert (await read(shop), len(shown(shop))) == (EVERY_S, 12)
    first, second = shown(shop)[:2]
    assert first == (3001, "Mercimek Çorbası", "Çorbalar", "active")
    assert second == (3002, "Ezogelin Çorbası", "Çorbalar", "inactive")
    assert noted(shop) == (text_of(began + EVERY), text_of(began), None)


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
async def test_a_failure_waits_longer_each_time_and_is_logged_once(shop: Shop, fault: Fault):
    shop.world.faults.add(fault)
    waits = []
    with capture_logs() as logs:
        for _ in range(6):
            waits.append(await read(shop))
            code = noted(shop)[2]
            await asyncio.sleep(waits[-1])
    assert waits == [EVERY_S, 2 * EVERY_S, 4 * EVERY_S, 8 * EVERY_S, LONGEST_S, LONGEST_S]
    assert [line["log_level"] for line in logs if line["event"] == "menu.failed"] == ["warning", *["debug"] * 5]
    assert code is not None
    shop.world.faults.clear()
    await asyncio.sleep(120)
    assert await read(shop) == EVERY_S
    assert noted(shop)[2] is None


async def test_a_request_that_never_left_does_not_count_towards_the_limit(shop: Shop):
    shop.line.cut.add("get_foods")
    assert await read(shop) == AGAIN_S
    shop.line.cut.clear()
    assert await read(shop) == AGAIN_S, "the account waits for its line"
    await asyncio.sleep(AGAIN_S)
    assert await read(shop) == EVERY_S


async def test_what_changed_is_an_event(shop: Shop):
    await read(shop)
    del shop.world.foods["kadikoy", 1001]
    await asyncio.sleep(EVERY_S)
    with capture_logs() as logs:
        await read(shop)
    told = [(line["event"], line["food_id"]) for line in logs if line["event"].startswith("food.")]
    assert told == [("food.gone", 1001)]
    gone = shop.rows("SELECT food_id, last_change FROM delivery_foods WHERE gone_utc IS NOT NULL")
    assert gone == [{"food_id": 1001, "last_change": "gone"}]


async def test_a_list_at_a_usual_page_size_shows_no_food_as_gone(shop: Shop):
    (menu, _), one = next(iter(shop.world.foods.items()))
    shop.world.foods = {(menu, number): replace(one, id=number) for number in range(1, 51)}
    await read(shop)
    shop.world.foods = {(menu, number): replace(one, id=number) for number in range(2, 52)}
    await asyncio.sleep(EVERY_S)
    await read(shop)
    assert shop.rows("SELECT 1 FROM delivery_foods WHERE gone_utc IS NOT NULL") == []
    assert shop.count("delivery_foods") == 51


async def test_a_menu_with_a_food_that_cannot_be_identified_shows_no_food_as_gone(shop: Shop):
    await read(shop)
    body = b'{"status": true, "data": [{"food_id": 1001, "name": "Tarhana"}, {"food_id": null, "name": "Ayran"}]}'
    shop.world.faults.add(Fault(operation="get_foods", status=200, body=body))
    await asyncio.sleep(EVERY_S)
    await read(shop)
    renamed = shop.rows("SELECT name, old_name FROM delivery_foods WHERE last_change = 'renamed'")
    assert renamed == [{"name": "Tarhana", "old_name": "Mercimek Çorbası"}]
    assert shop.rows("SELECT 1 FROM delivery_foods WHERE gone_utc IS NOT NULL") == []


async def test_an_account_that_waits_for_its_login_reserves_nothing(shop: Shop):
    shop.world.faults.add(Fault(operation="login", status=401, times=None))
    await shop.poll()
    assert (await read(shop), noted(shop)) == (AGAIN_S, (None, None, None))


async def test_a_food_stored_by_an_order_at_the_same_time_does_not_fail_the_menu(shop: Shop, monkeypatch):
    take_in, failed = foods.update_menu, []

    def collides(*args, **named):
        if not failed:
            failed.append(IntegrityError("INSERT", None, Exception("UNIQUE")))
            raise failed[0]
        return take_in(*args, **named)

    monkeypatch.setattr(foods, "update_menu", collides)
    await read(shop)
    assert len(shown(shop)) == 12


async def test_an_ok_for_a_switch_sets_the_status_of_its_food(shop: Shop):
    await read(shop)
    for action, status in (("deactivate_food", "inactive"), ("activate_food", "active")):
        await shop.acted(action, food_id=1001)
        assert shop.one("SELECT status FROM delivery_foods WHERE food_id = 1001") == {"status": status}


@pytest.mark.interface("Menu item status")
async def test_a_menu_that_was_requested_after_the_attempt_proves_it(shop: Shop):
    shop.world.faults.add(Fault.drop("deactivate_food", when=When.AFTER, times=1))
    row_id = await shop.acted("deactivate_food", food_id=1001)
    await asyncio.sleep(1)
    await read(shop)
    await shop.verdict(row_id)
    assert (shop.end(row_id), len(shop.calls("deactivate_food"))) == (("done", None, "status"), 1)


async def test_a_menu_under_way_during_the_attempt_proves_nothing(shop: Shop):
    shop.world.inactive_foods = frozenset({("kadikoy", 1001)})

    async def attempt():
        shop.world.inactive_foods = frozenset()
        shop.world.faults.add(Fault.drop("deactivate_food", when=When.BEFORE, times=1))
        await shop.acted("deactivate_food", food_id=1001)

    shop.line.when_answered("get_foods", attempt)
    await read(shop)
    assert shop.row(1)["state"] == "sending"
    await shop.verdict(1)
    assert shop.end(1) == ("done", None, "answer")
    assert ("kadikoy", 1001) in shop.world.inactive_foods
