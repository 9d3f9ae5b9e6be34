"""Reads unfinished outbox rows by indexes, and corrects their times by the server's clock.

Rules of this file:
- Each query repeats the condition of the index, `unfinished` (store.tables), word for word. Without the index each wake
  would read years of rows.
- `claim` returns the rows that it locked, and the ids of rows that another session has locked. The query returns
  neither locked rows nor deleted ones; without the ids, a locked row would be forgotten.
- A server writes created_utc by its own clock, and rows expire by ours. So each reading compares the clocks
  (`ServerClock`) and corrects the times. A difference below CLOCK_TOLERANCE may come from the round trip, and is
  ignored; otherwise a row would seem changed when it is read again.
- A POS may have written invalid values. The id of an unreadable row is returned, and the other rows are read.
- A claim reads all that its decision needs in one statement: the row, its order, and the order's other rows.
- `histories` has finished attempts only. An attempt without an end is in flight, or was when the program stopped:
  jobs.outcome_writer reads those with `unfinished_attempts`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from sys import intern
from typing import Any

from sqlalchemy import Connection, Select, String, bindparam, case, cast, func, literal_column, select

from orderbridge.model import Action, ActionState, Attempt, OutboxRow, Outcome
from orderbridge.store.ddl import utc_now
from orderbridge.store.dialects import of
from orderbridge.store.rows import ROW, in_list, lock, skips_locks
from orderbridge.store.tables import actions, attempts, orders, restaurants, unfinished

FIRST_PAGE = 100  # rows read at each wake; small, because most wakes find nothing new
PAGE = 1000
SMALL_PAGE = 200  # while rows are being sent, because they wait for the reading

# The statements are built once, because building one takes longer than SQLite takes to run it.
_READ = [one.name for one in fields(OutboxRow) if one.name in actions.c]
_LAST_OUTCOME = (
    select(attempts.c.outcome)
    .where(attempts.c.action_id == actions.c.id, attempts.c.finished_utc.is_not(None))
    .order_by(attempts.c.attempt.desc())
    .limit(1)
    .scalar_subquery()
)
_RESTAURANT_AS_SENT = case(
    (
        actions.c.restaurant_id.is_not(None) & actions.c.food_id.is_(None),
        select(func.max(restaurants.c.service_id)).where(restaurants.c.id == actions.c.restaurant_id).scalar_subquery(),
    )
)
_COLUMNS = (
    *actions.c[*_READ],
    actions.c.error_code,
    select(func.count()).where(attempts.c.action_id == actions.c.id).scalar_subquery().label("tried"),
    case((actions.c.state == ActionState.SENDING, _LAST_OUTCOME)).label("last_outcome"),
)
_WANTED = in_list(actions.c.id)
# A row with columns of its order, and the time of the clock that wrote created_utc.
_OWNED = (
    select(
        *_COLUMNS,
        orders.c.account.label("owner"),
        orders.c.service_status_id,
        orders.c.courier_type,
        func.coalesce(orders.c.service_key, _RESTAURANT_AS_SENT).label("service_id"),
        utc_now().label("asked_utc"),
    )
    .join_from(actions, orders, orders.c.payment_key == actions.c.payment_key, isouter=True)
    .where(unfinished)
)
_UNFINISHED = _OWNED.order_by(actions.c.id)
_SENDING = _OWNED.where(actions.c.state == ActionState.SENDING).order_by(actions.c.id)
_NEWEST = _OWNED.order_by(actions.c.id.desc()).limit(FIRST_PAGE)
_NEWEST_PENDING = _NEWEST.where(literal_column("state = 'pending'"))  # every database has an index with this order
_ABOVE = _OWNED.where(actions.c.id > bindparam("above")).order_by(actions.c.id)
_ABOVE_BY_SIZE = {size: _ABOVE.limit(size) for size in (PAGE, SMALL_PAGE)}
_THESE = _OWNED.where(_WANTED)
_WITHDRAWN = _OWNED.where(literal_column("withdraw = 1"))
_SAME_ORDER = actions.alias("same_order")  # in a query of this alias alone, `unfinished` means its state
_OF_ORDER = (
    select(func.aggregate_strings(cast(_SAME_ORDER.c.id, String(20)), ","))
    .where(unfinished, _SAME_ORDER.c.payment_key == actions.c.payment_key)
    .scalar_subquery()
    .label("of_order")
)
_CLAIMED = _THESE.add_columns(_OF_ORDER)
# PostgreSQL can lock the rows of one table of a join. MariaDB would lock the orders, too, and skip rows whose order a
# POS has locked, so there `claim` locks the rows first.
_CLAIMED_AND_HELD = _CLAIMED.with_for_update(of=actions, skip_locked=True, key_share=True)
_THERE = select(actions.c.id).where(unfinished, _WANTED)
_FINISHED_ATTEMPTS = (
    select(*attempts.c["action_id", "outcome", "error_code", "http_status", "spent", "finished_utc"])
    .where(in_list(attempts.c.action_id), attempts.c.finished_utc.is_not(None))
    .order_by(attempts.c.action_id, attempts.c.attempt)
)

CLOCK_TOLERANCE = timedelta(milliseconds=250)


@dataclass(slots=True)
class Found:
    """The rows that were read, and the ids of unreadable ones. Times are by the caller's clock."""

    rows: list[OutboxRow] = field(default_factory=list)
    unreadable: list[int] = field(default_factory=list)
    highest: int | None = None
    of_order: dict[int, set[int]] = field(default_factory=dict)  # of claimed rows: all unfinished rows of their orders

    def __len__(self) -> int:
        return len(self.rows) + len(self.unreadable)


