"""HTTPS requests that end in an answer or say whether they left. The only module that knows httpx.

httpx's connection pool scans itself on every request and loses slots for good when requests are cancelled. So there
is no pool: a few clients of one connection each, the one used last first. A client is given back only after a whole
answer; after anything else, cancellation included, it is closed and thrown away, and its connection with it.

httpx's timeouts bound each read. Ours bounds the whole request.
"""

import asyncio
import contextlib
import socket
import ssl
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, cast

import httpx

from orderbridge.errors import ConfigError, MarketplaceError, NotSent, UnknownOutcome

_BODY_LIMIT: Final = 32 * 1024 * 1024  # bytes, unpacked
# Servers close idle connections after 2, 5, 30 or 60 seconds. A request that crosses with that has an unknown outcome,
# and a poll a lost slot: dearer than a handshake. So only a burst shares connections.
_KEEP_ALIVE_S: Final = 1.5
_DETAIL_LENGTH: Final = 200
_GZIP: Final = 31  # zlib's word for a gzip header and the largest window

_ONE_CONNECTION = httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=_KEEP_ALIVE_S)
_NEVER_LEFT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
)
_FAILURES = (httpx.HTTPError, OSError, zlib.error, ValueError)
_UNSENT: Final[tuple[tuple[str, tuple[type[BaseException], ...]], ...]] = (
    ("tls_failed", (ssl.SSLError,)),
    ("dns_failed", (socket.gaierror,)),
    ("connection_refused", (ConnectionRefusedError,)),
    ("proxy_refused", (httpx.ProxyError,)),
    ("connect_timeout", (httpx.TimeoutException, TimeoutError)),
    ("bad_request", (httpx.LocalProtocolError, httpx.UnsupportedProtocol, ValueError)),
)


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer. The body may hold a token or customers' data, so it is never shown."""

    status: int
    content_type: str
    body: bytes = field(repr=False)


class Wire:
    """Sends requests to one base address. Not more than `max_idle` connections are kept open between requests."""

    def __init__(
        self,
        *,
        base_url: str,
        timeout_s: float,
        user_agent: str,
        ca_file: Path | None = None,
        transport: Callable[[], httpx.AsyncBaseTransport] | None = None,
        max_idle: int = 8,
    ) -> None:
        if not base_url.lower().startswith("https://"):
            raise ValueError("base_url must begin with https://")
        self._base_url = base_url.rstrip("/")
        self._timeout_s = timeout_s
        self._headers = {"Accept": "application/json", "Accept-Encoding": "gzip", "User-Agent": user_agent}
        self._transport = transport
        self._max_idle = max_idle
        self._tls = _tls_context(ca_file)
        self._idle: list[httpx.AsyncClient] = []
        self._closing: set[asyncio.Task[None]] = set()
        self._closed = False

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
        total_s = self._timeout_s if timeout_s is None else timeout_s
        if total_s <= 0:
            raise NotSent("connect_timeout", "no time was left")
        trail = _Trail(left=self._transport is not None)
        extensions = {"timeout": httpx.Timeout(total_s).as_dict(), "trace": trail}
        try:
            request = httpx.Request(  # not of a client, which would add its cookies: accounts share the wire
                method,
                self._base_url + path,
                headers={**self._headers, **headers},
                json=json,
                params=params,
                extensions=extensions,
            )
        except (httpx.InvalidURL, ValueError) as error:  # without its text: that may quote a header
            raise NotSent("bad_request", type(error).__name__) from None
        try:
            with self._lent_client(trail) as client:
                async with asyncio.timeout(total_s):
                    return await _exchange(client, request, trail)
        except TimeoutError:
            ending = trail.timeout(total_s)
        except _FAILURES as error:
            ending = trail.failure(error)
        raise ending  # out here, without its cause: httpx's texts quote headers and answers, and tracebacks are logged

    async def close(self) -> None:
        """Closes what is idle. A request still under way ends as it would and closes its own connection."""
        self._closed = True
        while self._idle:
            self._discard(self._idle.pop())
        if self._closing:
            await asyncio.wait(self._closing)

    def _take(self) -> httpx.AsyncClient:
        if self._closed:
            raise NotSent("closed", "this program is stopping")
        if self._idle:
            return self._idle.pop()
        try:
            return httpx.AsyncClient(
                verify=self._tls,
                limits=_ONE_CONNECTION,
                transport=None if self._transport is None else self._transport(),
                follow_redirects=False,
            )
        except (ImportError, ValueError, httpx.InvalidURL):
            # No text of the error: it quotes the address, and that may hold a password.
            raise NotSent("proxy_invalid", "HTTPS_PROXY or ALL_PROXY is set to what cannot be used") from None

    @contextlib.contextmanager
    def _lent_client(self, trail: "_Trail") -> Iterator[httpx.AsyncClient]:
        """Lends a client for one request, and takes it back only when that ended well and cleanly."""
        client = self._take()
        try:
            yield client
        except BaseException:
            # Cut off in the TLS handshake, the client does not know its connection yet and would leave it open.
            self._discard(client, *trail.connections)
            raise
        self._give_back(client, clean=trail.clean)

    def _give_back(self, client: httpx.AsyncClient, *, clean: bool) -> None:
        if self._closed or not clean or len(self._idle) >= self._max_idle:
            self._discard(client)
        else:
            self._idle.append(client)

    def _discard(self, *given_up: "_Closable") -> None:
        """Closes in the background: the caller may be cancelled, and owes its own caller an answer in time."""
        task = asyncio.get_running_loop().create_task(_close(given_up))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


class _Closable(Protocol):
    async def aclose(self) -> None: ...


