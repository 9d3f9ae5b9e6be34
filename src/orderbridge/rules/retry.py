"""What becomes of an outbox row after each answer and each poll (docs/design.md, Retries, Unknown outcomes).

A request ends in one of seven ways (model.Outcome). Five are plain:

    OK             done
    REFUSED        refused, if no earlier request of the row is in doubt
    UNAUTHORIZED, RATE_LIMITED, NOT_SENT
                   nothing has happened: again later, and it counts as no attempt

The other two leave a doubt: after SERVICE_FAILED (a 5xx) and UNKNOWN (no answer, or none that can be read) the service may
have done it. From then on the row is *uncertain*, and stays so whatever its later requests bring. What clears the doubt is a
property of the action (orderbridge.actions, `Evidence`):

    doubt     after no answer               after a 5xx            after three resends     a resend is refused
    POLL      wait for a poll, at most      resend after 2, 10,    the next poll decides   the next poll decides
              two cooldowns, then resend    60 s
    REFUSAL   resend after 2, 10, 60 s      the same               the next poll decides   the next poll decides: done
                                                                                           before, unless it shows the order
    STATUS    ask the status, then resend   resend                 ask the status          refused
    NOTHING   resend after 2, 10, 60 s      the same               failed                  refused

A poll decides what it proves (`proof`), and only when it is *qualified*: its request left after the last attempt had ended,
and no other action of the order was under way (jobs.reconciler sees to that). A status that the action leads to proves it done, one
from which it leads proves it not done. An order that is missing in the list was completed, cancelled, or is acknowledged and
unchanged; which of these, its acknowledged status tells. What nothing proves ends as `failed, outcome_unknown`: better a
cashier who looks at the service's panel than a meal cooked twice.

- A decision is a value: `Verdict` ends the row, `RetryAt` says when to send, `AwaitPoll` leaves the word to a poll.
- All resends of a row together are three.
- Requests made before `actions retry` count no more, but the doubt they left stays.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto

from orderbridge.actions import ACTIONS, ENDING_ACTIONS, Evidence
from orderbridge.model import (
    CANCELED,
    Action,
    ActionState,
    Attempt,
    Document,
    KnownBy,
    Outcome,
    Stored,
    Verdict,
)
from orderbridge.rules.tokens import LONGEST_WAIT, refusal_wait

MOST_RESENDS = 3
LOOK_WITHIN = 2  # cooldowns: for so long a poll is waited for that shows what a request did
BEYOND = 1.5  # times the longest wait: further away a time of ours cannot be
POLL_FIRST = timedelta(seconds=15)  # one row that is always answered 401 must not keep the orders of its account away
UNREADABLE = -1  # a poll shows the order, with a status that cannot be read: no absence, and no proof

# What refuses a request for its own sake, whatever its order is at: no word about what an earlier one did.
_OF_THE_REQUEST = frozenset({"missing_field", "bad_url_id"})
_UNCERTAIN = frozenset({Outcome.UNKNOWN, Outcome.SERVICE_FAILED})


@dataclass(frozen=True, slots=True)
class RetryAt:
    """Send at `at`. An uncertain row stays `sending` until then, any other goes back to `pending`."""

    at: datetime
    code: str | None = None


@dataclass(frozen=True, slots=True)
class AwaitPoll:
    """Only a qualified poll, or the row's expiry, can end it."""

    code: str | None = None


Decision = Verdict | RetryAt | AwaitPoll


class NextRequest(Enum):
    """What to do with a row whose turn it is."""

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
    """The configured waits, in seconds, and the chance (0 to 1) that spreads them."""

    retry_waits: tuple[float, float, float]
    cooldown: float
    chance: float


def is_uncertain(history: Sequence[Attempt]) -> bool:
    """Whether an earlier request may have had its effect."""
    return any(attempt.outcome in _UNCERTAIN for attempt in history)


def is_no_attempt(outcome: Outcome) -> bool:
    """Whether nothing has happened: again later, be it a row's request or the question what an earlier one did."""
    return outcome in {Outcome.UNAUTHORIZED, Outcome.RATE_LIMITED, Outcome.NOT_SENT}


def counted(history: Sequence[Attempt]) -> int:
    """The attempts of a row: requests that left and were answered neither 401 nor 429."""
    return sum(not is_no_attempt(attempt.outcome) and not attempt.spent for attempt in history)


def _exhausted(history: Sequence[Attempt]) -> bool:
    return counted(history) > MOST_RESENDS


def _refused_after_doubt(history: Sequence[Attempt]) -> bool:
    return bool(history) and history[-1].outcome == Outcome.REFUSED and not history[-1].spent


