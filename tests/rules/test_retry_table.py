"""The table of unknown outcomes (docs/design.md, Behaviour) row by row, and the retries (docs/interface.md, Errors), as properties.

`test_retry.py` has the examples. Here each sentence of the two documents is held against everything that can come.
"""

from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise

from hypothesis import assume, given
from hypothesis import strategies as st
from tests.rules.builders import NEEDS_PAYMENT, NOW, STATUSES, answered, stored

from orderbridge.model import Action, ActionState, Attempt, KnownBy, Outcome, Stored, Verdict
from orderbridge.rules.retry import (
    POLL_FIRST,
    UNREADABLE,
    AwaitPoll,
    NextRequest,
    Proof,
    RetryAt,
    RetryPolicy,
    after_poll,
    after_status,
    decide,
    next_request,
    proof,
)
from orderbridge.rules.tokens import refusal_wait

ABSENT = None
DOUBTS = [Outcome.UNKNOWN, Outcome.SERVICE_FAILED]
NO_ATTEMPTS = [Outcome.UNAUTHORIZED, Outcome.RATE_LIMITED, Outcome.NOT_SENT]
FOODS = [Action.ACTIVATE_FOOD, Action.DEACTIVATE_FOOD]
RESTAURANTS = [Action.OPEN_RESTAURANT, Action.CLOSE_RESTAURANT]
ORDERS = [Action.ACCEPT, Action.ON_THE_WAY, Action.COMPLETE, Action.CANCEL]
RETRY_AT = NOW + timedelta(minutes=7)

seen_ids = st.just(ABSENT) | st.sampled_from([1, 2, 5, 6, NEEDS_PAYMENT, 16, 99, UNREADABLE])
stored_orders = st.builds(
    lambda status, service, acknowledged: stored(
        status_id=status, service_status_id=service, acknowledged_status_id=acknowledged
    ),
    st.sampled_from([1, 2, 16, 99]),
    st.sampled_from([None, 1, 2, 16, 99]),
    st.sampled_from([None, 1, 2, 16]),
)
doubts = st.lists(st.sampled_from(DOUBTS), min_size=1, max_size=4)
mixed = st.lists(st.sampled_from([*DOUBTS, *NO_ATTEMPTS]), max_size=12)
refused_or_not = st.sampled_from([[], [Outcome.REFUSED]])
policies = st.builds(
    RetryPolicy,
    st.tuples(*[st.floats(0.01, 600)] * 3).map(lambda waits: tuple(sorted(waits))),
    st.floats(1, 60),
    st.floats(0, 1),
)


def said(
    action: Action, history: Sequence[Attempt], order: Stored, seen: int | None, *, other_end: bool = False
) -> Proof:
    return proof(action, history, order, seen, other_end=other_end, active=STATUSES.active)


def looked(
    action: Action, history: Sequence[Attempt], order: Stored, seen: int | None, *, other_end: bool = False
) -> Verdict | RetryAt | None:
    return after_poll(action, history, order, seen, now=NOW, other_end=other_end, active=STATUSES.active)


# ---- the rows of the table -------------------------------------------------------------------------------------------


@given(order=stored_orders, seen=seen_ids, before=doubts, after=refused_or_not)
def test_accept(order: Stored, seen: int | None, before: list[Outcome], after: list[Outcome]) -> None:
    found = said(Action.ACCEPT, answered(*before, *after), order, seen)
    assert (found == Proof.DONE) == (seen in {2, 16})
    assert (found == Proof.NOT_DONE) == (seen == 1 or (seen is ABSENT and order.acknowledged_status_id == 1))


@given(order=stored_orders, seen=seen_ids, before=doubts, after=refused_or_not)
def test_on_the_way(order: Stored, seen: int | None, before: list[Outcome], after: list[Outcome]) -> None:
    found = said(Action.ON_THE_WAY, answered(*before, *after), order, seen)
    assert (found == Proof.DONE) == (seen == 16)
    assert (found == Proof.NOT_DONE) == (seen == 2 or (seen is ABSENT and order.acknowledged_status_id == 2))


@given(order=stored_orders, seen=seen_ids, before=doubts, after=refused_or_not, other_end=st.booleans())
def test_complete(
    order: Stored, seen: int | None, before: list[Outcome], after: list[Outcome], other_end: bool
) -> None:
    found = said(Action.COMPLETE, answered(*before, *after), order, seen, other_end=other_end)
    assert (found == Proof.NOT_DONE) == (seen == 16)
    refused, known = bool(after), order.service_status_id == 16
    if found == Proof.DONE and seen != 5:
        assert refused
        assert known
        assert seen is ABSENT
    if seen is ABSENT:
        assert (found == Proof.DONE) == (refused and known and not other_end), "absence alone proves nothing"


