"""Any answer becomes a value or one of the documented errors, in bounded time."""

import asyncio
import contextlib
import json
import re
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.fuzz import grammar
from tests.fuzz.grammar import examples
from tests.marketplace import samples
from tests.marketplace.sessions import a_session

from orderbridge import errors
from orderbridge.errors import MarketplaceError
from orderbridge.marketplace import answers
from orderbridge.marketplace.answers import judge, read_envelope
from orderbridge.marketplace.client import Client, login
from orderbridge.marketplace.documents import read_listing, read_order
from orderbridge.marketplace.scan import BROKEN, BrokenText, decode, read_members, utf8
from orderbridge.model import Action, Document, Order, Token
from orderbridge.net.http import Answer
from orderbridge.rules.tokens import VALIDITY, expires
from orderbridge.texts import sentence

ENDS = {errors.RateLimited, errors.Refused, errors.ServiceFailed, errors.Unauthorized, errors.UnknownOutcome}
REASONS = {None, "not_json", "not_an_object", "payment_key_missing", "payment_key_invalid"}
READERS = [
    answers.read_grant,
    answers.read_restaurants,
    answers.read_restaurant_status,
    answers.read_cancel_reasons,
    answers.read_variables,
]
UNBOUNDED = {"note", "address_description"}
NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)
GOOD = grammar.write(samples.order(payment_key=samples.OTHER_KEY))


def can_be_reported(error: MarketplaceError) -> None:
    """An error can be logged and stored, whatever was in the answer."""
    assert type(error) in ENDS
    assert re.fullmatch("[a-z_]+", error.code)
    detail = sentence(error.detail)
    assert len(detail) <= 200
    assert detail.isprintable()


def can_be_stored(order: Order) -> None:
    """Each column takes what was read for it."""
    for holder in (order.facts, *order.facts.items, *(option for item in order.facts.items for option in item.options)):
        for field in fields(holder):
            value = getattr(holder, field.name)
            if isinstance(value, str):
                assert field.name in UNBOUNDED or len(value) <= 255
                assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]", value)
            elif isinstance(value, Decimal):
                assert value.is_finite()
                assert value == value.quantize(Decimal("0.0001"))
                assert abs(value) < 10**10
            elif isinstance(value, int):
                assert -(2**63) <= value < 2**63
    assert all(re.fullmatch(r"[a-z_]+(:[a-z_.0-9]+)?", code) for code in (*order.problems, *order.remarks))


# ---- the list --------------------------------------------------------------------------------------------------------


@examples(120)
@given(body=grammar.listings, status=grammar.statuses)
def test_any_answer_to_a_poll_is_a_list_or_an_error(body: bytes, status: int) -> None:
    try:
        documents = read_listing(body, http_status=status)
    except MarketplaceError as error:
        can_be_reported(error)
        assert error.http_status == status
        return
    for document in documents:
        assert document.reason in REASONS
        assert (document.payment_key is None) is (document.reason is not None)
        if document.reason is None:
            can_be_stored(read_order(document, payment_codes=samples.CODES))


@examples(75)
@given(element=grammar.elements, codes=st.dictionaries(grammar.texts, grammar.texts, max_size=3))
def test_any_element_is_an_order_that_can_be_stored_or_has_a_reason(element: str, codes: dict[str, str]) -> None:
    (document,) = read_listing(samples.listing(element))
    if document.reason is None:
        can_be_stored(read_order(document, payment_codes=codes))


@examples(75)
@given(elements=st.lists(grammar.elements, max_size=5), place=st.integers(0, 5))
def test_a_good_order_is_read_the_same_whatever_its_neighbours_are(elements: list[str], place: int) -> None:
    (alone,) = read_listing(samples.listing(GOOD))
    documents = read_listing(samples.listing(*elements[:place], GOOD, *elements[place:]))
    assert len(documents) == len(elements) + 1
    assert documents[min(place, len(elements))] == alone


BRACKETS = re.compile(r'[\[\]{}"\\]')


