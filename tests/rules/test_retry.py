"""What becomes of an outbox row: a wrong verdict is food cooked twice, or never.

The table of unknown outcomes (docs/design.md, Behaviour) stands here row by row; the properties play whole lives of a row.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rules.builders import (
    FOOD_ACTIONS,
    NEEDS_PAYMENT,
    NOW,
    ORDER_ACTIONS,
    RESTAURANT_ACTIONS,
    RESTAURANT_TARGETS,
    STATUSES,
    TARGETS,
    answered,
    shown_as,
    stored,
)

from orderbridge.model import (
    CANCELED,
    CONFIRMED,
    IN_DELIVERY,
    RECEIVED,
    Action,
    ActionState,
    Attempt,
    KnownBy,
    Outcome,
    Stored,
    Verdict,
)
from orderbridge.rules.lifecycle import Statuses
from orderbridge.rules.retry import (
    MOST_RESENDS,
    UNREADABLE,
    AwaitPoll,
    Decision,
    NextRequest,
    Proof,
    RetryAt,
    RetryPolicy,
    after_poll,
    after_status,
    counted,
    decide,
    is_uncertain,
    longest_wait,
    may_be_seen,
    next_request,
    proof,
    resend_at,
)
from orderbridge.rules.tokens import line_wait, login_wait, refusal_wait

OK, REFUSED, UNKNOWN = Outcome.OK, Outcome.REFUSED, Outcome.UNKNOWN
FAILED = Outcome.SERVICE_FAILED
UNAUTHORIZED, RATE_LIMITED, NOT_SENT = Outcome.UNAUTHORIZED, Outcome.RATE_LIMITED, Outcome.NOT_SENT
DOUBTS = [UNKNOWN, FAILED]
NO_ATTEMPTS = [UNAUTHORIZED, RATE_LIMITED, NOT_SENT]

ACCEPT, ON_THE_WAY, COMPLETE, CANCEL = Action.ACCEPT, Action.ON_THE_WAY, Action.COMPLETE, Action.CANCEL
WAITED_FOR = [ACCEPT, ON_THE_WAY]  # a look comes before the resend
RESENT = [COMPLETE, CANCEL, *sorted(FOOD_ACTIONS)]  # at the usual waits
ORDERS, FOODS, RESTAURANTS = sorted(ORDER_ACTIONS), sorted(FOOD_ACTIONS), sorted(RESTAURANT_ACTIONS)
ACTIONS = list(Action)

CALM = RetryPolicy(retry_waits=(2.0, 10.0, 60.0), cooldown=30.0, chance=0.0)
RETRY_AT = NOW + timedelta(minutes=3)


def seconds(wait: float, code: str | None) -> RetryAt:
    return RetryAt(NOW + timedelta(seconds=wait), code)


def decision(action: Action, history: Sequence[Attempt], policy: RetryPolicy = CALM) -> Decision:
    return decide(action, history, now=NOW, policy=policy, retry_at=RETRY_AT)


def looked(action: Action, history: Sequence[Attempt], order: Stored, seen: int | None) -> Verdict | RetryAt | None:
    return after_poll(action, history, order, seen, now=NOW, active=STATUSES.active)


# ---- the longest wait ------------------------------------------------------------------------------------------------

LIVES = [*(lived for length in range(1, 5) for lived in product(Outcome, repeat=length)), (UNAUTHORIZED,) * 9]
LONG = (10_000.0, 1.0, 1.0), (2.0, 10_000.0, 1.0), (2.0, 10.0, 10_000.0)


@pytest.mark.parametrize("retry_waits", [CALM.retry_waits, *LONG], ids=str)
@pytest.mark.parametrize("cooldown", [0.5, CALM.cooldown, 3600.0])
@pytest.mark.parametrize("action", ACTIONS)
def test_no_time_that_is_decided_is_taken_for_one_of_a_clock_that_was_set_back(
    action: Action, cooldown: float, retry_waits: tuple[float, float, float]
) -> None:
    """Whatever an account's line or login waits, whatever chance adds; the queue sends at once what waits longer."""
    policy = RetryPolicy(retry_waits, cooldown, chance=1.0)
    most = NOW + longest_wait(retry_waits, cooldown)
    by_account = (
        *(refusal_wait(times) for times in range(1, 10)),
        *(login_wait(times, 1.0, answered=answered) for times in range(1, 10) for answered in (True, False)),
        *(line_wait(times, 1.0) for times in range(1, 10)),
        cooldown,
    )
    retry_at = NOW + timedelta(seconds=max(by_account))
    for outcomes in LIVES:
        history = answered(*outcomes)
        made = decide(action, history, now=NOW, policy=policy, retry_at=retry_at)
        assert not isinstance(made, RetryAt) or made.at <= most, outcomes
        if next_request(action, history) == NextRequest.ASK_THEN_SEND:
            assert resend_at(history, now=NOW, policy=policy) <= most, outcomes


