"""Whether a row whose turn it is may leave, judged by the table in the transaction that notes it; and if not, why.

The queue's picture of a row is as old as its reading. What the table says by now is asked once more: is the row as it was,
does its order still allow the action and belong to the same account, may a poll show what its last request did?
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from orderbridge.actions import ORDER_ACTIONS
from orderbridge.model import ActionState, Attempt, OutboxRow, Stored, Verdict
from orderbridge.rules.outbox import order_end
from orderbridge.rules.retry import NextRequest, RetryAt, RetryPolicy, may_be_seen, next_request, resend_at


@dataclass(frozen=True, slots=True)
class Leaves:
    """It may leave, with this request. `again`: the resend, when what was asked for is not there and is not due yet."""

    request: NextRequest
    again: RetryAt | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """Somebody else holds the row, or its order is not there: it is left for a moment."""


@dataclass(frozen=True, slots=True)
class Gone:
    """The row is not unfinished any more."""


@dataclass(frozen=True, slots=True)
class Changed:
    """The row is not as the queue has it."""

    row: OutboxRow


@dataclass(frozen=True, slots=True)
class Incomplete:
    """The queue does not know these rows of the same order yet: which goes first is decided when it does."""

    unknown: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PollInFlight:
    """A poll of its account is under way that may show what became of its last request."""


Stays = Verdict | Held | Gone | Changed | Incomplete | PollInFlight


def differs(row: OutboxRow, fresh: OutboxRow) -> bool:
    """Whether a row has changed since it was read, in what a decision hangs on."""
    return (row.state, row.withdraw, row.next_attempt_utc, row.expires_utc) != (
        fresh.state,
        fresh.withdraw,
        fresh.next_attempt_utc,
        fresh.expires_utc,
    )


def judge(
    known: OutboxRow,
    fresh: OutboxRow,
    order: Stored | None,
    history: Sequence[Attempt],
    *,
    account: str,
    poll_in_flight: bool,
    now: datetime,
    policy: Callable[[], RetryPolicy],
) -> Leaves | Stays:
    """`known`: the row as the queue has it, and whose `account` it is; `fresh`: as it is in the table."""
    if differs(known, fresh):
        return Changed(fresh)
    if fresh.action in ORDER_ACTIONS:
        # An unresolved row was allowed when it was first sent; only an answer or a look ends it now.
        verdict = order_end(fresh, order) if fresh.state == ActionState.PENDING else None
        if verdict is not None:
            return verdict
        if order is None:
            return Held()  # it was sent once: it waits for its order, and expires
        if order.account != account:
            return Changed(replace(fresh, owner=order.account))
    if poll_in_flight and may_be_seen(fresh.action, history):
        return PollInFlight()
    request = next_request(fresh.action, history)
    if request == NextRequest.ASK_THEN_SEND and (at := resend_at(history, now=now, policy=policy())) > now:
        return Leaves(request, RetryAt(at, history[-1].code))
    return Leaves(request)
