"""Requests over real sockets: which certainly never left, which may have, and what happens to the connection."""

import asyncio
import base64
import contextlib
import gc
import gzip
import re
import socket
import threading
import traceback
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest
from tests.fuzz.grammar import TIMES
from tests.marketplace.servers import PATIENCE_S, Certificates, Line, Server, Talk, http_answer, serving, skip

from orderbridge import __version__
from orderbridge.errors import MarketplaceError, NotSent, UnknownOutcome
from orderbridge.net import connector
from orderbridge.net.connection import HEAD_LIMIT
from orderbridge.net.http import KEEP_ALIVE_S, Answer, Wire
from orderbridge.texts import sentence

OK = b'{"status": true, "data": "OK"}'
TOKEN = "the-secret-token"
CUSTOMER = "Müşteri"
PROXY_PASSWORD = "geheim"

MakeWire = Callable[..., Wire]
Serve = Callable[..., contextlib.AbstractAsyncContextManager[Server]]
Wired = Callable[..., contextlib.AbstractAsyncContextManager[tuple[Wire, Server]]]


@pytest.fixture
async def make_wire(certificates: Certificates) -> AsyncIterator[MakeWire]:
    wires: list[Wire] = []

    def make(server: Server | str, **options: Any) -> Wire:
        settings = {
            "base_url": getattr(server, "url", server),
            "timeout_s": PATIENCE_S,
            "ca_file": certificates.ca_file,
        }
        wires.append(Wire(**settings | options))
        return wires[-1]

    yield make
    for wire in wires:
        await wire.close()


@pytest.fixture
def serve(certificates: Certificates) -> Serve:
    return lambda talk: serving(talk, certificates.contexts["good"])


@pytest.fixture
def wired(serve: Serve, make_wire: MakeWire) -> Wired:
    @contextlib.asynccontextmanager
    async def connected(talk: Talk, **options: Any) -> AsyncIterator[tuple[Wire, Server]]:
        async with serve(talk) as server:
            yield make_wire(server, **options), server

    return connected


def answering(*answers: bytes) -> tuple[Talk, list[bytes]]:
    """A talk that gives each request the next answer, on as few connections as the client likes."""
    left, seen = list(answers), []

    async def talk(line: Line) -> None:
        while head := await line.request():
            seen.append(head)
            await line.send(left.pop(0))

    return talk, seen


async def put(wire: Wire, **options: Any) -> Answer:
    return await wire.request("PUT", "/orders/success/1", headers={"Access-Token": TOKEN}, **options)


def idle(wire: Wire) -> list[Any]:
    return list(wire._transport._idle)


async def error_of(call: Awaitable[Answer]) -> MarketplaceError:
    with pytest.raises(MarketplaceError) as caught:
        await call
    assert "\n" not in sentence(caught.value)
    logged = "".join(traceback.format_exception(caught.value.with_traceback(None)))
    assert not [word for word in (TOKEN, CUSTOMER, repr(CUSTOMER.encode())[2:-1], PROXY_PASSWORD) if word in logged]
    return caught.value


async def not_sent(call: Awaitable[Answer], kind: type[MarketplaceError] = NotSent) -> str:
    caught = await error_of(call)
    assert type(caught) is kind
    return caught.code


async def unknown(call: Awaitable[Answer]) -> str:
    return await not_sent(call, UnknownOutcome)


@pytest.mark.interface("Access token", "Endpoints 1", "Versioning")
async def test_a_request_arrives_as_it_was_meant(serve: Serve, make_wire: MakeWire) -> None:
    head = "Content-Encoding: gzip\r\n"
    talk, seen = answering(http_answer(OK, head="Content-Type: application/json\r\n"), http_answer(b"", head=head))
    async with serve(talk) as server:
        sent = {"headers": {"Access-Token": TOKEN}, "json": {"preparing_time": 5}, "params": {"x": "1"}}
        answer = await make_wire(server.url + "/api/v1/").request("PUT", "/orders/accept/a%2Fb", **sent)
        assert (await put(make_wire(server))).body == b"", "an empty packed body is empty"
    assert (answer, "OK" in repr(answer)) == (Answer(200, OK), False)
    lines = seen[0].decode().split("\r\n")
    assert (lines[0], lines[-1]) == ("PUT /api/v1/orders/accept/a%2Fb?x=1 HTTP/1.1", '{"preparing_time":5}')
    headers = dict(line.lower().split(": ", 1) for line in lines[1:-2])
    assert headers.pop("host") == f"127.0.0.1:{server.port}"
    assert headers == {
        "accept": "application/json", "accept-encoding": "gzip", "user-agent": f"orderbridge/{__version__}",
        "access-token": TOKEN, "content-type": "application/json", "content-length": "20",
    }  # fmt: skip
    assert b"content-length: 0\r\n" in seen[1].lower(), "a PUT without a body says so"
    assert b"content-type" not in seen[1].lower()


