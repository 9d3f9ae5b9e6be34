"""Every operation with every answer, over real TLS sockets.

The table says by hand what docs/interface.md and docs/design.md (Behaviour) make of an answer; nothing in it is asked of the code
under test. Around each case the same promises are checked: no redirect is followed, nothing goes over plain HTTP,
nothing but a login goes without a token, no request is made again but once after a 401, and no error or log line
holds a secret or a customer.
"""

import asyncio
import codecs
import contextlib
import gzip
import traceback
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
import pytest_asyncio
from structlog.testing import capture_logs
from tests.marketplace.samples import failure, order, text
from tests.marketplace.servers import PATIENCE_S, Certificates, Line, Server, http_answer, serving, skip
from tests.marketplace.sessions import a_session
from tests.marketplace.test_client import ACTIONS, READS

from orderbridge.errors import (
    LoginRefused,
    MarketplaceError,
    NotSent,
    RateLimited,
    Refused,
    ServiceFailed,
    Unauthorized,
    UnknownOutcome,
)
from orderbridge.hiding import hide
from orderbridge.marketplace.client import Client, login
from orderbridge.model import Token
from orderbridge.net.http import Wire

pytestmark = pytest.mark.asyncio(loop_scope="module")

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
APP_SECRET, REST_SECRET = "app-geheim", "rest-geheim"
OLD_TOKEN, NEW_TOKEN = "token/alt", "token/neu"
CUSTOMER = "Ayşe"
MEGABYTE = 1024 * 1024
KINDS: dict[type[MarketplaceError], str] = {
    Refused: "refused",
    Unauthorized: "401",
    RateLimited: "429",
    ServiceFailed: "failed",
    UnknownOutcome: "unknown",
    NotSent: "unsent",
    LoginRefused: "unsent",
}


# ---- the operations --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Operation:
    """A call, and the `data` of its success. In `holding` the mark @ stands for what the answer wants to smuggle in."""

    column: str
    request: str
    call: Callable[["Scene"], Awaitable[object]]
    data: str
    holding: str


def read(path: str, call: Callable[[Client], Awaitable[object]], data: object) -> Operation:
    served = text(data)
    holding = served.replace("}", ', "x": @}', 1) if "}" in served else f'{served}, "x": @'
    return Operation("get", f"GET /{path}", lambda scene: call(scene.client), served, holding)


def put(path: str, call: Callable[[Client], Awaitable[object]]) -> Operation:
    return Operation("put", f"PUT /{path}", lambda scene: call(scene.client), '"OK"', "@")


ORDER = text(order())
GRANT = f'"access_token": "{NEW_TOKEN}", "expiration_date": "2026-11-22 12:00:00"'
OPERATIONS = {
    "login": Operation("login", "POST /auth/login", lambda s: s.log_in(), f"{{{GRANT}}}", f'{{{GRANT}, "x": @}}'),
    "current_orders": Operation(
        "poll", "GET /orders/get-current", lambda s: s.client.current_orders(), f"[{ORDER}]", f'[{ORDER}, {{"x": @}}]'
    ),
    **{name: put(path, call) for name, (call, path, _) in ACTIONS.items()},
    **{name: read(path, call, data) for name, (call, path, data, _) in READS.items()},
}
LOGIN = OPERATIONS["login"]
FEW = ["login", "current_orders", "accept", "reasons"]  # one of each column


# ---- the answers -----------------------------------------------------------------------------------------------------

Give = Callable[[Line, Operation], Awaitable[None]]
Body = bytes | Callable[[Operation], bytes]


@dataclass(frozen=True)
class Answer:
    """How the server answers, and what that is to each kind of call: ok, or the error's kind."""

    give: Give
    says: dict[str, str]
    status: int | None = None
    at: str = "good"
    few: bool = False


def answer(says: str, give: Give, **more: Any) -> Answer:
    """`says`: four words for PUT, GET, poll and login, or one for all."""
    words = says.split() if " " in says else [says] * 4
    return Answer(give, dict(zip(("put", "get", "poll", "login"), words, strict=True)), **more)


def whole(says: str, status: int, body: Body = b"", head: str = "Content-Type: application/json\r\n") -> Answer:

    async def give(line: Line, operation: Operation) -> None:
        content = body if isinstance(body, bytes) else body(operation)
        await line.send(http_answer(content, status=f"{status} Any", head=head))

    return answer(says, give, status=status)


