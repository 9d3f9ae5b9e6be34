"""Unknown outcomes in the whole outbox; tests/rules/test_retry.py has the table row by row."""

import asyncio

import pytest
from tests.jobs.conftest import OpenShop
from tests.jobs.shop import Shop
from tests.jobs.test_verdicts import asked, effects, is_so

from orderbridge_sandbox import Fault, When

# ---- accept and on_the_way -------------------------------------------------------------------------------------------


async def test_after_a_start_the_first_poll_is_the_check(shop: Shop, open_shop: OpenShop):
    row = await asked(shop, "accept")
    shop.world.faults.add(Fault.drop("accept", when=When.AFTER))
    await shop.drain()
    await shop.crash()
    await asyncio.sleep(300)
    shop = await open_shop()
    await shop.drain()
    assert (shop.row(row)["state"], len(shop.calls("accept"))) == ("sending", 1)
    await shop.poll()
    assert (shop.end(row), len(shop.calls("accept"))) == (("done", None, "poll"), 1)


async def test_a_poll_that_is_under_way_is_waited_for(shop: Shop):
    row = await asked(shop, "accept")
    shop.world.faults.add(Fault.drop("accept", when=When.AFTER))
    await shop.drain()
    await asyncio.sleep(300)
    shop.line.when_answered("get_current", shop.drain)
    await shop.poll()
    assert (shop.end(row), len(shop.calls("accept"))) == (("done", None, "poll"), 1)


async def test_a_poll_that_fails_is_not_waited_for(shop: Shop, open_shop: OpenShop):
    row = await asked(shop, "accept")
    shop.world.faults.add(Fault.drop("accept"))
    await shop.drain()
    await shop.crash()
    await asyncio.sleep(300)
    shop = await open_shop()
    shop.world.faults.add(Fault(operation="get_current", status=500))
    await shop.poll()
    await shop.drain()
    assert (shop.end(row), len(shop.calls("accept"))) == (("done", None, "answer"), 2)


async def test_a_poll_that_never_leaves_keeps_no_row_beyond_its_time(shop: Shop, open_shop: OpenShop):
    row = await asked(shop, "accept")
    shop.world.faults.add(Fault.drop("accept"))
    await shop.drain()
    await shop.crash()
    await asyncio.sleep(300)
    shop = await open_shop(secrets={"kadikoy": "mistyped"})
    await shop.drain()  # it waits for the first poll
    await shop.verdict(row, within_s=301)
    assert shop.end(row)[:2] == ("failed", "outcome_unknown")


# ---- restaurants -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", When)
async def test_a_restaurant_whose_status_cannot_be_read_is_sent_to_again(shop: Shop, when: When):
    row = await asked(shop, "close_restaurant")
    shop.world.faults.add(Fault.drop("close_restaurant", when=when), Fault.page("get_restaurant_status", 404))
    ended = await shop.verdict(row)
    assert (ended["state"], is_so(shop.world, "close_restaurant")) == ("done", True)
    assert effects(shop, "close_restaurant") == 1
    assert len(shop.calls("close_restaurant")) <= 2


async def test_a_restaurant_that_stays_mute_stays_unknown(shop: Shop):
    row = await asked(shop, "open_restaurant")
    shop.world.faults.add(
        Fault.drop("open_restaurant", times=None, when=When.AFTER),
        Fault(operation="get_restaurant_status", status=500, times=None),
    )
    await shop.verdict(row)
    assert (shop.end(row), len(shop.calls("open_restaurant"))) == (("failed", "outcome_unknown", None), 4)
    assert shop.row(row)["attempts"] == 4


# ---- the doubt about an order's status -------------------------------------------------------------------------------


@pytest.mark.parametrize("status, error", [(422, "eksik alan"), (403, "URL hatalı")], ids=["its body", "its path"])
async def test_a_refusal_for_the_requests_own_sake_proves_nothing_about_the_one_before(
    shop: Shop, status: int, error: str
):
    row = await asked(shop, "cancel")
    (order,) = shop.world.orders.values()
    message = "Invalid reason_id" if status == 422 else None
    shop.world.faults.add(Fault(operation="cancel", status=500), Fault.error("cancel", status, error, message))
    await shop.verdict(row)
    assert shop.end(row)[:2] == ("failed", "outcome_unknown")
    assert (order.status_id, shop.order(order)["ended_by"]) == (1, None)
