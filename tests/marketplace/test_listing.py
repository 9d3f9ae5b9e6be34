"""The list of get-current, taken apart: one bad element harms only itself, bad syntax around them fails the poll."""

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.marketplace.samples import (
    CODES,
    KEY,
    OTHER_KEY,
    failure,
    food,
    listing,
    order,
    processor_seconds,
    success,
    text,
)

from orderbridge.errors import MarketplaceError, RateLimited, Refused, ServiceFailed, Unauthorized, UnknownOutcome
from orderbridge.marketplace.documents import read_listing, read_order
from orderbridge.model import Document

GOOD = text(order())


def reasons(body: bytes) -> list[str | None]:
    return [document.reason for document in read_listing(body)]


def poll_error(body: bytes, status: int = 200) -> MarketplaceError:
    with pytest.raises(MarketplaceError) as caught:
        read_listing(body, http_status=status)
    assert caught.value.http_status == status
    return caught.value


@pytest.mark.interface("Endpoints 6")
def test_an_empty_list_has_no_documents() -> None:
    assert read_listing(listing()) == ()


@pytest.mark.interface("Endpoints 6")
def test_a_document_is_the_text_that_was_received() -> None:
    """Spaces, order of keys, escapes and decimals included."""
    element = '{ "b":1.10,\t"payment_key" : "' + KEY + '", "t": "\\u015f\\/ ]}\\"[{", "status_id": 2 }'
    (document,) = read_listing(listing(element))
    assert document.payload == element
    assert document.digest == hashlib.sha256(element.encode()).hexdigest()
    assert (document.payment_key, document.status_id, document.reason) == (KEY, 2, None)


@pytest.mark.parametrize(
    "body",
    [
        '{"data": [%s], "status": true}',
        ' \r\n\t{ "status" :true , "data" :\n[ %s ] }\n ',
        '{"note": "]}\\" {[", "x": {"data": [1, [2]]}, "status": true, "data": [%s], "total": 1}',
        '\ufeff{"status": true, "data": [%s]}',
        '{"data": 5, "status": false, "status": true, "data": [%s]}',
        '{"x": {nonsense], [, "status": true, "data": [%s]}'.replace("{nonsense], [", "{nonsense}"),
        '{"status": true, "data": [%s], "\\u0064ebug": ' + "[" * 5000 + "]" * 5000 + "}",
    ],
    ids=["data first", "spaces", "brackets in strings", "mark", "keys twice", "broken neighbour", "deep neighbour"],
)
def test_the_envelope_may_come_in_many_forms(body: str) -> None:
    documents = read_listing((body % GOOD).encode())
    assert [document.payload for document in documents] == [GOOD]


@pytest.mark.parametrize(
    "element, reason",
    [
        ("5", "not_an_object"),
        ("null", "not_an_object"),
        ("[]", "not_an_object"),
        ('"text, with ] in it"', "not_an_object"),
        ("{}", "payment_key_missing"),
        ('{"payment_key": null}', "payment_key_missing"),
        ('{"payment_key": ""}', "payment_key_missing"),
        ('{"Payment_Key": "%s"}' % KEY, "payment_key_missing"),
        ('{"payment_key": 5}', "payment_key_invalid"),
        ('{"payment_key": true}', "payment_key_invalid"),
        ('{"payment_key": "  "}', "payment_key_invalid"),
        ('{"payment_key": "{%s}"}' % KEY, "payment_key_invalid"),
        ('{"payment_key": "urn:uuid:%s"}' % KEY, "payment_key_invalid"),
        ('{"payment_key": "%s"}' % KEY.replace("-", ""), "payment_key_invalid"),
        ('{"payment_key": "%s0"}' % KEY, "payment_key_invalid"),
        ('{"payment_key": "%s"}' % KEY.replace("0b", "٠b"), "payment_key_invalid"),
        ("nul", "not_json"),
        ("undefined", "not_json"),
        ("+5", "not_json"),
        ("05", "not_json"),
        ("5 x", "not_json"),
        ('"bad \\x escape"', "not_json"),
        ("{key: 1}", "not_json"),
        ('{"a" 1}', "not_json"),
        ('{"a": %s, "b" 1}' % ("9" * 5000), "not_json"),
        ('{"a": 1,}', "not_json"),
        ('{"a": "]}" "b", "c": [{"d": "\\""}]}', "not_json"),
        ('{"a": [1}', "not_json"),
        ('[{"a": 1]', "not_json"),
    ],
)
def test_a_bad_element_is_set_aside_alone(element: str, reason: str) -> None:
    """Twice: from the first broken one on, elements are cut in another way."""
    documents = read_listing(listing(GOOD, element, GOOD, element, GOOD))
    assert [document.reason for document in documents] == [None, reason, None, reason, None]
    assert [document.payload for document in documents] == [GOOD, element, GOOD, element, GOOD]
    assert documents[1].payment_key is None


