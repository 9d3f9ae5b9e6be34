"""The end of the daemon: no unimportant job delays it, and no failure is hidden."""

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import insert, select
from structlog.testing import capture_logs
from tests.test_daemon import certificates, configuration, hold_up, sandbox, till, world

from orderbridge import config
from orderbridge.daemon import Daemon
from orderbridge.marketplace import client
from orderbridge.marketplace.menu import read_menu
from orderbridge.model import Menu
from orderbridge.store import own_tables, schema
from orderbridge_sandbox import Fault, World
from orderbridge_sandbox.scenery import KADIKOY

__all__ = ["certificates", "configuration", "sandbox", "till", "world"]  # fixtures
WITHIN_S = 60.0  # half the time of a hanging request


@pytest.fixture
def settings(configuration: Path) -> config.Settings:
    hold_up(configuration)
    return config.load(configuration, environ={})


@contextlib.asynccontextmanager
async def at_work(daemon: Daemon, world: World, operation: str = "get_current") -> AsyncIterator[None]:
    """Run the daemon; the block begins at its first request of this kind."""
    running = asyncio.create_task(daemon.run())
    assert await asyncio.to_thread(world.wait_for, lambda: world.calls(operation), timeout=WITHIN_S)
    yield
    daemon.stop()
    async with asyncio.timeout(WITHIN_S):
        await running


async def test_a_stop_does_not_wait_for_lists_that_hang_and_is_no_crash(settings: config.Settings, world: World):
    world.faults.add(Fault.hang("get_restaurants"))
    with capture_logs() as lines:
        async with at_work(Daemon(settings), world, "get_restaurants"):
            pass
    events = [line["event"] for line in lines]
    assert events[-1] == "daemon.stopped" and "job.crashed" not in events


async def test_a_large_menu_delays_neither_a_poll_nor_a_large_list(settings, world: World, monkeypatch):
    begun, goes_on = threading.Event(), threading.Event()

    def slow(http_status: int, body: bytes) -> Menu:
        begun.set()
        assert goes_on.wait(2 * WITHIN_S)
        return read_menu(http_status, body)

    monkeypatch.setattr(client, "read_menu", slow)
    foods = [{"food_id": number, "name": "Çorba", "about": "x" * 100} for number in range(1, 1000)]
    menu = json.dumps({"status": True, "data": foods}).encode()
    world.faults.add(Fault(operation="get_foods", status=200, body=menu))
    async with at_work(Daemon(settings), world, "get_foods"):
        assert await asyncio.to_thread(begun.wait, WITHIN_S)
        placed = [world.place_order(restaurant_id=KADIKOY, document={"note": "x" * client.SMALL_BODY}) for _ in "12"]
        there = lambda: all(order.acknowledged for order in placed)  # noqa: E731
        assert await asyncio.to_thread(world.wait_for, there, timeout=WITHIN_S)
        goes_on.set()


async def test_a_single_daemon_fences_every_earlier_replica(settings: config.Settings, world: World):
    daemon = Daemon(settings)
    daemon.database.write_now(schema.upgrade)
    row = insert(own_tables.replicas).values(replica="a 1 0", number=1, started_utc=datetime(2026, 3, 1, tzinfo=UTC))
    daemon.database.write_now(lambda tx: tx.execute(row))
    daemon.database.write_now(lambda tx: tx.execute(insert(own_tables.buckets).values(bucket=0, replica="a 1 0")))
    async with at_work(daemon, world):
        assert daemon.database.read_now(lambda tx: tx.execute(select(own_tables.replicas)).all()) == []
        assert daemon.database.read_now(lambda tx: tx.scalars(select(own_tables.buckets.c.replica)).all()) == [None]


async def test_a_background_task_that_fails_ends_the_daemon_with_its_error(settings, monkeypatch):
    async def broken(*_: object) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr("orderbridge.store.database.Database.watch", broken)
    async with asyncio.timeout(WITHIN_S):
        with pytest.raises(RuntimeError, match="a fault of ours"):
            await Daemon(settings).run()
