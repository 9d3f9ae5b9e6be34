"""An order's life: what a delivery changes, and which actions are possible."""

from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rules.builders import (  # isort: skip
    KEY, NEEDS_PAYMENT, OTHER_KEY, STATUSES, TARGETS, UNNAMED_STATUS, document, shown_as, stored,
)  # fmt: skip
from orderbridge.model import (  # isort: skip
    CANCELED, COMPLETE_WITH_PAYMENT, CONFIRMED, IN_DELIVERY, RECEIVED, Action, Differs, EndedBy, LastChange, Stored,
)  # fmt: skip
from orderbridge.rules.lifecycle import (  # isort: skip
    Already, Refusal, Statuses, end_change, is_unchanged, may_send, merge, merge_status, with_doubt,
)  # fmt: skip

IN_ORDER = [RECEIVED, CONFIRMED, IN_DELIVERY, NEEDS_PAYMENT, COMPLETE_WITH_PAYMENT, CANCELED]

named = st.sampled_from(IN_ORDER)
statuses = named | st.just(UNNAMED_STATUS) | st.none()
ends = st.none() | st.sampled_from(EndedBy)

SETTLED = [shown_as(CONFIRMED), shown_as(CANCELED, ended_by=EndedBy.CANCELLED)]
SETTLED.append(shown_as(CONFIRMED, problem="total_unreadable"))  # of the document itself
UNSETTLED = [
    shown_as(CONFIRMED, digest="another"),
    shown_as(CONFIRMED, digest=None),  # contents of a delivery that did not count
    shown_as(RECEIVED),
    stored(status_id=CONFIRMED, service_status_id=RECEIVED),  # a status the service never showed
    stored(status_id=RECEIVED, service_status_id=CONFIRMED),  # a status of ours that it took back
    shown_as(CONFIRMED, ended_by=EndedBy.SILENCE),
    *(shown_as(CONFIRMED, problem=problem) for problem in ("status_doubtful", "total_unreadable,status_doubtful")),
]


@pytest.mark.parametrize("known", SETTLED + UNSETTLED)
def test_a_delivery_is_written_when_it_differs_or_settles_something(known: Stored) -> None:
    delivered = document(CANCELED if known.ended_by == EndedBy.CANCELLED else CONFIRMED)
    assert is_unchanged(known, delivered) == (known in SETTLED)


SAME, MORE = Differs.NOTHING, Differs.DETAILS
CANCELLED, COMPLETED = shown_as(6, ended_by=EndedBy.CANCELLED), shown_as(5, ended_by=EndedBy.COMPLETED)
SILENT = shown_as(16, ended_by=EndedBy.SILENCE)


@pytest.mark.parametrize("known, status_id, contents, told", [
    (shown_as(1), 1, SAME, None),  # an echo is no news
    (shown_as(1), 2, SAME, LastChange.STATUS), (shown_as(16), 1, SAME, LastChange.STATUS),
    (shown_as(1), UNNAMED_STATUS, SAME, LastChange.STATUS), (shown_as(1), None, SAME, LastChange.STATUS),
    (shown_as(1), 1, MORE, LastChange.CONTENTS),
    (shown_as(1), 2, MORE, LastChange.CONTENTS),  # both: the lines must be read again
    (shown_as(1), 6, SAME, LastChange.CANCELLED), (shown_as(1), 6, MORE, LastChange.CANCELLED),
    (shown_as(16), 5, SAME, LastChange.ENDED), (CANCELLED, 6, SAME, None), (CANCELLED, 6, MORE, LastChange.CONTENTS),
    (COMPLETED, 6, SAME, LastChange.CANCELLED), (CANCELLED, 5, SAME, LastChange.ENDED),
    (SILENT, 5, SAME, LastChange.ENDED), (SILENT, 6, SAME, LastChange.CANCELLED), (SILENT, 16, SAME, LastChange.STATUS),
])  # fmt: skip
def test_last_change_is_the_most_important_change(known, status_id, contents, told) -> None:
    assert merge(known, status_id, differs=contents, status_counts=True, problems=()).last_change == told
    ignored = merge(known, status_id, differs=contents, status_counts=False, problems=())
    assert ignored.last_change == (None if contents is SAME else LastChange.CONTENTS)
    assert not any((ignored.status_counts, ignored.ended_by))


