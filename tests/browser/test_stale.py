"""What a tablet shows while the line is cut, and after it is back."""

import asyncio
from collections.abc import AsyncIterator
from random import Random

import pytest
import pytest_asyncio
from tests.browser.counter import Browser, Counter, Tablet, opened
from tests.test_daemon import WITHIN_S, Till, certificates, sandbox, till, until, world

from orderbridge import daemon
from orderbridge.sandbox import Fault, Sandbox, World

__all__ = ["certificates", "sandbox", "till", "world"]

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

CUTS = 20
STEP_MS = 500  # by the page's own clock
SHOWN = """() => [...document.querySelectorAll(".card:not(.gone)")].map((card) => [
  card.dataset.key, card.querySelector("h2").textContent, card.querySelectorAll(".items > li").length,
  card.classList.contains("stop"),
]).sort()"""
TABLES = """
SELECT payment_key, '#' || order_number AS number, status,
  (SELECT count(*) FROM delivery_order_items AS item WHERE item.payment_key = o.payment_key) AS items
FROM delivery_orders AS o WHERE o.ended_by IS NULL OR o.ended_by = 'cancelled'
"""


@pytest_asyncio.fixture(loop_scope="session")
async def counter(sandbox: Sandbox, till: Till, chromium: Browser) -> AsyncIterator[Counter]:
    async with opened(sandbox, till, chromium) as counter:
        yield counter


async def test_without_a_sign_of_life_it_says_so_and_sounds(counter: Counter):
    """25 seconds after the last one; and when the line is back all of it is as before."""
    tablet = await counter.tablet()
    await tablet.page.clock.install()
    await tablet.arm()
    order = await counter.order()
    await tablet.hears("new")
    await tablet.accept(order)
    await tablet.is_silent()
    await tablet.page.clock.fast_forward(24_000)  # the sign of life at 10 s is real: 24 of its own are too few
    assert not await is_grey(tablet)
    await counter.stop()
    await tablet.page.clock.fast_forward(26_000)
    await tablet.page.locator("#bar.red", has_text="Tablet bilgisayara ulaşamıyor").wait_for()
    said = await tablet.page.locator("#bar").text_content()
    assert said is not None
    assert "Gösterilen: saat " in said
    assert await is_grey(tablet)
    await tablet.hears("line")
    await counter.start()
    while await is_grey(tablet):
        await tablet.page.clock.run_for(STEP_MS)
    await tablet.is_silent()


async def is_grey(tablet: Tablet) -> bool:
    return "stale" in (await tablet.page.get_attribute("body", "class") or "")


async def test_the_link_that_is_broken_is_named(
    counter: Counter, sandbox: Sandbox, world: World, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(daemon, "HEALTH_S", 0.2)
    tablet = await counter.tablet()
    await tablet.arm()
    bar = tablet.page.locator("#bar")
    world.faults.add(Fault(operation="get_current", status=500, times=None))
    await bar.filter(has_text="Platform sipariş vermiyor.").wait_for()
    world.faults.clear()
    await bar.filter(has_text="Platform sipariş vermiyor.").wait_for(state="hidden")
    await asyncio.to_thread(sandbox.stop)
    await bar.filter(has_text="İnternet ya da platform hattı kopuk.").wait_for()


async def test_after_each_cut_the_page_equals_the_tables(counter: Counter, till: Till):
    """Whole states, no differences: whatever was missed while the line was cut is there."""
    chance = Random(12)
    tablet = await counter.tablet()
    await tablet.page.clock.install()
    await tablet.arm()
    for number in range(CUTS):
        await cut(counter, chance, number)
        await equal_in_time(tablet, till)
    assert tablet.complaints == []


async def cut(counter: Counter, chance: Random, number: int) -> None:
    """One way or another; meanwhile orders come and go."""
    if number % 7 == 6:
        await counter.stop()
        placed = counter.world.place_order(restaurant_id="11111111-1111-4111-8111-111111111111")
        await counter.start()
        await until(lambda: placed.acknowledged)
        return
    server = counter.service._listening._server
    for connection in [*server._streams, *(server._open if chance.random() < 0.5 else ())]:
        connection.transport.abort()
    placed = await counter.order()
    if chance.random() < 0.5:
        await asyncio.to_thread(counter.world.cancel_by_customer, placed.key)


async def equal_in_time(tablet: Tablet, till: Till) -> None:
    """The page's clock runs in steps, as long as its requests take: on a busy machine that is more than on the counter."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            await tablet.page.clock.run_for(STEP_MS)
            rows = await asyncio.to_thread(till.rows, TABLES)
            wanted = sorted(
                [row["payment_key"], row["number"], row["items"], row["status"] == "CANCELED"] for row in rows
            )
            if await tablet.page.evaluate(SHOWN) == wanted:
                return
