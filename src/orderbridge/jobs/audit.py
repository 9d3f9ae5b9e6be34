"""Checks the promises (README.md, What is promised) with queries for rows that contradict them.

Promise 3 leaves no trace in the tables. Requests from before `actions retry` do not count, as in rules.retry.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    FromClause,
    Select,
    Subquery,
    and_,
    exists,
    func,
    literal,
    not_,
    null,
    or_,
    select,
)

from orderbridge.actions import ACTIONS, Subject, of_subject
from orderbridge.config import Settings
from orderbridge.jobs.outbox_reader import view_of
from orderbridge.model import REPLAYED, ActionState, KnownBy, LastChange, Outcome
from orderbridge.rules.outbox_rows import expiry
from orderbridge.rules.retry import LOOK_WITHIN, MAX_RESENDS, NO_ATTEMPTS, UNCERTAIN
from orderbridge.store.own_tables import daemon
from orderbridge.store.tables import actions, attempts, events, orders, quarantine, unfinished

MAX_SHOWN = 100  # findings of one kind
LONG_TRANSACTION = timedelta(minutes=1)  # an uncommitted row has no place in its lane yet
_DOCUMENTS_KEPT = timedelta(days=30)  # the shortest records_days: a document is kept so long after quarantine
ENDS_WITHIN = timedelta(minutes=5)  # while the daemon runs, a row ends at most this long after its expiry

_BY_TIME = {"acknowledged_beside_action", "beside_another", "after_newer", "shown_and_not_known"}
_JITTER = timedelta(seconds=2)  # accounts that work in parallel write their times in another order
_UNSEEN = timedelta(minutes=10)  # the longest time without a write before or after the clock was set back
_SHOWS_STATUS = {*LastChange, "delivered"} - {LastChange.START}  # events of a poll that shows the order's status


@dataclass(frozen=True, slots=True)
class Finding:
    """A row that contradicts a promise. `code`: its sentence in sentences/audit.toml. `at_utc`: when it happened."""

    promise: int
    code: str
    payment_key: str | None
    action_id: int | None
    at_utc: datetime | None


@dataclass(frozen=True, slots=True)
class Audit:
    """How many orders and outbox rows were checked, and what was found."""

    orders: int
    actions: int
    findings: Sequence[Finding]


def audit(connection: Connection, settings: Settings, since: datetime) -> Audit:
    """Check the orders that were received, and the rows that were inserted, since then.

    At most 100 findings of a kind.
    """
    found = [
        Finding(promise, code, row.payment_key, row.id, row.at_utc)
        for promise, code, query in (*_of_orders(connection, since), *_of_ends(since), *_of_requests(since))
        for row in connection.execute(query.limit(MAX_SHOWN))
    ]
    found += _without_end(connection, settings, since)
    found += (one for subject in Subject for one in _out_of_order(connection, subject, since))
    found += _shown_and_not_known(connection, since, timedelta(seconds=settings.marketplace.cooldown_seconds))
    if any(one.code in _BY_TIME for one in found):  # the spans cost a pass over all events and rows
        doubtful = _counted_twice(connection, since)
        found = [one for one in found if one.code not in _BY_TIME or not _lies_in(one.at_utc, doubtful)]
    received, inserted = orders.c.received_utc >= since, actions.c.created_utc >= since
    return Audit(_count(connection, received), _count(connection, inserted), found)


def _counted_twice(connection: Connection, since: datetime) -> list[tuple[datetime, datetime]]:
    """Spans that the clock passed twice because it was set back. Times within them prove nothing.

    A request that seems to have taken more than ten minutes shows that the clock was set forward, and back later.
    """
    spans = []
    for table, column in ((events, events.c.at_utc), (actions, actions.c.created_utc)):
        before = func.lag(column, type_=column.type).over(order_by=table.c.id).label("before")
        moments = select(column.label("at"), before).where(column >= since).subquery()
        set_back = select(moments.c.at, moments.c.before).where(moments.c.before > moments.c.at)
        spans += [(at, last) for at, last in connection.execute(set_back) if last > at + _JITTER]
    is_measured = attempts.c.error_code.is_distinct_from("stopped_while_sending")  # its end is the next start
    made = select(attempts.c.started_utc, attempts.c.finished_utc).where(attempts.c.finished_utc >= since, is_measured)
    spans += [(begin, end) for begin, end in connection.execute(made) if end - begin > _UNSEEN]
    return [(begin - _UNSEEN, end + _UNSEEN) for begin, end in spans]


def _lies_in(moment: datetime | None, spans: Sequence[tuple[datetime, datetime]]) -> bool:
    return moment is not None and any(begin <= moment <= end for begin, end in spans)


def _count(connection: Connection, condition: ColumnElement[bool]) -> int:
    return connection.execute(select(func.count()).where(condition)).scalar_one()


Check = tuple[int, str, Select[*tuple[Any, ...]]]  # promise, code, rows with payment_key, id and at_utc


def _of_orders(connection: Connection, since: datetime) -> Iterator[Check]:
    no_action = null().label("id")
    acknowledged = events.c.event == "acknowledged", events.c.at_utc >= since
    first = events.alias()
    has_begun = exists().where(first.c.payment_key == events.c.payment_key, first.c.id < events.c.id)
    is_stored = exists().where(orders.c.payment_key == events.c.payment_key)
    is_kept = exists().where(
        quarantine.c.payment_key == events.c.payment_key, quarantine.c.first_seen_utc <= events.c.at_utc
    )
    event = select(events.c.payment_key, no_action, events.c.at_utc)
    yield 1, "acknowledged_before_stored", event.where(*acknowledged, ~has_begun, is_stored, ~is_kept)
    newest = connection.execute(select(func.max(events.c.at_utc))).scalar()
    if newest is not None:
        is_in_quarantine = exists().where(quarantine.c.payment_key == events.c.payment_key)
        recent = events.c.at_utc >= max(since, newest - _DOCUMENTS_KEPT)
        yield 1, "document_lost", event.where(*acknowledged, recent, ~is_stored, ~is_in_quarantine)
    order = select(orders.c.payment_key, no_action, orders.c.acknowledged_utc.label("at_utc"))
    yield (
        1,
        "document_lost",
        order.where(
            orders.c.received_utc >= since,
            orders.c.acknowledged_utc.is_not(None),
            orders.c.payload.is_(None),
            orders.c.payload_hash.is_not(None),  # `erase` empties it, too
        ),
    )
    in_flight = attempts.c.finished_utc > events.c.at_utc
    is_doubtful = attempts.c.outcome.in_(UNCERTAIN)
    is_unresolved = and_(is_doubtful, func.coalesce(actions.c.finished_utc > events.c.at_utc, literal(True)))
    yield (
        2,
        "acknowledged_beside_action",
        select(events.c.payment_key, actions.c.id, events.c.at_utc)
        .join(actions, actions.c.payment_key == events.c.payment_key)
        .join(attempts, attempts.c.action_id == actions.c.id)
        .where(
            *acknowledged,
            attempts.c.spent == 0,
            attempts.c.started_utc < events.c.at_utc,
            or_(in_flight, and_(attempts.c.finished_utc < events.c.at_utc, is_unresolved)),
        ),
    )


def _rows(since: datetime) -> Select[*tuple[Any, ...]]:
    columns = actions.c.payment_key, actions.c.id, actions.c.created_utc.label("at_utc")
    return select(*columns).where(actions.c.created_utc >= since)


def _of_ends(since: datetime) -> Iterator[Check]:
    ended, is_done = not_(unfinished), actions.c.state == ActionState.DONE
    rows = _rows(since)
    yield 4, "end_without_time", rows.where(ended, actions.c.finished_utc.is_(None))
    yield 4, "end_without_reason", rows.where(ended, ~is_done, func.coalesce(actions.c.error_code, "") == "")
    yield 4, "done_without_proof", rows.where(is_done, func.coalesce(actions.c.known_by, "").not_in(list(KnownBy)))
    is_ok = exists().where(
        attempts.c.action_id == actions.c.id, attempts.c.outcome == Outcome.OK, attempts.c.spent == 0
    )
    yield 4, "done_unanswered", rows.where(is_done, actions.c.known_by == KnownBy.ANSWER, ~is_ok)
    yield 4, "done_and_denied", rows.where(ended, ~is_done, is_ok)
    request = select(
        null().label("payment_key"), attempts.c.action_id.label("id"), attempts.c.started_utc.label("at_utc")
    )
    is_gone = ~exists().where(actions.c.id == attempts.c.action_id)
    yield 4, "row_lost", request.where(attempts.c.started_utc >= since, is_gone)


def _of_requests(since: datetime) -> Iterator[Check]:
    later = attempts.alias()
    has_later = exists().where(later.c.action_id == attempts.c.action_id, later.c.attempt > attempts.c.attempt)
    is_definite = attempts.c.outcome.in_((Outcome.OK, Outcome.REFUSED))
    tried = _rows(since).join(attempts, attempts.c.action_id == actions.c.id).where(attempts.c.spent == 0)
    yield 6, "sent_after_answer", tried.where(is_definite, has_later)
    # After its last resend a restaurant's row only reads the status. A crash then leaves an attempt that sent nothing.
    asks_none = actions.c.action.not_in(of_subject(Subject.RESTAURANT))
    is_sent = or_(asks_none, attempts.c.error_code.is_distinct_from("stopped_while_sending"))
    is_counted = and_(func.coalesce(attempts.c.outcome, "").not_in(NO_ATTEMPTS), is_sent)
    many = select(attempts.c.action_id).where(attempts.c.attempt > 1 + MAX_RESENDS)
    by_row = tried.where(is_counted, actions.c.id.in_(many)).group_by(
        actions.c.id, actions.c.payment_key, actions.c.created_utc
    )
    yield 6, "sent_too_often", by_row.having(func.count() > 1 + MAX_RESENDS)


def _without_end(connection: Connection, settings: Settings, since: datetime) -> Iterator[Finding]:
    """Unfinished rows that had expired long before the daemon's last sign of life."""
    seen = connection.execute(select(daemon.c.seen_utc)).scalar()
    view = view_of(settings)
    rows: Iterable[Any] = connection.execute(select(actions).where(unfinished, actions.c.created_utc >= since))
    for row in rows:
        if seen is not None and expiry(row, view) + ENDS_WITHIN < seen:
            yield Finding(4, "no_end", row.payment_key, row.id, row.created_utc)


