"""What rules.health decides by, each kind by an index: it is asked every few seconds, also in a database of years.

The statements are made once: to make one costs more than to run it.
"""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Table,
    and_,
    bindparam,
    case,
    exists,
    func,
    literal_column,
    or_,
    select,
)

from orderbridge.actions import ANSWERS, AWAITED, CANCELLING
from orderbridge.model import RECEIVED, REPLAYED, UNFINISHED, ActionState, EndedBy
from orderbridge.order_problems import CONTENTS_OUTDATED
from orderbridge.store.among import batches
from orderbridge.store.tables import (
    FAILED,
    NEW,
    OPEN,
    UNRESOLVED,
    accounts,
    actions,
    attempts,
    changed,
    events,
    orders,
    quarantine,
    unfinished,
)

MOST = 1000  # of one kind; what is beyond is not counted
MOST_TOLD = 50  # of what is told one by one
REMEMBERED = timedelta(days=1)  # what an order of yesterday needed is no alarm any more

Pile = tuple[int, datetime | None]
OfAccount = tuple[str, int, datetime | None]
Conditions = tuple[ColumnElement[bool], ...]


_lately = orders.c.changed_utc >= bindparam("lately")
_POLLING = select(
    accounts.c.fingerprint,
    accounts.c.state,
    accounts.c.last_poll_utc,
    accounts.c.last_poll_ok_utc,
    accounts.c.last_error,
    accounts.c.next_poll_utc,
    accounts.c.not_stored,
    accounts.c.not_written,
    accounts.c.polled_in_turn_with,
)
# One that is scheduled may have come days ago.
_is_received: Conditions = (
    literal_column(OPEN),
    or_(_lately, orders.c.start_utc >= bindparam("lately")),
    orders.c.status_id == RECEIVED,
)
_RECEIVED = (
    select(
        orders.c.payment_key,
        orders.c.received_utc,
        orders.c.pos_revision,
        orders.c.scheduled_for,
        orders.c.start_utc,
        orders.c.account,
    )
    .where(*_is_received)
    .order_by(orders.c.changed_utc)
    .limit(MOST)
)
# Not as `needs_answer_since` has it (model.ANSWERED): of what a customer waits for, the end counts however it was, for one
# that failed is an alarm of its own, and one that is done and whose order is RECEIVED all the same has changed nothing. A
# cancel counts while it is unfinished, but not for long: one in doubt may stay so for hours, and the customer waits.
_ANSWERS = (
    select(
        actions.c.payment_key,
        actions.c.action,
        actions.c.state,
        actions.c.finished_utc,
        actions.c.created_utc,
        actions.c.valid_minutes,
        actions.c.expires_utc,
    )
    .where(
        actions.c.payment_key.in_(bindparam("keys", expanding=True)),
        actions.c.action.in_(sorted(ANSWERS)),
        or_(actions.c.action.in_(sorted(AWAITED)), actions.c.state.in_(sorted(UNFINISHED))),
    )
    .order_by(actions.c.id)
)
_new: Conditions = (literal_column(NEW), orders.c.received_utc < bindparam("new_since"))
# All of them are counted: they may wait for years, and those of one branch hide no other's.
_NOT_TAKEN_OVER = (
    select(orders.c.account, func.count(), func.min(orders.c.received_utc)).where(*_new).group_by(orders.c.account)
)
_needs_no_answer = or_(orders.c.status_id.is_(None), orders.c.status_id != RECEIVED)
_NEITHER_TAKEN_OVER_NOR_ASKED = _NOT_TAKEN_OVER.where(_needs_no_answer)
# Of an order out of the journal or quarantine nobody knows: there it was acknowledged before it was stored.
_is_unacknowledged: Conditions = (
    literal_column(OPEN),
    _lately,
    orders.c.acknowledged_utc.is_(None),
    orders.c.received_utc < bindparam("unacknowledged_since"),
    ~exists().where(events.c.payment_key == orders.c.payment_key, events.c.event == REPLAYED),
)
_unacknowledged = (
    select(orders.c.account, orders.c.received_utc)
    .where(*_is_unacknowledged)
    .order_by(orders.c.changed_utc)
    .limit(MOST)
    .subquery()
)
_UNACKNOWLEDGED = select(_unacknowledged.c.account, func.count(), func.min(_unacknowledged.c.received_utc)).group_by(
    _unacknowledged.c.account
)
_by_a_till = exists().where(
    actions.c.payment_key == orders.c.payment_key,
    actions.c.action.in_(sorted(CANCELLING)),
    actions.c.state == ActionState.DONE,  # one that still waits has ended no order: somebody else did
)
_is_unseen: Conditions = (
    changed,
    _lately,
    orders.c.changed_utc < bindparam("unseen_since"),
    orders.c.ended_by == EndedBy.CANCELLED,
    ~_by_a_till,
)
_UNSEEN = (
    select(orders.c.payment_key, orders.c.changed_utc, orders.c.account)
    .where(*_is_unseen)
    .order_by(orders.c.changed_utc)
    .limit(MOST_TOLD)
)
_is_outdated: Conditions = literal_column(OPEN), _lately, orders.c.problem.contains(CONTENTS_OUTDATED)
_OUTDATED = (
    select(orders.c.payment_key, orders.c.changed_utc)
    .where(*_is_outdated)
    .order_by(orders.c.changed_utc)
    .limit(MOST_TOLD)
)
_moved = exists().where(
    orders.c.payment_key == actions.c.payment_key,
    or_(orders.c.changed_utc > actions.c.finished_utc, orders.c.ended_utc.is_not(None)),
)
_owner = select(orders.c.account).where(orders.c.payment_key == actions.c.payment_key).scalar_subquery()
_is_unknown: Conditions = (
    literal_column(FAILED),
    actions.c.finished_utc >= bindparam("lately"),
    actions.c.error_code == "outcome_unknown",
    actions.c.action.not_in(sorted(AWAITED)),  # which is told by its order
    ~_moved,
)
_UNKNOWN = (
    select(
        actions.c.id,
        actions.c.finished_utc,
        actions.c.payment_key,
        actions.c.restaurant_id,
        actions.c.food_id,
        func.coalesce(_owner, actions.c.account).label("account"),
    )
    .where(*_is_unknown)
    .order_by(actions.c.finished_utc)
    .limit(MOST_TOLD)
)
# News of an order that is in the tables already; else a whole order that no till sees, or a document that is no order.
_is_order = quarantine.c.reason == "database_refused"
_known = and_(
    _is_order,
    exists().where(orders.c.payment_key == quarantine.c.payment_key).correlate(quarantine),
)
_kept = (
    select(
        case((_known, quarantine.c.payment_key)).label("known"),
        case((_is_order, 1), else_=0).label("is_order"),
        quarantine.c.first_seen_utc.label("since"),
    )
    .where(literal_column(UNRESOLVED))
    .order_by(quarantine.c.first_seen_utc)
    .limit(MOST)
    .subquery()
)
_QUARANTINED = select(_kept.c.known, _kept.c.is_order, func.count(), func.min(_kept.c.since)).group_by(
    _kept.c.known, _kept.c.is_order
)


