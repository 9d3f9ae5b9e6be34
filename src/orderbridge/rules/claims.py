"""Whether a row whose turn it is may leave, judged by the table in the transaction that notes it; and if not, why.

The queue's picture of a row is as old as its reading. What the table says by now is asked once more: is the row as it was,
does its order still allow the action and belong to the same account, may a poll show what its last request did?
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from orderbridge.actions import ORDER_ACTIONS
from orderbridge.model import ActionState, Attempt, OutboxRow, Stored, Verdict
from orderbridge.rules.outbox import order_end, with_reason
from orderbridge.rules.retry import NextRequest, RetryAt, RetryPolicy, may_be_seen, next_request, resend_at


@dataclass(frozen=True, slots=True)
class InTable:
    """What the table says of a row by now, in the transaction that may note it. `row`: None where it is not to be had.

    `is_held`: by somebody else. `unknown`: rows of the same order that the queue does not know. `history`: its attempts.
    """

    row: OutboxRow | None = None
    is_held: bool = False
    unknown: tuple[int, ...] = ()
    order: Stored | None = None
    history: tuple[Attempt, ...] = ()


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
class NotOurs:
    """Its account has left meanwhile: another process has it now."""


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


Stays = Verdict | Held | Gone | NotOurs | Changed | Incomplete | PollInFlight


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
    found: InTable,
    *,
    account: str,
    has_left: bool,
    poll_in_flight: bool,
    now: datetime,
    policy: Callable[[], RetryPolicy],
) -> Leaves | Stays:
    """`known`: the row as the queue has it, and whose `account` it is; `has_left`: that one is not at work here."""
    fresh, history = found.row, found.history
    if fresh is None:
        return Held() if found.is_held else Gone()
    if found.unknown:
        return Incomplete(found.unknown)
    if differs(known, fresh):
        return Changed(fresh)
    if fresh.action in ORDER_ACTIONS and (stays := _by_order(fresh, found.order, account)) is not None:
        return stays
    if has_left:
        return NotOurs()
    if poll_in_flight and may_be_seen(fresh.action, history):
        return PollInFlight()
    request = next_request(fresh.action, history)
    if request == NextRequest.ASK_THEN_SEND and (at := resend_at(history, now=now, policy=policy())) > now:
        return Leaves(request, RetryAt(at, history[-1].code))
    return Leaves(request)


def judge_end(known: OutboxRow, found: InTable, verdict: Verdict) -> Verdict | Held | Gone | Changed:
    """Whether a row that is not sent ends as it was decided by what the queue has of it (`known`)."""
    fresh = found.row
    if found.is_held:
        return Held()
    if fresh is None:
        return Gone()
    if differs(known, fresh) or known.created_utc != fresh.created_utc:  # a clock was set
        return Changed(fresh)
    return with_reason(verdict, fresh)


def _by_order(row: OutboxRow, order: Stored | None, account: str) -> Stays | None:
    """What keeps a row by its order; None: nothing does."""
    # An unresolved row was allowed when it was first sent; only an answer or a look ends it now.
    verdict = order_end(row, order) if row.state == ActionState.PENDING else None
    if verdict is not None:
        return verdict
    if order is None:
        return Held()  # it was sent once: it waits for its order, and expires
    return Changed(replace(row, owner=order.account)) if order.account != account else None