@pytest.mark.interface("Limits")
async def test_the_largest_body_is_32_megabytes_unpacked_and_no_memory_is_taken_for_more(wired: Wired) -> None:
    limit = 32 * 1024 * 1024
    bomb = http_answer(gzip.compress(b" " * 2 * limit), head="Content-Encoding: gzip\r\n")
    talk, _ = answering(http_answer(b" " * limit), http_answer(b" " * (limit + 1)), bomb)
    async with wired(talk) as (wire, _):
        assert (len((await put(wire)).body), await unknown(put(wire))) == (limit, "body_too_large")
        tracemalloc.start()
        try:
            assert await unknown(put(wire)) == "body_too_large"
            assert tracemalloc.get_traced_memory()[1] < 1.4 * limit
        finally:
            tracemalloc.stop()


async def test_a_redirect_is_not_followed_and_a_false_content_encoding_is_refused(serve: Serve, wired: Wired) -> None:
    async with serve(Line.never) as elsewhere:
        moved = http_answer(b"", status="307 Moved", head=f"Location: {elsewhere.url}/x\r\n")
        talk, _ = answering(moved, http_answer(OK, head="Content-Encoding: gzip\r\n"))
        async with wired(talk) as (wire, _):
            assert ((await put(wire)).status, await unknown(put(wire))) == (307, "broken_answer")
        assert elsewhere.connections == 0


@pytest.mark.parametrize("name, is_read", [("UTF-8", True), ("none", True), ("br", False), ("gzip, gzip", False)])
async def test_an_encoding_that_packs_nothing_is_ignored(name: str, is_read: bool, wired: Wired) -> None:
    talk, _ = answering(http_answer(OK, head=f"Content-Encoding: {name}\r\n"))
    async with wired(talk) as (wire, _):
        assert (await put(wire)).body == OK if is_read else await unknown(put(wire)) == "broken_answer"


async def test_a_packed_body_may_have_several_members(wired: Wired) -> None:
    members = [gzip.compress(OK[:9]), gzip.compress(b""), gzip.compress(OK[9:])]
    talk, _ = answering(
        http_answer(b"".join(members), head="Content-Encoding: gzip\r\n"),
        http_answer(b"".join(members)[:-9], head="Content-Encoding: gzip\r\n"),
    )
    async with wired(talk) as (wire, _):
        assert ((await put(wire)).body, await unknown(put(wire))) == (OK, "broken_answer")


async def test_what_follows_a_packed_body_is_left(wired: Wired) -> None:
    async def talk(line: Line) -> None:
        await line.request()
        await line.send(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + gzip.compress(OK))
        while True:
            await line.send(b"\0" * 1024 * 1024)

    async with wired(talk) as (wire, _):
        assert await unknown(put(wire)) == "broken_answer"


async def test_a_connection_with_extra_bytes_is_not_reused(wired: Wired, monkeypatch) -> None:
    """TLS keeps back what comes while reading is paused: the next request would take it for its answer."""
    monkeypatch.setattr("orderbridge.net.connection._AHEAD_LIMIT", 1)
    talk, _ = answering(http_answer(OK))
    async with wired(talk) as (wire, _):
        assert ((await put(wire)).body, idle(wire)) == (OK, [])


async def test_a_name_lookup_that_hangs(make_wire: MakeWire, monkeypatch: pytest.MonkeyPatch) -> None:
    """One look-up for each name, however many callers; and the error names the silent name server."""
    over, asked = threading.Event(), []
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *_, **__: asked.append(host) or (over.wait() and []))
    wire = make_wire("https://service.invalid", timeout_s=0.1)
    try:
        for _ in range(2):
            errors = await asyncio.gather(*(error_of(put(wire)) for _ in range(3)))
            found = {(type(error), error.code, error.reason) for error in errors}
            assert found == {(NotSent, "dns_failed", "dns_silent")}
        assert asked == ["service.invalid"]
    finally:
        over.set()


