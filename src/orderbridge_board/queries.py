"""The board's queries, and its writes: outbox rows, silenced alarms and the orders that it takes over."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from sqlalchemy import (
    Connection,
    Dialect,
    Integer,
    Row,
    and_,
    bindparam,
    delete,
    exists,
    func,
    insert,
    literal_column,
    or_,
    select,
    true,
    update,
)
from sqlalchemy.exc import IntegrityError

from orderbridge.actions import Subject, of_subject
from orderbridge.document import Facts, columns_of
from orderbridge.model import BOARD_MARK, BOARD_REFERENCE, Action, ActionState
from orderbridge.store.ddl import Utc
from orderbridge.store.own_tables import silenced
from orderbridge.store.rows import batches
from orderbridge.store.tables import (
    ENDED,
    OPEN,
    UNFINISHED,
    WITH_CONTENTS,
    accounts,
    actions,
    cancel_reasons,
    changed,
    contents_ended_utc,
    events,
    items,
    options,
    orders,
    restaurants,
)
from orderbridge_board import cards

RECALLED = timedelta(hours=1)  # how long finished orders are listed
STOP_SHOWN = timedelta(hours=12)  # how long a cancellation is shown that is not touched
SILENT = timedelta(hours=24)  # how long an alarm stays silenced; longer than a cancellation is shown
TOGGLED = timedelta(days=7)  # how long a finished switch is shown
NEWEST_ROWS, FEW_ACCEPTS = 60, 5  # newest rows that are read for the usual minutes, and the accepts that they must have
MOST_ROWS = 20_000  # finished rows that are read for switched foods and restaurants

_CUSTOMER = [name for name in columns_of(Facts, personal=True) if name != "note"]  # the kitchen needs the note
_CARD = [column for column in orders.c if column.name not in {*_CUSTOMER, "payload", "payload_hash"}]
# The condition of the index of orders with contents. A cancellation without contents is too old to be shown.
_STOPPED = and_(literal_column(ENDED), literal_column(WITH_CONTENTS), orders.c.ended_by == "cancelled")


# Read several times a second, so all of it is one statement.
_open = select(
    func.count(), func.sum(orders.c.revision), func.sum(orders.c.pos_revision), func.max(orders.c.changed_utc)
).where(literal_column(OPEN))
_waiting = select(
    func.count(),
    func.max(actions.c.id),
    func.sum(actions.c.attempts),
    func.sum(actions.c.withdraw),
    func.sum(literal_column("CASE WHEN state = 'sending' THEN id ELSE 0 END", Integer)),
    func.count(actions.c.error_code),
    func.max(actions.c.next_attempt_utc),
).where(literal_column(UNFINISHED))
_rows = [
    part.subquery()
    for part in (
        _open,
        _waiting,
        select(func.count(), func.max(silenced.c.at_utc)),
        select(func.max(restaurants.c.status_utc), func.count()),
    )
]
_numbers = [
    select(func.max(actions.c.finished_utc)),
    # Shows a row that was inserted and ended between two checks, even if the clock was set back (`id > 0`: an index).
    select(func.max(actions.c.id)).where(literal_column("id > 0")),
    select(func.max(events.c.id)).where(literal_column("id > 0")),  # the same for an order
    select(func.sum(cancel_reasons.c.id)),  # a new daemon reads the reasons in its first seconds
    select(func.max(accounts.c.menu_read_utc)),
    select(func.count()).select_from(orders).where(changed),  # changes when a till has read a cancellation
]
_VERSION = select(
    *(column for row in _rows for column in row.c), *(number.scalar_subquery() for number in _numbers)
).select_from(_rows[0].join(_rows[1], true()).join(_rows[2], true()).join(_rows[3], true()))


def version(connection: Connection) -> tuple[Any, ...]:
    """A value that changes when the board's state changes. It is read by the indexes of open rows."""
    return tuple(connection.exec_driver_sql(_version_for(connection.dialect)).one())


@cache
def _version_for(dialect: Dialect) -> str:
    """The SQL, compiled once, because that takes longer than the query. The result is only compared, without types."""
    return str(_VERSION.compile(dialect=dialect))


def orders_shown(connection: Connection, now: datetime) -> list[dict[str, Any]]:
    """Open orders, and those cancelled lately, the oldest first, without customers' data."""
    stopped = and_(_STOPPED, contents_ended_utc >= bindparam("since", now - STOP_SHOWN, Utc()))
    found = [
        dict(row)
        for condition in (literal_column(OPEN), stopped)
        for row in connection.execute(select(*_CARD).where(condition)).mappings()
    ]
    return sorted(found, key=lambda row: (row["received_utc"], row["ordered_at"] or "", row["payment_key"]))


