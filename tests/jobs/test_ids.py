"""Ids of the service in capitals: stored and compared in lower case, sent as they were received.

The sandbox knows them in no other form, and so answers "not found" to a call that changes one letter.
"""

from dataclasses import replace

import pytest
from tests.jobs.conftest import OpenShop
from tests.jobs.shop import Shop

from orderbridge.jobs.lists import Common, read_lists
from orderbridge_sandbox import World
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


async def test_a_food_of_such_a_restaurant_is_called_by_its_own_number(shop: Shop):
    await read_lists(shop.account, shop.database, ("kadikoy",), Common(shop.clock))
    row = shop.act("deactivate_food", food_id=1005, restaurant_id=LETTERS)
    await shop.drain()
    assert shop.end(row) == ("done", None, "answer")
    assert [call.argument for call in shop.calls("deactivate_food")] == [str(shop.row(row)["food_id"])]
