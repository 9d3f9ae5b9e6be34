"""Connection-level behaviour: the listener, limits of connections, and simulated network faults.

Faults of a connection are decided when it is opened (`options.line`). The server handles certificates and a closed
port: it compares `options.line` with its state a few times each second.
"""

import asyncio
import logging
import socket
import struct
from contextlib import suppress
from typing import Any, Final

import h11
from starlette.types import Scope
from uvicorn.protocols.http.h11_impl import H11Protocol

from .options import Line
from .world import World

_NO_LINGER: Final = struct.pack("ii", 1, 0)
_RUBBISH: Final = b"HTTP/1.0 400 Bad Request\r\n\r\nspeak plainly\n"
TOO_LONG: Final = 431
BAD_CERTIFICATES: Final = (Line.EXPIRED, Line.NOT_YET_VALID, Line.WRONG_NAME, Line.UNTRUSTED)

# Answers are broken on purpose here, so uvicorn's warnings about them are not logged.
_quiet = logging.getLogger("orderbridge_sandbox.http")
_quiet.setLevel(logging.CRITICAL + 1)


class Listener(socket.socket):
    """A listening socket that can reset accepted connections, or leave them unanswered."""

    def __init__(self, listening: socket.socket, world: World) -> None:
        """Take over a listening socket."""
        super().__init__(listening.family, listening.type, listening.proto, fileno=listening.detach())
        self._world = world
        self._unanswered: list[socket.socket] = []

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection. If the line has a fault, apply it and raise ConnectionAbortedError."""
        connection, address = super().accept()
        with suppress(OSError):  # the client may have disconnected
            # An answer is sent in two pieces. Without this the second waits 40 ms for the acknowledgement of the first.
            # asyncio sets it only on sockets that were created with the protocol's number.
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        line = self._world.options.line
        if line not in (Line.SILENT, Line.RESET, Line.GARBAGE):
            return connection, address
        if line is Line.SILENT:
            self._unanswered.append(connection)
        else:
            with suppress(OSError), connection:
                if line is Line.GARBAGE:
                    connection.send(_RUBBISH)
                else:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        raise ConnectionAbortedError

    def close(self) -> None:
        """Close this socket and the unanswered connections."""
        while self._unanswered:
            self._unanswered.pop().close()
        super().close()


class Bounded(H11Protocol):
    """uvicorn's protocol with the limits of the options."""

    def __init__(self, world: World, **given: Any) -> None:
        super().__init__(**given)
        self._world = world
        self.logger = _quiet
        self._limit = world.options.header_limit_bytes
        self._of_head = 0  # bytes received of an incomplete head
        self.conn = h11.Connection(h11.SERVER, self._limit)
        self._too_slow: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        self._of_head += len(data)
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._of_head = 0
        if self.conn.their_state in (h11.IDLE, h11.SEND_BODY):
            self._watch()
        else:
            self._stop_watching()

    def send_400_response(self, msg: str) -> None:
        status, reason = (TOO_LONG, b"Request Header Fields Too Large") if self._of_head > self._limit else (400, b"")
        headers = [("Content-Type", "text/plain; charset=utf-8"), ("Connection", "close")]
        for event in (
            h11.Response(status_code=status, headers=headers, reason=reason),
            h11.Data(data=(reason or msg.encode("ascii"))),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def on_response_complete(self) -> None:
        self.timeout_keep_alive = self._world.options.keep_alive_seconds  # type: ignore[assignment]
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_watching()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Start the time limit of a request, from its first byte or from the start of the connection."""
        if self._too_slow is None:
            self._too_slow = self.loop.call_later(self._world.options.reading_seconds, self.transport.abort)

    def _stop_watching(self) -> None:
        if self._too_slow is not None:
            self._too_slow.cancel()
            self._too_slow = None


def head_length(scope: Scope) -> int:
    """Return the approximate size of a request's head in bytes."""
    return len(scope["raw_path"]) + len(scope["query_string"]) + sum(len(k) + len(v) + 4 for k, v in scope["headers"])
