"""Reads and writes orders for deliveries, acknowledgements and verdicts.

Rules of this file:

- Every function runs in the caller's transaction.
- The columns of the POS (pos_revision, pos_reference, pos_total) are never written here.
- `revision` grows by one in each statement with a change that a till should see.
"""

from collections.abc import Iterable, Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from itertools import zip_longest
from operator import attrgetter
from typing import Any

from sqlalchemy import Connection, and_, bindparam, delete, exists, func, literal_column, or_, select, update

from orderbridge.document import Facts, Item, Option, columns_of
from orderbridge.model import Arrival, Change, Differs, EndedBy, LastChange, NewStatus, Order, Stored, as_problem
from orderbridge.store.ddl import payload_of
from orderbridge.store.foods import note_ordered
from orderbridge.store.rows import alike, batches, for_us, held_by_others, in_list, insert_all, insert_rows, update_one
from orderbridge.store.tables import ENDED, NEW, OPEN, actions, changed, events, items, options, orders, unfinished

HOUR = timedelta(hours=1)

_FACTS = columns_of(Facts)
_of_facts = attrgetter(*_FACTS)
_of_item = attrgetter(*columns_of(Item))
_of_option = attrgetter(*columns_of(Option))
_ITEM = ("payment_key", "line_no", *columns_of(Item))
_OPTION = ("payment_key", "line_no", "option_no", *columns_of(Option))
_EVENT = ("payment_key", "event", "status_id", "status", "detail", "at_utc")


_NAMES = {"digest": "payload_hash"}  # columns with another name than the field of Stored
_WANTED = in_list(orders.c.payment_key)
_STORED = select(*(orders.c[_NAMES.get(one.name, one.name)] for one in fields(Stored))).where(_WANTED)
_PAYLOADS = select(orders.c.payment_key, orders.c.payload).where(_WANTED)
_UNRESOLVED = select(actions.c.payment_key).where(
    unfinished, actions.c.state == "sending", in_list(actions.c.payment_key)
)


def stored(connection: Connection, keys: Iterable[str]) -> dict[str, Stored]:
    """The stored orders by key; unknown keys are missing."""
    found: Iterable[Any] = (row for batch in batches(keys) for row in connection.execute(_STORED, {"wanted": batch}))
    return {row[0]: Stored(*row) for row in found}


def hold(connection: Connection, keys: Iterable[str]) -> tuple[dict[str, Stored], set[str]]:
    """Lock orders. Returns the stored ones that are ours now, and the keys that another session locks."""
    wanted = set(keys)
    if not wanted:
        return {}, set()
    rows: Sequence[Any] = connection.execute(for_us(connection, _STORED), {"wanted": sorted(wanted)}).all()
    found = {row[0]: Stored(*row) for row in rows}
    return found, held_by_others(connection, orders.c.payment_key, wanted - found.keys())


def payloads(connection: Connection, keys: Iterable[str]) -> dict[str, str | None]:
    """The stored documents of these orders; None if blanked."""
    found = (row for batch in batches(keys) for row in connection.execute(_PAYLOADS, {"wanted": batch}))
    return {row.payment_key: row.payload for row in found}


def has_news_since(connection: Connection, payment_key: str, moment: datetime) -> bool:
    """Whether the order changed, or was delivered without a change that a till sees, at this moment or later."""
    is_delivery = events.c.event.in_(("delivered", "status_withheld"))
    delivered = exists().where(events.c.payment_key == payment_key, is_delivery, events.c.at_utc >= moment)
    has_news = or_(orders.c.changed_utc >= moment, orders.c.acknowledged_utc >= moment, delivered)
    query = select(orders.c.payment_key).where(orders.c.payment_key == payment_key, has_news)
    return connection.execute(query).first() is not None


def with_unresolved_rows(connection: Connection, keys: Iterable[str]) -> set[str]:
    """The orders with a row in flight or unresolved, whose delivered status does not count."""
    return {key for batch in batches(keys) for key in connection.execute(_UNRESOLVED, {"wanted": batch}).scalars()}


