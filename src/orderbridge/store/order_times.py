"""Changes of orders by time: when to start a scheduled order, and the end by silence.

`start_utc` is the scheduled time minus the preparing time of the newest done accept, or minus the configured time. It
is recomputed regularly, so that it follows every change; the event is written once.

An order ends by silence if the marketplace has not shown it for long enough:

- Only the time in which its account polled successfully counts, `delivery_accounts.listened_seconds`; not a clock
  change, an outage, or a time without a daemon.
- `silence_from` is the value of this counter when the silence began. News reset it to NULL (store.orders). The sweep
  sets it when a till has taken the order over and its start time, if any, is reached.
- An order that was not taken over never ends by silence: it stays in `delivery_new_orders`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, case, exists, func, literal_column, or_, select, update

from orderbridge.clock import local_moment
from orderbridge.model import Action, ActionState, EndedBy, LastChange
from orderbridge.store.orders import append_events
from orderbridge.store.rows import ORDER, lock
from orderbridge.store.tables import OPEN, TAKEN, accounts, actions, events, orders

START = "start"
SWEEP = 200  # orders written in one short transaction

Minutes = Callable[[str, str | None], int]  # the preparing time for an account and a restaurant


# ---- the start -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Start:
    """The changes to an order: a new `start_utc`, the event, or both."""

    payment_key: str
    start_utc: datetime | None
    begins: bool
    status_id: int | None
    status: str


_preparing_time = (
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
_has_begun = exists().where(events.c.payment_key == orders.c.payment_key, events.c.event == START)
_SCHEDULED = select(
    *orders.c["payment_key", "account", "restaurant_id", "scheduled_for", "start_utc", "status_id", "status"],
    _preparing_time.label("preparing_time"),
    _has_begun.label("has_begun"),
).where(literal_column(OPEN), or_(orders.c.scheduled_for.is_not(None), orders.c.start_utc.is_not(None)))


def start_of(scheduled_for: str | None, zone: tzinfo, minutes: int) -> datetime | None:
    """When to start an order with this preparing time; None: not scheduled."""
    wanted = local_moment(scheduled_for, zone)
    return None if wanted is None else wanted - timedelta(minutes=minutes)


def due(connection: Connection, now: datetime, zone: tzinfo, minutes_of: Minutes) -> list[Start]:
    """The changes to open orders that are due."""
    found = []
    for row in connection.execute(_SCHEDULED):
        minutes = row.preparing_time
        minutes = minutes_of(row.account, row.restaurant_id) if minutes is None else int(minutes)
        start = start_of(row.scheduled_for, zone, minutes)
        begins = start is not None and start <= now and not row.has_begun
        if begins or start != row.start_utc:
            found.append(Start(row.payment_key, start, begins, row.status_id, row.status))
    return found


def note(
    connection: Connection, now: datetime, found: Sequence[Start], *, raises_revision: bool = False
) -> Sequence[Start]:
    """Write the changes. Returns the written ones. `raises_revision`: a till must confirm the start."""
    for one in found:
        values: dict[str, Any] = {"start_utc": one.start_utc}
        if one.begins and raises_revision:
            values |= {"revision": orders.c.revision + 1, "last_change": LastChange.START, "changed_utc": now}
        connection.execute(update(orders).where(orders.c.payment_key == one.payment_key).values(values))
    lines = [(one.payment_key, START, one.status_id, one.status, None) for one in found if one.begins]
    append_events(connection, now, lines)
    return found


def not_started(connection: Connection, border: datetime) -> list[tuple[str, datetime, str]]:
    """Orders whose start before `border` no till has confirmed: order, since, account."""
    query = select(orders.c.payment_key, orders.c.start_utc, orders.c.account).where(
        literal_column(OPEN),
        orders.c.start_utc < border,
        orders.c.last_change == LastChange.START,
        orders.c.pos_revision < orders.c.revision,
    )
    return [(row.payment_key, row.start_utc, row.account) for row in connection.execute(query)]


# ---- the end by silence ----------------------------------------------------------------------------------------------

_listened = (
    select(func.max(accounts.c.listened_seconds)).where(accounts.c.name == orders.c.account).scalar_subquery()
)  # former secrets have rows of their own


def _has_come(now: datetime) -> ColumnElement[bool]:
    """The order is not scheduled, or its start is reached."""
    return or_(orders.c.start_utc.is_(None), orders.c.start_utc <= now)


def _is_miscounted(now: datetime) -> ColumnElement[bool]:
    """The silence should begin, or began too early by a wrong clock."""
    is_counted, has_come = orders.c.silence_from.is_not(None), _has_come(now)
    return and_(literal_column(TAKEN), or_(and_(~is_counted, has_come), and_(is_counted, ~has_come)))


def to_count(connection: Connection, now: datetime) -> list[str]:
    """Some of the orders whose silence begins, or is reset."""
    return list(connection.execute(select(orders.c.payment_key).where(_is_miscounted(now)).limit(SWEEP)).scalars())


def count_from_here(connection: Connection, keys: Sequence[str], *, now: datetime) -> list[str]:
    """Begin or reset the silence of the orders that are not locked. Returns them."""
    count = update(orders).where(_is_miscounted(now)).values(silence_from=case((_has_come(now), _listened)))
    free = sorted(lock(connection, ORDER, keys))
    return [key for key in free if connection.execute(count.where(orders.c.payment_key == key)).rowcount]


def _is_silent(silence: timedelta, now: datetime) -> ColumnElement[bool]:
    """The order has been silent for this time of listening."""
    seconds = int(silence.total_seconds())
    return and_(literal_column(TAKEN), orders.c.silence_from <= _listened - seconds, _has_come(now))


def silent(connection: Connection, silence: timedelta, now: datetime) -> list[str]:
    """Some of the orders that should end by silence."""
    most = connection.execute(select(func.max(accounts.c.listened_seconds))).scalar_one_or_none() or 0
    by_index = orders.c.silence_from <= most - int(silence.total_seconds())
    quiet = select(orders.c.payment_key).where(by_index, _is_silent(silence, now))
    return list(connection.execute(quiet.limit(SWEEP)).scalars())


def end_silent(connection: Connection, keys: Sequence[str], *, now: datetime, silence: timedelta) -> list[str]:
    """End the orders that are still silent and not locked, without changing their status. Returns them."""
    end = (
        update(orders)
        .where(_is_silent(silence, now))
        .values(
            ended_utc=now,
            ended_by=EndedBy.SILENCE,
            last_change=LastChange.ENDED,
            revision=orders.c.revision + 1,
            changed_utc=now,
            silence_from=None,
        )
    )
    free = sorted(lock(connection, ORDER, keys))
    ended = [key for key in free if connection.execute(end.where(orders.c.payment_key == key)).rowcount]
    shown = select(orders.c.payment_key, orders.c.status_id, orders.c.status).where(orders.c.payment_key.in_(ended))
    found = connection.execute(shown).all() if ended else ()
    append_events(connection, now, [(row.payment_key, "ended", row.status_id, row.status, "silence") for row in found])
    return ended
