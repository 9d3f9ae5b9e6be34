"""The parsing of get-current: a bad element affects only itself; bad syntax around it fails the poll."""

import hashlib
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.marketplace.samples import KEY, OTHER_KEY, failure, listing, order, text

from orderbridge.errors import MarketplaceError, UnknownOutcome
from orderbridge.marketplace import documents
from orderbridge.marketplace.documents import Seen, read_listing, read_order
from orderbridge.marketplace.scan import MAX_WINDOW
from orderbridge.model import Document

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
    assert (document.payload, document.digest) == (element, hashlib.sha256(element.encode()).hexdigest())
    assert (document.payment_key, document.status_id, document.reason) == (KEY, 2, None)
    assert read_listing(listing()) == ()


@pytest.mark.parametrize("body", [
    '{"data": [%s], "status": true}', ' \r\n\t{ "status" :true , "data" :\n[ %s ] }\n ',
    '{"note": "]}\\" {[", "x": {"data": [1, [2]]}, "status": true, "data": [%s], "total": 1}',
    '\ufeff{"status": true, "data": [%s]}', '{"data": 5, "status": false, "status": true, "data": [%s]}',
    '{"x": {nonsense}, "status": true, "data": [%s]}',
    '{"status": true, "data": [%s], "\\u0064ebug": ' + "[" * 5000 + "]" * 5000 + "}",
])  # fmt: skip
def test_the_envelope_may_come_in_many_forms(body: str) -> None:
    assert [document.payload for document in read_listing((body % GOOD).encode())] == [GOOD]


BAD = {
    "not_an_object": ("5", "null", "[]", '"text, with ] in it"'),
    "payment_key_missing": ("{}", '{"payment_key": null}', '{"payment_key": ""}', '{"Payment_Key": "%s"}' % KEY),
    "payment_key_invalid": (
        '{"payment_key": 5}', '{"payment_key": true}', '{"payment_key": "  "}', '{"payment_key": "{%s}"}' % KEY,
        '{"payment_key": "urn:uuid:%s"}' % KEY, '{"payment_key": "%s"}' % KEY.replace("-", ""),
        '{"payment_key": "%s0"}' % KEY, '{"payment_key": "%s"}' % KEY.replace("0b", "٠b"),
    ),
    "not_json": (
        "nul", "undefined", "+5", "05", "5 x", '"bad \\x escape"', "{key: 1}", '{"a" 1}',
        '{"a": %s, "b" 1}' % ("9" * 5000),
        '{"a": 1,}', '{"a": "]}" "b", "c": [{"d": "\\""}]}', '{"a": [1}', '[{"a": 1]',
    ),
}  # fmt: skip


@pytest.mark.parametrize("element, reason", [(one, reason) for reason, elements in BAD.items() for one in elements])
def test_a_bad_element_affects_no_other(element: str, reason: str) -> None:
    """There are two, because elements are split in another way from the first broken one on."""
    documents = read_listing(listing(GOOD, element, GOOD, element, GOOD))
    good, bad = (GOOD, None, KEY), (element, reason, None)
    assert [(one.payload, one.reason, one.payment_key) for one in documents] == [good, bad, good, bad, good]


@pytest.mark.parametrize("body", [
    '{"status": true, "data": [%s', '{"status": true, "data": [%s]', '{"status": true, "data": [%s,]}',
    '{"status": true, "data": [,%s]}', '{"status": true, "data": [%s,,%s]}', '{"status": true, "data": [%s %s]}',
    '{"status": true, "data": [%s}}', '{"status": true, "data": [%s]]}', '{"status": true, "data": [%s]} more',
    '{"status": true, "data": [%s], }', '{"status": true "data": [%s]}', '{"status": true, "data" [%s]}',
    '{5: true, "data": [%s]}', '{"status": true, "data": [%s, {"a": "no end}]}', '{"status": true, "data": ',
    '{"status": true, "data": {"orders": [%s]}}', '{"status": true, "data": null}',
    '{"status": true, "data": "OK"}', '{"status": true}', '{"status": true, "data": nul}',
])  # fmt: skip
def test_bad_syntax_around_the_elements_fails_the_poll(body: str) -> None:
    caught = poll_error(body.replace("%s", GOOD).encode())
    assert (type(caught), caught.code) == (UnknownOutcome, "malformed_list")


