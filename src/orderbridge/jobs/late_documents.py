"""Documents that no poll has just brought, out of quarantine or of the journal: how they are read and written.

decide: rules.late_documents, rules.lifecycle
write: store.orders, as a delivery does
"""

from collections.abc import Mapping
from datetime import datetime

from sqlalchemy import Connection

from orderbridge.marketplace.schema import differs
from orderbridge.model import Arrival, Order, Stored
from orderbridge.rules import lifecycle
from orderbridge.rules.late_documents import Beside
from orderbridge.rules.statuses import Statuses
from orderbridge.store import locks, orders


def read_beside(connection: Connection, key: str, at: datetime) -> Beside:
    """What is stored of its order. `at`: the document's time. Where nobody holds the order, it is this transaction's."""
    if locks.lock_orders_naming_held(connection, [key]):
        return Beside(is_held=True)
    stored = orders.stored(connection, [key]).get(key)
    if stored is None:
        return Beside()
    return Beside(
        stored=stored,
        has_news=orders.has_news_since(connection, key, at),
        is_unresolved=key in orders.with_unresolved_rows(connection, [key]),
    )


def update(
    connection: Connection,
    stored: Stored,
    order: Order,
    codes: Mapping[str, str],
    statuses: Statuses,
    now: datetime,
) -> Arrival:
    """Write it over what is stored. `codes`: the names of the ways to pay."""
    before = orders.payloads(connection, [order.payment_key])[order.payment_key]
    news = differs(order, before, payment_codes=codes)
    change = lifecycle.merge(stored, order.status_id, differs=news, status_counts=True, problems=order.problems)
    arrival = statuses.arrival(order)
    orders.update_delivered(connection, stored, arrival, change, now)
    return arrival