def next_request(action: Action, history: Sequence[Attempt]) -> NextRequest:
    """Opening and closing a restaurant can be asked about, so an unknown outcome is asked before it is sent again."""
    if ACTIONS[action].evidence is Evidence.STATUS and is_uncertain(history):
        if _exhausted(history):
            return NextRequest.ASK
        # What met a 401 or a 429 since then may have been the question itself: it has no answer yet.
        if next(one.outcome for one in reversed(history) if not is_no_attempt(one.outcome)) == Outcome.UNKNOWN:
            return NextRequest.ASK_THEN_SEND
    return NextRequest.SEND


def may_be_seen(action: Action, last: Outcome | None) -> bool:
    """Whether a poll may show what became of the last request: a poll that is under way is waited for."""
    return ACTIONS[action].evidence is Evidence.POLL and last == Outcome.UNKNOWN


def decide(
    action: Action, history: Sequence[Attempt], *, now: datetime, policy: RetryPolicy, retry_at: datetime
) -> Decision:
    """The decision after the newest attempt, the last of `history`.

    `retry_at` is when the account's line or login is tried again, for a request that never left.
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
    """A row that is refused although its account is not waits alone, and ever longer: its lane is blocked for as long."""
    times = sum(attempt.outcome == Outcome.UNAUTHORIZED and not attempt.spent for attempt in history)
    return timedelta(seconds=refusal_wait(times))


def _refused(action: Action, history: Sequence[Attempt]) -> Decision:
    last = history[-1]
    if ACTIONS[action].proves_done and is_uncertain(history):
        return AwaitPoll(last.code)
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
            case Evidence.NOTHING:
                return _gave_up(history, None)
    if last.outcome == Outcome.UNKNOWN:
        if evidence is Evidence.POLL:
            return RetryAt(now + timedelta(seconds=LOOK_WITHIN * policy.cooldown), last.code)
        if evidence is Evidence.STATUS:
            return RetryAt(now, last.code)  # to ask; the resend has its wait all the same
    return RetryAt(now + _wait(history, policy), last.code)


def _wait(history: Sequence[Attempt], policy: RetryPolicy) -> timedelta:
    return timedelta(seconds=policy.retry_waits[counted(history) - 1] * (1 + policy.chance / 4))


def longest_wait(retry_waits: Sequence[float], cooldown: float) -> timedelta:
    """How far away the time of a row can be that was decided here: a later one comes from a clock that was set back.

    With what chance adds to a wait, and a poll that goes first.
    """
    return timedelta(seconds=BEYOND * max(LONGEST_WAIT, LOOK_WITHIN * cooldown, *retry_waits))


def resend_at(history: Sequence[Attempt], *, now: datetime, policy: RetryPolicy) -> datetime:
    """When a row may be sent again whose outcome was asked for and is not there."""
    return (history[-1].ended_utc or now) + _wait(history, policy)


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
    if shown == ACTIONS[action].target_shown:
        return Verdict(ActionState.DONE, None, KnownBy.STATUS)
    if not _exhausted(history):
        return None
    if shown is None:
        return Verdict(ActionState.FAILED, "outcome_unknown", None, None, history[-1].http_status)
    return _gave_up(history, KnownBy.STATUS)


def shown_by(document: Document | None) -> int | None:
    """The status that a list shows of an order; None: the list lacks it."""
    if document is None:
        return None
    return UNREADABLE if document.status_id is None else document.status_id


def other_end(action: Action, ends: Collection[Action]) -> bool:
    """Whether another action would refuse this one. `ends`: what of ours has ended the order, or may have."""
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
    """What a qualified poll proves about an unresolved order action. `seen` is None when the list lacks the order.

    `other_end`: another action of ours that ends the order is done or may be, and this one would be refused, too.
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
    # What was acknowledged in that status is shown again as soon as it has another one.
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
    """What a qualified poll makes of an unresolved order action; None: it stays as it is."""
    kind = ACTIONS[action]
    if seen == CANCELED and kind.target != CANCELED:
        return Verdict(ActionState.REFUSED, "order_cancelled", KnownBy.POLL)
    proved = proof(action, history, order, seen, other_end=other_end, active=active)
    if proved == Proof.DONE:
        # Cancel and complete can also be proved by what the list lacks, after a refusal.
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
    """A resend was refused and the poll did not prove it done. An accept that is nowhere to be seen stays unknown."""
    last = history[-1]
    if proved == Proof.NOT_DONE and seen is not None:
        return Verdict(ActionState.REFUSED, last.code, KnownBy.POLL, None, last.http_status)
    return Verdict(ActionState.FAILED, "outcome_unknown", KnownBy.POLL, None, last.http_status)
