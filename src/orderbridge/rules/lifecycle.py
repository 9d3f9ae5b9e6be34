"""The life of an order as tables, and what a delivery changes in what is stored (docs/interface.md, States and transitions).

An order has three status ids in our tables. Most of the time they are equal; what is hard begins where they differ.

    status_id               what the till sees: the best we know. Written by a delivery, and by an action of ours that is
                            done: then it is ahead of the service's own word until the next poll.
    service_status_id       what the service itself has shown: in a delivery, or by answering OK to an action. A proof is
                            no showing: a complete that is known only by the refusal of its repetition moves status_id to
                            COMPLETE_WITH_PAYMENT and leaves this one as it was.
    acknowledged_status_id  what the service knows that we have. Written when PUT success was answered OK, and by
                            nothing else. The service shows an order again as soon as its status is another one: that an
                            order is missing in a list therefore says that it is still as it was acknowledged, or over.

    an order comes in, RECEIVED         1   1   -
    its acknowledgement is answered     1   1   1
    accept is answered OK               2   2   1     the service shows it once more: its status is not what was acknowledged
    the next poll, acknowledged         2   2   2
    accept, and the answer is lost      1   1   1     not known: rules.retry waits for what a poll shows, or lacks
    complete, proved by a refusal       5   16  16

Who asks which: whether an action still makes sense is asked of service_status_id (`may_send`), for only the service's own
word is a reason not to send something. Whether a delivery brings news is asked of both others together with the contents
(`is_unchanged`). What the absence of an order proves is asked of acknowledged_status_id (rules.retry.proof).

Rules of this file:
- One status, COMPLETE_NEEDS_PAYMENT, has no id in the interface: a technician configures it. So what hangs on a status is
  asked of `Statuses`, which knows that id. An unknown status id is shown as UNKNOWN and is never taken for an end.
- The service is believed: a delivered status counts even when it goes back. It is withheld (`status_counts`) only while an
  action of ours was on the wire or unresolved, because the list may be older than what that action did.
- `merge` decides, the store writes; nothing here knows a database.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from orderbridge.actions import ACTIONS
from orderbridge.model import (
    CANCELED,
    COMPLETE_WITH_PAYMENT,
    CONFIRMED,
    CONTENTS_OUTDATED,
    IN_DELIVERY,
    LATE,
    RECEIVED,
    STATUS_DOUBTFUL,
    Action,
    ActionState,
    Arrival,
    Change,
    Differs,
    Document,
    EndedBy,
    KnownBy,
    LastChange,
    NewStatus,
    Order,
    Stored,
    Verdict,
    as_problem,
    codes_of,
)
from orderbridge.rules.retry import AwaitPoll, Decision

STATUS_NAMES = {
    RECEIVED: "RECEIVED",
    CONFIRMED: "CONFIRMED",
    COMPLETE_WITH_PAYMENT: "COMPLETE_WITH_PAYMENT",
    CANCELED: "CANCELED",
    IN_DELIVERY: "IN_DELIVERY",
}
UNKNOWN_STATUS = "UNKNOWN"
NEEDS_PAYMENT = "COMPLETE_NEEDS_PAYMENT"

ENDS = {COMPLETE_WITH_PAYMENT: EndedBy.COMPLETED, CANCELED: EndedBy.CANCELLED}
OTHERS_COURIERS = frozenset({"platform_courier", "come_get"})  # who carries it is no courier of the restaurant


@dataclass(frozen=True, slots=True)
class Statuses:
    """The statuses of one service. `needs_payment`: the id of COMPLETE_NEEDS_PAYMENT; None: it is not known."""

    needs_payment: int | None = None

    @property
    def active(self) -> tuple[int, ...]:
        """What docs/interface.md counts among the active ones (Acknowledgement rules, 1), in the order of a life."""
        known = (RECEIVED, CONFIRMED, IN_DELIVERY)
        return known if self.needs_payment is None else (*known, self.needs_payment)

    @property
    def ranks(self) -> Mapping[int, int]:
        """How far an order has come with each of them, from 1 on; docs/interface.md names no other."""
        return {status: place for place, status in enumerate((*self.active, COMPLETE_WITH_PAYMENT, CANCELED), 1)}

    def name(self, status_id: int | None) -> str:
        """The word for a status id; UNKNOWN for one that docs/interface.md does not name."""
        if status_id is None:
            return UNKNOWN_STATUS
        if status_id == self.needs_payment:
            return NEEDS_PAYMENT
        return STATUS_NAMES.get(status_id, UNKNOWN_STATUS)

    def arrival(self, order: Order) -> Arrival:
        """A delivered order with the word for its status and its end."""
        ended_by = None if order.status_id is None else ENDS.get(order.status_id)
        return Arrival(order, self.name(order.status_id), ended_by)

    def latest(self, documents: Iterable[Document]) -> dict[str, Document]:
        """One document per order: the furthest one, when a list holds an order twice. Unknown ids go by position."""
        ranks = self.ranks
        chosen: dict[str, Document] = {}
        furthest: dict[str, int] = {}  # an unknown id in between does not bring an earlier status back
        for document in documents:
            if document.payment_key is None:
                continue
            place = ranks.get(document.status_id or 0)
            if place is not None:
                if place < furthest.get(document.payment_key, 0):
                    continue
                furthest[document.payment_key] = place
            chosen[document.payment_key] = document
        return chosen


def is_unchanged(stored: Stored, document: Document) -> bool:
    """Whether a delivery brings nothing to write: same bytes, same status, no doubt and no end to take back."""
    return (
        stored.digest == document.digest
        and stored.status_id == document.status_id == stored.service_status_id
        and stored.ended_by != EndedBy.SILENCE
        and STATUS_DOUBTFUL not in codes_of(stored.problem)
    )


def merge(
    stored: Stored, status_id: int | None, *, differs: Differs, status_counts: bool, problems: Collection[str]
) -> Change:
    """Decide what a delivery changes. `status_counts` is False while an action of ours makes its word doubtful.

    `problems`: codes for what is wrong with it. A doubt about the status goes when the delivery's own status counts.
    """
    before = codes_of(stored.problem)
    kept = [STATUS_DOUBTFUL] if not status_counts and STATUS_DOUBTFUL in before else []
    if LATE in before and status_id == RECEIVED:  # until it is answered
        kept.append(LATE)
    status_changed = status_counts and status_id != stored.status_id
    reopened = status_counts and stored.ended_by is not None and status_id not in ENDS
    ended_by = ENDS.get(status_id) if status_counts and status_id is not None else None
    return Change(
        status_counts=status_counts,
        status_changed=status_changed,
        differs=differs,
        reopened=reopened,
        ended_by=ended_by,
        last_change=_last_change(stored, ended_by, differs, moved=status_changed or reopened),
        problem=as_problem([*problems, *kept]),
    )


def merge_status(stored: Stored, status_id: int | None, *, status_counts: bool) -> Change | None:
    """The same where the database refuses what is new but for the status. None: it was written when the same came before."""
    codes = codes_of(without_doubt(stored.problem) if status_counts else stored.problem)
    differs = Differs.NOTHING if CONTENTS_OUTDATED in codes else Differs.DETAILS  # a till sees it once
    change = merge(stored, status_id, differs=differs, status_counts=status_counts, problems=())
    is_shown = not status_counts or stored.service_status_id == status_id
    if change.last_change is None and stored.digest is None and is_shown:
        return None
    kept = (code for code in codes if code != CONTENTS_OUTDATED)
    return replace(change, problem=as_problem([*kept, CONTENTS_OUTDATED]))


def _last_change(stored: Stored, ended_by: EndedBy | None, differs: Differs, *, moved: bool) -> LastChange | None:
    if ended_by is not None and ended_by != stored.ended_by:
        return end_change(ended_by)
    if differs != Differs.NOTHING:
        return LastChange.CONTENTS  # also when the status moved: that is in its column, the lines must be read again
    return LastChange.STATUS if moved else None


def end_change(ended_by: EndedBy) -> LastChange:
    """What a till sees when an order ends."""
    return LastChange.CANCELLED if ended_by == EndedBy.CANCELLED else LastChange.ENDED


def with_doubt(problem: str | None) -> str | None:
    """The column `problem` of an order whose status can hardly be right; None: it says so already."""
    codes = codes_of(problem)
    return None if STATUS_DOUBTFUL in codes else as_problem([*codes, STATUS_DOUBTFUL])


def without_doubt(problem: str | None) -> str | None:
    """The column `problem` of an order whose status the service itself has shown."""
    return as_problem(code for code in codes_of(problem) if code != STATUS_DOUBTFUL)


@dataclass(frozen=True, slots=True)
class Refusal:
    """An action that can never be right; it is refused unsent."""

    code: str


@dataclass(frozen=True, slots=True)
class Already:
    """An action whose target the service itself has shown already; it is done unsent."""


class Shown(Protocol):
    """What of an order decides whether an action can be right."""

    @property
    def service_status_id(self) -> int | None:
        """See the head of this file."""

    @property
    def courier_type(self) -> str | None:
        """Who carries it, as the service says. Of a word that is not known the service is asked."""


def may_send(action: Action, stored: Shown | None) -> Refusal | Already | None:
    """None when the service is to be asked. A stored status that merely does not fit is no reason to refuse."""
    if stored is None:
        return Refusal("order_unknown")
    kind = ACTIONS[action]
    if kind.target is not None and kind.target == stored.service_status_id:
        return Already()
    if stored.service_status_id == COMPLETE_WITH_PAYMENT:
        return Refusal("order_completed")
    if stored.service_status_id == CANCELED:
        return Refusal("order_cancelled")
    if kind.own_courier_only and (stored.courier_type or "").strip().lower() in OTHERS_COURIERS:
        return Refusal("courier_not_restaurant")
    return None


def new_status(decision: Decision, stored: Stored, statuses: Statuses) -> NewStatus | None:
    """What a done action makes of its order, as it is `stored`; None: its status stays."""
    if not isinstance(decision, Verdict) or decision.state != ActionState.DONE or decision.status_id is None:
        return None
    # A refusal proves it, but the service itself has not shown that status.
    shown = decision.known_by != KnownBy.REFUSAL
    status_id, ended_by = decision.status_id, ENDS.get(decision.status_id)
    news = LastChange.STATUS if ended_by is None else end_change(ended_by)
    return NewStatus(
        status_id=status_id,
        status=statuses.name(status_id),
        ended_by=ended_by,
        ends=ended_by != stored.ended_by,
        shown=shown,
        problem=without_doubt(stored.problem) if shown else None,
        last_change=news if status_id != stored.status_id else None,
    )


def doubts_status(decision: Decision) -> bool:
    """Whether the order's stored status can hardly be right: the service refuses what that status should allow."""
    if isinstance(decision, Verdict):
        return decision.state == ActionState.REFUSED and decision.http_status is not None
    return isinstance(decision, AwaitPoll)
