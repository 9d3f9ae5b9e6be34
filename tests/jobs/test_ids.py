"""Ids of the service in capitals: stored and compared in lower case, called as they were sent.

The sandbox knows them in no other form, and so answers "not found" to a call that changes one letter.
"""

from dataclasses import replace

import pytest
from tests.jobs.conftest import OpenShop
from tests.jobs.shop import Shop

from orderbridge.jobs.lists import Common, read_lists, read_statuses
from orderbridge_sandbox import Fault, When, World
from orderbridge_sandbox.scenery import DEFAULT_SCENERY

LETTERS = "abcdefab-cdef-4abc-8def-abcdefabcdef"  # the usual scenery's ids have none


@pytest.fixture
async def capitals(world: World) -> None:
    accounts, restaurants = DEFAULT_SCENERY.accounts, DEFAULT_SCENERY.restaurants
    world.scenery = replace(
        DEFAULT_SCENERY,
        accounts=(replace(accounts[0], restaurant_ids=(LETTERS,)), *accounts[1:]),
        restaurants=(replace(restaurants[0], id=LETTERS), *restaurants[1:]),
    )
    world.reset()
    world.set_options(ids_in_capitals=True)


@pytest.fixture
async def shop(open_shop: OpenShop, capitals: None) -> Shop:
    return await open_shop()


async def test_an_order_lives_its_whole_life(shop: Shop):
    order = await shop.taken_in(restaurant_id=LETTERS)
    assert shop.one("SELECT payment_key, restaurant_id FROM delivery_new_orders") == {
        "payment_key": order.key,
        "restaurant_id": LETTERS,
    }
    for action, status_id in (("accept", 2), ("on_the_way", 16), ("complete", 5)):
        row = shop.act(action, order)
        await shop.drain()
        assert (shop.row(row)["state"], order.status_id) == ("done", status_id)
    assert {call.argument for call in shop.world.calls() if order.key in call.argument.lower()} == {order.key.upper()}
    assert len(order.acknowledgements) == 1


async def test_an_order_is_called_as_sent_by_the_next_daemon_too(shop: Shop, open_shop: OpenShop):
    order = await shop.taken_in(restaurant_id=LETTERS)
    row = shop.act("cancel", order)
    await shop.close()
    again = await open_shop()
    await again.drain()
    assert (again.row(row)["state"], order.status_id) == ("done", 6)


async def test_an_order_that_comes_in_another_form_is_the_same_order(shop: Shop):
    order = await shop.taken_in(restaurant_id=LETTERS)
    shop.world.set_options(ids_in_capitals=False)
    shop.world.change_status(order.key, 2)
    await shop.poll()
    assert shop.rows("SELECT payment_key, status_id, service_key FROM delivery_orders") == [
        {"payment_key": order.key, "status_id": 2, "service_key": None}
    ]


@pytest.mark.parametrize("lost", [False, True], ids=["answered", "an answer lost"])
async def test_a_restaurant_is_closed_and_opened(shop: Shop, lost: bool):
    await read_lists(shop.account, shop.database, ("kadikoy",), Common(shop.clock))
    listed = shop.one("SELECT id, status FROM delivery_restaurants")
    assert listed == {"id": LETTERS, "status": None}
    for action in ("close_restaurant", "open_restaurant"):
        if lost:  # the status is asked for then
            shop.world.faults.add(Fault.drop(action, when=When.AFTER))
        assert (await shop.verdict(shop.act(action, restaurant_id=listed["id"])))["state"] == "done"
        shown = shop.one("SELECT status FROM delivery_restaurants")["status"]
        assert (LETTERS in shop.world.open_restaurants, shown) == (
            (True, "Open") if action == "open_restaurant" else (False, "Closed")
        )


async def test_the_status_of_a_restaurant_is_read(shop: Shop):
    await read_lists(shop.account, shop.database, ("kadikoy",), Common(shop.clock))
    assert await read_statuses(shop.account, shop.database, shop.clock) == 1
    assert shop.one("SELECT status FROM delivery_restaurants") == {"status": "Open"}


async def test_a_restaurants_own_auto_accept_counts(open_shop: OpenShop, capitals: None):
    shop = await open_shop(restaurants=({"id": LETTERS, "auto_accept_minutes": 33},))
    order = await shop.taken_in(restaurant_id=LETTERS)
    await shop.drain()
    assert order.preparing_time == 33


@pytest.mark.plays_daemon
async def test_an_orphan_goes_to_the_account_that_reaches_its_restaurant(shop: Shop):
    order = await shop.taken_in(restaurant_id=LETTERS)
    shop.till.execute("UPDATE delivery_orders SET account = 'gone'")
    await read_lists(shop.account, shop.database, ("kadikoy",), Common(shop.clock))
    assert shop.one("SELECT account FROM delivery_orders WHERE payment_key = ?", order.key) == {"account": "kadikoy"}


async def test_a_food_of_such_a_restaurant_is_called_by_its_own_number(shop: Shop):
    await read_lists(shop.account, shop.database, ("kadikoy",), Common(shop.clock))
    row = shop.act("deactivate_food", food_id=1005, restaurant_id=LETTERS)
    await shop.drain()
    assert shop.end(row) == ("done", None, "answer")
    assert [call.argument for call in shop.calls("deactivate_food")] == [str(shop.row(row)["food_id"])]
