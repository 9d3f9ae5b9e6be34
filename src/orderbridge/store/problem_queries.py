"""Queries for rules.health. They run every few seconds, so each uses an index.

The statements are built once, because building one costs more than running it.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Integer,
    Select,
    Table,
    bindparam,
    exists,
    func,
    literal_column,
    null,
    or_,
    select,
)

from orderbridge.actions import ANSWERS, AWAITED, CANCELLING
from orderbridge.model import CONTENTS_OUTDATED, RECEIVED, REPLAYED, UNFINISHED, ActionState, EndedBy
from orderbridge.store.rows import batches
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

COUNT_LIMIT = 1000  # rows of one kind are counted up to this
ROW_LIMIT = 50  # rows of a kind in which each is a problem
REMEMBERED = timedelta(days=1)  # older orders are no problem any more

Conditions = tuple[ColumnElement[bool], ...]
# The parameters: "lately", "ahead", the times of QUERIES, and "by_board", which is 1 where the board is the till.
Times = Mapping[str, datetime | int]

_ONE: ColumnElement[int] = literal_column("1")


def _is_before(column: Column[Any], since: str) -> ColumnElement[bool]:
    """Whether a time is before `since`. One `ahead` of now counts, too: after a clock change its age is unknown."""
    return or_(column < bindparam(since), column > bindparam("ahead"))


_lately = orders.c.changed_utc >= bindparam("lately")
_POLLING = select(
    *accounts.c["fingerprint", "state", "last_poll_utc", "last_poll_ok_utc", "last_error", "next_poll_utc"],
    *accounts.c["not_stored", "not_written", "polled_in_turn_with"],
)
# A scheduled order may have been received days ago.
_is_received: Conditions = (
    literal_column(OPEN),
    or_(_lately, orders.c.start_utc >= bindparam("lately")),
    orders.c.status_id == RECEIVED,
)
_RECEIVED = (
    select(*orders.c["payment_key", "received_utc", "pos_revision", "scheduled_for", "start_utc", "account"])
    .where(*_is_received)
    .order_by(orders.c.changed_utc)
    .limit(COUNT_LIMIT)
)
# Other than for `needs_answer_since` (model.ANSWERED), an accept counts with any end: a failed one has an alarm of its
# own, and if one is done while its order is still RECEIVED, it changed nothing. A cancel counts while it is unfinished,
# but not for long: an unknown outcome can last for hours, and the customer waits.
_ANSWERS = (
    select(*actions.c["payment_key", "action", "state", "finished_utc", "created_utc", "valid_minutes", "expires_utc"])
    .where(
        actions.c.payment_key.in_(bindparam("keys", expanding=True)),
        actions.c.action.in_(sorted(ANSWERS)),
        or_(actions.c.action.in_(sorted(AWAITED)), actions.c.state.in_(sorted(UNFINISHED))),
    )
    .order_by(actions.c.id)
)
_new: Conditions = (literal_column(NEW), _is_before(orders.c.received_utc, "new_since"))
# All are counted without a limit: old ones of one account would otherwise hide those of another.
_NOT_TAKEN_OVER = (
    select(orders.c.account, func.min(orders.c.received_utc), orders.c.account, func.count())
    .where(
        *_new,
        # Where the board is the till, orders in RECEIVED are reported as `unanswered` instead.
        or_(bindparam("by_board", type_=Integer) == 0, orders.c.status_id.is_(None), orders.c.status_id != RECEIVED),
    )
    .group_by(orders.c.account)
)
# Without orders from the journal or quarantine, which were acknowledged before they were stored.
_is_unacknowledged: Conditions = (
    literal_column(OPEN),
    _lately,
    orders.c.acknowledged_utc.is_(None),
    _is_before(orders.c.received_utc, "unacknowledged_since"),
    ~exists().where(events.c.payment_key == orders.c.payment_key, events.c.event == REPLAYED),
)
_unacknowledged = (
    select(orders.c.account, orders.c.received_utc)
    .where(*_is_unacknowledged)
    .order_by(orders.c.changed_utc)
    .limit(COUNT_LIMIT)
    .subquery()
)
_by_a_till = exists().where(
    actions.c.payment_key == orders.c.payment_key,
    actions.c.action.in_(sorted(CANCELLING)),
    actions.c.state == ActionState.DONE,  # a waiting cancel has not ended the order
)
_is_unseen: Conditions = (
    changed,
    _lately,
    _is_before(orders.c.changed_utc, "unseen_since"),
    orders.c.ended_by == EndedBy.CANCELLED,
    ~_by_a_till,
)
_is_outdated: Conditions = literal_column(OPEN), _lately, orders.c.problem.contains(CONTENTS_OUTDATED)
_moved = exists().where(
    orders.c.payment_key == actions.c.payment_key,
    or_(orders.c.changed_utc > actions.c.finished_utc, orders.c.ended_utc.is_not(None)),
)
_owner = select(orders.c.account).where(orders.c.payment_key == actions.c.payment_key).scalar_subquery()
_is_unknown: Conditions = (
    literal_column(FAILED),
    actions.c.finished_utc >= bindparam("lately"),
    actions.c.error_code == "outcome_unknown",
    actions.c.action.not_in(sorted(AWAITED)),  # these are reported as `accept_failed`
    ~_moved,
)
_UNKNOWN = (
    select(
        actions.c.id,
        actions.c.finished_utc,
        func.coalesce(_owner, actions.c.account),
        _ONE,
        actions.c.payment_key,
        actions.c.restaurant_id,
        actions.c.food_id,
    )
    .where(*_is_unknown)
    .order_by(actions.c.finished_utc)
    .limit(ROW_LIMIT)
)
_is_keyless: Conditions = literal_column(UNRESOLVED), quarantine.c.payment_key.is_(None)
# A document without a key could be any order. While each list has one, a missing order proves nothing.
_UNDECIDED = (
    select(orders.c.account, func.min(attempts.c.finished_utc), orders.c.account, func.count(actions.c.id.distinct()))
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


def _orders_where(account: ColumnElement[Any], *conditions: ColumnElement[bool]) -> Select[*tuple[Any, ...]]:
    query = select(orders.c.payment_key, orders.c.changed_utc, account, _ONE).where(*conditions)
    return query.order_by(orders.c.changed_utc).limit(ROW_LIMIT)


class Query(NamedTuple):
    """`table` and `conditions` find whether there are rows. `rows` selects subject, since, account and count."""

    table: Table
    conditions: Conditions
    rows: Select[*tuple[Any, ...]]


# By the code of the problem.
QUERIES: Mapping[str, Query] = {
    "not_taken_over": Query(orders, _new, _NOT_TAKEN_OVER),
    "not_acknowledged": Query(
        orders,
        _is_unacknowledged,
        select(
            _unacknowledged.c.account, func.min(_unacknowledged.c.received_utc), _unacknowledged.c.account, func.count()
        ).group_by(_unacknowledged.c.account),
    ),
    "cancellation_unseen": Query(orders, _is_unseen, _orders_where(orders.c.account, *_is_unseen)),
    "contents_outdated": Query(orders, _is_outdated, _orders_where(null(), *_is_outdated)),
    "outcome_unknown": Query(actions, _is_unknown, _UNKNOWN),
    "undecided": Query(quarantine, _is_keyless, _UNDECIDED),
}
_OTHERS: Mapping[str, tuple[Table, Conditions]] = {
    "received": (orders, _is_received),
    "quarantined": (quarantine, (literal_column(UNRESOLVED),)),
}
_ANY = select(
    *(
        exists().select_from(table).where(*conditions).label(kind)
        for kind, (table, conditions) in {**_OTHERS, **{kind: one[:2] for kind, one in QUERIES.items()}}.items()
    )
)


def kinds(connection: Connection, times: Times) -> set[str]:
    """The kinds of QUERIES, `received` and `quarantined` that have rows, in one query instead of eight."""
    return {kind for kind, found in connection.execute(_ANY, times).mappings().one().items() if found}


def rows(connection: Connection, kind: str, times: Times) -> list[tuple[str, datetime | None, str | None, int]]:
    """The rows of one of QUERIES: subject, since, account, count.

    A row that ended `outcome_unknown` is left out if something newer is known: a change of its order, or another row
    for the same order, food or restaurant that is done or waits.
    """
    found = connection.execute(QUERIES[kind].rows, times).all()
    if kind == "outcome_unknown":
        newest = _newest(connection, found)
        found = [row for row in found if newest.get(_subject(row), 0) <= row.id]
    return [(str(row[0]), row[1], row[2], row[3]) for row in found]


def polling(connection: Connection, fingerprints: Collection[str]) -> dict[str, Sequence[Any]]:
    """The poll states of these accounts by fingerprint.

    Each is a sequence of state, last_poll_utc, last_poll_ok_utc, last_error, next_poll_utc, not_stored, not_written and
    polled_in_turn_with. With thousands of accounts, named values would cost more than the query.
    """
    # All accounts are read: there are few others, and a list of thousands of fingerprints would be slower.
    return {row[0]: row[1:] for row in connection.execute(_POLLING) if row[0] in fingerprints}


def received(connection: Connection, times: Times) -> Sequence[Any]:
    """Open orders in RECEIVED, of the last day or scheduled, with the columns that jobs.open_problems needs."""
    return connection.execute(_RECEIVED, times).all()


def newest_answers(
    connection: Connection, keys: Sequence[str], border: datetime
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Two mappings by order: the newest answer, and the older unfinished cancels.

    The newest answer is the newest accept, or a newer unfinished cancel that was written since `border`. Each has
    state, finished_utc, created_utc, valid_minutes and expires_utc.
    """
    found: dict[str, Any] = {}
    old: dict[str, Any] = {}
    for batch in batches(keys):
        for row in connection.execute(_ANSWERS, {"keys": batch}):
            counts = row.action in AWAITED or row.created_utc >= border
            (found if counts else old)[row.payment_key] = row
    return found, old


def _subject(row: Any) -> tuple[str | None, str | int | None]:
    """The order, the food with its restaurant, or the restaurant of a row."""
    return (row.payment_key, None) if row.payment_key else (row.restaurant_id, row.food_id)


def _newest(connection: Connection, rows: Sequence[Any]) -> dict[tuple[str | None, str | int | None], int]:
    """For each of these subjects, the newest row that is done or unfinished."""
    if not rows:
        return {}
    query = select(actions.c.id, actions.c.payment_key, actions.c.restaurant_id, actions.c.food_id).where(
        actions.c.id > min(row.id for row in rows), actions.c.state.in_([ActionState.DONE, *sorted(UNFINISHED)])
    )
    later = query.order_by(actions.c.id)
    found = {}
    for column in (actions.c.payment_key, actions.c.restaurant_id, actions.c.food_id):
        values = {row._mapping[column] for row in rows} - {None}  # noqa: SLF001 - SQLAlchemy's own name for it
        if values:
            found.update({_subject(row): row.id for row in connection.execute(later.where(column.in_(values)))})
    return found
