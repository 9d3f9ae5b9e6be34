"""An order that arrives long after it was placed is accepted by a person only."""

import asyncio
from datetime import timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from tests.jobs.shop import Shop

from orderbridge.rules.problems import Code

ISTANBUL = ZoneInfo("Europe/Istanbul")


@pytest.fixture
async def shop(open_shop) -> Shop:
    return await open_shop("kadikoy", auto_accept_minutes=25, auto_accept_scheduled=True)


def local(shop: Shop, minutes: float, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """The service's time this number of minutes from now."""
    return (shop.clock.true() + timedelta(minutes=minutes)).astimezone(ISTANBUL).strftime(form)


@pytest.mark.parametrize("ordered, scheduled, late", [
    (-19, None, False), (-21, None, True), (-180, None, True), (-600, 60, False), (-600, -1, True),
    (-2000, 2000, False), (45, None, False),
])  # fmt: skip
async def test_an_order_is_late_by_its_own_time(shop: Shop, ordered: int, scheduled: int | None, late: bool):
    wanted = "" if scheduled is None else local(shop, scheduled)
    order = await shop.taken_in(date=local(shop, ordered), scheduled_date=wanted)
    assert shop.order(order)["problem"] == ("late" if late else None)
    assert shop.count("delivery_actions") == (0 if late else 1)


async def test_without_a_limit_no_order_is_late(open_shop):
    shop = await open_shop(orders={"late_minutes": 0})
    order = await shop.taken_in(date=local(shop, -600))
    assert shop.order(order)["problem"] is None


async def test_the_time_is_read_by_its_own_offset_and_an_unreadable_one_is_not_late(shop: Shop):
    elsewhere = (shop.clock.true() - timedelta(minutes=5)).astimezone(timezone(timedelta(hours=-5)))
    for date in (elsewhere.isoformat(), "soon", "", None, "0000-00-00 00:00:00"):
        order = await shop.taken_in(date=date)
        assert "late" not in str(shop.order(order)["problem"]), date


async def test_an_order_is_late_until_it_is_answered(shop: Shop):
    order = await shop.taken_in(date=local(shop, -90))
    order.document["note"] = "zile basma"
    order.acknowledged = False
    await shop.poll()
    assert (shop.order(order)["note"], shop.order(order)["problem"]) == ("zile basma", "late")
    await shop.acted("accept", order)
    await shop.poll()
    assert (shop.order(order)["status"], shop.order(order)["problem"]) == ("CONFIRMED", None)


async def test_orders_that_are_all_whole_hours_late_show_a_wrong_time_zone(shop: Shop):
    known, problems = shop.context.own_problems, []
    for _ in range(5):
        order = await shop.taken_in(date=local(shop, -180.3))
        problems.append(shop.order(order)["problem"])
        await asyncio.sleep(120)
    assert problems == ["late", "late", None, None, None]
    (told,) = known.problems()
    assert (told.code, told.account, told.facts["hours"]) == (Code.TIMEZONE_WRONG, "kadikoy", "+3")
    await shop.taken_in(date=local(shop, -0.3))
    assert known.problems() == ()


async def test_the_marketplaces_clock_counts_where_ours_is_wrong(shop: Shop):
    known = shop.context.own_problems
    shop.clock.ahead = timedelta(hours=2, minutes=17)
    known.note_date(shop.clock.true().strftime("%a, %d %b %Y %H:%M:%S GMT"))
    order = await shop.taken_in(date=local(shop, -1))
    assert shop.order(order)["problem"] is None
