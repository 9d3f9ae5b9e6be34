"""What the board reads, and the little that it writes beside outbox rows."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, and_, func, insert, literal_column, or_, select, update
from sqlalchemy.exc import IntegrityError

from orderbridge.actions import Subject
from orderbridge.model import Action, ActionState
from orderbridge.store.among import batches
from orderbridge.store.board_tables import devices, silenced
from orderbridge.store.tables import (
    ENDED,
    OPEN,
    UNFINISHED,
    actions,
    cancel_reasons,
    items,
    options,
    orders,
    restaurants,
)

STOP_SHOWN = timedelta(hours=12)  # for so long after it came in an order's cancellation waits for a hand
REFERENCE = "board"  # pos_reference of what the board has taken over
FOOD_DAYS = timedelta(days=7)

_PRIVATE = {"customer_name", "customer_phone", "address", "address_description", "payload", "payload_hash"}
_CARD = [column for column in orders.c if column.name not in _PRIVATE]
_STOPPED = and_(literal_column(ENDED), orders.c.ended_by == "cancelled")


def version(connection: Connection) -> tuple[Any, ...]:
    """Another one as soon as the board has to show something else; by indexes of what is open."""
    open_ones = select(
        func.count(), func.sum(orders.c.revision), func.sum(orders.c.pos_revision), func.max(orders.c.changed_utc)
    ).where(literal_column(OPEN))
    waiting = select(
        func.count(), func.max(actions.c.id), func.sum(actions.c.attempts), func.sum(actions.c.withdraw)
    ).where(literal_column(UNFINISHED))
    parts = (
        open_ones,
        waiting,
        select(func.max(actions.c.id), func.max(actions.c.finished_utc)),
        select(func.count(), func.max(silenced.c.at_utc)),
        select(func.count(), func.max(devices.c.revoked_utc)),
        select(func.max(restaurants.c.status_utc), func.count()),
    )
    return tuple(value for part in parts for value in connection.execute(part).one())


def orders_shown(connection: Connection, now: datetime) -> list[dict[str, Any]]:
    """Open orders, and those cancelled lately, the oldest first; no customer."""
    stopped = and_(_STOPPED, orders.c.received_utc >= now - STOP_SHOWN)
    found = [
        dict(row)
        for condition in (literal_column(OPEN), stopped)
        for row in connection.execute(select(*_CARD).where(condition)).mappings()
    ]
    return sorted(found, key=lambda row: (row["received_utc"], row["payment_key"]))


def lines(connection: Connection, keys: Sequence[str]) -> tuple[dict[str, list[Any]], dict[tuple[str, int], list[Any]]]:
    """Items by order, options by order and line."""
    of_orders: dict[str, list[Any]] = {}
    of_items: dict[tuple[str, int], list[Any]] = {}
    for some in batches(keys):
        for row in connection.execute(select(items).where(items.c.payment_key.in_(some)).order_by(items.c.line_no)):
            of_orders.setdefault(row.payment_key, []).append(row)
        chosen = select(options).where(options.c.payment_key.in_(some))
        for row in connection.execute(chosen.order_by(options.c.option_no)):
            of_items.setdefault((row.payment_key, row.line_no), []).append(row)
    return of_orders, of_items


def rows_of(connection: Connection, keys: Sequence[str]) -> dict[str, list[Any]]:
    """The outbox rows of these orders, by order and in the order of their ids."""
    found: dict[str, list[Any]] = {}
    for some in batches(keys):
        chosen = select(actions).where(actions.c.payment_key.in_(some)).order_by(actions.c.id)
        for row in connection.execute(chosen):
            found.setdefault(row.payment_key, []).append(row)
    return found


def silenced_since(connection: Connection, since: datetime) -> set[str]:
    """What somebody has silenced."""
    return set(connection.execute(select(silenced.c.subject).where(silenced.c.at_utc >= since)).scalars())


def silence(connection: Connection, subjects: Iterable[str], device: str, now: datetime) -> None:
    """From now on these are quiet on every device."""
    for subject in subjects:
        known = select(silenced.c.subject).where(silenced.c.subject == subject)
        if connection.execute(known).first() is None:
            connection.execute(insert(silenced).values(subject=subject, device=device, at_utc=now))


def take_over(connection: Connection, key: str, revision: int) -> bool:
    """The board as the POS: this revision of the order was read there. False: there is no such revision."""
    mine = update(orders).where(orders.c.payment_key == key, orders.c.revision >= revision)
    newer = mine.where(orders.c.pos_revision < revision)
    reference = func.coalesce(orders.c.pos_reference, REFERENCE)
    if connection.execute(newer.values(pos_revision=revision, pos_reference=reference)).rowcount:
        return True
    known = select(orders.c.payment_key).where(orders.c.payment_key == key, orders.c.revision >= revision)
    return connection.execute(known).first() is not None


def ask(connection: Connection, request_id: str, **values: Any) -> dict[str, Any]:
    """The outbox row of that request_id: the one that is there, or a new one. Raises IntegrityError for a bad one."""
    if (there := _row(connection, request_id)) is not None:
        return there
    try:
        with connection.begin_nested():
            connection.execute(insert(actions).values(request_id=request_id, **values))
    except IntegrityError:  # perhaps another one was quicker
        if (there := _row(connection, request_id)) is not None:
            return there
        raise
    there = _row(connection, request_id)
    assert there is not None  # noqa: S101 - it was written a moment ago
    return there


def _row(connection: Connection, request_id: str) -> dict[str, Any] | None:
    row = connection.execute(select(actions).where(actions.c.request_id == request_id)).mappings().first()
    return None if row is None else dict(row)


def withdraw(connection: Connection, row_id: int) -> bool:
    """Ask for a row back that the board has written. False: it is not the board's, or it is over."""
    ours = actions.c.request_id.startswith("board:")
    mine = update(actions).where(actions.c.id == row_id, literal_column(UNFINISHED), ours)
    return bool(connection.execute(mine.values(withdraw=1)).rowcount)


