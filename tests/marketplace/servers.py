"""A server that answers with exactly the bytes of a test, over real TLS on loopback."""

import asyncio
import contextlib
import ssl
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from orderbridge_sandbox import tls
from orderbridge_sandbox.options import Line as Certified

PATIENCE_S = 300.0  # a client's timeout, which `skip` skips
Talk = Callable[["Line"], Awaitable[None]]


def skip(seconds: float) -> None:
    """Advance the loop's clock, so that a timeout passes when the test wants, on any machine."""
    loop = asyncio.get_running_loop()
    time = loop.time
    loop.time = lambda: time() + seconds  # type: ignore[method-assign]


@dataclass
class Line:
    """One connection, seen from the server."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def request(self) -> bytes:
        """The head of the next request (its body is swallowed); b"" when the client has closed."""
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError as error:
            return error.partial
        for line in head.split(b"\r\n"):
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                head += await self.reader.readexactly(int(value))
        return head

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def until_closed(self) -> None:
        while await self.reader.read(65536):
            pass

    async def never(self) -> None:
        """Read a request, and let the client's timeout pass."""
        await self.request()
        skip(PATIENCE_S)
        await self.until_closed()

    def reset(self) -> None:
        self.writer.transport.abort()


def http_answer(body: bytes, *, status: str = "200 OK", head: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{head}\r\n".encode() + body


@dataclass
class Server:
    port: int
    connections: int = 0

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"


@contextlib.asynccontextmanager
async def serving(talk: Talk, tls: ssl.SSLContext | None) -> AsyncIterator[Server]:
    """Each connection is one call of `talk`; it is closed when that returns."""
    tasks: set[asyncio.Task[None]] = set()
    writers: list[asyncio.StreamWriter] = []
    state = Server(0)

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        state.connections += 1
        tasks.add(asyncio.current_task())  # type: ignore[arg-type]
        writers.append(writer)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await talk(Line(reader, writer))
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls)
    state.port = server.sockets[0].getsockname()[1]
    try:
        yield state
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        for writer in writers:
            writer.transport.abort()  # a TLS connection closed politely waits for the other side
        await asyncio.gather(*tasks, *[writer.wait_closed() for writer in writers], return_exceptions=True)


@dataclass(frozen=True)
class Certificates:
    """The CA file that clients trust, and contexts of servers: good, old (TLS 1.1) and with bad certificates."""

    ca_file: Path
    contexts: dict[str, ssl.SSLContext]


def make_certificates(folder: Path) -> Certificates:
    bad = (Certified.WRONG_NAME, Certified.EXPIRED, Certified.NOT_YET_VALID, Certified.UNTRUSTED)
    contexts = {line.value: _context(tls.make_certificates(folder, line=line).server_file) for line in bad}
    stranger = folder / tls.STRANGER
    contexts["self_signed"] = _context(stranger / tls.CA_FILE, stranger / tls.CA_KEY_FILE)
    made = tls.make_certificates(folder)
    contexts["good"], old = _context(made.server_file), _context(made.server_file)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")
    return Certificates(made.ca_file, contexts | {"old": old})


def _context(certificate: Path, key: Path | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context
