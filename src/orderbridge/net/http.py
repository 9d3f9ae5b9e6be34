"""HTTPS requests that end in an answer or say whether they left, and how fast they leave. Only this module knows httpx.

httpx provides requests, answers and the interface of a transport, which `Connections` implements with connections of
our own. A few are kept between requests; the one used last is used first. A connection is kept only after a whole
answer and closed after anything else, cancellation included. httpx's client is not used: its pool scans itself on every
request and loses slots for good when requests are cancelled, and its cookies, redirects and retries are not wanted.

Pace:
- In no second leave more than are allowed, wherever the second begins. A tenth of them may leave at one moment.
- What a customer waits for goes first, then the polls, then what can wait. Within a class: first come, first served.
- A request that may not wait any longer has not left, and says so.
- Polls go in small groups, so that they are noted in one transaction; what a customer waits for goes one by one.
"""

import asyncio
import ssl
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from heapq import heappop, heappush
from pathlib import Path
from typing import Any, Final, cast

import httpx

from orderbridge import __version__
from orderbridge.errors import (
    CLOSED,
    HELD_BACK,
    MarketplaceError,
    Message,
    NotSent,
    UnknownOutcome,
    reading,
)
from orderbridge.net import connector
from orderbridge.net.connection import Connection, Trail
from orderbridge.net.connector import connect, is_looking_up, is_of_the_way, tls_context
from orderbridge.net.proxies import HTTPS_PORT, proxy_for

# Servers close idle connections after 2, 5, 30 or 60 seconds. A request that crosses with that has an unknown outcome,
# and a poll loses its slot: that costs more than a handshake. So only requests in quick succession share a connection.
KEEP_ALIVE_S: Final = 1.5
USER_AGENT: Final = f"orderbridge/{__version__}"
MOST_LOGINS: Final = 8
MOST_EVEN_S: Final = 1.0  # a poll waits no longer than that for evenness alone
HURRY_S: Final = 3.0
CATCH_UP_PER_S: Final = 500  # overdue polls: each may open a connection, and actions need time beside them
_BODY_LIMIT: Final = 32 * 1024 * 1024  # bytes, unpacked
_GZIP: Final = 31  # zlib's word for a gzip header and the largest window
_UNPACKED_PIECE: Final = 1024 * 1024  # bytes
PACED: Final = "paced"  # the code of a request that has waited for its turn in vain
AT_ONCE: Final = 0.1  # of a second's requests
PLAY: Final = 1e-6  # of a request, by which sums of floats may be off
_url = lru_cache(maxsize=64)(httpx.URL)  # to take one apart takes long, and every account asks for the same list


class Importance(IntEnum):
    """The order of requests that wait. A login is as important as an action, which cannot leave without it."""

    ACTION = 0  # and acknowledgements
    POLL = 1
    LIST = 2


class Allowance:
    """At most so many in any second. Times are seconds of a monotonic clock."""

    def __init__(self, per_second: int) -> None:
        self.at_once = max(int(per_second * AT_ONCE), 1)
        self._again = per_second - (self.at_once - 1)  # come back in a second: these and a full store are all of them
        self._left = float(self.at_once)
        self._at = float("-inf")

    def take(self, now: float) -> bool:
        """Whether one more may leave now; then it is counted."""
        self._refill(now)
        if self._left < 1 - PLAY:
            return False
        self._left -= 1
        return True

    def wait(self, now: float, count: int) -> float:
        """Seconds until so many may leave at once, or as many as ever do."""
        self._refill(now)
        return max(min(count, self.at_once) - self._left, 0.0) / self._again

    def _refill(self, now: float) -> None:
        if now > self._at:
            self._left = min(self._left + (now - self._at) * self._again, self.at_once)
            self._at = now


