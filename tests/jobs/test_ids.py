"""Ids of the service in capitals: stored and compared in lower case, sent as they were received.

The sandbox knows them in no other form, and so answers "not found" to a call that changes one letter.
"""

from dataclasses import replace

import pytest
from tests.jobs.conftest import OpenShop
from tests.jobs.shop import Shop

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
