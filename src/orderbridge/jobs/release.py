"""Documents in quarantine, tried once more when the cause is gone (docs/design.md, Documents).

A document that reads as an order now is written as a delivery would be. It is not acknowledged here: what only the
database had refused was acknowledged when it came, and anything else the service delivers again by itself. Nor is it
accepted by itself: somebody stands before it. rules.late_documents decides.
"""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from orderbridge.jobs.late_documents import read_beside, update
from orderbridge.marketplace.schema import read_order, read_stored
from orderbridge.model import Order
from orderbridge.rules.late_documents import STAY, Release, of_quarantined
from orderbridge.rules.statuses import Statuses
from orderbridge.store import orders, quarantine, reference
from orderbridge.store.database import Database
from orderbridge.store.failures import is_refusal
from orderbridge.store.quarantine import Kept


@dataclass(frozen=True, slots=True)
class Released:
    """One document that was tried. `reason` says why it stays."""

    id: int
    payment_key: str | None
    outcome: Release
    reason: str | None = None


def release(database: Database, row_id: int, *, statuses: Statuses, now: datetime) -> Released | None:
    """Take one document in, in a transaction of its own; None when it is not in quarantine (any more)."""
    kept = database.read_now(lambda tx: quarantine.read(tx, row_id))
    if kept is None:
        return None
    document = read_stored(kept.payload)
    if document.reason is not None:
        return Released(row_id, kept.payment_key, Release.KEPT, document.reason)
    codes = database.read_now(reference.payment_codes)
    order = read_order(document, payment_codes=codes)
    try:
        outcome = database.write_now(lambda tx: _write(tx, kept, order, codes, statuses, now))
        return Released(row_id, order.payment_key, outcome)
    except DBAPIError as error:
        if not is_refusal(error):
            raise
        return Released(row_id, order.payment_key, Release.KEPT, "database_refused")


def _write(
    connection: Connection,
    kept: Kept,
    order: Order,
    codes: dict[str, str],
    statuses: Statuses,
    now: datetime,
) -> Release:
    beside = read_beside(connection, order.payment_key, kept.last_seen_utc)
    outcome = of_quarantined(beside, kept.account)
    if outcome == Release.TAKEN_IN and beside.stored is None:
        orders.insert_new(connection, kept.account, [statuses.arrival(order)], now)
    elif outcome == Release.TAKEN_IN and beside.stored is not None:
        update(connection, beside.stored, order, codes, statuses, now)
    if outcome not in STAY:
        quarantine.resolve(connection, kept.account, [order.payment_key], now)
    return outcome
