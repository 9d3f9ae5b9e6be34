"""Small values for the tests of the rules; each test changes only what it is about."""

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from orderbridge.config.keys import Actions
from orderbridge.model import RECEIVED, Action, ActionState, Attempt, Document, OutboxRow, Outcome, Stored, Verdict
from orderbridge.rules.lifecycle import Statuses
from orderbridge.rules.outbox_rows import Directory, Lane, Standing, View
from orderbridge.rules.queue import Queue

NOW = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)
KEY = "5f0c1c9e-0b7a-4c53-9d3b-1f8f4a6c2e10"
OTHER_KEY = "a27b6a31-44a0-4c6c-8a55-6e0d7f7f9b02"
RESTAURANT = "0d6a5e8c-2f7b-4a4e-b1f6-3c9d8e7f6a55"
OTHER_RESTAURANT = "9b1d7c3e-5a2f-4b8d-8c6e-7f0a1b2c3d44"
NEEDS_PAYMENT = 7
STATUSES = Statuses(NEEDS_PAYMENT)
UNNAMED_STATUS = 99

ACCEPT_VALID = timedelta(minutes=10)
VALID = timedelta(hours=2)
LONGEST_WAIT = timedelta(minutes=20)

# docs/interface.md, Order transitions and Restaurant status; not the table of the code under test.
TARGETS = {Action.ACCEPT: 2, Action.ON_THE_WAY: 16, Action.COMPLETE: 5, Action.CANCEL: 6}
RESTAURANT_TARGETS = {Action.OPEN_RESTAURANT: "Open", Action.CLOSE_RESTAURANT: "Closed"}
ORDER_ACTIONS, RESTAURANT_ACTIONS = frozenset(TARGETS), frozenset(RESTAURANT_TARGETS)
FOOD_ACTIONS = frozenset({Action.ACTIVATE_FOOD, Action.DEACTIVATE_FOOD})

# What an action needs besides its order, restaurant or food.
ARGUMENTS: dict[Action, dict[str, Any]] = {
    Action.ACCEPT: {"payment_key": KEY, "preparing_time": 25}, Action.ON_THE_WAY: {"payment_key": KEY},
    Action.COMPLETE: {"payment_key": KEY}, Action.CANCEL: {"payment_key": KEY, "reason_id": 1},
    Action.OPEN_RESTAURANT: {"restaurant_id": RESTAURANT}, Action.CLOSE_RESTAURANT: {"restaurant_id": RESTAURANT},
    Action.ACTIVATE_FOOD: {"food_id": 1005}, Action.DEACTIVATE_FOOD: {"food_id": 1005},
}  # fmt: skip

_WAITING = OutboxRow(
    id=1, action=Action.ACCEPT, state=ActionState.PENDING, payment_key=None, restaurant_id=None, food_id=None,
    account=None, preparing_time=None, reason_id=None, valid_minutes=None, withdraw=False,
    created_utc=NOW - timedelta(minutes=1), next_attempt_utc=None, expires_utc=None, attempts=0, tried=False,
)  # fmt: skip
_STORED = Stored(
    payment_key=KEY, account="kadikoy", status_id=RECEIVED, service_status_id=RECEIVED, revision=1,
    digest="as before", courier_type="restaurant", acknowledged_status_id=None, ended_by=None, problem=None,
)  # fmt: skip


def row(action: Action, number: int = 1, **changes: Any) -> OutboxRow:
    """A row that has just been written, with the arguments that its action needs. One that is `sending` was sent."""
    tried = {"tried": changes.get("state") == ActionState.SENDING}
    of_order = {"owner": "kadikoy", "service_status_id": RECEIVED} if action in ORDER_ACTIONS else {}
    return replace(_WAITING, id=number, action=action, **(ARGUMENTS[action] | of_order | tried | changes))


def unresolved(action: Action, number: int = 1, **changes: Any) -> OutboxRow:
    """A row whose last request may have had its effect."""
    return row(action, number, **({"state": ActionState.SENDING, "attempts": 1} | changes))


@dataclass(slots=True, kw_only=True)
class Moment(View):
    """The values that the rules read, and the rows that are held."""

    in_flight: Container[int]
    taken: Container[Lane]


@dataclass(frozen=True, slots=True)
class Head:
    row: OutboxRow
    lane: Lane
    account: str | None


@dataclass(frozen=True, slots=True)
class Plan:
    verdicts: list[tuple[OutboxRow, Verdict]]
    heads: list[Head]
    due: datetime | None


def plan(rows: Sequence[OutboxRow], moment: Moment) -> Plan:
    """Put all rows into a queue. Returns the rows that end, and those that may be sent after these ends are written."""
    queue = Queue(moment)
    for one in rows:
        queue.put(one)
        entry = queue.get(one.id)
        if entry is not None and one.id in moment.in_flight:
            entry.standing = Standing.ON_THE_WIRE
    verdicts = queue.ends()
    for ended, _ in verdicts:
        queue.drop(ended.id)
    assert queue.ends() == []
    places = len(rows)
    taken = queue.accounts.take(places, Counter(), places, lambda _: True, lambda entry: entry.lane not in moment.taken)
    heads = [Head(entry.row, entry.lane, None if entry.row.payment_key else entry.account) for entry in taken]
    return Plan(verdicts, sorted(heads, key=lambda head: head.row.id), queue.due())


def view(**changes: Any) -> Moment:
    """The moment: nothing on the wire, one account that reaches one restaurant."""
    usual: dict[str, Any] = {
        "now": NOW, "longest_wait": LONGEST_WAIT, "in_flight": frozenset[int](), "taken": frozenset[tuple[str, str]](),
        "directory": directory(), "validity": Actions().validity,
    }  # fmt: skip
    return Moment(**(usual | changes))


def directory(*accounts: str, default=None, reach: Mapping[str, list[str]] | None = None, complete=True) -> Directory:
    """Without names, one account, which is the default."""
    if not accounts:
        accounts, default = ("kadikoy",), "kadikoy"
    return Directory(accounts, default, reach or {}, complete)


def stored(**changes: Any) -> Stored:
    """An order in RECEIVED, as the service delivered it."""
    return replace(_STORED, **changes)


def shown_as(status_id: int | None, **changes: Any) -> Stored:
    """An order that the service itself showed in this status."""
    return stored(status_id=status_id, service_status_id=status_id, **changes)


def document(status_id: int | None, *, key: str | None = KEY, digest: str = "as before") -> Document:
    """One element of a list."""
    return Document(raw=b"{}", digest=digest, payment_key=key, status_id=status_id)


def answered(*outcomes: Outcome) -> list[Attempt]:
    """A row's attempts, oldest first. Each has a code and an HTTP status of its own, to be found again."""
    numbered = enumerate(outcomes, 1)
    return [Attempt(outcome, f"{outcome}_{number}", 400 + number, detail="") for number, outcome in numbered]
