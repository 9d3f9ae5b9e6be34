"""What one delivered order writes: shared by the poll and by `quarantine retry`."""

from collections.abc import Mapping
from datetime import datetime

from sqlalchemy import Connection

from orderbridge.errors import UnknownOutcome
from orderbridge.marketplace.schema import read_listing, read_order
from orderbridge.model import Document, Order, Stored
from orderbridge.rules import lifecycle
from orderbridge.store import orders
from orderbridge.store.orders import Arrival


def reread(payload: str) -> Document | None:
    """A stored document as a list would show it; None when it is not one document."""
    try:
        documents = read_listing(f'{{"status":true,"data":[{payload}]}}'.encode("utf-8", "surrogatepass"))
    except UnknownOutcome:
        return None
    return documents[0] if len(documents) == 1 else None


def arrival(order: Order, needs_payment_id: int | None) -> Arrival:
    """An order with the word for its status and its end."""
    status = lifecycle.status_name(order.status_id, needs_payment_id)
    return Arrival(order, status, lifecycle.ENDS.get(order.status_id) if order.status_id is not None else None)


def update(
    connection: Connection,
    stored: Stored,
    order: Order,
    *,
    payload: str | None,
    payment_codes: Mapping[str, str],
    needs_payment_id: int | None,
    status_counts: bool,
    now: datetime,
) -> None:
    """Write a delivery over a stored order. `payload`: the stored document, None when retention has blanked it."""
    change = lifecycle.merge(
        stored,
        order.status_id,
        contents_changed=_facts_differ(payload, order, payment_codes),
        status_counts=status_counts,
    )
    orders.update_delivered(connection, stored, arrival(order, needs_payment_id), change, now)


def _facts_differ(payload: str | None, order: Order, payment_codes: Mapping[str, str]) -> bool:
    """Compare what a till shows with the same reading of the stored document."""
    before = None if payload is None else reread(payload)
    if before is None or before.reason is not None:
        return True
    return read_order(before, payment_codes=payment_codes).facts != order.facts
