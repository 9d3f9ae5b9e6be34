"""The life of an order as tables, and what a delivery changes in what is stored (docs/interface.md, States and transitions).

An order has three status ids in our tables. Most of the time they are equal; what is hard begins where they differ.

    status_id               what the till sees: the best we know. Written by a delivery, and by an action of ours that is
                            done: then it is ahead of the service's own word until the next poll.
    service_status_id       what the service itself has shown: in a delivery, or by answering OK to an action. A proof is
                            no showing: a complete that is known only by the refusal of its repetition moves status_id to
                            COMPLETE_WITH_PAYMENT and leaves this one as it was.
    acknowledged_status_id  what we have told the service that we have. Written when PUT success was answered OK, and by
                            nothing else. The service shows an order again as soon as its status is another one: that an
                            order is missing in a list therefore says that it is still as it was acknowledged, or over.

    an order comes in, RECEIVED         1   1   -
    its acknowledgement is answered     1   1   1
    accept is answered OK               2   2   1     the service shows it once more: its status is not what was acknowledged
    the next poll, acknowledged         2   2   2
    accept, and the answer is lost      1   1   1     nobody knows: rules.retry waits for what a poll shows, or lacks
    complete, proved by a refusal       5   16  16

Who asks which: whether an action still makes sense is asked of service_status_id (`may_send`), for only the service's own
word is a reason not to send something. Whether a delivery brings news is asked of both others together with the contents
(`is_unchanged`). What the absence of an order proves is asked of acknowledged_status_id (rules.retry.proof).

Rules of this file:
- The service is believed: a delivered status counts even when it goes back. It is withheld (`status_counts`) only while an
  action of ours was on the wire or unresolved, because the list may be older than what that action did.
- An unknown status id is shown as UNKNOWN and is never taken for an end.
- `merge` decides, the store writes; nothing here knows a database.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from orderbridge.actions import ACTIONS
from orderbridge.model import (
    CANCELED,
    COMPLETE_WITH_PAYMENT,
    CONFIRMED,
    CONTENTS_OUTDATED,
    IN_DELIVERY,
    RECEIVED,
    STATUS_DOUBTFUL,
    Action,
    Arrival,
    Change,
    Differs,
    Document,
    EndedBy,
    LastChange,
    Order,
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
OWN_COURIER = "restaurant"

ENDS = {COMPLETE_WITH_PAYMENT: EndedBy.COMPLETED, CANCELED: EndedBy.CANCELLED}


def status_name(status_id: int | None, needs_payment_id: int | None = None) -> str:
    """The word for a status id; UNKNOWN for one that docs/interface.md does not name."""
    if status_id is None:
        return UNKNOWN_STATUS
    if status_id == needs_payment_id:
        return NEEDS_PAYMENT
    return STATUS_NAMES.get(status_id, UNKNOWN_STATUS)


def arrival(order: Order, needs_payment_id: int | None = None) -> Arrival:
    """A delivered order with the word for its status and its end."""
    ended_by = None if order.status_id is None else ENDS.get(order.status_id)
    return Arrival(order, status_name(order.status_id, needs_payment_id), ended_by)


def is_active(status_id: int | None, needs_payment_id: int | None = None) -> bool:
    """Whether docs/interface.md counts this status among the active ones (Acknowledgement rules, 1)."""
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


def is_outdated(stored: Stored) -> bool:
    """Whether a till was told already that the stored contents are not the newest."""
    return CONTENTS_OUTDATED in (stored.problem or "").split(",")


def merge(stored: Stored, status_id: int | None, *, differs: Differs, status_counts: bool) -> Change:
    """Decide what a delivery changes. `status_counts` is False while an action of ours makes its word doubtful."""
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
    )


def _last_change(stored: Stored, ended_by: EndedBy | None, differs: Differs, *, moved: bool) -> LastChange | None:
    if ended_by is not None and ended_by != stored.ended_by:
        return end_change(ended_by)
    if differs != Differs.NOTHING:
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


class Shown(Protocol):
    """What of an order decides whether an action can be right."""

    @property
    def service_status_id(self) -> int | None:
        """See the head of this file."""

    @property
    def courier_type(self) -> str | None:
        """Empty: the service does not say who carries it."""


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
    if kind.own_courier_only and stored.courier_type not in {None, "", OWN_COURIER}:
        return Refusal("courier_not_restaurant")
    return None
