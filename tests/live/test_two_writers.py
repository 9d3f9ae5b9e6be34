"""A POS that writes constantly to the daemon's database with long transactions: nothing is lost."""

import asyncio
import contextlib
import json
import signal
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.store.samples import Pos, one, put_action, rows
from tests.test_daemon import WITHIN_S, Till, ended, hold_up, lines_of, logged, process, until
from tests.test_daemon_databases import url

from orderbridge_sandbox import World
from orderbridge_sandbox.scenery import KADIKOY
from orderbridge_sandbox.state import Order

__all__ = ["url"]

HELD = "Another program holds the database"


class SecondWriter:
    """A POS that takes each new order over, asks for its three actions, and writes to a table of its own, all the time.

    Two of its transactions it keeps open for seconds.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._holds = {1: 1.0, 11: 2.0}  # seconds, from that order on
        self.is_over = False
        self.receipts = self.orders = 0

    def work(self) -> None:
        """Until it is over. The database may refuse none of its statements."""
        with Pos.at(self._url) as pos:
            pos.execute("CREATE TABLE pos_receipts (number INTEGER PRIMARY KEY)")
            while not self.is_over:
                new = rows(pos, "SELECT payment_key, revision FROM delivery_new_orders LIMIT 5")
                pos.execute("BEGIN IMMEDIATE")
                self.receipts += 1
                pos.execute("INSERT INTO pos_receipts (number) VALUES (?)", (self.receipts,))
                for order in new:
                    self._take_over(pos, order["payment_key"], order["revision"])
                for at in [at for at in self._holds if at <= self.orders]:
                    time.sleep(self._holds.pop(at))
                pos.execute("COMMIT")

    def _take_over(self, pos: Pos, key: str, revision: int) -> None:
        self.orders += 1
        taken = (revision, f"A-{self.orders}", key)
        pos.execute("UPDATE delivery_orders SET pos_revision = ?, pos_reference = ? WHERE payment_key = ?", taken)
        put_action(pos, "accept", payment_key=key)
        for action in ("on_the_way", "complete"):
            put_action(pos, action, payment_key=key)


def crashes(configuration: Path) -> list[dict[str, Any]]:
    return [line for line in lines_of(configuration) if line["event"].endswith(".crashed")]


def place(world: World) -> Order:
    return world.place_order(restaurant_id=KADIKOY, document={"courier_type": "restaurant"})


@pytest.fixture
def shared(configuration: Path, till: Till, url: str) -> Path:
    text = configuration.read_text()
    configuration.write_text(text.replace(json.dumps(f"sqlite:///{till.path}"), json.dumps(url)))
    return configuration


async def test_a_pos_that_writes_at_full_speed_and_the_daemon_lose_nothing(shared: Path, url: str, world: World):
    hold_up(shared)  # a machine that stands still is no unknown outcome
    placed = [place(world)]
    async with process(shared) as daemon:
        await until(lambda: placed[0].acknowledged)
        writer = SecondWriter(url)
        writing = asyncio.create_task(asyncio.to_thread(writer.work))
        try:
            for _ in range(45):
                placed.append(place(world))
                await asyncio.sleep(0.1)  # orders come in while the POS holds a transaction open, and between
            await until(lambda: writing.done() or all(order.status_id == 5 for order in placed))
        finally:
            writer.is_over = True
            await writing
        with Pos.at(url) as pos:
            await until(lambda: not rows(pos, "SELECT 1 FROM delivery_actions WHERE state IN ('pending', 'sending')"))
        assert await ended(daemon, signal.SIGTERM) == 0
    assert writer.orders == len(placed)
    with Pos.at(url) as pos:
        assert one(pos, "SELECT count(*) AS n FROM pos_receipts") == {"n": writer.receipts}
        ends = rows(pos, "SELECT state, known_by, error_code FROM delivery_actions")
        assert ends == [{"state": "done", "known_by": "answer", "error_code": None}] * 3 * len(placed)
        nothing_is_lost(pos, placed)
    assert crashes(shared) == []
    assert 429 not in {call.http_status for call in world.calls()}


def nothing_is_lost(pos: Pos, placed: list[Order]) -> None:
    """Each order is there as the service has it, and each status that was acknowledged is in its story."""
    stored = {row["payment_key"]: row for row in rows(pos, "SELECT * FROM delivery_orders")}
    assert set(stored) == {order.key for order in placed}
    for order in placed:
        row = stored[order.key]
        heard = [status.status_id for status in order.acknowledgements]
        story = rows(
            pos,
            "SELECT status_id FROM delivery_order_events WHERE payment_key = ? AND event = 'acknowledged' ORDER BY id",
            order.key,
        )
        assert [line["status_id"] for line in story] == heard
        assert (row["status_id"], row["acknowledged_status_id"]) == (order.status_id, heard[-1])
        assert row["pos_revision"] > 0


async def test_a_lock_beyond_the_busy_timeout_is_reported_once(configuration: Path, till: Till, world: World):
    be_impatient(configuration)
    known = place(world)
    async with process(configuration) as daemon:
        await until(lambda: known.acknowledged)
        with held(till):
            late = place(world)
            polls = len(world.calls("get_current"))
            await until(lambda: logged(configuration, "database.failed"))
            await asyncio.sleep(3)  # many more tries, of the poll and of the outbox
            assert len(world.calls("get_current")) <= polls + 2
            assert not late.acknowledged
        await until(lambda: late.acknowledged and logged(configuration, "database.recovered"))
        alarms = [line for line in lines_of(configuration) if line["level"] in {"warning", "error"}]
        row = till.accept(known)
        await until(lambda: till.state(row) == "done")
        assert await ended(daemon, signal.SIGTERM) == 0
    about_locks = [line for line in alarms if HELD in line.get("remedy", "")]
    assert [(line["event"], line["level"]) for line in about_locks] == [("database.failed", "error")], alarms
    assert crashes(configuration) == []


def be_impatient(configuration: Path) -> None:
    text = configuration.read_text()
    configuration.write_text(text.replace("[database]", "[database]\nbusy_timeout_seconds = 0.3"))


@contextlib.contextmanager
def held(till: Till) -> Iterator[None]:
    """A POS that forgot to commit."""
    with contextlib.closing(sqlite3.connect(till.path, isolation_level=None, timeout=WITHIN_S)) as pos:
        pos.execute("BEGIN IMMEDIATE")
        yield
        pos.execute("ROLLBACK")
