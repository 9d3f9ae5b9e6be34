"""The database of one order as a value, behind the names by which the jobs call the store.

`Books` is a transaction: it holds the stored order and its outbox rows, and the functions of `orders` and `actions`
below read and write it as orderbridge.store does. `tests/model/test_books.py` compares the two on a real database.
"""

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, NamedTuple

from orderbridge.model import (
    STATUS_DOUBTFUL,
    Action,
    ActionState,
    Attempt,
    Change,
    OutboxRow,
    Outcome,
    Stored,
    Verdict,
)
from orderbridge.store import orders as real_orders
from orderbridge.store.orders import Arrival

KEY = "5f0c1c9e-0b7a-4c53-9d3b-1f8f4a6c2e10"
ACCOUNT = "kadikoy"
NOW = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)  # a moment that never moves
LATER = NOW + timedelta(minutes=1)  # every time that has not come yet
LONG_AGO = NOW - timedelta(days=1)
UNFINISHED = (ActionState.PENDING, ActionState.SENDING)


class Row(NamedTuple):
    """An outbox row with its attempts (None: begun and not finished) and, below, what only the model knows."""

    row: OutboxRow
    attempts: tuple[Attempt | None, ...] = ()
    verdict: Verdict | None = None
    effects: int = 0  # how often the service did what a request of this row asked
    doubted: bool = False  # a request or an answer of it was lost, or answered 5xx
    definite: bool = False  # the service said OK or no, and the daemon has read it


def new_row(number: int, action: Action) -> Row:
    """As a POS writes it."""
    return Row(
        OutboxRow(
            id=number,
            action=action,
            state=ActionState.PENDING,
            payment_key=KEY,
            restaurant_id=None,
            food_id=None,
            account=None,
            preparing_time=25 if action == Action.ACCEPT else None,
            reason_id=1 if action == Action.CANCEL else None,
            valid_minutes=None,
            withdraw=False,
            created_utc=NOW,
            next_attempt_utc=None,
            expires_utc=None,
            attempts=0,
            tried=False,
        )
    )