def test_a_truncated_list_is_never_accepted_and_a_broken_element_harms_only_itself() -> None:
    assert [document.reason for document in read_listing(listing(GOOD, '{"a": 1, "b": '))] == [None, "not_json"]
    body = listing(GOOD, text(order(payment_key=OTHER_KEY)))
    for length in range(1, len(body)):
        assert poll_error(body[:length]).code == "malformed_list"


@pytest.mark.parametrize("status, body, code", [
    (401, failure("yetkisiz erişim"), "unauthorized"), (500, b'{"status": true, "data": [', "service_error"),
    (500, listing(), "service_error"), (200, b"<html>", "no_envelope"), (302, listing(), "no_envelope"),
    (404, listing(GOOD), "no_envelope"), (200, b'{"status": false, "data": [{}]}', "refused"),
    (200, b'{"data": [{}]}', "no_envelope"),
])  # fmt: skip
def test_an_error_in_a_list_is_read_as_in_other_answers(status: int, body: bytes, code: str) -> None:
    assert poll_error(body, status).code == code


@pytest.mark.parametrize("served, as_sent", [
    (KEY.upper(), KEY.upper()), (f" {KEY}\t", None), (f" {KEY.upper()}\u00a0", KEY.upper()), (KEY, None),
])  # fmt: skip
def test_the_key_is_normalized_and_its_original_form_kept(served: str, as_sent: str | None) -> None:
    [document] = read_listing(listing(text(order(payment_key=served))))
    assert (document.payment_key, document.service_key) == (KEY, as_sent)
    assert read_order(document, payment_codes={}).service_key == as_sent


STATUSES = {16: ("16", '"16"', "16.0"), 2**31 - 1: ("2147483647",), -(2**31): ("-2147483648",)}
STATUSES[None] = ("16.5", "true", "null", '"x"', "9" * 5000, "2147483648", "-2147483649")


@pytest.mark.parametrize("served, status_id", [(one, number) for number, served in STATUSES.items() for one in served])
def test_the_status_is_a_whole_number_or_unknown(served: str, status_id: int | None) -> None:
    (document,) = read_listing(listing('{"payment_key": "%s", "status_id": %s}' % (KEY, served)))
    assert (document.reason, document.status_id) == (None, status_id)
    assert ("status_unreadable" in read_order(document, payment_codes={}).problems) is (status_id is None)


def test_a_raw_line_break_is_read_and_bytes_that_are_no_utf8_are_replaced() -> None:
    element = '{"payment_key": "%s", "foods": [], "note": "first\nsecond\ttab"}' % KEY
    (document,) = read_listing(listing(element))
    assert read_order(document, payment_codes={}).facts.note == "first\nsecond\ttab"
    (document,) = read_listing(listing(GOOD).replace("ş".encode(), b"\xff"))
    assert "Ay\ufffde" in document.payload and document.reason is None
    assert "Ayşe" not in repr(read_listing(listing(GOOD)))


SMALL = '{"payment_key": "%s", "status_id": 1}' % KEY
ORDER = '{"payment_key": "%s", "x": %%s}' % KEY


@pytest.mark.parametrize("inside, reason", [
    ("[" * 99 + "]" * 99, None), ("[" * 100 + "]" * 100, "not_json"), ("[" * 5000 + "]" * 5000, "not_json"),
    ("[%s1]" % ("1," * 99_000), None), ("[%s1]" % ("1," * 100_001), "not_json"),
    ("[%s[]]" % ("[]," * 60_000), "not_json"), ('"%s"' % ("[,]" * 300_000), None),
], ids=["100 deep", "101 deep", "deeper", "many values", "too many values", "too many lists", "a long text"],
)  # fmt: skip
@pytest.mark.parametrize("before", [SMALL, "{5}"], ids=["after a good one", "after a broken one"])
def test_an_oversized_element_affects_no_other(before: str, inside: str, reason: str | None) -> None:
    _, document, after = read_listing(listing(before, ORDER % inside, SMALL))
    assert (document.reason, after.reason, len(document.raw)) == (reason, None, len(ORDER % inside))


