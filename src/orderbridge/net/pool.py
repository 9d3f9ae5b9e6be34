"""Our own connections under httpx's requests and answers. A few are kept between requests, the one used last first.

One goes back to them only after a whole answer; after anything else, cancellation included, it is closed.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

import httpx

from orderbridge.errors import ConfigError
from orderbridge.net.connection import Connection, Trail, describe
from orderbridge.net.connector import connect
from orderbridge.net.proxies import HTTPS_PORT, proxy_for

# Servers close idle connections after 2, 5, 30 or 60 seconds. A request that crosses with that has an unknown outcome,
# and a poll a lost slot: dearer than a handshake. So only what comes thick and fast shares connections.
KEEP_ALIVE_S: Final = 1.5


class Connections(httpx.AsyncBaseTransport):
    """Carries requests over connections of its own. Not more than `max_idle` of them wait for the next one."""

    def __init__(self, tls: ssl.SSLContext, *, max_idle: int) -> None:
        self._tls = tls
        self._max_idle = max_idle
        self._idle: list[tuple[float, Connection]] = []  # since when, by the event loop's time; the oldest first
        self._sweep: asyncio.TimerHandle | None = None
        self._closing: set[asyncio.Future[None]] = set()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        trail: Trail = request.extensions["trail"]
        trail.left = False
        connection = self._take() or await self._connect(request.url, trail)
        try:
            status, headers = await connection.ask(
                request.method, request.url.raw_path, request.headers.raw, request.content, trail
            )
        except BaseException:
            self._discard(connection)
            raise
        return httpx.Response(status, headers=headers, stream=_Body(connection, self._give_back))

    async def aclose(self) -> None:
        """End what is idle; what is under way closes its own connection."""
        self._max_idle = 0
        if self._sweep is not None:
            self._sweep.cancel()
        self._close_idle(until=None)
        if self._closing:
            await asyncio.wait(self._closing)

    async def _connect(self, url: httpx.URL, trail: Trail) -> Connection:
        host, port = url.raw_host.decode("ascii"), url.port or HTTPS_PORT
        proxy = proxy_for(host, port)
        trail.proxy = None if proxy is None else proxy.name
        trail.address = (host, port) if proxy is None else (proxy.host, proxy.port)
        return await connect(host, port, tls=self._tls, proxy=proxy)

    def _take(self) -> Connection | None:
        """The one used last, unless it is too old or something came over it meanwhile."""
        now = asyncio.get_running_loop().time()
        while self._idle:
            since, connection = self._idle.pop()
            if now - since < KEEP_ALIVE_S and connection.is_quiet():
                return connection
            self._discard(connection)
        return None

    def _give_back(self, connection: Connection) -> None:
        if len(self._idle) >= self._max_idle or not connection.renew():
            self._discard(connection)
            return
        loop = asyncio.get_running_loop()
        self._idle.append((loop.time(), connection))
        if self._sweep is None:
            self._sweep = loop.call_later(KEEP_ALIVE_S, self._close_old)

    def _close_old(self) -> None:
        loop = asyncio.get_running_loop()
        self._sweep = None
        self._close_idle(until=loop.time() - KEEP_ALIVE_S)
        if self._idle:
            self._sweep = loop.call_at(self._idle[0][0] + KEEP_ALIVE_S, self._close_old)

    def _close_idle(self, *, until: float | None) -> None:
        while self._idle and (until is None or self._idle[0][0] <= until):
            self._discard(self._idle.pop(0)[1])

    def _discard(self, connection: Connection) -> None:
        connection.close()
        self._closing.add(connection.gone)
        connection.gone.add_done_callback(self._closing.discard)


class _Body(httpx.AsyncByteStream):
    """The rest of an answer; closing it gives the connection back."""

    def __init__(self, connection: Connection, give_back: Callable[[Connection], None]) -> None:
        self._connection = connection
        self._give_back = give_back

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if (piece := await self._connection.read()) is None:
            raise StopAsyncIteration
        return piece

    async def aclose(self) -> None:
        self._give_back(self._connection)


def tls_context(ca_file: Path | None) -> ssl.SSLContext:
    """The system's authorities, and one more when asked for.

    Not ssl.create_default_context: that writes each session's keys into the file that SSLKEYLOGFILE names.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # verifies, the host's name too
    context.load_default_certs()
    context.set_alpn_protocols(["http/1.1"])
    if ca_file is not None:
        try:
            context.load_verify_locations(cafile=ca_file)
        except (OSError, ValueError) as error:
            raise ConfigError("config.no_pem", file=ca_file, reason=describe(error)) from error
    return context
