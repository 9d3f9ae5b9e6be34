"""Decides about an outbox row after each answer and each poll (docs/design.md, Retries, Unknown outcomes).

A request has one of seven outcomes (model.Outcome). Five are certain:

    OK             done
    REFUSED        refused, if no earlier request of the row is in doubt
    UNAUTHORIZED, RATE_LIMITED, NOT_SENT
                   no effect: send again later; not counted as an attempt

After SERVICE_FAILED (a 5xx) and UNKNOWN (no answer, or an unreadable one) the request may have had its effect. From
then on the row is *uncertain*, whatever later requests bring. The action's `Evidence` (orderbridge.actions) decides
what follows:

    evidence  after no answer               after a 5xx            after three resends     a resend is refused
    POLL      wait for a poll, at most      resend after 2, 10,    the next poll decides   the next poll decides
              two cooldowns, then resend    60 s
    REFUSAL   resend after 2, 10, 60 s      the same               the next poll decides   the next poll decides: done
                                                                                           before, unless it shows the
                                                                                           order
    STATUS    ask the status, then resend   resend                 ask the status          refused
    MENU      resend after 2, 10, 60 s      the same               failed                  refused

A resend of a toggle that is refused with an unknown error ends as `failed, outcome_unknown`: the food or restaurant
exists, and an earlier request may have switched it. A food's status proves a toggle done, if it is known from a menu
that was requested after the last attempt.

A poll is evidence only if it is *qualified*: it was sent after the last attempt had ended, and no other action of
the order was under way (jobs.reconciler ensures this). `proof` interprets it. The action's target status proves it
done; a status from which the action leads proves it not done. An order that the list lacks was completed or cancelled,
or is unchanged since it was acknowledged; the acknowledged status shows which. Without a proof the row ends as `failed,
outcome_unknown`, and the cashier must check the marketplace's panel, so that no meal is cooked twice.

- A decision is a value: `Verdict` ends the row, `RetryAt` has the time to send it, `AwaitPoll` waits for a poll.
- A row is resent at most three times in all.
- Requests before `actions retry` are not counted, but their effect remains possible.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto

from orderbridge.actions import ACTIONS, ENDING_ACTIONS, Evidence
from orderbridge.model import CANCELED, Action, ActionState, Attempt, Document, KnownBy, Outcome, Stored, Verdict
from orderbridge.rules.tokens import LONGEST_WAIT, refusal_wait

MAX_RESENDS = 3
LOOK_WITHIN = 2  # cooldowns to wait for a poll that shows a request's effect
BEYOND = 1.5  # multiple of the longest wait that no time of ours exceeds
JITTER = 0.25  # the largest, as a share of a wait
POLL_FIRST = timedelta(seconds=15)  # lets a poll go first, so that a row with 401s does not block its account's orders
UNREADABLE = -1  # the list shows the order with an unreadable status: neither absence nor proof

# Refusals of the request itself, which prove nothing about an earlier one.
_OF_THE_REQUEST = frozenset({"missing_field", "bad_url_id"})
UNCERTAIN = frozenset({Outcome.UNKNOWN, Outcome.SERVICE_FAILED})
# The request certainly had no effect: it is not counted, and sent again.
NO_ATTEMPTS = frozenset({Outcome.UNAUTHORIZED, Outcome.RATE_LIMITED, Outcome.NOT_SENT})


@dataclass(frozen=True, slots=True)
class RetryAt:
    """Send at `at`. An uncertain row stays `sending` until then, any other goes back to `pending`."""

    at: datetime
    code: str | None = None


@dataclass(frozen=True, slots=True)
class AwaitPoll:
    """Wait for a qualified poll, or for the row's expiry."""

    code: str | None = None


Decision = Verdict | RetryAt | AwaitPoll


class NextRequest(Enum):
    """How to execute a claimed row."""

    SEND = auto()
    ASK_THEN_SEND = auto()
    ASK = auto()