class Books:
    """One transaction. What it leaves is read from `order` and `rows`."""

    def __init__(self, order: Stored | None, rows: Sequence[Row]) -> None:
        self.order = order
        self.rows = {row.row.id: row for row in rows}

    def of(self, states: Iterable[ActionState] = UNFINISHED) -> list[Row]:
        return [self.rows[number] for number in sorted(self.rows) if self.rows[number].row.state in states]

    def change(self, number: int, **columns: Any) -> None:
        old = self.rows[number]
        self.rows[number] = old._replace(row=replace(old.row, **columns))

    def write(self, **columns: Any) -> None:
        if self.order is not None:
            self.order = replace(self.order, **columns)

    async def run(self, work: Any, *, urgent: bool = False) -> Any:
        """As Database.run, at once."""
        return work(self)

    read = run

    def begin_nested(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


# ---- store.actions ---------------------------------------------------------------------------------------------------


def read_unfinished(
    books: Books, *, sending_only: bool = False, now: datetime | None = None
) -> tuple[list[OutboxRow], list[int]]:
    states = (ActionState.SENDING,) if sending_only else UNFINISHED
    return [replace(row.row, tried=bool(row.attempts)) for row in books.of(states)], []


def histories(books: Books, ids: Iterable[int]) -> dict[int, list[Attempt]]:
    return {number: [attempt for attempt in books.rows[number].attempts if attempt is not None] for number in ids}


def start(books: Books, row: OutboxRow, attempt: int, now: datetime) -> bool:
    found = books.rows[row.id]
    same = (found.row.state, found.row.withdraw, found.row.next_attempt_utc) == (
        row.state,
        row.withdraw,
        row.next_attempt_utc,
    )
    if same:
        books.change(row.id, state=ActionState.SENDING, next_attempt_utc=None)
        books.rows[row.id] = books.rows[row.id]._replace(attempts=(*found.attempts, None))
    return same


def record(books: Books, action_id: int, number: int, attempt: Attempt, now: datetime) -> None:
    if attempt.outcome == Outcome.NOT_SENT:
        forget_attempt(books, action_id, number)
        return
    row = books.rows[action_id]
    kept = (*row.attempts[: number - 1], replace(attempt, detail="", ended_utc=now), *row.attempts[number:])
    books.rows[action_id] = row._replace(attempts=kept)


def forget_attempt(books: Books, action_id: int, number: int) -> None:
    row = books.rows[action_id]
    books.rows[action_id] = row._replace(attempts=row.attempts[: number - 1] + row.attempts[number:])


def finish(books: Books, row_id: int, verdict: Verdict, text: str | None, counted: int, now: datetime) -> bool:
    if books.rows[row_id].row.state not in UNFINISHED:
        return False
    books.change(row_id, state=verdict.state, next_attempt_utc=None)
    books.rows[row_id] = books.rows[row_id]._replace(verdict=verdict)
    return True


def postpone(
    books: Books,
    row_id: int,
    state: ActionState,
    at: datetime | None,
    last: Attempt,
    text: str | None,
    counted: int,
) -> None:
    if books.rows[row_id].row.state == ActionState.SENDING:
        when = None if at is None else LATER if at > NOW else NOW
        books.change(row_id, state=state, next_attempt_utc=when)


def unfinished_attempts(books: Books) -> list[tuple[int, int]]:
    return [
        (row.row.id, number)
        for row in books.of()
        for number, attempt in enumerate(row.attempts, start=1)
        if attempt is None
    ]


def ends(books: Books, keys: Sequence[str]) -> set[tuple[str, Action]]:
    states = (ActionState.DONE, ActionState.FAILED, ActionState.SENDING)
    made = {(KEY, row.row.action) for row in books.of(states)}
    return made & {(key, action) for key in keys for action in (Action.COMPLETE, Action.CANCEL)}


def add_once(books: Books, request_id: str, **values: Any) -> None:
    number = len(books.rows) + 1
    books.rows[number] = new_row(number, values["action"])


def retry(books: Books, row_id: int) -> None:
    row = books.rows[row_id]
    spent = tuple(None if attempt is None else replace(attempt, spent=True) for attempt in row.attempts)
    books.change(row_id, state=ActionState.PENDING, withdraw=False, next_attempt_utc=None, expires_utc=LATER)
    books.rows[row_id] = books.rows[row_id]._replace(attempts=spent, verdict=None, definite=False)


# ---- store.orders ----------------------------------------------------------------------------------------------------


def stored(books: Books, keys: Iterable[str]) -> dict[str, Stored]:
    return {KEY: books.order} if books.order is not None and KEY in keys else {}


def with_unresolved_rows(books: Books, keys: Iterable[str]) -> set[str]:
    return {KEY} if KEY in keys and books.of((ActionState.SENDING,)) else set()


def insert_new(books: Books, account: str, arrivals: Sequence[Arrival], now: datetime) -> None:
    for arrival in arrivals:
        order = arrival.order
        books.order = Stored(
            payment_key=KEY,
            account=account,
            status_id=order.status_id,
            service_status_id=order.status_id,
            revision=1,
            digest=order.digest,
            courier_type="restaurant",
            acknowledged_status_id=None,
            ended_by=arrival.ended_by,
            problem=None,
        )


def update_delivered(books: Books, known: Stored, arrival: Arrival, change: Change, now: datetime) -> None:
    order = arrival.order
    books.write(digest=None, problem=real_orders._problem(order, known, keep_doubt=not change.status_counts))
    if change.status_counts:
        books.write(digest=order.digest, status_id=order.status_id, service_status_id=order.status_id)
        _write_end(books, known, arrival.ended_by)


def set_status(
    books: Books, known: Stored, status_id: int, status: str, ended_by: Any, now: datetime, *, shown: bool = True
) -> None:
    books.write(status_id=status_id)
    if shown:
        problem = real_orders.without_problem(known.problem, STATUS_DOUBTFUL)
        books.write(service_status_id=status_id, problem=problem)
    _write_end(books, known, ended_by)


def _write_end(books: Books, known: Stored, ended_by: Any) -> None:
    columns = real_orders._end(known, ended_by, NOW)
    if "ended_by" in columns:
        books.write(ended_by=columns["ended_by"])


def doubt_status(books: Books, known: Stored) -> None:
    books.write(problem=STATUS_DOUBTFUL)


def mark_acknowledged(books: Books, marks: Sequence[tuple[str, int | None, str, datetime]]) -> None:
    for _, status_id, _, _ in marks:
        books.write(acknowledged_status_id=status_id)


def nothing(*_: Any, **__: Any) -> dict[str, Any]:
    """Stories, payloads and lists that this model has none of."""
    return {}


ACTIONS = SimpleNamespace(
    read_unfinished=read_unfinished,
    histories=histories,
    start=start,
    record=record,
    forget_attempt=forget_attempt,
    finish=finish,
    postpone=postpone,
    unfinished_attempts=unfinished_attempts,
    ends=ends,
    add_once=add_once,
)
ORDERS = SimpleNamespace(
    stored=stored,
    with_unresolved_rows=with_unresolved_rows,
    insert_new=insert_new,
    update_delivered=update_delivered,
    set_status=set_status,
    doubt_status=doubt_status,
    mark_acknowledged=mark_acknowledged,
    payloads=nothing,
    tell=nothing,
)
REFERENCE = SimpleNamespace(restaurant_accounts=nothing, payment_codes=nothing, set_restaurant_status=nothing)
QUARANTINE = SimpleNamespace(resolve=nothing)
LOCKS = SimpleNamespace(
    free_rows=lambda _, ids: set(ids),
    free_orders=lambda _, keys: set(keys),
    held_rows=lambda *_: set(),
    held_orders=lambda *_: set(),
)
