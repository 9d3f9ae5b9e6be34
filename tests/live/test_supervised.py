"""The daemon as a process under a simulated systemd socket."""

import asyncio
import contextlib
import re
import signal
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.test_daemon import ended, log_of, logged, process, until

from orderbridge_sandbox.scenery import KADIKOY


class Supervisor:
    """Receives the daemon's messages, with those of the watchdog and the status kept apart."""

    def __init__(self, place: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket.bind(str(place))
        self.heard: list[str] = []
        self.alive = 0
        self.status = ""

    def listen(self) -> list[str]:
        with contextlib.suppress(BlockingIOError):
            while message := self._socket.recv(4096).decode():
                message, _, status = message.partition("STATUS=")
                self.status = status or self.status
                if message == "WATCHDOG=1":
                    self.alive += 1
                elif message:
                    self.heard.append(message.removesuffix("\n"))
        return self.heard

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
async def supervisor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Supervisor]:
    supervisor = Supervisor(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    yield supervisor
    supervisor.close()


async def test_a_reload_is_reported_to_systemd_as_a_reload(configuration, supervisor, world):
    async with process(configuration) as daemon:
        await until(lambda: supervisor.listen() == ["READY=1"])
        for number in (1, 2):
            before = time.monotonic_ns() // 1000
            daemon.send_signal(signal.SIGHUP)
            await until(lambda number=number: supervisor.listen().count("READY=1") == 1 + number)
            message = re.fullmatch(r"RELOADING=1\nMONOTONIC_USEC=(\d+)", supervisor.heard[-2])
            assert message
            assert before <= int(message[1]) <= time.monotonic_ns() // 1000
        order = world.place_order(restaurant_id=KADIKOY)
        await until(lambda: supervisor.listen() and order.acknowledged)
        assert await ended(daemon, signal.SIGTERM) == 0
    messages = [message.partition("=")[0] for message in supervisor.listen()[:6]]
    assert messages == ["READY", "RELOADING", "READY", "RELOADING", "READY", "STOPPING"]
    assert set(supervisor.heard[5:]) == {"STOPPING=1"}


async def test_changed_secrets_end_a_problem_that_no_reload_began_again(configuration, supervisor, till, world):
    """And the status is the worst problem until then."""
    secret = configuration.with_name("rest")
    right = secret.read_text()
    secret.write_text("another")
    order = world.place_order(restaurant_id=KADIKOY)
    refused = "red: kadikoy: The marketplace does not accept"
    async with process(configuration) as daemon:
        await until(lambda: supervisor.listen() and supervisor.status.startswith(refused))
        daemon.send_signal(signal.SIGHUP)
        await until(lambda: len(logged(configuration, "daemon.started")) == 2)
        await asyncio.to_thread(secret.write_text, right)
        daemon.send_signal(signal.SIGHUP)
        await until(lambda: supervisor.listen() and supervisor.status == "green: 1 account(s) polled")
        await until(lambda: order.acknowledged)
        assert await ended(daemon, signal.SIGTERM) == 0
    lines = [*logged(configuration, "problem.began"), *logged(configuration, "problem.ended")]
    assert [line["event"] for line in lines if line["code"] == "login_refused"] == ["problem.began", "problem.ended"]
    assert till.status(order) == 1 and right not in log_of(configuration)
