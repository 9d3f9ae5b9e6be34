"""When the kitchen begins with a scheduled order: `start_utc`, and the event of that moment.

It is the scheduled time less the preparing time of the newest accept that is done; before there is one, less the time that
is configured. It is compared with the tables again and again, so that whatever changes it, and whenever the daemon ran,
the column follows, and the event is written once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from typing import Any

from sqlalchemy import Connection, exists, literal_column, or_, select, update

from orderbridge.clock import local_moment
from orderbridge.model import Action, ActionState, LastChange
from orderbridge.store.orders import append_events
from orderbridge.store.tables import OPEN, actions, events, orders

START = "start"

Minutes = Callable[[str, str | None], int]  # how long an order of this account and restaurant takes


@dataclass(frozen=True, slots=True)
class Start:
    """What is to be written of an order: another `start_utc`, the event, or both."""

    payment_key: str
    start_utc: datetime | None
    begins: bool
    status_id: int | None
    status: str


_accepted = (
    select(actions.c.preparing_time)
    .where(
        actions.c.payment_key == orders.c.payment_key,
        actions.c.action == Action.ACCEPT,
        actions.c.state == ActionState.DONE,
    )
    .order_by(actions.c.id.desc())
    .limit(1)
    .scalar_subquery()
)
_told = exists().where(events.c.payment_key == orders.c.payment_key, events.c.event == START)
_SCHEDULED = select(
    orders.c.payment_key,
    orders.c.account,
    orders.c.restaurant_id,
    orders.c.scheduled_for,
    orders.c.start_utc,
    orders.c.status_id,
    orders.c.status,
    _accepted.label("accepted"),
    _told.label("told"),
).where(literal_column(OPEN), or_(orders.c.scheduled_for.is_not(None), orders.c.start_utc.is_not(None)))


def start_of(scheduled_for: str | None, zone: tzinfo, minutes: int) -> datetime | None:
    """When to begin with an order that takes so many minutes; None: it is not scheduled."""
    wanted = local_moment(scheduled_for, zone)
    return None if wanted is None else wanted - timedelta(minutes=minutes)


def due(connection: Connection, now: datetime, zone: tzinfo, minutes_of: Minutes) -> list[Start]:
    """Open orders of which something is to be written."""
    found = []
    for row in connection.execute(_SCHEDULED):
        minutes = minutes_of(row.account, row.restaurant_id) if row.accepted is None else int(row.accepted)
        start = start_of(row.scheduled_for, zone, minutes)
        begins = start is not None and start <= now and not row.told
        if begins or start != row.start_utc:
            found.append(Start(row.payment_key, start, begins, row.status_id, row.status))
    return found


def note(
    connection: Connection, now: datetime, found: Sequence[Start], *, raises_revision: bool = False
) -> Sequence[Start]:
    """Write it. Returns what was written. `raises_revision`: the moment is a change that a till confirms."""
    for one in found:
        values: dict[str, Any] = {"start_utc": one.start_utc}
        if one.begins and raises_revision:
            values |= {"revision": orders.c.revision + 1, "last_change": LastChange.START, "changed_utc": now}
        connection.execute(update(orders).where(orders.c.payment_key == one.payment_key).values(values))
    lines = [(one.payment_key, START, one.status_id, one.status, None) for one in found if one.begins]
    append_events(connection, now, lines)
    return found


def not_started(connection: Connection, border: datetime) -> list[tuple[str, datetime, str]]:
    """Orders that should have begun before `border`, and of which no till has confirmed it: order, since, account."""
    query = select(orders.c.payment_key, orders.c.start_utc, orders.c.account).where(
        literal_column(OPEN),
        orders.c.start_utc < border,
        orders.c.last_change == LastChange.START,
        orders.c.pos_revision < orders.c.revision,
    )
    return [(row.payment_key, row.start_utc, row.account) for row in connection.execute(query)]
