"""Whether a row that was read again may leave: each thing that keeps it, and with which request it leaves."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.rules.builders import NOW, answered, row, stored, unresolved

from orderbridge.model import CANCELED, CONFIRMED, Action, ActionState, KnownBy, OutboxRow, Outcome, Stored, Verdict
from orderbridge.rules.claims import (
    Changed,
    Gone,
    Held,
    Incomplete,
    InTable,
    Leaves,
    NotOurs,
    PollInFlight,
    Stays,
    judge,
    judge_end,
)
from orderbridge.rules.retry import NextRequest, RetryAt, RetryPolicy

POLICY = RetryPolicy(retry_waits=(2.0, 10.0, 60.0), cooldown=30.0, chance=0.0)
USUAL: dict[str, Any] = {
    "account": "kadikoy",
    "has_left": False,
    "poll_in_flight": False,
    "now": NOW,
    "policy": lambda: POLICY,
}
OURS = stored()


def judged(
    fresh: OutboxRow, order: Stored | None = OURS, *outcomes: Outcome, known: OutboxRow | None = None, **more: Any
) -> Leaves | Stays:
    found = InTable(fresh, order=order, history=tuple(answered(*outcomes)))
    return judge(known or fresh, found, **USUAL | more)


@pytest.mark.parametrize("action", Action)
def test_a_row_that_is_as_it_was_leaves(action: Action):
    order = replace(OURS, status_id=CONFIRMED, service_status_id=CONFIRMED) if action != Action.ACCEPT else OURS
    assert judged(row(action), order) == Leaves(NextRequest.SEND)


@pytest.mark.parametrize(
    "changes",
    [
        {"state": ActionState.SENDING},
        {"withdraw": True},
        {"next_attempt_utc": NOW},
        {"expires_utc": NOW},
    ],
    ids=str,
)
def test_a_row_that_has_changed_since_is_looked_at_anew(changes: dict[str, Any]):
    fresh = row(Action.ACTIVATE_FOOD, **changes)
    assert judged(fresh, known=row(Action.ACTIVATE_FOOD)) == Changed(fresh)


def test_a_row_that_is_not_to_be_had_is_held_or_gone():
    known = row(Action.ACCEPT)
    assert judge(known, InTable(is_held=True), **USUAL) == Held()
    assert judge(known, InTable(), **USUAL) == Gone()


def test_which_row_of_an_order_goes_first_is_decided_when_all_are_known():
    known = row(Action.ACCEPT)
    asked_back = replace(known, withdraw=True)
    found = InTable(asked_back, unknown=(7, 9), order=replace(OURS, status_id=CANCELED, service_status_id=CANCELED))
    assert judge(known, found, **USUAL) == Incomplete((7, 9))


def test_a_row_whose_account_has_left_is_not_ours():
    food = row(Action.ACTIVATE_FOOD)
    assert judged(food, None, has_left=True) == NotOurs()
    assert judged(row(Action.ACCEPT), has_left=True) == NotOurs()


def test_what_a_row_and_its_order_say_counts_although_its_account_has_left():
    known, theirs = row(Action.ACCEPT), replace(OURS, account="moda")
    assert judged(known, None, has_left=True) == Verdict(ActionState.REFUSED, "order_unknown")
    assert judged(known, theirs, has_left=True) == Changed(replace(known, owner="moda"))
    fresh = replace(known, withdraw=True)
    assert judged(fresh, known=known, has_left=True) == Changed(fresh)


def test_an_order_that_does_not_allow_the_action_any_more_ends_its_row():
    cancelled = replace(OURS, status_id=CANCELED, service_status_id=CANCELED)
    assert judged(row(Action.ACCEPT), cancelled) == Verdict(ActionState.REFUSED, "order_cancelled")
    confirmed = replace(OURS, status_id=CONFIRMED, service_status_id=CONFIRMED)
    assert judged(row(Action.ACCEPT), confirmed) == Verdict(ActionState.DONE, "already", KnownBy.POLL)


def test_what_was_sent_once_is_ended_by_no_status_of_its_order():
    confirmed = replace(OURS, status_id=CONFIRMED, service_status_id=CONFIRMED)
    assert isinstance(judged(unresolved(Action.ACCEPT), confirmed, Outcome.SERVICE_FAILED), Leaves)


def test_what_was_sent_once_waits_for_an_order_that_is_not_there():
    assert judged(unresolved(Action.CANCEL), None, Outcome.UNKNOWN) == Held()


def test_a_row_whose_order_came_in_by_another_account_goes_there():
    theirs = replace(OURS, account="moda")
    fresh = row(Action.ACCEPT)
    assert judged(fresh, theirs) == Changed(replace(fresh, owner="moda"))


def test_a_poll_that_may_show_what_became_of_the_last_request_is_waited_for():
    doubtful = unresolved(Action.ACCEPT)
    assert judged(doubtful, OURS, Outcome.UNKNOWN, poll_in_flight=True) == PollInFlight()
    assert judged(row(Action.ACCEPT), poll_in_flight=True) == Leaves(NextRequest.SEND)


def test_a_restaurant_is_asked_first_and_told_again_when_that_is_due():
    doubtful = unresolved(Action.CLOSE_RESTAURANT)
    just_now = tuple(replace(one, ended_utc=NOW) for one in answered(Outcome.UNKNOWN))
    found = InTable(doubtful, history=just_now)
    soon = judge(doubtful, found, **USUAL)
    assert soon == Leaves(NextRequest.ASK_THEN_SEND, RetryAt(NOW + timedelta(seconds=2), just_now[-1].code))
    later = judge(doubtful, found, **USUAL | {"now": NOW + timedelta(seconds=2)})
    assert later == Leaves(NextRequest.ASK_THEN_SEND)


OVER = Verdict(ActionState.EXPIRED, "expired")


def test_a_row_that_is_as_it_was_ends_as_it_was_decided():
    known = row(Action.ACTIVATE_FOOD)
    assert judge_end(known, InTable(known), OVER) == OVER


@pytest.mark.parametrize("changes", [{"withdraw": True}, {"created_utc": NOW + timedelta(hours=1)}], ids=str)
def test_a_row_that_has_changed_since_does_not_end(changes: dict[str, Any]):
    known = row(Action.ACTIVATE_FOOD)
    fresh = replace(known, **changes)
    assert judge_end(known, InTable(fresh), OVER) == Changed(fresh)


def test_a_row_that_is_not_to_be_had_does_not_end():
    known = row(Action.ACCEPT)
    assert judge_end(known, InTable(known, is_held=True), OVER) == Held()  # its order is
    assert judge_end(known, InTable(is_held=True), OVER) == Held()
    assert judge_end(known, InTable(), OVER) == Gone()
