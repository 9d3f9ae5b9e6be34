"""Any answer becomes a value or one of the documented errors, in bounded time."""

import re
from dataclasses import fields
from decimal import Decimal

import pytest
from hypothesis import given
from tests.fuzz import grammar
from tests.fuzz.grammar import examples
from tests.marketplace import samples

from orderbridge import errors
from orderbridge.errors import MarketplaceError
from orderbridge.marketplace import answers
from orderbridge.marketplace.answers import read_envelope
from orderbridge.marketplace.documents import read_listing, read_order
from orderbridge.model import Document, Order
from orderbridge.texts import sentence

ENDS = {errors.RateLimited, errors.Refused, errors.ServiceFailed, errors.Unauthorized, errors.UnknownOutcome}
REASONS = {None, "not_json", "not_an_object", "payment_key_missing", "payment_key_invalid"}
READERS = [
    answers.read_grant, answers.read_restaurants, answers.read_restaurant_status, answers.read_cancel_reasons,
    answers.read_variables,
]  # fmt: skip
UNBOUNDED = {"note", "address_description"}
GOOD = samples.text(samples.order(payment_key=samples.OTHER_KEY))


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
    "one key again and again, then a long name": '{%s"%s": 1, "data": []}' % ('"data": [],' * N, "x" * 10 * N),
    "brackets that close another kind": '{"status": true, "data": [' + "[{" * 2 * N + "]" * 2 * N + "]}",
    "one broken order before many": samples.listing("{5}", *[GOOD] * (N // 50)).decode(),
    "spaces": '{"status": true, "data": [' + " " * 4 * N + "0" + " " * 4 * N + "]}",
}


@pytest.mark.parametrize("name", LONG)
def test_work_grows_with_the_length_of_an_answer_and_not_with_its_square(name: str) -> None:
    """The limit is processor time, and generous: quadratic work would take half a minute."""
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
