"""Any list, up to the tables: each document becomes an order or is in quarantine; none is lost."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fuzz import grammar
from tests.fuzz.grammar import examples
from tests.fuzz.street import Street
from tests.marketplace.samples import listing

from orderbridge.marketplace.documents import read_listing
from orderbridge.rules.lifecycle import Statuses
from orderbridge_sandbox import Fault, wire
from orderbridge_sandbox.state import Order


@pytest.fixture(scope="module")
def street(empty_file: Path) -> Iterator[Street]:
    """One for all examples: what an earlier list has left in the tables is there when the next one comes."""
    street = Street(empty_file)
    yield street
    street.close()


@pytest.fixture(scope="module")
def good(street: Street) -> Order:
    return street.now(street.shop.place)


def answered(street: Street, body: bytes) -> Any:
    street.world.faults.add(Fault(operation="get_current", status=200, body=body))
    return street.run(street.shop.poll())


@examples(100)
@given(elements=st.lists(grammar.elements, max_size=6), place=st.integers(0, 6))
def test_each_document_of_a_list_is_stored_or_set_aside_and_a_good_one_is_acknowledged(
    street: Street, good: Order, elements: list[str], place: int
) -> None:
    shop, whole = street.shop, wire.encode(good.document).decode()
    body = listing(*elements[:place], whole, *elements[place:])
    acknowledged = len(good.acknowledgements)
    polled = answered(street, body)
    assert polled.ok
    assert len(good.acknowledgements) == acknowledged + 1
    documents = read_listing(body)
    for document in Statuses().latest(document for document in documents if document.reason is None).values():
        stored = shop.rows("SELECT payload, status_id FROM delivery_orders WHERE payment_key = ?", document.payment_key)
        kept = shop.rows("SELECT payload FROM delivery_quarantine WHERE payload_hash = ?", document.digest)
        (row,) = stored or kept
        assert row["payload"] == document.payload.replace("\x00", "\ufffd")
        assert row.get("status_id") == document.status_id
    for document in documents:
        if document.reason is not None:
            kept = shop.one("SELECT * FROM delivery_quarantine WHERE payload_hash = ?", document.digest)
            assert (kept["reason"], kept["resolved_utc"]) == (document.reason, None)
            assert kept["payload"] == document.payload.replace("\x00", "\ufffd")


@examples(60)
@given(body=grammar.listings, status=grammar.statuses)
def test_after_any_answer_the_next_poll_is_as_ever(street: Street, good: Order, body: bytes, status: int) -> None:
    street.world.faults.add(Fault(operation="get_current", status=status, body=body))
    street.run(street.shop.poll())
    assert not street.world.faults.pending()
    acknowledged = len(good.acknowledgements)
    again = listing(wire.encode(good.document).decode())
    assert any(answered(street, again).ok for _ in range(3))  # after two 401 a login is refused, and made again later
    assert len(good.acknowledgements) == acknowledged + 1