# ---- what counts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "outcomes, doubt, attempts",
    [
        pytest.param([], False, 0, id="nothing"),
        pytest.param([OK], False, 1, id="an OK"),
        pytest.param([REFUSED], False, 1, id="a refusal"),
        pytest.param([FAILED], True, 1, id="a 5xx"),
        pytest.param([UNKNOWN], True, 1, id="silence"),
        pytest.param([UNAUTHORIZED], False, 0, id="401"),
        pytest.param([RATE_LIMITED], False, 0, id="429"),
        pytest.param([NOT_SENT], False, 0, id="never left"),
        pytest.param([UNKNOWN, RATE_LIMITED], True, 1, id="a doubt stays after a 429"),
        pytest.param([FAILED, REFUSED], True, 2, id="a doubt stays after a refusal"),
    ],
)
def test_a_request_that_may_have_had_its_effect_leaves_doubt_and_counts(
    outcomes: list[Outcome], doubt: bool, attempts: int
) -> None:
    history = answered(*outcomes)
    assert is_uncertain(history) is doubt
    assert counted(history) == attempts


# ---- after an answer -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("earlier", [[], [UNKNOWN], [FAILED] * 3, [RATE_LIMITED]], ids=str)
@pytest.mark.parametrize("action", ACTIONS)
def test_an_ok_is_done_and_writes_the_target(action: Action, earlier: list[Outcome]) -> None:
    history = answered(*earlier, OK)
    target = {ACCEPT: 2, ON_THE_WAY: 16, COMPLETE: 5, CANCEL: 6}.get(action)
    assert decision(action, history) == Verdict(ActionState.DONE, None, KnownBy.ANSWER, target, history[-1].http_status)


@pytest.mark.parametrize("earlier", [[], [RATE_LIMITED, UNAUTHORIZED, NOT_SENT]], ids=["at once", "after no attempts"])
@pytest.mark.parametrize("action", ACTIONS)
def test_a_first_refusal_is_definite(action: Action, earlier: list[Outcome]) -> None:
    history = answered(*earlier, REFUSED)
    last = history[-1]
    assert decision(action, history) == Verdict(ActionState.REFUSED, last.code, KnownBy.ANSWER, None, last.http_status)


@pytest.mark.parametrize("doubt", DOUBTS)
@pytest.mark.parametrize("action", ORDERS)
def test_a_refusal_after_doubt_waits_for_a_look(action: Action, doubt: Outcome) -> None:
    assert decision(action, answered(doubt, REFUSED)) == AwaitPoll("refused_2")


@pytest.mark.parametrize("doubt", DOUBTS)
@pytest.mark.parametrize("action", [*FOODS, *RESTAURANTS])
def test_a_refusal_after_doubt_of_what_can_be_repeated_is_definite(action: Action, doubt: Outcome) -> None:
    assert decision(action, answered(doubt, REFUSED)) == Verdict(
        ActionState.REFUSED, "refused_2", KnownBy.ANSWER, None, 402
    )


@pytest.mark.interface("Errors")
@pytest.mark.parametrize("earlier", [[], [FAILED] * 4], ids=["first", "with nothing left"])
@pytest.mark.parametrize("action", ACTIONS)
def test_a_429_waits_for_the_cooldown(action: Action, earlier: list[Outcome]) -> None:
    history = answered(*earlier, RATE_LIMITED)
    assert decision(action, history) == seconds(30, history[-1].code)


@pytest.mark.parametrize("action", ACTIONS)
def test_a_row_waits_while_the_line_is_down(action: Action) -> None:
    history = answered(NOT_SENT)
    assert decision(action, history) == RetryAt(RETRY_AT, history[0].code)


@pytest.mark.parametrize("action", ACTIONS)
def test_a_row_whose_token_is_refused_lets_the_poll_go_first(action: Action) -> None:
    history = answered(UNAUTHORIZED)
    assert decision(action, history) == RetryAt(RETRY_AT + timedelta(seconds=15), history[0].code)


@pytest.mark.interface("Errors")
@pytest.mark.parametrize("number, wait", [(1, 2), (2, 10), (3, 60)])
@pytest.mark.parametrize("action", ACTIONS)
def test_a_5xx_is_retried_after_growing_waits(action: Action, number: int, wait: float) -> None:
    assert decision(action, answered(*[FAILED] * number)) == seconds(wait, f"service_failed_{number}")


@pytest.mark.parametrize("number, wait", [(1, 2), (2, 10), (3, 60)])
@pytest.mark.parametrize("action", RESENT)
def test_silence_is_retried_after_the_same_waits(action: Action, number: int, wait: float) -> None:
    assert decision(action, answered(*[UNKNOWN] * number)) == seconds(wait, f"unknown_{number}")


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("action", WAITED_FOR)
def test_silence_of_what_a_look_can_tell_waits_two_cooldowns_for_it(action: Action, number: int) -> None:
    assert decision(action, answered(*[UNKNOWN] * number)) == seconds(60, f"unknown_{number}")