def reasons(connection: Connection) -> list[dict[str, Any]]:
    """The service's reasons for a cancellation."""
    return [dict(row) for row in connection.execute(select(cancel_reasons).order_by(cancel_reasons.c.id)).mappings()]


def customer(connection: Connection, key: str) -> dict[str, Any] | None:
    """Whose open order it is, and where it goes; None: there is no such order, or it has ended."""
    shown = [column for column in orders.c if column.name in _PRIVATE and not column.name.startswith("payload")]
    also = ("apartment_no", "building_no", "neighborhood_name", "district_name", "city_name")
    query = select(*shown, *(orders.c[one] for one in also)).where(orders.c.payment_key == key, literal_column(OPEN))
    row = connection.execute(query).mappings().first()
    return None if row is None else dict(row)


def shops(connection: Connection) -> list[dict[str, Any]]:
    """Every restaurant with its state."""
    query = select(restaurants).order_by(restaurants.c.account, restaurants.c.name)
    return [dict(row) for row in connection.execute(query).mappings()]


def is_closed(connection: Connection) -> bool:
    """Whether nothing is open: no order, and of no restaurant is it known that it is, or not known that it is not."""
    if connection.execute(select(orders.c.payment_key).where(literal_column(OPEN)).limit(1)).first() is not None:
        return False
    states = set(connection.execute(select(restaurants.c.status)).scalars())
    return states == {"Closed"}


def foods(connection: Connection, now: datetime) -> list[dict[str, Any]]:
    """What was ordered in the last days, once for each account, with the newest name."""
    seen = orders.c.received_utc >= now - FOOD_DAYS
    by_state = (and_(literal_column(OPEN), seen), and_(literal_column(ENDED), seen))
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for condition in by_state:
        query = (
            select(orders.c.account, items.c.food_id, func.max(items.c.name).label("name"))
            .join(items, items.c.payment_key == orders.c.payment_key)
            .where(condition, items.c.food_id.is_not(None))
            .group_by(orders.c.account, items.c.food_id)
        )
        for row in connection.execute(query).mappings():
            found.setdefault((row["account"], row["food_id"]), dict(row))
    return sorted(found.values(), key=lambda one: (one["account"], one["name"] or ""))


def newest_toggles(connection: Connection, subject: Subject, now: datetime) -> list[Any]:
    """The rows of the last days about foods or restaurants, the newest last."""
    words = [Action.ACTIVATE_FOOD, Action.DEACTIVATE_FOOD]
    if subject is Subject.RESTAURANT:
        words = [Action.OPEN_RESTAURANT, Action.CLOSE_RESTAURANT]
    recent = or_(literal_column(UNFINISHED), actions.c.finished_utc >= now - FOOD_DAYS)
    return list(connection.execute(select(actions).where(recent, actions.c.action.in_(words)).order_by(actions.c.id)))


FINAL = frozenset(ActionState) - {ActionState.PENDING, ActionState.SENDING}