BAD = {name: f"tls_{name}" for name in ("wrong_name", "expired", "untrusted", "self_signed")}
BAD |= {"not_yet_valid": "tls_not_yet", "old": "tls_version"}


@pytest.mark.parametrize("which", BAD)
async def test_an_untrusted_certificate(which: str, certificates: Certificates, make_wire: MakeWire) -> None:
    """The outdated server closes the connection, as some do, instead of sending an alert with the reason."""
    talk, seen = answering(http_answer(OK))
    async with serving(talk, certificates.contexts[which]) as server:
        caught = await error_of(put(make_wire(server)))
    assert (type(caught), caught.code, caught.reason, seen) == (NotSent, "tls_failed", BAD[which], [])
    shown = r"issued by CN=.*; for .*; valid from .* to .* UTC; the date on this machine: 20.*"
    assert which == "old" or re.fullmatch(shown, sentence(caught.detail))


async def hang(line: Line) -> None:
    """In the handshake."""
    await line.reader.read(1)
    skip(PATIENCE_S)
    await line.until_closed()


async def test_a_server_that_closes_or_hangs_in_the_handshake(make_wire: MakeWire) -> None:
    async def talk(line: Line) -> None:
        await line.reader.read(1)
        line.reset()

    for talks, code in ((talk, "tls_failed"), (hang, "connect_timeout")):
        async with serving(talks, None) as server:
            assert await not_sent(put(make_wire(server))) == code


async def test_at_a_stop_only_sent_requests_are_awaited(serve: Serve, make_wire: MakeWire, monkeypatch) -> None:
    monkeypatch.setattr("orderbridge.net.http.STOP_WITHIN_S", 0.0)
    greeted, asked, answer = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def no_handshake(line: Line) -> None:
        await line.reader.read(1)
        greeted.set()
        await line.until_closed()

    async def late(line: Line) -> None:
        await line.request()
        asked.set()
        await answer.wait()
        await line.send(http_answer(OK))

    async with serving(no_handshake, None) as silent, serve(late) as server:
        wires = make_wire(silent), make_wire(server)
        unsent, sent = (asyncio.create_task(put(wire)) for wire in wires)
        await greeted.wait()
        await asked.wait()
        for wire in wires:
            wire.prepare_stop()
        assert await not_sent(unsent) == "connect_timeout"
        answer.set()
        assert (await sent).body == OK


async def test_a_handshake_cut_off_from_outside_leaves_no_connection(make_wire: MakeWire) -> None:
    """Cancelled there, the library forgets its socket: only the garbage collector would close it."""
    greeted, closed = asyncio.Event(), asyncio.Event()

    async def talk(line: Line) -> None:
        await line.reader.read(1)
        greeted.set()
        await line.until_closed()
        closed.set()

    async with serving(talk, None) as server:
        task = asyncio.create_task(put(make_wire(server)))
        await greeted.wait()
        gc.disable()
        try:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            async with asyncio.timeout(60):
                await closed.wait()
        finally:
            gc.enable()


async def test_a_header_that_cannot_be_written(wired: Wired) -> None:
    talk, seen = answering(http_answer(OK))
    async with wired(talk) as (wire, _):
        for value in ("a\nb", "a\x00b", "şifre", "a\ud800"):
            assert await not_sent(wire.request("PUT", "/x", headers={"Access-Token": TOKEN + value})) == "bad_request"
    assert seen == []


async def test_nothing_is_sent_without_time_or_after_the_close(make_wire: MakeWire) -> None:
    for url in ("https://", "https://.", "https://" + "x" * 70, "https://[", "https://a:99999"):
        assert await not_sent(put(make_wire(url))) in ("bad_request", "unreachable", "dns_failed")
    wire = make_wire("https://127.0.0.1:1")
    assert await not_sent(put(wire, timeout_s=0)) == "connect_timeout"
    await wire.close()
    assert await not_sent(put(wire)) == "closed"


