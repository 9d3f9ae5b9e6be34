"""A process that serves HTTP, and requests to it over a real socket, byte by byte."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from orderbridge import config
from orderbridge.observe.metrics import Metrics
from orderbridge.rules.problems import Code, Readiness, Severity
from orderbridge.web.listening import Listening, Pages

WITHIN_S = 120.0


@dataclass
class Process:
    """Replaces the daemon's state."""

    hangs: str | None = None
    stands: Readiness = field(default_factory=lambda: Readiness(is_working=True, database_answers=True, is_polled=True))
    metrics: Metrics = field(default_factory=lambda: Metrics(codes=Code, severities=Severity, build=("1.2.3", "3.11")))
    measurings: int = 0

    def hung(self) -> str | None:
        return self.hangs

    def readiness(self) -> Readiness:
        return self.stands

    def pages(self) -> list[Pages]:
        return []

    def measured(self) -> Metrics:
        self.measurings += 1
        return self.metrics


def at(listen: str, *hosts: str) -> config.Web:
    """The settings of a page at port 0, any free one, which `load` would refuse."""
    return config.Web.model_construct(listen=listen, hosts=hosts, board="off")


@contextlib.asynccontextmanager
async def running(listening: Listening) -> AsyncIterator[None]:
    task = asyncio.create_task(listening.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@contextlib.asynccontextmanager
async def shown(process, listen="127.0.0.1:0", *hosts, **settings) -> AsyncIterator[tuple[Listening, tuple[str, int]]]:
    listening = Listening(process, at(listen, *hosts).model_copy(update=settings))
    async with running(listening):
        await until(lambda: listening.addresses)
        yield listening, listening.addresses[0]


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not condition():  # noqa: ASYNC110 - another task
            await asyncio.sleep(0.005)


async def sent(address: tuple[str, int], raw: bytes, *, only: bool = False, by: str | None = None) -> bytes:
    """Send bytes and read the whole answer. `only`: half-close afterwards. `by`: the client's address."""
    reader, writer = await asyncio.open_connection(*address, local_addr=(by, 0) if by else None)
    try:
        writer.write(raw)
        if only:
            writer.write_eof()
        return await rest_of(reader)
    finally:
        writer.close()


async def rest_of(reader: asyncio.StreamReader) -> bytes:
    """Read until the other side closes or resets the connection."""
    came = b""
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(WITHIN_S):
            while more := await reader.read(100_000):
                came += more
    return came


async def asked(address: tuple[str, int], path: str, method: str = "GET", host: str = "127.0.0.1", body: bytes = b""):
    head = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    lines, _, content = (await sent(address, head.encode() + body)).partition(b"\r\n\r\n")
    return int(lines.split()[1]), lines.decode().lower(), content.decode()
