"""The names of an order's statuses, which are active and which are ends, and which one a list means."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rules.builders import KEY, NEEDS_PAYMENT, OTHER_KEY, STATUSES, UNNAMED_STATUS, document

from orderbridge.model import CANCELED, COMPLETE_WITH_PAYMENT, CONFIRMED, IN_DELIVERY, RECEIVED, EndedBy
from orderbridge.rules.lifecycle import ENDS, Statuses

IN_ORDER = [RECEIVED, CONFIRMED, IN_DELIVERY, NEEDS_PAYMENT, COMPLETE_WITH_PAYMENT, CANCELED]

named = st.sampled_from(IN_ORDER)
statuses = named | st.just(UNNAMED_STATUS) | st.none()


@pytest.mark.interface("Order statuses")
@pytest.mark.parametrize(
    "status_id, word",
    [
        (1, "RECEIVED"),
        (2, "CONFIRMED"),
        (16, "IN_DELIVERY"),
        (5, "COMPLETE_WITH_PAYMENT"),
        (6, "CANCELED"),
        (NEEDS_PAYMENT, "COMPLETE_NEEDS_PAYMENT"),
        (UNNAMED_STATUS, "UNKNOWN"),
        (None, "UNKNOWN"),
    ],
)
def test_a_status_has_its_word(status_id: int | None, word: str) -> None:
    assert STATUSES.name(status_id) == word


@pytest.mark.interface("Acknowledgement rules 1")
@pytest.mark.parametrize(
    "status_id, active",
    [(1, True), (2, True), (16, True), (NEEDS_PAYMENT, True), (5, False), (6, False), (99, False), (None, False)],
)
def test_active_is_what_the_service_counts_as_such(status_id: int | None, active: bool) -> None:
    assert (status_id in STATUSES.active) is active


def test_without_its_configured_id_no_status_needs_payment() -> None:
    assert not {NEEDS_PAYMENT, None} & set(Statuses().active)
    assert (Statuses().name(NEEDS_PAYMENT), Statuses().name(None)) == ("UNKNOWN", "UNKNOWN")
    assert Statuses().latest([document(CANCELED), document(NEEDS_PAYMENT)])[KEY].status_id == NEEDS_PAYMENT


def test_only_completion_and_cancellation_end_an_order() -> None:
    assert ENDS == {COMPLETE_WITH_PAYMENT: EndedBy.COMPLETED, CANCELED: EndedBy.CANCELLED}


# ---- one list --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "listed, meant",
    [
        *(pytest.param([a, b], max(a, b, key=IN_ORDER.index), id=f"{a},{b}") for a, b in permutations(IN_ORDER, 2)),
        pytest.param([CONFIRMED, UNNAMED_STATUS], UNNAMED_STATUS, id="an unknown one comes later"),
        pytest.param([UNNAMED_STATUS, CONFIRMED], CONFIRMED, id="an unknown one comes first"),
        pytest.param([CONFIRMED, None], None, id="an unreadable one comes later"),
        pytest.param([None, CONFIRMED], CONFIRMED, id="an unreadable one comes first"),
        pytest.param([98, UNNAMED_STATUS], UNNAMED_STATUS, id="two unknown ones"),
        pytest.param([IN_DELIVERY, UNNAMED_STATUS, RECEIVED], UNNAMED_STATUS, id="an unknown one in between"),
        pytest.param([RECEIVED, UNNAMED_STATUS, IN_DELIVERY], IN_DELIVERY, id="a further one after an unknown one"),
    ],
)
def test_an_order_listed_twice_is_the_furthest_one(listed: list[int | None], meant: int | None) -> None:
    assert STATUSES.latest(map(document, listed))[KEY].status_id == meant


def test_of_two_in_one_status_the_later_one_counts() -> None:
    first, second = document(CONFIRMED, digest="first"), document(CONFIRMED, digest="second")
    assert Statuses().latest([first, second]) == {KEY: second}


def test_a_list_means_one_document_of_each_order_and_none_without_a_key() -> None:
    one, other = document(CONFIRMED), document(RECEIVED, key=OTHER_KEY)
    assert Statuses().latest([document(RECEIVED, key=None), one, other]) == {KEY: one, OTHER_KEY: other}


@given(listed=st.lists(named, min_size=1), data=st.data())
def test_known_statuses_mean_the_same_in_any_order_and_number(listed: list[int], data: st.DataObject) -> None:
    repeated = data.draw(st.permutations(listed + data.draw(st.lists(st.sampled_from(listed)))))
    once = STATUSES.latest(map(document, listed))
    again = STATUSES.latest(map(document, repeated))
    assert again == once
    assert once[KEY].status_id == max(listed, key=IN_ORDER.index)