class Proof(Enum):
    """What a poll proves about an unresolved action."""

    DONE = auto()
    NOT_DONE = auto()
    NOTHING = auto()


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The configured waits in seconds, and a random number (0 to 1) for jitter."""

    retry_waits: tuple[float, float, float]
    cooldown: float
    chance: float


def is_uncertain(history: Sequence[Attempt]) -> bool:
    """Whether an earlier request may have had its effect."""
    return any(attempt.outcome in UNCERTAIN for attempt in history)


def counted(history: Sequence[Attempt]) -> int:
    """The attempts of a row: requests that were sent and answered neither 401 nor 429."""
    return sum(attempt.outcome not in NO_ATTEMPTS and not attempt.spent for attempt in history)


def _exhausted(history: Sequence[Attempt]) -> bool:
    return counted(history) > MAX_RESENDS


def _refused_after_doubt(history: Sequence[Attempt]) -> bool:
    return bool(history) and history[-1].outcome == Outcome.REFUSED and not history[-1].spent


def next_request(action: Action, history: Sequence[Attempt]) -> NextRequest:
    """The next request of a row: after an unknown outcome, first ask for the restaurant's status."""
    if ACTIONS[action].evidence is Evidence.STATUS and is_uncertain(history):
        if _exhausted(history):
            return NextRequest.ASK
        # A later 401 or 429 may belong to the status request, which then has no answer yet.
        if next(one.outcome for one in reversed(history) if one.outcome not in NO_ATTEMPTS) == Outcome.UNKNOWN:
            return NextRequest.ASK_THEN_SEND
    return NextRequest.SEND


def may_be_seen(action: Action, last: Outcome | None) -> bool:
    """Whether a poll may show the effect of the last request, so that a running poll is waited for."""
    return ACTIONS[action].evidence is Evidence.POLL and last == Outcome.UNKNOWN


def decide(
    action: Action, history: Sequence[Attempt], *, now: datetime, policy: RetryPolicy, retry_at: datetime
) -> Decision:
    """The decision after the newest attempt, the last of `history`.

    `retry_at`: when to repeat a request that was not sent.
    """
    last = history[-1]
    match last.outcome:
        case Outcome.OK:
            return Verdict(ActionState.DONE, None, KnownBy.ANSWER, ACTIONS[action].target, last.http_status)
        case Outcome.NOT_SENT:
            return RetryAt(retry_at, last.code)
        case Outcome.UNAUTHORIZED:
            return RetryAt(max(retry_at + POLL_FIRST, now + _unauthorized_wait(history)), last.code)
        case Outcome.RATE_LIMITED:
            return RetryAt(now + timedelta(seconds=policy.cooldown), last.code)
        case Outcome.REFUSED:
            return _refused(action, history)
        case Outcome.SERVICE_FAILED | Outcome.UNKNOWN:
            return _uncertain(action, history, now=now, policy=policy)


def _unauthorized_wait(history: Sequence[Attempt]) -> timedelta:
    """The growing wait of a row that is answered 401 although its account's login works."""
    times = sum(attempt.outcome == Outcome.UNAUTHORIZED and not attempt.spent for attempt in history)
    return timedelta(seconds=refusal_wait(times))


def _refused(action: Action, history: Sequence[Attempt]) -> Decision:
    last = history[-1]
    if ACTIONS[action].proves_done and is_uncertain(history):
        return AwaitPoll(last.code)
    if last.code == "refused" and is_uncertain(history):  # perhaps because an earlier request had its effect
        return Verdict(ActionState.FAILED, "outcome_unknown", None, None, last.http_status)
    return Verdict(ActionState.REFUSED, last.code, KnownBy.ANSWER, None, last.http_status)


def _uncertain(action: Action, history: Sequence[Attempt], *, now: datetime, policy: RetryPolicy) -> Decision:
    last = history[-1]
    evidence = ACTIONS[action].evidence
    if _exhausted(history):
        match evidence:
            case Evidence.POLL | Evidence.REFUSAL:
                return AwaitPoll(last.code)
            case Evidence.STATUS:
                return RetryAt(now, last.code)
            case Evidence.MENU:
                return _gave_up(history, None)
    if last.outcome == Outcome.UNKNOWN:
        if evidence is Evidence.POLL:
            return RetryAt(now + timedelta(seconds=LOOK_WITHIN * policy.cooldown), last.code)
        if evidence is Evidence.STATUS:
            return RetryAt(now, last.code)  # to ask for the status; a resend still waits
    return RetryAt(now + _wait(history, policy), last.code)


def _wait(history: Sequence[Attempt], policy: RetryPolicy) -> timedelta:
    return timedelta(seconds=policy.retry_waits[counted(history) - 1] * (1 + policy.chance * JITTER))


def longest_wait(retry_waits: Sequence[float], cooldown: float) -> timedelta:
    """The longest time between now and a decided time, with jitter.

    A later time means that the clock was set back.
    """
    return timedelta(seconds=BEYOND * max(LONGEST_WAIT, LOOK_WITHIN * cooldown, *retry_waits))


def resend_at(history: Sequence[Attempt], *, now: datetime, policy: RetryPolicy) -> datetime:
    """When to send again if the restaurant's status shows no effect. At once if the clock was set back meanwhile."""
    ended = history[-1].ended_utc or now
    return ended + _wait(history, policy) if ended <= now else now


