"""Another client uses our secrets, and the service permits one login at a time: no order is lost; it is reported."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator

import pytest
from structlog.testing import capture_logs
from tests.jobs.shop import Shop
from tests.jobs.test_daemon_problems import names

from orderbridge_sandbox import Fault

PROBES = ("get_restaurants", "get_cancel_reasons")  # what needs nothing but a good token
HOUR_S = 3600.0
LATE_S = 90.0  # without a good poll that is an alarm


@contextlib.asynccontextmanager
async def logs_in(shop: Shop, every_s: float) -> AsyncIterator[None]:
    """Another program, which ends our token each time."""

    async def log_in() -> None:
        while True:
            await asyncio.sleep(every_s)
            shop.world.end_tokens("kadikoy")

    task = asyncio.create_task(log_in())
    yield
    task.cancel()


async def an_hour(shop: Shop) -> list[float]:
    """Its polls, and an accept for each order that came. Returns when they were good."""
    good = [shop.clock.monotonic()]
    until = good[0] + HOUR_S
    while shop.clock.monotonic() < until:
        if len(shop.calls("get_current")) % 10 == 0:
            shop.place()
        if (await shop.poll()).ok:
            good.append(shop.clock.monotonic())
        for row in shop.rows("SELECT payment_key FROM delivery_new_orders"):
            shop.till.execute(
                "UPDATE delivery_orders SET pos_revision = revision WHERE payment_key = ?", [*row.values()]
            )
            shop.till.execute(
                "INSERT INTO delivery_actions (action, payment_key, preparing_time) VALUES ('accept', ?, 25)",
                [*row.values()],
            )
        await shop.drain()
    return good


@pytest.mark.parametrize("every_s", [7.0, 30.0, 31.0, 300.0])
async def test_who_logs_in_all_the_time_keeps_no_order_out(shop: Shop, every_s: float):
    checkup = shop.checkup()
    with capture_logs() as lines:
        async with logs_in(shop, every_s):
            good = await an_hour(shop)
    assert max(after - before for before, after in itertools.pairwise(good)) < LATE_S
    assert "login.refused" not in {line["event"] for line in lines}, "the secrets are right"
    assert names(await checkup.check()) == [("credentials_shared", "kadikoy")]
    assert len(good) > HOUR_S / LATE_S
    assert {row["state"] for row in shop.rows("SELECT state FROM delivery_actions")} == {"done"}
    assert (
        shop.count("delivery_actions") == shop.count("delivery_orders") >= len(shop.world.orders) - 1
    )  # one just came


async def test_an_account_whose_new_tokens_do_not_work_either_is_refused(shop: Shop):
    """Only polls: each token has waited for its slot, and no other client is the cause."""
    shop.world.faults.add(*(Fault.unauthorized(name, times=None) for name in ("get_current", *PROBES)))
    with capture_logs() as lines:
        for _ in range(2):
            await shop.poll()
    assert [line["event"] for line in lines].count("login.refused") == 1
    assert shop.account.session.is_refused()
    assert shop.account.session.early_ends() == 0
