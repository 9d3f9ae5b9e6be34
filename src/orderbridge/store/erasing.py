"""A customer who asks to be forgotten: found by a telephone number or an order, and blanked everywhere.

Numbers are compared without what people write between the digits, and from the tenth digit on without country or trunk
prefix: +90 (555) 123 45 67, 0090555…, 0555… and 555… are one number.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Engine, select, update

from orderbridge.errors import StoreError
from orderbridge.store.retention import blank_order
from orderbridge.store.rows import batches, lock_orders
from orderbridge.store.tables import orders, quarantine

SUBSCRIBER = 10  # digits that tell one subscriber from another
LEAST = 7  # fewer digits would mean half a town
BETWEEN = r"[\s().\-/+ ]*"  # what stands between digits


@dataclass(frozen=True, slots=True)
class Found:
    """What names the customer. `open`: orders that are not over. `keys`: of documents, and what was asked for by key."""

    orders: tuple[str, ...]
    open: tuple[str, ...]
    documents: tuple[int, ...]  # in quarantine
    keys: tuple[str, ...] = ()


def normal(phone: str) -> str | None:
    """The digits that count; None when there are too few to mean anybody. Any script's digits are read."""
    digits = "".join(str(int(letter)) for letter in phone if letter.isdecimal())
    return digits[-SUBSCRIBER:] if len(digits) >= LEAST else None


def pattern(wanted: str) -> re.Pattern[str]:
    """Where this number stands in a text, however it is written."""
    prefix = rf"(?:(?:(?:\+|00){BETWEEN}\d{{1,3}}|0|90){BETWEEN})?"
    return re.compile(rf"(?<!\d){prefix}{BETWEEN.join(wanted)}(?!\d)")


def find(connection: Connection, *, phones: Iterable[str] = (), keys: Iterable[str] = ()) -> Found:
    """All orders of these numbers (as `normal` has them) and of these payment_keys, and their documents."""
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
        near = (
            orders.c.customer_phone.like("%" + "%".join(one) + "%") if one.isascii() else orders.c.customer_phone > ""
        )
        query = select(orders.c.payment_key, orders.c.ended_utc, orders.c.customer_phone).where(near)
        written = pattern(one)  # also with an extension behind it
        yield from (
            row
            for row in connection.execute(query)
            if normal(row.customer_phone) == one or written.search(row.customer_phone)
        )


def _documents(connection: Connection, wanted: set[str], keys: set[str]) -> list[tuple[int, str | None]]:
    """Ids and orders. All of an order's documents or none: of what is left alone, an older one would be the newest."""
    patterns = [pattern(one) for one in wanted]
    query = select(quarantine.c.id, quarantine.c.payment_key, quarantine.c.payload).where(quarantine.c.payload != "")
    kept = [
        (row.id, row.payment_key, any(one.search(row.payload) for one in patterns)) for row in connection.execute(query)
    ]
    named = keys | {key for _, key, names_them in kept if names_them and key}
    return [(row_id, key) for row_id, key, names_them in kept if names_them or key in named]


def blank(connection: Connection, keys: Sequence[str], *, with_open: bool) -> list[str]:
    """Empty all that names the customer in those of these orders that nobody holds. Returns them."""
    free = sorted(lock_orders(connection, keys))
    rows = connection.execute(select(orders.c.payment_key, orders.c.ended_utc).where(orders.c.payment_key.in_(free)))
    chosen = [row.payment_key for row in rows if with_open or row.ended_utc is not None]
    for key in chosen:
        blank_order(connection, key)
    return chosen


def blank_documents(connection: Connection, ids: Sequence[int], now: datetime) -> int:
    """Empty these documents and close them. Returns how many."""
    table = quarantine
    mine = update(table).where(table.c.id.in_(ids), table.c.payload != "")
    connection.execute(mine.where(table.c.resolved_utc.is_(None)).values(resolved_utc=now))
    return connection.execute(mine.values(payload="")).rowcount


def scrub(engine: Engine) -> None:
    """SQLite only: write the file anew, so that no free page and no WAL holds the old bytes.

    Raises StoreError while somebody reads what is still in the WAL, and the driver's own errors.
    """
    pooled = engine.raw_connection()
    try:
        cursor = pooled.cursor()
        cursor.execute("PRAGMA secure_delete = ON")
        cursor.execute("VACUUM")
        if cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
            raise StoreError("log.is_read")
    finally:
        pooled.close()