@given(order=stored_orders, seen=seen_ids, before=doubts, after=refused_or_not, other_end=st.booleans())
def test_cancel(order: Stored, seen: int | None, before: list[Outcome], after: list[Outcome], other_end: bool) -> None:
    found = said(Action.CANCEL, answered(*before, *after), order, seen, other_end=other_end)
    assert (found == Proof.NOT_DONE) == (seen in {1, 2, 16, NEEDS_PAYMENT})
    if found == Proof.DONE and seen != 6:
        assert after
        assert not other_end
    if seen == 6:
        assert found == Proof.DONE
    if seen is ABSENT:
        assert (found == Proof.DONE) == (bool(after) and not other_end)


@given(action=st.sampled_from(FOODS), before=doubts)
def test_foods_are_never_asked_about_and_end_by_an_answer(action: Action, before: list[Outcome]) -> None:
    history = answered(*before)
    assert next_request(action, history) == NextRequest.SEND
    made = decide(action, history, now=NOW, policy=RetryPolicy((2, 10, 60), 30, 0), retry_at=RETRY_AT)
    assert not isinstance(made, AwaitPoll)


@given(
    action=st.sampled_from(RESTAURANTS),
    before=mixed,
    last=st.just(Outcome.UNKNOWN),
    shown=st.sampled_from(["Open", "Closed", None]),
)
def test_restaurants_are_asked_after_silence(
    action: Action, before: list[Outcome], last: Outcome, shown: str | None
) -> None:
    history = answered(*before, last)
    assert next_request(action, history) in {NextRequest.ASK_THEN_SEND, NextRequest.ASK}
    verdict = after_status(action, shown, history)
    if shown == {Action.OPEN_RESTAURANT: "Open", Action.CLOSE_RESTAURANT: "Closed"}[action]:
        assert verdict == Verdict(ActionState.DONE, None, KnownBy.STATUS)
    else:
        assert verdict is None or verdict.state == ActionState.FAILED


# ---- what a look makes of a row --------------------------------------------------------------------------------------


@given(
    action=st.sampled_from(ORDERS),
    order=stored_orders,
    seen=seen_ids,
    before=doubts,
    after=refused_or_not,
    other_end=st.booleans(),
)
def test_a_look_ends_a_row_only_as_the_table_allows(
    action: Action, order: Stored, seen: int | None, before: list[Outcome], after: list[Outcome], other_end: bool
) -> None:
    history = answered(*before, *after)
    found = said(action, history, order, seen, other_end=other_end)
    verdict = looked(action, history, order, seen, other_end=other_end)
    if seen == 6 and action != Action.CANCEL:
        assert verdict == Verdict(ActionState.REFUSED, "order_cancelled", KnownBy.POLL)
        return
    if not isinstance(verdict, Verdict):
        assert not after, "a refusal after doubt ends with the next look"
        assert len(before) <= 3, "so do four attempts"
        assert found != Proof.DONE
        return
    match verdict.state:
        case ActionState.DONE:
            assert found == Proof.DONE
            assert verdict.code is None
            shown = seen in {2, 16, 5, 6}
            assert verdict.known_by == (KnownBy.POLL if shown else KnownBy.REFUSAL)
        case ActionState.REFUSED:
            assert found == Proof.NOT_DONE
            assert after
            assert (verdict.code, verdict.known_by) == (history[-1].code, KnownBy.POLL)
        case ActionState.FAILED:
            assert found != Proof.DONE
            assert verdict.code in {"outcome_unknown", "service_error"}
            assert verdict.code == "outcome_unknown" or found == Proof.NOT_DONE
        case state:
            raise AssertionError(state)


@given(action=st.sampled_from(ORDERS), order=stored_orders, seen=seen_ids, before=doubts)
def test_only_an_accept_or_on_the_way_is_hurried_by_a_look(
    action: Action, order: Stored, seen: int | None, before: list[Outcome]
) -> None:
    word = looked(action, answered(*before), order, seen)
    if isinstance(word, RetryAt):
        assert action in {Action.ACCEPT, Action.ON_THE_WAY}
        assert before[-1] == Outcome.UNKNOWN, "a 5xx has no look before its resend"
        assert word.at == NOW