def wire(says: str, *pieces: Body, closes: bool = True, **more: Any) -> Answer:
    """Whatever bytes, one piece after the other; after what is no whole answer the connection is closed."""

    async def give(line: Line, operation: Operation) -> None:
        for piece in pieces:
            await line.send(piece if isinstance(piece, bytes) else piece(operation))
        if closes:
            raise asyncio.IncompleteReadError(b"", None)

    return answer(says, give, **more)


def true(operation: Operation) -> bytes:
    return f'{{"status": true, "data": {operation.data}}}'.encode()


def holding(raw: str | bytes) -> Callable[[Operation], bytes]:
    """A success with something odd inside its data; for a PUT it is all of the data."""
    inside = raw if isinstance(raw, bytes) else raw.encode()
    return lambda operation: f'{{"status": true, "data": {operation.holding}}}'.encode().replace(b"@", inside)


def packed(operation: Operation) -> bytes:
    return gzip.compress(true(operation), mtime=0)


def chunked(operation: Operation) -> bytes:
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in true(operation))
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"


async def reset(line: Line, operation: Operation) -> None:
    line.reset()
    raise asyncio.IncompleteReadError(b"", None)


async def hang(line: Line, operation: Operation) -> None:
    skip(PATIENCE_S)
    await line.until_closed()


async def hang_in_the_body(line: Line, operation: Operation) -> None:
    await line.send(http_answer(true(operation))[:-1])
    await asyncio.sleep(0.01)  # it has arrived
    skip(PATIENCE_S)
    await line.until_closed()


async def drip(line: Line, operation: Operation) -> None:
    """Byte by byte, but in time."""
    for byte in http_answer(true(operation)):
        await line.send(bytes([byte]))


async def drip_for_ever(line: Line, operation: Operation) -> None:
    """Each byte comes in time for a limit on reads, the whole never."""
    await line.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while True:
        await line.send(b" ")
        skip(PATIENCE_S / 10)
        await asyncio.sleep(0)