@st.composite
def mutilated(draw: st.DrawFn) -> str:
    """A good order with a piece of its text left out or doubled; the brackets and quotes stay as many as they were."""
    start = draw(st.integers(1, len(GOOD) - 2))
    piece = BRACKETS.split(GOOD[start:-1], maxsplit=1)[0][: draw(st.integers(1, 12))]
    return GOOD[:start] + piece * draw(st.sampled_from([0, 2, 50])) + GOOD[start + len(piece) :]


@examples(75)
@given(neighbours=st.lists(grammar.orders(), min_size=1, max_size=4), bad=mutilated(), data=st.data())
def test_one_mutilated_element_changes_no_other(neighbours: list[str], bad: str, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(neighbours)))
    without = read_listing(samples.listing(*neighbours))
    documents = read_listing(samples.listing(*neighbours[:place], bad, *neighbours[place:]))
    assert documents[:place] + documents[place + 1 :] == without
    assert documents[place].payload == bad


@examples(60)
@given(body=grammar.listings)
def test_what_is_cut_out_stands_in_the_body_as_it_was(body: bytes) -> None:
    try:
        pieces = read_members(body, cut="data", take=lambda *piece: piece).get("data")
    except BrokenText:
        return
    at = 0
    for raw, value in pieces if isinstance(pieces, tuple) else ():
        at = body.index(raw, at) + len(raw)
        if value is BROKEN:
            with pytest.raises(BrokenText):
                decode(utf8(raw))
        else:
            decode(utf8(raw))


@examples(60)
@given(value=grammar.nested.map(grammar.write))
@example(value='{"a": [1, "]", {"b": null}], "a": 2}')
def test_a_value_means_what_the_usual_reader_says(value: str) -> None:
    ours = decode(value)
    usual = json.loads(value, parse_float=str, parse_int=str, parse_constant=str, strict=False)
    assert _same(ours, usual)


def _same(ours: Any, usual: Any) -> bool:
    """Numbers apart: the usual reader does not hold them all."""
    if isinstance(ours, dict):
        return ours.keys() == usual.keys() and all(_same(ours[key], usual[key]) for key in ours)
    if isinstance(ours, list):
        return len(ours) == len(usual) and all(map(_same, ours, usual))
    if isinstance(ours, int | Decimal) and not isinstance(ours, bool):
        return ours == Decimal(usual)
    return bool(ours == usual)


# ---- everything else -------------------------------------------------------------------------------------------------


@examples(120)
@given(body=grammar.bodies, status=grammar.statuses)
def test_any_answer_is_a_value_or_an_error(body: bytes, status: int) -> None:
    try:
        data = read_envelope(status, body)
    except MarketplaceError as error:
        can_be_reported(error)
        return
    for read in READERS:
        try:
            read(data)
        except errors.UnknownOutcome as error:
            assert error.code == "malformed_data"


@examples(60)
@given(
    members=st.recursive(
        st.none() | st.booleans() | st.integers() | grammar.texts, lambda one: st.lists(one, max_size=2)
    )
    | st.dictionaries(
        st.sampled_from(["status", "data", "error", "message"]), grammar.texts | st.booleans() | st.none()
    ),
    status=st.integers(100, 999),
)
def test_any_members_under_any_status_are_judged(members: object, status: int) -> None:
    try:
        judge(status, members)
    except MarketplaceError as error:
        can_be_reported(error)
    else:
        assert 200 <= status < 300


class Told:
    """A line on which each request gets the next answer; after the last one, a plain OK."""

    def __init__(self, answers: list[tuple[int, bytes]]) -> None:
        self._answers = iter(answers)
        self.asked = 0
        self.timeout_s = 20.0

    async def admit(self, *_: object) -> None:
        pass

    @contextlib.asynccontextmanager
    async def login(self) -> AsyncIterator[None]:
        yield

    async def request(self, *_: object, **__: object) -> Answer:
        self.asked += 1
        status, body = next(self._answers, (200, samples.success("OK")))
        return Answer(status, body)


