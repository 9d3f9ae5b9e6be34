"""Orders: what is known, what a delivery writes, what an acknowledgement, a verdict and an end write.

Rules of this file:
- Every function is a part of the caller's transaction.
- The columns of the POS (pos_revision, pos_reference) are never written here.
- `revision` grows by one in the statement that changes what a till should see.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    and_,
    bindparam,
    delete,
    func,
    insert,
    literal_column,
    or_,
    select,
    update,
)

from orderbridge.model import STATUS_DOUBTFUL, Change, EndedBy, Facts, LastChange, Order, Stored
from orderbridge.store.columns import Utc, without_nul
from orderbridge.store.locks import free_orders
from orderbridge.store.tables import (
    NEW,
    OPEN,
    actions,
    attempts,
    changed,
    contents_ended_utc,
    events,
    items,
    options,
    orders,
    unfinished,
)

BATCH = 500  # keys in one IN list: every database takes it
SWEEP = 200  # orders ended in one short transaction
_FACT_COLUMNS = tuple(field.name for field in fields(Facts) if field.name != "items")
_BLANKED = (
    "note",
    "customer_name",
    "customer_phone",
    "address",
    "address_description",
    "apartment_no",
    "building_no",
    "neighborhood_name",
    "district_name",
    "city_name",
    "payload",
    "payload_hash",  # the same delivery again is not what is stored
)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A delivered order as it is to be written: what it says, the word for its status, and its end if it has one."""

    order: Order
    status: str
    ended_by: EndedBy | None


def _batches(keys: Iterable[str]) -> Iterator[list[str]]:
    listed = list(keys)
    for start in range(0, len(listed), BATCH):
        yield listed[start : start + BATCH]


_STORED = select(  # as Stored has it
    orders.c.payment_key,
    orders.c.account,
    orders.c.status_id,
    orders.c.service_status_id,
    orders.c.revision,
    orders.c.payload_hash,
    orders.c.courier_type,
    orders.c.acknowledged_status_id,
    orders.c.ended_by,
    orders.c.problem,
).where(orders.c.payment_key.in_(bindparam("wanted", expanding=True)))


def stored(connection: Connection, keys: Iterable[str]) -> dict[str, Stored]:
    """What is known of these orders; keys without an order are missing from the answer."""
    found = {}
    for batch in _batches(keys):
        for row in connection.execute(_STORED, {"wanted": batch}):
            found[row.payment_key] = _stored(row)
    return found


def _stored(row: Any) -> Stored:
    return Stored(*row)


def payloads(connection: Connection, keys: Iterable[str]) -> dict[str, str | None]:
    """The stored documents of these orders; None where retention has blanked one."""
    found: dict[str, str | None] = {}
    for batch in _batches(keys):
        rows = connection.execute(select(orders.c.payment_key, orders.c.payload).where(orders.c.payment_key.in_(batch)))
        found.update({row.payment_key: row.payload for row in rows})
    return found


def has_news_since(connection: Connection, payment_key: str, moment: datetime) -> bool:
    """Whether an order changed at that moment or later."""
    query = select(orders.c.payment_key).where(orders.c.payment_key == payment_key, orders.c.changed_utc >= moment)
    return connection.execute(query).first() is not None


def with_unresolved_rows(connection: Connection, keys: Iterable[str]) -> set[str]:
    """The orders that have a row on the wire or unresolved: a poll's word about their status does not count."""
    found: set[str] = set()
    for batch in _batches(keys):
        sending = select(actions.c.payment_key).where(
            unfinished, actions.c.state == "sending", actions.c.payment_key.in_(batch)
        )
        found.update(connection.execute(sending).scalars())
    return found


def insert_new(connection: Connection, account: str, arrivals: Sequence[Arrival], now: datetime) -> None:
    """Orders that were never seen, whole: facts, items, options, the first line of their story."""
    if not arrivals:
        return
    connection.execute(insert(orders), [_new_row(account, arrival, now) for arrival in arrivals])
    _insert_items(connection, [arrival.order for arrival in arrivals])
    tell(connection, now, [(a.order.payment_key, "received", a.order.status_id, a.status, None) for a in arrivals])


def _new_row(account: str, arrival: Arrival, now: datetime) -> dict[str, Any]:
    order = arrival.order
    return _facts(order) | {
        "payment_key": order.payment_key,
        "account": account,
        "status_id": order.status_id,
        "service_status_id": order.status_id,
        "status": arrival.status,
        "status_text": order.status_text,
        "payload": without_nul(order.payload),
        "payload_hash": order.digest,
        "problem": ",".join(order.problems) or None,
        "revision": 1,
        "last_change": LastChange.NEW,
        "received_utc": now,
        "changed_utc": now,
        "ended_utc": now if arrival.ended_by else None,
        "ended_by": arrival.ended_by,
    }


