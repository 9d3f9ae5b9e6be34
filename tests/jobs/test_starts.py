"""When to start a scheduled order: the column follows every change, and the time is reported once."""

import asyncio
from datetime import timedelta
from zoneinfo import ZoneInfo

from tests.jobs.shop import Shop, text_of

from orderbridge import config
from orderbridge.rules.problems import Code
from orderbridge.store import order_times

ISTANBUL = ZoneInfo("Europe/Istanbul")
WANTED = "2026-03-02 15:00:00"  # three hours after the shop has opened


def follow(shop: Shop, **how: bool) -> list[str]:
    """Note the starts that are due. Returns the orders that begin now."""
    now = shop.clock.now()
    found = shop.database.read_now(lambda tx: order_times.due(tx, now, ISTANBUL, lambda *_: 30))
    shop.database.write_now(lambda tx: order_times.note(tx, now, found, **how))
    return [one.payment_key for one in found if one.begins]


async def test_the_start_is_there_with_the_order_and_follows_what_changes_it(shop: Shop):
    order = await shop.taken_in(scheduled_date=WANTED)
    at_once = await shop.taken_in()
    assert (shop.order(order)["start_utc"], shop.order(at_once)["start_utc"]) == ("2026-03-02 11:30:00.000", None)
    assert shop.one("SELECT start_utc FROM delivery_new_orders WHERE payment_key = ?", order.key)["start_utc"]
    order.document["scheduled_date"] = "02.03.2026 16:00"
    order.acknowledged = False
    await shop.poll()
    follow(shop)
    assert shop.order(order)["start_utc"] == "2026-03-02 12:30:00.000"
    await shop.acted("accept", order, preparing_time=50)
    follow(shop)
    assert shop.order(order)["start_utc"] == "2026-03-02 12:10:00.000"
    await shop.acted("accept", order, preparing_time=40)
    follow(shop)
    assert shop.order(order)["start_utc"] == "2026-03-02 12:20:00.000"


async def test_the_moment_is_an_event_once_also_after_a_time_without_a_daemon(shop: Shop, open_shop):
    order = await shop.taken_in(scheduled_date=WANTED)
    assert follow(shop) == []
    await asyncio.sleep(timedelta(hours=2, minutes=29).total_seconds())
    assert follow(shop) == []
    await shop.crash()
    await asyncio.sleep(timedelta(hours=1).total_seconds())
    shop = await open_shop()
    assert (follow(shop), follow(shop)) == ([order.key], [])
    lines = shop.rows("SELECT at_utc FROM delivery_order_events WHERE event = 'start'")
    assert [line["at_utc"] for line in lines] == [text_of(shop.clock.now())]


async def test_a_configured_till_confirms_the_start(shop: Shop):
    order = await shop.taken_in(scheduled_date=WANTED)
    shop.take_over()
    await asyncio.sleep(timedelta(hours=2, minutes=31).total_seconds())
    assert follow(shop, raises_revision=True) == [order.key]
    shown = shop.one("SELECT revision, last_change FROM delivery_changed_orders")
    assert (shown["last_change"], shown["revision"]) == ("start", shop.order(order)["pos_revision"] + 1)

    async def problems() -> list[tuple[str, dict[str, str]]]:
        found = await shop.checkup(not_started_minutes=10).check()
        return [(one.subject, one.facts) for one in found if one.code == Code.NOT_STARTED]

    assert await problems() == []
    await asyncio.sleep(timedelta(minutes=10).total_seconds())
    assert await problems() == [(order.key, {})]
    beside, shop.settings = shop.settings, shop.settings.model_copy(update={"web": config.Web(board="till")})
    assert await problems() == [(order.key, {"by": "board"})]
    shop.settings = beside
    shop.take_over()
    assert await problems() == []