@pytest.mark.parametrize("number, wait", [(1, 2), (2, 10), (3, 60)])
@pytest.mark.parametrize("action", RESTAURANTS)
def test_silence_of_a_restaurant_is_asked_about_at_once_and_the_resend_waits(
    action: Action, number: int, wait: float
) -> None:
    history = answered(*[UNKNOWN] * number)
    assert decision(action, history) == seconds(0, f"unknown_{number}")
    assert resend_at(history, now=NOW, policy=CALM) == NOW + timedelta(seconds=wait)
    ended = [*history[:-1], replace(history[-1], ended_utc=NOW - timedelta(seconds=1))]
    assert resend_at(ended, now=NOW, policy=CALM) == NOW + timedelta(seconds=wait - 1)


@pytest.mark.parametrize("no_attempt", NO_ATTEMPTS)
def test_what_was_no_attempt_does_not_lengthen_the_next_wait(no_attempt: Outcome) -> None:
    history = answered(FAILED, no_attempt, FAILED)
    assert decision(COMPLETE, history) == seconds(10, "service_failed_3")
    assert decision(Action.OPEN_RESTAURANT, answered(no_attempt, UNKNOWN)) == seconds(0, "unknown_2")


@pytest.mark.parametrize("no_attempt", NO_ATTEMPTS)
def test_what_was_no_attempt_uses_up_no_resend(no_attempt: Outcome) -> None:
    history = answered(FAILED, no_attempt, FAILED, no_attempt, FAILED)
    assert decision(CANCEL, history) == seconds(60, "service_failed_5")
    assert next_request(Action.OPEN_RESTAURANT, history) == NextRequest.SEND


@pytest.mark.parametrize("doubt", DOUBTS)
@pytest.mark.parametrize("action", ORDERS)
def test_with_the_resends_used_up_an_order_waits_for_a_look(action: Action, doubt: Outcome) -> None:
    assert decision(action, answered(*[doubt] * 4)) == AwaitPoll(f"{doubt}_4")


@pytest.mark.parametrize("doubt", DOUBTS)
@pytest.mark.parametrize("action", RESTAURANTS)
def test_with_the_resends_used_up_a_restaurant_is_asked_at_once(action: Action, doubt: Outcome) -> None:
    assert decision(action, answered(*[doubt] * 4)) == seconds(0, f"{doubt}_4")


@pytest.mark.parametrize(
    "outcomes, code",
    [
        pytest.param([FAILED] * 4, "service_error", id="four plain 5xx"),
        pytest.param([FAILED, RATE_LIMITED, FAILED, UNAUTHORIZED, FAILED, FAILED], "service_error", id="and others"),
        pytest.param([UNKNOWN] * 4, "outcome_unknown", id="silence"),
        pytest.param([UNKNOWN, FAILED, FAILED, FAILED], "outcome_unknown", id="silence once"),
    ],
)
@pytest.mark.parametrize("action", FOODS)
def test_with_the_resends_used_up_a_food_has_failed(action: Action, outcomes: list[Outcome], code: str) -> None:
    history = answered(*outcomes)
    assert decision(action, history) == Verdict(ActionState.FAILED, code, None, None, history[-1].http_status)


@given(
    action=st.sampled_from(ACTIONS),
    doubts=st.lists(st.sampled_from(DOUBTS), min_size=1, max_size=3),
    chance=st.floats(0, 1),
)
def test_chance_lengthens_a_wait_by_a_quarter_at_most(action: Action, doubts: list[Outcome], chance: float) -> None:
    history = answered(*doubts)
    calm = decision(action, history)
    nervous = decision(action, history, RetryPolicy(CALM.retry_waits, CALM.cooldown, chance))
    assert isinstance(calm, RetryAt)
    assert isinstance(nervous, RetryAt)
    assert calm.at - NOW <= nervous.at - NOW <= (calm.at - NOW) * 1.25


def test_chance_does_lengthen_a_wait() -> None:
    late = decision(CANCEL, answered(FAILED), RetryPolicy(CALM.retry_waits, CALM.cooldown, 1.0))
    assert late == seconds(2.5, "service_failed_1")


