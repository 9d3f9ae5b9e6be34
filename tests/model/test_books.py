"""The model's database against the real store: the same calls have the same result."""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from tests.model import books
from tests.model.books import ACCOUNT, KEY, LATER, NOW, Books, new_row
from tests.model.machine import order_shown
from tests.store.samples import became

from orderbridge.model import Action, ActionState, Arrival, Attempt, Differs, KnownBy, Outcome, Verdict
from orderbridge.rules import lifecycle
from orderbridge.store import actions, orders, schema, unfinished
from orderbridge.store.actions import End, Wait
from orderbridge.store.database import Database

STATUSES = (1, 2, 16, 5, 6)
ACTIONS = (Action.ACCEPT, Action.ON_THE_WAY, Action.COMPLETE, Action.CANCEL)
STATES = (ActionState.DONE, ActionState.REFUSED, ActionState.FAILED, ActionState.EXPIRED)
DOUBLES: Any = SimpleNamespace(**vars(books.ACTIONS) | vars(books.ORDERS), retry=books.retry)
REAL: Any = SimpleNamespace(**vars(unfinished) | vars(actions) | vars(orders))


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database(f"sqlite:///{tmp_path}/orders.db", inline=True)
    database.write_now(schema.upgrade)
    yield database
    database.close()


def seen(store: Any, connection: Any) -> dict[str, Any]:
    """Everything that a decision asks the store for."""
    rows, _ = store.read_unfinished(connection)
    sending, _ = store.read_unfinished(connection, sending_only=True)
    order = store.stored(connection, [KEY])[KEY]
    return {
        "rows": [(row.id, row.action, row.state, row.withdraw, row.next_attempt_utc) for row in rows],
        "sending": [row.id for row in sending],
        "histories": store.histories(connection, [row.id for row in rows]),
        "unfinished": sorted(store.unfinished_attempts(connection)),
        "unresolved": store.with_unresolved_rows(connection, [KEY]),
        "ends": store.ends(connection, [KEY]),
        "order": (order.status_id, order.service_status_id, order.acknowledged_status_id, order.ended_by),
        "doubt": (order.digest, order.problem),
    }


def any_call(store: Any, connection: Any, chance: Random) -> None:
    """One thing that a job does to the store, drawn by chance: both sides draw alike."""
    (_to_the_order if chance.random() < 0.4 else _to_a_row)(store, connection, chance)


def _to_the_order(store: Any, connection: Any, chance: Random) -> None:
    known = store.stored(connection, [KEY])[KEY]
    status_id, counts = chance.choice(STATUSES), chance.random() < 0.7
    ended_by = lifecycle.ENDS.get(status_id)
    match chance.randrange(4):
        case 0:
            change = lifecycle.merge(known, status_id, differs=Differs.NOTHING, status_counts=counts, problems=())
            store.update_delivered(connection, known, Arrival(order_shown(status_id), "", ended_by), change, NOW)
        case 1:
            store.set_status(connection, [became(known, status_id, shown=counts)], NOW)
        case 2:
            problem = lifecycle.with_doubt(known.problem)
            store.doubt_status(connection, [] if problem is None else [(KEY, problem)])
        case _:
            store.mark_acknowledged(connection, [(KEY, status_id, "", NOW)])


def _to_a_row(store: Any, connection: Any, chance: Random) -> None:
    rows, _ = store.read_unfinished(connection)
    if not rows:
        return
    row = chance.choice(rows)
    begun = sorted(store.unfinished_attempts(connection))
    attempt = Attempt(chance.choice(list(Outcome)), "code", 500)
    at, state = chance.choice([None, NOW, LATER]), chance.choice([ActionState.PENDING, ActionState.SENDING])
    pick = chance.random()
    if pick < 0.4:
        number = len(store.histories(connection, [row.id])[row.id]) + 1
        if (row.id, number) not in begun:
            store.start(connection, [(row, number)], NOW)
    elif pick < 0.9:
        store.record(connection, [(row_id, number, attempt) for row_id, number in begun], NOW)
        store.postpone(connection, [(row.id, Wait(state, at, "code", 500, None, 0))])
    else:
        end = End(Verdict(chance.choice(STATES), "code", KnownBy.POLL), None, 0)
        store.finish(connection, [(row.id, end)], NOW)
        if end.verdict.state == ActionState.FAILED and row.id not in {row_id for row_id, _ in begun}:
            store.retry(connection, row.id, LATER)


@pytest.mark.parametrize("seed", range(8))
def test_the_books_keep_what_the_store_keeps(seed: int, database: Database) -> None:
    new = Arrival(order_shown(1), "RECEIVED", None)
    double = Books(None, [new_row(number, action) for number, action in enumerate(ACTIONS, start=1)])
    books.insert_new(double, ACCOUNT, [new], NOW)
    database.write_now(lambda tx: orders.insert_new(tx, ACCOUNT, [new], NOW))
    for action in ACTIONS:
        needs = {Action.ACCEPT: {"preparing_time": 25}, Action.CANCEL: {"reason_id": 1}}.get(action, {})
        database.write_now(lambda tx, a=action, n=needs: actions.add(tx, action=a, payment_key=KEY, **n))
    ours, theirs = Random(seed), Random(seed)
    for _ in range(40):
        any_call(DOUBLES, double, ours)
        database.write_now(lambda tx: any_call(REAL, tx, theirs))
        assert seen(DOUBLES, double) == database.read_now(lambda tx: seen(REAL, tx))