class Pace:
    """The queue before the wire. A request leaves at once when the queue is empty and the second allows it."""

    def __init__(self, per_second: int | None) -> None:
        """None: a request leaves when it comes."""
        self._per_second: int | None = None
        self._allowance: Allowance | None = None
        self._line: list[tuple[Importance, int, asyncio.Future[None]]] = []  # a heap
        self._came = 0
        self._timer: asyncio.TimerHandle | None = None
        self.change(per_second)

    def change(self, per_second: int | None) -> None:
        """From now on it is so many."""
        if per_second != self._per_second:  # a new allowance is full
            self._per_second, self._allowance = per_second, Allowance(per_second) if per_second else None

    async def admit(self, importance: Importance, until: float | None = None) -> None:
        """Returns when one more request may leave. NotSent at `until`, the event loop's time: it waited in vain."""
        loop = asyncio.get_running_loop()
        if self._allowance is None or (not self._line and self._allowance.take(loop.time())):
            return
        turn: asyncio.Future[None] = loop.create_future()
        self._came += 1
        heappush(self._line, (importance, self._came, turn))
        self._arm(loop, self._allowance)
        try:
            async with asyncio.timeout_at(until):
                await turn
        except TimeoutError:
            raise NotSent(PACED, Message("net.paced")) from None

    def let_go(self, importance: Importance) -> None:
        """Admit at once what waits with this importance; the callers check whether they are still wanted."""
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
            if not turn.done():  # else it has given up
                if self._allowance is not None and not self._allowance.take(loop.time()):
                    self._arm(loop, self._allowance)
                    return
                turn.set_result(None)
            heappop(self._line)


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer. The body may hold a token or customers' data, so it is never shown."""

    status: int
    body: bytes = field(repr=False)
    date: str = ""  # the header: what time it is there