class ServerClock:
    """The difference between the server's clock and ours.

    Small changes are ignored, as they are due to the round trip.
    """

    def __init__(self) -> None:
        self.behind = timedelta()

    def saw(self, asked: datetime | None, now: datetime) -> timedelta:
        """The correction of the server's times. `asked`: the server's time at `now`."""
        if asked is not None and abs(now - asked - self.behind) > CLOCK_TOLERANCE:
            self.behind = now - asked
        return self.behind


def read_unfinished(connection: Connection, *, sending_only: bool = False) -> tuple[list[OutboxRow], list[int]]:
    """All unfinished rows by id, and the ids of unreadable ones."""
    found = _read(connection.execute(_SENDING if sending_only else _UNFINISHED), timedelta())
    return found.rows, found.unreadable


def newest(connection: Connection, clock: ServerClock, now: datetime) -> Found:
    """The FIRST_PAGE unfinished rows with the highest ids. Without partial indexes, only those that are pending."""
    query = _NEWEST if of(connection.dialect.name).partial_indexes else _NEWEST_PENDING
    return _timed(connection, query, {}, clock, now)


def above(connection: Connection, row_id: int, clock: ServerClock, now: datetime, page: int = PAGE) -> Found:
    """A page of unfinished rows above this id, the lowest ids first."""
    return _timed(connection, _ABOVE_BY_SIZE[page], {"above": row_id}, clock, now)


def these(connection: Connection, ids: Sequence[int], clock: ServerClock, now: datetime) -> Found:
    """Those of these rows that are unfinished."""
    return _timed(connection, _THESE, {"wanted": ids}, clock, now)


def withdrawn(connection: Connection, clock: ServerClock, now: datetime) -> Found:
    """The unfinished rows that the POS wants to withdraw."""
    return _timed(connection, _WITHDRAWN, {}, clock, now)


def claim(connection: Connection, ids: Sequence[int], clock: ServerClock, now: datetime) -> tuple[Found, set[int]]:
    """Lock and read these rows. Returns them, and the ids of those that another session locks."""
    query, free = _CLAIMED_AND_HELD, set(ids)
    if not of(connection.dialect.name).arrays:
        query, free = _CLAIMED, lock(connection, ROW, ids)
    rows = connection.execute(query, {"wanted": sorted(free)}).all()
    found = _found(connection, rows, clock, now)
    found.of_order = {row.id: {int(one) for one in row.of_order.split(",")} for row in rows if row.of_order}
    missing = set(ids) - {row.id for row in rows}
    if not missing or not skips_locks(connection):
        return found, set()
    return found, set(connection.execute(_THERE, {"wanted": sorted(missing)}).scalars())


def _timed(
    connection: Connection, query: Select[*tuple[Any, ...]], values: dict[str, Any], clock: ServerClock, now: datetime
) -> Found:
    return _found(connection, connection.execute(query, values).all(), clock, now)


def _found(connection: Connection, rows: Sequence[Any], clock: ServerClock, now: datetime) -> Found:
    asked = rows[0].asked_utc if rows and not of(connection.dialect.name).one_writer else None
    return _read(rows, clock.saw(asked, now))


def _read(rows: Iterable[Any], behind: timedelta) -> Found:
    found = Found()
    for row in rows:
        found.highest = row.id if found.highest is None else max(found.highest, row.id)
        try:
            found.rows.append(_row(row, behind))
        except (ValueError, OverflowError):  # a value that the constraints should have refused
            found.unreadable.append(row.id)
    return found


def _row(row: Any, behind: timedelta) -> OutboxRow:
    values = dict(zip(_READ, row, strict=False))
    created = row.created_utc
    values |= {
        "action": Action(row.action),
        "state": ActionState(row.state),
        "restaurant_id": _shared(row.restaurant_id),
        "account": _shared(row.account),
        "withdraw": bool(row.withdraw),
        "created_utc": created + behind if behind and created is not None else created,
    }
    return OutboxRow(
        **values,
        tried=bool(row.tried),
        owner=_shared(row.owner),
        service_status_id=row.service_status_id,
        courier_type=_shared(row.courier_type),
        service_id=row.service_id,
        last_outcome=None if row.last_outcome is None else Outcome(row.last_outcome),
        waits_for=_shared(row.error_code),
    )


def _shared(text: Any) -> Any:
    """Intern a text, because a hundred thousand rows share few values."""
    return intern(text) if type(text) is str else text  # a POS may have written anything


def histories(connection: Connection, ids: Iterable[int]) -> dict[int, list[Attempt]]:
    """The finished attempts of these rows, in order."""
    wanted = list(ids)
    found: dict[int, list[Attempt]] = {action_id: [] for action_id in wanted}
    if not wanted:
        return found
    for row in connection.execute(_FINISHED_ATTEMPTS, {"wanted": wanted}):
        found[row.action_id].append(
            Attempt(
                Outcome(row.outcome), row.error_code, row.http_status, spent=bool(row.spent), ended_utc=row.finished_utc
            )
        )
    return found


def unfinished_attempts(connection: Connection) -> list[tuple[int, int, datetime]]:
    """(row, attempt, start) of attempts without an end: in flight now, or when the program crashed."""
    waiting = select(actions.c.id).where(unfinished)  # no join: SQLite would begin with all attempts
    rows = connection.execute(
        select(attempts.c.action_id, attempts.c.attempt, attempts.c.started_utc).where(
            attempts.c.action_id.in_(waiting), attempts.c.finished_utc.is_(None)
        )
    )
    return [(row.action_id, row.attempt, row.started_utc) for row in rows]