@given(known_id=statuses, ended_by=ends, status_id=statuses, contents=st.sampled_from(Differs))
def test_a_status_that_counts_replaces_any_stored_one(known_id, ended_by, status_id, contents) -> None:
    change = merge(shown_as(known_id, ended_by=ended_by), status_id, differs=contents, status_counts=True, problems=())
    assert (change.status_counts, change.differs) == (True, contents)
    assert change.ended_by == {5: EndedBy.COMPLETED, 6: EndedBy.CANCELLED}.get(status_id or 0)
    news = status_id != known_id or contents is not Differs.NOTHING or ended_by != change.ended_by
    assert (change.last_change is not None) == news


def test_a_cancellation_has_its_own_last_change() -> None:
    told = {ended_by: end_change(ended_by) for ended_by in EndedBy}
    assert told == dict.fromkeys(EndedBy, LastChange.ENDED) | {EndedBy.CANCELLED: LastChange.CANCELLED}


@pytest.mark.parametrize("action", TARGETS)
@pytest.mark.parametrize("status_id, code", [(COMPLETE_WITH_PAYMENT, "order_completed"), (CANCELED, "order_cancelled")])
def test_nothing_is_sent_about_an_ended_order(action: Action, status_id: int, code: str) -> None:
    assert may_send(action, shown_as(status_id)) == (Already() if status_id == TARGETS[action] else Refusal(code))


@pytest.mark.parametrize("action", TARGETS)
@pytest.mark.parametrize("status_id", [RECEIVED, CONFIRMED, IN_DELIVERY, NEEDS_PAYMENT, UNNAMED_STATUS, None])
def test_an_unsuitable_status_is_no_reason_to_refuse(action: Action, status_id: int | None) -> None:
    expected = Already() if status_id == TARGETS[action] else None
    assert may_send(action, shown_as(status_id)) == expected
    assert may_send(action, stored(status_id=CANCELED, service_status_id=status_id)) == expected, "the service's counts"
    assert may_send(action, None) == Refusal("order_unknown")


@pytest.mark.parametrize("action", TARGETS)
@pytest.mark.parametrize("courier_type", ["restaurant", "", None, "come_get", "platform_courier"])
def test_only_a_restaurants_own_courier_can_be_sent_on_the_way(action: Action, courier_type: str | None) -> None:
    others = action == Action.ON_THE_WAY and courier_type in {"come_get", "platform_courier"}
    expected = Refusal("courier_not_restaurant") if others else None
    known = shown_as(RECEIVED, courier_type=courier_type)
    assert may_send(action, known) == expected
    assert may_send(action, replace(known, service_status_id=TARGETS[action])) == Already()


@pytest.mark.parametrize("before, counts, problems, after", [
    (None, True, (), None),
    ("missing:foods,status_doubtful", True, (), None),
    ("status_doubtful", True, ("not_text:note", "missing:foods"), "not_text:note,missing:foods"),
    ("not_text:note,status_doubtful", False, ("missing:foods",), "missing:foods,status_doubtful"),
    ("missing:status_doubtful", False, (), None),
])  # fmt: skip
def test_problems_are_the_newest_ones_and_a_doubt_stays_while_its_status_does_not_count(
    before, counts, problems, after
):
    known = stored(problem=before)
    assert merge(known, 2, differs=Differs.NOTHING, status_counts=counts, problems=problems).problem == after


@pytest.mark.parametrize("before, after", [
    (None, "status_doubtful"), ("missing:foods", "missing:foods,status_doubtful"),
    *((doubtful, None) for doubtful in ("status_doubtful", "status_doubtful,missing:foods")),
])  # fmt: skip
def test_a_refusal_puts_the_status_in_doubt_once(before: str | None, after: str | None) -> None:
    assert with_doubt(before) == after