def _facts(order: Order) -> dict[str, Any]:
    return {column: getattr(order.facts, column) for column in _FACT_COLUMNS}


def _insert_items(connection: Connection, new: Sequence[Order]) -> None:
    item_rows, option_rows = [], []
    for order in new:
        for line_no, item in enumerate(order.facts.items, start=1):
            place = {"payment_key": order.payment_key, "line_no": line_no}
            item_rows.append(
                place
                | {
                    "item_id": item.item_id,
                    "food_id": item.food_id,
                    "name": item.name,
                    "note": item.note,
                    "price": item.price,
                    "quantity": item.quantity,
                    "total": item.total,
                }
            )
            option_rows += [
                place | {"option_no": number} | {field.name: getattr(option, field.name) for field in fields(option)}
                for number, option in enumerate(item.options, start=1)
            ]
    if item_rows:
        connection.execute(insert(items), item_rows)
    if option_rows:
        connection.execute(insert(options), option_rows)


def update_delivered(connection: Connection, known: Stored, arrival: Arrival, change: Change, now: datetime) -> None:
    """Write one delivery over a stored order. A status that does not count leaves the stored one, and no hash."""
    order = arrival.order
    values = _facts(order) | {
        "payload": without_nul(order.payload),
        "payload_hash": None,
        "problem": _problem(order, known, keep_doubt=not change.status_counts),
    }
    if change.status_counts:
        values |= {
            "payload_hash": order.digest,
            "status_id": order.status_id,
            "service_status_id": order.status_id,
            "status": arrival.status,
            "status_text": order.status_text,
        }
        values |= _end(known, arrival.ended_by, now)
    if change.last_change is not None:
        values |= {"revision": orders.c.revision + 1, "last_change": change.last_change, "changed_utc": now}
    connection.execute(update(orders).where(orders.c.payment_key == order.payment_key).values(**values))
    if change.contents_changed:
        connection.execute(delete(options).where(options.c.payment_key == order.payment_key))
        connection.execute(delete(items).where(items.c.payment_key == order.payment_key))
        _insert_items(connection, [order])
    story = "delivered" if change.last_change is None else str(change.last_change)
    if change.status_counts:
        tell(connection, now, [(order.payment_key, story, order.status_id, arrival.status, None)])
    else:
        tell(connection, now, [(order.payment_key, "status_withheld", order.status_id, arrival.status, None)])


def _problem(order: Order, known: Stored, *, keep_doubt: bool) -> str | None:
    """The problems of a delivery. A doubt about the status goes when the delivery's own status counts."""
    doubtful = keep_doubt and STATUS_DOUBTFUL in (known.problem or "").split(",")
    return ",".join([*order.problems, *([STATUS_DOUBTFUL] if doubtful else [])]) or None


def _end(known: Stored, ended_by: EndedBy | None, now: datetime) -> dict[str, Any]:
    if ended_by is None:
        return {"ended_utc": None, "ended_by": None}
    return {} if known.ended_by == ended_by else {"ended_utc": now, "ended_by": ended_by}


def set_status(
    connection: Connection,
    known: Stored,
    status_id: int,
    status: str,
    ended_by: EndedBy | None,
    now: datetime,
    *,
    shown: bool = True,
) -> None:
    """A verdict's status: what the service made of the order. The revision grows when it is news.

    `shown`: the service itself said so, by OK or in a list; that ends a doubt about the status.
    """
    values: dict[str, Any] = {"status_id": status_id, "status": status}
    if shown:
        values |= {"service_status_id": status_id, "problem": without_problem(known.problem, STATUS_DOUBTFUL)}
    values |= _end(known, ended_by, now)
    if status_id != known.status_id:
        change = LastChange.STATUS
        if ended_by is not None:
            change = LastChange.CANCELLED if ended_by == EndedBy.CANCELLED else LastChange.ENDED
        values |= {"revision": orders.c.revision + 1, "last_change": change, "changed_utc": now}
    connection.execute(update(orders).where(orders.c.payment_key == known.payment_key).values(**values))


def adopt(connection: Connection, payment_key: str, account: str) -> None:
    """Another account takes over: the owner has left the configuration."""
    connection.execute(update(orders).where(orders.c.payment_key == payment_key).values(account=account))


