"""Rows of an account that another replica has taken: this replica no longer touches them."""

import asyncio

from tests.jobs.shop import Shop

from orderbridge.jobs.outbox import Outbox
from orderbridge.rules.outbox_rows import order_lane

PATIENCE_S = 5.0


async def given_to_another(outbox: Outbox, account: str = "kadikoy") -> None:
    """Another replica gets the account while work is in flight, as after LEAVE_S (jobs.accounts_at_work)."""
    outbox.release([account])
    await asyncio.sleep(0.001)


async def test_a_row_whose_outcome_was_not_written_gives_its_lane_back(shop: Shop):
    """If the account comes back, its order can be acknowledged again, and its rows can be sent."""
    order = await shop.taken_in()
    shop.refuse("UPDATE ON delivery_actions", when="NEW.state = 'done'")
    await shop.acted("accept", order)
    assert shop.lanes.taken() == {order_lane(order.key)}
    await given_to_another(shop.outbox)
    assert shop.lanes.taken() == frozenset()


async def test_a_row_released_while_its_claim_is_written_blocks_no_other(open_shop):
    shop = await open_shop("kadikoy", "besiktas")
    order = await shop.taken_in()
    begun, going_on = asyncio.Event(), asyncio.Event()
    run = shop.database.run

    async def slow(work, **how):
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
    assert (shop.lanes.taken(), shop.calls("accept")) == (frozenset(), [])