# ---- waits and exhaustion --------------------------------------------------------------------------------------------


@given(action=st.sampled_from(Action), noise=mixed, policy=policies)
def test_the_waits_after_5xx_grow_and_stay_within_a_quarter(
    action: Action, noise: list[Outcome], policy: RetryPolicy
) -> None:
    idle = [outcome for outcome in noise if outcome in NO_ATTEMPTS]
    waits = []
    for number in range(1, 4):
        history = answered(*[*idle, Outcome.SERVICE_FAILED] * number)
        made = decide(action, history, now=NOW, policy=policy, retry_at=RETRY_AT)
        assert isinstance(made, RetryAt)
        waits.append((made.at - NOW).total_seconds())
    for wait, configured in zip(waits, policy.retry_waits, strict=True):
        assert configured - 1e-5 <= wait <= configured * 1.25 + 1e-5
    assert all(earlier <= later for earlier, later in pairwise(waits))


@given(action=st.sampled_from(Action), history=mixed, policy=policies)
def test_a_row_is_resent_three_times_and_never_a_fourth(
    action: Action, history: list[Outcome], policy: RetryPolicy
) -> None:
    assume(history and history[-1] in DOUBTS)
    sent = sum(outcome in DOUBTS for outcome in history)
    attempts = answered(*history)
    made = decide(action, attempts, now=NOW, policy=policy, retry_at=RETRY_AT)
    if sent <= 3:
        assert isinstance(made, RetryAt)
        assert next_request(action, attempts) in {NextRequest.SEND, NextRequest.ASK_THEN_SEND}
    elif action in RESTAURANTS:
        assert isinstance(made, RetryAt)
        assert next_request(action, attempts) == NextRequest.ASK
        assert after_status(action, None, attempts) is not None
    elif action in FOODS:
        assert isinstance(made, Verdict)
        assert made.state == ActionState.FAILED
    else:
        assert isinstance(made, AwaitPoll)


@given(action=st.sampled_from(Action), before=mixed, policy=policies)
def test_a_429_waits_for_the_cooldown_whatever_came_before(
    action: Action, before: list[Outcome], policy: RetryPolicy
) -> None:
    history = answered(*before, Outcome.RATE_LIMITED)
    made = decide(action, history, now=NOW, policy=policy, retry_at=RETRY_AT)
    assert made == RetryAt(NOW + timedelta(seconds=policy.cooldown), history[-1].code)


@given(action=st.sampled_from(Action), before=mixed, policy=policies)
def test_a_dead_line_decides_itself_when_it_is_tried_again(
    action: Action, before: list[Outcome], policy: RetryPolicy
) -> None:
    history = answered(*before, Outcome.NOT_SENT)
    assert decide(action, history, now=NOW, policy=policy, retry_at=RETRY_AT) == RetryAt(RETRY_AT, history[-1].code)


@given(action=st.sampled_from(Action), before=mixed, policy=policies, pause=st.sampled_from([0.0, 60.0, 900.0]))
def test_a_401_waits_for_its_account_and_alone_for_minutes_that_grow(
    action: Action, before: list[Outcome], policy: RetryPolicy, pause: float
) -> None:
    history = answered(*before, Outcome.UNAUTHORIZED)
    retry_at = NOW + timedelta(seconds=pause)
    alone = NOW + timedelta(seconds=refusal_wait(before.count(Outcome.UNAUTHORIZED) + 1))
    at = max(retry_at + POLL_FIRST, alone)
    assert decide(action, history, now=NOW, policy=policy, retry_at=retry_at) == RetryAt(at, history[-1].code)


@given(action=st.sampled_from(Action), before=mixed, last=st.sampled_from(Outcome), policy=policies)
def test_an_answer_ends_a_row_with_what_it_is_known_by(
    action: Action, before: list[Outcome], last: Outcome, policy: RetryPolicy
) -> None:
    made = decide(action, answered(*before, last), now=NOW, policy=policy, retry_at=RETRY_AT)
    if isinstance(made, Verdict):
        known_by = {ActionState.DONE: KnownBy.ANSWER, ActionState.REFUSED: KnownBy.ANSWER, ActionState.FAILED: None}
        assert made.known_by == known_by[made.state]
        assert (made.state == ActionState.DONE) == (last == Outcome.OK)
        assert (made.state == ActionState.REFUSED) == (last == Outcome.REFUSED)
