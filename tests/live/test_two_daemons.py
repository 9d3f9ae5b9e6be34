"""Two daemons on one database: one works, the other waits for its place."""

import signal
from pathlib import Path

import pytest
from tests.test_daemon import Till, ended, process, until

from orderbridge.sandbox import World
from orderbridge.sandbox.scenery import KADIKOY

pytestmark = pytest.mark.timeout(180)


def log_of(configuration: Path) -> str:
    return (configuration.parent / "log").read_text()


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


async def test_one_that_waits_ends_at_once(configuration: Path, world: World):
    async with process(configuration) as first:
        await until(lambda: world.calls("get_current"))
        async with process(configuration) as second:
            await until(lambda: "daemon.waiting" in log_of(configuration))
            assert await ended(second, signal.SIGTERM) == 0
        assert await ended(first, signal.SIGTERM) == 0
    assert log_of(configuration).count("daemon.started") == 1
