"""Nothing reads the log: orders are still stored and acknowledged, and the daemon ends when stopped."""

import os
import signal
from pathlib import Path

from tests.test_daemon import ended, process, until

from orderbridge_sandbox import World
from orderbridge_sandbox.scenery import KADIKOY


async def test_an_unread_log_delays_no_order_and_no_end(configuration: Path, world: World):
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    while True:
        try:
            os.write(writer, b"-" * 4096)
        except BlockingIOError:
            break
    os.set_blocking(writer, True)
    try:
        async with process(configuration, writer) as daemon:
            first = world.place_order(restaurant_id=KADIKOY)
            await until(lambda: first.acknowledged)
            daemon.send_signal(signal.SIGHUP)
            second = world.place_order(restaurant_id=KADIKOY)
            await until(lambda: second.acknowledged)
            assert await ended(daemon, signal.SIGTERM) == 0
    finally:
        os.close(reader)
        os.close(writer)