_is_keyless: Conditions = literal_column(UNRESOLVED), quarantine.c.payment_key.is_(None)
# A document without a key could be any order, so what a list lacks is no evidence as long as it comes with each list.
_UNDECIDED = (
    select(orders.c.account, func.count(actions.c.id.distinct()), func.min(attempts.c.finished_utc))
    .join_from(actions, orders, orders.c.payment_key == actions.c.payment_key)
    .join(attempts, attempts.c.action_id == actions.c.id)
    .where(
        unfinished,
        actions.c.state == ActionState.SENDING,
        attempts.c.finished_utc < bindparam("undecided_since"),
        exists().where(
            *_is_keyless,
            quarantine.c.account == orders.c.account,
            quarantine.c.last_seen_utc >= bindparam("undecided_since"),
        ),
    )
    .group_by(orders.c.account)
)


def _any(kind: str, table: Table, *conditions: ColumnElement[bool]) -> ColumnElement[bool]:
    return exists().select_from(table).where(*conditions).label(kind)


_THERE = select(
    _any("received", orders, *_is_received),
    _any("new", orders, *_new),
    _any("unacknowledged", orders, *_is_unacknowledged),
    _any("unseen", orders, *_is_unseen),
    _any("outdated", orders, *_is_outdated),
    _any("unknown", actions, *_is_unknown),
    _any("quarantined", quarantine, literal_column(UNRESOLVED)),
    _any("keyless", quarantine, *_is_keyless),
)


def there(
    connection: Connection, now: datetime, *, new: datetime, unacknowledged: datetime, unseen: datetime
) -> Row[*tuple[int, ...]]:
    """Which of the kinds below there are at all, each 0 or 1 under its name; the times are their borders.

    All of them are asked every few seconds, and in a quiet hour there are none: one question instead of seven.
    """
    since = {"new_since": new, "unacknowledged_since": unacknowledged, "unseen_since": unseen}
    return connection.execute(_THERE, {"lately": now - REMEMBERED, **since}).one()


def polling(connection: Connection, fingerprints: Collection[str]) -> dict[str, Sequence[Any]]:
    """How these accounts stand, by fingerprint.

    Each as state, last_poll_utc, last_poll_ok_utc, last_error, next_poll_utc, not_stored, not_written and
    polled_in_turn_with, in this order: with thousands of accounts names would cost more than the reading.
    """
    # All of them are read: there are few others, and no database takes a list of thousands of fingerprints well.
    return {row[0]: row[1:] for row in connection.execute(_POLLING) if row[0] in fingerprints}


def received(connection: Connection, now: datetime) -> Sequence[Any]:
    """Open orders that are RECEIVED, of the last day or scheduled: payment_key, received_utc, pos_revision, scheduled_for, start_utc, account."""
    return connection.execute(_RECEIVED, {"lately": now - REMEMBERED}).all()


