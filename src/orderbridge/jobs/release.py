"""Documents in quarantine, tried once more when the cause is gone (docs/design.md, Documents).

A document that reads as an order now is written as a delivery would be. It is not acknowledged here: what only the
database had refused was acknowledged when it came, and anything else the service delivers again by itself. Nor is it
accepted by itself: somebody stands before it.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from orderbridge.marketplace.schema import differs, read_order, read_stored
from orderbridge.model import Order
from orderbridge.rules import lifecycle
from orderbridge.store import locks, orders, quarantine, reference
from orderbridge.store.database import Database
from orderbridge.store.failures import is_refusal
from orderbridge.store.quarantine import Kept


class Outcome(StrEnum):
    """What became of a document."""

    TAKEN_IN = "taken_in"
    SUPERSEDED = "superseded"  # newer news of this order is in the tables already
    FOREIGN = "foreign"  # the order belongs to another account by now
    WAITS = "waits"  # an action of this order has no verdict yet, or somebody holds the order
    KEPT = "kept"  # the cause is still there


@dataclass(frozen=True, slots=True)
class Released:
    """One document that was tried. `reason` says why it stays."""

    id: int
    payment_key: str | None
    outcome: Outcome
    reason: str | None = None


def release(database: Database, row_id: int, *, needs_payment_id: int | None, now: datetime) -> Released | None:
    """Take one document in, in a transaction of its own; None when it is not in quarantine (any more)."""
    kept = database.read_now(lambda tx: quarantine.read(tx, row_id))
    if kept is None:
        return None
    document = read_stored(kept.payload)
    if document.reason is not None:
        return Released(row_id, kept.payment_key, Outcome.KEPT, document.reason)
    codes = database.read_now(reference.payment_codes)
    order = read_order(document, payment_codes=codes)

    def work(connection: Connection) -> Outcome:
        outcome = _write(connection, kept, order, codes, needs_payment_id, now)
        if outcome not in {Outcome.WAITS, Outcome.FOREIGN}:
            quarantine.resolve(connection, kept.account, [order.payment_key], now)
        return outcome

    try:
        return Released(row_id, order.payment_key, database.write_now(work))
    except DBAPIError as error:
        if not is_refusal(error):
            raise
        return Released(row_id, order.payment_key, Outcome.KEPT, "database_refused")


def _write(
    connection: Connection,
    kept: Kept,
    order: Order,
    codes: dict[str, str],
    needs_payment_id: int | None,
    now: datetime,
) -> Outcome:
    if locks.held_orders(connection, [order.payment_key]):  # else it is ours for this transaction
        return Outcome.WAITS
    stored = orders.stored(connection, [order.payment_key]).get(order.payment_key)
    if stored is None:
        orders.insert_new(connection, kept.account, [lifecycle.arrival(order, needs_payment_id)], now)
        return Outcome.TAKEN_IN
    if stored.account != kept.account:
        return Outcome.FOREIGN
    if orders.has_news_since(connection, order.payment_key, kept.last_seen_utc):
        return Outcome.SUPERSEDED
    if orders.with_unresolved_rows(connection, [order.payment_key]):
        return Outcome.WAITS
    payload = orders.payloads(connection, [order.payment_key])[order.payment_key]
    news = differs(order, payload, payment_codes=codes)
    change = lifecycle.merge(stored, order.status_id, differs=news, status_counts=True)
    orders.update_delivered(connection, stored, lifecycle.arrival(order, needs_payment_id), change, now)
    return Outcome.TAKEN_IN
