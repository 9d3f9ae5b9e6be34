"""The parsing of get-current: a bad element affects only itself; bad syntax around it fails the poll."""

import hashlib

import pytest
from tests.marketplace.samples import KEY, OTHER_KEY, failure, listing, order, text

from orderbridge.errors import MarketplaceError, UnknownOutcome
from orderbridge.marketplace.documents import read_listing, read_order

GOOD = text(order())


def poll_error(body: bytes, status: int = 200) -> MarketplaceError:
    with pytest.raises(MarketplaceError) as caught:
        read_listing(body, http_status=status)
    assert caught.value.http_status == status
    return caught.value


@pytest.mark.interface("Endpoints 6")
def test_a_document_is_the_text_that_was_received() -> None:
    """Spaces, order of keys, escapes and decimals included."""
    element = '{ "b":1.10,\t"payment_key" : "' + KEY + '", "t": "\\u015f\\/ ]}\\"[{", "status_id": 2 }'
    (document,) = read_listing(listing(element))
    assert document.payload == element
    assert document.digest == hashlib.sha256(element.encode()).hexdigest()
    assert (document.payment_key, document.status_id, document.reason) == (KEY, 2, None)
    assert read_listing(listing()) == ()


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


BAD = {
    "not_an_object": ("5", "null", "[]", '"text, with ] in it"'),
    "payment_key_missing": (
        "{}", '{"payment_key": null}', '{"payment_key": ""}', '{"Payment_Key": "%s"}' % KEY,
    ),
    "payment_key_invalid": (
        '{"payment_key": 5}', '{"payment_key": true}', '{"payment_key": "  "}', '{"payment_key": "{%s}"}' % KEY,
        '{"payment_key": "urn:uuid:%s"}' % KEY, '{"payment_key": "%s"}' % KEY.replace("-", ""),
        '{"payment_key": "%s0"}' % KEY, '{"payment_key": "%s"}' % KEY.replace("0b", "٠b"),
    ),
    "not_json": (
        "nul", "undefined", "+5", "05", "5 x", '"bad \\x escape"', "{key: 1}", '{"a" 1}', '{"a": %s, "b" 1}' % ("9" * 5000),
        '{"a": 1,}', '{"a": "]}" "b", "c": [{"d": "\\""}]}', '{"a": [1}', '[{"a": 1]',
    ),
}  # fmt: skip


@pytest.mark.parametrize("element, reason", [(one, reason) for reason, elements in BAD.items() for one in elements])
def test_a_bad_element_is_set_aside_alone(element: str, reason: str) -> None:
    """Twice: from the first broken one on, elements are cut in another way."""
    documents = read_listing(listing(GOOD, element, GOOD, element, GOOD))
    assert [document.reason for document in documents] == [None, reason, None, reason, None]
    assert [document.payload for document in documents] == [GOOD, element, GOOD, element, GOOD]
    assert documents[1].payment_key is None


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


def test_a_list_that_was_cut_off_is_never_taken_for_a_list_and_an_element_that_was_harms_only_itself() -> None:
    assert [document.reason for document in read_listing(listing(GOOD, '{"a": 1, "b": '))] == [None, "not_json"]
    body = listing(GOOD, text(order(payment_key=OTHER_KEY)))
    for length in range(1, len(body)):
        assert poll_error(body[:length]).code == "malformed_list"


@pytest.mark.parametrize(
    "status, body, code",
    [
        (401, failure("yetkisiz erişim"), "unauthorized"),
        (500, b'{"status": true, "data": [', "service_error"),
        (500, listing(), "service_error"),
        (200, b"<html>", "no_envelope"),
        (200, b"", "no_envelope"),
        (302, listing(), "no_envelope"),
        (404, listing(GOOD), "no_envelope"),
        (200, b'{"status": false, "data": [{}]}', "refused"),
        (200, b'{"status": false, "data": {"a": 1}}', "refused"),
        (200, b'{"data": [{}]}', "no_envelope"),
    ],
)
def test_an_error_is_the_error_that_it_is_elsewhere(status: int, body: bytes, code: str) -> None:
    assert poll_error(body, status).code == code


@pytest.mark.parametrize(
    "served, as_sent",
    [(KEY.upper(), KEY.upper()), (f" {KEY}\t", None), (f" {KEY.upper()}", KEY.upper()), (KEY, None)],
    ids=["upper", "spaces", "both", "plain"],
)
def test_the_key_is_written_one_way_and_kept_as_it_was_sent(served: str, as_sent: str | None) -> None:
    [document] = read_listing(listing(text(order(payment_key=served))))
    assert (document.payment_key, document.service_key) == (KEY, as_sent)
    assert read_order(document, payment_codes={}).service_key == as_sent


STATUSES = {
    16: ("16", '"16"', "16.0"),
    2**31 - 1: ("2147483647",),
    -(2**31): ("-2147483648",),
    None: ("16.5", "true", "null", '"x"', "9" * 5000, "2147483648", "-2147483649"),
}


@pytest.mark.parametrize("served, status_id", [(one, number) for number, served in STATUSES.items() for one in served])
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


def test_bytes_that_are_no_utf8_are_replaced_and_documents_do_not_show_customers() -> None:
    (document,) = read_listing(listing(GOOD).replace("ş".encode(), b"\xff"))
    assert ("Ay\ufffde" in document.payload, document.reason) == (True, None)
    (document,) = read_listing(listing(GOOD))
    assert "Ayşe" not in repr(document)