async def test_a_body_that_arrives_slowly(wired: Wired) -> None:
    async def talk(line: Line) -> None:
        await line.request()
        await line.send(b"HTTP/1.1 200 OK\r\n\r\n")
        await asyncio.sleep(0.01)  # the client sees the head before its time is over
        while True:
            await line.send(b" ")
            skip(PATIENCE_S / 10)
            await asyncio.sleep(0)

    async with wired(talk, timeout_s=3 * PATIENCE_S) as (wire, _):
        error = await error_of(put(wire, timeout_s=PATIENCE_S))
    assert (error.code, error.began) == ("timeout", True)


Words = tuple[list[bytes], str]  # pieces, each in a TLS record of its own; then: stay, close or reset


def scripted(script: list[Words]) -> Talk:
    """What the server says to each request. A request that is sent twice would find its script too short."""

    async def talk(line: Line) -> None:
        while await line.request():
            pieces, then = script.pop(0)
            for piece in pieces:
                await line.send(piece)
                await asyncio.sleep(0)
            if then == "reset":
                line.reset()
            if then != "stay":
                return

    return talk


def right(name: str) -> bytes:
    return f'{{"for": "{name}", "words": "{"çok " * 20}"}}'.encode()


def chunked(name: str) -> bytes:
    body = right(name)
    chunks = b"".join(b"%x;why=not\r\n%s\r\n" % (len(piece), piece) for piece in (body[:7], body[7:8], body[8:]))
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\nTrailer: x\r\n\r\n"


FORMS: dict[str, Callable[[str], bytes]] = {
    "plain": lambda name: http_answer(right(name)),
    "chunked": chunked,
    "packed": lambda name: http_answer(gzip.compress(right(name)), head="Content-Encoding: gzip\r\n"),
    "after hints": lambda name: b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" * 3 + http_answer(right(name)),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
async def test_a_split_answer_is_whole_a_cut_one_fails_and_no_later_bytes_answer_the_next_request(form, wired) -> None:
    """All places of the cut with ORDERBRIDGE_TEST_FUZZ=50."""
    random, whole, script = Random(1), form("one"), list[Words]()
    async with wired(scripted(script)) as (wire, _):
        for place in range(0, len(whole), max(1, len(whole) // (30 * TIMES))):
            more = random.choice([form("stale"), random.randbytes(9), b"\r\n", b"HTTP/1.1 200", b"0"])
            script += [([whole[:place], whole[place:]], "stay"), ([whole[:place]], "reset" if place % 2 else "close")]
            script += [([whole, more] if place % 2 else [whole + more], "stay"), ([form("next")], "stay")]
            assert (await put(wire)).body == right("one")
            caught = await error_of(put(wire))
            assert (type(caught), caught.code, caught.http_status) == (UnknownOutcome, "connection_lost", None)
            assert ([(await put(wire)).body for _ in range(2)], script) == ([right("one"), right("next")], [])


async def test_whatever_bytes_come_the_next_request_gets_its_own_answer(wired: Wired) -> None:
    random, ok, script = Random(1), b"HTTP/1.1 200 OK\r\n", list[Words]()
    informed = b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000
    async with wired(scripted(script)) as (wire, _):
        for said in (ok + b"X: " + b"x" * 2 * HEAD_LIMIT, ok + b"X: y\r\n" * 20_000, informed):
            script.append(([said], "close"))
            assert await unknown(put(wire))
        for turn in range(100 * TIMES):
            broken = bytearray(list(FORMS.values())[turn % 4]("broken"))
            for _ in range(random.choice([1, 1, 5])):
                broken[random.randrange(len(broken))] = random.choice(b"\x00\r\n :;0123456789abcdef{}\xff")
            noise = random.randbytes(random.choice([1, 40, 2000])).replace(b"\n", b"?")  # a line end could make it one
            script += [([bytes(broken)], "close"), ([random.choice([b"", ok, b"HTTP/1.1 "]) + noise], "reset")]
            with contextlib.suppress(UnknownOutcome):
                await put(wire)
            assert await unknown(put(wire))
            script.append(([http_answer(right("next"))], "stay"))
            assert ((await put(wire)).body, script) == (right("next"), [])


@pytest.mark.parametrize("first", ["refused", "silent"])
async def test_an_address_that_does_not_answer_does_not_hold_up_the_next_one(first: str, wired: Wired, monkeypatch):
    talk, _ = answering(http_answer(OK))
    async with wired(talk) as (wire, server):
        hosts = ("127.0.0.9", "127.0.0.1")
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, server.port)) for host in hosts]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: found)
        real = connector._try

        async def late(address: connector.Address) -> socket.socket:
            if address == found[0] and first == "silent":
                await asyncio.Event().wait()
            return await real(address)

        monkeypatch.setattr(connector, "_try", late)
        monkeypatch.setattr(connector, "_NEXT_ADDRESS_S", 0.01)
        assert (await put(wire)).body == OK


