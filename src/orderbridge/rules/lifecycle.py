"""The statuses of an order, and what a delivery or an action changes (docs/interface.md, States and transitions).

An order has three status ids in our tables, which are usually equal:

    status_id               the best we know, for the till. Written by a delivery, and by a done action; after that it
                            is ahead of the marketplace until the next poll.
    service_status_id       the status that the marketplace itself showed, in a delivery or by answering OK to an
                            action. A complete that is proved only by the refusal of its repetition sets status_id to
                            COMPLETE_WITH_PAYMENT, but does not change this one.
    acknowledged_status_id  the status that the marketplace knows we have. Written only when PUT success was answered
                            OK. The marketplace lists an order again as soon as its status differs. So an order that a
                            list lacks still has this status, or has ended.

    an order arrives, RECEIVED          1   1   -
    its acknowledgement is answered     1   1   1
    accept is answered OK               2   2   1     listed again: the status differs from the acknowledged one
    the next poll, acknowledged         2   2   2
    accept, and the answer is lost      1   1   1     not known: rules.retry waits for what a poll shows, or lacks
    complete, proved by a refusal       5   16  16

`may_send` decides by service_status_id whether an action still makes sense, because only the marketplace itself is a
reason not to send. `is_unchanged` compares a delivery with status_id, service_status_id and the contents. rules.retry
decides by acknowledged_status_id what the absence of an order proves.

Rules of this file:

- COMPLETE_NEEDS_PAYMENT has no id in the interface; a technician configures it. `Statuses` knows this id. An unknown
  status id is shown as UNKNOWN, and never taken for an end.
- A delivered status counts even if it goes back. It is withheld (`status_counts` is False) only if an action of ours
  was in flight or unresolved, because the list may be older than the action's effect.
- `merge` decides, and the store writes.
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
OTHERS_COURIERS = frozenset({"platform_courier", "come_get"})  # not the restaurant's own courier


@dataclass(frozen=True, slots=True)
class Statuses:
    """The known statuses. `needs_payment`: the configured id of COMPLETE_NEEDS_PAYMENT, or None."""

    needs_payment: int | None = None

    @property
    def active(self) -> tuple[int, ...]:
        """The active statuses (docs/interface.md, Acknowledgement rules, 1) in the order of an order's life."""
        known = (RECEIVED, CONFIRMED, IN_DELIVERY)
        return known if self.needs_payment is None else (*known, self.needs_payment)

    @property
    def ranks(self) -> Mapping[int, int]:
        """The progress of an order at each known status, from 1 on."""
        return {status: place for place, status in enumerate((*self.active, COMPLETE_WITH_PAYMENT, CANCELED), 1)}

    def name(self, status_id: int | None) -> str:
        """The name of a status id; UNKNOWN if docs/interface.md does not name it."""
        if status_id is None:
            return UNKNOWN_STATUS
        if status_id == self.needs_payment:
            return NEEDS_PAYMENT
        return STATUS_NAMES.get(status_id, UNKNOWN_STATUS)

    def arrival(self, order: Order) -> Arrival:
        """A delivered order with its status name and its end."""
        ended_by = None if order.status_id is None else ENDS.get(order.status_id)
        return Arrival(order, self.name(order.status_id), ended_by)

    def latest(self, documents: Iterable[Document]) -> dict[str, Document]:
        """One document per order: the one with the furthest status. Among unknown ids, the last one counts."""
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
    """Whether a delivery changes nothing: equal bytes and status, no doubt, and no end to undo."""
    return (
        stored.digest == document.digest
        and stored.status_id == document.status_id == stored.service_status_id
        and stored.ended_by != EndedBy.SILENCE
        and STATUS_DOUBTFUL not in codes_of(stored.problem)
    )


