"""Every action of the outbox meets every answer, given once and given always.

The tables say by hand what docs/interface.md (Errors) and docs/design.md (Behaviour) make of it: how the row ends, how
that is known, how often it was sent and how long it waited in between.

All of it takes minutes. A usual run has every action meet one answer of each class, given once and given always; the
other answers of a class are given once, each to one action by turns. With ORDERBRIDGE_TEST_MATRIX=full in the
environment everything meets everything.
"""

import itertools
import json
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.jobs.shop import Shop
from tests.jobs.test_verdicts import ACTIONS, asked, effects, is_so

from orderbridge.errors import NotSent
from orderbridge_sandbox import Fault, When
from orderbridge_sandbox.faults import FaultKind

FULL = os.environ.get("ORDERBRIDGE_TEST_MATRIX") == "full"
BEFORE, AFTER = When.BEFORE, When.AFTER
ANSWERED_S = 0.2  # what a moment takes at most
TIMEOUT_S = 20.0
FAMILY = {
    "accept": "look",
    "on_the_way": "look",
    "complete": "complete",
    "cancel": "cancel",
    "open_restaurant": "restaurant",
    "close_restaurant": "restaurant",
    "activate_food": "food",
    "deactivate_food": "food",
}


# ---- the answers -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    """What the service does with a call, and to which class of the tables that belongs."""

    kind: str
    fault: dict[str, Any] = field(default_factory=dict)
    code: str | None = None  # of a refusal
    whens: tuple[When, ...] = (BEFORE,)

    def script(self, action: str, when: When, times: int | None) -> Fault:
        return Fault(operation=action, when=when, times=times, **self.fault)


def words(status: int, error: str, message: str | None = None) -> dict[str, Any]:
    envelope = {"status": False, "error": error} | ({} if message is None else {"message": message})
    return {"status": status, "body": json.dumps(envelope, ensure_ascii=False).encode()}


def page(status: int) -> dict[str, Any]:
    return {"status": status, "body": b"<html><body><h1>Sorry</h1></body></html>", "content_type": "text/html"}


def refused(code: str, fault: dict[str, Any]) -> Answer:
    return Answer("refused", fault, code)


def ok(body: bytes) -> Answer:
    return Answer("ok", {"status": 200, "body": body}, whens=(AFTER,))


def doubtful(kind: str, fault: dict[str, Any]) -> Answer:
    return Answer(kind, fault, whens=(BEFORE, AFTER))


def unknown(fault: dict[str, Any]) -> Answer:
    return doubtful("unknown", fault)