# ---- a restaurant can be asked ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "outcomes, step",
    [
        pytest.param([], NextRequest.SEND, id="never sent"),
        pytest.param([RATE_LIMITED], NextRequest.SEND, id="429"),
        pytest.param([FAILED], NextRequest.SEND, id="a 5xx has no look before its resend"),
        pytest.param([UNKNOWN], NextRequest.ASK_THEN_SEND, id="silence"),
        pytest.param([FAILED, UNKNOWN], NextRequest.ASK_THEN_SEND, id="silence after a 5xx"),
        pytest.param([UNKNOWN, FAILED], NextRequest.SEND, id="a 5xx after silence"),
        pytest.param([UNKNOWN] * 3, NextRequest.ASK_THEN_SEND, id="one resend left"),
        pytest.param([UNKNOWN] * 4, NextRequest.ASK, id="silence, no resend left"),
        pytest.param([FAILED] * 4, NextRequest.ASK, id="5xx, no resend left"),
    ],
)
@pytest.mark.parametrize("action", RESTAURANTS)
def test_a_restaurant_is_asked_what_silence_left_open(
    action: Action, outcomes: list[Outcome], step: NextRequest
) -> None:
    assert next_request(action, answered(*outcomes)) == step


@given(action=st.sampled_from([*ORDERS, *FOODS]), outcomes=st.lists(st.sampled_from(Outcome), max_size=5))
def test_nothing_else_can_be_asked(action: Action, outcomes: list[Outcome]) -> None:
    assert next_request(action, answered(*outcomes)) == NextRequest.SEND


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize(
    "outcomes", [[], [UNKNOWN], [FAILED], [UNKNOWN, FAILED], [FAILED, UNKNOWN], [UNKNOWN, REFUSED]]
)
def test_a_poll_that_is_under_way_is_waited_for_after_silence(action: Action, outcomes: list[Outcome]) -> None:
    silent = outcomes[-1:] == [UNKNOWN]
    assert may_be_seen(action, outcomes[-1] if outcomes else None) is (silent and action in WAITED_FOR)


@pytest.mark.parametrize("outcomes", [[UNKNOWN], [UNKNOWN] * 4, [FAILED] * 4], ids=["one", "silence", "5xx"])
@pytest.mark.parametrize(
    "action, shown", [(Action.OPEN_RESTAURANT, "Open"), (Action.CLOSE_RESTAURANT, "Closed")], ids=str
)
def test_a_restaurant_that_is_as_asked_is_done(action: Action, shown: str, outcomes: list[Outcome]) -> None:
    assert after_status(action, shown, answered(*outcomes)) == Verdict(ActionState.DONE, None, KnownBy.STATUS)


@pytest.mark.parametrize("shown", ["Closed", None])
def test_a_restaurant_that_is_otherwise_or_mute_is_sent_to_again(shown: str | None) -> None:
    assert after_status(Action.OPEN_RESTAURANT, shown, answered(*[UNKNOWN] * 3)) is None


@pytest.mark.parametrize(
    "shown, code, known_by",
    [
        pytest.param("Closed", "service_error", KnownBy.STATUS, id="otherwise"),
        pytest.param(None, "outcome_unknown", None, id="mute"),
    ],
)
@pytest.mark.parametrize("doubt", DOUBTS)
def test_with_the_resends_used_up_a_restaurant_that_is_otherwise_or_mute_has_failed(
    doubt: Outcome, shown: str | None, code: str, known_by: KnownBy | None
) -> None:
    verdict = after_status(Action.OPEN_RESTAURANT, shown, answered(*[doubt] * 4))
    assert verdict == Verdict(ActionState.FAILED, code, known_by, None, 404)


# ---- the table of unknown outcomes -----------------------------------------------------------------------------------

DONE, NOT_DONE, NOTHING = Proof.DONE, Proof.NOT_DONE, Proof.NOTHING
ABSENT = None
FRESH = stored()
REFUSED_THEN = [UNKNOWN, REFUSED]


@dataclass(frozen=True)
class Look:
    """A line of the table: what was stored, what the attempts were, what the look showed, and what that proves."""

    action: Action
    said: Proof
    seen: int | None
    outcomes: Sequence[Outcome] = (UNKNOWN,)
    order: Stored = FRESH
    other_end: bool = False


