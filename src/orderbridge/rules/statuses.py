"""The statuses of an order: their words, which of them are active, which are ends (docs/interface.md).

One status, COMPLETE_NEEDS_PAYMENT, has no id in the interface: a technician configures it. So what hangs on a status is
asked of `Statuses`, which knows that id. An unknown status id is shown as UNKNOWN and is never taken for an end.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from orderbridge.model import (
    CANCELED,
    COMPLETE_WITH_PAYMENT,
    CONFIRMED,
    IN_DELIVERY,
    RECEIVED,
    Arrival,
    Document,
    EndedBy,
    Order,
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

ENDS = {COMPLETE_WITH_PAYMENT: EndedBy.COMPLETED, CANCELED: EndedBy.CANCELLED}


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
