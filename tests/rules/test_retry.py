"""The verdict on an outbox row. A wrong one means food cooked twice, or never.

The table of unknown outcomes (docs/design.md, Behaviour) is here row by row; the properties play whole lives of a row.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import product

import pytest

from tests.rules.builders import (  # isort: skip
    FOOD_ACTIONS, NEEDS_PAYMENT, NOW, ORDER_ACTIONS, RESTAURANT_ACTIONS, STATUSES, TARGETS, answered, shown_as, stored,
)  # fmt: skip
from orderbridge.model import (  # isort: skip
    CANCELED, CONFIRMED, IN_DELIVERY, RECEIVED, Action, ActionState, Attempt, KnownBy, Outcome, Stored, Verdict,
)  # fmt: skip
from orderbridge.rules.retry import (  # isort: skip
    UNREADABLE, AwaitPoll, Decision, NextRequest, Proof, RetryAt, RetryPolicy, after_poll, after_status, counted,
    decide, is_uncertain, longest_wait, may_be_seen, next_request, proof, resend_at,
)  # fmt: skip
from orderbridge.rules.tokens import login_wait, refusal_wait

OK, REFUSED, UNKNOWN = Outcome.OK, Outcome.REFUSED, Outcome.UNKNOWN
FAILED = Outcome.SERVICE_FAILED
DOUBTS = [UNKNOWN, FAILED]
UNAUTHORIZED, RATE_LIMITED, NOT_SENT = NO_ATTEMPTS = [Outcome.UNAUTHORIZED, Outcome.RATE_LIMITED, Outcome.NOT_SENT]

ACCEPT, ON_THE_WAY, COMPLETE, CANCEL = Action.ACCEPT, Action.ON_THE_WAY, Action.COMPLETE, Action.CANCEL
WAITED_FOR = [ACCEPT, ON_THE_WAY]  # a poll comes before the resend
ORDERS, FOODS, RESTAURANTS = sorted(ORDER_ACTIONS), sorted(FOOD_ACTIONS), sorted(RESTAURANT_ACTIONS)
ACTIONS = list(Action)

CALM = RetryPolicy(retry_waits=(2.0, 10.0, 60.0), cooldown=30.0, chance=0.0)
LINE_S = 180.0  # until the line is tried again


def seconds(wait: float, code: str | None) -> RetryAt:
    return RetryAt(NOW + timedelta(seconds=wait), code)


def decision(action: Action, history: Sequence[Attempt], policy: RetryPolicy = CALM) -> Decision:
    return decide(action, history, now=NOW, policy=policy, retry_at=NOW + timedelta(seconds=LINE_S))


def looked(action: Action, history: Sequence[Attempt], order: Stored, seen: int | None) -> Verdict | RetryAt | None:
    return after_poll(action, history, order, seen, now=NOW, active=STATUSES.active)


LIVES = [*(lived for length in range(1, 4) for lived in product(Outcome, repeat=length)), (UNAUTHORIZED,) * 9]
LONG = (10_000.0, 1.0, 1.0), (2.0, 10_000.0, 1.0), (2.0, 10.0, 10_000.0)


@pytest.mark.parametrize("retry_waits", [CALM.retry_waits, *LONG], ids=str)
@pytest.mark.parametrize("cooldown", [0.5, CALM.cooldown, 3600.0])
def test_no_decided_wait_looks_like_a_clock_that_was_set_back(cooldown, retry_waits) -> None:
    """Whatever a line or login waits, and whatever jitter adds. The queue sends a row at once that waits longer."""
    policy = RetryPolicy(retry_waits, cooldown, chance=1.0)
    most = NOW + longest_wait(retry_waits, cooldown)
    of_account = max(refusal_wait(9), *(login_wait(9, 1.0, answered=one) for one in (True, False)))
    retry_at = NOW + timedelta(seconds=max(of_account, cooldown))
    for action, outcomes in product(ACTIONS, LIVES):
        history = answered(*outcomes)
        made = decide(action, history, now=NOW, policy=policy, retry_at=retry_at)
        assert not isinstance(made, RetryAt) or made.at <= most, outcomes
        if next_request(action, history) == NextRequest.ASK_THEN_SEND:
            assert resend_at(history, now=NOW, policy=policy) <= most, outcomes


@pytest.mark.parametrize("outcomes, doubt, attempts", [
    ([], False, 0), ([OK], False, 1), ([REFUSED], False, 1), ([FAILED], True, 1), ([UNKNOWN], True, 1),
    *(([no_attempt], False, 0) for no_attempt in NO_ATTEMPTS), ([UNKNOWN, RATE_LIMITED], True, 1),
    ([FAILED, REFUSED], True, 2),
], ids=str)  # fmt: skip
def test_an_uncertain_request_leaves_doubt_and_counts_as_an_attempt(outcomes, doubt, attempts) -> None:
    history = answered(*outcomes)
    assert (is_uncertain(history), counted(history)) == (doubt, attempts)


Expected = Callable[[Action, Attempt], Decision]


def done(action: Action, last: Attempt) -> Decision:
    return Verdict(ActionState.DONE, None, KnownBy.ANSWER, TARGETS.get(action), last.http_status)


def refused(_: Action, last: Attempt) -> Decision:
    return Verdict(ActionState.REFUSED, last.code, KnownBy.ANSWER, None, last.http_status)


def a_poll(_: Action, last: Attempt) -> Decision:
    return AwaitPoll(last.code)


def failed(code: str) -> Expected:
    return lambda _, last: Verdict(ActionState.FAILED, code, None, None, last.http_status)


def after(wait: float) -> Expected:
    return lambda _, last: seconds(wait, last.code)


WAITS = [(1, 2), (2, 10), (3, 60)]
REFUSED_TOKENS = [(1, 195), (2, 195), (3, 300), (4, 600), (5, 900), (6, 900)]  # a poll goes first
# What was asked, how it was answered, and what follows.
RULES: list[tuple[Sequence[Action], list[Outcome], Expected]] = [
    *((ACTIONS, [*earlier, OK], done) for earlier in ([], [UNKNOWN], [FAILED] * 3, NO_ATTEMPTS)),
    *((ACTIONS, [*earlier, REFUSED], refused) for earlier in ([], NO_ATTEMPTS)),
    *((ORDERS, [doubt, REFUSED], a_poll) for doubt in DOUBTS),
    *((FOODS + RESTAURANTS, [doubt, REFUSED], refused) for doubt in DOUBTS),
    *((ACTIONS, [*earlier, RATE_LIMITED], after(CALM.cooldown)) for earlier in ([], [FAILED] * 4)),
    *((ACTIONS, [*earlier, NOT_SENT], after(LINE_S)) for earlier in ([], [FAILED] * 4)),
    *((ACTIONS, [*[UNAUTHORIZED, FAILED] * (times - 1), UNAUTHORIZED], after(wait)) for times, wait in REFUSED_TOKENS),
    *((ACTIONS, [FAILED] * number, after(wait)) for number, wait in WAITS),
    *((WAITED_FOR, [UNKNOWN] * number, after(2 * CALM.cooldown)) for number, _ in WAITS),
    *((RESTAURANTS, [UNKNOWN] * number, after(0)) for number, _ in WAITS),
    *(([COMPLETE, CANCEL, *FOODS], [UNKNOWN] * number, after(wait)) for number, wait in WAITS),
    # the resends are used up
    *((ORDERS, [doubt] * 4, a_poll) for doubt in DOUBTS),
    *((RESTAURANTS, [doubt] * 4, after(0)) for doubt in DOUBTS),
    (FOODS, [FAILED] * 4, failed("service_error")),
    (FOODS, [UNKNOWN] * 4, failed("outcome_unknown")),
    (FOODS, [UNKNOWN, FAILED, FAILED, FAILED], failed("outcome_unknown")),
    # what was no attempt lengthens no wait and uses up no resend
    *(([COMPLETE], [FAILED, no_attempt, FAILED], after(10)) for no_attempt in NO_ATTEMPTS),
    *(([CANCEL], [FAILED, no_attempt, FAILED, no_attempt, FAILED], after(60)) for no_attempt in NO_ATTEMPTS),
]


@pytest.mark.interface("Errors")
@pytest.mark.parametrize("actions, outcomes, expected", RULES)
def test_each_answer_has_its_decision(actions: Sequence[Action], outcomes: list[Outcome], expected: Expected) -> None:
    history = answered(*outcomes)
    assert [decision(action, history) for action in actions] == [expected(action, history[-1]) for action in actions]


@pytest.mark.parametrize("action", FOODS + RESTAURANTS)
def test_an_unknown_error_does_not_resolve_a_doubtful_switch(action: Action) -> None:
    no = Attempt(REFUSED, "refused", 422, detail="")
    assert decision(action, [*answered(FAILED), no]) == failed("outcome_unknown")(action, no)
    assert decision(action, [no]) == refused(action, no)


@pytest.mark.parametrize("number, wait", WAITS)
def test_after_the_status_of_a_restaurant_the_resend_waits(number: int, wait: float) -> None:
    history = answered(*[UNKNOWN] * number)
    assert resend_at(history, now=NOW, policy=CALM) == NOW + timedelta(seconds=wait)
    ended = [*history[:-1], replace(history[-1], ended_utc=NOW - timedelta(seconds=1))]
    assert resend_at(ended, now=NOW, policy=CALM) == NOW + timedelta(seconds=wait - 1)
    set_back = [*history[:-1], replace(history[-1], ended_utc=NOW + timedelta(hours=2))]
    assert resend_at(set_back, now=NOW, policy=CALM) == NOW


def test_jitter_adds_at_most_a_quarter_to_a_wait() -> None:
    for chance, wait in ((0.0, 2.0), (0.5, 2.25), (1.0, 2.5)):
        policy = RetryPolicy(CALM.retry_waits, CALM.cooldown, chance)
        assert decision(COMPLETE, answered(FAILED), policy) == seconds(wait, "service_failed_1")


@pytest.mark.parametrize("outcomes, step", [
    ([], NextRequest.SEND), ([RATE_LIMITED], NextRequest.SEND), ([UNKNOWN], NextRequest.ASK_THEN_SEND),
    *(([UNKNOWN, no_attempt], NextRequest.ASK_THEN_SEND) for no_attempt in NO_ATTEMPTS),
    ([FAILED, UNKNOWN], NextRequest.ASK_THEN_SEND), ([UNKNOWN, FAILED], NextRequest.SEND),
    *(([FAILED, no_attempt] * 2 + [FAILED], NextRequest.SEND) for no_attempt in NO_ATTEMPTS),
    ([UNKNOWN] * 3, NextRequest.ASK_THEN_SEND), ([UNKNOWN] * 4, NextRequest.ASK), ([FAILED] * 4, NextRequest.ASK),
], ids=str)  # fmt: skip
@pytest.mark.parametrize("action", ACTIONS)
def test_only_a_restaurants_status_is_requested_after_a_timeout(action, outcomes, step) -> None:
    assert next_request(action, answered(*outcomes)) == (step if action in RESTAURANTS else NextRequest.SEND)


@pytest.mark.parametrize("action", ACTIONS)
def test_a_poll_that_is_under_way_is_waited_for_after_silence(action: Action) -> None:
    seen = [may_be_seen(action, outcome) for outcome in (None, FAILED, REFUSED, UNKNOWN)]
    assert seen == [False, False, False, action in WAITED_FOR]


@pytest.mark.parametrize("shown, left, used_up", [
    ("Open", Verdict(ActionState.DONE, None, KnownBy.STATUS), Verdict(ActionState.DONE, None, KnownBy.STATUS)),
    ("Closed", None, Verdict(ActionState.FAILED, "service_error", KnownBy.STATUS, None, 404)),
    (None, None, Verdict(ActionState.FAILED, "outcome_unknown", None, None, 404)),
])  # fmt: skip
@pytest.mark.parametrize("doubt", DOUBTS)
def test_the_status_of_a_restaurant_ends_its_row_when_it_is_as_asked_or_no_resend_is_left(doubt, shown, left, used_up):
    assert [after_status(Action.OPEN_RESTAURANT, shown, answered(*[doubt] * n)) for n in (1, 3)] == [left, left]
    assert after_status(Action.OPEN_RESTAURANT, shown, answered(*[doubt] * 4)) == used_up
    closed = Verdict(ActionState.DONE, None, KnownBy.STATUS)
    assert after_status(Action.CLOSE_RESTAURANT, "Closed", answered(doubt)) == closed


DONE, NOT_DONE, NOTHING = Proof.DONE, Proof.NOT_DONE, Proof.NOTHING
ABSENT = None
FRESH = stored()
REFUSED_THEN = [UNKNOWN, REFUSED]
AT_16, NEVER_AT_16 = shown_as(16), stored(status_id=16, service_status_id=2)  # the second only by our own action
ACK_1, ACK_2 = stored(acknowledged_status_id=1), stored(acknowledged_status_id=2)
ACK_16 = shown_as(16, acknowledged_status_id=16)
IN_DOUBT, AFTER_5XX = [UNKNOWN], [FAILED, REFUSED]

# What was asked and stored, how it was answered, whether another action of ours ends the order, too; and what a poll
# proves by the status that it shows.
TABLE = [
    (ACCEPT, FRESH, IN_DOUBT, False, {2: DONE, 16: DONE, 1: NOT_DONE}),
    (ACCEPT, FRESH, IN_DOUBT, False, {ABSENT: NOTHING, 99: NOTHING, UNREADABLE: NOTHING}),
    (ACCEPT, ACK_1, IN_DOUBT, False, {ABSENT: NOT_DONE, 99: NOTHING, UNREADABLE: NOTHING}),
    (ACCEPT, ACK_2, IN_DOUBT, False, {ABSENT: NOTHING}),
    (ACCEPT, ACK_1, REFUSED_THEN, False, {ABSENT: NOT_DONE}),
    (ON_THE_WAY, FRESH, IN_DOUBT, False, {16: DONE, 2: NOT_DONE, 1: NOTHING, ABSENT: NOTHING}),
    (ON_THE_WAY, ACK_2, IN_DOUBT, False, {ABSENT: NOT_DONE, 99: NOTHING, UNREADABLE: NOTHING}),
    (ON_THE_WAY, ACK_1, IN_DOUBT, False, {ABSENT: NOTHING}),
    (COMPLETE, AT_16, IN_DOUBT, False, {5: DONE, 16: NOT_DONE, ABSENT: NOTHING}),
    (COMPLETE, ACK_16, IN_DOUBT, False, {ABSENT: NOTHING}),
    (COMPLETE, AT_16, REFUSED_THEN, False, {16: NOT_DONE, ABSENT: DONE, 1: NOTHING, 2: NOTHING, 6: NOTHING}),
    (COMPLETE, AT_16, REFUSED_THEN, False, {NEEDS_PAYMENT: NOTHING, 99: NOTHING, UNREADABLE: NOTHING}),
    (COMPLETE, AT_16, AFTER_5XX, False, {ABSENT: DONE}),
    (COMPLETE, AT_16, REFUSED_THEN, True, {5: DONE, 16: NOT_DONE, ABSENT: NOTHING}),
    (COMPLETE, shown_as(2), REFUSED_THEN, False, {ABSENT: NOTHING}),
    (COMPLETE, NEVER_AT_16, REFUSED_THEN, False, {ABSENT: NOTHING}),
    (CANCEL, FRESH, IN_DOUBT, False, {6: DONE, 1: NOT_DONE, 2: NOT_DONE, 16: NOT_DONE, NEEDS_PAYMENT: NOT_DONE}),
    (CANCEL, FRESH, IN_DOUBT, False, {ABSENT: NOTHING, 5: NOTHING, 99: NOTHING, UNREADABLE: NOTHING}),
    (CANCEL, FRESH, REFUSED_THEN, False, {6: DONE, 2: NOT_DONE, ABSENT: DONE, 5: NOTHING, 99: NOTHING}),
    (CANCEL, FRESH, REFUSED_THEN, False, {UNREADABLE: NOTHING}),
    (CANCEL, FRESH, AFTER_5XX, False, {ABSENT: DONE}),
    (CANCEL, FRESH, REFUSED_THEN, True, {6: DONE, 2: NOT_DONE, ABSENT: NOTHING}),
]


@pytest.mark.interface("Acknowledgement rules 4")
@pytest.mark.parametrize("action, order, outcomes, other_end, shown", TABLE)
def test_a_poll_proves_what_the_table_says(action, order, outcomes, other_end, shown) -> None:
    history, active = answered(*outcomes), STATUSES.active
    assert {seen: proof(action, history, order, seen, other_end=other_end, active=active) for seen in shown} == shown


@pytest.mark.parametrize("code", ["missing_field", "bad_url_id"])
def test_a_refusal_of_the_request_itself_proves_no_end(code: str) -> None:
    *earlier, last = answered(*REFUSED_THEN)
    history = [*earlier, replace(last, code=code)]
    assert proof(COMPLETE, history, AT_16, ABSENT, other_end=False, active=STATUSES.active) == NOTHING


@pytest.mark.parametrize("outcomes", [[UNKNOWN], [FAILED], REFUSED_THEN, [UNKNOWN] * 4], ids=str)
@pytest.mark.parametrize("action", [ACCEPT, ON_THE_WAY, COMPLETE])
def test_a_cancelled_order_refuses_everything_else(action: Action, outcomes: list[Outcome]) -> None:
    verdict = looked(action, answered(*outcomes), shown_as(16), CANCELED)
    assert verdict == Verdict(ActionState.REFUSED, "order_cancelled", KnownBy.POLL)
    done = Verdict(ActionState.DONE, None, KnownBy.POLL, TARGETS[action])
    assert looked(action, answered(*outcomes), stored(), TARGETS[action]) == done


ENDS = {
    NOT_DONE: Verdict(ActionState.REFUSED, "refused_2", KnownBy.POLL, None, 402),
    NOTHING: Verdict(ActionState.FAILED, "outcome_unknown", KnownBy.POLL, None, 402),
}


@pytest.mark.parametrize("action, order, outcomes, other_end, shown", [one for one in TABLE if one[2] == REFUSED_THEN])
def test_a_resend_that_is_refused_ends_with_the_next_poll(action, order, outcomes, other_end, shown) -> None:
    for seen, proved in shown.items():
        history, active = answered(*outcomes), STATUSES.active
        verdict = after_poll(action, history, order, seen, now=NOW, other_end=other_end, active=active)
        if proved == DONE:
            known_by, status = (KnownBy.REFUSAL, TARGETS[action]) if seen is ABSENT else (KnownBy.POLL, seen)
            assert verdict == Verdict(ActionState.DONE, None, known_by, status)
        elif seen == CANCELED:
            assert verdict == Verdict(ActionState.REFUSED, "order_cancelled", KnownBy.POLL)
        else:  # after a refusal a missing order is no proof that nothing was done
            assert verdict == ENDS[NOTHING if seen is ABSENT else proved]


NOT_DONE_CODE, NOTHING_CODE = "service_error", "outcome_unknown"


@pytest.mark.parametrize("action, order, seen, at_once, code", [
    (ACCEPT, FRESH, RECEIVED, True, NOT_DONE_CODE), (ACCEPT, ACK_1, ABSENT, True, NOT_DONE_CODE),
    (ACCEPT, FRESH, ABSENT, False, NOTHING_CODE), (ON_THE_WAY, FRESH, CONFIRMED, True, NOT_DONE_CODE),
    (ON_THE_WAY, ACK_2, ABSENT, True, NOT_DONE_CODE),
    (COMPLETE, AT_16, IN_DELIVERY, False, NOT_DONE_CODE),  # its resend has its own time
    (COMPLETE, AT_16, ABSENT, False, NOTHING_CODE), (CANCEL, FRESH, CONFIRMED, False, NOT_DONE_CODE),
    (CANCEL, FRESH, ABSENT, False, NOTHING_CODE),
])  # fmt: skip
def test_a_poll_without_proof_triggers_the_resend_or_ends_the_row(action, order, seen, at_once, code) -> None:
    assert looked(action, answered(UNKNOWN), order, seen) == (RetryAt(NOW, "unknown_1") if at_once else None)
    for after in ([FAILED], [UNKNOWN, FAILED], [UNKNOWN, RATE_LIMITED]):
        assert looked(action, answered(*after), order, seen) is None, "only silence is hurried"
    for doubt in DOUBTS:
        ended = looked(action, answered(*[doubt] * 4), order, seen)
        assert replace(ended, http_status=None) == Verdict(ActionState.FAILED, code, KnownBy.POLL)


def test_attempts_before_actions_retry_keep_their_doubt_and_do_not_count() -> None:
    spent = [Attempt(Outcome.SERVICE_FAILED, spent=True)] * 4
    assert next_request(Action.OPEN_RESTAURANT, spent) == NextRequest.SEND
    assert (counted(spent), is_uncertain(spent)) == (0, True)
    asked = [*spent, Attempt(REFUSED, "refused", 422, spent=True)]
    # a refusal from before proves no end
    assert proof(COMPLETE, asked, AT_16, ABSENT, other_end=False, active=STATUSES.active) == NOTHING