@pytest.mark.parametrize("depth", [10_000, 100_000])
def test_an_element_nested_without_end_harms_only_itself(depth: int) -> None:
    element = '{"payment_key": "%s", "x": %s"]"%s}' % (OTHER_KEY, '[{"a":' * depth, "}]" * depth)
    documents = read_listing(listing(GOOD, element, GOOD))
    assert [document.payload for document in documents] == [GOOD, element, GOOD]
    assert documents[0].reason is documents[2].reason is None


@pytest.mark.parametrize(
    "body",
    [
        '{"status": true, "data": [%s',
        '{"status": true, "data": [%s]',
        '{"status": true, "data": [%s,]}',
        '{"status": true, "data": [,%s]}',
        '{"status": true, "data": [%s,,%s]}',
        '{"status": true, "data": [%s %s]}',
        '{"status": true, "data": [%s}}',
        '{"status": true, "data": [%s]]}',
        '{"status": true, "data": [%s]} more',
        '{"status": true, "data": [%s], }',
        '{"status": true "data": [%s]}',
        '{"status": true, "data" [%s]}',
        '{5: true, "data": [%s]}',
        '{"status": true, "data": [%s, {"a": "no end}]}',
        '{"status": true, "data": ',
        '{"status": true, "data": {"orders": [%s]}}',
        '{"status": true, "data": null}',
        '{"status": true, "data": "OK"}',
        '{"status": true}',
        '{"status": true, "data": nul}',
    ],
)
def test_bad_syntax_around_the_elements_fails_the_poll(body: str) -> None:
    caught = poll_error(body.replace("%s", GOOD).encode())
    assert isinstance(caught, UnknownOutcome)
    assert caught.code == "malformed_list"


def test_a_last_element_without_its_end_harms_only_itself() -> None:
    assert reasons(listing(GOOD, '{"a": 1, "b": ')) == [None, "not_json"]


def test_a_list_that_was_cut_off_is_never_taken_for_a_list() -> None:
    body = listing(GOOD, text(order(payment_key=OTHER_KEY)))
    for length in range(1, len(body)):
        assert poll_error(body[:length]).code == "malformed_list"


@pytest.mark.parametrize(
    "status, body, kind",
    [
        (401, failure("yetkisiz erişim"), Unauthorized),
        (200, failure("yetkisiz erişim"), Unauthorized),
        (429, failure("çok fazla istek"), RateLimited),
        (429, b"", RateLimited),
        (200, failure("başka"), Refused),
        (500, b'{"status": true, "data": [', ServiceFailed),
        (500, listing(), ServiceFailed),
        (502, b"<html>", UnknownOutcome),
        (200, b"<html>", UnknownOutcome),
        (200, b"", UnknownOutcome),
        (302, listing(), UnknownOutcome),
        (404, listing(GOOD), UnknownOutcome),
        (200, b'{"status": false, "data": [{}]}', Refused),
        (200, b'{"data": [{}]}', UnknownOutcome),
    ],
)
def test_an_error_is_the_error_that_it_is_elsewhere(status: int, body: bytes, kind: type[MarketplaceError]) -> None:
    assert type(poll_error(body, status)) is kind


def test_a_page_is_not_called_a_broken_list() -> None:
    assert poll_error(b"<html>").code == "no_envelope"


@pytest.mark.parametrize(
    "served, as_sent",
    [(KEY.upper(), KEY.upper()), (f" {KEY}\t", None), (f" {KEY.upper()}", KEY.upper()), (KEY, None)],
    ids=["upper", "spaces", "both", "plain"],
)
def test_the_key_is_written_one_way_and_kept_as_it_was_sent(served: str, as_sent: str | None) -> None:
    [document] = read_listing(listing(text(order(payment_key=served))))
    assert (document.payment_key, document.service_key) == (KEY, as_sent)
    assert read_order(document, payment_codes={}).service_key == as_sent