class Wire:
    """Sends requests to one base address. Not more than `max_idle` connections are kept open between requests."""

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
        """`requests_per_second`: of those that wait at `pace`; None: no limit."""
        if not base_url.lower().startswith("https://"):
            raise ValueError("base_url must begin with https://")
        self._base_url = base_url.rstrip("/")
        self.timeout_s = timeout_s
        self._headers = {"Accept": "application/json", "Accept-Encoding": "gzip", "User-Agent": USER_AGENT}
        self._transport = transport or Connections(tls_context(ca_file), max_idle=max_idle)
        self.pace, self._login_pace, self._poll_pace = Pace(requests_per_second), Pace(logins_per_second), Pace(None)
        self._most = requests_per_second or 0
        self._catch_up = Pace(min(self._most, CATCH_UP_PER_S))  # of polls that are overdue
        self._logins = asyncio.Semaphore(MOST_LOGINS)  # many accounts may begin at the same moment
        self.on_date: Callable[[str], None] = lambda _: None  # what time each answer says it is there
        self.may_leave: Callable[[], bool] = lambda: True  # of several replicas one must not act for another
        self._polls_go = False
        self._under_way: dict[Trail, asyncio.Timeout] = {}
        self._closed = False

    def poll_evenly(self, per_second: int | None) -> None:
        """From now on no second holds more polls, unless one would wait for that too long; None: it has no bound of its own.

        What is overdue leaves as fast as `CATCH_UP_PER_S` says, or a half faster than what is due anyway.
        """
        self._poll_pace.change(per_second)
        if self._most:
            self._catch_up.change(min(self._most, max(CATCH_UP_PER_S, (per_second or 0) * 5 // 4)))

    async def poll_turn(self) -> None:
        """Returns when one more poll may leave."""
        with suppress(NotSent):
            await self._poll_pace.admit(Importance.POLL, asyncio.get_running_loop().time() + MOST_EVEN_S)
        for pace in (self._catch_up, self.pace):
            if not self._polls_go:
                await pace.admit(Importance.POLL)

    def hurry(self) -> None:
        """The program stops: polls no longer wait for their turn; their callers check whether they are still wanted.

        A request that has not left after `HURRY_S`, because a name server or the other side is silent, is cut off.
        """
        self._polls_go = True
        asyncio.get_running_loop().call_later(HURRY_S, self._cut_unsent)
        for pace in (self._catch_up, self.pace):
            pace.let_go(Importance.POLL)

    def _cut_unsent(self) -> None:
        for trail, limit in self._under_way.items():
            if not trail.left:
                limit.reschedule(asyncio.get_running_loop().time())

    @asynccontextmanager
    async def login(self) -> AsyncIterator[None]:
        """Waits until one more login may leave; not more than `MOST_LOGINS` are under way."""
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
        """The answer, whatever its status. `timeout_s` is for all of it, from the name look-up to the last byte.

        Raises NotSent when the request certainly never left, UnknownOutcome when it may have.
        """
        total_s = self.timeout_s if timeout_s is None else timeout_s
        if total_s <= 0:
            raise NotSent("connect_timeout", Message("net.no_time"))
        if self._closed:
            raise NotSent(CLOSED, Message("net.stopping"))
        if not self.may_leave():
            raise NotSent(HELD_BACK, Message("net.held_back"))
        trail = Trail(left=True, may_leave=self.may_leave)  # unless our own connections say otherwise
        url, headers, extensions = self._base_url + path, {**self._headers, **headers}, {"trail": trail}
        try:
            request = httpx.Request(method, _url(url), headers=headers, json=json, params=params, extensions=extensions)
        except (httpx.InvalidURL, ValueError) as error:  # without its text: that may quote a header
            raise NotSent("bad_request", type(error).__name__) from None
        try:
            async with asyncio.timeout(total_s) as self._under_way[trail]:
                return await self._exchange(request, trail)
        except TimeoutError:
            ending = _timed_out(trail, total_s)
        except MarketplaceError as error:
            ending = error
        except (OSError, ValueError) as error:  # only the class is kept: texts can quote an address or a header
            ending = trail.ending("unreachable", "connection_lost", type(error).__name__)
            ending.reason = ending.reason if trail.left else connector.of_system(error) or ending.reason
        finally:
            del self._under_way[trail]
        if trail.proxy and isinstance(ending, NotSent):
            reason = "proxy_unreachable" if is_of_the_way(ending) else ending.reason
            detail = Message("net.by_proxy", detail=ending.detail, proxy=trail.proxy)
            ending = NotSent(ending.code, detail, reason=reason)
        ending.began = trail.began
        raise ending  # out here, without its cause: the texts of others quote headers, and tracebacks are logged

    async def close(self) -> None:
        """Closes what is idle. A request still under way ends as it would and closes its own connection."""
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
    """The body, unpacked here and piece by piece: httpx would unpack a chunk whole, however large it becomes."""
    status, packed = response.status_code, response.headers.get("content-encoding", "").strip().lower()
    if packed not in ("gzip", "x-gzip", "identity", ""):
        raise UnknownOutcome("broken_answer", Message("net.packed"), http_status=status)
    unpacker = zlib.decompressobj(wbits=_GZIP) if packed.endswith("gzip") else None
    body = bytearray()
    async for chunk in cast("httpx.AsyncByteStream", response.stream):
        for piece in (chunk,) if unpacker is None else _unpacked(chunk, unpacker):
            body += piece
            if len(piece) == _UNPACKED_PIECE:  # a packet may become a thousand times as large
                await asyncio.sleep(0)
            if len(body) > _BODY_LIMIT:
                raise UnknownOutcome("body_too_large", Message("net.too_large"), http_status=status)
        if unpacker is not None and unpacker.unused_data:  # it would grow without a bound
            raise UnknownOutcome("broken_answer", Message("net.packed"), http_status=status)
    if unpacker is not None and body and not unpacker.eof:
        raise UnknownOutcome("broken_answer", Message("net.cut_off"), http_status=status)
    return bytes(body)


def _unpacked(chunk: bytes, unpacker: "zlib._Decompress") -> Iterator[bytes]:
    while chunk:
        yield unpacker.decompress(chunk, _UNPACKED_PIECE)
        chunk = unpacker.unconsumed_tail


def _timed_out(trail: Trail, total_s: float) -> MarketplaceError:
    after = Message("net.after", seconds=f"{total_s:.1f}")
    if not trail.left and is_looking_up(*trail.address):
        detail = Message("net.of_host", host=trail.address[0], detail=after)
        return NotSent("dns_failed", detail, reason="dns_silent")
    return trail.ending("connect_timeout", "timeout", after)


class Connections(httpx.AsyncBaseTransport):
    """Carries requests over connections of its own. Not more than `max_idle` of them wait for the next one."""

    def __init__(self, tls: ssl.SSLContext, *, max_idle: int) -> None:
        self._tls = tls
        self._max_idle = max_idle
        self._idle: dict[Connection, asyncio.TimerHandle] = {}  # what closes each; the one used last at the end
        self._closing: set[asyncio.Future[None]] = set()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        trail: Trail = request.extensions["trail"]
        trail.left = False
        if (connection := self._take()) is None:
            host, port = request.url.raw_host.decode("ascii"), request.url.port or HTTPS_PORT
            proxy = proxy_for(host, port)
            trail.proxy = None if proxy is None else proxy.name
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
        """End what is idle; what is under way closes its own connection."""
        self._max_idle = 0
        for connection in list(self._idle):
            self._discard(connection)
        if self._closing:
            await asyncio.wait(self._closing)

    def _take(self) -> Connection | None:
        """The one used last, unless it is too old or something came over it meanwhile."""
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
    """The rest of an answer; closing it gives the connection back."""

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
