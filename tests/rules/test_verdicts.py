"""What a decision means for the order, for the log and for the cashier."""

from typing import Any

import pytest
from tests.rules.builders import NOW, row

from orderbridge.model import Action, ActionState, EndedBy, KnownBy, Verdict
from orderbridge.rules.retry import AwaitPoll, Decision, RetryAt
from orderbridge.rules.verdicts import NewStatus, doubts_status, is_alarm, new_status, wrong_argument

DONE, REFUSED, FAILED, EXPIRED = ActionState.DONE, ActionState.REFUSED, ActionState.FAILED, ActionState.EXPIRED
UNKNOWN = Verdict(FAILED, "outcome_unknown")


@pytest.mark.parametrize(
    "decision, expected",
    [
        (Verdict(DONE, None, KnownBy.ANSWER, 2, 200), NewStatus(2, None, shown=True)),
        (Verdict(DONE, None, KnownBy.POLL, 16), NewStatus(16, None, shown=True)),
        (Verdict(DONE, None, KnownBy.REFUSAL, 5), NewStatus(5, EndedBy.COMPLETED, shown=False)),
        (Verdict(DONE, None, KnownBy.ANSWER, 6, 200), NewStatus(6, EndedBy.CANCELLED, shown=True)),
        (Verdict(DONE, "already", KnownBy.POLL), None),
        (Verdict(REFUSED, "order_not_found", KnownBy.ANSWER, None, 404), None),
        (RetryAt(NOW), None),
        (AwaitPoll(), None),
    ],
    ids=str,
)
def test_only_a_done_action_gives_its_order_a_status(decision: Decision, expected: NewStatus | None) -> None:
    assert new_status(decision) == expected


@pytest.mark.parametrize(
    "decision, doubtful",
    [
        (Verdict(REFUSED, "order_not_found", KnownBy.ANSWER, None, 404), True),
        (AwaitPoll("order_not_found"), True),
        (Verdict(REFUSED, "order_unknown"), False),
        (UNKNOWN, False),
        (RetryAt(NOW), False),
    ],
    ids=str,
)
def test_the_services_refusal_makes_the_stored_status_doubtful(decision: Decision, doubtful: bool) -> None:
    assert doubts_status(decision) is doubtful


@pytest.mark.parametrize("action", Action)
def test_an_unanswered_customer_is_an_alarm_and_so_is_what_a_person_has_to_look_at(action: Action) -> None:
    alarms = [state for state in ActionState if is_alarm(row(action), Verdict(state, "service_error"))]
    assert alarms == ([FAILED, EXPIRED] if action == Action.ACCEPT else [])
    assert is_alarm(row(action), UNKNOWN) == (action in {Action.ACCEPT, Action.ON_THE_WAY})


@pytest.mark.parametrize(
    "action, columns, expected",
    [
        (Action.ACCEPT, {"preparing_time": None}, ("preparing_time", "missing")),
        (Action.ACCEPT, {"preparing_time": 0}, ("preparing_time", "out_of_range")),
        (Action.ACCEPT, {"preparing_time": "soon"}, ("preparing_time", "no_number")),
        (Action.CANCEL, {"payment_key": ""}, ("payment_key", "missing")),
        (Action.OPEN_RESTAURANT, {}, ("state", "not_empty")),
    ],
    ids=str,
)
def test_the_cashier_reads_which_argument_is_wrong(
    action: Action, columns: dict[str, Any], expected: tuple[str, str]
) -> None:
    assert wrong_argument(row(action, **columns)) == expected
