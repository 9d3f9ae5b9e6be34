"""Stores documents that could not be stored as orders, once each, with the reason."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, and_, bindparam, case, exists, func, literal, literal_column, or_, select, update
from sqlalchemy.sql import ColumnElement

from orderbridge.model import Document
from orderbridge.store.ddl import payload_of
from orderbridge.store.rows import batches, in_list, insert_all
from orderbridge.store.tables import UNRESOLVED, orders, quarantine

# A document that is not an order is received again with each poll, so counting it is one UPDATE.
_same = quarantine.c.account == bindparam("owner"), quarantine.c.payload_hash == bindparam("hash")
_LAST_SEEN = select(quarantine.c.last_seen_utc).where(*_same)
_SEEN_AGAIN = (
    update(quarantine).where(*_same).values(times_seen=quarantine.c.times_seen + bindparam("times"), resolved_utc=None)
)

_WAITING = select(quarantine.c.payment_key).where(literal_column(UNRESOLVED), in_list(quarantine.c.payment_key))

COUNT_LIMIT = 1000  # rows are counted up to this
REFUSED_LIMIT = 50  # orders

Pile = tuple[int, datetime | None]  # count and since

# A refused document: a change of an order in the tables (`_known`), or a new order that no till sees.
_is_whole = quarantine.c.reason == "database_refused"
_known = and_(_is_whole, exists().where(orders.c.payment_key == quarantine.c.payment_key).correlate(quarantine))
_counted = (
    select(
        case((_known, quarantine.c.payment_key)).label("known"),
        case((_is_whole, 1), else_=0).label("is_order"),
        quarantine.c.first_seen_utc.label("since"),
    )
    .where(literal_column(UNRESOLVED))
    .order_by(quarantine.c.first_seen_utc)
    .limit(COUNT_LIMIT)
    .subquery()
)
_QUARANTINED = select(_counted.c.known, _counted.c.is_order, func.count(), func.min(_counted.c.since)).group_by(
    _counted.c.known, _counted.c.is_order
)


@dataclass(frozen=True, slots=True)
class Kept:
    """A document in quarantine."""

    id: int
    account: str
    payment_key: str | None
    payload_hash: str
    first_seen_utc: datetime
    last_seen_utc: datetime
    payload: str = field(repr=False)


def keep(
    connection: Connection, account: str, document: Document, reason: str, now: datetime, *, times: int = 1
) -> bool:
    """Store a document, or count it again. Returns whether it is new. `times`: 0 if its delivery was counted."""
    same = {"owner": account, "hash": document.digest}
    if not times:  # it may have been delivered again since
        now = max(now, connection.execute(_LAST_SEEN, same).scalar() or now)
    payload = payload_of(document.raw)  # retention may have emptied it
    delivery = {"times": times, "last_seen_utc": now, "reason": reason, "payload": payload}
    seen = connection.execute(_SEEN_AGAIN, same | delivery).rowcount
    if not seen:
        row = {
            "account": account,
            "payment_key": document.payment_key,
            "payload": payload,
            "payload_hash": document.digest,
            "reason": reason,
            "first_seen_utc": now,
            "last_seen_utc": now,
        }
        insert_all(connection, quarantine, tuple(row), [tuple(row.values())])
    return not seen


def unresolved(connection: Connection) -> list[dict[str, Any]]:
    """The unresolved entries, oldest first, without the documents."""
    names = ("id", "account", "payment_key", "reason", "first_seen_utc", "last_seen_utc", "times_seen")
    query = select(*quarantine.c[names]).where(literal_column(UNRESOLVED)).order_by(quarantine.c.id)
    return [dict(row) for row in connection.execute(query).mappings()]


def waiting(connection: Connection, keys: Collection[str]) -> set[str]:
    """Those of these orders that have an unresolved document."""
    return {key for batch in batches(keys) for key in connection.execute(_WAITING, {"wanted": batch}).scalars()}


def of_order(connection: Connection, row_id: int) -> list[Kept]:
    """The unresolved documents of the same order, the newest last; empty if this one is resolved."""
    mine = select(quarantine.c.payment_key).where(quarantine.c.id == row_id).scalar_subquery()
    is_of_order = or_(quarantine.c.id == row_id, quarantine.c.payment_key == mine)
    query = select(*quarantine.c[*Kept.__slots__]).where(literal_column(UNRESOLVED), is_of_order)
    found = connection.execute(query.order_by(quarantine.c.last_seen_utc, quarantine.c.id)).mappings()
    kept = [Kept(**row) for row in found]
    return kept if any(one.id == row_id for one in kept) else []


def resolve(connection: Connection, keys: Sequence[str], now: datetime, *, until: datetime | None = None) -> None:
    """Resolve the documents, of all accounts, of orders that were stored. `until`: only those last seen by then."""
    if keys:
        kept = update(quarantine).where(quarantine.c.payment_key.in_(keys), literal_column(UNRESOLVED))
        if until is not None:
            kept = kept.where(quarantine.c.last_seen_utc <= until)
        connection.execute(kept.values(resolved_utc=now))


def blank_old(connection: Connection, before: datetime, now: datetime) -> int:
    """Blank and resolve the documents last seen before that time. Returns how many."""
    return _blank(connection, quarantine.c.last_seen_utc < before, now)


def blank(connection: Connection, ids: Sequence[int], now: datetime) -> int:
    """Blank and resolve these documents. Returns how many."""
    return _blank(connection, quarantine.c.id.in_(ids), now)


def _blank(connection: Connection, chosen: ColumnElement[bool], now: datetime) -> int:
    closed = func.coalesce(quarantine.c.resolved_utc, literal(now, quarantine.c.resolved_utc.type))
    blanked = update(quarantine).where(chosen, quarantine.c.payload != "").values(payload="", resolved_utc=closed)
    return connection.execute(blanked).rowcount


def counted(connection: Connection) -> tuple[Pile, Pile, list[tuple[str, datetime]]]:
    """Counts of documents that are not orders, counts of refused orders, and (key, since) of known orders.

    A known order is in the tables, but a change of it was refused.
    """
    rows = connection.execute(_QUARANTINED).all()
    piles = {is_order: (count, since) for known, is_order, count, since in rows if known is None}
    refused = sorted((since, known) for known, _, _, since in rows if known is not None)
    none: Pile = (0, None)
    return piles.get(0, none), piles.get(1, none), [(known, since) for since, known in refused[:REFUSED_LIMIT]]
