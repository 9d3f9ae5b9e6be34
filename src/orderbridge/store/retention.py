"""Retention: blanks customers' data some time after an order's end, and deletes records later.

orderbridge.document marks the personal columns; docs/privacy.md lists how long data is kept. Open orders, orders with
unfinished rows, rows without a verdict and documents in quarantine are never deleted.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    and_,
    bindparam,
    delete,
    exists,
    func,
    literal_column,
    select,
    update,
)

from orderbridge.clock import YEARS, local_moment
from orderbridge.document import Facts, Item, columns_of
from orderbridge.errors import StoreError
from orderbridge.store.ddl import Utc
from orderbridge.store.rows import ORDER, ROW, batches, lock
from orderbridge.store.tables import (
    ENDED,
    actions,
    attempts,
    contents_ended_utc,
    events,
    items,
    options,
    orders,
    quarantine,
    unfinished,
)

SWEEP = 200  # orders, rows or documents in one short transaction
DATED = 49  # newest orders whose dates are compared with the clock
SLACK = timedelta(days=2)  # a day without orders, and other time zones
_LONG_AGO = datetime(YEARS.start, 1, 1, tzinfo=UTC)
SUBSCRIBER = 10  # significant digits of a phone number
LEAST = 7  # fewer digits would match too many customers
BETWEEN = r"[\s().\-/+ ]*"  # separators between digits
# The hash, too: the same delivery, received again, no longer equals the blanked row.
_BLANKED = (*columns_of(Facts, personal=True), "payload", "payload_hash")
_BLANKED_OF_ITEMS = columns_of(Item, personal=True)


def with_old_contents(connection: Connection, before: datetime) -> list[str]:
    """Some of the orders that ended before that time and still have customers' data."""
    old = select(orders.c.payment_key).where(_is_old(before)).limit(SWEEP)
    return list(connection.execute(old).scalars())


def _is_old(before: datetime) -> ColumnElement[bool]:
    return and_(contents_ended_utc < bindparam("before", before, Utc()), orders.c.payload.is_not(None))


def blank_old(connection: Connection, keys: Sequence[str], *, before: datetime) -> list[str]:
    """Blank customers' data of these orders and their actions. Returns those that were still old and not locked."""
    return _blank(connection, keys, _is_old(before))


def _blank(connection: Connection, keys: Sequence[str], *conditions: ColumnElement[bool]) -> list[str]:
    """Blank these orders, their items, and the answers to their actions. Returns those that were not locked."""
    empty = update(orders).values(dict.fromkeys(_BLANKED)).where(*conditions)
    free = sorted(lock(connection, ORDER, keys))
    blanked = [key for key in free if connection.execute(empty.where(orders.c.payment_key == key)).rowcount]
    for batch in batches(blanked):
        connection.execute(update(items).where(items.c.payment_key.in_(batch)).values(dict.fromkeys(_BLANKED_OF_ITEMS)))
        rows = connection.execute(select(actions.c.id).where(actions.c.payment_key.in_(batch))).scalars().all()
        # By ids, because MariaDB would read all attempts for a subquery.
        connection.execute(update(attempts).where(attempts.c.action_id.in_(rows)).values(detail=None))
    return blanked


# ---- records ---------------------------------------------------------------------------------------------------------


