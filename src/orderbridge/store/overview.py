"""Queries of the commands and the board: finding orders, their history, and counts.

Each uses an index, because the database may hold years of orders.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, func, literal_column, or_, select, update

from orderbridge.model import AUTO_MARK, BOARD_MARK
from orderbridge.store.rows import batches
from orderbridge.store.tables import (
    ENDED,
    FAILED,
    OPEN,
    UNRESOLVED,
    actions,
    attempts,
    events,
    items,
    options,
    orders,
    quarantine,
    unfinished,
)

NEWEST = 200  # the number of rows and orders that `pos_seen` reads
FAILED_WITHIN = timedelta(days=1)
OURS = "command line"
SET_BACK = timedelta(days=7)  # the largest expected change of the clock during an order's life
SOLD = """account restaurant_id restaurant_name order_number pos_reference status payment_code amount_due total discount
    order_tip pos_revision pos_total received_utc""".split()
_NO_TILL = (AUTO_MARK, BOARD_MARK)  # request_ids that are not from a till
MOST_FOUND = 50
MAX_TROUBLED = 10  # of each kind
_LARGEST_NUMBER, _MOST_DIGITS = 2**63 - 1, 19
SHOWN = ("payment_key", "order_number", "pos_reference", "account", "status", "restaurant_name", "received_utc")


def find(connection: Connection, wanted: str) -> list[dict[str, Any]]:
    """The orders that match a text, the newest first.

    It may be a payment_key, order_number or pos_reference or, if none matches, the beginning of a payment_key.
    """
    begins = orders.c.payment_key.startswith(wanted.lower(), autoescape=True)
    return exactly(connection, wanted) or _found(connection, begins)


def exactly(connection: Connection, wanted: str) -> list[dict[str, Any]]:
    """The orders with this payment_key, order_number or pos_reference, the newest first."""
    meant = [orders.c.payment_key == wanted.lower(), orders.c.pos_reference == wanted]
    if wanted.isascii() and wanted.isdigit() and len(wanted) <= _MOST_DIGITS and int(wanted) <= _LARGEST_NUMBER:
        meant.append(orders.c.order_number == int(wanted))
    return _found(connection, or_(*meant))


def _found(connection: Connection, condition: ColumnElement[bool]) -> list[dict[str, Any]]:
    query = select(*orders.c[SHOWN]).where(condition)
    newest = query.order_by(orders.c.received_utc.desc(), orders.c.payment_key).limit(MOST_FOUND)
    return [dict(row) for row in connection.execute(newest).mappings()]


def full_order(connection: Connection, payment_key: str) -> dict[str, Any]:
    """The order with its items, options, events, actions and attempts."""
    row = connection.execute(select(orders).where(orders.c.payment_key == payment_key)).mappings().one()
    parts: dict[str, Any] = {"order": {name: value for name, value in row.items() if name != "payload_hash"}}
    for name, table in (("items", items), ("options", options), ("events", events), ("actions", actions)):
        query = select(table).where(table.c.payment_key == payment_key).order_by(*table.primary_key)
        parts[name] = [dict(row) for row in connection.execute(query).mappings()]
    ours = select(actions.c.id).where(actions.c.payment_key == payment_key)
    query = select(attempts).where(attempts.c.action_id.in_(ours)).order_by(*attempts.primary_key)
    parts["attempts"] = [dict(row) for row in connection.execute(query).mappings()]
    return parts


def with_lines(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The orders with their `items`, and these with their `options`."""
    keys = [row["payment_key"] for row in rows]
    lines: dict[str, list[dict[str, Any]]] = {key: [] for key in keys}
    chosen: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for some in batches(keys):
        for table, place in ((options, chosen), (items, lines)):
            query = select(table).where(table.c.payment_key.in_(some)).order_by(*table.primary_key)
            for found in connection.execute(query).mappings():
                line = dict(found)
                key = line.pop("payment_key")
                if place is chosen:
                    chosen.setdefault((key, line.pop("line_no")), []).append(line)
                else:
                    lines[key].append({**line, "options": chosen.get((key, line["line_no"]), [])})
    return [{**row, "items": lines[row["payment_key"]]} for row in rows]