class _Trail:
    """How far a request came; httpcore calls it at each step.

    Only the library's own transport reports its steps: with any other, every request counts as having left.
    """

    __slots__ = ("_headers_out", "_in_tls", "_left", "clean", "connections")

    def __init__(self, *, left: bool) -> None:
        self.clean = True  # nothing came after the answer
        self.connections: list[_Closable] = []  # made for this request
        self._left = left
        self._headers_out = left
        self._in_tls = False

    async def __call__(self, event: str, info: Mapping[str, Any]) -> None:
        match event.partition(".")[2]:
            case "connect_tcp.complete":
                self.connections.append(info["return_value"])
            case "start_tls.started":
                self._in_tls = True
            case "send_request_headers.started":
                # CONNECT goes to a proxy, and tells the service nothing.
                self._left = self._left or info["request"].method != b"CONNECT"
            case "send_request_headers.complete":
                self._headers_out = self._left

    def timeout(self, total_s: float) -> MarketplaceError:
        detail = f"after {total_s:.1f} s"
        return UnknownOutcome("timeout", detail) if self._left else NotSent("connect_timeout", detail)

    def failure(self, error: Exception) -> MarketplaceError:
        never_written = isinstance(error, httpx.LocalProtocolError) and not self._headers_out
        if never_written or isinstance(error, _NEVER_LEFT) or not self._left:
            return NotSent(self._code_unsent(error), _detail(error))
        return UnknownOutcome(_code_left(error), _detail(error))

    def _code_unsent(self, error: Exception) -> str:
        causes = list(_causes(error))
        for code, kinds in _UNSENT:
            if any(isinstance(cause, kinds) for cause in causes):
                return code
        return "tls_failed" if self._in_tls else "unreachable"


async def _exchange(client: httpx.AsyncClient, request: httpx.Request, trail: _Trail) -> Answer:
    response = await client.send(request, stream=True)
    try:
        body = await _read_body(response)
        trail.clean = not _has_more(response)
    finally:
        await response.aclose()
    return Answer(response.status_code, response.headers.get("content-type", ""), body)


def _has_more(response: httpx.Response) -> bool:
    """Whether bytes came after the answer: the next request of that connection would take them for its own answer.

    No public attribute tells, so the buffers are asked: HTTP's, TLS's, and the socket's queue. What is still with the
    system makes the library give the connection up by itself. Anything unknown counts as more.
    """
    if "network_stream" not in response.extensions:
        return False  # another transport, without connections
    try:
        connection = cast("Any", response.stream)._stream._httpcore_stream._stream._connection  # noqa: SLF001
        tls = connection._network_stream._stream  # noqa: SLF001
        return bool(
            connection._h11_state.trailing_data[0]  # noqa: SLF001
            or tls._ssl_object.pending()  # noqa: SLF001
            or tls._read_bio.pending  # noqa: SLF001
            or tls.transport_stream._protocol.read_queue  # noqa: SLF001
        )
    except AttributeError:
        return True


async def _read_body(response: httpx.Response) -> bytes:
    """The body, unpacked here: httpx would unpack a chunk whole, however large it becomes."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding in ("gzip", "x-gzip"):
        unpacker = zlib.decompressobj(wbits=_GZIP)
    elif encoding in ("identity", ""):
        unpacker = None
    else:
        raise UnknownOutcome(
            "broken_answer", "packed in a way that was not asked for", http_status=response.status_code
        )
    body = bytearray()
    async for chunk in cast("httpx.AsyncByteStream", response.stream):
        body += chunk if unpacker is None else unpacker.decompress(chunk, _BODY_LIMIT + 1 - len(body))
        if len(body) > _BODY_LIMIT:
            raise UnknownOutcome("body_too_large", "more than 32 MB", http_status=response.status_code)
    if unpacker is not None and body and not unpacker.eof:
        raise UnknownOutcome("broken_answer", "the packed body is cut off", http_status=response.status_code)
    return bytes(body)


async def _close(given_up: Iterable[_Closable]) -> None:
    for one in given_up:
        with contextlib.suppress(Exception):  # how it goes is no news
            await one.aclose()


def _tls_context(ca_file: Path | None) -> ssl.SSLContext:
    """The system's authorities, and one more when asked for."""
    context = ssl.create_default_context()
    if ca_file is not None:
        try:
            context.load_verify_locations(cafile=ca_file)
        except (OSError, ValueError) as error:
            raise ConfigError(f"ca_file: {ca_file} is no readable file of PEM certificates ({error})") from error
    return context


def _code_left(error: Exception) -> str:
    if isinstance(error, httpx.TimeoutException):
        return "timeout"
    if isinstance(error, httpx.DecodingError | zlib.error):
        return "broken_answer"
    if isinstance(error, httpx.RemoteProtocolError) and not _hung_up(error):
        return "broken_answer"
    return "connection_lost"


def _hung_up(error: httpx.RemoteProtocolError) -> bool:
    """Whether the other side closed, rather than said something that is no HTTP; the class is the same for both."""
    return any(word in str(error) for word in ("disconnected", "closed"))


def _detail(error: Exception) -> str:
    """The class, and the system's own words. Not httpx's: they can quote the answer, an address or a header."""
    words = [type(error).__name__]
    words += [str(cause) for cause in _causes(error) if isinstance(cause, OSError)][-1:]
    return " ".join(": ".join(words).split())[:_DETAIL_LENGTH]


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what it was raised from, the members of groups included.

    httpcore carries the original as its argument and clears the cause. `__context__` will not do: that is also
    whatever the caller was just handling.
    """
    yield error
    inner = [error.__cause__, *error.args]
    if isinstance(error, BaseExceptionGroup):
        inner += error.exceptions
    for cause in inner:
        if isinstance(cause, BaseException):
            yield from _causes(cause)
