"""Undoing a tap while its row is claimed: the row is withdrawn or sent, never both, and the answer is right."""

from collections.abc import Awaitable, Callable
from datetime import UTC

import pytest
from tests.jobs.shop import Shop

from orderbridge_board import acts, cards, snapshot
from orderbridge_board.devices import ACT, Device
from orderbridge_board.door import Refused
from orderbridge_sandbox.state import Order

OpenShop = Callable[..., Awaitable[Shop]]


async def tap(shop: Shop, order: Order, action: str = "complete") -> int:
    now = shop.clock.now()
    device = Device("1", "Kasa", ACT, now)
    values = {"action": action, "payment_key": order.key, "tries": 0}
    answer = await shop.database.run(lambda tx: acts.act(tx, values, device, cards.BESIDE, "tr", now, UTC))
    return int(answer["row"]["id"])


async def back(shop: Shop, row: int) -> str:
    """The answer: taken, or why not."""
    try:
        await shop.database.run(lambda tx: acts.take_back(tx, {"id": row}))
    except Refused as refused:
        return refused.key
    return "taken"


async def shown(shop: Shop) -> dict[str, object]:
    state = await shop.database.read(lambda tx: snapshot.state(tx, shop.settings, (), shop.clock.now(), "tr"))
    (card,) = state["orders"]
    return dict(card["row"])


async def test_a_tap_is_sent_after_its_delay_and_not_before(shop: Shop):
    order = await shop.taken_in(status_id=16)
    tapped = shop.clock.now()
    row = await tap(shop, order)
    again = await shop.drain()
    assert shop.row(row)["state"] == "pending"
    assert 0 < again <= cards.HOLD.total_seconds()
    assert (await shown(shop))["back"] is True
    await shop.verdict(row)
    (call,) = shop.calls("complete")
    assert call.at - tapped >= cards.HOLD


async def test_a_row_that_was_read_and_is_taken_back_before_its_claim_is_not_sent(shop: Shop):
    row = await tap(shop, await shop.taken_in(status_id=16))
    shop.clock.ahead += cards.HOLD
    shop.outbox.set_now()
    await shop.outbox.reader.everything()  # it may be sent
    assert await back(shop, row) == "taken"
    await shop.outbox.act()
    await shop.drain()
    assert (shop.row(row)["state"], shop.calls("complete")) == ("withdrawn", [])
    assert (await shown(shop))["state"] == "withdrawn"


@pytest.mark.parametrize("moment", ["leaving", "answered"])
async def test_a_claimed_row_is_sent_and_the_page_shows_too_late(shop: Shop, moment: str):
    row = await tap(shop, await shop.taken_in(status_id=16))
    answers = []

    async def take_back() -> None:
        answers.append(await back(shop, row))

    (shop.line.when_leaving if moment == "leaving" else shop.line.when_answered)("complete", take_back)
    await shop.verdict(row)
    assert answers == ["too_late"]
    assert (shop.row(row)["state"], shop.row(row)["withdraw"], len(shop.calls("complete"))) == ("done", 0, 1)


async def test_a_tap_survives_a_daemon_that_is_killed_in_its_five_seconds(shop: Shop, open_shop: OpenShop):
    orders = [await shop.taken_in(status_id=16) for _ in range(2)]
    kept, taken = [await tap(shop, order) for order in orders]
    await shop.drain()
    await shop.crash()
    shop = await open_shop()
    assert (shop.calls("complete"), await back(shop, taken)) == ([], "taken")
    await shop.verdict(kept)
    await shop.verdict(taken)
    assert [shop.row(row)["state"] for row in (kept, taken)] == ["done", "withdrawn"]
    assert len(shop.calls("complete")) == 1