def take_over(connection: Connection, payment_key: str, revision: int | None, reference: str) -> dict[str, Any] | None:
    """Take an order over as a POS does, with this or the newest revision.

    None if another till has taken it over, or if it ended before.
    """
    mine = or_(and_(orders.c.pos_revision == 0, orders.c.ended_utc.is_(None)), orders.c.pos_reference == reference)
    read = orders.c.revision if revision is None else revision
    known = and_(orders.c.payment_key == payment_key, orders.c.pos_revision < read, orders.c.revision >= read)
    noted = update(orders).where(known, mine).values(pos_revision=read, pos_reference=reference)
    if not connection.execute(noted).rowcount:
        return None
    row = connection.execute(select(orders).where(orders.c.payment_key == payment_key)).mappings().one()
    hidden = ("payload", "payload_hash")
    return with_lines(connection, [{name: value for name, value in row.items() if name not in hidden}])[0]


def troubled(connection: Connection) -> list[str]:
    """The payment_keys of open orders with a problem, and of the last failed rows."""
    problem = select(orders.c.payment_key).where(literal_column(OPEN), orders.c.problem.is_not(None))
    failed = select(actions.c.payment_key).where(literal_column(FAILED), actions.c.payment_key.is_not(None))
    queries = (problem.order_by(orders.c.changed_utc.desc()), failed.order_by(actions.c.finished_utc.desc()))
    keys = [key for query in queries for key in connection.execute(query.limit(MAX_TROUBLED)).scalars()]
    there = set(connection.execute(select(orders.c.payment_key).where(orders.c.payment_key.in_(keys))).scalars())
    return [key for key in dict.fromkeys(keys) if key in there]


def open_orders(connection: Connection) -> list[dict[str, Any]]:
    """Open orders by account and status: their count and the oldest reception."""
    oldest = func.min(orders.c.received_utc).label("oldest")
    query = select(orders.c.account, orders.c.status, func.count().label("count"), oldest)
    grouped = query.where(literal_column(OPEN)).group_by(orders.c.account, orders.c.status)
    return [dict(row) for row in connection.execute(grouped.order_by(orders.c.account)).mappings()]


def outbox(connection: Connection, now: datetime) -> dict[str, Any]:
    """Unfinished rows by state, the oldest one's time, and the number of failures within a day."""
    query = select(actions.c.state, func.count(), func.min(actions.c.created_utc)).where(unfinished)
    rows = connection.execute(query.group_by(actions.c.state)).all()
    lately = select(func.count()).where(literal_column(FAILED), actions.c.finished_utc >= now - FAILED_WITHIN)
    return {
        "waiting": sum(count for _, count, _ in rows),
        "sending": sum(count for state, count, _ in rows if state == "sending"),
        "oldest_utc": min((oldest for _, _, oldest in rows), default=None),
        "failed_last_day": connection.execute(lately).scalar_one(),
    }


def quarantined(connection: Connection) -> dict[str, int]:
    """Documents in quarantine by account."""
    query = select(quarantine.c.account, func.count()).where(literal_column(UNRESOLVED)).group_by(quarantine.c.account)
    return {row[0]: row[1] for row in connection.execute(query)}


def pos_seen(connection: Connection) -> datetime | None:
    """The last known time at which a till wrote: that of its newest row, or of the newest revision that it confirmed.

    The tables do not have the time of writing pos_revision. It is later than the time of the revision.
    """
    newest = select(actions.c.created_utc, actions.c.created_by, actions.c.request_id).order_by(actions.c.id.desc())
    rows = connection.execute(newest.limit(NEWEST)).all()
    asked = [row.created_utc for row in rows if row.created_by != OURS and not row.request_id.startswith(_NO_TILL)]
    some = select(orders.c.changed_utc, orders.c.received_utc, orders.c.pos_revision, orders.c.revision)
    opened = some.where(literal_column(OPEN), orders.c.pos_revision > 0).order_by(orders.c.changed_utc.desc())
    ended = some.where(literal_column(ENDED)).order_by(orders.c.received_utc.desc())
    read = [
        row.changed_utc if row.pos_revision == row.revision else row.received_utc
        for query in (opened, ended)
        for row in connection.execute(query.limit(NEWEST))
        if row.pos_revision
    ]
    return max((moment for moment in (*asked, *read) if moment is not None), default=None)


def received(connection: Connection, begin: datetime, end: datetime) -> list[Any]:
    """The columns SOLD of orders received in [begin, end), ended ones first."""
    query = select(*orders.c[*SOLD]).order_by(orders.c.received_utc)
    query = query.where(orders.c.received_utc >= begin, orders.c.received_utc < end)
    not_before = orders.c.ended_utc >= begin - SET_BACK  # for MariaDB's index
    ended, still_open = query.where(literal_column(ENDED), not_before), query.where(literal_column(OPEN))
    return [*connection.execute(ended), *connection.execute(still_open)]