def orders_finished(connection: Connection, keys: Sequence[str], now: datetime) -> list[dict[str, Any]]:
    """Orders that ended lately, and open orders with these keys, without customers' data."""
    lately = contents_ended_utc >= bindparam("since", now - RECALLED, Utc())
    ended = and_(literal_column(ENDED), literal_column(WITH_CONTENTS), lately)
    conditions = [ended, *(and_(orders.c.payment_key.in_(some), literal_column(OPEN)) for some in batches(keys))]
    return [dict(row) for one in conditions for row in connection.execute(select(*_CARD).where(one)).mappings()]


def numbers_of(connection: Connection, keys: Sequence[str]) -> dict[str, str | None]:
    """The order numbers by payment_key."""
    query = select(orders.c.payment_key, orders.c.order_number)
    found = (connection.execute(query.where(orders.c.payment_key.in_(some))) for some in batches(keys))
    return {row.payment_key: row.order_number for rows in found for row in rows}


Line = tuple[Row[Any], list[Row[Any]]]  # an item and its options


def lines(connection: Connection, keys: Sequence[str]) -> dict[str, list[Line]]:
    """The items and options of each order."""
    found: dict[str, dict[int, Line]] = {}
    for some in batches(keys):
        for row in connection.execute(select(items).where(items.c.payment_key.in_(some)).order_by(items.c.line_no)):
            found.setdefault(row.payment_key, {})[row.line_no] = row, []
        chosen = select(options).where(options.c.payment_key.in_(some))
        for row in connection.execute(chosen.order_by(options.c.option_no)):
            if (line := found.get(row.payment_key, {}).get(row.line_no)) is not None:
                line[1].append(row)
    return {key: list(of_order.values()) for key, of_order in found.items()}


def rows_of(connection: Connection, keys: Sequence[str]) -> dict[str, list[Any]]:
    """The outbox rows of each order, the lowest ids first."""
    found: dict[str, list[Any]] = {}
    for some in batches(keys):
        chosen = select(actions).where(actions.c.payment_key.in_(some)).order_by(actions.c.id)
        for row in connection.execute(chosen):
            found.setdefault(row.payment_key, []).append(row)
    return found


# A removed card stays removed while its order is open, even for days.
_KEPT = cards.silence_of("handed", "")
_is_put_away = and_(
    silenced.c.subject.like(f"{_KEPT}%"),
    exists().where(literal_column(OPEN), orders.c.payment_key == func.substr(silenced.c.subject, len(_KEPT) + 1)),
)


def silenced_at(connection: Connection, now: datetime) -> dict[str, datetime]:
    """The subjects that are silenced, and since when."""
    query = select(silenced.c.subject, silenced.c.at_utc).where(or_(silenced.c.at_utc >= now - SILENT, _is_put_away))
    return {row.subject: row.at_utc for row in connection.execute(query)}


def unsilence(connection: Connection, subject: str) -> None:
    """Undo the silencing of a subject."""
    connection.execute(delete(silenced).where(silenced.c.subject == subject))


def silence(connection: Connection, subjects: Iterable[str], device: str, now: datetime) -> None:
    """Silence these subjects on every device."""
    for subject in sorted(set(subjects)):  # sorted, because two tablets could otherwise deadlock
        again = update(silenced).where(silenced.c.subject == subject).values(device=device, at_utc=now)
        for last in (False, False, True):
            if connection.execute(again).rowcount:
                break
            try:
                with connection.begin_nested():
                    connection.execute(insert(silenced).values(subject=subject, device=device, at_utc=now))
                break
            except IntegrityError:  # another device was faster, and may have undone it since; or a trigger refuses it
                if last:
                    raise


def forget_silenced(connection: Connection, now: datetime) -> int:
    """Delete the silenced subjects whose time is over. Returns how many."""
    return connection.execute(delete(silenced).where(silenced.c.at_utc < now - SILENT, ~_is_put_away)).rowcount


def has_forgettable(connection: Connection, now: datetime) -> bool:
    """Whether `forget_silenced` would delete any."""
    old = select(silenced.c.subject).where(silenced.c.at_utc < now - SILENT, ~_is_put_away).limit(1)
    return connection.execute(old).first() is not None