def insert_new(
    connection: Connection,
    account: str,
    arrivals: Sequence[Arrival],
    now: datetime,
    starts: Sequence[datetime | None] = (),
) -> None:
    """Insert new orders with items, options and their first event. `starts`: their `start_utc`, or None."""
    if not arrivals:
        return
    new = [
        _new_row(account, arrival, now) | {"start_utc": start}
        for arrival, start in zip_longest(arrivals, starts[: len(arrivals)])
    ]
    insert_all(connection, orders, tuple(new[0]), [tuple(row.values()) for row in new])
    _insert_items(connection, [arrival.order for arrival in arrivals])
    note_ordered(connection, account, (arrival.order for arrival in arrivals), now)
    append_events(
        connection, now, [(a.order.payment_key, "received", a.order.status_id, a.status, None) for a in arrivals]
    )


def received_lately(connection: Connection, account: str, now: datetime, restaurant_id: str | None) -> int:
    """The number of orders of the last hour, of one restaurant or (None) of all of the account."""
    since, mine = now - HOUR, orders.c.account == account
    if restaurant_id is not None:
        mine &= orders.c.restaurant_id == restaurant_id
    lately = orders.c.received_utc.between(since, now)
    # An order was changed or has ended after it was received; each database's index needs one of these times.
    is_open = and_(literal_column(OPEN), orders.c.changed_utc >= since)
    has_ended = and_(literal_column(ENDED), orders.c.ended_utc >= since)
    counts = [select(func.count()).where(condition, lately, mine) for condition in (is_open, has_ended)]
    return sum(connection.execute(count).scalar_one() for count in counts)


def _new_row(account: str, arrival: Arrival, now: datetime) -> dict[str, Any]:
    order = arrival.order
    row = {
        "payment_key": order.payment_key,
        "account": account,
        "payload_hash": order.digest,
        "problem": as_problem(order.problems),
        "revision": 1,
        "last_change": LastChange.NEW,
        "received_utc": now,
        "changed_utc": now,
        "ended_utc": now if arrival.ended_by else None,
        "ended_by": arrival.ended_by,
    }
    return row | _facts(order) | _shown(arrival)


def _facts(order: Order) -> dict[str, Any]:
    facts = dict(zip(_FACTS, _of_facts(order.facts), strict=True))
    return facts | {
        "payload": payload_of(order.raw),
        "service_key": order.service_key,
        "remarks": as_problem(order.remarks),
    }


def _shown(arrival: Arrival) -> dict[str, Any]:
    """The columns for the delivered status."""
    order = arrival.order
    return {
        "status_id": order.status_id,
        "service_status_id": order.status_id,
        "status": arrival.status,
        "status_text": order.status_text,
    }


_WITHOUT_LINES = [delete(lines).where(in_list(lines.c.payment_key)) for lines in (options, items)]


def _insert_items(connection: Connection, new: Sequence[Order]) -> None:
    """Replace the items, including those that remained from a deleted order."""
    for batch in batches(order.payment_key for order in new):
        for statement in _WITHOUT_LINES:
            connection.execute(statement, {"wanted": batch})
    item_rows: list[tuple[Any, ...]] = []
    option_rows: list[tuple[Any, ...]] = []
    for order in new:
        key = order.payment_key
        for line_no, item in enumerate(order.facts.items, start=1):
            item_rows.append((key, line_no, *_of_item(item)))
            option_rows += [(key, line_no, no, *_of_option(option)) for no, option in enumerate(item.options, start=1)]
    insert_all(connection, items, _ITEM, item_rows)
    insert_all(connection, options, _OPTION, option_rows)


def update_delivered(connection: Connection, known: Stored, arrival: Arrival, change: Change, now: datetime) -> None:
    """Update an order by a delivery. If its status does not count, the stored one is kept, without a hash."""
    order = arrival.order
    values = _facts(order) | _changed(known, arrival, change, now)
    if change.status_counts:
        values["payload_hash"] = order.digest
    if change.differs == Differs.PRINT:
        values["contents_revision"] = known.revision + 1  # MariaDB would use the new revision
    update_one(connection, update(orders).where(orders.c.payment_key == order.payment_key).values(**values))
    if change.differs != Differs.NOTHING:
        _insert_items(connection, [order])
        note_ordered(connection, known.account, [order], now)
    story = str(change.last_change or "delivered") if change.status_counts else "status_withheld"
    append_events(connection, now, [(order.payment_key, story, order.status_id, arrival.status, None)])


