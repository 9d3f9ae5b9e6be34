"""The process is killed at random moments."""

import asyncio
import signal
from pathlib import Path
from random import Random

from tests.test_daemon import Till, ended, log_of, process, until

from orderbridge_sandbox import World
from orderbridge_sandbox.scenery import KADIKOY
from orderbridge_sandbox.state import Order


async def test_kills_at_random_moments_lose_nothing(configuration: Path, till: Till, world: World):
    random = Random(1)
    placed: list[Order] = []
    for number in range(4):
        placed += [world.place_order(restaurant_id=KADIKOY, document={"courier_type": "restaurant"}) for _ in range(15)]
        async with process(configuration) as daemon:
            await until(till.has_tables)
            if len(placed) > 15:
                for order in placed[-30:-15]:
                    if till.status(order) is not None:
                        till.accept(order)
            if number == 1:  # the others may be killed before anything has come in
                await until(lambda placed=placed: any(order.acknowledged for order in placed[15:]))
            await asyncio.sleep(0.5 + 2 * random.random())  # a random moment
            await ended(daemon, signal.SIGKILL)
        stored = {row["payment_key"] for row in till.rows("SELECT payment_key FROM delivery_orders")}
        assert {order.key for order in placed if order.acknowledged} <= stored
    (configuration.parent / "log").unlink()
    async with process(configuration) as daemon:
        await until(lambda: "daemon.started" in log_of(configuration))
        await until(lambda: all(order.acknowledged for order in placed))
        await until(lambda: not till.rows("SELECT 1 FROM delivery_actions WHERE state IN ('pending', 'sending')"))
        assert await ended(daemon, signal.SIGTERM) == 0
    assert len(till.rows("SELECT 1 FROM delivery_orders")) == len(placed)
    rows = till.rows("SELECT * FROM delivery_actions")
    assert rows
    for row in rows:
        order = world.order(row["payment_key"])
        assert (row["state"], order.status_id) == ("done", 2), row
    assert [call.http_status for call in world.calls("get_current") if call.http_status == 429] == []
    accepted = [call.argument for call in world.calls("accept") if call.effect]
    assert len(accepted) == len(set(accepted))