def _gave_up(history: Sequence[Attempt], not_done: KnownBy | None) -> Verdict:
    """The verdict after the last retry. After four 5xx it is `service_error`, since an effect is less likely.

    `not_done`: what proved that it was not done, if anything.
    """
    last = history[-1]
    only_failures = all(attempt.outcome != Outcome.UNKNOWN for attempt in history)
    code = "service_error" if not_done or only_failures else "outcome_unknown"
    return Verdict(ActionState.FAILED, code, not_done, None, last.http_status)


def after_status(action: Action, shown: str | None, history: Sequence[Attempt]) -> Verdict | None:
    """The verdict by the restaurant's or food's status after an unknown outcome; None: send again."""
    if shown == ACTIONS[action].target_shown:
        return Verdict(ActionState.DONE, None, KnownBy.STATUS)
    if not _exhausted(history):
        return None
    if shown is None:
        return Verdict(ActionState.FAILED, "outcome_unknown", None, None, history[-1].http_status)
    return _gave_up(history, KnownBy.STATUS)


def shown_by(document: Document | None) -> int | None:
    """The status that a list shows for an order; None: the list lacks it."""
    if document is None:
        return None
    return UNREADABLE if document.status_id is None else document.status_id


def other_end(action: Action, ends: Collection[Action]) -> bool:
    """Whether another of our actions (`ends`) may have ended the order, so that this one would be refused."""
    return bool(ENDING_ACTIONS.intersection(ends) - {action})


def proof(
    action: Action,
    history: Sequence[Attempt],
    order: Stored,
    seen: int | None,
    *,
    other_end: bool,
    active: Collection[int],
) -> Proof:
    """What a qualified poll proves about an unresolved action. `seen`: the shown status; None: the order is missing.

    `other_end`: another of our actions may have ended the order.
    """
    kind = ACTIONS[action]
    if seen in kind.proves_done:
        return Proof.DONE
    is_undone = seen in active if kind.proves_undone is None else seen in kind.proves_undone
    if is_undone:
        return Proof.NOT_DONE
    if seen is not None:
        return Proof.NOTHING
    if kind.evidence is Evidence.REFUSAL:
        # A list never shows a completed order (docs/interface.md, Acknowledgement rules, 4).
        known = kind.proves_undone is None or order.service_status_id in kind.proves_undone
        proves = _refused_after_doubt(history) and history[-1].code not in _OF_THE_REQUEST
        return Proof.DONE if known and not other_end and proves else Proof.NOTHING
    # An acknowledged order is listed again as soon as its status changes.
    is_as_before = kind.proves_undone is not None and order.acknowledged_status_id in kind.proves_undone
    return Proof.NOT_DONE if is_as_before else Proof.NOTHING


def after_poll(
    action: Action,
    history: Sequence[Attempt],
    order: Stored,
    seen: int | None,
    *,
    now: datetime,
    other_end: bool = False,
    active: Collection[int],
) -> Verdict | RetryAt | None:
    """The decision about an unresolved action after a qualified poll; None: unchanged."""
    kind = ACTIONS[action]
    if seen == CANCELED and kind.target != CANCELED:
        return Verdict(ActionState.REFUSED, "order_cancelled", KnownBy.POLL)
    proved = proof(action, history, order, seen, other_end=other_end, active=active)
    if proved == Proof.DONE:
        # After a refusal, absence from the list also proves a cancel or a complete.
        if seen in kind.proves_done:
            return Verdict(ActionState.DONE, None, KnownBy.POLL, seen)
        return Verdict(ActionState.DONE, None, KnownBy.REFUSAL, kind.target)
    if _refused_after_doubt(history):
        return _conclude_refusal(history, proved, seen)
    if _exhausted(history):
        if proved == Proof.NOT_DONE:
            return _gave_up(history, KnownBy.POLL)
        return Verdict(ActionState.FAILED, "outcome_unknown", KnownBy.POLL)
    if proved == Proof.NOT_DONE and may_be_seen(action, history[-1].outcome):
        return RetryAt(now, history[-1].code)
    return None


def _conclude_refusal(history: Sequence[Attempt], proved: Proof, seen: int | None) -> Verdict:
    """The verdict after a refused resend without a proof. An accept whose order the list lacks stays unknown."""
    last = history[-1]
    if proved == Proof.NOT_DONE and seen is not None:
        return Verdict(ActionState.REFUSED, last.code, KnownBy.POLL, None, last.http_status)
    return Verdict(ActionState.FAILED, "outcome_unknown", KnownBy.POLL, None, last.http_status)