def plausible_now(connection: Connection, now: datetime, zone: ZoneInfo) -> datetime:
    """The current time, limited to shortly after the dates of the newest orders: our clock may be years ahead.

    Orders without a plausible date do not count. Without any, it is long ago, so that nothing is too old.
    """
    newest = select(events.c.payment_key).order_by(events.c.id.desc()).limit(DATED)
    keys = set(connection.execute(newest).scalars())
    texts = connection.execute(select(orders.c.ordered_at).where(orders.c.payment_key.in_(keys))).scalars()
    dates = sorted(date for text in texts if (date := local_moment(text, zone)) is not None and date.year in YEARS)
    return min(now, dates[len(dates) // 2] + SLACK if dates else _LONG_AGO)


def _is_over(before: datetime) -> ColumnElement[bool]:
    """The order ended before that time and does not have the newest event, which the high-water mark needs."""
    newest = select(events.c.payment_key).order_by(events.c.id.desc()).limit(1).scalar_subquery()
    waits = exists().where(actions.c.payment_key == orders.c.payment_key, unfinished)
    return and_(
        literal_column(ENDED),
        orders.c.received_utc < before,
        orders.c.ended_utc < before,
        ~waits,
        orders.c.payment_key != func.coalesce(newest, ""),
    )


def old_orders(connection: Connection, before: datetime) -> list[str]:
    """Some of the orders that ended before that time and have no unfinished row."""
    return list(connection.execute(select(orders.c.payment_key).where(_is_over(before)).limit(SWEEP)).scalars())


def delete_orders(connection: Connection, keys: Sequence[str], *, before: datetime) -> list[str]:
    """Delete these orders with items and events. Returns those that were still old and not locked."""
    free = sorted(lock(connection, ORDER, keys))
    chosen = select(orders.c.payment_key).where(orders.c.payment_key.in_(free), _is_over(before))
    gone = list(connection.execute(chosen).scalars())
    for table in (options, items, events, orders):
        connection.execute(delete(table).where(table.c.payment_key.in_(gone)))
    return gone


def old_actions(connection: Connection, before: datetime) -> list[int]:
    """Some of the outbox rows that ended before that time."""
    ended = select(actions.c.id).where(actions.c.finished_utc < before, ~unfinished)
    return list(connection.execute(ended.order_by(actions.c.finished_utc).limit(SWEEP)).scalars())


def delete_actions(connection: Connection, ids: Sequence[int], *, before: datetime) -> list[int]:
    """Delete these rows with their attempts. Returns those that were still old and not locked."""
    free = sorted(lock(connection, ROW, ids))
    over = select(actions.c.id).where(actions.c.id.in_(free), actions.c.finished_utc < before, ~unfinished)
    gone = list(connection.execute(over.order_by(actions.c.id)).scalars())
    connection.execute(delete(attempts).where(attempts.c.action_id.in_(gone)))
    connection.execute(delete(actions).where(actions.c.id.in_(gone)))
    return gone


def delete_documents(connection: Connection, before: datetime) -> int:
    """Delete some of the documents that were resolved and last seen before that time. Returns how many."""
    old = select(quarantine.c.id).where(quarantine.c.resolved_utc < before, quarantine.c.last_seen_utc < before)
    ids = list(connection.execute(old.order_by(quarantine.c.id).limit(SWEEP)).scalars())
    connection.execute(delete(quarantine).where(quarantine.c.id.in_(ids)))
    return len(ids)


# ---- a customer who asks to be forgotten -----------------------------------------------------------------------------
# The customer is found by a telephone number or an order, and blanked everywhere. Numbers are compared without
# separators, and only by their last ten digits, without country or trunk prefix: +90 (555) 123 45 67, 0090555…, 0555…
# and 555… are one number.


@dataclass(frozen=True, slots=True)
class Found:
    """The customer's orders and documents.

    `open`: orders that have not ended. `keys`: payment_keys of the documents, and those that were given.
    """

    orders: tuple[str, ...]
    open: tuple[str, ...]
    documents: tuple[int, ...]  # in quarantine
    keys: tuple[str, ...] = ()


def normal(phone: str) -> str | None:
    """The significant digits of a phone number in any script; None if there are too few."""
    digits = "".join(str(int(letter)) for letter in phone if letter.isdecimal())
    return digits[-SUBSCRIBER:] if len(digits) >= LEAST else None


def pattern(wanted: str) -> re.Pattern[str]:
    """A pattern that finds this number in a text, with any separators."""
    prefix = rf"(?:(?:(?:\+|00){BETWEEN}\d{{1,3}}|0|90){BETWEEN})?"
    return re.compile(rf"(?<!\d){prefix}{BETWEEN.join(wanted)}(?!\d)")


def find(connection: Connection, *, phones: Iterable[str] = (), keys: Iterable[str] = ()) -> Found:
    """All orders of these numbers (in the form that `normal` returns) and payment_keys, and their documents."""
    wanted, listed = set(phones), set(keys)
    found = {row.payment_key: row.ended_utc is None for row in _by_phone(connection, wanted)}
    for batch in batches(sorted(listed)):
        query = select(orders.c.payment_key, orders.c.ended_utc).where(orders.c.payment_key.in_(batch))
        found |= {row.payment_key: row.ended_utc is None for row in connection.execute(query)}
    documents = _documents(connection, wanted, {*listed, *found})
    return Found(
        tuple(sorted(found)),
        tuple(sorted(key for key, is_open in found.items() if is_open)),
        tuple(row_id for row_id, _ in documents),
        tuple(sorted({*listed, *(key for _, key in documents if key)})),
    )


def _by_phone(connection: Connection, wanted: set[str]) -> Iterator[Any]:
    for one in sorted(wanted):
        phone = orders.c.customer_phone
        near = phone.like("%" + "%".join(one) + "%") if one.isascii() else phone > ""
        written = pattern(one)  # may be followed by an extension
        for row in connection.execute(select(orders.c.payment_key, orders.c.ended_utc, phone).where(near)):
            if normal(row.customer_phone) == one or written.search(row.customer_phone):
                yield row


def _documents(connection: Connection, wanted: set[str], keys: set[str]) -> list[tuple[int, str | None]]:
    """Ids and orders of documents. All documents of an order are included, so that no older one becomes the newest."""
    patterns = [pattern(one) for one in wanted]
    query = select(quarantine.c.id, quarantine.c.payment_key, quarantine.c.payload).where(quarantine.c.payload != "")
    kept = [
        (row.id, row.payment_key, any(one.search(row.payload) for one in patterns)) for row in connection.execute(query)
    ]
    named = keys | {key for _, key, names_them in kept if names_them and key}
    return [(row_id, key) for row_id, key, names_them in kept if names_them or key in named]


def blank(connection: Connection, keys: Sequence[str], *, with_open: bool) -> list[str]:
    """Blank the customer's data of these orders. Returns those that were not locked."""
    blanked = _blank(connection, keys, *([] if with_open else [literal_column(ENDED)]))
    for batch in batches(blanked):
        connection.execute(update(events).where(events.c.payment_key.in_(batch)).values(detail=None))
    return blanked


def scrub(engine: Engine) -> None:
    """SQLite only: rewrite the file, so that neither free pages nor the WAL hold old data.

    Raises StoreError while another program still reads from the WAL, and the driver's errors.
    """
    with closing(engine.raw_connection()) as pooled:
        cursor = pooled.cursor()
        cursor.execute("PRAGMA secure_delete = ON")
        cursor.execute("VACUUM")
        if cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
            raise StoreError("log.is_read")