def _is_same_lane(subject: Subject, one: FromClause, other: FromClause) -> ColumnElement[bool]:
    """A food in several menus counts as several foods."""
    names = () if subject is Subject.ORDER else ("account", "restaurant_id")
    same = (one.c[name].is_not_distinct_from(other.c[name]) for name in names)
    return and_(one.c[subject.column] == other.c[subject.column], *same)


@dataclass(frozen=True, slots=True)
class LaneUse:
    """The time in which a row uses its lane: from its first to its last request that may have had an effect.

    `visible_utc`: from then on each reading of the outbox finds the row; None: unknown.
    """

    begin_utc: datetime
    end_utc: datetime
    visible_utc: datetime | None = None


def lane_violation(older: LaneUse, newer: LaneUse) -> str | None:
    """The code of the finding if these uses of one lane contradict promise 5, else None. `older` has the lower id.

    A row that was sent keeps its lane until it ends, also before an older row that was committed later.
    """
    if older.begin_utc < newer.end_utc and newer.begin_utc < older.end_utc:
        return "beside_another"
    is_passed = older.visible_utc is not None and older.visible_utc < newer.begin_utc < older.begin_utc
    return "after_newer" if is_passed else None


def _lane_uses(since: datetime, prefix: str = "") -> Subquery:
    """The lane uses of rows that were inserted since then. Requests from before a retry do not count."""
    counts = func.coalesce(attempts.c.outcome, "").not_in(NO_ATTEMPTS)
    ends = func.coalesce(attempts.c.finished_utc, attempts.c.started_utc)
    columns = {"begin": func.min(attempts.c.started_utc), "end": func.max(ends)}
    turns = select(attempts.c.action_id, *(column.label(f"{prefix}{name}") for name, column in columns.items()))
    inserted = attempts.c.action_id.in_(select(actions.c.id).where(actions.c.created_utc >= since))
    return turns.where(attempts.c.spent == 0, counts, inserted).group_by(attempts.c.action_id).subquery()