TABLE = {
    "accept: CONFIRMED": Look(ACCEPT, DONE, 2),
    "accept: IN_DELIVERY, already further": Look(ACCEPT, DONE, 16),
    "accept: RECEIVED": Look(ACCEPT, NOT_DONE, 1),
    "accept: absent, 1 was acknowledged": Look(ACCEPT, NOT_DONE, ABSENT, order=stored(acknowledged_status_id=1)),
    "accept: absent, nothing was acknowledged": Look(ACCEPT, NOTHING, ABSENT),
    "accept: absent, another status was acknowledged": Look(
        ACCEPT, NOTHING, ABSENT, order=stored(acknowledged_status_id=2)
    ),
    "accept: an unknown status": Look(ACCEPT, NOTHING, 99, order=stored(acknowledged_status_id=1)),
    "on_the_way: IN_DELIVERY": Look(ON_THE_WAY, DONE, 16),
    "on_the_way: CONFIRMED": Look(ON_THE_WAY, NOT_DONE, 2),
    "on_the_way: absent, 2 was acknowledged": Look(
        ON_THE_WAY, NOT_DONE, ABSENT, order=stored(acknowledged_status_id=2)
    ),
    "on_the_way: absent, 1 was acknowledged": Look(ON_THE_WAY, NOTHING, ABSENT, order=stored(acknowledged_status_id=1)),
    "on_the_way: absent, nothing was acknowledged": Look(ON_THE_WAY, NOTHING, ABSENT),
    "on_the_way: an unknown status": Look(ON_THE_WAY, NOTHING, 99, order=stored(acknowledged_status_id=2)),
    "complete: IN_DELIVERY": Look(COMPLETE, NOT_DONE, 16, order=shown_as(16)),
    "complete: IN_DELIVERY, resend refused": Look(COMPLETE, NOT_DONE, 16, REFUSED_THEN, order=shown_as(16)),
    "complete: absent": Look(COMPLETE, NOTHING, ABSENT, order=shown_as(16)),
    "complete: absent, 16 was acknowledged": Look(
        COMPLETE, NOTHING, ABSENT, order=shown_as(16, acknowledged_status_id=16)
    ),
    "complete: absent, resend refused": Look(COMPLETE, DONE, ABSENT, REFUSED_THEN, order=shown_as(16)),
    "complete: absent, resend refused after a 5xx": Look(COMPLETE, DONE, ABSENT, [FAILED, REFUSED], order=shown_as(16)),
    "complete: absent, resend refused, 16 never shown": Look(
        COMPLETE, NOTHING, ABSENT, REFUSED_THEN, order=shown_as(2)
    ),
    "complete: absent, resend refused, 16 only ours": Look(
        COMPLETE, NOTHING, ABSENT, REFUSED_THEN, order=stored(status_id=16, service_status_id=2)
    ),
    "complete: absent, refused, a cancel of ours": Look(
        COMPLETE, NOTHING, ABSENT, REFUSED_THEN, order=shown_as(16), other_end=True
    ),
    "complete: CANCELED, resend refused": Look(COMPLETE, NOTHING, 6, REFUSED_THEN, order=shown_as(16)),
    "complete: COMPLETE_NEEDS_PAYMENT, resend refused": Look(
        COMPLETE, NOTHING, NEEDS_PAYMENT, REFUSED_THEN, order=shown_as(16)
    ),
    "cancel: CANCELED": Look(CANCEL, DONE, 6),
    "cancel: CANCELED, resend refused": Look(CANCEL, DONE, 6, REFUSED_THEN),
    "cancel: CANCELED, after a complete of ours": Look(CANCEL, DONE, 6, other_end=True),
    "cancel: RECEIVED": Look(CANCEL, NOT_DONE, 1),
    "cancel: CONFIRMED": Look(CANCEL, NOT_DONE, 2),
    "cancel: IN_DELIVERY": Look(CANCEL, NOT_DONE, 16),
    "cancel: COMPLETE_NEEDS_PAYMENT": Look(CANCEL, NOT_DONE, NEEDS_PAYMENT),
    "cancel: active, resend refused": Look(CANCEL, NOT_DONE, 2, REFUSED_THEN),
    "cancel: absent": Look(CANCEL, NOTHING, ABSENT),
    "cancel: absent, resend refused": Look(CANCEL, DONE, ABSENT, REFUSED_THEN),
    "cancel: absent, resend refused after a 5xx": Look(CANCEL, DONE, ABSENT, [FAILED, REFUSED]),
    "cancel: absent, refused, a complete of ours": Look(CANCEL, NOTHING, ABSENT, REFUSED_THEN, other_end=True),
}


@pytest.mark.parametrize("look", TABLE.values(), ids=TABLE)
def test_a_look_proves_what_the_table_says(look: Look) -> None:
    said = proof(
        look.action,
        answered(*look.outcomes),
        look.order,
        look.seen,
        other_end=look.other_end,
        active=STATUSES.active,
    )
    assert said == look.said


# ---- after a look ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("action, seen", [(ACCEPT, 2), (ACCEPT, 16), (ON_THE_WAY, 16), (CANCEL, 6)])
@pytest.mark.parametrize("outcomes", [[UNKNOWN], [FAILED], REFUSED_THEN, [UNKNOWN] * 4], ids=str)
def test_an_action_that_is_seen_is_done_and_writes_what_was_shown(
    action: Action, seen: int, outcomes: list[Outcome]
) -> None:
    assert looked(action, answered(*outcomes), stored(), seen) == Verdict(ActionState.DONE, None, KnownBy.POLL, seen)


