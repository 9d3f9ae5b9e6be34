"""Replicas as processes on a real server that says nothing for a while."""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import databases
from tests.databases import Server
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