@pytest.mark.parametrize(
    "served, status_id",
    [
        ("16", 16),
        ('"16"', 16),
        ('" 16 "', 16),
        ("16.0", 16),
        ("1.6e1", 16),
        ("16.5", None),
        ("true", None),
        ("null", None),
        ('""', None),
        ('"x"', None),
        ("[1]", None),
        ("9" * 30, None),
        ("9" * 5000, None),
        ("1e400", None),
        ("1e99999999999999999999", None),
        ("NaN", None),
        ("2147483647", 2147483647),
        ("2147483648", None),
        ("-2147483648", -2147483648),
        ("-2147483649", None),
        ("9223372036854775808", None),
    ],
)
def test_the_status_is_a_whole_number_or_unknown(served: str, status_id: int | None) -> None:
    element = '{"payment_key": "%s", "status_id": %s}' % (KEY, served)
    (document,) = read_listing(listing(element))
    assert document.reason is None
    assert document.status_id == status_id
    assert ("status_unreadable" in read_order(document, payment_codes={}).problems) is (status_id is None)


def test_a_raw_line_break_in_a_text_is_read() -> None:
    element = '{"payment_key": "%s", "foods": [], "note": "first\nsecond\ttab"}' % KEY
    (document,) = read_listing(listing(element))
    assert read_order(document, payment_codes={}).facts.note == "first\nsecond\ttab"


def test_bytes_that_are_no_utf8_are_replaced() -> None:
    body = listing(GOOD).replace("ş".encode(), b"\xff")
    (document,) = read_listing(body)
    assert "\ufffd" in document.payload
    assert document.reason is None


def test_broken_orders_do_not_take_the_square_of_their_number() -> None:
    """The decoder counts lines from the start of its text: done in place, the time would grow with the square."""
    broken = text(order(foods=[food()] * 5)).replace('"status_text":', '"status_text";')
    assert reasons(listing(*[broken] * 3000)) == ["not_json"] * 3000
    assert processor_seconds(lambda: read_listing(listing(*[broken] * 3000))) < 3


def test_unclosed_brackets_do_not_take_the_square_of_their_number() -> None:
    assert processor_seconds(lambda: read_listing(listing("{" * 200_000 + "[]" * 200_000))) < 5


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)
SPACE = st.text(" \n\r\t", max_size=3)


@given(
    values=st.lists(JSON | st.fixed_dictionaries({"payment_key": st.just(KEY)}), max_size=6),
    space=SPACE,
    ascii_only=st.booleans(),
)
def test_slices_are_what_was_served(values: list[object], space: str, ascii_only: bool) -> None:
    elements = [json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "replace").decode() for value in values]
    body = '{"status":true,"data":[' + (space + "," + space).join(elements) + space + "]}"
    documents = read_listing(body.encode())
    assert [document.payload for document in documents] == elements
    assert "not_json" not in {document.reason for document in documents}


@given(body=st.binary() | st.text().map(str.encode) | JSON.map(lambda v: text(v).encode("utf-8", "replace")))
def test_any_body_is_read_or_refused(body: bytes) -> None:
    for candidate in (body, b'{"status": true, "data": ' + body + b"}", b'{"status": true, "data": [' + body + b"]}"):
        try:
            documents = read_listing(candidate)
        except MarketplaceError:
            continue
        assert all(document.payload in candidate.decode("utf-8-sig", "replace") for document in documents)


@given(data=st.data())
def test_a_damaged_list_is_read_or_refused(data: st.DataObject) -> None:
    """Bytes lost, doubled or changed somewhere: nothing but MarketplaceError, and every slice is in the body."""
    body = bytearray(listing(GOOD, text(order(payment_key=OTHER_KEY))))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at : at + data.draw(st.integers(0, 3))] = data.draw(
            st.sampled_from([b"", b"[", b"]", b"{", b"}", b'"', b",", b"\\"])
        )
    try:
        documents = read_listing(bytes(body))
    except MarketplaceError:
        return
    served = bytes(body).decode("utf-8", "replace")
    assert all(document.payload in served for document in documents)
    for document in documents:
        if document.reason is None:
            read_order(document, payment_codes=CODES)


def test_a_success_of_another_kind_is_no_list() -> None:
    assert poll_error(success({"a": [1]})).code == "malformed_list"


def test_documents_do_not_show_customers() -> None:
    (document,) = read_listing(listing(GOOD))
    assert isinstance(document, Document)
    assert "Ayşe" not in repr(document)


@pytest.mark.parametrize("number", [2**31, -(2**31) - 1, 3_000_000_000])
def test_a_status_id_that_no_database_holds_is_none_that_can_be_read(number: int) -> None:
    (found,) = read_listing(f'{{"status": true, "data": [{{"payment_key": "{KEY}", "status_id": {number}}}]}}'.encode())
    assert (found.reason, found.status_id) == (None, None)
