"""Effects of time alone: orders end by silence, and customers' data are kept for the configured time."""

import asyncio
from collections import Counter
from datetime import datetime, timedelta

import pytest
from structlog.testing import capture_logs
from tests.jobs.shop import Shop, listing

from orderbridge.jobs.upkeep import SWEEP_AGAIN_S, SWEEP_S, sweep, today
from orderbridge.store import retention

pytestmark = pytest.mark.plays_daemon

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S


async def swept(shop: Shop) -> tuple[int, ...]:
    """How many orders ended, and of how many the customer was forgotten."""
    return (await counts(shop, shop.clock.now()))[:2]


async def counts(shop: Shop, late: datetime) -> tuple[int, ...]:
    """How many orders ended, how many were blanked and how many records were deleted, as the log says."""
    with capture_logs() as lines:
        await sweep(shop.database, shop.settings, shop.clock, late)
    line = next((line for line in lines if line["event"] == "orders.swept"), Counter[str]())
    return line["ended"], line["blanked"], line["deleted"]


async def sweep_at(shop: Shop, service_now: datetime | None) -> tuple[int, ...]:
    """How many were blanked and deleted when the service says that time."""
    return (await counts(shop, await today(shop.database, shop.settings, shop.clock, service_now)))[1:]


def listen(shop: Shop, seconds: float, name: str = "kadikoy") -> None:
    """Let the account poll for this time without a sign of the order."""
    listened = "UPDATE delivery_accounts SET listened_seconds = listened_seconds + ? WHERE name = ?"
    shop.till.execute(listened, (seconds, name))


@pytest.mark.parametrize("what", ["ended_utc", "silence_from", "payload"])
async def test_an_order_whose_end_a_trigger_refuses_harms_no_other(shop: Shop, what: str):
    kept, swept_away = [await shop.taken_in() for _ in range(2)]
    shop.refuse(f"UPDATE OF {what} ON delivery_orders", when=f"NEW.payment_key = '{kept.key}'")
    shop.take_over()
    await swept(shop)
    listen(shop, DAY_S)
    await swept(shop)
    await asyncio.sleep(91 * DAY_S)
    await swept(shop)
    one = "payload" if what == "payload" else "ended_utc"
    assert shop.order(kept)[one] != shop.order(swept_away)[one]


async def test_the_hours_of_silence_are_configured(open_shop):
    shop = await open_shop(orders={"silence_hours": 2})
    await shop.taken_in()
    shop.take_over()
    await swept(shop)
    listen(shop, 2 * HOUR_S)
    assert await swept(shop) == (1, 0)


async def ended_order(shop: Shop, **document: object) -> object:
    order = await shop.taken_in(note="Ring twice", **document)
    shop.world.cancel_by_customer(order.key)
    await shop.poll()
    return order


@pytest.mark.parametrize("days, is_over", [(1, False), (0, True)], ids=["open", "retention is off"])
async def test_a_customer_is_kept(open_shop, days: int, is_over: bool):
    shop = await open_shop(orders={"retention_days": days})
    order = await (ended_order(shop) if is_over else shop.taken_in(scheduled_date="2026-06-01 12:00:00"))
    await asyncio.sleep((3650 if is_over else 10) * DAY_S)
    assert await swept(shop) == (0, 0)
    assert shop.order(order)["customer_name"]


@pytest.mark.parametrize("status_id", [1, None], ids=["another status", "the same"])
async def test_a_delivery_after_the_customer_was_blanked_is_stored_whole(shop: Shop, status_id: int | None):
    order = await ended_order(shop)
    await asyncio.sleep(91 * DAY_S)
    await swept(shop)
    if status_id is None:
        order.acknowledged = False
    else:
        shop.world.change_status(order.key, status_id)
    await shop.account.renew()
    await shop.poll()
    assert order.acknowledged
    assert shop.order(order)["customer_name"] == order.document["customer"]["name"]
    assert shop.order(order)["payload"]


async def test_a_clock_set_ahead_before_the_first_order_blanks_nothing(open_shop):
    shop = await open_shop(orders={"retention_days": 1})
    shop.world.faults.add(listing({"payment_key": "7"}))
    await shop.poll()
    shop.clock.ahead = timedelta(days=10)
    assert [(await sweep_at(shop, now))[0] for now in (None, shop.clock.now())] == [0, 1]


async def test_old_records_are_deleted_and_later_ones_kept(open_shop, monkeypatch):
    shop = await open_shop(orders={"records_days": 100})
    order = await ended_order(shop)
    row = await shop.acted("activate_food", food_id=55)
    begun = shop.clock.now()
    await asyncio.sleep(101 * DAY_S)
    for service_now in (None, begun):
        assert await sweep_at(shop, service_now) == (0, 0), "neither orders nor service say that so much time went by"
    await shop.account.renew()
    later = await shop.taken_in()
    monkeypatch.setattr(retention, "SWEEP", 3)  # an order to blank and to delete, and a row
    late = await today(shop.database, shop.settings, shop.clock, None)
    waits = [await sweep(shop.database, shop.settings, shop.clock, late) for _ in range(2)]
    assert waits == [SWEEP_AGAIN_S, SWEEP_S]
    assert [one["payment_key"] for one in shop.rows("SELECT payment_key FROM delivery_orders")] == [later.key]
    assert shop.rows("SELECT id FROM delivery_actions WHERE id = ?", row) == []
    assert order.key not in str(shop.rows("SELECT payment_key FROM delivery_order_events"))