DEEP = 20_000
ANSWERS = {
    "200 data of another shape": ok(b'{"status": true, "data": {"a": [1]}}'),
    "200 without data": ok(b'{"status": true}'),
    "200 BOM": ok(b'\xef\xbb\xbf{"status": true, "data": "OK"}'),
    "200 invalid UTF-8": ok(b'{"status": true, "data": "\xff\xc3"}'),
    "200 NaN": ok(b'{"status": true, "data": NaN}'),
    "200 beyond 64 bits": ok(b'{"status": true, "data": 18446744073709551617}'),
    "200 text/html around JSON": Answer("ok", {"kind": FaultKind.CONTENT_TYPE, "content_type": "text/html"}),
    "200 gzip": Answer("ok", {"kind": FaultKind.GZIP}),
    "200 drip in time": Answer("ok", {"kind": FaultKind.DRIP, "size": 1, "seconds": 0.1}),
    "200 status false": refused("refused", words(200, "olmaz")),
    "200 sipariş bulunamadı": refused("order_not_found", words(200, "sipariş bulunamadı")),
    "400 other words": refused("refused", words(400, "olmaz")),
    "403 URL hatalı": refused("bad_url_id", words(403, "URL hatalı")),
    "403 other words": refused("refused", words(403, "yasak")),
    "404 sipariş bulunamadı": refused("order_not_found", words(404, "sipariş bulunamadı")),
    "404 ürün bulunamadı": refused("food_not_found", words(404, "ürün bulunamadı")),
    "404 restoran bulunamadı": refused("restaurant_not_found", words(404, "restoran bulunamadı")),
    "409 other words": refused("refused", words(409, "olmaz")),
    "422 eksik alan": refused("missing_field", words(422, "eksik alan", "preparing_time is required")),
    "500 eksik alan": refused("missing_field", words(500, "eksik alan")),
    "502 ürün bulunamadı": refused("food_not_found", words(502, "ürün bulunamadı")),
    "401 Token expired or invalid": Answer("401", words(401, "yetkisiz erişim", "Token expired or invalid")),
    "401 Invalid or expired": Answer("401", words(401, "yetkisiz erişim", "Invalid or expired access token")),
    "401 no body": Answer("401", {"status": 401}),
    "200 yetkisiz erişim": Answer("401", words(200, "yetkisiz erişim")),
    "429 çok fazla istek": Answer("429", words(429, "çok fazla istek")),
    "429 no body": Answer("429", {"status": 429}),
    "429 page": Answer("429", page(429)),
    "503 çok fazla istek": Answer("429", words(503, "çok fazla istek")),
    "500 JSON": doubtful("5xx", words(500, "olmaz")),
    "500 page": doubtful("5xx", page(500)),
    "500 no body": doubtful("5xx", {"status": 500}),
    "503 page": doubtful("5xx", page(503)),
    "502 page": unknown(page(502)),
    "502 JSON": unknown(words(502, "olmaz")),
    "504 no body": unknown({"status": 504}),
    "200 page": unknown(page(200)),
    "200 no body": unknown({"status": 200}),
    "200 truncated JSON": unknown({"status": 200, "body": b'{"status": true, "data": "OK"'}),
    "200 nested deeply": unknown({"status": 200, "body": b'{"status": true, "data": %s}' % (b"[" * DEEP + b"]" * DEEP)}),
    "204": unknown({"status": 204}),
    "302 to another host": unknown({"status": 302, "headers": {"Location": "https://elsewhere.test/"}}),
    "307 to http": unknown({"status": 307, "headers": {"Location": "http://sandbox.test/"}}),
    "400 page": unknown(page(400)),
    "404 page": unknown(page(404)),
    "409 no body": unknown({"status": 409}),
    "dropped": unknown({"kind": FaultKind.DROP}),
    "truncated": Answer("unknown", {"kind": FaultKind.TRUNCATE}, whens=(AFTER,)),
    "hang": doubtful("hang", {"kind": FaultKind.HANG}),
    "drip for ever": Answer("hang", {"kind": FaultKind.DRIP, "size": 1, "seconds": 1.0}, whens=(AFTER,))
}  # fmt: skip


# ---- the tables ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class End:
    """How a row ends: state, error_code, known_by, attempts; and the seconds between its requests, least and most."""

    state: str
    code: str | None
    known_by: str | None
    attempts: int
    waits: tuple[tuple[float, float], ...] = ()


def at_once(after: float = 0.0) -> tuple[float, float]:
    return after, after + ANSWERED_S


def spread(wait: float, after: float = 0.0) -> tuple[float, float]:
    """A wait, and up to a quarter more."""
    return after + wait, after + wait * 1.25 + ANSWERED_S


def looks(*waits: float) -> tuple[tuple[float, float], ...]:
    """Sent again as soon as a poll has looked: the polls keep their 30 s."""
    return tuple((wait - 1, wait + 2) for wait in waits)


def growing(after: float = 0.0) -> tuple[tuple[float, float], ...]:
    return spread(2, after), spread(10, after), spread(60, after)


def ends(after: float, kind: str) -> dict[tuple[str, When, str], End]:
    """An outcome that stays unknown; `after` seconds the client gives up waiting for it."""
    resent = (spread(2, after),)
    return {
        # without effect, given once
        **{(f"{kind} once", BEFORE, of): End("done", None, "answer", 2, resent) for of in FAMILY.values()},
        (f"{kind} once", BEFORE, "look"): End("done", None, "answer", 2, looks(30)),
        # it had its effect, and the answer was lost once
        (f"{kind} once", AFTER, "look"): End("done", None, "poll", 1),
        (f"{kind} once", AFTER, "complete"): End("done", None, "refusal", 2, resent),
        (f"{kind} once", AFTER, "cancel"): End("done", None, "poll", 2, resent),
        (f"{kind} once", AFTER, "food"): End("done", None, "answer", 2, resent),
        (f"{kind} once", AFTER, "restaurant"): End("done", None, "status", 1),
        # without effect, for ever: absence proves an accept undone, and nothing else
        (f"{kind} always", BEFORE, "look"): End("failed", "service_error", "poll", 4, looks(30, 30, 30)),
        (f"{kind} always", BEFORE, "complete"): End("failed", "outcome_unknown", "poll", 4, growing(after)),
        (f"{kind} always", BEFORE, "cancel"): End("failed", "outcome_unknown", "poll", 4, growing(after)),
        (f"{kind} always", BEFORE, "food"): End("failed", "outcome_unknown", None, 4, growing(after)),
        (f"{kind} always", BEFORE, "restaurant"): End("failed", "service_error", "status", 4, growing(after)),
        # the first one had its effect, and no answer ever comes
        (f"{kind} always", AFTER, "look"): End("done", None, "poll", 1),
        (f"{kind} always", AFTER, "complete"): End("failed", "outcome_unknown", "poll", 4, growing(after)),
        (f"{kind} always", AFTER, "cancel"): End("done", None, "poll", 3, growing(after)[:2]),
        (f"{kind} always", AFTER, "food"): End("failed", "outcome_unknown", None, 4, growing(after)),
        (f"{kind} always", AFTER, "restaurant"): End("done", None, "status", 1),
    }