async def fifty_megabytes(line: Line, operation: Operation) -> None:
    await line.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (50 * MEGABYTE))
    block = b" " * (64 * 1024)
    for _ in range(50 * MEGABYTE // len(block)):
        await line.send(block)


def redirect(status: int, to: str) -> Answer:
    async def give(line: Line, operation: Operation) -> None:
        path = operation.request.partition(" ")[2]
        location = getattr(HOUSES, to) + path
        await line.send(http_answer(b"", status=f"{status} Moved", head=f"Location: {location}\r\n"))

    return answer("unknown", give, status=status)


async def unheard(line: Line, operation: Operation) -> None:
    """No request comes this far; the case would see it."""


def quoting(operation: Operation) -> bytes:
    """An error that quotes the secrets of the request, in both ways of JSON, and where its words are cut off."""
    body = failure("olmaz", f"{HOUSES.shown} @ {'-' * (170 - len(HOUSES.shown))} {HOUSES.shown}")
    return body.replace(b"@", HOUSES.shown.replace("/", "\\/").replace('"', '\\"').encode())


PAGE = b"<html><body><h1>Sorry</h1></body></html>"
HTML = "Content-Type: text/html\r\n"
OTHER_WORDS = failure("olmaz", "başka bir sebep")
DEEP = 20_000  # levels; more than any decoder takes

# docs/interface.md, Errors; docs/design.md, Behaviour.                           PUT GET poll login, or one word for all
ANSWERS: dict[str, Answer] = {
    # -- a success
    "200 OK": whole("ok", 200, true),
    "200 data of another shape": whole("ok unknown unknown unknown", 200, b'{"status": true, "data": 5}'),
    "200 without data": whole("ok unknown unknown unknown", 200, b'{"status": true}'),
    "200 gzip": whole("ok", 200, packed, "Content-Encoding: gzip\r\n"),
    "200 chunked": wire("ok", chunked, closes=False),
    "200 after 103": wire("ok", b"HTTP/1.1 103 Early Hints\r\n\r\n", lambda o: http_answer(true(o)), closes=False),
    "200 drip": answer("ok", drip),
    "200 BOM": whole("ok", 200, lambda o: codecs.BOM_UTF8 + true(o)),
    "200 invalid UTF-8": whole("ok", 200, holding(b'"\xff\xfe\xc3"')),
    "200 5,000 digits": whole("ok", 200, holding("9" * 5000)),
    "200 nested deeply": whole("unknown unknown ok unknown", 200, holding("[" * DEEP + "]" * DEEP)),
    # -- 200 with an error
    "200 status false": whole("refused", 200, OTHER_WORDS),
    "200 sipariş bulunamadı": whole("refused", 200, failure("sipariş bulunamadı")),
    "200 yetkisiz erişim": whole("401", 200, failure("yetkisiz erişim", "Token expired or invalid")),
    "200 çok fazla istek": whole("429", 200, failure("çok fazla istek")),
    # -- 200 that is not the service's word
    "200 no envelope": whole("unknown", 200, b'{"ok": 1}'),
    "200 page": whole("unknown", 200, PAGE, HTML),
    "200 no body": whole("unknown", 200),
    "204": wire("unknown", b"HTTP/1.1 204 No Content\r\n\r\n", closes=False, status=204),
    "200 invalid JSON": whole("unknown", 200, lambda o: true(o).replace(b'"data":', b'"data" ')),
    "200 UTF-16": whole("unknown", 200, lambda o: true(o).decode().encode("utf-16")),
    # -- 4xx
    "400 page": whole("unknown", 400, PAGE, HTML),
    "401 Token expired or invalid": whole("401", 401, failure("yetkisiz erişim", "Token expired or invalid")),
    "401 quoting secrets": whole("401", 401, quoting),
    "401 page": whole("401", 401, PAGE, HTML),
    "401 no body": whole("401", 401),
    "403 URL hatalı": whole("refused", 403, failure("URL hatalı")),
    "403 quoting secrets": whole("refused", 403, quoting),
    "403 page": whole("unknown", 403, PAGE, HTML),
    "404 sipariş bulunamadı": whole("refused", 404, failure("sipariş bulunamadı")),
    "404 page": whole("unknown", 404, PAGE, HTML),
    "409 other words": whole("refused", 409, OTHER_WORDS),
    "422 eksik alan": whole("refused", 422, failure("eksik alan")),
    "429 çok fazla istek": whole("429", 429, failure("çok fazla istek", "Lütfen 30 saniye bekleyin")),
    "429 no body": whole("429", 429),
    # -- 5xx
    "500 quoting secrets": whole("failed", 500, quoting),
    "500 page": whole("failed", 500, PAGE, HTML),
    "500 no body": whole("failed", 500),
    "500 eksik alan": whole("refused", 500, failure("eksik alan")),
    "500 yetkisiz erişim": whole("401", 500, failure("yetkisiz erişim")),
    "502 page": whole("unknown", 502, PAGE, HTML),
    "504 page": whole("unknown", 504, PAGE, HTML),
    # -- broken on the way
    "no HTTP": wire("unknown", b"Ay\xc5\x9fe\r\n\r\n"),
    "closed without a word": wire("unknown"),
    "truncated": wire("unknown", lambda o: http_answer(true(o))[:-1]),
    "truncated in the head": wire("unknown", b"HTTP/1.1 200 OK\r\nContent-Le"),
    "gzip cut off": wire("unknown", lambda o: http_answer(packed(o)[:-5], head="Content-Encoding: gzip\r\n")),
    "gzip that is none": wire("unknown", lambda o: http_answer(true(o), head="Content-Encoding: gzip\r\n")),
    "packed unasked": wire("unknown", lambda o: http_answer(true(o), head="Content-Encoding: br\r\n")),
    "reset": answer("unknown", reset),
    "hang": answer("unknown", hang),
    "hang in the body": answer("unknown", hang_in_the_body),
    "drip for ever": answer("unknown", drip_for_ever),
    "50 MB": answer("unknown", fifty_megabytes, few=True),
    "50 MB packed": wire(
        "unknown",
        http_answer(gzip.compress(b" " * (50 * MEGABYTE), mtime=0), head="Content-Encoding: gzip\r\n"),
        few=True,
    ),
    # -- redirects
    **{f"{code} to {to}": redirect(code, to) for code in (301, 302, 303, 307, 308) for to in ("elsewhere", "plain_http")},
    "302 restoran bulunamadı": whole("refused", 302, failure("restoran bulunamadı"), "Location: /login\r\n"),
    # -- never left
    "TLS untrusted": answer("unsent", unheard, at="untrusted"),
    "TLS wrong name": answer("unsent", unheard, at="wrong_name"),
    "TLS expired": answer("unsent", unheard, at="expired"),
    "no TLS": answer("unsent", unheard, at="plain"),
}  # fmt: skip


# ---- the stage -------------------------------------------------------------------------------------------------------


class Houses:
    """The target of redirects, which must never be called; and the last request to the server."""

    elsewhere = ""
    plain_http = ""
    shown = ""


HOUSES = Houses()


@dataclass
class Service:
    """What the servers share: the script of this case and what they have seen."""

    operation: Operation = LOGIN
    script: list[Answer] = field(default_factory=list)  # the last one for ever
    seen: list[str] = field(default_factory=list)
    tokens: list[str | None] = field(default_factory=list)
    giving: int = 0  # answers that are not over: one that drips moves the time on, for the next case too

    async def has_given(self) -> None:
        while self.giving:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0)

    async def talk(self, line: Line) -> None:
        while head := await line.request():
            request, _, rest = head.decode().partition(" HTTP/1.1\r\n")
            fields = dict(row.lower().split(": ", 1) for row in rest.partition("\r\n\r\n")[0].split("\r\n"))
            self.seen.append(request)
            self.tokens.append(fields.get("access-token"))
            HOUSES.shown = self.tokens[-1] or rest.partition("\r\n\r\n")[2]
            if request == self.operation.request:
                given = self.script.pop(0) if len(self.script) > 1 else self.script[0]
                self.giving += 1
                try:
                    await given.give(line, self.operation)
                finally:
                    self.giving -= 1
            elif request == LOGIN.request:
                await line.send(http_answer(true(LOGIN)))
            else:
                return  # the case will see it


