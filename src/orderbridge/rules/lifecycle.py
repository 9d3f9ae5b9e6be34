"""The life of an order as tables, and what a delivery changes in what is stored (SPEC.md, States and transitions).

Rules of this file:
- The service is believed: a delivered status counts even when it goes back.
- An unknown status id is shown as UNKNOWN and is never taken for an end.
- `merge` decides, the store writes; nothing here knows a database.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from orderbridge.model import (
    CANCELED,
    COMPLETE_WITH_PAYMENT,
    CONFIRMED,
    IN_DELIVERY,
    RECEIVED,
    STATUS_DOUBTFUL,
    Action,
    Change,
    Document,
    EndedBy,
    LastChange,
    Stored,
)

STATUS_NAMES = {
    RECEIVED: "RECEIVED",
    CONFIRMED: "CONFIRMED",
    COMPLETE_WITH_PAYMENT: "COMPLETE_WITH_PAYMENT",
    CANCELED: "CANCELED",
    IN_DELIVERY: "IN_DELIVERY",
}
UNKNOWN_STATUS = "UNKNOWN"
NEEDS_PAYMENT = "COMPLETE_NEEDS_PAYMENT"

# What the service makes of an order when it says OK (SPEC.md, Order transitions).
TARGETS = {
    Action.ACCEPT: CONFIRMED,
    Action.ON_THE_WAY: IN_DELIVERY,
    Action.COMPLETE: COMPLETE_WITH_PAYMENT,
    Action.CANCEL: CANCELED,
}
ENDS = {COMPLETE_WITH_PAYMENT: EndedBy.COMPLETED, CANCELED: EndedBy.CANCELLED}

ORDER_ACTIONS = frozenset(TARGETS)
RESTAURANT_ACTIONS = frozenset({Action.OPEN_RESTAURANT, Action.CLOSE_RESTAURANT})
FOOD_ACTIONS = frozenset({Action.ACTIVATE_FOOD, Action.DEACTIVATE_FOOD})


def status_name(status_id: int | None, needs_payment_id: int | None = None) -> str:
    """The word for a status id; UNKNOWN for one that SPEC.md does not name."""
    if status_id is None:
        return UNKNOWN_STATUS
    if status_id == needs_payment_id:
        return NEEDS_PAYMENT
    return STATUS_NAMES.get(status_id, UNKNOWN_STATUS)


def is_active(status_id: int | None, needs_payment_id: int | None = None) -> bool:
    """Whether SPEC.md counts this status among the active ones (Acknowledgement rules, 1)."""
    return status_id in {RECEIVED, CONFIRMED, IN_DELIVERY} or (status_id is not None and status_id == needs_payment_id)


def latest(documents: Iterable[Document], needs_payment_id: int | None = None) -> dict[str, Document]:
    """One document per order: the furthest one, when a list holds an order twice. Unknown ids go by position."""
    rank = {RECEIVED: 1, CONFIRMED: 2, IN_DELIVERY: 3, needs_payment_id: 4, COMPLETE_WITH_PAYMENT: 5, CANCELED: 6}
    rank.pop(None, None)
    chosen: dict[str, Document] = {}
    furthest: dict[str, int] = {}  # an unknown id in between does not bring an earlier status back
    for document in documents:
        if document.payment_key is None:
            continue
        place = rank.get(document.status_id or 0)
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
        and STATUS_DOUBTFUL not in (stored.problem or "")
    )


def merge(stored: Stored, status_id: int | None, *, contents_changed: bool, status_counts: bool) -> Change:
    """Decide what a delivery changes. `status_counts` is False while an action of ours makes its word doubtful."""
    status_changed = status_counts and status_id != stored.status_id
    reopened = status_counts and stored.ended_by is not None and status_id not in ENDS
    ended_by = ENDS.get(status_id) if status_counts and status_id is not None else None
    return Change(
        status_counts=status_counts,
        status_changed=status_changed,
        contents_changed=contents_changed,
        reopened=reopened,
        ended_by=ended_by,
        last_change=_last_change(stored, ended_by, moved=status_changed or reopened, contents=contents_changed),
    )


def _last_change(stored: Stored, ended_by: EndedBy | None, *, moved: bool, contents: bool) -> LastChange | None:
    if ended_by is not None and ended_by != stored.ended_by:
        return end_change(ended_by)
    if contents:
        return LastChange.CONTENTS  # also when the status moved: that is in its column, the lines must be read again
    return LastChange.STATUS if moved else None


def end_change(ended_by: EndedBy) -> LastChange:
    """What a till is told when an order ends."""
    return LastChange.CANCELLED if ended_by == EndedBy.CANCELLED else LastChange.ENDED


@dataclass(frozen=True, slots=True)
class Refusal:
    """An action that can never be right; it is refused unsent."""

    code: str


@dataclass(frozen=True, slots=True)
class Already:
    """An action whose target the service itself has shown already; it is done unsent."""


def may_send(action: Action, stored: Stored | None) -> Refusal | Already | None:
    """None when the service is to be asked. A stored status that merely does not fit is no reason to refuse."""
    if stored is None:
        return Refusal("order_unknown")
    if TARGETS[action] == stored.service_status_id:
        return Already()
    if stored.service_status_id == COMPLETE_WITH_PAYMENT:
        return Refusal("order_completed")
    if stored.service_status_id == CANCELED:
        return Refusal("order_cancelled")
    if action == Action.ON_THE_WAY and stored.courier_type not in {None, "", "restaurant"}:
        return Refusal("courier_not_restaurant")
    return None