def merge(
    stored: Stored, status_id: int | None, *, differs: Differs, status_counts: bool, problems: Collection[str]
) -> Change:
    """Decide what a delivery changes. `status_counts` is False if an action of ours makes its status unreliable.

    `problems`: the codes of the delivery. A doubt about the status ends if the delivered status counts.
    """
    before = codes_of(stored.problem)
    kept = [STATUS_DOUBTFUL] if not status_counts and STATUS_DOUBTFUL in before else []
    if LATE in before and status_id == RECEIVED:  # until it is answered
        kept.append(LATE)
    is_reopened = stored.ended_by is not None and status_id not in ENDS
    moved = status_counts and (status_id != stored.status_id or is_reopened)
    ended_by = ENDS.get(status_id) if status_counts and status_id is not None else None
    return Change(
        status_counts=status_counts,
        differs=differs,
        ended_by=ended_by,
        last_change=_last_change(stored, ended_by, differs, moved=moved),
        problem=as_problem([*problems, *kept]),
    )


def merge_status(stored: Stored, status_id: int | None, *, status_counts: bool) -> Change | None:
    """The change of the status alone, if the database refuses the contents. None if it is written already."""
    codes = codes_of(without_doubt(stored.problem) if status_counts else stored.problem)
    differs = Differs.NOTHING if CONTENTS_OUTDATED in codes else Differs.DETAILS  # so that a till sees it once
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
        return LastChange.CONTENTS  # also if the status changed: the till must read the items again
    return LastChange.STATUS if moved else None


def end_change(ended_by: EndedBy) -> LastChange:
    """The last_change of an order that ends."""
    return LastChange.CANCELLED if ended_by == EndedBy.CANCELLED else LastChange.ENDED


def with_doubt(problem: str | None) -> str | None:
    """The column `problem` with a doubt about the status; None if it has one already."""
    codes = codes_of(problem)
    return None if STATUS_DOUBTFUL in codes else as_problem([*codes, STATUS_DOUBTFUL])


def without_doubt(problem: str | None) -> str | None:
    """The column `problem` without a doubt about the status."""
    return as_problem(code for code in codes_of(problem) if code != STATUS_DOUBTFUL)


@dataclass(frozen=True, slots=True)
class Refusal:
    """The action can never succeed, and is refused without a request."""

    code: str


@dataclass(frozen=True, slots=True)
class Already:
    """The marketplace already showed the action's target, so it is done without a request."""


class Shown(Protocol):
    """The facts of an order that decide whether an action may be sent."""

    @property
    def service_status_id(self) -> int | None:
        """See the module's docstring."""

    @property
    def courier_type(self) -> str | None:
        """The courier type as delivered. With an unknown type the action is sent."""


def is_others_courier(courier_type: str | None) -> bool:
    """Whether a known courier type is not the restaurant's own."""
    return (courier_type or "").strip().lower() in OTHERS_COURIERS


def may_send(action: Action, stored: Shown | None) -> Refusal | Already | None:
    """None if the action is to be sent. A stored status that merely does not fit is no reason to refuse it."""
    if stored is None:
        return Refusal("order_unknown")
    kind = ACTIONS[action]
    if kind.target is not None and kind.target == stored.service_status_id:
        return Already()
    if stored.service_status_id == COMPLETE_WITH_PAYMENT:
        return Refusal("order_completed")
    if stored.service_status_id == CANCELED:
        return Refusal("order_cancelled")
    if kind.own_courier_only and is_others_courier(stored.courier_type):
        return Refusal("courier_not_restaurant")
    return None


def new_status(decision: Decision, stored: Stored, statuses: Statuses) -> NewStatus | None:
    """The new status of an order after a done action; None: unchanged."""
    if not isinstance(decision, Verdict) or decision.state != ActionState.DONE or decision.status_id is None:
        return None
    # A refusal is a proof, but the marketplace has not shown this status.
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
    """Whether the decision makes the stored status doubtful: the marketplace refused what it should allow."""
    if isinstance(decision, Verdict):
        return decision.state == ActionState.REFUSED and decision.http_status is not None
    return isinstance(decision, AwaitPoll)
