"""A POS that writes constantly to the daemon's database with long transactions: nothing is lost."""

import asyncio
import contextlib
import json
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.live.second_writer import Report
from tests.store.samples import Pos, one, rows
from tests.test_daemon import WITHIN_S, Till, ended, hold_up, lines_of, process, told, until
from tests.test_daemon_databases import url

from orderbridge_sandbox import World
from orderbridge_sandbox.scenery import KADIKOY
from orderbridge_sandbox.state import Order

__all__ = ["url"]

ROOT = Path(__file__).parents[2]
HELD = "Another program holds the database"


@contextlib.asynccontextmanager
async def second_writer(url: str, *holds: float) -> AsyncIterator[asyncio.subprocess.Process]:
    """The POS at work; killed when the test fails first."""
    command = [sys.executable, "-m", "tests.live.second_writer", url, "--hold", *map(str, holds)]
    pipe = asyncio.subprocess.PIPE
    pos = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe)
    try:
        assert pos.stdout
        async with asyncio.timeout(WITHIN_S):
            assert await pos.stdout.readline() == b"ready\n"
        yield pos
    finally:
        if pos.returncode is None:
            pos.kill()
        await pos.wait()


async def report(pos: asyncio.subprocess.Process) -> Report:
    """What the POS says at its end. No statement of it may have failed."""
    async with asyncio.timeout(WITHIN_S):
        said, failed = await pos.communicate(b"")  # closes its input
    assert (pos.returncode, failed.decode()) == (0, "")
    return Report(**json.loads(said))


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
        async with second_writer(url, 1.0, 2.0) as second:
            for _ in range(45):
                placed.append(place(world))
                await asyncio.sleep(0.1)  # orders come in while the POS holds a transaction open, and between
            await until(lambda: all(order.status_id == 5 for order in placed))
            did = await report(second)
        with Pos.at(url) as pos:
            await until(lambda: not rows(pos, "SELECT 1 FROM delivery_actions WHERE state IN ('pending', 'sending')"))
        assert await ended(daemon, signal.SIGTERM) == 0
    assert (did.held, did.orders) == (2, len(placed))
    with Pos.at(url) as pos:
        assert one(pos, "SELECT count(*) AS n FROM pos_receipts") == {"n": did.receipts}
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


async def test_a_lock_that_outlasts_the_busy_timeout_is_told_once_and_passes(
    configuration: Path, till: Till, world: World
):
    be_impatient(configuration)
    known = place(world)
    async with process(configuration) as daemon:
        await until(lambda: known.acknowledged)
        with held(till):
            late = place(world)
            polls = len(world.calls("get_current"))
            await until(lambda: told(configuration, "database.failed"))
            await asyncio.sleep(3)  # many more tries, of the poll and of the outbox
            assert len(world.calls("get_current")) <= polls + 2
            assert not late.acknowledged
        await until(lambda: late.acknowledged and told(configuration, "database.recovered"))
        alarms = [line for line in lines_of(configuration) if line["level"] in {"warning", "error"}]
        row = till.accept(known)
        await until(lambda: till.state(row) == "done")
        assert await ended(daemon, signal.SIGTERM) == 0
    said = [line for line in alarms if HELD in line.get("remedy", "")]
    assert [(line["event"], line["level"]) for line in said] == [("database.failed", "error")], alarms
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
