"""A full or read-only file system: a small one in memory, if this machine permits a mount."""

import signal

import pytest
from tests.conftest import Disk
from tests.test_daemon import Till, ended, log_of, logged, process, until

from orderbridge_sandbox.scenery import KADIKOY


@pytest.fixture
def till(disk: Disk) -> Till:
    return Till(disk.place / "pos.db")


async def test_a_full_disk_is_reported_once_and_loses_nothing(configuration, disk, till, world):
    first = world.place_order(restaurant_id=KADIKOY)
    async with process(configuration) as daemon:
        await until(lambda: first.acknowledged)
        disk.fill()
        late = [world.place_order(restaurant_id=KADIKOY, document={"note": "x" * 20_000}) for _ in range(20)]
        await until(lambda: logged(configuration, "database.failed"))
        acknowledged = {order.key for order in late if order.acknowledged}
        assert acknowledged <= {row["payment_key"] for row in till.rows("SELECT payment_key FROM delivery_orders")}
        assert len(acknowledged) < len(late)
        disk.empty()
        await until(lambda: all(order.acknowledged for order in late))
        row = till.accept(late[-1])
        await until(lambda: till.state(row) == "done")
        await until(lambda: logged(configuration, "database.recovered"))
        assert await ended(daemon, signal.SIGTERM) == 0
    assert len(till.rows("SELECT 1 FROM delivery_orders")) == 21
    remedies = {line["remedy"] for line in logged(configuration, "database.failed")}
    assert remedies == {"The disk is full or failing: make room."}


async def test_a_read_only_file_system_is_refused_at_the_start(configuration, disk, till, world):
    """As after a fault of the disk and a reboot."""
    first = world.place_order(restaurant_id=KADIKOY)
    async with process(configuration) as daemon:
        await until(lambda: first.acknowledged)
        assert await ended(daemon, signal.SIGTERM) == 0
    late = world.place_order(restaurant_id=KADIKOY)
    asked = len(world.calls())
    disk.mount("remount,ro")
    async with process(configuration) as daemon:
        await until(lambda: daemon.returncode is not None)
    message = log_of(configuration).splitlines()[-1]
    assert daemon.returncode == 1 and "let this user write" in message.lower()
    assert "Traceback" not in log_of(configuration) and len(world.calls()) == asked and late.acknowledged is False
    disk.mount("remount,rw")
    async with process(configuration) as daemon:
        await until(lambda: late.acknowledged)
        assert await ended(daemon, signal.SIGTERM) == 0
    assert {till.status(first), till.status(late)} == {1}
