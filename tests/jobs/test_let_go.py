"""Rows of an account that another replica has taken: this replica no longer touches them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from tests.jobs.conftest import OpenShop
from tests.jobs.shop import Shop
from tests.jobs.test_refusing_database import refuse

from orderbridge.jobs.outbox import Outbox
from orderbridge.jobs.postponed import REFUSED_S
from orderbridge.rules.outbox_rows import order_lane
from orderbridge_sandbox import Fault

PATIENCE_S = 5.0


async def given_to_another(outbox: Outbox, account: str = "kadikoy") -> None:
    """As when what is in flight has taken too long (jobs.accounts_at_work)."""
    outbox.let_go([account])
    await asyncio.sleep(0.001)


async def test_a_row_whose_outcome_was_not_written_gives_its_lane_back(shop: Shop):
    """Should the account come back, its order is acknowledged again, and its rows leave."""
    order = await shop.taken_in()
    refuse(shop, "UPDATE ON delivery_actions", when="NEW.state = 'done'")
    shop.act("accept", order)
    await shop.drain()
    assert shop.lanes.taken() == {order_lane(order.key)}
    await given_to_another(shop.outbox)
    assert shop.lanes.taken() == frozenset()


async def test_the_ends_of_others_are_written_when_one_whose_end_was_due_was_let_go(open_shop: OpenShop):
    shop = await open_shop("kadikoy", "besiktas")
    order = await shop.taken_in()
    shop.world.faults.add(Fault.hang("accept", times=None))
    shop.act("accept", order, valid_minutes=1)
    await shop.drain()
    await asyncio.sleep(61)  # its outcome is unknown, and its time over
    other = shop.act("deactivate_food", food_id=1001, account="besiktas", withdraw=1)
    assert shop.lanes.take(order_lane(order.key))  # it is being acknowledged
    shop.outbox.set_now()
    await shop.outbox.reader.everything()
    shop.outbox.due = shop.outbox.queue.ends()
    assert len(shop.outbox.due) == 2
    await given_to_another(shop.outbox)
    await shop.outbox.write_ends()
    assert shop.row(other)["state"] == "withdrawn"


async def test_a_poll_that_began_before_the_row_was_let_go_does_not_count(shop: Shop):
    order = await shop.taken_in()
    refuse(shop, "UPDATE ON delivery_actions", when="NEW.state = 'done'")
    shop.act("accept", order)
    began = shop.lanes.begin_poll()
    await shop.drain()
    await given_to_another(shop.outbox)
    assert not shop.lanes.hold_for_poll(order.key, began)


async def test_what_the_database_refused_of_it_is_told_no_more(shop: Shop):
    order = await shop.taken_in()
    refuse(shop, "UPDATE ON delivery_actions", when="NEW.state = 'done'")
    shop.act("accept", order)
    await shop.drain()
    assert shop.outbox.refused() == 1
    await given_to_another(shop.outbox)
    await asyncio.sleep(REFUSED_S + 1.0)
    assert shop.outbox.refused() == 0
    assert not shop.outbox.is_busy()


async def test_a_row_that_is_let_go_while_its_claim_is_written_stops_no_other(open_shop: OpenShop):
    shop = await open_shop("kadikoy", "besiktas")
    order = await shop.taken_in()
    begun, going_on = asyncio.Event(), asyncio.Event()
    run: Callable[..., Awaitable[Any]] = shop.database.run

    async def slow(work: Callable[..., Any], **how: Any) -> Any:
        begun.set()
        await going_on.wait()
        return await run(work, **how)

    shop.act("accept", order)
    shop.database.run = slow  # type: ignore[method-assign]
    turn = asyncio.create_task(shop.outbox.tick())
    await begun.wait()
    await given_to_another(shop.outbox)
    going_on.set()
    async with asyncio.timeout(PATIENCE_S):
        await turn
        await shop.outbox.quiet()
    assert shop.lanes.taken() == frozenset()
    assert shop.calls("accept") == []


async def test_a_row_that_is_let_go_before_its_way_begins_stops_no_other(shop: Shop):
    order = await shop.taken_in()
    shop.act("accept", order)
    outbox = shop.outbox
    outbox.set_now()
    await outbox.reader.everything()
    outbox.queue.ends()
    (entry,) = outbox.queue.accounts.take(1, outbox.executor.under_way, 1, lambda _: True, outbox._may_leave)
    claimed = outbox.executor.begin(entry)
    outbox.let_go(["kadikoy"])
    async with asyncio.timeout(PATIENCE_S):
        assert not await claimed
    assert (outbox.is_moving(), shop.lanes.taken()) == (False, frozenset())