async def test_concurrent_requests_use_one_connection_each_and_a_few_are_kept_for_a_while(wired: Wired) -> None:
    together, closed = asyncio.Barrier(5), asyncio.Semaphore(0)

    async def talk(line: Line) -> None:
        await line.request()
        await together.wait()
        await line.send(http_answer(OK))
        await line.until_closed()
        closed.release()

    async with wired(talk, max_idle=2) as (wire, server):
        await asyncio.gather(*[put(wire) for _ in range(5)])
        await asyncio.gather(*(closed.acquire() for _ in range(3)))
        assert (server.connections, len(idle(wire))) == (5, 2)
        skip(KEEP_ALIVE_S)
        await asyncio.gather(*(closed.acquire() for _ in range(2)))


@pytest.mark.parametrize("end", ["timeout", "cancelled", "too large", "broken"])
async def test_a_connection_that_ended_badly_is_closed_and_not_used_again(end: str, wired: Wired) -> None:
    asked, closed = asyncio.Event(), asyncio.Event()
    first = {"too large": http_answer(b" " * 34_000_000), "broken": http_answer(OK, head="Content-Encoding: br\r\n")}

    async def talk(line: Line) -> None:
        await line.request()
        if asked.is_set():
            await line.send(http_answer(OK))
            return
        asked.set()
        if end == "timeout":
            skip(PATIENCE_S)
        with contextlib.suppress(OSError):
            await line.send(first.get(end, b""))
            await line.until_closed()
        closed.set()

    async with wired(talk) as (wire, server):
        task = asyncio.create_task(put(wire))
        await asked.wait()
        if end == "cancelled":
            task.cancel()
        with pytest.raises((asyncio.CancelledError, UnknownOutcome)):
            await task
        await closed.wait()
        assert (idle(wire), (await put(wire)).body, server.connections) == ([], OK, 2)


@pytest.mark.parametrize("polite", [True, False], ids=["closed", "reset"])
async def test_a_connection_closed_while_idle_is_replaced(polite: bool, wired: Wired) -> None:
    answered, closed = asyncio.Semaphore(0), asyncio.Semaphore(0)

    async def talk(line: Line) -> None:
        await line.request()
        await line.send(http_answer(OK))
        await answered.acquire()
        if polite:
            line.writer.close()
        line.reset()
        await line.writer.wait_closed()
        closed.release()

    async with wired(talk) as (wire, server):
        for _ in range(3):
            assert (await put(wire)).body == OK
            answered.release()
            await closed.acquire()
        assert server.connections == 3


async def test_closing_ends_idle_connections_and_a_request_under_way_survives_it(wired: Wired) -> None:
    asked, go_on, closed = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def talk(line: Line) -> None:
        if b"/orders/success/" in await line.request():
            asked.set()
            await go_on.wait()
        await line.send(http_answer(OK))
        await line.until_closed()
        closed.set()

    async with wired(talk) as (wire, _):
        task = asyncio.create_task(put(wire))
        await asked.wait()
        await wire.request("GET", "/quick", headers={})
        await wire.close()
        await closed.wait()
        go_on.set()
        assert ((await task).body, idle(wire)) == (OK, [])
        await wire.close()


