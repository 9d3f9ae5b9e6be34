"""Two daemons on one database: one works, the other waits for its place."""

import signal
import threading
from pathlib import Path

import pytest
from tests.test_daemon import Till, ended, log_of, process, until

from orderbridge.store.database import Database
from orderbridge.store.leader import LeaderLock
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


async def test_a_sighup_to_the_one_that_works_does_not_hand_the_work_over(
    configuration: Path, till: Till, world: World
):
    database, over, won = Database(f"sqlite:///{till.path}", inline=True), threading.Event(), []
    rival = LeaderLock(database)

    def ask() -> None:
        while not (won or over.is_set()):
            if rival.take():
                won.append(True)

    async with process(configuration) as daemon:
        await until(lambda: world.calls("get_current"))
        asking = threading.Thread(target=ask)
        asking.start()
        try:
            daemon.send_signal(signal.SIGHUP)
            await until(lambda: won or log_of(configuration).count("daemon.started") == 2)
        finally:
            over.set()
            asking.join()
        assert not won
        assert await ended(daemon, signal.SIGTERM) == 0
    assert rival.take(), "asking would have shown it"
    rival.close()
    database.close()


async def test_one_that_waits_ends_at_once(configuration: Path, world: World):
    async with process(configuration) as first:
        await until(lambda: world.calls("get_current"))
        async with process(configuration) as second:
            await until(lambda: "daemon.waiting" in log_of(configuration))
            assert await ended(second, signal.SIGTERM) == 0
        assert await ended(first, signal.SIGTERM) == 0
    assert log_of(configuration).count("daemon.started") == 1
