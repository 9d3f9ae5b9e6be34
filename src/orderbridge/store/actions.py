"""The outbox: one named function per transition, guarded by the state the row must have. Row count 0: somebody won.

The POS writes a row once and may set `withdraw`; every other column here is the daemon's.
"""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, bindparam, delete, func, insert, select, update

from orderbridge.model import Action, ActionState, Attempt, OutboxRow, Outcome, Verdict
from orderbridge.store.columns import utc_now
from orderbridge.store.tables import actions, attempts, unfinished

MOST_ROWS = 20_000  # unfinished rows read at once; the rest wait for these

# What is asked all the time is built once: building a statement takes longer than SQLite takes to answer it.
_UNFINISHED = (
    select(
        actions.c.id,
        actions.c.action,
        actions.c.state,
        actions.c.payment_key,
        actions.c.restaurant_id,
        actions.c.food_id,
        actions.c.account,
        actions.c.preparing_time,
        actions.c.reason_id,
        actions.c.valid_minutes,
        actions.c.withdraw,
        actions.c.created_utc,
        actions.c.next_attempt_utc,
        actions.c.expires_utc,
        actions.c.attempts,
        # Not EXISTS: SQL Server has it in conditions only.
        select(func.count()).where(attempts.c.action_id == actions.c.id).scalar_subquery().label("tried"),
    )
    .where(unfinished)
    .order_by(actions.c.id)
    .limit(MOST_ROWS)
)
_TIMED = _UNFINISHED.add_columns(utc_now().label("asked_utc"))
_SENDING = _UNFINISHED.where(actions.c.state == ActionState.SENDING)
_FINISHED_ATTEMPTS = (
    select(
        attempts.c.action_id,
        attempts.c.outcome,
        attempts.c.error_code,
        attempts.c.http_status,
        attempts.c.spent,
        attempts.c.finished_utc,
    )
    .where(attempts.c.action_id.in_(bindparam("wanted", expanding=True)), attempts.c.finished_utc.is_not(None))
    .order_by(attempts.c.action_id, attempts.c.attempt)
)
_START = (
    update(actions)
    .where(
        actions.c.id == bindparam("row"),
        actions.c.state == bindparam("was"),
        actions.c.withdraw == bindparam("asked_back"),
        actions.c.next_attempt_utc.is_not_distinct_from(bindparam("due")),  # a resend is `sending` before, too
    )
    .values(state=ActionState.SENDING, next_attempt_utc=None)
)
_NOTE = insert(attempts)


def read_unfinished(
    connection: Connection, *, sending_only: bool = False, now: datetime | None = None
) -> tuple[list[OutboxRow], list[int]]:
    """Every row that waits, is on the wire or is unresolved, by id; and the ids of rows that cannot be read.

    A server's own clock wrote created_utc. With `now`, it is given by the clock that says `now`.
    """
    query = _SENDING if sending_only else _UNFINISHED
    if now is not None and connection.dialect.name != "sqlite":  # which asks this machine's clock
        query = _TIMED
    rows: list[OutboxRow] = []
    unreadable: list[int] = []
    for row in connection.execute(query):
        try:
            rows.append(_row(row, now))
        except (ValueError, OverflowError):  # a word or a time that the constraints should have refused
            unreadable.append(row.id)
    return rows, unreadable


def _row(row: Any, now: datetime | None) -> OutboxRow:
    values = row._asdict()
    asked = values.pop("asked_utc", None)
    if now is not None and asked is not None and row.created_utc is not None:
        values["created_utc"] += now - asked
    values |= {
        "action": Action(row.action),
        "state": ActionState(row.state),
        "withdraw": bool(row.withdraw),
        "tried": bool(row.tried),
    }
    return OutboxRow(**values)


def histories(connection: Connection, ids: Iterable[int]) -> dict[int, list[Attempt]]:
    """The finished attempts of these rows, in order."""
    wanted = list(ids)
    found: dict[int, list[Attempt]] = {action_id: [] for action_id in wanted}
    if not wanted:
        return found
    for row in connection.execute(_FINISHED_ATTEMPTS, {"wanted": wanted}):
        found[row.action_id].append(
            Attempt(
                Outcome(row.outcome),
                row.error_code,
                row.http_status,
                spent=bool(row.spent),
                ended_utc=row.finished_utc,
            )
        )
    return found


def start(connection: Connection, row: OutboxRow, attempt: int, now: datetime) -> bool:
    """waiting or unresolved -> on the wire. The attempt is noted before its request leaves. False: somebody won."""
    asked = {"row": row.id, "was": row.state, "asked_back": int(row.withdraw), "due": row.next_attempt_utc}
    won = connection.execute(_START, asked).rowcount
    if won:
        connection.execute(_NOTE, {"action_id": row.id, "attempt": attempt, "started_utc": now})
    return bool(won)