def update_least(connection: Connection, known: Stored, arrival: Arrival, change: Change, now: datetime) -> None:
    """Update only the status of an order whose new contents the database refuses, and note that in `problem`.

    No hash is stored, because the stored contents are older.
    """
    order, values = arrival.order, _changed(known, arrival, change, now)
    update_one(connection, update(orders).where(orders.c.payment_key == order.payment_key).values(**values))
    append_events(connection, now, [(order.payment_key, "database_refused", order.status_id, arrival.status, None)])


def _changed(known: Stored, arrival: Arrival, change: Change, now: datetime) -> dict[str, Any]:
    """The columns of a delivery besides its facts, without a hash."""
    values: dict[str, Any] = {"payload_hash": None, "problem": change.problem}
    if change.status_counts:
        values |= _shown(arrival) | _end(known, arrival.ended_by, now)
    return values if change.last_change is None else values | _news(change.last_change, now)


def _end(known: Stored, ended_by: EndedBy | None, now: datetime) -> dict[str, Any]:
    if ended_by is None:
        return {"ended_utc": None, "ended_by": None}
    return {} if known.ended_by == ended_by else {"ended_utc": now, "ended_by": ended_by}


def _news(change: LastChange, now: datetime) -> dict[str, Any]:
    """The columns for news, which also end its silence."""
    return {"revision": orders.c.revision + 1, "last_change": change, "changed_utc": now, "silence_from": None}


def set_status(connection: Connection, news: Iterable[tuple[str, NewStatus]], now: datetime) -> None:
    """Write the statuses that verdicts gave to orders. The revision grows if a till should see it."""
    for one, keys in alike((one, key) for key, one in news).items():
        values = _status_values(one, now)
        connection.execute(update(orders).where(orders.c.payment_key.in_(keys)).values(**values))


def _status_values(new: NewStatus, now: datetime) -> dict[str, Any]:
    values: dict[str, Any] = {"status_id": new.status_id, "status": new.status}
    if new.shown:
        values |= {"service_status_id": new.status_id, "problem": new.problem}
    if new.ends:
        values |= {"ended_utc": now if new.ended_by else None, "ended_by": new.ended_by}
    return values if new.last_change is None else values | _news(new.last_change, now)


def adopt(connection: Connection, payment_key: str, account: str) -> None:
    """Move an order to another account, because its own was removed."""
    mine = update(orders).where(orders.c.payment_key == payment_key)
    connection.execute(mine.values(account=account, silence_from=None))  # a value of the other account's counter


def doubt_status(connection: Connection, doubted: Iterable[tuple[str, str]]) -> None:
    """Write `problem` of orders whose status is doubtful after a refusal."""
    for problem, keys in alike((problem, key) for key, problem in doubted).items():
        connection.execute(update(orders).where(orders.c.payment_key.in_(keys)).values(problem=problem))


Mark = tuple[str, int | None, str, datetime]
_MARKED = update(orders).where(orders.c.payment_key == bindparam("marked"))


def mark_acknowledged(connection: Connection, marks: Sequence[Mark]) -> None:
    """Note accepted acknowledgements: (payment_key, status id, status name, time)."""
    if not marks:
        return
    noted = [{"marked": key, "acknowledged_utc": at, "acknowledged_status_id": status} for key, status, _, at in marks]
    connection.execute(_MARKED, noted)
    insert_rows(
        connection, events, _EVENT, [(key, "acknowledged", status, word, None, at) for key, status, word, at in marks]
    )


Line = tuple[str, str, int | None, str | None, str | None]


def append_events(connection: Connection, now: datetime, lines: Sequence[Line]) -> None:
    """Insert events: (payment_key, event, status_id, status, detail)."""
    insert_rows(connection, events, _EVENT, [(*line, now) for line in lines])


def counts(connection: Connection) -> dict[str, int]:
    """The numbers of new, changed and open orders."""
    wanted = {"new": literal_column(NEW), "changed": changed, "open": literal_column(OPEN)}
    return {
        name: connection.execute(select(func.count()).select_from(orders).where(condition)).scalar_one()
        for name, condition in wanted.items()
    }
