"""The slots for requests, alone and with the outbox; and rows when nothing can be written any more."""

import asyncio

import pytest
from tests.jobs.shop import FakeClock, Shop

from orderbridge.errors import FileLost
from orderbridge.jobs.executor import AHEAD_S, QUICK_S, WAIT_S, Slots
from orderbridge_sandbox import Fault


async def _request(places: Slots, seconds: float) -> bool:
    async with places.one() as place:
        await asyncio.sleep(seconds)
        return place


async def test_as_many_rows_are_claimed_ahead_as_are_answered_during_a_claim():
    places = Slots(4, FakeClock())
    assert places.room(0) == 4
    await asyncio.gather(*(_request(places, 0.03) for _ in range(3)))
    assert places.room(1) == places.room(1) == 3 + 4 - 1  # the call changes nothing
    await asyncio.sleep(AHEAD_S)
    assert places.room(4) == 0  # nothing was answered meanwhile
    await asyncio.gather(*(_request(places, QUICK_S + 0.01) for _ in range(4)))
    assert places.room(0) == 4, "the service is slow"


async def test_a_row_without_a_free_slot_returns_to_pending(open_shop):
    """There is one slot. One row hangs in it, and another one is claimed ahead."""
    shop = await open_shop(actions={"max_in_flight": 1})
    first = shop.act("accept", await shop.taken_in())
    await shop.outbox.tick()
    await shop.outbox.quiet()
    assert shop.row(first)["state"] == "done"
    shop.world.faults.add(Fault.delay("deactivate_food", 5 * WAIT_S, times=1))
    hanging, ahead = (shop.act("deactivate_food", food_id=food) for food in (1001, 1002))
    await shop.outbox.tick()
    await asyncio.sleep(WAIT_S / 2)
    assert [shop.row(one)["state"] for one in (hanging, ahead)] == ["sending", "sending"]
    await asyncio.sleep(WAIT_S)
    row = shop.row(ahead)
    assert (row["state"], row["attempts"], row["error_code"]) == ("pending", 0, None)
    assert shop.rows("SELECT * FROM delivery_action_attempts WHERE action_id = ?", ahead) == []
    await shop.drain()
    done = [shop.row(one)["state"] for one in (hanging, ahead)]
    assert (done, len(shop.calls("deactivate_food"))) == (["done", "done"], 2)


@pytest.mark.parametrize("transaction", [1, 2], ids=["claim", "outcome"])
async def test_a_file_that_is_lost_ends_the_outbox(shop: Shop, monkeypatch: pytest.MonkeyPatch, transaction: int):
    row, calls, run = shop.act("accept", await shop.taken_in()), 0, shop.database.run

    async def lost(work, **how):
        nonlocal calls
        calls += 1
        if calls == transaction:
            raise FileLost("gone")
        return await run(work, **how)

    monkeypatch.setattr(shop.database, "run", lost)
    with pytest.raises(FileLost):
        await shop.outbox.run()
    assert (shop.outbox.is_busy(), shop.row(row)["state"]) == (False, ["pending", "sending"][transaction - 1])
