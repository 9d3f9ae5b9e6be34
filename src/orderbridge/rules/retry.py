"""What becomes of an outbox row after each answer and each look (DESIGN: retries, unknown outcomes).

Rules of this file:
- A decision is a value: `Verdict` ends the row, `Again` says when to send, `AwaitLook` leaves the word to a poll.
- A row is *uncertain* once a request of it ended in a 5xx or without an answer: it may have had its effect.
- All resends of a row together are three. 401, 429 and requests that never left are no attempts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto

from orderbridge.model import (
    CANCELED,
    COMPLETE_WITH_PAYMENT,
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
from orderbridge.rules.lifecycle import FOOD_ACTIONS, RESTAURANT_ACTIONS, TARGETS, is_active

MOST_RESENDS = 3
POLL_FIRST = timedelta(seconds=15)  # one row that is always answered 401 must not keep the orders of its account away
UNREADABLE = -1  # a look shows the order, with a status that cannot be read: no absence, and no proof
OTHER_END = {Action.COMPLETE: Action.CANCEL, Action.CANCEL: Action.COMPLETE}
OPEN, CLOSED = "Open", "Closed"
RESTAURANT_TARGETS = {Action.OPEN_RESTAURANT: OPEN, Action.CLOSE_RESTAURANT: CLOSED}

_UNCERTAIN = frozenset({Outcome.UNKNOWN, Outcome.SERVICE_FAILED})
_NO_ATTEMPT = frozenset({Outcome.UNAUTHORIZED, Outcome.RATE_LIMITED, Outcome.NOT_SENT})
_LOOK_TELLS_WHETHER_TO_RESEND = frozenset({Action.ACCEPT, Action.ON_THE_WAY})


@dataclass(frozen=True, slots=True)
class Again:
    """Send at `at`. An uncertain row stays `sending` until then, any other goes back to `pending`."""

    at: datetime
    code: str | None = None


@dataclass(frozen=True, slots=True)
class AwaitLook:
    """Only a qualified look, or the row's expiry, can end it."""

    code: str | None = None


Decision = Verdict | Again | AwaitLook


class Step(Enum):
    """What to do with a row whose turn it is."""

    SEND = auto()
    ASK_THEN_SEND = auto()
    ASK = auto()


class Proof(Enum):
    """What a look says about an unresolved action."""

    DONE = auto()
    NOT_DONE = auto()
    NOTHING = auto()


@dataclass(frozen=True, slots=True)
class Pace:
    """The configured waits, in seconds, and the chance (0 to 1) that spreads them."""

    retry_waits: tuple[float, float, float]
    cooldown: float
    chance: float


def is_uncertain(history: Sequence[Attempt]) -> bool:
    """Whether an earlier request may have had its effect."""
    return any(attempt.outcome in _UNCERTAIN for attempt in history)


def counted(history: Sequence[Attempt]) -> int:
    """The attempts of a row: requests that left and were answered neither 401 nor 429."""
    return sum(attempt.outcome not in _NO_ATTEMPT and not attempt.spent for attempt in history)


def _exhausted(history: Sequence[Attempt]) -> bool:
    return counted(history) > MOST_RESENDS


def _refused_after_doubt(history: Sequence[Attempt]) -> bool:
    return bool(history) and history[-1].outcome == Outcome.REFUSED and not history[-1].spent


def next_step(action: Action, history: Sequence[Attempt]) -> Step:
    """Opening and closing a restaurant can be asked about, so an unknown outcome is asked before it is sent again."""
    if action in RESTAURANT_ACTIONS and is_uncertain(history):
        if _exhausted(history):
            return Step.ASK
        if history[-1].outcome == Outcome.UNKNOWN:
            return Step.ASK_THEN_SEND
    return Step.SEND


def may_be_seen(action: Action, history: Sequence[Attempt]) -> bool:
    """Whether a look may show what became of the last request: a poll that is under way is waited for."""
    return action in _LOOK_TELLS_WHETHER_TO_RESEND and bool(history) and history[-1].outcome == Outcome.UNKNOWN


def decide(action: Action, history: Sequence[Attempt], *, now: datetime, pace: Pace, retry_at: datetime) -> Decision:
    """The decision after the newest attempt, the last of `history`.

    `retry_at` is when the account's line or login is tried again, for a request that never left.
    """
    last = history[-1]
    match last.outcome:
        case Outcome.OK:
            return Verdict(ActionState.DONE, None, KnownBy.ANSWER, TARGETS.get(action), last.http_status)
        case Outcome.NOT_SENT:
            return Again(retry_at, last.code)
        case Outcome.UNAUTHORIZED:
            return Again(retry_at + POLL_FIRST, last.code)
        case Outcome.RATE_LIMITED:
            return Again(now + timedelta(seconds=pace.cooldown), last.code)
        case Outcome.REFUSED:
            return _refused(action, history)
        case Outcome.SERVICE_FAILED | Outcome.UNKNOWN:
            return _uncertain(action, history, now=now, pace=pace)


def _refused(action: Action, history: Sequence[Attempt]) -> Decision:
    last = history[-1]
    if action in TARGETS and is_uncertain(history):
        return AwaitLook(last.code)
    return Verdict(ActionState.REFUSED, last.code, KnownBy.ANSWER, None, last.http_status)


def _uncertain(action: Action, history: Sequence[Attempt], *, now: datetime, pace: Pace) -> Decision:
    last = history[-1]
    if _exhausted(history):
        if action in FOOD_ACTIONS:
            return _gave_up(history, None)
        return AwaitLook(last.code) if action in TARGETS else Again(now, last.code)
    if last.outcome == Outcome.UNKNOWN:
        if action in _LOOK_TELLS_WHETHER_TO_RESEND:
            return Again(now + timedelta(seconds=2 * pace.cooldown), last.code)
        if action in RESTAURANT_ACTIONS:
            return Again(now, last.code)  # to ask; the resend has its wait all the same
    return Again(now + _wait(history, pace), last.code)


