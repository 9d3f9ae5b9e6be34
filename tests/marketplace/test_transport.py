"""Answers that are cut, mixed, slow or followed by others, from a real TLS server.

Whatever it says, a request is never sent twice, one that it saw is never called unsent, and the next request gets its
own answer or none.
"""

import asyncio
import gzip
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from random import Random

import pytest
from tests.fuzz.grammar import TIMES
from tests.marketplace.servers import PATIENCE_S, Certificates, Line, http_answer, serving

from orderbridge.errors import MarketplaceError, NotSent, UnknownOutcome
from orderbridge.net import connector, http
from orderbridge.net.connection import HEAD_LIMIT, Trail
from orderbridge.net.connector import connect
from orderbridge.net.http import Answer, Wire


def right(name: str) -> bytes:
    return http_answer(f'{{"for": "{name}", "words": "{"çok " * 20}"}}'.encode())


def chunked(name: str) -> bytes:
    body = right(name).partition(b"\r\n\r\n")[2]
    pieces = (body[:7], body[7:8], body[8:])
    chunks = b"".join(b"%x;why=not\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\nTrailer: x\r\n\r\n"


def packed(name: str) -> bytes:
    return http_answer(gzip.compress(right(name).partition(b"\r\n\r\n")[2]), head="Content-Encoding: gzip\r\n")


def after_hints(name: str) -> bytes:
    return b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" * 3 + right(name)


Form = Callable[[str], bytes]
FORMS: tuple[Form, ...] = (right, chunked, packed, after_hints)


@dataclass
class Words:
    """What the server says to one request: pieces, each in a TLS record of its own, and how it goes on."""

    pieces: list[bytes] = field(default_factory=list)
    then: str = "stay"  # close, reset


@dataclass
class Talk:
    """A service that answers as the test says."""

    words: dict[str, Words] = field(default_factory=dict)
    seen: list[str] = field(default_factory=list)
    lines: int = 0
    wire: Wire = field(init=False)
    port: int = 0
    hung_up: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def tls(self) -> ssl.SSLContext:
        assert isinstance(self.wire._transport, http.Connections)
        return self.wire._transport._tls

    async def serve(self, line: Line) -> None:
        self.lines += 1
        while head := await line.request():
            name = head.split(b" ")[1].decode().removeprefix("/")
            self.seen.append(name)
            words = self.words.pop(name, Words([right(name)]))
            for piece in words.pieces:
                await line.send(piece)
                await asyncio.sleep(0)
            if words.then == "reset":
                line.reset()
            if words.then != "stay":
                return
        self.hung_up.set()

    async def ask(self, name: str, words: Words | None = None) -> Answer | MarketplaceError:
        if words is not None:
            self.words[name] = words
        before = len(self.seen)
        try:
            answer: Answer | MarketplaceError = await self.wire.request("PUT", f"/{name}", headers={})
        except MarketplaceError as error:
            answer = error
        assert self.seen[before:] == [name]  # once, and so it is not unsent
        assert isinstance(answer, Answer | UnknownOutcome)
        return answer

    async def all_is_well(self, name: str) -> None:
        answer = await self.ask(name)
        assert isinstance(answer, Answer)
        assert f'"{name}"' in answer.body.decode()


@pytest.fixture
async def talk(certificates: Certificates) -> AsyncIterator[Talk]:
    talk = Talk()
    async with serving(talk.serve, certificates.good) as server:
        talk.wire = Wire(base_url=server.url, timeout_s=PATIENCE_S, ca_file=certificates.ca_file)
        talk.port = server.port
        yield talk
        await talk.wire.close()


def places(whole: bytes, count: int) -> range:
    """Some of the bytes of an answer; all of them with ORDERBRIDGE_TEST_FUZZ=50."""
    return range(0, len(whole), max(1, len(whole) // (count * TIMES)))


every_form = pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)


@every_form
async def test_an_answer_cut_at_any_byte_is_no_answer_and_one_in_two_parts_is_one(talk: Talk, form: Form) -> None:
    whole = form("cut")
    for place in places(whole, 30):
        answer = await talk.ask("cut", Words([whole[:place], whole[place:]]))
        assert isinstance(answer, Answer)
        assert answer.body == right("cut").partition(b"\r\n\r\n")[2]
    assert talk.lines == 1
    for place in places(whole, 30):
        error = await talk.ask("cut", Words([whole[:place]], "reset" if place % 2 else "close"))
        assert isinstance(error, UnknownOutcome)
        assert (error.code, error.http_status) == ("connection_lost", None)
    await talk.all_is_well("next")


@every_form
async def test_what_follows_an_answer_is_never_the_next_one_and_a_changed_byte_harms_only_itself(
    talk: Talk, form: Form
) -> None:
    random = Random(form.__name__)
    for turn in range(20 * TIMES):
        more = random.choice([form("stale"), random.randbytes(9), b"\r\n", b"HTTP/1.1 200", b"0"])
        pieces = [form("last") + more] if turn % 2 else [form("last"), more]
        answer = await talk.ask("last", Words(pieces, random.choice(["stay", "close"])))
        assert isinstance(answer, Answer)
        await talk.all_is_well(f"next-{turn}")
        broken = bytearray(form("broken"))
        for _ in range(random.choice([1, 1, 5])):
            broken[random.randrange(len(broken))] = random.choice(b"\x00\r\n :;0123456789abcdef{}\xff")
        await talk.ask("broken", Words([bytes(broken)], "close"))


async def test_bytes_that_are_no_answer_and_a_head_without_end_harm_nothing(talk: Talk) -> None:
    random, ok = Random(1), b"HTTP/1.1 200 OK\r\n"
    endless = [
        ok + b"X: " + b"x" * 2 * HEAD_LIMIT,
        ok + b"X: y\r\n" * 20_000,
        b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000,
    ]
    for said in endless:
        assert isinstance(await talk.ask("long", Words([said], "close")), UnknownOutcome)
    for _ in range(60 * TIMES):
        noise = random.randbytes(random.choice([1, 40, 2000])).replace(b"\n", b"?")  # a line end could make it one
        said = random.choice([b"", ok, b"HTTP/1.1 "]) + noise
        assert isinstance(await talk.ask("none", Words([said], random.choice(["close", "reset"]))), UnknownOutcome)
    await talk.all_is_well("next")


# ---- the connection itself, and how it is made


async def test_a_connection_that_closed_before_it_was_asked_sent_nothing(talk: Talk) -> None:
    connection = await connect("127.0.0.1", talk.port, tls=talk.tls, proxy=None)
    connection.close()
    trail = Trail()
    with pytest.raises(NotSent):
        await connection.ask("GET", b"/", [(b"Host", b"x")], b"", trail)
    assert not trail.left
    await connection.gone
    assert talk.seen == []


async def test_an_idle_connection_is_closed_when_its_time_is_over(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "KEEP_ALIVE_S", 0.01)
    await talk.all_is_well("first")
    async with asyncio.timeout(60):
        await talk.hung_up.wait()


@pytest.mark.parametrize("first", ["refused", "silent"])
async def test_an_address_that_does_not_answer_does_not_hold_up_the_next_one(first: str, talk: Talk, monkeypatch):
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, talk.port)) for host in ("127.0.0.9", "127.0.0.1")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: found)
    real = connector._try

    async def late(address: connector.Address) -> socket.socket:
        if address == found[0] and first == "silent":
            await asyncio.Event().wait()
        return await real(address)

    monkeypatch.setattr(connector, "_try", late)
    monkeypatch.setattr(connector, "_NEXT_ADDRESS_S", 0.01)
    connection = await connect("127.0.0.1", talk.port, tls=talk.tls, proxy=None)
    connection.close()
    await connection.gone
