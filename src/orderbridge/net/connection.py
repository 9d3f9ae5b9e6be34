"""One HTTP/1.1 connection, with h11 for the protocol and asyncio for TCP and TLS.

CPU time for one PUT, 32 at once: httpx's own transport (httpcore over anyio) 0.67 ms, httpx-aiohttp 0.18 ms, this one
0.15 ms. aiohttp also repeats a PUT after a closed connection, does not report bytes after an answer, and needs nine
packages.

A request counts as sent when its first byte is given to the socket; a failure before that is NotSent. A connection is
reused only after a complete answer, and if no byte and no end of the connection has followed it: the next request would
take such bytes for its own answer.
"""

import asyncio
import select
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast

import h11

from orderbridge.errors import HELD_BACK, MarketplaceError, Message, NotSent, UnknownOutcome, broken
from orderbridge.net.proxies import Proxy

HEAD_LIMIT: Final = 100 * 1024  # bytes of an answer's status line and headers
_AHEAD_LIMIT: Final = 128 * 1024  # received bytes that are not read yet; beyond it, receiving pauses
_AT_ONCE: Final = 64  # pieces of an answer that are read without a pause (one packet may hold twenty thousand)

Header = tuple[bytes, bytes]


@dataclass(slots=True, eq=False)
class Trail:
    """The progress of a request: whether it was sent, whether its answer began, and its proxy.

    `may_send` is called once the connection is established, before the first byte is sent.
    """

    sent: bool = False
    may_send: Callable[[], bool] = lambda: True
    began: bool = False
    proxy: Proxy | None = None
    address: tuple[str, int] = ("", 0)  # host and port of the connection, or of its proxy

    def ending(self, code_unsent: str, code_sent: str, detail: str | Message) -> MarketplaceError:
        return UnknownOutcome(code_sent, detail) if self.sent else NotSent(code_unsent, detail)


class Connection(asyncio.Protocol):
    """Carries requests one after another: `ask`, `read` to the end, `renew`; in any other case, `close`."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_LIMIT)
        self._is_asking = False
        self._news = asyncio.Event()  # set when there is more to read, or the connection has ended
        self._ahead = 0  # bytes
        self._pieces = 0
        self._is_over = False  # the connection has ended
        self._error: Exception | None = None  # the reason, if it broke

    # ---- called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if not self._is_asking:
            self.close()  # bytes without a request
            return
        self._http.receive_data(data)
        self._ahead += len(data)
        if self._ahead > _AHEAD_LIMIT:
            self.transport.pause_reading()
        self._news.set()

    def eof_received(self) -> None:
        self._is_over = True
        self._news.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_over = True
        self._error = exc
        self._news.set()
        if not self.gone.done():
            self.gone.set_result(None)

    # ---- one exchange

    async def ask(
        self, method: str, target: bytes, headers: list[Header], body: bytes, trail: Trail
    ) -> tuple[int, list[Header]]:
        """Send a request. Returns the status and the headers, with names in lower case. NotSent: not valid HTTP."""
        try:
            words = self._http.send(h11.Request(method=method, target=target, headers=headers))
            words += self._http.send(h11.Data(data=body)) or b"" if body else b""
            words += self._http.send(h11.EndOfMessage()) or b""
        except h11.LocalProtocolError as error:  # its text may quote a header
            raise NotSent("bad_request", type(error).__name__) from None
        if self._is_over or self.transport.is_closing():
            raise NotSent("unreachable", Message("net.closed_before"))
        if not trail.may_send():
            raise NotSent(HELD_BACK, Message("net.held_back"))
        self._is_asking = trail.sent = True
        self.transport.write(words)
        while True:
            event = await self._next_event()
            if isinstance(event, h11.Response):  # not an InformationalResponse
                return event.status_code, list(event.headers)

    async def read(self) -> bytes | None:
        """The next piece of the answer's body; None at its end."""
        event = await self._next_event()
        return bytes(event.data) if isinstance(event, h11.Data) else None

    def renew(self) -> bool:
        """Prepare for the next request. Returns False if the connection must not be reused."""
        http = self._http
        ended = http.our_state is h11.DONE and http.their_state is h11.DONE
        is_paused = self._ahead > _AHEAD_LIMIT  # bytes held back by TLS would be invisible
        if not ended or http.trailing_data[0] or self._is_over or is_paused:
            return False
        http.start_next_cycle()
        self._is_asking = False
        return True

    def is_quiet(self) -> bool:
        """Whether nothing was received since, including bytes that asyncio has not read yet."""
        if self._is_over or self.transport.is_closing():
            return False
        poll = select.poll()
        poll.register(self.transport.get_extra_info("socket"), select.POLLIN)
        return not poll.poll(0)

    def close(self) -> None:
        """Abort the connection; `gone` is done soon after."""
        self.transport.abort()

    async def _next_event(self) -> h11.Event:
        is_ended = False
        self._pieces += 1
        if self._pieces % _AT_ONCE == 0:  # lets other tasks and the timeout run
            await asyncio.sleep(0)
        while True:
            try:
                event = self._http.next_event()
            except Exception as error:  # noqa: BLE001 - also int()'s; its text may quote the answer
                if is_ended and isinstance(error, h11.RemoteProtocolError):
                    raise UnknownOutcome("connection_lost", type(error).__name__) from None
                raise broken(error) from None
            if isinstance(event, h11.Event):
                return event
            if self._error is not None:
                raise UnknownOutcome("connection_lost", describe(self._error))
            if self._is_over:
                is_ended = True
                self._http.receive_data(b"")  # h11 decides whether this ends the answer
            else:
                self._news.clear()
                if self._ahead > _AHEAD_LIMIT:
                    self.transport.resume_reading()
                self._ahead = 0
                await self._news.wait()


def describe(error: BaseException) -> str:
    """An error of the system or of TLS in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]