def _wait(history: Sequence[Attempt], pace: Pace) -> timedelta:
    return timedelta(seconds=pace.retry_waits[counted(history) - 1] * (1 + pace.chance / 4))


def resend_at(history: Sequence[Attempt], *, now: datetime, pace: Pace) -> datetime:
    """When a row may be sent again whose outcome was asked for and is not there."""
    return (history[-1].ended_utc or now) + _wait(history, pace)


def _gave_up(history: Sequence[Attempt], not_done: KnownBy | None) -> Verdict:
    """The retries are used up. Four plain 5xx leave less doubt than silence does, and the words say so.

    `not_done`: what has shown that it was not done, if anything.
    """
    last = history[-1]
    only_failures = all(attempt.outcome != Outcome.UNKNOWN for attempt in history)
    code = "service_error" if not_done or only_failures else "outcome_unknown"
    return Verdict(ActionState.FAILED, code, not_done, None, last.http_status)


def after_status(action: Action, shown: str | None, history: Sequence[Attempt]) -> Verdict | None:
    """What the restaurant's own status says after an unknown outcome; None: send again."""
    if shown == RESTAURANT_TARGETS[action]:
        return Verdict(ActionState.DONE, None, KnownBy.STATUS)
    if not _exhausted(history):
        return None
    if shown is None:
        return Verdict(ActionState.FAILED, "outcome_unknown", None, None, history[-1].http_status)
    return _gave_up(history, KnownBy.STATUS)


def proof(
    action: Action,
    history: Sequence[Attempt],
    order: Stored,
    seen: int | None,
    *,
    other_end: bool,
    needs_payment: int | None,
) -> Proof:
    """What a qualified look proves about an unresolved order action. `seen` is None when the list lacks the order.

    `other_end`: for a complete, a cancel of ours is done or may be, and the other way round. It would be refused, too.
    """
    match action:
        case Action.ACCEPT:
            done, before = {CONFIRMED, IN_DELIVERY}, RECEIVED
        case Action.ON_THE_WAY:
            done, before = {IN_DELIVERY}, CONFIRMED
        case Action.COMPLETE:
            return _proof_complete(history, order, seen, other_end=other_end)
        case _:
            return _proof_cancel(history, seen, other_end=other_end, needs_payment=needs_payment)
    if seen in done:
        return Proof.DONE
    if seen == before or (seen is None and order.acknowledged_status_id == before):
        return Proof.NOT_DONE
    return Proof.NOTHING


def _proof_complete(history: Sequence[Attempt], order: Stored, seen: int | None, *, other_end: bool) -> Proof:
    if seen == IN_DELIVERY:
        return Proof.NOT_DONE
    if seen == COMPLETE_WITH_PAYMENT:
        return Proof.DONE
    # A list never shows a completed order (SPEC.md, Acknowledgement rules, 4): whatever it shows is not completed.
    known = order.service_status_id == IN_DELIVERY and seen is None and not other_end
    return Proof.DONE if known and _refused_after_doubt(history) else Proof.NOTHING


def _proof_cancel(history: Sequence[Attempt], seen: int | None, *, other_end: bool, needs_payment: int | None) -> Proof:
    if seen == CANCELED:
        return Proof.DONE
    if is_active(seen, needs_payment):
        return Proof.NOT_DONE
    gone = seen is None and not other_end
    return Proof.DONE if gone and _refused_after_doubt(history) else Proof.NOTHING


def after_look(
    action: Action,
    history: Sequence[Attempt],
    order: Stored,
    seen: int | None,
    *,
    now: datetime,
    other_end: bool = False,
    needs_payment: int | None = None,
) -> Verdict | Again | None:
    """What a qualified look makes of an unresolved order action; None: it stays as it is."""
    if seen == CANCELED and action != Action.CANCEL:
        return Verdict(ActionState.REFUSED, "order_cancelled", KnownBy.POLL)
    said = proof(action, history, order, seen, other_end=other_end, needs_payment=needs_payment)
    if said == Proof.DONE:
        # Cancel and complete can also be proved by what the list lacks, after a refusal.
        by_poll = seen == TARGETS[action] or action in _LOOK_TELLS_WHETHER_TO_RESEND
        known_by = KnownBy.POLL if by_poll else KnownBy.REFUSAL
        shown = seen if by_poll else TARGETS[action]
        return Verdict(ActionState.DONE, None, known_by, shown)
    if _refused_after_doubt(history):
        return _conclude_refusal(history, said, seen)
    if _exhausted(history):
        if said == Proof.NOT_DONE:
            return _gave_up(history, KnownBy.POLL)
        return Verdict(ActionState.FAILED, "outcome_unknown", KnownBy.POLL)
    if said == Proof.NOT_DONE and action in _LOOK_TELLS_WHETHER_TO_RESEND and history[-1].outcome == Outcome.UNKNOWN:
        return Again(now, history[-1].code)
    return None


def _conclude_refusal(history: Sequence[Attempt], said: Proof, seen: int | None) -> Verdict:
    """A resend was refused and the look did not prove it done. An accept that is nowhere to be seen stays unknown."""
    last = history[-1]
    if said == Proof.NOT_DONE and seen is not None:
        return Verdict(ActionState.REFUSED, last.code, KnownBy.POLL, None, last.http_status)
    return Verdict(ActionState.FAILED, "outcome_unknown", KnownBy.POLL, None, last.http_status)
