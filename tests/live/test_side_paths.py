"""Everything but the database hangs: orders are still stored and acknowledged, and the daemon ends when stopped."""

import os
import re
import signal
import socket
from pathlib import Path

from tests.test_daemon import TIMEOUT_S, ended, log_of, process, until

from orderbridge.observe.liveness import name_of
from orderbridge_sandbox import World
from orderbridge_sandbox.scenery import KADIKOY


def asks_for(configuration: Path, base_url: str) -> None:
    """The service is elsewhere, and has one second to answer."""
    text = re.sub(r'base_url = ".*"', f'base_url = "{base_url}"', configuration.read_text())
    configuration.write_text(re.sub(r"cooldown_seconds = .*", "", text).replace(f"= {TIMEOUT_S}", "= 1"))


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


async def test_another_owner_of_the_daemons_name_is_reported(configuration: Path, world: World):
    with socket.socket(socket.AF_UNIX) as squatter:
        squatter.bind(f"\0{name_of(configuration)}")
        squatter.listen()
        async with process(configuration) as daemon:
            await until(lambda: "healthcheck.name_taken" in log_of(configuration))
            assert f"PID {os.getpid()}" in log_of(configuration)
            assert await ended(daemon, signal.SIGTERM) == 0


async def test_a_name_server_that_says_nothing_is_named_and_holds_up_no_end(configuration: Path, tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text(
        "import socket, threading\nsocket.getaddrinfo = lambda *_, **__: threading.Event().wait()\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    asks_for(configuration, "https://api.invalid")
    async with process(configuration) as daemon:
        await until(lambda: "dns_silent" in log_of(configuration))
        assert await ended(daemon, signal.SIGTERM) == 0
