"""Silence: orders of which the service has shown nothing for so long that they count as over.

Rules of this file:
- Counted is the time in which the order's account polled successfully, `delivery_accounts.listened_seconds`: never a
  jump of the clock, an outage, or a time in which no daemon ran.
- `silence_from` is what that counter showed when an order's silence began. News set it to NULL (store.orders); the
  sweep sets it once a till has taken the order over and its scheduled time, if it has one, has come.
- An order that no till has taken over has no silence: it stays in `delivery_new_orders`.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta, tzinfo

from sqlalchemy import ColumnElement, Connection, and_, func, literal_column, or_, select, update

from orderbridge.clock import DATE, local_text
from orderbridge.model import EndedBy, LastChange
from orderbridge.store.orders import append_events
from orderbridge.store.rows import ORDER, lock
from orderbridge.store.tables import TAKEN, accounts, orders

SWEEP = 200  # orders written in one short transaction

_taken: ColumnElement[bool] = literal_column(TAKEN)
_listened = (
    select(func.max(accounts.c.listened_seconds)).where(accounts.c.name == orders.c.account).scalar_subquery()
)  # a former pair of secrets has a row of its own


def _has_come(now: datetime, zone: tzinfo) -> ColumnElement[bool]:
    """The time to begin with it, if it is scheduled. Orders of before schema 0008 have only what the service wrote."""
    wanted, start = orders.c.scheduled_for, orders.c.start_utc
    by_text = or_(wanted <= local_text(now, zone), wanted.not_like(f"{DATE}%"))
    return or_(wanted.is_(None), and_(start.is_not(None), start <= now), and_(start.is_(None), by_text))


def _begins(now: datetime, zone: tzinfo) -> ColumnElement[bool]:
    return and_(_taken, orders.c.silence_from.is_(None), _has_come(now, zone))


def _was_too_early(now: datetime, zone: tzinfo) -> ColumnElement[bool]:
    """The clock was ahead when the count of a scheduled order began."""
    return and_(_taken, orders.c.silence_from.is_not(None), ~_has_come(now, zone))


def to_count(connection: Connection, now: datetime, zone: tzinfo) -> list[str]:
    """Some of the orders whose count begins, or is taken back. `zone`: of the service's times."""
    due = or_(_begins(now, zone), _was_too_early(now, zone))
    return list(connection.execute(select(orders.c.payment_key).where(due).limit(SWEEP)).scalars())


def count_from_here(connection: Connection, keys: Sequence[str], *, now: datetime, zone: tzinfo) -> list[str]:
    """Begin to count the silence of those of these orders that are not locked; take it back where it began too early."""
    counted = []
    for key in sorted(lock(connection, ORDER, keys)):
        mine = update(orders).where(orders.c.payment_key == key)
        back = mine.where(_was_too_early(now, zone)).values(silence_from=None)
        begin = mine.where(_begins(now, zone)).values(silence_from=_listened)
        if connection.execute(back).rowcount or connection.execute(begin).rowcount:
            counted.append(key)
    return counted


def _is_silent(silence: timedelta, now: datetime, zone: tzinfo) -> ColumnElement[bool]:
    """For so long of listening, after its time if it is scheduled."""
    seconds = int(silence.total_seconds())
    return and_(
        _taken,
        orders.c.silence_from <= _listened - seconds,
        _has_come(now, zone),
    )


def silent(connection: Connection, silence: timedelta, now: datetime, zone: tzinfo) -> list[str]:
    """Some of the orders that are to end by silence."""
    most = connection.execute(select(func.max(accounts.c.listened_seconds))).scalar_one_or_none() or 0
    quiet = select(orders.c.payment_key).where(
        orders.c.silence_from <= most - int(silence.total_seconds()),  # what an index can answer
        _is_silent(silence, now, zone),
    )
    return list(connection.execute(quiet.limit(SWEEP)).scalars())


def end_silent(
    connection: Connection, keys: Sequence[str], *, now: datetime, silence: timedelta, zone: tzinfo
) -> list[str]:
    """End those of these orders that are silent still and not locked; their status stays. Returns them."""
    end = update(orders).values(
        ended_utc=now,
        ended_by=EndedBy.SILENCE,
        last_change=LastChange.ENDED,
        revision=orders.c.revision + 1,
        changed_utc=now,
        silence_from=None,
    )
    silent_still = _is_silent(silence, now, zone)
    ended = [
        key
        for key in sorted(lock(connection, ORDER, keys))
        if connection.execute(end.where(orders.c.payment_key == key, silent_still)).rowcount
    ]
    if ended:
        shown = select(orders.c.payment_key, orders.c.status_id, orders.c.status).where(orders.c.payment_key.in_(ended))
        found = connection.execute(shown).all()
        append_events(
            connection, now, [(row.payment_key, "ended", row.status_id, row.status, "silence") for row in found]
        )
    return ended