def _out_of_order(connection: Connection, subject: Subject, since: datetime) -> Iterator[Finding]:
    """Rows of a lane whose requests contradict promise 5."""
    older, newer, one, other = actions.alias(), actions.alias(), _lane_uses(since), _lane_uses(since, "newer_")
    query = (
        select(older, newer.c.id.label("newer_id"), one, other)
        .join(newer, and_(_is_same_lane(subject, older, newer), older.c.id < newer.c.id))
        .join(one, one.c.action_id == older.c.id)
        .join(other, other.c.action_id == newer.c.id)
        .where(older.c.action.in_(of_subject(subject)), newer.c.action.in_(of_subject(subject)))
        .where(other.c.newer_begin < one.c.end)
    )
    for row in connection.execute(query):
        visible = row.created_utc + LONG_TRANSACTION if row.expires_utc is None else None  # None: it was retried
        code = lane_violation(LaneUse(row.begin, row.end, visible), LaneUse(row.newer_begin, row.newer_end))
        if code == "beside_another":
            later = max((row.begin, row.id), (row.newer_begin, row.newer_id))
            yield Finding(5, code, row.payment_key, later[1], later[0])
        elif code is not None:
            yield Finding(5, code, row.payment_key, row.id, row.begin)


def _shown_and_not_known(connection: Connection, since: datetime, cooldown: timedelta) -> Iterator[Finding]:
    """Rows of unknown outcome although a poll showed them done. The poll certainly began after their last request."""
    kinds = ((action, kind.proves_done) for action, kind in ACTIONS.items() if kind.proves_done)
    is_shown = or_(*(and_(actions.c.action == action, events.c.status_id.in_(proofs)) for action, proofs in kinds))
    other = events.alias()
    at_once = other.c.payment_key == events.c.payment_key, other.c.at_utc == events.c.at_utc
    is_replayed = exists().where(*at_once, other.c.event == REPLAYED)  # from the journal: no poll showed it then
    last = select(attempts.c.action_id, func.max(attempts.c.finished_utc).label("at")).where(attempts.c.spent == 0)
    is_unknown = actions.c.state == ActionState.FAILED, actions.c.error_code == "outcome_unknown"
    of_unknown = attempts.c.action_id.in_(select(actions.c.id).where(*is_unknown))
    tried = last.where(of_unknown).group_by(attempts.c.action_id).subquery()
    query = (
        select(actions.c.payment_key, actions.c.id, actions.c.finished_utc, tried.c.at, events.c.at_utc)
        .join(events, events.c.payment_key == actions.c.payment_key)
        .join(tried, tried.c.action_id == actions.c.id)
        .where(
            *is_unknown,
            actions.c.created_utc >= since,
            events.c.event.in_(_SHOWS_STATUS),
            events.c.detail.is_(None),  # not an end by silence
            events.c.at_utc.between(tried.c.at, actions.c.finished_utc),
            is_shown,
            ~is_replayed,
        )
    )
    for row in connection.execute(query):
        if row.at + LOOK_WITHIN * cooldown < row.at_utc:
            yield Finding(6, "shown_and_not_known", row.payment_key, row.id, row.at_utc)