HANGS = ends(TIMEOUT_S, "hang")
# The look that falls into the second silence comes here when that is over, before a third request.
HANGS["hang always", AFTER, "cancel"] = End("done", None, "poll", 2, growing(TIMEOUT_S)[:1])

TWO, TWO_AND_TEN = growing()[:1], growing()[:2]
TABLE: dict[tuple[str, When, str], End] = {
    **ends(0.0, "unknown"),
    **HANGS,
    **{("5xx once", BEFORE, of): End("done", None, "answer", 2, TWO) for of in FAMILY.values()},
    ("5xx once", AFTER, "look"): End("done", None, "poll", 2, TWO),
    ("5xx once", AFTER, "complete"): End("done", None, "refusal", 2, TWO),
    ("5xx once", AFTER, "cancel"): End("done", None, "poll", 2, TWO),
    ("5xx once", AFTER, "food"): End("done", None, "answer", 2, TWO),
    ("5xx once", AFTER, "restaurant"): End("done", None, "answer", 2, TWO),
    ("5xx always", BEFORE, "look"): End("failed", "service_error", "poll", 4, growing()),
    ("5xx always", BEFORE, "complete"): End("failed", "outcome_unknown", "poll", 4, growing()),
    ("5xx always", BEFORE, "cancel"): End("failed", "outcome_unknown", "poll", 4, growing()),
    ("5xx always", BEFORE, "food"): End("failed", "service_error", None, 4, growing()),
    ("5xx always", BEFORE, "restaurant"): End("failed", "service_error", "status", 4, growing()),
    ("5xx always", AFTER, "look"): End("done", None, "poll", 3, TWO_AND_TEN),
    ("5xx always", AFTER, "complete"): End("failed", "outcome_unknown", "poll", 4, growing()),
    ("5xx always", AFTER, "cancel"): End("done", None, "poll", 3, TWO_AND_TEN),
    ("5xx always", AFTER, "food"): End("failed", "service_error", None, 4, growing()),
    ("5xx always", AFTER, "restaurant"): End("done", None, "status", 4, growing()),
}
VALID_MINUTES = 3


def cases(others: int) -> list[Any]:
    """Answer, action and when. What is not the first of its class meets so many actions only, by turns."""
    made, classes = [], set()
    for turn, (name, answer) in enumerate(ANSWERS.items()):
        known = (answer.kind, answer.code) in classes
        classes.add((answer.kind, answer.code))
        by_turns = (ACTIONS * 2)[turn % len(ACTIONS) :][:others]
        actions = by_turns if known and not FULL else ACTIONS
        made += [
            pytest.param(name, action, when, id=f"{name}-{action}-{when}")
            for when in answer.whens
            for action in actions
        ]
    return made


def waits(shop: Shop, action: str) -> list[float]:
    times = [call.at for call in shop.calls(action)]
    return [(later - at).total_seconds() for at, later in itertools.pairwise(times)]


def check(shop: Shop, action: str, ended: dict[str, Any], end: End) -> None:
    told = ended["state"], ended["error_code"], ended["known_by"], ended["attempts"]
    assert told == (end.state, end.code, end.known_by, end.attempts)
    took = waits(shop, action)
    assert len(took) == len(end.waits), took
    assert [least <= wait <= most for wait, (least, most) in zip(took, end.waits, strict=True)].count(False) == 0, took
    assert bool(ended["error_text"]) == (end.code is not None)


