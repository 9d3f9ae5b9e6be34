"""Serves HTTP with uvicorn's protocol in our own event loop, with limits that uvicorn does not have.

uvicorn's Server is not used: it handles the signals itself, and waits for clients when it stops. asyncio makes one
object of uvicorn's protocol for each connection.

Limits:
- A connection ends after `LIFE_S`, so that slow clients do not keep connections. Only an extension's streams stay open;
  the extension limits their number.
- At most `MAX_CONNECTIONS` connections are open. One more ends the oldest, so that one client cannot shut out the
  others. A connection in its TLS handshake counts, too; asyncio reports it only afterwards.
- When the server closes, all connections are cut off at once.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from orderbridge.web.listening import Pages, Watched
from orderbridge.web.routes import application

LIFE_S = 30.0
HANDSHAKE_S = 5.0
MAX_CONNECTIONS = 64
KEEP_ALIVE_S = 20  # longer than the 15 s between scrapes, so that they use one connection
HEAD_BYTES = 16 * 1024
BACKLOG = 128
UNHEARD_MS = 30_000  # a stream ends if the client acknowledges no data for this time: a tablet was switched off
HEADERS = [(b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]


def _is_news(record: logging.LogRecord) -> bool:
    """Whether to log it: only our own errors, not what clients send, nor answers that end because the server closes."""
    ended = record.exc_info is not None and isinstance(record.exc_info[1], asyncio.CancelledError)
    return record.levelno >= logging.ERROR and not ended


_quiet = logging.getLogger("orderbridge.web.http")
_quiet.addFilter(_is_news)


class Server:
    """Listens at one address."""

    def __init__(self, watched: Watched, pages: Sequence[Pages]) -> None:
        self._hosts: frozenset[str] = frozenset()
        self._host = ""
        self._pages = pages
        self._listener: asyncio.Server | None = None
        self.opened: dict[_Connection | _Handshake, None] = {}  # the oldest first
        self.streams: set[_Connection] = set()
        self.state = ServerState()
        self.state.default_headers = [*HEADERS, *(header for one in pages for header in one.headers)]
        self.config = uvicorn.Config(
            application(
                watched,
                lambda: self._hosts | {self._host},
                [route for one in pages for route in one.routes()],
                is_strict=bool(pages),
            ),
            http=H11Protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            h11_max_incomplete_event_size=HEAD_BYTES,
        )
        self.config.load()

    def use(self, hosts: Sequence[str]) -> None:
        """Permit these Hosts from now on."""
        self._hosts = frozenset(hosts)

    async def start(self, addresses: Sequence[str], port: int, *, host: str, encrypted: ssl.SSLContext | None) -> None:
        """Listen. `host`: the host as configured. Raises OSError."""
        self._host = host.lower()
        made = partial(_Connection, self) if encrypted is None else partial(_Handshake, self, encrypted)
        self._listener = await asyncio.get_running_loop().create_server(made, addresses, port, backlog=BACKLOG)

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of each socket."""
        return [] if self._listener is None else [one.getsockname()[:2] for one in self._listener.sockets]

    def close(self) -> None:
        """Stop listening, and cut off all connections."""
        if self._listener is not None:
            self._listener.close()
        for one in self._pages:
            one.close()
        for connection in [*self.opened, *self.streams]:
            connection.transport.abort()
        for task in list(self.state.tasks):
            task.cancel()

    def admit(self, one: "_Connection | _Handshake") -> None:
        """Add a connection; if there are too many, end the oldest."""
        self.opened[one] = None
        if len(self.opened) > MAX_CONNECTIONS:
            oldest = next(iter(self.opened))
            del self.opened[oldest]
            oldest.transport.abort()


class _Handshake(asyncio.Protocol):
    """A connection in its TLS handshake. Bytes that arrive with its end are passed to the `_Connection`."""

    def __init__(self, server: Server, encrypted: ssl.SSLContext) -> None:
        self._server = server
        self._encrypted = encrypted
        self._came = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._server.admit(self)
        # The loop runs its first step before it reads a byte.
        self._shaking = asyncio.create_task(self._shake())

    def data_received(self, data: bytes) -> None:
        self._came += data

    async def _shake(self) -> None:
        start_tls = asyncio.get_running_loop().start_tls
        how: dict[str, Any] = {"server_side": True, "ssl_handshake_timeout": HANDSHAKE_S}
        try:
            transport = await start_tls(self.transport, self, self._encrypted, **how)
        except OSError:  # not TLS, or too slow
            self.transport.abort()
            return
        finally:
            self._server.opened.pop(self, None)
        if transport is None or transport.is_closing():
            return
        connection = _Connection(self._server)
        transport.set_protocol(connection)
        connection.connection_made(transport)
        if self._came:
            connection.data_received(self._came)


class _Connection(H11Protocol):
    def __init__(self, server: Server) -> None:
        super().__init__(server.config, server.state, {"connection": self})
        self.logger = _quiet
        self._server = server
        self._end: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._end = self.loop.call_later(LIFE_S, transport.abort)
        self._server.admit(self)

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP, with the headers of every answer, unless an answer was already sent."""
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            headers = [*self.server_state.default_headers, (b"content-type", b"text/plain"), (b"connection", b"close")]
            answer = h11.Response(status_code=400, headers=headers, reason=b"Bad Request"), h11.Data(data=msg.encode())
            for event in (*answer, h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def keep_open(self) -> None:
        """Keep this connection open as a stream, for as long as the client reads it."""
        self._server.opened.pop(self, None)
        self._server.streams.add(self)
        if self._end is not None:
            self._end.cancel()
        self.transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNHEARD_MS)

    def cut(self) -> None:
        """Close the connection at once."""
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._server.opened.pop(self, None)
        self._server.streams.discard(self)
        if self._end is not None:
            self._end.cancel()
