"""The outbox's state transitions, one function for each.

Each statement is guarded by the expected state; a row count of 0 means that another session was first. The POS inserts
a row and may set `withdraw`; the daemon writes all other columns. store.unfinished reads unfinished rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Integer, and_, bindparam, delete, insert, literal_column, or_, select, update

from orderbridge.actions import ENDING_ACTIONS
from orderbridge.model import Action, ActionState, Attempt, OutboxRow, Outcome, Verdict
from orderbridge.store.dialects import of
from orderbridge.store.rows import alike, in_list, left_out
from orderbridge.store.tables import PLANNED, actions, attempts, unfinished

_WANTED = in_list(actions.c.id)
_PENDING = and_(unfinished, literal_column("state = 'pending'"))  # both conditions, for the partial index
_THERE = select(actions.c.id).where(unfinished, _WANTED)
_STILL_SENDING = _THERE.where(actions.c.state == ActionState.SENDING)
_START = (
    update(actions)
    .where(unfinished, _WANTED, actions.c.state == bindparam("was"), actions.c.withdraw == bindparam("withdrawn"))
    .values(state=ActionState.SENDING, next_attempt_utc=None)
)
_NOTED = bindparam("number", type_=Integer()), bindparam("at", type_=attempts.c.started_utc.type)
_COLUMNS = ["action_id", "attempt", "started_utc"]
_NOTE = insert(attempts).from_select(_COLUMNS, select(actions.c.id, *_NOTED).where(_WANTED))
_COUNTED = {"preserve_rowcount": True}  # of an INSERT, too
_SENT = _START.returning(actions.c.id).cte("sent")
_START_AND_NOTE = insert(attempts).from_select(_COLUMNS, select(_SENT.c.id, *_NOTED))
# Of these updates, the executed parameters name the columns to set.
_OF_THESE = attempts.c.attempt == bindparam("number"), in_list(attempts.c.action_id)
_RECORD = update(attempts).where(*_OF_THESE, attempts.c.finished_utc.is_(None))  # a successor may have ended it
_FORGET = delete(attempts).where(attempts.c.action_id == bindparam("row"), attempts.c.attempt == bindparam("number"))
_FINISH = update(actions).where(unfinished, _WANTED)
_POSTPONE = _FINISH.where(actions.c.state == ActionState.SENDING)
_SILENT = select(actions.c.id).where(_PENDING, actions.c.error_code.is_(None), _WANTED)
_EXPLAIN = update(actions).where(_PENDING, _WANTED)


def start(connection: Connection, claims: Sequence[tuple[OutboxRow, int]], now: datetime) -> None:
    """waiting or unresolved -> in flight, for locked rows: (row, number of its attempt).

    Raises IntegrityError if a trigger prevents a change.
    """
    # One round trip where data-modifying CTEs are supported.
    statements = (_START_AND_NOTE,) if of(connection.dialect.name).arrays else (_START, _NOTE)
    groups = alike(((row.state, row.withdraw, number), row.id) for row, number in claims)
    for (state, withdraw, number), wanted in groups.items():
        asked = {"wanted": wanted, "was": state, "withdrawn": int(withdraw), "number": number, "at": now}
        for statement in statements:
            if connection.execute(statement, asked, execution_options=_COUNTED).rowcount != len(wanted):
                raise left_out("UPDATE")


@dataclass(frozen=True, slots=True)
class End:
    """The final state of a row, with the text for the cashier."""

    verdict: Verdict
    text: str | None
    counted: int
    until: datetime | None = None  # the planned end of a closure


@dataclass(frozen=True, slots=True)
class Wait:
    """An unfinished row that waits, pending or unresolved (`sending`), until `at`; None: until a poll."""

    state: ActionState
    at: datetime | None
    code: str | None
    http_status: int | None
    text: str | None
    counted: int


Noted = tuple[int, int, Attempt]


def record(connection: Connection, noted: Sequence[Noted], now: datetime) -> None:
    """Write the outcomes of open attempts: (row, number, attempt). An attempt that was not sent is deleted."""
    if unsent := [{"row": row, "number": number} for row, number, one in noted if one.outcome == Outcome.NOT_SENT]:
        connection.execute(_FORGET, unsent)
    left = (((number, one), row) for row, number, one in noted if one.outcome != Outcome.NOT_SENT)
    for (number, attempt), wanted in alike(left).items():
        values = {
            "finished_utc": now,
            "outcome": attempt.outcome,
            "http_status": attempt.http_status,
            "error_code": attempt.code,
            "detail": attempt.detail or None,
        }
        connection.execute(_RECORD, {"wanted": wanted, "number": number, **values})


def finish(connection: Connection, ends: Sequence[tuple[int, End]], now: datetime) -> int:
    """unfinished -> a final state. Returns how many rows ended.

    Raises IntegrityError if a trigger prevents a change.
    """
    ended = 0
    for end, wanted in alike((end, row_id) for row_id, end in ends).items():
        values = {
            "state": end.verdict.state,
            "attempts": end.counted,
            "next_attempt_utc": None,
            "http_status": end.verdict.http_status,
            "error_code": end.verdict.code,
            "error_text": end.text,
            "known_by": end.verdict.known_by,
            "finished_utc": now,
            "until_utc": end.until,
        }
        written = connection.execute(_FINISH, {"wanted": wanted, **values}).rowcount
        # The missing rows had ended before, or a trigger kept them unfinished.
        if written < len(wanted) and connection.execute(_THERE, {"wanted": wanted}).first() is not None:
            raise left_out("UPDATE")
        ended += written
    return ended


def postpone(connection: Connection, waits: Sequence[tuple[int, Wait]]) -> None:
    """in flight -> waiting or unresolved. Raises IntegrityError if a trigger prevents a change."""
    for wait, wanted in alike((wait, row_id) for row_id, wait in waits).items():
        values = {
            "state": wait.state,
            "attempts": wait.counted,
            "next_attempt_utc": wait.at,
            "http_status": wait.http_status,
            "error_code": wait.code,
            "error_text": wait.text,
        }
        written = connection.execute(_POSTPONE, {"wanted": wanted, **values}).rowcount
        if written < len(wanted):  # some are gone, ended or withdrawn meanwhile
            still = len(connection.execute(_STILL_SENDING, {"wanted": wanted}).all())
            if still > (written if wait.state == ActionState.SENDING else 0):
                raise left_out("UPDATE")


def explain(connection: Connection, ids: Sequence[int], code: str, text: str | None) -> set[int]:
    """Write into waiting rows what they wait for. Returns those that had no explanation before."""
    if silent := set(connection.execute(_SILENT, {"wanted": ids}).scalars()):
        connection.execute(_EXPLAIN, {"wanted": sorted(silent), "error_code": code, "error_text": text})
    return silent


def ends(connection: Connection, keys: Sequence[str]) -> set[tuple[str, Action]]:
    """(payment_key, action) of our actions that ended these orders, or may have."""
    if not keys:
        return set()
    rows = select(actions.c.payment_key, actions.c.action).where(
        actions.c.payment_key.in_(keys),
        actions.c.action.in_(sorted(ENDING_ACTIONS)),
        actions.c.state.in_([ActionState.DONE, ActionState.FAILED, ActionState.SENDING]),
    )
    return {(row.payment_key, Action(row.action)) for row in connection.execute(rows)}


def add(connection: Connection, **values: Any) -> int:
    """Insert a row as a POS does. Returns its id."""
    key = connection.execute(insert(actions).values(**values)).inserted_primary_key
    return int(key[0]) if key else 0


def add_once(connection: Connection, request_id: str, **values: Any) -> None:
    """Insert a row unless its request_id exists."""
    if connection.execute(select(actions.c.id).where(actions.c.request_id == request_id)).first() is None:
        add(connection, request_id=request_id, **values)


def retry(connection: Connection, row_id: int, expires: datetime) -> bool:
    """failed -> waiting, with a new expiry and new attempts. Old attempts may still have had an effect."""
    empty = dict.fromkeys(("next_attempt_utc", "finished_utc", "error_code", "error_text", "known_by", "http_status"))
    failed = update(actions).where(actions.c.id == row_id, actions.c.state == ActionState.FAILED)
    again = failed.values(state=ActionState.PENDING, withdraw=0, attempts=0, expires_utc=expires, **empty)
    if not connection.execute(again).rowcount:
        return False
    # A restored copy may have an open attempt; it must be ended.
    lost = update(attempts).where(attempts.c.action_id == row_id, attempts.c.finished_utc.is_(None))
    connection.execute(lost.values(finished_utc=attempts.c.started_utc, outcome=Outcome.UNKNOWN))
    connection.execute(update(attempts).where(attempts.c.action_id == row_id).values(spent=1))
    return True


def withdraw(connection: Connection, row_id: int) -> bool:
    """Ask to withdraw a row, as the POS does. The daemon ends it if it still waits, or forgets its planned end."""
    is_open = or_(unfinished, literal_column(PLANNED))
    return bool(connection.execute(update(actions).where(actions.c.id == row_id, is_open).values(withdraw=1)).rowcount)