def newest_answers(
    connection: Connection, keys: Sequence[str], border: datetime
) -> tuple[dict[str, Any], dict[str, Any]]:
    """By order: its newest accept, or a newer cancel that is unfinished and was written since `border`.

    Each as state, finished_utc, and by what its time is over: created_utc, valid_minutes, expires_utc. Then by order the
    unfinished cancels that were written before.
    """
    found: dict[str, Any] = {}
    old: dict[str, Any] = {}
    for batch in batches(keys):
        for row in connection.execute(_ANSWERS, {"keys": batch}):
            counts = row.action in AWAITED or row.created_utc >= border
            (found if counts else old)[row.payment_key] = row
    return found, old


def not_taken_over(connection: Connection, border: datetime, *, answered: bool = False) -> list[OfAccount]:
    """Open orders that no till has taken over, received before `border`: account, count, oldest.

    `answered`: those that need no answer alone.
    """
    rows = connection.execute(_NEITHER_TAKEN_OVER_NOR_ASKED if answered else _NOT_TAKEN_OVER, {"new_since": border})
    return [(row[0], row[1], row[2]) for row in rows]


def unacknowledged(connection: Connection, border: datetime, now: datetime) -> list[OfAccount]:
    """Open orders of the last day, received before `border`, that the service still delivers: account, count, oldest."""
    rows = connection.execute(_UNACKNOWLEDGED, {"lately": now - REMEMBERED, "unacknowledged_since": border})
    return [(row[0], row[1], row[2]) for row in rows]


def unseen_cancellations(connection: Connection, border: datetime, now: datetime) -> list[tuple[str, datetime, str]]:
    """Orders that were cancelled before `border`, not by a till, and of which no till has read it: key, since, account."""
    rows = connection.execute(_UNSEEN, {"lately": now - REMEMBERED, "unseen_since": border})
    return [(row.payment_key, row.changed_utc, row.account) for row in rows]


def outdated(connection: Connection, now: datetime) -> list[tuple[str, datetime]]:
    """Open orders of the last day whose newer contents the database refuses: key, since."""
    rows = connection.execute(_OUTDATED, {"lately": now - REMEMBERED})
    return [(row.payment_key, row.changed_utc) for row in rows]


def unknown_outcomes(connection: Connection, now: datetime) -> list[tuple[int, datetime, str | None]]:
    """Rows of the last day that ended `outcome_unknown`, and nothing newer is known: id, since, account.

    Newer is a change of the order, or another row for the same order, food or restaurant that is done or waits. An accept
    is told by its order.
    """
    rows = connection.execute(_UNKNOWN, {"lately": now - REMEMBERED}).all()
    newest = _newest(connection, rows)
    return [(row.id, row.finished_utc, row.account) for row in rows if newest.get(_subject(row), 0) <= row.id]


def _subject(row: Any) -> tuple[str | None, str | int | None]:
    """The order, or the food of a restaurant's menu, or the restaurant."""
    return (row.payment_key, None) if row.payment_key else (row.restaurant_id, row.food_id)


def _newest(connection: Connection, rows: Sequence[Any]) -> dict[tuple[str | None, str | int | None], int]:
    """The newest row for each of these subjects that is done or may yet be."""
    if not rows:
        return {}
    later = select(actions.c.id, actions.c.payment_key, actions.c.restaurant_id, actions.c.food_id).where(
        actions.c.id > min(row.id for row in rows),
        actions.c.state.in_([ActionState.DONE, *sorted(UNFINISHED)]),
    )
    found = {}
    for column in (actions.c.payment_key, actions.c.restaurant_id, actions.c.food_id):
        values = {row._mapping[column] for row in rows} - {None}  # noqa: SLF001 - SQLAlchemy's own name for it
        if values:
            found.update({_subject(row): row.id for row in _in_order(connection, later.where(column.in_(values)))})
    return found


def _in_order(connection: Connection, query: Any) -> Iterable[Any]:
    return connection.execute(query.order_by(actions.c.id))


def quarantined(connection: Connection) -> tuple[Pile, Pile, list[tuple[str, datetime]]]:
    """Documents that are no orders; whole orders that the database refuses; known orders of which it takes no news: key, since."""
    rows = connection.execute(_QUARANTINED).all()
    piles = {is_order: (count, since) for known, is_order, count, since in rows if known is None}
    refused = sorted((since, known) for known, _, _, since in rows if known is not None)
    return piles.get(0, (0, None)), piles.get(1, (0, None)), [(known, since) for since, known in refused[:MOST_TOLD]]


def undecided(connection: Connection, border: datetime) -> list[OfAccount]:
    """Actions of orders that are in doubt since before `border`, where a document without a key came since: account, count, oldest."""
    rows = connection.execute(_UNDECIDED, {"undecided_since": border})
    return [(row[0], row[1], row[2]) for row in rows]
