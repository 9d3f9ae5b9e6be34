"""Retention: what names a customer is blanked some time after the order's end.

Which columns that are, the document's table says (orderbridge.document).
"""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, and_, bindparam, select, update

from orderbridge.document import Facts, Item, columns_of
from orderbridge.store.columns import Utc
from orderbridge.store.locks import free_orders
from orderbridge.store.orders import batches
from orderbridge.store.tables import actions, attempts, contents_ended_utc, items, orders

SWEEP = 200  # orders blanked in one short transaction
# And the hash: the same delivery again is not what is stored.
_BLANKED = (*columns_of(Facts, personal=True), "payload", "payload_hash")
_BLANKED_OF_ITEMS = columns_of(Item, personal=True)


def with_old_contents(connection: Connection, before: datetime) -> list[str]:
    """Some of the orders that ended before that time and still name a customer."""
    old = select(orders.c.payment_key).where(_is_old(before)).limit(SWEEP)
    return list(connection.execute(old).scalars())


def _is_old(before: datetime) -> ColumnElement[bool]:
    return and_(contents_ended_utc < bindparam("before", before, Utc()), orders.c.payload.is_not(None))


def blank_old(connection: Connection, keys: Sequence[str], *, before: datetime) -> list[str]:
    """Retention: empty what names a customer in those of these orders that are old still and that nobody holds.

    Returns them. The service's own words about their actions may name one, too.
    """
    blanked = [
        key
        for key in sorted(free_orders(connection, keys))
        if connection.execute(
            update(orders).where(orders.c.payment_key == key, _is_old(before)).values(dict.fromkeys(_BLANKED))
        ).rowcount
    ]
    for batch in batches(blanked):
        connection.execute(update(items).where(items.c.payment_key.in_(batch)).values(dict.fromkeys(_BLANKED_OF_ITEMS)))
        rows = connection.execute(select(actions.c.id).where(actions.c.payment_key.in_(batch))).scalars().all()
        # By the ids themselves: MariaDB would read all attempts for a subquery.
        connection.execute(update(attempts).where(attempts.c.action_id.in_(rows)).values(detail=None))
    return blanked
