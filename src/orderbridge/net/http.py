"""Sends HTTPS requests under rate limits; a failure says whether the request was sent. Only this module knows httpx.

httpx provides requests, answers and the transport interface, which `Connections` implements with our own connections. A
few are kept between requests, and the last used one is used first. A connection is kept only after a complete answer.
httpx's client is not used: its pool scans itself on every request and loses slots for good when requests are cancelled,
and its cookies, redirects and retries are not wanted.

Rate limits (`Pace`):

- No interval of one second has more requests than allowed. A tenth of them may be sent at one moment.
- Actions go first, because a customer waits, then polls, then lists. Within a class the oldest goes first.
- A request that has waited too long fails as NotSent.
- Polls are sent in small groups, so that they are noted in one transaction; actions are sent one by one.
"""

import asyncio
import ssl
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from heapq import heappop, heappush
from pathlib import Path
from typing import Any, Final, cast

import httpx

from orderbridge import __version__
from orderbridge.errors import CLOSED, HELD_BACK, MarketplaceError, Message, NotSent, UnknownOutcome, reading
from orderbridge.net import connector
from orderbridge.net.connection import Connection, Trail
from orderbridge.net.connector import by_proxy, connect, is_looking_up, tls_context
from orderbridge.net.proxies import HTTPS_PORT, proxy_for

# Servers close idle connections after 2, 5, 30 or 60 seconds. A request sent at that moment has an unknown outcome, and
# a poll loses its slot, which is worse than a handshake. So only requests in quick succession share a connection.
KEEP_ALIVE_S: Final = 1.5
USER_AGENT: Final = f"orderbridge/{__version__}"
MAX_LOGINS: Final = 8
MAX_EVEN_S: Final = 1.0  # a poll waits at most this long for an even rate
STOP_WITHIN_S: Final = 3.0
CATCH_UP_PER_S: Final = 500  # rate of overdue polls, which may each open a connection
_BODY_LIMIT: Final = 32 * 1024 * 1024  # bytes, unpacked
_GZIP: Final = 31  # zlib: a gzip header and the largest window
_PACKINGS: Final = ("br", "compress", "deflate", "zip", "zstd")  # other names, often "utf-8", pack nothing
_UNPACKED_PIECE: Final = 1024 * 1024  # bytes
PACED: Final = "paced"  # the code of a request that waited too long at a rate limit
AT_ONCE: Final = 0.1  # the share of a second's requests that may be sent at one moment
TOLERANCE: Final = 1e-6  # tolerance for rounding
_url = lru_cache(maxsize=64)(httpx.URL)  # parsing is slow, and all accounts use the same list


class Importance(IntEnum):
    """The priority of waiting requests. A login has that of an action, which may depend on it."""

    ACTION = 0  # and acknowledgements
    POLL = 1
    LIST = 2


class Allowance:
    """A token bucket: at most `per_second` in any second. Times are monotonic seconds."""

    def __init__(self, per_second: int) -> None:
        self.at_once = max(int(per_second * AT_ONCE), 1)
        self._again = per_second - (self.at_once - 1)  # refilled per second; with a full bucket this is all
        self._left = float(self.at_once)
        self._at = float("-inf")

    def take(self, now: float) -> bool:
        """Take one if allowed now."""
        self._refill(now)
        if self._left < 1 - TOLERANCE:
            return False
        self._left -= 1
        return True

    def wait(self, now: float, count: int) -> float:
        """Seconds until `count` requests (or a full bucket) may be sent at once."""
        self._refill(now)
        return max(min(count, self.at_once) - self._left, 0.0) / self._again

    def _refill(self, now: float) -> None:
        if now > self._at:
            self._left = min(self._left + (now - self._at) * self._again, self.at_once)
            self._at = now