@pytest.mark.interface("Endpoints 5", "Endpoints 14", "Endpoints 15")
@pytest.mark.parametrize("name, action, when", cases(others=1))
async def test_an_answer_given_once(shop: Shop, name: str, action: str, when: When) -> None:
    answer = ANSWERS[name]
    row = await asked(shop, action)
    shop.world.faults.add(answer.script(action, when, 1))
    ended = await shop.verdict(row)
    end = {
        "ok": End("done", None, "answer", 1),
        "refused": End("refused", answer.code, "answer", 1),
        "401": End("done", None, "answer", 1, (at_once(),)),
        "429": End("done", None, "answer", 1, ((30.0, 30.0 + ANSWERED_S),)),
    }.get(answer.kind)
    check(shop, action, ended, end or TABLE[f"{answer.kind} once", when, FAMILY[action]])
    assert is_so(shop.world, action) == (answer.kind != "refused")
    assert effects(shop, action) == (answer.kind != "refused")
    assert len(shop.calls("login")) == (2 if answer.kind == "401" else 1)


@pytest.mark.interface("Errors", "Acknowledgement rules 4")
@pytest.mark.parametrize("name, action, when", cases(others=0))
async def test_an_answer_given_always(shop: Shop, name: str, action: str, when: When) -> None:
    answer = ANSWERS[name]
    waiting = {"valid_minutes": VALID_MINUTES} if answer.kind in ("401", "429") else {}
    row = await asked(shop, action, **waiting)
    shop.world.faults.add(answer.script(action, when, None))
    ended = await shop.verdict(row)
    expired = End("expired", "not_permitted", None, 0)
    match answer.kind:
        case "ok":
            check(shop, action, ended, End("done", None, "answer", 1))
        case "refused":
            check(shop, action, ended, End("refused", answer.code, "answer", 1))
        case "429":
            times = VALID_MINUTES * 60 // 30
            check(shop, action, ended, End("expired", "expired", None, 0, ((30.0, 30.2),) * (times - 1)))
        case "401":
            # One login and one repeat, then it is the row alone that is refused: it waits for a minute or more.
            took = waits(shop, action)
            assert took[0] == pytest.approx(0.0, abs=ANSWERED_S)
            assert min(took[1:]) >= 60
            assert len(shop.calls("login")) == 2
            assert (ended["state"], ended["error_code"], ended["attempts"]) == (expired.state, expired.code, 0)
        case kind:
            check(shop, action, ended, TABLE[f"{kind} always", when, FAMILY[action]])
    assert is_so(shop.world, action) == (answer.kind == "ok" or when is AFTER)
    await quiet(shop, row, action)


async def quiet(shop: Shop, row: int, action: str) -> None:
    """A row with its end stays as it is, and nothing of it is sent any more."""
    ended, sent = shop.row(row), len(shop.calls(action))
    for _ in range(3):
        await shop.poll()
        await shop.drain()
    assert (shop.row(row), len(shop.calls(action))) == (ended, sent)


# ---- requests that never leave ---------------------------------------------------------------------------------------


def failing(code: str, *, then: Callable[[], None] = lambda: None) -> Callable[[], Awaitable[None]]:
    async def fail() -> None:
        then()
        raise NotSent(code)

    return fail


@pytest.mark.parametrize(
    "action, code", [*((action, "connection_refused") for action in ACTIONS), ("accept", "tls_failed")]
)
async def test_a_request_that_does_not_leave_is_sent_soon_and_waits_until_its_row_expires(
    shop: Shop, action: str, code: str
) -> None:
    row = await asked(shop, action, valid_minutes=VALID_MINUTES)
    knocks: list[float] = []

    def again() -> None:
        knocks.append(shop.clock.monotonic())
        shop.line.when_leaving(action, failing(code, then=again))

    shop.line.when_leaving(action, failing(code, then=again))
    await shop.drain()
    waiting = shop.row(row)
    assert (waiting["state"], waiting["error_code"], waiting["attempts"]) == ("pending", code, 0)
    assert shop.count("delivery_action_attempts") == 0
    check(shop, action, await shop.verdict(row), End("expired", "expired", None, 0))
    assert (shop.calls(action), is_so(shop.world, action)) == ([], False)
    gaps = [later - at for at, later in itertools.pairwise(knocks)]
    assert 1 <= gaps[0] <= 1.5
    assert min(gaps) >= 1
