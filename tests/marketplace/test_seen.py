"""A repeated list: documents that are equal byte by byte are not decoded again, and nothing else changes."""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.marketplace.samples import KEY, OTHER_KEY, listing, order, text

from orderbridge.errors import MarketplaceError
from orderbridge.marketplace import documents
from orderbridge.marketplace.documents import Seen, read_listing
from orderbridge.model import Document

GOOD, OTHER = text(order()), text(order(payment_key=OTHER_KEY.upper(), status_id=2, note="🌯 ]}"))


@pytest.fixture(autouse=True)
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    forget(monkeypatch)


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


def test_an_element_that_comes_again_is_the_same_document_and_not_decoded(decoded: list[str]) -> None:
    first = read_listing(listing(GOOD, OTHER))
    decoded.clear()
    assert read_listing(listing(OTHER, GOOD)) == (first[1], first[0])
    assert decoded == []
    around = read_listing(listing("5", GOOD, " {} ", OTHER))
    assert [document.payload for document in around] == ["5", GOOD, "{}", OTHER]
    assert GOOD not in decoded, "what stands before it and behind it does not matter"


def test_what_is_no_order_is_not_remembered(decoded: list[str]) -> None:
    bad = '{"payment_key": "x"}'
    read_listing(listing(bad))
    decoded.clear()
    assert [document.reason for document in read_listing(listing(bad))] == ["payment_key_invalid"]
    assert decoded == [bad]


def test_so_many_are_remembered_and_no_more_and_no_customer(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = forget(monkeypatch, most=2)
    read_listing(listing(*[text(order(payment_key=KEY[:-1] + digit)) for digit in "0123456789"]))
    assert len(seen._known) == 2
    assert "Ayşe" not in repr(seen._known)


@settings(deadline=None)
@given(data=st.data())
def test_a_list_reads_the_same_whatever_was_read_before(data: st.DataObject) -> None:
    """Lists damaged here and there, one after another: each is what it is to a reader without memory."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        bodies = []
        for _ in range(data.draw(st.integers(1, 4))):
            body = bytearray(listing(*data.draw(st.lists(st.sampled_from([GOOD, OTHER, "7"]), max_size=3))))
            for _ in range(data.draw(st.integers(0, 2))):
                at = data.draw(st.integers(0, len(body) - 1))
                damage = data.draw(st.sampled_from([b"", b"}", b"{", b'"', b",", b"2"]))
                body[at : at + data.draw(st.integers(0, 3))] = damage
            bodies.append(bytes(body))
        alone = []
        for body in bodies:
            forget(monkeypatch)
            alone.append(read(body))
        forget(monkeypatch)
        assert [read(body) for body in bodies] == alone


def read(body: bytes) -> object:
    try:
        return read_listing(body)
    except MarketplaceError as error:
        return error.code