@pytest.mark.parametrize("length", [MAX_WINDOW - 200, MAX_WINDOW, MAX_WINDOW + 1, 3 * MAX_WINDOW])
def test_documents_of_any_length_are_split_alike(length: int) -> None:
    element = ORDER % f'"ş{"x" * length}🌯"'
    documents = read_listing(listing(SMALL, element, SMALL, element))
    wanted = [(one, KEY) for one in (SMALL, element) * 2]
    assert [(document.payload, document.payment_key) for document in documents] == wanted


def test_no_text_of_a_whole_body_is_kept() -> None:
    """A single letter beyond Latin-1 would make two or four bytes of each of its characters."""
    documents = read_listing(listing(*[ORDER % '"🌯"'] * 10))
    assert all(type(document.raw) is bytes and "🌯" in document.payload for document in documents)


OTHER = text(order(payment_key=OTHER_KEY.upper(), status_id=2, note="🌯 ]}"))

BAD = '{"payment_key": "x"}'


def forget(monkeypatch: pytest.MonkeyPatch, most: int = 100) -> Seen:
    seen = Seen(most)
    monkeypatch.setattr(documents, "_SEEN", seen)
    return seen


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    elements: list[str] = []
    true = documents._document

    def document(raw: bytes, value: object) -> Document:
        elements.append(raw.decode())
        return true(raw, value)

    monkeypatch.setattr(documents, "_document", document)
    return elements


def test_a_repeated_element_is_not_decoded_again(decoded: list[str]) -> None:
    first = read_listing(listing(GOOD, OTHER))
    decoded.clear()
    assert (read_listing(listing(OTHER, GOOD)), decoded) == ((first[1], first[0]), [])
    read_listing(listing(BAD))
    decoded.clear()
    read_listing(listing(BAD))
    assert decoded == [BAD], "what is no order is not remembered"
    around = read_listing(listing("5", GOOD, " {} ", OTHER))
    assert [document.payload for document in around] == ["5", GOOD, "{}", OTHER]
    assert GOOD not in decoded, "what stands before it and behind it does not matter"


def test_the_memory_of_documents_is_limited_and_holds_no_customer(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = forget(monkeypatch, most=2)
    read_listing(listing(*[text(order(payment_key=KEY[:-1] + digit)) for digit in "0123456789"]))
    assert len(seen._known) == 2 and "Ayşe" not in repr(seen._known)


@settings(deadline=None)
@given(data=st.data())
def test_a_list_reads_the_same_whatever_was_read_before(data: st.DataObject) -> None:
    """Lists with damage, read one after another, give the same as to a reader without a memory."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        bodies = []
        for _ in range(data.draw(st.integers(1, 4))):
            body = bytearray(listing(*data.draw(st.lists(st.sampled_from([GOOD, OTHER, "7"]), max_size=3))))
            for _ in range(data.draw(st.integers(0, 2))):
                at = data.draw(st.integers(0, len(body) - 1))
                damage = data.draw(st.sampled_from([b"", b"}", b"{", b'"', b",", b"2"]))
                body[at : at + data.draw(st.integers(0, 3))] = damage
            bodies.append(bytes(body))
        alone = [(forget(monkeypatch), listing_or_code(body))[1] for body in bodies]
        forget(monkeypatch)
        assert [listing_or_code(body) for body in bodies] == alone


def listing_or_code(body: bytes) -> object:
    try:
        return read_listing(body)
    except MarketplaceError as error:
        return error.code
