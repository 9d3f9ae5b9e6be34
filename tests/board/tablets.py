"""A process with a board over a database, and tablets that call it over real sockets."""

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from tests.web.asking import WITHIN_S, Process, running, sent, until

from orderbridge import config
from orderbridge.clock import SystemClock
from orderbridge.daemon import RunningDaemon
from orderbridge.rules.problems import Problem
from orderbridge.store.database import Database
from orderbridge.web.listening import Listening, Pages
from orderbridge_board import Board, devices
from orderbridge_board.devices import ACT
from orderbridge_board.watch import AudibleTablets

Address = tuple[str, int]
CLOCK = SystemClock()


def web(**changes: Any) -> config.Web:
    """The settings of a page at port 0, any free one, which `load` would refuse."""
    return config.Web.model_construct(**{"listen": "127.0.0.1:0", "board": "beside", **changes})


class ShopsBoard(Board):
    def __init__(self, shop: "Shop") -> None:
        self._shop = shop
        self.audible_tablets = AudibleTablets(0.0)

    @property
    def daemon(self) -> RunningDaemon | None:
        return self._shop.daemon()


@dataclass
class Shop(Process):
    database: Database | None = None
    pos: sqlite3.Connection | None = None  # the till's, to the same file
    web: config.Web = field(default_factory=web)
    problems: list[Problem] = field(default_factory=list)
    works: bool = True
    clock: SystemClock = CLOCK
    woken: int = 0

    def __post_init__(self) -> None:
        self.board = ShopsBoard(self)

    def pages(self) -> list[Pages]:
        return [self.board.pages()] if self.web.board != "off" else []

    def daemon(self) -> RunningDaemon | None:
        if not self.works or self.database is None:
            return None
        market = config.Marketplace(base_url="https://x.test")
        settings = config.Settings.model_construct(language="tr", marketplace=market, web=self.web, accounts=())
        return RunningDaemon(
            settings=settings, database=self.database, clock=self.clock, metrics=self.metrics, accounts={},
            timetable=None, own_problems=None, problems=lambda: self.problems, wake=self.wake,
        )  # fmt: skip

    def wake(self) -> None:
        self.woken += 1

    def pair(self, role: str = ACT, name: str = "Kasa") -> str:
        assert self.database is not None
        now = CLOCK.now()
        code = self.database.write_now(lambda tx: devices.new_code(tx, role, now))
        cookie = self.database.write_now(lambda tx: devices.pair(tx, code, name, now))
        assert cookie is not None
        return cookie


@contextlib.asynccontextmanager
async def opened(shop: Shop, **changes: Any) -> AsyncIterator[Address]:
    shop.web = web(**changes)
    listening = Listening(shop, shop.web)
    async with running(listening):
        await until(lambda: listening.addresses)
        yield listening.addresses[0]


@dataclass
class Answer:
    status: int
    head: str
    text: str

    @property
    def data(self) -> Any:
        return json.loads(self.text)


def answer_of(raw: bytes) -> Answer:
    head, _, content = raw.partition(b"\r\n\r\n")
    return Answer(int(head.split()[1]), head.decode("latin-1").lower(), content.decode(errors="replace"))


@dataclass
class Tablet:
    """A browser with a page of ours; `changes` are headers, None leaves one out."""

    address: Address
    cookie: str = ""
    own: str | None = None  # its address

    def raw(self, line: str, body: bytes, changes: dict[str, str | None]) -> bytes:
        authority = f"127.0.0.1:{self.address[1]}"
        headers: dict[str, str | None] = {"Host": authority, "Connection": "close"}
        if line.startswith("POST"):
            headers |= {"Origin": f"http://{authority}", "Content-Type": "application/json"}
            headers["Content-Length"] = str(len(body))
        if self.cookie:
            headers["Cookie"] = f"orderbridge_board={self.cookie}"
        named = {name.replace("_", "-").title(): value for name, value in changes.items()}
        lines = [f"{name}: {value}" for name, value in (headers | named).items() if value is not None]
        return "\r\n".join([f"{line} HTTP/1.1", *lines, "", ""]).encode("latin-1") + body

    async def get(self, path: str, method: str = "GET", **changes: str | None) -> Answer:
        return answer_of(await sent(self.address, self.raw(f"{method} {path}", b"", changes)))

    async def post(self, name: str, values: Any, **changes: str | None) -> Answer:
        body = values if isinstance(values, bytes) else json.dumps(values).encode()
        return answer_of(await sent(self.address, self.raw(f"POST /board/{name}", body, changes), by=self.own))

    @contextlib.asynccontextmanager
    async def stream(self) -> AsyncIterator["Ear"]:
        reader, writer = await asyncio.open_connection(*self.address, limit=2**20)
        writer.write(self.raw("GET /board/stream", b"", {}))
        try:
            yield Ear(reader)
        finally:
            writer.close()


class Ear:
    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    async def news(self) -> str | None:
        """The next event's name; None: the stream has ended."""
        async with asyncio.timeout(WITHIN_S):
            with contextlib.suppress(ConnectionError):
                while line := await self._reader.readline():
                    if line.startswith(b"event: "):
                        return line[7:].decode().strip()
                    if line == b"0\r\n":
                        return None
        return None