@dataclass
class Stage:
    """The servers and a wire to each: they live as long as the module."""

    service: Service
    wires: dict[str, Wire]
    forbidden: list[Server]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(certificates: Certificates) -> AsyncIterator[Stage]:
    service = Service()

    async def nobody(line: Line) -> None:
        await line.until_closed()

    async def no_tls(line: Line) -> None:
        await line.reader.read(1)
        await line.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with contextlib.AsyncExitStack() as stack:
        enter = stack.enter_async_context
        urls = {}
        for name in ("good", "wrong_name", "expired", "untrusted"):
            urls[name] = (await enter(serving(service.talk, certificates.contexts[name]))).url
        urls["plain"] = (await enter(serving(no_tls, None))).url
        elsewhere, plain_http = await enter(serving(nobody, certificates.good)), await enter(serving(nobody, None))
        HOUSES.elsewhere, HOUSES.plain_http = elsewhere.url, plain_http.url.replace("https://", "http://")
        wires = {
            name: Wire(base_url=url, timeout_s=PATIENCE_S, ca_file=certificates.ca_file) for name, url in urls.items()
        }
        yield Stage(service, wires, [elsewhere, plain_http])
        for one in wires.values():
            await one.close()


class Scene:
    """One case: a client with a token of yesterday, and what it did."""

    def __init__(self, stage: Stage, operation: Operation, *script: Answer, token: str | None = OLD_TOKEN) -> None:
        self.service = stage.service
        self.operation = operation
        self.wire = stage.wires[script[-1].at]
        self.service.operation, self.service.script = operation, list(script)
        self.service.seen, self.service.tokens = [], []
        for secret in (OLD_TOKEN, NEW_TOKEN, APP_SECRET, REST_SECRET):  # as an account does
            hide(secret)
        self.session = a_session(self._obtain, token=Token(token, NOW, NOW) if token else None)
        self.client = Client(self.wire, self.session)

    async def log_in(self) -> str:
        grant = await login(self.wire, app_secret_key=APP_SECRET, rest_secret_key=REST_SECRET)
        return grant.access_token

    async def _obtain(self) -> Token:
        return Token(await self.log_in(), NOW, NOW)

    async def said(self, call: Callable[["Scene"], Awaitable[object]]) -> tuple[str, MarketplaceError | None]:
        """ok or the kind of the error; the promises about words are checked on the way."""
        with capture_logs() as lines:
            try:
                await call(self)
            except MarketplaceError as error:
                caught = error
            else:
                return "ok", None
            finally:
                await self.service.has_given()
        words = "".join(traceback.format_exception(caught.with_traceback(None))) + repr(lines)
        assert not [w for w in (APP_SECRET, REST_SECRET, OLD_TOKEN, NEW_TOKEN, CUSTOMER, "Ay\\xc5") if w in words]
        assert "\n" not in str(caught)
        return KINDS[type(caught)], caught

    @property
    def seen(self) -> list[str]:
        return self.service.seen


