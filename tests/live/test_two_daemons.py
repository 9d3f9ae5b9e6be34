"""Two daemons on one database: one works, the other waits."""

import signal
from pathlib import Path

import pytest
from tests.test_daemon import Till, ended, log_of, process, until

from orderbridge_sandbox import World
from orderbridge_sandbox.scenery import KADIKOY


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGKILL])
async def test_the_second_waits_until_the_first_has_ended(
    by: signal.Signals, configuration: Path, till: Till, world: World
):
    order = world.place_order(restaurant_id=KADIKOY)
    async with process(configuration) as first, process(configuration) as second:
        await until(lambda: "daemon.waiting" in log_of(configuration))
        await until(lambda: order.acknowledged)
        assert log_of(configuration).count("daemon.started") == 1
        assert len(world.calls("login")) == 1
        await ended(first, by)  # whichever of the two it is: one of them goes on
        later = world.place_order(restaurant_id=KADIKOY)
        await until(lambda: later.acknowledged)
        row = till.accept(later)
        await until(lambda: till.state(row) == "done")
        assert await ended(second, signal.SIGTERM) == 0
    assert 429 not in {call.http_status for call in world.calls()}