class Pace:
    """A rate limit with a priority queue. A request passes at once if the queue is empty and the limit allows it."""

    def __init__(self, per_second: int | None) -> None:
        """None: no limit."""
        self._per_second: int | None = None
        self._allowance: Allowance | None = None
        self._line: list[tuple[Importance, int, asyncio.Future[None]]] = []  # a heap
        self._admitted = 0  # numbers the waiting requests
        self._timer: asyncio.TimerHandle | None = None
        self.change(per_second)

    def change(self, per_second: int | None) -> None:
        """Change the limit."""
        if per_second != self._per_second:  # a new allowance is full
            self._per_second, self._allowance = per_second, Allowance(per_second) if per_second else None

    async def admit(self, importance: Importance, until: float | None = None) -> None:
        """Wait until one more request may be sent. Raises NotSent at `until` (event loop's time)."""
        loop = asyncio.get_running_loop()
        if self._allowance is None or (not self._line and self._allowance.take(loop.time())):
            return
        turn: asyncio.Future[None] = loop.create_future()
        self._admitted += 1
        heappush(self._line, (importance, self._admitted, turn))
        self._arm(loop, self._allowance)
        try:
            async with asyncio.timeout_at(until):
                await turn
        except TimeoutError:
            raise NotSent(PACED, Message("net.paced")) from None

    def admit_all(self, importance: Importance) -> None:
        """Admit all waiting requests of this importance at once. Their callers check whether to send them."""
        for one, _, turn in self._line:
            if one == importance and not turn.done():
                turn.set_result(None)

    def _arm(self, loop: asyncio.AbstractEventLoop, allowance: Allowance) -> None:
        count = 1 if self._line[0][0] == Importance.ACTION else len(self._line)
        due = loop.time() + allowance.wait(loop.time(), count)
        if self._timer is not None:
            if self._timer.when() <= due:
                return
            self._timer.cancel()
        self._timer = loop.call_at(due, self._go, loop)

    def _go(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        while self._line:
            turn = self._line[0][2]
            if not turn.done():  # else it timed out
                if self._allowance is not None and not self._allowance.take(loop.time()):
                    self._arm(loop, self._allowance)
                    return
                turn.set_result(None)
            heappop(self._line)


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete answer. Its body may hold a token or customers' data, so it is never shown."""

    status: int
    body: bytes = field(repr=False)
    date: str = ""  # the Date header


class Wire:
    """Sends requests to one base address. At most `max_idle` connections stay open between requests."""

    def __init__(
        self,
        *,
        base_url: str,
        timeout_s: float,
        ca_file: Path | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        max_idle: int = 8,
        requests_per_second: int | None = None,
        logins_per_second: int | None = None,
    ) -> None:
        """`requests_per_second`: the limit of `pace`; None: no limit."""
        if not base_url.lower().startswith("https://"):
            raise ValueError("base_url must begin with https://")
        self._base_url = base_url.rstrip("/")
        self.timeout_s = timeout_s
        self._headers = {"Accept": "application/json", "Accept-Encoding": "gzip", "User-Agent": USER_AGENT}
        self._transport = transport or Connections(tls_context(ca_file), max_idle=max_idle)
        self.pace, self._login_pace, self._poll_pace = Pace(requests_per_second), Pace(logins_per_second), Pace(None)
        self._most = requests_per_second or 0
        self._catch_up = Pace(min(self._most, CATCH_UP_PER_S))  # of overdue polls
        self._logins = asyncio.Semaphore(MAX_LOGINS)  # many accounts may begin at the same moment
        self.on_date: Callable[[str], None] = lambda _: None  # called with each Date header
        self.may_send: Callable[[], bool] = lambda: True  # False: another replica may have the accounts
        self._polls_go = False
        self._under_way: dict[Trail, asyncio.Timeout] = {}
        self._closed = False

    def set_poll_rate(self, per_second: int | None) -> None:
        """Limit polls to `per_second`, as far as none waits longer than MAX_EVEN_S; None: no limit of their own.

        Overdue polls are sent at CATCH_UP_PER_S, or somewhat faster than `per_second` if that is more.
        """
        self._poll_pace.change(per_second)
        if self._most:
            self._catch_up.change(min(self._most, max(CATCH_UP_PER_S, (per_second or 0) * 5 // 4)))

    async def wait_for_poll(self) -> None:
        """Wait until one more poll may be sent."""
        with suppress(NotSent):
            await self._poll_pace.admit(Importance.POLL, asyncio.get_running_loop().time() + MAX_EVEN_S)
        for pace in (self._catch_up, self.pace):
            if not self._polls_go:
                await pace.admit(Importance.POLL)

    def prepare_stop(self) -> None:
        """Prepare for a stop: admit all waiting polls, whose callers then return.

        A request that is not sent after STOP_WITHIN_S, because DNS or the server does not answer, is cancelled.
        """
        self._polls_go = True
        asyncio.get_running_loop().call_later(STOP_WITHIN_S, self._cut_unsent)
        for pace in (self._catch_up, self.pace):
            pace.admit_all(Importance.POLL)

    def _cut_unsent(self) -> None:
        for trail, limit in self._under_way.items():
            if not trail.sent:
                limit.reschedule(asyncio.get_running_loop().time())

    @asynccontextmanager
    async def login(self) -> AsyncIterator[None]:
        """Wait until one more login may be sent; at most MAX_LOGINS are under way."""
        async with self._logins:
            await self._login_pace.admit(Importance.ACTION)
            await self.pace.admit(Importance.ACTION)
            yield

    async def request(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str],
        json: Any = None,
        params: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Answer:
        """Send a request and return the answer, whatever its status. `timeout_s` covers DNS to the last byte.

        Raises NotSent if the request certainly was not sent, UnknownOutcome if it may have been.
        """
        total_s = self.timeout_s if timeout_s is None else timeout_s
        if total_s <= 0:
            raise NotSent("connect_timeout", Message("net.no_time"))
        if self._closed:
            raise NotSent(CLOSED, Message("net.stopping"))
        if not self.may_send():
            raise NotSent(HELD_BACK, Message("net.held_back"))
        trail = Trail(sent=True, may_send=self.may_send)  # changed by our own connections
        url, headers, extensions = self._base_url + path, {**self._headers, **headers}, {"trail": trail}
        try:
            request = httpx.Request(method, _url(url), headers=headers, json=json, params=params, extensions=extensions)
        except (httpx.InvalidURL, ValueError) as error:  # its text may quote a header
            raise NotSent("bad_request", type(error).__name__) from None
        try:
            async with asyncio.timeout(total_s) as self._under_way[trail]:
                return await self._exchange(request, trail)
        except TimeoutError:
            ending = _timed_out(trail, total_s)
        except MarketplaceError as error:
            ending = error
        except (OSError, ValueError) as error:  # only its class: the text may quote a header
            ending = trail.ending("unreachable", "connection_lost", type(error).__name__)
            ending.reason = ending.reason if trail.sent else connector.of_system(error) or ending.reason
        finally:
            del self._under_way[trail]
        if trail.proxy and isinstance(ending, NotSent):
            ending = by_proxy(ending, trail.proxy)
        ending.began = trail.began
        raise ending  # outside the except block: a logged cause may quote headers

    async def close(self) -> None:
        """Close idle connections. A request under way ends normally and closes its own."""
        self._closed = True
        await self._transport.aclose()

    async def _exchange(self, request: httpx.Request, trail: Trail) -> Answer:
        response = await self._transport.handle_async_request(request)
        trail.began = True
        try:
            with reading(response.status_code):
                body = await _read_body(response)
                date = response.headers.get("date", "")
        finally:
            await response.aclose()
        self.on_date(date)
        return Answer(response.status_code, body, date)


async def _read_body(response: httpx.Response) -> bytes:
    """Read and unpack the body in pieces; httpx would unpack a whole chunk, however large it becomes."""
    status, packed = response.status_code, response.headers.get("content-encoding", "").strip().lower()
    is_gzip = packed in ("gzip", "x-gzip")
    if not is_gzip and any(one in packed for one in _PACKINGS):
        raise UnknownOutcome("broken_answer", Message("net.packed"), http_status=status)
    unpacker = zlib.decompressobj(wbits=_GZIP) if is_gzip else None
    body = bytearray()
    async for chunk in cast("httpx.AsyncByteStream", response.stream):
        rest = chunk
        while rest:
            if unpacker is None:
                piece, rest = rest, b""
            else:
                if unpacker.eof:  # another member (RFC 1952)
                    unpacker = zlib.decompressobj(wbits=_GZIP)
                piece = unpacker.decompress(rest, _UNPACKED_PIECE)
                rest = unpacker.unconsumed_tail or unpacker.unused_data
            body += piece
            if len(piece) == _UNPACKED_PIECE:  # a packet may unpack to a thousand times its size
                await asyncio.sleep(0)
            if len(body) > _BODY_LIMIT:
                raise UnknownOutcome("body_too_large", Message("net.too_large"), http_status=status)
    if unpacker is not None and body and not unpacker.eof:
        raise UnknownOutcome("broken_answer", Message("net.cut_off"), http_status=status)
    return bytes(body)


def _timed_out(trail: Trail, total_s: float) -> MarketplaceError:
    after = Message("net.after", seconds=f"{total_s:.1f}")
    if not trail.sent and is_looking_up(*trail.address):
        detail = Message("net.of_host", host=trail.address[0], detail=after)
        return NotSent("dns_failed", detail, reason="dns_silent")
    return trail.ending("connect_timeout", "timeout", after)


class Connections(httpx.AsyncBaseTransport):
    """A transport with its own connections, of which at most `max_idle` are kept for later requests."""

    def __init__(self, tls: ssl.SSLContext, *, max_idle: int) -> None:
        self._tls = tls
        self._max_idle = max_idle
        self._idle: dict[Connection, asyncio.TimerHandle] = {}  # with their closing timers; the last used at the end
        self._closing: set[asyncio.Future[None]] = set()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        trail: Trail = request.extensions["trail"]
        trail.sent = False
        if (connection := self._take()) is None:
            host, port = request.url.raw_host.decode("ascii"), request.url.port or HTTPS_PORT
            trail.proxy = proxy = proxy_for(host, port)
            trail.address = (host, port) if proxy is None else (proxy.host, proxy.port)
            connection = await connect(host, port, tls=self._tls, proxy=proxy)
        try:
            status, headers = await connection.ask(
                request.method, request.url.raw_path, request.headers.raw, request.content, trail
            )
        except BaseException:
            self._discard(connection)
            raise
        return httpx.Response(status, headers=headers, stream=_Body(connection, self._give_back))

    async def aclose(self) -> None:
        """Close idle connections; a request under way closes its own."""
        self._max_idle = 0
        for connection in list(self._idle):
            self._discard(connection)
        if self._closing:
            await asyncio.wait(self._closing)

    def _take(self) -> Connection | None:
        """The last used connection that is neither too old nor has received anything meanwhile."""
        now = asyncio.get_running_loop().time()
        while self._idle:
            connection, timer = self._idle.popitem()
            timer.cancel()
            if now < timer.when() and connection.is_quiet():
                return connection
            self._discard(connection)
        return None

    def _give_back(self, connection: Connection) -> None:
        if len(self._idle) < self._max_idle and connection.renew():
            close_later = asyncio.get_running_loop().call_later
            self._idle[connection] = close_later(KEEP_ALIVE_S, self._discard, connection)
        else:
            self._discard(connection)

    def _discard(self, connection: Connection) -> None:
        if (timer := self._idle.pop(connection, None)) is not None:
            timer.cancel()
        connection.close()
        self._closing.add(connection.gone)
        connection.gone.add_done_callback(self._closing.discard)


@dataclass(slots=True)
class _Body(httpx.AsyncByteStream):
    """The body of an answer. Closing it gives the connection back."""

    connection: Connection
    give_back: Callable[[Connection], None]

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if (piece := await self.connection.read()) is None:
            raise StopAsyncIteration
        return piece

    async def aclose(self) -> None:
        self.give_back(self.connection)
