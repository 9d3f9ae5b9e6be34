"""The database of one order as a value, with the functions that the jobs call in the store.

`Books` is a transaction: it holds the stored order and its outbox rows. The functions below read and write it as those
of orderbridge.store do; the jobs use this module in place of store.actions, store.orders and others.
"""

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, NamedTuple

from orderbridge.model import Action, ActionState, Attempt, OutboxRow, Outcome, Stored, Verdict
from orderbridge.store import orders as real_orders
from orderbridge.store.actions import End, Noted, Wait
from orderbridge.store.failures import Trouble
from orderbridge.store.unfinished import Found

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
    definite: bool = False  # the service answered yes or no, and the daemon has read it


def new_row(number: int, action: Action) -> Row:
    """As a POS writes it."""
    return Row(
        OutboxRow(
            id=number, action=action, state=ActionState.PENDING, payment_key=KEY, restaurant_id=None, food_id=None,
            account=None,
            preparing_time=25 if action == Action.ACCEPT else None,
            reason_id=1 if action == Action.CANCEL else None,
            valid_minutes=None, withdraw=False, created_utc=NOW, next_attempt_utc=None, expires_utc=None,
            attempts=0, tried=False,
        )
    )  # fmt: skip


class Books:
    """One transaction. What it leaves is read from `order` and `rows`."""

    trouble = Trouble()  # never any here

    def __init__(self, order: Stored | None, rows: Sequence[Row]) -> None:
        self.order = order
        self.rows = {row.row.id: row for row in rows}
        self.durability = SimpleNamespace(remedy=None, ask=nothing)  # every write is durable
        self.dialect = SimpleNamespace(one_writer=True, asks_little=False)
        self.check_file = nothing

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

    async def in_thread(self, call: Any) -> Any:
        return call()

    def begin_nested(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


# ---- store.actions ---------------------------------------------------------------------------------------------------


def read_unfinished(books: Books, *, sending_only: bool = False) -> tuple[list[OutboxRow], list[int]]:
    states = (ActionState.SENDING,) if sending_only else UNFINISHED
    return [_as_read(row, books.order) for row in books.of(states)], []


def _as_read(row: Row, order: Stored | None) -> OutboxRow:
    last = next((one.outcome for one in reversed(row.attempts) if one is not None), None)
    read = replace(
        row.row, tried=bool(row.attempts), last_outcome=last if row.row.state == ActionState.SENDING else None
    )
    if order is None:
        return read
    return replace(
        read, owner=order.account, service_status_id=order.service_status_id, courier_type=order.courier_type
    )


def above(books: Books, row_id: int, clock: object, now: datetime, page: int) -> Found:
    return Found(read_unfinished(books)[0])


def these(books: Books, ids: Sequence[int], clock: object, now: datetime) -> Found:
    return Found([row for row in read_unfinished(books)[0] if row.id in ids])


def claim(books: Books, ids: Sequence[int], clock: object, now: datetime) -> tuple[Found, set[int]]:
    found = these(books, ids, clock, now)
    found.of_order = {row.id: {one.row.id for one in books.of()} for row in found.rows}
    return found, set()


def histories(books: Books, ids: Iterable[int]) -> dict[int, list[Attempt]]:
    return {number: [attempt for attempt in books.rows[number].attempts if attempt is not None] for number in ids}


def start(books: Books, claims: Sequence[tuple[OutboxRow, int]], now: datetime) -> None:
    for row, _ in claims:
        found = books.rows[row.id]
        assert (found.row.state, found.row.withdraw) == (row.state, row.withdraw)
        books.change(row.id, state=ActionState.SENDING, next_attempt_utc=None)
        books.rows[row.id] = books.rows[row.id]._replace(attempts=(*found.attempts, None))


def record(books: Books, noted: Sequence[Noted], now: datetime) -> None:
    for action_id, number, attempt in noted:
        row = books.rows[action_id]
        written = () if attempt.outcome == Outcome.NOT_SENT else (replace(attempt, detail="", ended_utc=now),)
        kept = (*row.attempts[: number - 1], *written, *row.attempts[number:])
        books.rows[action_id] = row._replace(attempts=kept)


def finish(books: Books, ends: Sequence[tuple[int, End]], now: datetime) -> int:
    ended = 0
    for row_id, end in ends:
        if books.rows[row_id].row.state in UNFINISHED:
            books.change(row_id, state=end.verdict.state, next_attempt_utc=None)
            books.rows[row_id] = books.rows[row_id]._replace(verdict=end.verdict)
            ended += 1
    return ended


def postpone(books: Books, waits: Sequence[tuple[int, Wait]]) -> None:
    for row_id, wait in waits:
        if books.rows[row_id].row.state == ActionState.SENDING:
            when = None if wait.at is None else LATER if wait.at > NOW else NOW
            books.change(row_id, state=wait.state, next_attempt_utc=when)


def unfinished_attempts(books: Books) -> list[tuple[int, int, datetime]]:
    return [
        (row.row.id, number, LONG_AGO)
        for row in books.of()
        for number, attempt in enumerate(row.attempts, start=1)
        if attempt is None
    ]


def ends(books: Books, keys: Sequence[str]) -> set[tuple[str, Action]]:
    states = (ActionState.DONE, ActionState.FAILED, ActionState.SENDING)
    made = {row.row.action for row in books.of(states)} & {Action.COMPLETE, Action.CANCEL}
    return {(KEY, action) for action in made if KEY in keys}


def add_once(books: Books, request_id: str, **values: Any) -> None:
    number = len(books.rows) + 1
    books.rows[number] = new_row(number, values["action"])


def retry(books: Books, row_id: int, expires: datetime = LATER) -> None:
    row = books.rows[row_id]
    spent = tuple(None if attempt is None else replace(attempt, spent=True) for attempt in row.attempts)
    books.change(row_id, state=ActionState.PENDING, withdraw=False, next_attempt_utc=None, expires_utc=expires)
    books.rows[row_id] = books.rows[row_id]._replace(attempts=spent, verdict=None, definite=False)


# ---- store.orders ----------------------------------------------------------------------------------------------------


def stored(books: Books, keys: Iterable[str]) -> dict[str, Stored]:
    return {KEY: books.order} if books.order is not None and KEY in keys else {}


def with_unresolved_rows(books: Books, keys: Iterable[str]) -> set[str]:
    return {KEY} if KEY in keys and books.of((ActionState.SENDING,)) else set()


def waiting(books: Books, keys: Iterable[str]) -> set[str]:
    return set()


def insert_new(books: Books, account: str, arrivals: Sequence[Any], now: datetime, starts: object = ()) -> None:
    for arrival in arrivals:
        order = arrival.order
        books.order = Stored(
            payment_key=KEY, account=account, status_id=order.status_id, service_status_id=order.status_id,
            revision=1, digest=order.digest, courier_type="restaurant", acknowledged_status_id=None,
            ended_by=arrival.ended_by, problem=None,
        )  # fmt: skip


def update_delivered(books: Books, known: Stored, arrival: Any, change: Any, now: datetime) -> None:
    order = arrival.order
    books.write(digest=None, problem=change.problem)
    if change.status_counts:
        books.write(digest=order.digest, status_id=order.status_id, service_status_id=order.status_id)
        columns = real_orders._end(known, arrival.ended_by, NOW)
        if "ended_by" in columns:
            books.write(ended_by=columns["ended_by"])


def hold(books: Books, keys: Iterable[str]) -> tuple[dict[str, Stored], set[str]]:
    return stored(books, keys), set()


def set_status(books: Books, news: Sequence[tuple[str, Any]], now: datetime) -> None:
    for _, one in news:
        books.write(status_id=one.status_id)
        if one.shown:
            books.write(service_status_id=one.status_id, problem=one.problem)
        if one.ends:
            books.write(ended_by=one.ended_by)


def doubt_status(books: Books, doubted: Sequence[tuple[str, str]]) -> None:
    for _, problem in doubted:
        books.write(problem=problem)


def mark_acknowledged(books: Books, marks: Sequence[tuple[str, int | None, str, datetime]]) -> None:
    for _, status_id, _, _ in marks:
        books.write(acknowledged_status_id=status_id)


def nothing(*_: Any, **__: Any) -> dict[str, Any]:
    """Replaces functions on events, payloads and lists, which the model does not have."""
    return {}


payloads = append_events = restaurant_accounts = payment_codes = set_restaurant_status = resolve = nothing
Mark = tuple


def lock(_: Any, __: Any, keys: Iterable[str]) -> set[str]:
    return set(keys)


def lock_naming_held(*_: Any) -> set[str]:
    return set()
