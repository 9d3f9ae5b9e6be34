"""Automatic accepts by load: the minutes follow the orders of the last hour; after the last step a person accepts."""

import asyncio

from tests.jobs.shop import Shop

from orderbridge.rules.problems import Code, Problem
from orderbridge_sandbox.scenery import ATASEHIR, BESIKTAS, USKUDAR

STEPS = ((0, 20), (3, 30), (5, 0))
HOUR_S = 3600.0


def minutes(shop: Shop) -> list[int]:
    found = shop.rows("SELECT preparing_time FROM delivery_actions WHERE request_id LIKE 'auto:%' ORDER BY id")
    return [row["preparing_time"] for row in found]


def paused(shop: Shop) -> list[Problem]:
    found = shop.context.own_problems.problems(shop.accounts.values())
    return [one for one in found if one.code == Code.AUTO_ACCEPT_PAUSED]


async def come(shop: Shop, number: int, **changes: object) -> None:
    for _ in range(number):
        await shop.taken_in(**changes)
        await shop.drain()


async def test_the_minutes_follow_the_last_hour_and_beyond_the_last_step_a_person_accepts(open_shop):
    shop = await open_shop(auto_accept_steps=STEPS)
    await come(shop, 6)
    assert minutes(shop) == [20, 20, 30, 30]
    (problem,) = paused(shop)
    assert (problem.subject, problem.account) == ("kadikoy", "kadikoy")
    assert problem.facts == {"name": "kadikoy", "limit": "5"}
    await asyncio.sleep(HOUR_S)
    await come(shop, 1)
    assert (minutes(shop)[4:], paused(shop)) == ([20], [])


async def test_an_older_order_does_not_count_because_it_has_changed_now(open_shop):
    shop = await open_shop(auto_accept_steps=((0, 20), (2, 0)))
    order = await shop.taken_in()
    await shop.drain()
    await asyncio.sleep(HOUR_S + 1)
    await shop.acted("on_the_way", order)
    await come(shop, 1)
    assert (minutes(shop), paused(shop)) == ([20, 20], [])


async def test_orders_that_come_at_once_count_for_each_other_and_ended_ones_too(open_shop):
    shop = await open_shop(auto_accept_steps=STEPS)
    orders = [shop.place() for _ in range(3)]
    await shop.poll()
    for order in orders:
        shop.world.cancel_by_customer(order.key)
    await shop.poll()
    await come(shop, 1)
    assert minutes(shop) == [30] * 4


async def test_a_restaurants_steps_count_its_own_orders(open_shop):
    rule = {"id": USKUDAR, "auto_accept_steps": ((0, 10), (2, 0))}
    shop = await open_shop("chain", auto_accept_minutes=25, restaurants=(rule,))
    await come(shop, 2, restaurant_id=ATASEHIR)
    assert minutes(shop) == [25, 25]
    await come(shop, 2, restaurant_id=USKUDAR)
    assert minutes(shop) == [25, 25, 10]
    (problem,) = paused(shop)
    assert (problem.subject, problem.account) == (USKUDAR, "chain")
    await come(shop, 1, restaurant_id=ATASEHIR)
    assert minutes(shop)[3:] == [25]


async def test_an_accounts_steps_count_only_its_own_orders(open_shop):
    shop = await open_shop("kadikoy", "besiktas", auto_accept_steps=((0, 20), (3, 0)))
    for _ in range(2):
        shop.place(restaurant_id=BESIKTAS)
    await shop.poll("besiktas")
    await come(shop, 2)
    assert (minutes(shop), paused(shop)) == ([20] * 4, [])