def doubt_status(connection: Connection, known: Stored) -> None:
    """The service refused an action: what we store may not be what it has."""
    codes = [code for code in (known.problem or "").split(",") if code]
    if STATUS_DOUBTFUL not in codes:
        problem = ",".join([*codes, STATUS_DOUBTFUL])
        connection.execute(update(orders).where(orders.c.payment_key == known.payment_key).values(problem=problem))


def without_problem(problem: str | None, code: str) -> str | None:
    """The problem column without one code; None when nothing is left."""
    return ",".join(part for part in (problem or "").split(",") if part and part != code) or None


Mark = tuple[str, int | None, str, datetime]


def mark_acknowledged(connection: Connection, marks: Sequence[Mark]) -> None:
    """The service said OK to the acknowledgement of (payment_key, status id, its word) at that time."""
    if not marks:
        return
    connection.execute(
        update(orders)
        .where(orders.c.payment_key == bindparam("marked_key"))
        .values(acknowledged_utc=bindparam("marked_at"), acknowledged_status_id=bindparam("marked_status")),
        [{"marked_key": key, "marked_at": at, "marked_status": status} for key, status, _, at in marks],
    )
    connection.execute(
        insert(events),
        [
            {
                "payment_key": key,
                "at_utc": at,
                "event": "acknowledged",
                "status_id": status,
                "status": word,
                "detail": None,
            }
            for key, status, word, at in marks
        ],
    )


Line = tuple[str, str, int | None, str | None, str | None]


def tell(connection: Connection, now: datetime, lines: Sequence[Line]) -> None:
    """Lines of orders' stories: (payment_key, event, status_id, status, detail)."""
    if lines:
        names = ("payment_key", "event", "status_id", "status", "detail")
        connection.execute(insert(events), [dict(zip(names, line, strict=True)) | {"at_utc": now} for line in lines])


def _is_silent(now: datetime, silence: timedelta, not_before: str) -> ColumnElement[bool]:
    return and_(
        literal_column(OPEN),
        orders.c.changed_utc < now - silence,
        or_(
            orders.c.scheduled_for.is_(None),
            orders.c.scheduled_for < not_before,
            orders.c.scheduled_for.not_like("____-__-__%"),  # no date that could be compared
        ),
    )


def silent(connection: Connection, now: datetime, silence: timedelta, not_before: str) -> list[str]:
    """Some of the orders without news for `silence`.

    An order scheduled for later than `not_before` (the service's local time as it writes it) waits.
    """
    quiet = select(orders.c.payment_key).where(_is_silent(now, silence, not_before)).limit(SWEEP)
    return list(connection.execute(quiet).scalars())


def end_silent(
    connection: Connection, keys: Sequence[str], *, now: datetime, silence: timedelta, not_before: str
) -> list[str]:
    """End those of these orders that are silent still and that nobody holds; their status stays. Returns them."""
    ended = [
        key
        for key in sorted(free_orders(connection, keys))
        if connection.execute(
            update(orders)
            .where(orders.c.payment_key == key, _is_silent(now, silence, not_before))
            .values(
                ended_utc=now,
                ended_by=EndedBy.SILENCE,
                last_change=LastChange.ENDED,
                revision=orders.c.revision + 1,
                changed_utc=now,
            )
        ).rowcount
    ]
    for batch in _batches(ended):
        shown = select(orders.c.payment_key, orders.c.status_id, orders.c.status).where(orders.c.payment_key.in_(batch))
        found = connection.execute(shown).all()
        tell(connection, now, [(row.payment_key, "ended", row.status_id, row.status, "silence") for row in found])
    return ended


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
    for batch in _batches(blanked):
        connection.execute(update(items).where(items.c.payment_key.in_(batch)).values(note=None))
        rows = connection.execute(select(actions.c.id).where(actions.c.payment_key.in_(batch))).scalars().all()
        # By the ids themselves: MariaDB would read all attempts for a subquery.
        connection.execute(update(attempts).where(attempts.c.action_id.in_(rows)).values(detail=None))
    return blanked


def counts(connection: Connection) -> dict[str, int]:
    """How many orders wait to be taken over, changed since, and are open."""
    new = select(func.count()).select_from(orders).where(literal_column(NEW))
    behind = select(func.count()).select_from(orders).where(changed)
    still_open = select(func.count()).select_from(orders).where(literal_column(OPEN))
    return {
        "new": connection.execute(new).scalar_one(),
        "changed": connection.execute(behind).scalar_one(),
        "open": connection.execute(still_open).scalar_one(),
    }