@pytest.mark.parametrize("before, counts, after", [
    (None, True, "contents_outdated"),
    ("contents_outdated,missing:foods", True, "missing:foods,contents_outdated"),
    ("status_doubtful,missing:foods", True, "missing:foods,contents_outdated"),
    ("status_doubtful,missing:foods", False, "status_doubtful,missing:foods,contents_outdated"),
])  # fmt: skip
def test_refused_contents_leave_the_status_and_say_so_once(before: str | None, counts: bool, after: str) -> None:
    change = merge_status(shown_as(1, problem=before, digest="as before"), 1, status_counts=counts)
    assert change is not None
    told = before is not None and "contents_outdated" in before
    assert (change.problem, change.last_change) == (after, None if told else LastChange.CONTENTS)


WRITTEN: dict[str, Any] = {"problem": "contents_outdated", "digest": None}


@pytest.mark.parametrize("known, counts, is_written", [
    (shown_as(2, **WRITTEN), True, False), (shown_as(1, **WRITTEN), True, True), (shown_as(1, **WRITTEN), False, False),
    (stored(status_id=2, service_status_id=1, **WRITTEN), True, True), (shown_as(2, digest=None), True, True),
    (shown_as(2, ended_by=EndedBy.SILENCE, **WRITTEN), True, True),
    (shown_as(2, problem="contents_outdated"), True, True),
])  # fmt: skip
def test_refused_contents_that_came_before_are_not_written_again(known: Stored, counts: bool, is_written: bool) -> None:
    assert (merge_status(known, 2, status_counts=counts) is not None) == is_written


@pytest.mark.interface("Order statuses", "Acknowledgement rules 1")
@pytest.mark.parametrize("status_id, word, active", [
    (1, "RECEIVED", True), (2, "CONFIRMED", True), (16, "IN_DELIVERY", True), (5, "COMPLETE_WITH_PAYMENT", False),
    (6, "CANCELED", False), (NEEDS_PAYMENT, "COMPLETE_NEEDS_PAYMENT", True), (UNNAMED_STATUS, "UNKNOWN", False),
    (None, "UNKNOWN", False),
])  # fmt: skip
def test_each_status_has_a_name_and_the_right_activity(status_id: int | None, word: str, active: bool) -> None:
    assert (STATUSES.name(status_id), status_id in STATUSES.active) == (word, active)


def test_without_its_configured_id_no_status_needs_payment() -> None:
    assert not {NEEDS_PAYMENT, None} & set(Statuses().active)
    assert (Statuses().name(NEEDS_PAYMENT), Statuses().name(None)) == ("UNKNOWN", "UNKNOWN")
    assert Statuses().latest([document(CANCELED), document(NEEDS_PAYMENT)])[KEY].status_id == NEEDS_PAYMENT


@pytest.mark.parametrize("listed, meant", [
    *(([a, b], max(a, b, key=IN_ORDER.index)) for a, b in permutations(IN_ORDER, 2)),
    *(([a, b], b) for a in (CONFIRMED, 98) for b in (UNNAMED_STATUS, None)),  # of unknown ones the later counts
    *(([a, CONFIRMED], CONFIRMED) for a in (UNNAMED_STATUS, None)),
    ([IN_DELIVERY, UNNAMED_STATUS, RECEIVED], UNNAMED_STATUS), ([RECEIVED, UNNAMED_STATUS, IN_DELIVERY], IN_DELIVERY),
])  # fmt: skip
def test_an_order_listed_twice_is_the_furthest_one(listed: list[int | None], meant: int | None) -> None:
    assert STATUSES.latest(map(document, listed))[KEY].status_id == meant


def test_a_list_means_the_last_document_of_each_order_in_its_furthest_status_and_none_without_a_key() -> None:
    one, other = document(CONFIRMED), document(RECEIVED, key=OTHER_KEY)
    first = document(CONFIRMED, digest="first")
    assert Statuses().latest([document(RECEIVED, key=None), first, one, other]) == {KEY: one, OTHER_KEY: other}