@pytest.mark.parametrize(
    "action, order, target", [(COMPLETE, shown_as(16), 5), (CANCEL, shown_as(1), 6)], ids=["complete", "cancel"]
)
def test_an_end_that_its_refusal_proves_writes_the_target(action: Action, order: Stored, target: int) -> None:
    verdict = looked(action, answered(*REFUSED_THEN), order, ABSENT)
    assert verdict == Verdict(ActionState.DONE, None, KnownBy.REFUSAL, target)


def test_a_cancel_after_a_complete_of_ours_stays_unknown() -> None:
    history = answered(*REFUSED_THEN)
    verdict = after_poll(CANCEL, history, shown_as(5), ABSENT, now=NOW, other_end=True, active=STATUSES.active)
    assert verdict == Verdict(ActionState.FAILED, "outcome_unknown", KnownBy.POLL, None, 402)


def test_needs_payment_is_active_where_its_id_is_configured() -> None:
    verdict = looked(CANCEL, answered(*REFUSED_THEN), stored(), NEEDS_PAYMENT)
    assert verdict == Verdict(ActionState.REFUSED, "refused_2", KnownBy.POLL, None, 402)


@pytest.mark.parametrize("outcomes", [[UNKNOWN], [FAILED], REFUSED_THEN, [UNKNOWN] * 4], ids=str)
@pytest.mark.parametrize("action", [ACCEPT, ON_THE_WAY, COMPLETE])
def test_a_cancelled_order_refuses_everything_else(action: Action, outcomes: list[Outcome]) -> None:
    verdict = looked(action, answered(*outcomes), shown_as(16), CANCELED)
    assert verdict == Verdict(ActionState.REFUSED, "order_cancelled", KnownBy.POLL)


@pytest.mark.parametrize(
    "action, order, seen",
    [
        pytest.param(ACCEPT, stored(), RECEIVED, id="accept"),
        pytest.param(ACCEPT, stored(acknowledged_status_id=1), ABSENT, id="accept, absent"),
        pytest.param(ON_THE_WAY, stored(), CONFIRMED, id="on_the_way"),
        pytest.param(ON_THE_WAY, stored(acknowledged_status_id=2), ABSENT, id="on_the_way, absent"),
    ],
)
def test_silence_that_a_look_disproves_is_sent_again_at_once(action: Action, order: Stored, seen: int | None) -> None:
    assert looked(action, answered(UNKNOWN), order, seen) == RetryAt(NOW, "unknown_1")


@pytest.mark.parametrize("outcomes", [[FAILED], [UNKNOWN, FAILED], [UNKNOWN, RATE_LIMITED]], ids=str)
def test_a_look_hurries_nothing_but_silence(outcomes: list[Outcome]) -> None:
    assert looked(ACCEPT, answered(*outcomes), stored(), RECEIVED) is None


@pytest.mark.parametrize(
    "action, order, seen",
    [
        pytest.param(ACCEPT, stored(), ABSENT, id="accept, absent"),
        pytest.param(COMPLETE, shown_as(16), ABSENT, id="complete, absent"),
        pytest.param(COMPLETE, shown_as(16), IN_DELIVERY, id="complete, not done: its resend has its own time"),
        pytest.param(CANCEL, stored(), ABSENT, id="cancel, absent"),
        pytest.param(CANCEL, stored(), CONFIRMED, id="cancel, not done: its resend has its own time"),
    ],
)
def test_a_look_that_does_not_decide_leaves_the_row_as_it_is(action: Action, order: Stored, seen: int | None) -> None:
    assert looked(action, answered(UNKNOWN), order, seen) is None


@pytest.mark.parametrize(
    "action, order, seen",
    [
        pytest.param(ACCEPT, stored(), RECEIVED, id="accept"),
        pytest.param(ON_THE_WAY, stored(), CONFIRMED, id="on_the_way"),
        pytest.param(COMPLETE, shown_as(16), IN_DELIVERY, id="complete"),
        pytest.param(CANCEL, stored(), RECEIVED, id="cancel"),
    ],
)
def test_a_resend_that_is_refused_and_seen_undone_is_refused(action: Action, order: Stored, seen: int) -> None:
    verdict = looked(action, answered(*REFUSED_THEN), order, seen)
    assert verdict == Verdict(ActionState.REFUSED, "refused_2", KnownBy.POLL, None, 402)


@pytest.mark.parametrize(
    "action, order",
    [
        pytest.param(ACCEPT, stored(), id="accept"),
        pytest.param(ACCEPT, stored(acknowledged_status_id=1), id="accept, 1 was acknowledged"),
        pytest.param(ON_THE_WAY, stored(), id="on_the_way"),
        pytest.param(ON_THE_WAY, stored(acknowledged_status_id=2), id="on_the_way, 2 was acknowledged"),
        pytest.param(COMPLETE, shown_as(2), id="complete, 16 was never shown"),
    ],
)
def test_a_resend_that_is_refused_and_not_seen_stays_unknown(action: Action, order: Stored) -> None:
    verdict = looked(action, answered(*REFUSED_THEN), order, ABSENT)
    assert verdict == Verdict(ActionState.FAILED, "outcome_unknown", KnownBy.POLL, None, 402)


