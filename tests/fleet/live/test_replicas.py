"""Replicas as processes on real servers: one is killed, paused, cut off or stopped, and others take its buckets."""

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, make_url, text
from tests import databases
from tests.databases import Server
from tests.live.test_server_away import stop
from tests.test_daemon import until

from orderbridge.store import schema
from orderbridge.store.database import Database

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[3]
ALL = 64


class Replica:
    """A replica's process, and the lines that it has printed."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[dict[str, Any]] = []
        self._listening = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        assert self.process.stdout
        async for line in self.process.stdout:
            self.lines.append(json.loads(line))

    @property
    def held(self) -> int | None:
        return next((one["held"] for one in reversed(self.lines) if "held" in one), None)

    def has_said(self, word: str) -> bool:
        return any(word in one for one in self.lines)

    def tell(self, line: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(f"{line}\n".encode())

    async def end(self) -> None:
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
        await self.process.wait()
        await self._listening


@contextlib.asynccontextmanager
async def replica(url: str) -> AsyncIterator[Replica]:
    command = [sys.executable, "-m", "tests.fleet.live.replica", url]
    pipe = asyncio.subprocess.PIPE
    one = Replica(await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdin=pipe, stdout=pipe))
    try:
        yield one
    finally:
        await one.end()


@contextlib.asynccontextmanager
async def two(url: str) -> AsyncIterator[tuple[Replica, Replica]]:
    async with replica(url) as first:
        await until(lambda: first.held == ALL)
        async with replica(url) as second:
            await until(lambda: (first.held, second.held) == (ALL // 2, ALL // 2))
            yield first, second


@pytest.fixture
def url(postgresql_database: Database) -> str:
    """A database of its own, with our tables."""
    databases.empty(postgresql_database)
    return postgresql_database.engine.url.render_as_string(hide_password=False)


@pytest.fixture(scope="module")
def own_server() -> Iterator[Server]:
    with databases.own_postgresql_server() as server:
        yield server


@pytest.fixture
def own(own_server: Server) -> Iterator[str]:
    with databases.own_database(own_server.url, "shared") as url:
        database = Database(url, inline=True)
        database.write_now(schema.upgrade)
        database.close()
        yield url


def keys(url: str) -> set[str]:
    engine = create_engine(url)
    with engine.connect() as connection:
        found = set(connection.execute(text("SELECT payment_key FROM delivery_orders")).scalars())
    engine.dispose()
    return found


async def test_one_that_is_stopped_in_a_transaction_is_replaced_and_writes_nothing_when_it_goes_on(url: str):
    """The server ends its sessions; also the one in which it was stopped while it wrote, whatever it is called there."""
    url = make_url(url).update_query_dict({"application_name": "till"}).render_as_string(hide_password=False)
    async with two(url) as (first, second):
        first.tell("hold mine")
        await until(lambda: first.has_said("open"))
        first.process.send_signal(signal.SIGSTOP)
        await until(lambda: second.held == ALL)
        second.tell("write theirs")
        await until(lambda: second.has_said("written"))
        first.tell("go on")
        first.tell("write late")
        first.process.send_signal(signal.SIGCONT)
        assert await first.process.wait() == 3
        assert not first.has_said("written")
    assert keys(url) == {"theirs"}


async def test_a_server_that_is_restarted_finds_everybody_in_their_place_again(own: str, own_server: Server):
    async with two(own) as (first, second):
        stop(own_server)
        await until(lambda: first.has_said("lost") and second.has_said("lost"))
        own_server.start()
        for one in (first, second):
            one.tell("write x" if one is first else "write y")
        await until(lambda: first.has_said("written") or first.has_said("failed"))
        first.lines.clear()
        second.lines.clear()
        async with replica(own) as third:  # when it has its share, both have read the new server's tables
            await until(lambda: third.held == 21)
            await until(lambda: sorted((first.held or 0, second.held or 0)) == [21, 22])
        assert (first.process.returncode, second.process.returncode) == (None, None)
        assert not first.has_said("over")


async def test_a_silent_server_hangs_no_replica(own: str, own_server: Server):
    async with two(own) as (first, second):
        with own_server.frozen():
            await until(lambda: first.has_said("lost") and second.has_said("lost"))
            first.lines.clear()
            await until(lambda: first.has_said("lost"))  # also to make a session
        first.lines.clear()
        second.lines.clear()
        async with replica(own) as third:
            await until(lambda: third.held == 21)
        assert (first.process.returncode, second.process.returncode) == (None, None)