async def tunnel(line: Line, asked: list[bytes]) -> None:
    asked.append(await line.request())
    host, port = asked[-1].split(b" ")[1].split(b":")
    reader, writer = await asyncio.open_connection(host.decode(), int(port))
    await line.send(b"HTTP/1.1 200 Connection established\r\n\r\n")

    async def forward(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            target.write(data)
            await target.drain()
        target.close()

    try:
        await asyncio.gather(forward(line.reader, writer), forward(reader, line.writer))
    finally:
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def test_a_proxy_may_speak_tls_itself_and_only_it_gets_its_password(wired, certificates, monkeypatch) -> None:
    (talk, seen), asked = answering(http_answer(OK), http_answer(OK)), list[bytes]()
    through = serving(lambda line: tunnel(line, asked), certificates.contexts["good"])
    async with wired(talk) as (wire, server), through as between:
        monkeypatch.setenv("HTTPS_PROXY", between.url.replace("//", "//user:geheim@"))
        assert ([(await put(wire)).body for _ in range(2)], between.connections, server.connections) == ([OK] * 2, 1, 1)
        await wire.close()
    password = base64.b64encode(b"user:geheim").decode()
    assert f"proxy-authorization: basic {password}\r\n".lower() in asked[0].decode().lower()
    assert b"authorization" not in seen[0].lower()


@pytest.mark.parametrize("answer, code, reason", [
    (b"407 No\r\nProxy-Authenticate: Basic realm=x", "proxy_refused", "proxy_wrong_password"),
    (b"407 No\r\nProxy-Authenticate: NTLM\r\nProxy-Authenticate: Negotiate", "proxy_refused", "proxy_scheme"),
    (b"407 No", "proxy_refused", "proxy_wrong_password"), (b"502 Bad Gateway", "proxy_refused", "proxy_cannot"),
    (b"403 No", "proxy_refused", "proxy_refused"), (b"", "unreachable", "proxy_unreachable"),
    (b"no http\r\n\r\n", "unreachable", "proxy_unreachable"), (None, "connect_timeout", "proxy_unreachable"),
    (b"200 OK", "connect_timeout", "proxy_silent"),  # and then nothing, or a page
])  # fmt: skip
async def test_a_request_refused_by_the_proxy_was_not_sent(answer, code, reason, make_wire, monkeypatch) -> None:
    async def talk(line: Line) -> None:
        await line.request()
        if answer is not None:
            is_whole = b"http" in answer or not answer
            await line.send(answer if is_whole else b"HTTP/1.1 %b\r\nContent-Length: 0\r\n\r\n" % answer)
        if reason == "proxy_silent":
            await hang(line)
        elif answer is None:
            skip(PATIENCE_S)
            await line.until_closed()

    async with serving(talk, None) as between:
        monkeypatch.setenv("HTTPS_PROXY", f"http://user:geheim@127.0.0.1:{between.port}")
        caught = await error_of(put(make_wire("https://service.invalid")))
    assert (type(caught), caught.code, caught.reason) == (NotSent, code, reason)
    assert "from HTTPS_PROXY" in sentence(caught.detail) and "geheim" not in str(caught)


async def test_no_tls_keys_are_written(wired: Wired, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / "keys"))
    talk, _ = answering(http_answer(OK))
    async with wired(talk) as (wire, _):
        assert (await put(wire)).body == OK
    assert not (tmp_path / "keys").exists()


async def test_authorities_of_the_environment_are_trusted(serve, make_wire, certificates, monkeypatch) -> None:
    talk, _ = answering(http_answer(OK))
    async with serve(talk) as server:
        assert (await error_of(put(make_wire(server, ca_file=None)))).code == "tls_failed"
        monkeypatch.setenv("SSL_CERT_FILE", str(certificates.ca_file))
        assert (await put(make_wire(server, ca_file=None))).body == OK


@pytest.mark.interface("Conventions")
@pytest.mark.parametrize("url", ["http://127.0.0.1", "HTTP://x", "ftp://x", "127.0.0.1", ""])
def test_only_https(url: str) -> None:
    with pytest.raises(ValueError, match="https"):
        Wire(base_url=url, timeout_s=1)


async def test_an_unexpected_os_error_is_an_unknown_outcome_and_a_bug_is_raised(make_wire: MakeWire) -> None:
    errors = [OSError("geheim"), KeyError("x")]

    def fail(request: httpx.Request) -> httpx.Response:
        raise errors.pop(0)

    wire = make_wire("https://x", transport=httpx.MockTransport(fail))
    caught = await error_of(put(wire))
    assert (type(caught), caught.code, caught.detail) == (UnknownOutcome, "connection_lost", "OSError")
    with pytest.raises(KeyError):
        await put(wire)