@pytest.mark.parametrize(
    "action, order, seen, code",
    [
        pytest.param(ACCEPT, stored(), RECEIVED, "service_error", id="accept, seen undone"),
        pytest.param(ACCEPT, stored(acknowledged_status_id=1), ABSENT, "service_error", id="accept, absent as before"),
        pytest.param(ACCEPT, stored(), ABSENT, "outcome_unknown", id="accept, absent"),
        pytest.param(COMPLETE, shown_as(16), IN_DELIVERY, "service_error", id="complete, seen undone"),
        pytest.param(COMPLETE, shown_as(16), ABSENT, "outcome_unknown", id="complete, absent"),
        pytest.param(CANCEL, stored(), CONFIRMED, "service_error", id="cancel, seen undone"),
        pytest.param(CANCEL, stored(), ABSENT, "outcome_unknown", id="cancel, absent"),
    ],
)
@pytest.mark.parametrize("doubt", DOUBTS)
def test_with_the_resends_used_up_the_next_look_ends_the_row(
    action: Action, order: Stored, seen: int | None, code: str, doubt: Outcome
) -> None:
    verdict = looked(action, answered(*[doubt] * 4), order, seen)
    assert isinstance(verdict, Verdict)
    assert (verdict.state, verdict.code, verdict.status_id) == (ActionState.FAILED, code, None)
    assert verdict.known_by == KnownBy.POLL


# ---- whole lives -----------------------------------------------------------------------------------------------------

NONE = object()  # no look came
outcomes = st.sampled_from(Outcome)
looks = st.just(NONE) | st.sampled_from([None, 1, 2, 16, NEEDS_PAYMENT, 6])
orders = st.builds(
    lambda status_id, acknowledged: shown_as(status_id, acknowledged_status_id=acknowledged),
    st.sampled_from([1, 2, 16]),
    st.sampled_from([None, 1, 2, 16]),
)
meetings = st.lists(st.tuples(outcomes, looks, st.sampled_from(["Open", "Closed", None])), min_size=1, max_size=25)


@dataclass
class Life:
    """A row's attempts, its end if it has one, and the last that a poll or a restaurant's status showed."""

    history: list[Attempt]
    verdict: Verdict | None = None
    seen: object = NONE
    status: str | None = None


def live(action: Action, order: Stored, met: Sequence[tuple[Outcome, object, str | None]]) -> Life:
    """Play a row as its daemon does: send, decide, look; until it ends or what it meets is used up."""
    life = Life([])
    for outcome, seen, status in met:
        step = next_request(action, life.history)
        if step != NextRequest.SEND:
            life.status = status
            life.verdict = after_status(action, status, life.history)
            if life.verdict is not None:
                return life
            assert step == NextRequest.ASK_THEN_SEND, "with nothing left to send, an answer must end the row"
        life.history.append(Attempt(outcome, "code", 500))
        made = decision(action, life.history)
        if isinstance(made, Verdict):
            life.verdict = made
            return life
        if action in ORDER_ACTIONS and is_uncertain(life.history):
            if isinstance(made, AwaitPoll) and seen is NONE:
                return life  # it is never sent again: only a look or its expiry ends it
            if seen is not NONE:
                life.seen = seen
                word = looked(action, life.history, order, seen if isinstance(seen, int) else None)
                if isinstance(word, Verdict):
                    life.verdict = word
                    return life
                assert not isinstance(made, AwaitPoll), "the look that was awaited must end the row"
    return life


@given(action=st.sampled_from(ACTIONS), order=orders, met=meetings)
def test_nothing_is_sent_again_after_a_definite_answer(
    action: Action, order: Stored, met: list[tuple[Outcome, object, str | None]]
) -> None:
    assert not {OK, REFUSED} & {attempt.outcome for attempt in live(action, order, met).history[:-1]}


@given(action=st.sampled_from(ACTIONS), order=orders, met=meetings)
def test_a_row_is_sent_four_times_at_most(
    action: Action, order: Stored, met: list[tuple[Outcome, object, str | None]]
) -> None:
    assert counted(live(action, order, met).history) <= 1 + MOST_RESENDS == 4


