"""The standing of a row, and what may end it: a row that may have had its effect never ends as unsent."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rules.builders import NOW, answered, row, unresolved

from orderbridge.model import Action, ActionState, Outcome, Verdict
from orderbridge.rules.outbox_rows import ENDS, Cause, Standing, end_by, refused_unsent, standing_of, stands_after
from orderbridge.rules.retry import RetryPolicy, decide, is_uncertain

ROWS = {
    Standing.WAITING: row(Action.CANCEL),
    Standing.RETRIED: row(Action.CANCEL, expires_utc=NOW),
    Standing.UNRESOLVED: unresolved(Action.CANCEL),
}
UNSENT = {ActionState.WITHDRAWN, ActionState.EXPIRED, ActionState.REFUSED}


@pytest.mark.parametrize("standing", ROWS)
def test_a_row_shows_where_it_stands(standing: Standing) -> None:
    assert standing_of(ROWS[standing]) is standing
    assert ROWS[standing].state == standing.state


@pytest.mark.parametrize("cause", Cause)
def test_what_waits_ends_as_not_sent_and_nothing_else_does(cause: Cause) -> None:
    ends = {standing: end_by(one, cause) for standing, one in ROWS.items()}
    waiting = ends.pop(Standing.WAITING)
    assert waiting is not None
    assert waiting.state in UNSENT | {ActionState.SUPERSEDED}
    for end in ends.values():
        assert end is None or end.state not in UNSENT, "it may have had its effect"


@pytest.mark.parametrize("standing, cause", [*product(ROWS, Cause)], ids=str)
def test_a_cause_ends_a_row_or_leaves_it(standing: Standing, cause: Cause) -> None:
    stays = {(Standing.UNRESOLVED, Cause.WITHDRAWN), (Standing.UNRESOLVED, Cause.REFUSED)}
    assert (end_by(ROWS[standing], cause) is None) == ((standing, cause) in stays)


def test_nothing_but_its_answer_ends_a_row_on_the_wire() -> None:
    assert not {cause for standing, cause in ENDS if standing is Standing.ON_THE_WIRE}


@pytest.mark.parametrize("standing", ROWS)
def test_a_cancelled_order_ends_its_rows_wherever_they_stand(standing: Standing) -> None:
    assert refused_unsent(ROWS[standing], "order_cancelled") == Verdict(ActionState.REFUSED, "order_cancelled")


def test_a_refusal_says_why() -> None:
    assert refused_unsent(ROWS[Standing.WAITING], "order_unknown") == Verdict(ActionState.REFUSED, "order_unknown")
    assert refused_unsent(ROWS[Standing.RETRIED], "order_unknown") == Verdict(ActionState.FAILED, "outcome_unknown")


@given(
    action=st.sampled_from(Action),
    outcomes=st.lists(st.sampled_from(Outcome).filter(lambda one: one != Outcome.OK), min_size=1, max_size=6),
)
def test_a_row_that_goes_on_stands_unresolved_as_soon_as_it_is_in_doubt(
    action: Action, outcomes: list[Outcome]
) -> None:
    history = answered(*outcomes)
    decision = decide(action, history, now=NOW, policy=RetryPolicy((2, 10, 60), 30, 0), retry_at=NOW)
    if not isinstance(decision, Verdict):
        expected = Standing.UNRESOLVED if is_uncertain(history) else Standing.WAITING
        assert stands_after(decision, history) is expected
