"""An order's life: what a delivery changes, and which actions are possible."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rules.builders import NEEDS_PAYMENT, TARGETS, UNNAMED_STATUS, document, shown_as, stored

from orderbridge.model import (
    CANCELED,
    COMPLETE_WITH_PAYMENT,
    CONFIRMED,
    IN_DELIVERY,
    RECEIVED,
    Action,
    Differs,
    EndedBy,
    LastChange,
    Stored,
)
from orderbridge.rules.lifecycle import (
    Already,
    Refusal,
    end_change,
    is_unchanged,
    may_send,
    merge,
    merge_status,
    with_doubt,
)

IN_ORDER = [RECEIVED, CONFIRMED, IN_DELIVERY, NEEDS_PAYMENT, COMPLETE_WITH_PAYMENT, CANCELED]

named = st.sampled_from(IN_ORDER)
statuses = named | st.just(UNNAMED_STATUS) | st.none()
ends = st.none() | st.sampled_from(EndedBy)


# ---- a delivery over what is stored ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "known",
    [
        shown_as(CONFIRMED),
        shown_as(CONFIRMED, problem="total_unreadable"),  # of the document itself
        shown_as(CANCELED, ended_by=EndedBy.CANCELLED),
    ],
    ids=["the same", "with a problem", "an end"],
)
def test_the_same_document_again_is_nothing_to_write(known: Stored) -> None:
    assert is_unchanged(known, document(known.status_id))


@pytest.mark.parametrize(
    "known",
    [
        pytest.param(shown_as(CONFIRMED, digest="another"), id="other contents"),
        pytest.param(shown_as(CONFIRMED, digest=None), id="contents of a delivery that did not count"),
        pytest.param(shown_as(RECEIVED), id="another status"),
        pytest.param(stored(status_id=CONFIRMED, service_status_id=RECEIVED), id="a status the service never showed"),
        pytest.param(stored(status_id=RECEIVED, service_status_id=CONFIRMED), id="a status of ours that it took back"),
        pytest.param(shown_as(CONFIRMED, ended_by=EndedBy.SILENCE), id="an order ended by silence"),
        pytest.param(shown_as(CONFIRMED, problem="status_doubtful"), id="a doubtful status"),
        pytest.param(shown_as(CONFIRMED, problem="total_unreadable,status_doubtful"), id="a doubt among problems"),
    ],
)
def test_a_delivery_is_written_when_it_differs_or_settles_something(known: Stored) -> None:
    assert not is_unchanged(known, document(CONFIRMED))


SAME, MORE = Differs.NOTHING, Differs.DETAILS


@pytest.mark.parametrize(
    "known, status_id, contents, told",
    [
        pytest.param(shown_as(1), 1, SAME, None, id="an echo is no news"),
        pytest.param(shown_as(1), 2, SAME, LastChange.STATUS, id="another status"),
        pytest.param(shown_as(16), 1, SAME, LastChange.STATUS, id="a status that goes back is believed"),
        pytest.param(shown_as(1), UNNAMED_STATUS, SAME, LastChange.STATUS, id="an unknown status"),
        pytest.param(shown_as(1), None, SAME, LastChange.STATUS, id="an unreadable status"),
        pytest.param(shown_as(1), 1, MORE, LastChange.CONTENTS, id="other contents"),
        pytest.param(shown_as(1), 2, MORE, LastChange.CONTENTS, id="both: the lines must be read again"),
        pytest.param(shown_as(1), 6, SAME, LastChange.CANCELLED, id="the customer cancels"),
        pytest.param(shown_as(1), 6, MORE, LastChange.CANCELLED, id="a cancellation says the most"),
        pytest.param(shown_as(16), 5, SAME, LastChange.ENDED, id="completed"),
        pytest.param(shown_as(6, ended_by=EndedBy.CANCELLED), 6, SAME, None, id="a known end is no news"),
        pytest.param(shown_as(6, ended_by=EndedBy.CANCELLED), 6, MORE, LastChange.CONTENTS, id="a known end, edited"),
        pytest.param(shown_as(5, ended_by=EndedBy.COMPLETED), 6, SAME, LastChange.CANCELLED, id="another end"),
        pytest.param(
            shown_as(6, ended_by=EndedBy.CANCELLED), 5, SAME, LastChange.ENDED, id="another end, the other way"
        ),
        pytest.param(shown_as(16, ended_by=EndedBy.SILENCE), 5, SAME, LastChange.ENDED, id="silence, then completed"),
        pytest.param(
            shown_as(16, ended_by=EndedBy.SILENCE), 6, SAME, LastChange.CANCELLED, id="silence, then cancelled"
        ),
        pytest.param(shown_as(16, ended_by=EndedBy.SILENCE), 16, SAME, LastChange.STATUS, id="silence, then alive"),
    ],
)
def test_a_till_is_told_the_most_important_news(
    known: Stored, status_id: int | None, contents: Differs, told: LastChange | None
) -> None:
    assert merge(known, status_id, differs=contents, status_counts=True, problems=()).last_change == told


@given(known_id=statuses, ended_by=ends, status_id=statuses, contents=st.sampled_from(Differs))
def test_a_word_that_does_not_count_changes_contents_at_most(
    known_id: int | None, ended_by: EndedBy | None, status_id: int | None, contents: Differs
) -> None:
    change = merge(shown_as(known_id, ended_by=ended_by), status_id, differs=contents, status_counts=False, problems=())
    assert not change.status_counts
    assert not change.status_changed
    assert not change.reopened
    assert change.ended_by is None
    assert change.last_change == (None if contents is Differs.NOTHING else LastChange.CONTENTS)


@given(known_id=statuses, ended_by=ends, status_id=statuses, contents=st.sampled_from(Differs))
def test_a_word_that_counts_is_believed_whatever_was_stored(
    known_id: int | None, ended_by: EndedBy | None, status_id: int | None, contents: Differs
) -> None:
    change = merge(shown_as(known_id, ended_by=ended_by), status_id, differs=contents, status_counts=True, problems=())
    assert change.status_counts is True
    assert change.status_changed == (status_id != known_id)
    assert change.differs is contents
    assert change.ended_by == {5: EndedBy.COMPLETED, 6: EndedBy.CANCELLED}.get(status_id or 0)
    assert change.reopened == (ended_by is not None and change.ended_by is None)
    news = status_id != known_id or contents is not Differs.NOTHING or ended_by != change.ended_by
    assert (change.last_change is not None) == news


@given(known_id=statuses, status_id=statuses, contents=st.sampled_from(Differs))
def test_a_delivery_that_was_merged_brings_nothing_the_second_time(
    known_id: int | None, status_id: int | None, contents: Differs
) -> None:
    first = merge(shown_as(known_id), status_id, differs=contents, status_counts=True, problems=())
    merged = shown_as(status_id, ended_by=first.ended_by)
    assert merge(merged, status_id, differs=Differs.NOTHING, status_counts=True, problems=()).last_change is None
    assert is_unchanged(merged, document(status_id))


def test_a_till_is_told_a_cancellation_apart_from_other_ends() -> None:
    told = {ended_by: end_change(ended_by) for ended_by in EndedBy}
    assert told == dict.fromkeys(EndedBy, LastChange.ENDED) | {EndedBy.CANCELLED: LastChange.CANCELLED}


# ---- what may be asked -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", TARGETS)
@pytest.mark.parametrize("status_id, code", [(COMPLETE_WITH_PAYMENT, "order_completed"), (CANCELED, "order_cancelled")])
def test_an_order_that_is_over_is_not_asked_about(action: Action, status_id: int, code: str) -> None:
    assert may_send(action, shown_as(status_id)) == (Already() if status_id == TARGETS[action] else Refusal(code))


@pytest.mark.parametrize("action", TARGETS)
def test_an_order_that_nobody_delivered_is_refused(action: Action) -> None:
    assert may_send(action, None) == Refusal("order_unknown")


@pytest.mark.parametrize("action", TARGETS)
@pytest.mark.parametrize("status_id", [RECEIVED, CONFIRMED, IN_DELIVERY, NEEDS_PAYMENT, UNNAMED_STATUS, None])
def test_a_status_that_merely_does_not_fit_is_no_reason_to_refuse(action: Action, status_id: int | None) -> None:
    known = shown_as(status_id)
    expected = Already() if status_id == TARGETS[action] else None
    assert may_send(action, known) == expected


@given(action=st.sampled_from(sorted(TARGETS)), status_id=statuses, service=statuses, ended_by=ends)
def test_only_what_the_service_itself_showed_counts(
    action: Action, status_id: int | None, service: int | None, ended_by: EndedBy | None
) -> None:
    ours = stored(status_id=status_id, service_status_id=service, ended_by=ended_by)
    assert may_send(action, ours) == may_send(action, shown_as(service))


@pytest.mark.parametrize("action", TARGETS)
@pytest.mark.parametrize("courier_type", ["restaurant", "", None, "come_get", "platform_courier"])
def test_only_a_restaurants_own_courier_can_be_sent_on_the_way(action: Action, courier_type: str | None) -> None:
    others = action == Action.ON_THE_WAY and courier_type in {"come_get", "platform_courier"}
    expected = Refusal("courier_not_restaurant") if others else None
    known = shown_as(RECEIVED, courier_type=courier_type)
    assert may_send(action, known) == expected
    assert may_send(action, replace(known, service_status_id=TARGETS[action])) == Already()


# ---- problem ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "before, counts, problems, after",
    [
        (None, True, (), None),
        ("missing:foods,status_doubtful", True, (), None),
        ("status_doubtful", True, ("not_text:note", "missing:foods"), "not_text:note,missing:foods"),
        ("not_text:note,status_doubtful", False, ("missing:foods",), "missing:foods,status_doubtful"),
        ("missing:status_doubtful", False, (), None),
    ],
)
def test_problems_are_those_of_the_newest_delivery_and_a_doubt_stays_while_its_status_does_not_count(
    before: str | None, counts: bool, problems: tuple[str, ...], after: str | None
) -> None:
    known = stored(problem=before)
    assert merge(known, 2, differs=Differs.NOTHING, status_counts=counts, problems=problems).problem == after


@pytest.mark.parametrize(
    "before, after",
    [
        (None, "status_doubtful"),
        ("missing:foods", "missing:foods,status_doubtful"),
        ("status_doubtful", None),
        ("status_doubtful,missing:foods", None),
    ],
)
def test_a_refusal_puts_the_status_in_doubt_once(before: str | None, after: str | None) -> None:
    assert with_doubt(before) == after


@pytest.mark.parametrize(
    "before, counts, after",
    [
        (None, True, "contents_outdated"),
        ("contents_outdated,missing:foods", True, "missing:foods,contents_outdated"),
        ("status_doubtful,missing:foods", True, "missing:foods,contents_outdated"),
        ("status_doubtful,missing:foods", False, "status_doubtful,missing:foods,contents_outdated"),
    ],
)
def test_refused_contents_leave_the_status_and_say_so_once(before: str | None, counts: bool, after: str) -> None:
    change = merge_status(shown_as(1, problem=before, digest="as before"), 1, status_counts=counts)
    assert change is not None
    told = before is not None and "contents_outdated" in before
    assert (change.problem, change.last_change) == (after, None if told else LastChange.CONTENTS)


WRITTEN: dict[str, Any] = {"problem": "contents_outdated", "digest": None}


@pytest.mark.parametrize(
    "known, counts, is_written",
    [
        pytest.param(shown_as(2, **WRITTEN), True, False, id="all of it stands there"),
        pytest.param(shown_as(1, **WRITTEN), True, True, id="another status"),
        pytest.param(shown_as(1, **WRITTEN), False, False, id="another status that does not count"),
        pytest.param(stored(status_id=2, service_status_id=1, **WRITTEN), True, True, id="not shown by the service"),
        pytest.param(shown_as(2, ended_by=EndedBy.SILENCE, **WRITTEN), True, True, id="ended by silence"),
        pytest.param(shown_as(2, problem="contents_outdated"), True, True, id="there is a hash"),
        pytest.param(shown_as(2, digest=None), True, True, id="nobody was told"),
    ],
)
def test_refused_contents_that_came_before_are_not_written_again(known: Stored, counts: bool, is_written: bool) -> None:
    assert (merge_status(known, 2, status_counts=counts) is not None) == is_written