@given(action=st.sampled_from(ACTIONS), order=orders, met=meetings)
def test_done_is_never_said_without_a_reason(
    action: Action, order: Stored, met: list[tuple[Outcome, object, str | None]]
) -> None:
    life = live(action, order, met)
    if life.verdict is None or life.verdict.state != ActionState.DONE:
        return
    last = life.history[-1].outcome
    match life.verdict.known_by:
        case KnownBy.ANSWER:
            assert last == OK
            assert life.verdict.status_id == TARGETS.get(action)
        case KnownBy.POLL:
            assert life.seen in {TARGETS[action], *({IN_DELIVERY} if action == ACCEPT else ())}
            assert life.verdict.status_id == life.seen
        case KnownBy.STATUS:
            assert life.status == RESTAURANT_TARGETS[action]
        case KnownBy.REFUSAL:
            assert action in {COMPLETE, CANCEL}
            assert last == REFUSED
            assert is_uncertain(life.history)
            assert life.verdict.status_id == TARGETS[action]
        case None:
            pytest.fail("done, and nobody knows how")


@given(action=st.sampled_from(ACTIONS), order=orders, met=meetings)
def test_only_done_writes_a_status(
    action: Action, order: Stored, met: list[tuple[Outcome, object, str | None]]
) -> None:
    verdict = live(action, order, met).verdict
    if verdict is not None and verdict.state != ActionState.DONE:
        assert verdict.status_id is None
        assert verdict.code is not None


@given(action=st.sampled_from(ACTIONS), order=orders, met=meetings)
def test_a_doubtful_action_is_refused_only_on_evidence(
    action: Action, order: Stored, met: list[tuple[Outcome, object, str | None]]
) -> None:
    life = live(action, order, met)
    if (
        action in ORDER_ACTIONS
        and is_uncertain(life.history)
        and life.verdict is not None
        and life.verdict.state == ActionState.REFUSED
    ):
        assert life.verdict.known_by == KnownBy.POLL
        assert isinstance(life.seen, int), "absence proves no refusal"


@given(action=st.sampled_from(ORDERS), order=orders, doubts=st.lists(st.sampled_from(DOUBTS), min_size=1, max_size=4))
def test_absence_alone_never_says_done_or_refused(action: Action, order: Stored, doubts: list[Outcome]) -> None:
    verdict = looked(action, answered(*doubts), order, ABSENT)
    assert not isinstance(verdict, Verdict) or verdict.state == ActionState.FAILED


@given(doubts=st.lists(outcomes, max_size=30), action=st.sampled_from(ACTIONS))
def test_a_row_that_is_looked_for_ends_in_the_end(doubts: list[Outcome], action: Action) -> None:
    met = [(doubt, None, None) for doubt in [*doubts, *[UNKNOWN] * 6]]
    verdict = live(action, stored(), met).verdict
    assert verdict is not None


@pytest.mark.parametrize("seen", [5, 7, 99, UNREADABLE], ids=["completed", "needs payment", "unknown", "unreadable"])
def test_a_refused_cancel_is_not_proved_by_a_list_that_shows_the_order(seen: int) -> None:
    history = [Attempt(Outcome.UNKNOWN), Attempt(Outcome.REFUSED, "refused")]
    assert after_poll(Action.CANCEL, history, stored(), seen, now=NOW, active=Statuses().active) == Verdict(
        ActionState.FAILED, "outcome_unknown", KnownBy.POLL
    )


@pytest.mark.parametrize(
    "seen", [1, 2, 7, 99, UNREADABLE], ids=["received", "confirmed", "needs payment", "unknown", "unreadable"]
)
def test_a_refused_complete_is_not_proved_by_a_list_that_shows_the_order_alive(seen: int) -> None:
    history = [Attempt(Outcome.UNKNOWN), Attempt(Outcome.REFUSED, "refused")]
    order = stored(service_status_id=16)
    assert after_poll(Action.COMPLETE, history, order, seen, now=NOW, active=Statuses().active) == Verdict(
        ActionState.FAILED, "outcome_unknown", KnownBy.POLL
    )


def test_a_list_that_shows_the_order_completed_proves_the_complete() -> None:
    history = [Attempt(Outcome.UNKNOWN)]
    assert after_poll(Action.COMPLETE, history, stored(), 5, now=NOW, active=Statuses().active) == Verdict(
        ActionState.DONE, None, KnownBy.POLL, 5
    )


def test_attempts_before_a_retry_by_hand_leave_their_doubt_and_take_no_resend_away() -> None:
    spent = [Attempt(Outcome.SERVICE_FAILED, spent=True)] * 4
    assert next_request(Action.OPEN_RESTAURANT, spent) == NextRequest.SEND
    assert counted(spent) == 0
    assert is_uncertain(spent)


def test_a_refusal_after_a_row_was_retried_by_hand_is_judged_by_itself() -> None:
    """Only the newest attempt's age counts, and not that of the ones before it."""
    history = [Attempt(Outcome.UNKNOWN, spent=True), Attempt(Outcome.UNKNOWN, spent=True), Attempt(Outcome.REFUSED)]
    assert looked(CANCEL, history, stored(), ABSENT) == Verdict(ActionState.DONE, None, KnownBy.REFUSAL, CANCELED)
