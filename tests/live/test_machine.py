"""Faults of the machine: no descriptors, a dead network, a kill."""

import asyncio
import contextlib
import resource
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from tests.test_daemon import Till, ended, log_of, process, until

from orderbridge_sandbox import Fault, Sandbox, World
from orderbridge_sandbox.scenery import KADIKOY
from orderbridge_sandbox.state import Order


@pytest.fixture
def sandbox(world: World, certificates: Path) -> Iterator[Sandbox]:
    """On a port that stays ours while the sandbox is away: another test would get it, or a client."""
    with socket.socket() as kept:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(("127.0.0.1", 0))
        with Sandbox(world, directory=certificates, port=kept.getsockname()[1]) as sandbox:
            yield sandbox


def limit(pid: int, kind: int, soft: int) -> tuple[int, int]:
    """Set one limit of a running process; returns what it was."""
    before = resource.prlimit(pid, kind)
    resource.prlimit(pid, kind, (soft, before[1]))
    return before


async def test_without_descriptors_it_waits_and_goes_on(configuration: Path, till: Till, world: World):
    first = world.place_order(restaurant_id=KADIKOY)
    async with process(configuration) as daemon:
        await until(lambda: first.acknowledged and till.one("SELECT state FROM delivery_accounts")["state"] == "ok")
        before = limit(daemon.pid, resource.RLIMIT_NOFILE, 3)
        world.faults.add(Fault.drop("get_current", times=9))  # each open connection would serve poll after poll
        await until(lambda: till.one("SELECT state FROM delivery_accounts")["state"] == "unreachable")
        world.faults.clear()
        late = world.place_order(restaurant_id=KADIKOY)
        resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, before)
        await until(lambda: late.acknowledged)
        assert await ended(daemon, signal.SIGTERM) == 0
    assert till.status(late) == 1
    assert "poll.recovered" in log_of(configuration)


@contextlib.contextmanager
def served_again(world: World, sandbox: Sandbox, port: int) -> Iterator[None]:
    with Sandbox(world, directory=sandbox.ca_file.parent, port=port):
        yield


async def test_a_line_that_is_cut_and_comes_back(configuration: Path, till: Till, world: World, sandbox: Sandbox):
    port = sandbox.port
    first = world.place_order(restaurant_id=KADIKOY)
    async with process(configuration) as daemon:
        await until(lambda: first.acknowledged)
        sandbox.stop()
        row = till.accept(first)
        await until(lambda: till.one("SELECT state FROM delivery_accounts")["state"] == "unreachable")
        await until(lambda: till.state(row) == "pending")  # between two tries to connect
        with served_again(world, sandbox, port):
            await until(lambda: till.state(row) == "done")
            await until(lambda: till.one("SELECT state FROM delivery_accounts")["state"] == "ok")
            assert await ended(daemon, signal.SIGTERM) == 0
    assert "poll.recovered" in log_of(configuration)


async def test_a_line_that_swallows_everything(configuration: Path, till: Till, world: World, sandbox: Sandbox):
    port = sandbox.port
    async with process(configuration) as daemon:
        await until(lambda: world.calls("get_current"))
        sandbox.stop()
        with socket.create_server(("127.0.0.1", port)):  # it takes the connection and never answers
            await until(lambda: till.one("SELECT state FROM delivery_accounts")["state"] == "unreachable")
        with served_again(world, sandbox, port):
            late = world.place_order(restaurant_id=KADIKOY)
            await until(lambda: late.acknowledged)
            assert await ended(daemon, signal.SIGTERM) == 0
    assert till.status(late) == 1


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
            await asyncio.sleep(0.5 + 2 * random.random())  # the moment is the point
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
