"""What a decision means for the order, for the log and for the cashier."""

from typing import Any

import pytest
from tests.rules.builders import NOW, row, shown_as, stored

from orderbridge.model import Action, ActionState, EndedBy, KnownBy, LastChange, NewStatus, Verdict
from orderbridge.rules.lifecycle import Statuses, new_status
from orderbridge.rules.outbox_rows import is_alarm
from orderbridge.rules.retry import AwaitPoll, Decision, RetryAt

DONE, REFUSED, FAILED, EXPIRED = ActionState.DONE, ActionState.REFUSED, ActionState.FAILED, ActionState.EXPIRED
UNKNOWN = Verdict(FAILED, "outcome_unknown")


def becomes(status_id: int, status: str, last_change: LastChange | None, **more: Any) -> NewStatus:
    usual: dict[str, Any] = {"ended_by": None, "ends": False, "shown": True, "problem": "missing:foods"}
    return NewStatus(status_id=status_id, status=status, last_change=last_change, **usual | more)


COMPLETED = {"ended_by": EndedBy.COMPLETED, "ends": True, "shown": False, "problem": None}
CANCELLED = {"ended_by": EndedBy.CANCELLED, "ends": True}


@pytest.mark.parametrize("decision, expected", [
    (Verdict(DONE, None, KnownBy.ANSWER, 2, 200), becomes(2, "CONFIRMED", LastChange.STATUS)),
    (Verdict(DONE, None, KnownBy.POLL, 16), becomes(16, "IN_DELIVERY", LastChange.STATUS)),
    (Verdict(DONE, None, KnownBy.POLL, 1), becomes(1, "RECEIVED", None)),
    (Verdict(DONE, None, KnownBy.REFUSAL, 5), becomes(5, "COMPLETE_WITH_PAYMENT", LastChange.ENDED, **COMPLETED)),
    (Verdict(DONE, None, KnownBy.ANSWER, 6, 200), becomes(6, "CANCELED", LastChange.CANCELLED, **CANCELLED)),
    (Verdict(DONE, "already", KnownBy.POLL), None), (RetryAt(NOW), None), (AwaitPoll(), None),
    (Verdict(REFUSED, "order_not_found", KnownBy.ANSWER, None, 404), None),
], ids=str)  # fmt: skip
def test_only_a_done_action_gives_its_order_a_status(decision: Decision, expected: NewStatus | None) -> None:
    assert new_status(decision, stored(problem="missing:foods,status_doubtful"), Statuses()) == expected


def test_an_end_already_written_is_not_a_change() -> None:
    cancelled, silent = shown_as(6, ended_by=EndedBy.CANCELLED), shown_as(16, ended_by=EndedBy.SILENCE)
    again = new_status(Verdict(DONE, None, KnownBy.ANSWER, 6, 200), cancelled, Statuses())
    assert again == becomes(6, "CANCELED", None, ended_by=EndedBy.CANCELLED, problem=None)
    alive = new_status(Verdict(DONE, None, KnownBy.POLL, 16), silent, Statuses())
    assert alive == becomes(16, "IN_DELIVERY", None, ends=True, problem=None)


@pytest.mark.parametrize("action", Action)
def test_an_unanswered_order_and_an_unknown_outcome_are_alarms(action: Action) -> None:
    alarms = [state for state in ActionState if is_alarm(row(action), Verdict(state, "service_error"))]
    assert alarms == ([FAILED, EXPIRED] if action == Action.ACCEPT else [])
    assert is_alarm(row(action), UNKNOWN) == (action in {Action.ACCEPT, Action.ON_THE_WAY})