CALLS = [
    lambda client: client.restaurants(),
    lambda client: client.restaurant_status("x"),
    lambda client: client.current_orders(),
    lambda client: client.acknowledge(samples.KEY),
    lambda client: client.act(Action.CANCEL, samples.KEY, 1),
    lambda client: client.cancel_reasons(),
    lambda client: client.variables(),
]
answers = st.lists(st.tuples(grammar.statuses, grammar.bodies), max_size=5)


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@examples(80)
@given(replies=answers, calls=st.lists(st.sampled_from(CALLS), min_size=1, max_size=3))
def test_any_answers_end_in_a_value_or_an_error(runner, replies, calls):
    """Within a bounded number of requests: one login and the call, once more of each after a 401, a probe, a login."""
    line: Any = Told(replies)

    async def obtain() -> Token:
        grant = await login(line, app_secret_key="an app's secret", rest_secret_key="a branch's secret")
        return Token(grant.access_token, NOW, expires(grant.expiration_date, NOW, ZoneInfo("Europe/Istanbul")))

    async def all_calls() -> None:
        client = Client(line, a_session(obtain))
        for call in calls:
            try:
                await call(client)
            except MarketplaceError as error:
                assert type(error) in ENDS | {errors.NotSent, errors.LoginRefused}
        token = client._session.current
        assert token is None or (token.access_token.isascii() and NOW < token.expires_utc <= NOW + VALIDITY)

    runner.run(all_calls())
    assert line.asked <= 6 * len(calls)


@examples(75)
@given(written=grammar.texts | st.none(), later=st.timedeltas(timedelta(0), timedelta(days=400)))
def test_any_text_for_a_tokens_end_gives_one_within_a_day(written: str | None, later: timedelta) -> None:
    now = NOW + later
    assert now < expires(written, now, ZoneInfo("Europe/Istanbul")) <= now + VALIDITY


# ---- no end, and no bounds -------------------------------------------------------------------------------------------

N = 50_000
LONG = {
    "brackets of two kinds": '{"status": true, "data": [' + "[" * N + "{[}" * N + "]}",
    "brackets without an end": '{"status": true, "data": [' + "[{" * N,
    "brackets without a beginning": '{"status": true, "data": [' + "{" * N + "]}" * N,
    "broken members": '{"status": true, ' + '"a": nul,\n' * 2 * N + '"data": []}',
    "broken elements": '{"status": true, "data": [' + "nul,\n" * N + "0]}",
    "accents on one letter": '{"status": false, "error": "a' + "\u0300\u0316" * 2 * N + '"}',
    "accents in a message": '{"error": "yetkisiz erişim", "message": "a' + "\u0300\u0316" * 2 * N + '"}',
    "accents as a way to pay": '{"status": true, "data": [{"payment_key": "%s", "payment_method": "a%s"}]}'
    % (samples.KEY, "\u0300\u0316" * N),
    "a number without end": '{"status": true, "data": [{"payment_key": "%s", "id": %s, "total": "%s"}]}'
    % (samples.KEY, "9" * 4 * N, "1,111" * N),
    "quotes and backslashes": '{"status": true, "data": ["' + '\\"' * N + "\\" * N,
    "one key again and again": '{"status": true, ' + '"data": [],' * N + '"data": []}',
    "spaces": '{"status": true, "data": [' + " " * 4 * N + "0" + " " * 4 * N + "]}",
}


@pytest.mark.parametrize("name", LONG)
def test_work_grows_with_the_length_of_an_answer_and_not_with_its_square(name: str) -> None:
    """Of processor time, and generous: the square of these lengths takes half a minute."""
    body = LONG[name].encode()

    def work() -> None:
        for read in (read_listing, lambda body: read_envelope(200, body)):
            try:
                found = read(body)
            except MarketplaceError:
                continue
            for document in found if isinstance(found, tuple) else ():
                if isinstance(document, Document) and document.reason is None:
                    read_order(document, payment_codes=samples.CODES)

    assert samples.processor_seconds(work) < 6


@pytest.mark.parametrize(
    "element",
    [GOOD, GOOD[:-1], '{"payment_key": "%s", "x": %s}' % (samples.KEY, "[" * 400 + "]" * 400), '"%s"' % ("ş" * 500)],
    ids=["orders", "broken orders", "nested", "texts"],
)
def test_memory_is_a_small_multiple_of_the_answer(element: str) -> None:
    body = samples.listing(*[element] * (500_000 // len(element)))
    tracemalloc.start()
    try:
        read_listing(body)
        _, most = tracemalloc.get_traced_memory()
    except MarketplaceError:
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 60 * len(body)
