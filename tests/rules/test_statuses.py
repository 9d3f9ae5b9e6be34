"""The names of an order's statuses, which are active and which are ends, and which one a list means."""

from itertools import permutations

import pytest
from hypothesis import strategies as st
from tests.rules.builders import KEY, NEEDS_PAYMENT, OTHER_KEY, STATUSES, UNNAMED_STATUS, document

from orderbridge.model import CANCELED, COMPLETE_WITH_PAYMENT, CONFIRMED, IN_DELIVERY, RECEIVED
from orderbridge.rules.lifecycle import Statuses

IN_ORDER = [RECEIVED, CONFIRMED, IN_DELIVERY, NEEDS_PAYMENT, COMPLETE_WITH_PAYMENT, CANCELED]

named = st.sampled_from(IN_ORDER)
statuses = named | st.just(UNNAMED_STATUS) | st.none()


@pytest.mark.interface("Order statuses", "Acknowledgement rules 1")
@pytest.mark.parametrize(
    "status_id, word, active",
    [
        (1, "RECEIVED", True), (2, "CONFIRMED", True), (16, "IN_DELIVERY", True), (5, "COMPLETE_WITH_PAYMENT", False),
        (6, "CANCELED", False), (NEEDS_PAYMENT, "COMPLETE_NEEDS_PAYMENT", True), (UNNAMED_STATUS, "UNKNOWN", False),
        (None, "UNKNOWN", False),
    ],
)  # fmt: skip
def test_a_status_has_its_word_and_is_active_where_the_service_counts_it_as_such(
    status_id: int | None, word: str, active: bool
) -> None:
    assert (STATUSES.name(status_id), status_id in STATUSES.active) == (word, active)


def test_without_its_configured_id_no_status_needs_payment() -> None:
    assert not {NEEDS_PAYMENT, None} & set(Statuses().active)
    assert (Statuses().name(NEEDS_PAYMENT), Statuses().name(None)) == ("UNKNOWN", "UNKNOWN")
    assert Statuses().latest([document(CANCELED), document(NEEDS_PAYMENT)])[KEY].status_id == NEEDS_PAYMENT


# ---- one list --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "listed, meant",
    [
        *(([a, b], max(a, b, key=IN_ORDER.index)) for a, b in permutations(IN_ORDER, 2)),
        *(([a, b], b) for a in (CONFIRMED, 98) for b in (UNNAMED_STATUS, None)),  # of unknown ones the later counts
        *(([a, CONFIRMED], CONFIRMED) for a in (UNNAMED_STATUS, None)),
        ([IN_DELIVERY, UNNAMED_STATUS, RECEIVED], UNNAMED_STATUS), ([RECEIVED, UNNAMED_STATUS, IN_DELIVERY], IN_DELIVERY),
    ],
)  # fmt: skip
def test_an_order_listed_twice_is_the_furthest_one(listed: list[int | None], meant: int | None) -> None:
    assert STATUSES.latest(map(document, listed))[KEY].status_id == meant


def test_a_list_means_the_last_document_of_each_order_in_its_furthest_status_and_none_without_a_key() -> None:
    one, other = document(CONFIRMED), document(RECEIVED, key=OTHER_KEY)
    first = document(CONFIRMED, digest="first")
    assert Statuses().latest([document(RECEIVED, key=None), first, one, other]) == {KEY: one, OTHER_KEY: other}
