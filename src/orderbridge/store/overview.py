"""What `status`, `day` and the board count, each question by an index: the database may hold years of orders."""

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, func, literal_column, select

from orderbridge.model import AUTO_MARK, BOARD_MARK
from orderbridge.store.tables import ENDED, FAILED, OPEN, UNRESOLVED, actions, orders, quarantine, unfinished

NEWEST = 200  # rows and orders in which a till's write is searched
FAILED_WITHIN = timedelta(days=1)
OURS = "command line"
SET_BACK = timedelta(days=7)  # by no more was the clock set back between an order's reception and its end
SOLD = """account restaurant_id restaurant_name order_number pos_reference status payment_code amount_due total discount
    order_tip pos_revision pos_total received_utc""".split()
_NO_TILL = (AUTO_MARK, BOARD_MARK)  # where the board is the till, it reads what comes in, and that shows


def open_orders(connection: Connection) -> list[dict[str, Any]]:
    """Open orders by account and status: how many, and when the oldest of them came in."""
    oldest = func.min(orders.c.received_utc).label("oldest")
    query = select(orders.c.account, orders.c.status, func.count().label("count"), oldest)
    grouped = query.where(literal_column(OPEN)).group_by(orders.c.account, orders.c.status)
    return [dict(row) for row in connection.execute(grouped.order_by(orders.c.account)).mappings()]


def outbox(connection: Connection, now: datetime) -> dict[str, Any]:
    """Rows without a verdict by state, since when the oldest one waits, and how many failed within a day."""
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
    """A time at which, or after which, a till has written: its newest row, or the newest revision that it has read.

    No column says when a till wrote pos_revision; that it has read a revision says that it wrote after that was made.
    """
    newest = select(actions.c.created_utc, actions.c.created_by, actions.c.request_id).order_by(actions.c.id.desc())
    rows = connection.execute(newest.limit(NEWEST)).all()
    asked = [row.created_utc for row in rows if row.created_by != OURS and not row.request_id.startswith(_NO_TILL)]
    some = select(orders.c.changed_utc, orders.c.received_utc, orders.c.pos_revision, orders.c.revision)
    opened = (
        some.where(literal_column(OPEN), orders.c.pos_revision > 0).order_by(orders.c.changed_utc.desc()).limit(NEWEST)
    )
    ended = some.where(literal_column(ENDED)).order_by(orders.c.received_utc.desc()).limit(NEWEST)
    read = [
        row.changed_utc if row.pos_revision == row.revision else row.received_utc
        for query in (opened, ended)
        for row in connection.execute(query)
        if row.pos_revision
    ]
    return max((moment for moment in (*asked, *read) if moment is not None), default=None)


def received(connection: Connection, begin: datetime, end: datetime) -> list[Any]:
    """The columns SOLD of the orders received from `begin` until before `end`; the ended ones first."""
    query = select(*(orders.c[name] for name in SOLD)).order_by(orders.c.received_utc)
    query = query.where(orders.c.received_utc >= begin, orders.c.received_utc < end)
    not_before = orders.c.ended_utc >= begin - SET_BACK  # what MariaDB's index begins with
    ended, still_open = query.where(literal_column(ENDED), not_before), query.where(literal_column(OPEN))
    return [*connection.execute(ended), *connection.execute(still_open)]
