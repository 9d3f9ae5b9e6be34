"""One of many accounts fails in every possible way: the others are polled in time (promise 7)."""

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from tests.jobs.conftest import OpenShop
from tests.jobs.shop import COOLDOWN_S, FakeClock, Shop
from tests.jobs.test_watchdog import _OnTheSpot, seldom  # noqa: F401 - a fixture

from orderbridge.daemon import Daemon
from orderbridge_sandbox import Fault, World
from orderbridge_sandbox.scenery import APP_SECRET, DEFAULT_SCENERY, KADIKOY
from orderbridge_sandbox.state import Account

COUNT = 30
ILL = "n7"
NAMES = tuple(f"n{number}" for number in range(COUNT))
LATE_S = 1.0
ROWS = 500  # of the outbox

pytestmark = pytest.mark.slow


@pytest.fixture
async def world(clock: FakeClock) -> World:
    """Many accounts, the ill one with a restaurant of its own."""
    accounts = tuple(
        Account(
            name=name, app_secret_key=APP_SECRET, rest_secret_key=f"sandbox-{name}-secret", restaurant_ids=(KADIKOY,)
        )
        for name in NAMES
    )
    return World(replace(DEFAULT_SCENERY, accounts=accounts), clock=clock.true, report=lambda line: None)


def hangs(shop: Shop) -> None:
    shop.world.faults.add(Fault.hang("*", account=ILL, times=None))


def unauthorized(shop: Shop) -> None:
    shop.world.faults.add(Fault.unauthorized("*", account=ILL, times=None))


def limited(shop: Shop) -> None:
    shop.world.faults.add(Fault.too_many("*", account=ILL, times=None))


def large(shop: Shop) -> None:
    body = b'{"status": true, "data": [' + b" " * (32 * 1024 * 1024) + b"]}"
    shop.world.faults.add(Fault(operation="get_current", account=ILL, status=200, body=body, times=None))


def many_rows(shop: Shop) -> None:
    shop.till.executemany(
        "INSERT INTO delivery_actions (action, food_id, account) VALUES ('activate_food', ?, ?)",
        [(number, ILL) for number in range(1, ROWS + 1)],
    )
    shop.till.commit()


@pytest.mark.parametrize("falls_ill", [hangs, unauthorized, limited, large, many_rows])
async def test_one_ill_account_makes_no_other_late(
    open_shop: OpenShop,
    clock: FakeClock,
    seldom: None,  # noqa: F811 - the fixture
    falls_ill: Callable[[Shop], Any],
):
    asyncio.get_running_loop().set_default_executor(_OnTheSpot())
    shop = await open_shop(*NAMES)
    daemon = Daemon(shop.settings, clock=clock, random=Random(0), wire=shop._wire, database=shop.database)
    running = asyncio.create_task(daemon.run())
    await asyncio.sleep(2 * COOLDOWN_S + 5)
    falls_ill(shop)
    await asyncio.sleep(3 * COOLDOWN_S)
    daemon.stop()
    await running
    polls: dict[str, list[float]] = defaultdict(list)
    for call in shop.calls("get_current"):
        polls[call.account].append((call.at - shop.world.calls()[0].at).total_seconds())
    late = []
    for name in NAMES:
        times = polls[name]
        gaps = [b - a for a, b in itertools.pairwise(times)]
        assert min(gaps) >= COOLDOWN_S
        if name != ILL:
            assert len(times) >= 4
            late += [gap - COOLDOWN_S for gap in gaps]
    assert max(late) <= LATE_S
