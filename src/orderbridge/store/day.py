"""One day's orders, for `orderbridge day`: by two indexes, in a database of years."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, literal_column, select

from orderbridge.store.tables import ENDED, OPEN, orders

SET_BACK = timedelta(days=7)  # by no more was the clock set back between an order's reception and its end
SHOWN = (
    orders.c.order_number,
    orders.c.pos_reference,
    orders.c.account,
    orders.c.restaurant_id,
    orders.c.restaurant_name,
    orders.c.status,
    orders.c.payment_code,
    orders.c.amount_due,
    orders.c.total,
    orders.c.discount,
    orders.c.order_tip,
    orders.c.pos_revision,
    orders.c.pos_total,
)


def received(connection: Connection, begin: datetime, end: datetime) -> Iterator[Any]:
    """The orders received from `begin` until before `end`, as SHOWN; the ended ones first."""
    within = (orders.c.received_utc >= begin, orders.c.received_utc < end)
    not_before = orders.c.ended_utc >= begin - SET_BACK  # what MariaDB's index begins with
    ended = select(*SHOWN).where(literal_column(ENDED), not_before, *within)
    still_open = select(*SHOWN).where(literal_column(OPEN), *within)
    for query in (ended, still_open):
        yield from connection.execute(query.order_by(orders.c.received_utc))


def moments(connection: Connection, begin: datetime, end: datetime) -> Iterator[tuple[str, datetime]]:
    """Each of these orders' account, and when it came in."""
    within = (orders.c.received_utc >= begin, orders.c.received_utc < end)
    for condition in (ENDED, OPEN):
        query = select(orders.c.account, orders.c.received_utc).where(literal_column(condition), *within)
        yield from ((account, at) for account, at in connection.execute(query))
