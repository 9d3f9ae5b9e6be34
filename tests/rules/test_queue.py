"""A queue after any history decides the same as a new one with the same rows."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.rules.builders import ARGUMENTS, NOW, RESTAURANT, Plan, directory, plan, row, unresolved, view

from orderbridge.model import Action, ActionState, OutboxRow
from orderbridge.rules.outbox_rows import Directory, Standing
from orderbridge.rules.queue import Queue

KEYS = ("5f0c1c9e-0b7a-4c53-9d3b-1f8f4a6c2e10", "a27b6a31-44a0-4c6c-8a55-6e0d7f7f9b02")
SECOND, NEVER = timedelta(seconds=1), NOW.replace(year=9999)
WHERE: list[dict[str, Any]] = [
    *({"payment_key": key, "owner": "kadikoy"} for key in KEYS), {"food_id": 7},
    {"food_id": 1005, "restaurant_id": RESTAURANT},
]  # fmt: skip
SENT: dict[str, Any] = {"state": ActionState.SENDING, "tried": True}
CHANGES: list[dict[str, Any]] = [
    {}, {"withdraw": True}, SENT, SENT | {"next_attempt_utc": NOW + 30 * SECOND}, SENT | {"tried": False},
    {"next_attempt_utc": NOW + 60 * SECOND}, {"next_attempt_utc": NOW + timedelta(days=9)},
    {"expires_utc": NOW + 90 * SECOND}, {"valid_minutes": 1}, {"valid_minutes": 0},
]  # fmt: skip


@st.composite
def some_row(draw: st.DrawFn) -> OutboxRow:
    action, ago = draw(st.sampled_from(list(Action))), draw(st.sampled_from([0, 1, 30, 300, 550, 599, 700]))
    where = draw(st.sampled_from([one for one in WHERE if ARGUMENTS[action].keys() & one.keys()] or [{}]))
    changes = draw(st.sampled_from(CHANGES) | st.just({}))
    return row(action, draw(st.integers(1, 12)), **where, created_utc=NOW - ago * SECOND, **changes)


rows = some_row()
events = st.lists(
    st.one_of(
        st.tuples(st.just("put"), rows), st.tuples(st.just("drop"), st.integers(1, 12)),
        st.tuples(st.just("take"), st.integers(1, 3)), st.tuples(st.just("ask"), st.none()),
        st.tuples(st.just("back"), st.integers(1, 12)), st.tuples(st.just("wait"), st.integers(1, 400)),
        st.tuples(st.just("reach"), st.booleans()), st.tuples(st.just("ask"), st.none()),
    ),
    min_size=5,
    max_size=30,
)  # fmt: skip


class Both:
    """The queue, and what it should know: the rows, and which of them are on the wire."""

    def __init__(self) -> None:
        self.moment = view(directory=directory("kadikoy", "besiktas", complete=False))
        self.queue = Queue(self.moment)
        self.rows: dict[int, OutboxRow] = {}
        self.held: set[int] = set()

    def put(self, one: OutboxRow) -> None:
        self.queue.put(one)
        if one.id not in self.held:
            self.rows[one.id] = one

    def drop(self, number: int) -> None:
        self.queue.drop(number)
        self.rows.pop(number, None)
        self.held.discard(number)

    def back(self, number: int) -> None:
        """The row was sent, and waits for a retry."""
        if number in self.held:
            changes = SENT | {"next_attempt_utc": self.moment.now + 5 * SECOND}
            self.held.discard(number)
            self.rows[number] = replace(self.rows[number], **changes)
            self.queue.give_back(number, **changes)

    def wait(self, seconds: int) -> None:
        self.moment.now += seconds * SECOND

    def reach(self, complete: bool) -> None:
        """The restaurants become known. A row on the wire keeps the account that it left with."""
        if not self.held:
            self.queue.direct(directory("kadikoy", "besiktas", reach={RESTAURANT: ["besiktas"]}, complete=complete))

    def ask(self, _: None = None) -> None:
        """The decisions of both now. Rows that end are removed."""
        expected = self._expected()
        ends = {(one.id, verdict.state, verdict.code) for one, verdict in self.queue.ends()}
        assert ends == {(one.id, verdict.state, verdict.code) for one, verdict in expected.verdicts}
        for number, *_ in ends:
            self.drop(number)
        self.queue.ends()
        going = {head.row.id for head in expected.heads}
        accounts = self.queue.accounts
        assert {one.row.id for account in accounts.names() for one in accounts.rows(account)} == going
        if expected.due is not None and expected.due > self.moment.now:
            assert (self.queue.due() or NEVER) <= expected.due

    def take(self, places: int) -> None:
        self.ask()
        taken = self.queue.accounts.take(places, Counter(), places, lambda _: True, lambda _: True)
        self.held |= {entry.row.id for entry in taken}

    def _expected(self) -> Plan:
        rows = [self.rows[number] for number in sorted(self.rows)]
        return plan(rows, replace(self.moment, in_flight=frozenset(self.held)))


@settings(max_examples=4 * settings.default.max_examples, suppress_health_check=list(HealthCheck))
@given(st.lists(rows, min_size=4, max_size=10), events)
def test_a_queue_decides_what_a_new_one_with_the_same_rows_decides(there, happened) -> None:
    both = Both()
    for one in there:
        both.put(one)
    for name, what in happened:
        getattr(both, name)(what)
    both.ask()


KADIKOY = directory()
FOOD_SEVEN: dict[str, Any] = {"food_id": 7, "restaurant_id": RESTAURANT}


def queue_of(*rows: OutboxRow, known: Directory = KADIKOY) -> Queue:
    queue = Queue(view(directory=known))
    for one in rows:
        queue.put(one)
    return queue


def ended(queue: Queue) -> list[int]:
    return [one.id for one, _ in queue.ends()]


def taken(queue: Queue, may_leave: bool = True) -> list[int]:
    queue.ends()
    return [one.row.id for one in queue.accounts.take(9, Counter(), 9, lambda _: True, lambda _: may_leave)]


def standing(queue: Queue, row_id: int) -> Standing:
    return queue.get(row_id).standing


def test_a_taken_row_is_in_flight_until_it_is_given_back() -> None:
    queue = queue_of(row(Action.ACCEPT, 1), unresolved(Action.OPEN_RESTAURANT, 2, next_attempt_utc=NOW + SECOND))
    assert (standing(queue, 1), standing(queue, 2), queue.unresolved) == (Standing.WAITING, Standing.UNRESOLVED, {2})
    assert taken(queue, may_leave=False) == [], "it is offered again"
    assert (taken(queue), queue.in_flight(), taken(queue)) == ([1], {1}, [])
    queue.give_back(1, state=ActionState.SENDING, tried=True)
    assert (standing(queue, 1), queue.in_flight(), queue.unresolved) == (Standing.UNRESOLVED, frozenset(), {1, 2})


def test_a_postponed_row_is_released_at_its_time() -> None:
    one = row(Action.ACCEPT, 1)
    queue = queue_of(one)
    queue.put_aside(1, 5.0)
    assert (taken(queue), queue.next_release(), queue.release_due(4.9)) == ([], 5.0, [])
    assert (queue.release_due(5.0), taken(queue)) == ([1], [1])
    queue = queue_of(one)
    queue.put_aside(1, 5.0)
    queue.drop(1)
    queue.put(one)
    assert taken(queue) == [1]
    queue.release_due(6.0)
    assert standing(queue, 1) is Standing.ON_THE_WIRE, "it was put in anew"


def test_a_postponed_end_stays_an_end_and_supersedes_nothing() -> None:
    queue = queue_of(row(Action.ACCEPT, 1), row(Action.CANCEL, 2, withdraw=True))
    assert ended(queue) == [2]
    queue.put_aside(2, 5.0)
    assert (standing(queue, 2), ended(queue), taken(queue)) == (Standing.ENDING, [], [1])
    queue.release_due(5.0)
    assert ended(queue) == [2]


def test_a_row_put_again_counts_as_seen() -> None:
    queue, one = queue_of(), row(Action.ACCEPT, 1)
    queue.put(one, 7)
    queue.put(replace(one, withdraw=True))
    assert (queue.get(1).row.withdraw, queue.get(1).seen) == (True, 7)


def test_a_row_that_is_about_to_end_supersedes_no_other() -> None:
    queue = queue_of(row(Action.DEACTIVATE_FOOD, 1))
    assert taken(queue) == [1]
    queue.put(row(Action.DEACTIVATE_FOOD, 2, withdraw=True))
    assert ended(queue) == [2]  # a till holds it: that is not written yet
    queue.give_back(1, next_attempt_utc=NOW)
    assert ended(queue) == []


@pytest.mark.parametrize("comes_after", [False, True], ids=["before its menu is known", "after"])
def test_no_row_overtakes_one_that_is_held_in_the_former_lane(comes_after: bool) -> None:
    """A list shows that another account reaches the restaurant first."""
    before = directory("besiktas", "kadikoy", reach={RESTAURANT: ["kadikoy"]}, complete=False)
    after = directory("besiktas", "kadikoy", reach={RESTAURANT: ["besiktas", "kadikoy"]})
    queue = queue_of(row(Action.DEACTIVATE_FOOD, 1, **FOOD_SEVEN), known=before)
    assert taken(queue) == [1]
    if comes_after:
        queue.direct(after)
    queue.put(row(Action.ACTIVATE_FOOD, 2, **FOOD_SEVEN))
    if not comes_after:
        queue.direct(after)
    assert (ended(queue), queue.accounts.rows("besiktas")) == ([], [])
    queue.give_back(1, state=ActionState.SENDING, tried=True, next_attempt_utc=NOW)
    assert ended(queue) == [1], "the newer row takes its place"
    queue.drop(1)
    queue.ends()
    assert [(one.row.id, one.account) for one in queue.accounts.rows("besiktas")] == [(2, "besiktas")]


def test_a_row_in_flight_at_the_end_of_its_closure_is_due_once() -> None:
    queue = queue_of(row(Action.CLOSE_RESTAURANT, 1, valid_until_minutes=15, created_utc=NOW))
    assert taken(queue) == [1]
    queue.view.now += timedelta(minutes=16)
    assert ended(queue) == [] and queue.due() > queue.view.now


def test_a_row_that_waits_is_due_at_once_when_the_clock_was_set_far_back() -> None:
    queue = queue_of(row(Action.COMPLETE, 1, next_attempt_utc=NOW + 30 * SECOND))
    assert (ended(queue), taken(queue)) == ([], [])
    queue.view.now -= timedelta(hours=2)
    queue.review_all()
    assert (ended(queue), taken(queue)) == ([], [1])


def test_one_account_takes_no_more_slots_than_allowed() -> None:
    foods = enumerate(("kadikoy", "kadikoy", "besiktas"), 1)
    rows = [row(Action.DEACTIVATE_FOOD, number, food_id=number, account=account) for number, account in foods]
    queue = queue_of(*rows, known=directory("kadikoy", "besiktas"))
    assert ended(queue) == []
    assert [one.row.id for one in queue.accounts.take(3, Counter(), 1, lambda _: True, lambda _: True)] == [1, 3]