def promises_are_kept(stage: Stage) -> bool:
    """After each case: no redirect was followed, nothing left without a token but logins."""
    service = stage.service
    return [server.connections for server in stage.forbidden] == [0, 0] and [
        seen == LOGIN.request for seen in service.seen
    ] == [token is None for token in service.tokens]


@pytest.fixture(autouse=True)
def promises(stage: Stage) -> Iterator[None]:
    yield
    assert promises_are_kept(stage)


# ---- the cases -------------------------------------------------------------------------------------------------------


@pytest.mark.interface("Endpoints 1", "Authentication 2")
@pytest.mark.parametrize("name", ANSWERS)
async def test_an_answer_is_what_the_table_says_and_asked_for_once(name: str, stage: Stage) -> None:
    """To every operation."""
    given = ANSWERS[name]
    for kind, operation in OPERATIONS.items():
        if given.few and kind not in FEW:
            continue
        scene = Scene(stage, operation, given)
        said, error = await scene.said(operation.call)
        assert (kind, said) == (kind, given.says[operation.column])
        assert (kind, scene.seen) == (kind, requests_for(operation, said))
        assert error is None or given.status is None or error.http_status == given.status, kind
        assert promises_are_kept(stage), kind


def requests_for(operation: Operation, said: str) -> list[str]:
    """What the service sees of one call that ends so."""
    once, new_login = operation.request, LOGIN.request
    if said == "unsent":
        return []
    if said != "401" or operation is LOGIN or operation.column == "poll":
        return [once]  # a poll inside its cooldown would cost another one
    return [once, new_login, once]


@pytest.mark.interface("Endpoints 2", "Endpoints 3", "Endpoints 12", "Endpoints 13")
@pytest.mark.parametrize("name", [name for name, given in ANSWERS.items() if given.says["put"] == "401"])
async def test_after_a_401_one_login_and_one_repeat_do(name: str, stage: Stage) -> None:
    for kind, operation in OPERATIONS.items():
        if kind in ("login", "current_orders"):
            continue
        scene = Scene(stage, operation, ANSWERS[name], ANSWERS["200 OK"])
        assert (kind, await scene.said(operation.call)) == (kind, ("ok", None))
        assert scene.seen == [operation.request, LOGIN.request, operation.request], kind
        assert scene.service.tokens == [OLD_TOKEN, None, NEW_TOKEN], kind


@pytest.mark.parametrize("kind", ["accept", "reasons"])
async def test_the_repeat_after_a_401_is_the_last_request_whatever_it_ends_in(kind: str, stage: Stage) -> None:
    operation = OPERATIONS[kind]
    for name, given in ANSWERS.items():
        if given.at != "good" or given.few:
            continue
        scene = Scene(stage, operation, ANSWERS["401 no body"], given)
        said, error = await scene.said(operation.call)
        assert (name, said) == (name, given.says[operation.column])
        assert scene.seen == [operation.request, LOGIN.request, operation.request], name
        assert said != "401" or (error is not None and error.code == "not_permitted"), name
        assert promises_are_kept(stage), name


async def test_without_a_login_nothing_is_sent(stage: Stage) -> None:
    """Whatever the login ends in, the call that wanted it was not carried out and says so."""
    for name, given in ANSWERS.items():
        if given.few or given.says["login"] == "ok":
            continue
        scene = Scene(stage, LOGIN, given, token=None)
        said, _ = await scene.said(OPERATIONS["accept"].call)
        assert (name, said) == (name, "unsent")
        assert scene.seen == ([] if given.at != "good" else [LOGIN.request]), name
        assert promises_are_kept(stage), name


@pytest.mark.parametrize("name", ["50 MB", "50 MB packed"])
@pytest.mark.parametrize("kind", ["accept", "current_orders"])
async def test_a_body_without_measure_takes_no_memory_without_measure(kind: str, name: str, stage: Stage) -> None:
    scene = Scene(stage, OPERATIONS[kind], ANSWERS[name])
    tracemalloc.start()
    try:
        assert (await scene.said(OPERATIONS[kind].call))[0] == "unknown"
        kept, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 42 * MEGABYTE  # 32 MB are allowed, and the buffer for them grows by steps
    assert kept < 2 * MEGABYTE
