"""How each account's polls went, in slots of ten minutes: for the technician's picture of a day."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from orderbridge.store.own_tables import slots

SLOT = timedelta(minutes=10)
KEPT = timedelta(days=2)
COUNTED = ("polls", "failed", "logins")


def slot_of(now: datetime) -> datetime:
    """The slot that a moment is in."""
    return now.replace(minute=now.minute // 10 * 10, second=0, microsecond=0)


def add(connection: Connection, counts: Mapping[str, Mapping[str, int]], now: datetime) -> None:
    """Counts by account, on top of what the slot of this moment has."""
    slot = slot_of(now)
    for account, some in counts.items():
        mine = update(slots).where(slots.c.account == account, slots.c.slot_utc == slot)
        if not connection.execute(mine.values({name: slots.c[name] + some[name] for name in COUNTED})).rowcount:
            connection.execute(insert(slots).values(account=account, slot_utc=slot, **some))
    connection.execute(delete(slots).where(slots.c.slot_utc < now - KEPT))


def since(connection: Connection, moment: datetime) -> list[dict[str, Any]]:
    """All slots from then on, by account and time."""
    query = select(slots).where(slots.c.slot_utc >= moment).order_by(slots.c.account, slots.c.slot_utc)
    return [dict(row) for row in connection.execute(query).mappings()]