def record(connection: Connection, action_id: int, number: int, attempt: Attempt, now: datetime) -> None:
    """How an attempt ended. One that never left leaves no trace: it was none."""
    if attempt.outcome == Outcome.NOT_SENT:
        forget_attempt(connection, action_id, number)
        return
    connection.execute(
        update(attempts)
        .where(attempts.c.action_id == action_id, attempts.c.attempt == number)
        .values(
            finished_utc=now,
            outcome=attempt.outcome,
            http_status=attempt.http_status,
            error_code=attempt.code,
            detail=attempt.detail or None,
        )
    )


def forget_attempt(connection: Connection, action_id: int, number: int) -> None:
    """Take back the note of an attempt whose request was not sent."""
    connection.execute(delete(attempts).where(attempts.c.action_id == action_id, attempts.c.attempt == number))


def finish(
    connection: Connection, row_id: int, verdict: Verdict, text: str | None, counted: int, now: datetime
) -> bool:
    """unfinished -> a final state, with the reason that the cashier reads."""
    return bool(
        connection.execute(
            update(actions)
            .where(actions.c.id == row_id, unfinished)
            .values(
                state=verdict.state,
                attempts=counted,
                next_attempt_utc=None,
                http_status=verdict.http_status,
                error_code=verdict.code,
                error_text=text,
                known_by=verdict.known_by,
                finished_utc=now,
            )
        ).rowcount
    )


def postpone(
    connection: Connection,
    row_id: int,
    state: ActionState,
    at: datetime | None,
    last: Attempt,
    text: str | None,
    counted: int,
) -> None:
    """on the wire -> waiting (`pending`) or unresolved (`sending`), until `at`; None: until a look."""
    connection.execute(
        update(actions)
        .where(actions.c.id == row_id, actions.c.state == ActionState.SENDING)
        .values(
            state=state,
            attempts=counted,
            next_attempt_utc=at,
            http_status=last.http_status,
            error_code=last.code,
            error_text=text,
        )
    )


def unexplained(connection: Connection, ids: Collection[int]) -> set[int]:
    """Of these rows, the ones that do not say what they wait for."""
    silent = select(actions.c.id).where(actions.c.id.in_(ids), actions.c.error_code.is_(None))
    return set(connection.execute(silent).scalars())


def explain(connection: Connection, row_id: int, code: str, text: str | None) -> None:
    """A waiting row says what it waits for, though no request of it was made."""
    connection.execute(
        update(actions)
        .where(actions.c.id == row_id, actions.c.state == ActionState.PENDING, actions.c.error_code.is_(None))
        .values(error_code=code, error_text=text)
    )


def unfinished_attempts(connection: Connection) -> list[tuple[int, int]]:
    """(row, attempt) of what was on the wire when the program last stopped without a word."""
    waiting = select(actions.c.id).where(unfinished)  # no join: SQLite would begin with all attempts
    rows = connection.execute(
        select(attempts.c.action_id, attempts.c.attempt).where(
            attempts.c.action_id.in_(waiting), attempts.c.finished_utc.is_(None)
        )
    )
    return [(row.action_id, row.attempt) for row in rows]


def ends(connection: Connection, keys: Sequence[str]) -> set[tuple[str, Action]]:
    """(payment_key, complete or cancel) of what we did to these orders, or may have done."""
    if not keys:
        return set()
    rows = select(actions.c.payment_key, actions.c.action).where(
        actions.c.payment_key.in_(keys),
        actions.c.action.in_([Action.COMPLETE, Action.CANCEL]),
        actions.c.state.in_([ActionState.DONE, ActionState.FAILED, ActionState.SENDING]),
    )
    return {(row.payment_key, Action(row.action)) for row in connection.execute(rows)}


def add(connection: Connection, **values: Any) -> int:
    """A new row, as a POS would write it. Returns its id."""
    key = connection.execute(insert(actions).values(**values)).inserted_primary_key
    return int(key[0]) if key else 0


def add_once(connection: Connection, request_id: str, **values: Any) -> None:
    """`add`, unless a row with that request_id is there."""
    if connection.execute(select(actions.c.id).where(actions.c.request_id == request_id)).first() is None:
        add(connection, request_id=request_id, **values)


def retry(connection: Connection, row_id: int, expires: datetime) -> bool:
    """failed -> waiting, its expiry and its attempts counting anew. What the old ones left in doubt stays."""
    won = connection.execute(
        update(actions)
        .where(actions.c.id == row_id, actions.c.state == ActionState.FAILED)
        .values(
            state=ActionState.PENDING,
            withdraw=0,
            attempts=0,
            next_attempt_utc=None,
            expires_utc=expires,
            finished_utc=None,
            error_code=None,
            error_text=None,
            known_by=None,
            http_status=None,
        )
    ).rowcount
    if won:
        connection.execute(update(attempts).where(attempts.c.action_id == row_id).values(spent=1))
    return bool(won)


def ask_back(connection: Connection, row_id: int) -> bool:
    """What the POS does to withdraw a row; the daemon ends it when it still waits."""
    return bool(
        connection.execute(update(actions).where(actions.c.id == row_id, unfinished).values(withdraw=1)).rowcount
    )


def count_unfinished(connection: Connection) -> int:
    """How many rows have no verdict yet."""
    return int(connection.execute(select(func.count()).select_from(actions).where(unfinished)).scalar_one())