def take_over(connection: Connection, key: str, revision: int) -> bool:
    """Take over this revision of the order, with the board as the POS. False if there is no such revision."""
    mine = update(orders).where(orders.c.payment_key == key, orders.c.revision >= revision)
    newer = mine.where(orders.c.pos_revision < revision)
    reference = func.coalesce(orders.c.pos_reference, BOARD_REFERENCE)
    if connection.execute(newer.values(pos_revision=revision, pos_reference=reference)).rowcount:
        return True
    known = select(orders.c.payment_key).where(orders.c.payment_key == key, orders.c.revision >= revision)
    return connection.execute(known).first() is not None


def ask(connection: Connection, request_id: str, until: datetime | None, **values: Any) -> Row[Any] | None:
    """The outbox row with this request_id, which is inserted if it is missing. Raises DBAPIError for invalid values.

    `until`: the row is not sent before. None if another program's trigger skipped the row.
    """
    chosen = select(actions).where(actions.c.request_id == request_id)
    if (there := connection.execute(chosen).first()) is not None:
        return there
    try:
        with connection.begin_nested():
            connection.execute(insert(actions).values(request_id=request_id, **values))
            if until is not None:  # a separate statement, because triggers refuse an INSERT with the daemon's columns
                held = update(actions).where(actions.c.request_id == request_id)
                connection.execute(held.values(next_attempt_utc=until))
    except IntegrityError:  # another device was faster, or the row is invalid
        if (there := connection.execute(chosen).first()) is None:
            raise
        return there
    return connection.execute(chosen).first()


def withdraw(connection: Connection, row_id: int) -> bool:
    """Withdraw a row of the board. False if the row is not the board's, was sent or has ended."""
    ours = actions.c.request_id.startswith(BOARD_MARK)
    waits = (actions.c.state == ActionState.PENDING, actions.c.attempts == 0)  # cards.may_be_taken_back
    mine = update(actions).where(actions.c.id == row_id, *waits, ours)
    return bool(connection.execute(mine.values(withdraw=1)).rowcount)


def usual_minutes(connection: Connection) -> int | None:
    """The most frequent preparing time of the newest accepts; None if there are too few."""
    last = select(func.max(actions.c.id)).where(literal_column("id > 0")).scalar_subquery()
    # Limited twice, so that each server uses the index: MariaDB because of the ids, PostgreSQL because of the LIMIT.
    rows = select(actions.c.action, actions.c.preparing_time).where(actions.c.id > last - NEWEST_ROWS)
    newest = connection.execute(rows.order_by(actions.c.id.desc()).limit(NEWEST_ROWS))
    chosen = [row.preparing_time for row in newest if row.action == Action.ACCEPT]
    return Counter(chosen).most_common(1)[0][0] if len(chosen) >= FEW_ACCEPTS else None


def reasons(connection: Connection) -> list[dict[str, Any]]:
    """The marketplace's reasons for a cancellation."""
    return [dict(row) for row in connection.execute(select(cancel_reasons).order_by(cancel_reasons.c.id)).mappings()]


def customer(connection: Connection, key: str) -> dict[str, Any] | None:
    """The customer and address of an open order; None if there is no such order, or it has ended."""
    shown = (orders.c[name] for name in _CUSTOMER)
    query = select(*shown).where(orders.c.payment_key == key, literal_column(OPEN))
    row = connection.execute(query).mappings().first()
    return None if row is None else dict(row)


def shops(connection: Connection) -> list[dict[str, Any]]:
    """All restaurants with their states."""
    query = select(restaurants).order_by(restaurants.c.account, restaurants.c.name)
    return [dict(row) for row in connection.execute(query).mappings()]


def is_closed(connection: Connection) -> bool:
    """Whether no order is open, and all restaurants are known to be closed."""
    if connection.execute(select(orders.c.payment_key).where(literal_column(OPEN)).limit(1)).first() is not None:
        return False
    states = set(connection.execute(select(restaurants.c.status)).scalars())
    return states == {"Closed"}


def newest_toggles(connection: Connection, now: datetime) -> dict[Subject, list[Any]]:
    """The newest rows of the last days that switch foods and restaurants, the newest last."""
    ended = select(actions).where(actions.c.finished_utc >= now - TOGGLED)
    newest = ended.order_by(actions.c.finished_utc.desc()).limit(MOST_ROWS).subquery()
    wanted = sorted(of_subject(Subject.FOOD) | of_subject(Subject.RESTAURANT))
    waiting = select(actions).where(literal_column(UNFINISHED), actions.c.action.in_(wanted))
    found = [
        *connection.execute(select(newest).where(newest.c.action.in_(wanted))),
        *connection.execute(waiting),
    ]
    found.sort(key=lambda row: row.id)
    return {
        subject: [row for row in found if row.action in of_subject(subject)]
        for subject in (Subject.FOOD, Subject.RESTAURANT)
    }
