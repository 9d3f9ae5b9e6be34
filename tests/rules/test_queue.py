"""A queue after any history decides the same as a new one with the same rows."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.rules.builders import ARGUMENTS, NOW, RESTAURANT, Plan, directory, plan, row, view

from orderbridge.model import CANCELED, Action, ActionState, OutboxRow, Verdict
from orderbridge.rules.queue import Queue

KEYS = ("5f0c1c9e-0b7a-4c53-9d3b-1f8f4a6c2e10", "a27b6a31-44a0-4c6c-8a55-6e0d7f7f9b02")
SECOND = timedelta(seconds=1)

rows = st.builds(
    lambda number, action, where, ago, changes: row(
        action, number, **where(action), created_utc=NOW - ago * SECOND, **changes
    ),
    st.integers(1, 12),
    st.sampled_from(list(Action)),
    st.sampled_from(
        [
            lambda action: {"payment_key": KEYS[0], "owner": "kadikoy"} if "payment_key" in ARGUMENTS[action] else {},
            lambda action: {"payment_key": KEYS[1], "owner": "kadikoy"} if "payment_key" in ARGUMENTS[action] else {},
            lambda action: {"food_id": 7} if "food_id" in ARGUMENTS[action] else {},
            lambda action: {"restaurant_id": RESTAURANT} if "food_id" in ARGUMENTS[action] else {},
        ]
    ),
    st.sampled_from([0, 1, 30, 300, 550, 599, 700]),
    st.sampled_from(
        [
            {},
            {},
            {},
            {"withdraw": True},
            {"state": ActionState.SENDING, "tried": True},
            {"state": ActionState.SENDING, "tried": True, "next_attempt_utc": NOW + 30 * SECOND},
            {"state": ActionState.SENDING, "tried": False},
            {"next_attempt_utc": NOW + 60 * SECOND},
            {"next_attempt_utc": NOW + timedelta(days=9)},
            {"expires_utc": NOW + 90 * SECOND},
            {"valid_minutes": 1},
            {"valid_minutes": 0},
        ]
    ),
)
events = st.lists(
    st.one_of(
        st.tuples(st.just("put"), rows),
        st.tuples(st.just("drop"), st.integers(1, 12)),
        st.tuples(st.just("take"), st.integers(1, 3)),
        st.tuples(st.just("ask"), st.none()),
        st.tuples(st.just("back"), st.integers(1, 12)),
        st.tuples(st.just("wait"), st.integers(1, 400)),
        st.tuples(st.just("reach"), st.booleans()),
        st.tuples(st.just("ask"), st.none()),
    ),
    min_size=5,
    max_size=30,
)


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
        """It was sent, and waits for a retry."""
        if number in self.held:
            changes: dict[str, Any] = {
                "state": ActionState.SENDING,
                "tried": True,
                "next_attempt_utc": self.moment.now + 5 * SECOND,
            }
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
        """What the two decide at this moment. What ends is over."""
        expected = self._expected()
        ends = {(one.id, verdict.state, verdict.code) for one, verdict in self.queue.ends()}
        assert ends == {(one.id, verdict.state, verdict.code) for one, verdict in expected.verdicts}
        for number, *_ in ends:
            self.drop(number)
        self.queue.ends()
        going = {head.row.id for head in expected.heads}
        accounts = self.queue.accounts
        ready = {one.row.id for account in accounts.names() for one in accounts.rows(account)}
        assert ready == going
        due = expected.due
        if due is not None and due > self.moment.now:
            known = self.queue.due()
            assert known is not None
            assert known <= due

    def take(self, places: int) -> None:
        self.ask()
        taken = self.queue.accounts.take(places, Counter(), places, lambda _: True, lambda _: True)
        self.held |= {entry.row.id for entry in taken}

    def _expected(self) -> Plan:
        rows = [self.rows[number] for number in sorted(self.rows)]
        return plan(rows, replace(self.moment, on_wire=frozenset(self.held)))


@settings(max_examples=4 * settings.default.max_examples, suppress_health_check=list(HealthCheck))
@given(st.lists(rows, min_size=4, max_size=10), events)
def test_a_queue_decides_what_a_new_one_with_the_same_rows_decides(
    there: list[OutboxRow], happened: list[tuple[str, Any]]
) -> None:
    both = Both()
    for one in there:
        both.put(one)
    for name, what in happened:
        getattr(both, name)(what)
    both.ask()


def test_a_row_that_is_put_in_anew_was_seen_all_the_same() -> None:
    queue = Queue(view(directory=directory("kadikoy")))
    one = row(Action.ACCEPT, 1, payment_key=KEYS[0], owner="kadikoy")
    queue.put(one, 7)
    queue.put(replace(one, withdraw=True))
    known = queue.get(1)
    assert known is not None
    assert (known.row.withdraw, known.seen) == (True, 7)


def test_a_row_that_was_sent_by_an_account_that_left_waits_for_its_time() -> None:
    queue = Queue(view(directory=directory("kadikoy", complete=True)))
    sent = {"state": ActionState.SENDING, "tried": True, "next_attempt_utc": NOW}
    queue.put(row(Action.OPEN_RESTAURANT, 1, restaurant_id=RESTAURANT, account="", **sent))
    assert queue.ends() == []
    assert queue.accounts.take(1, Counter(), 1, lambda _: True, lambda _: True) == []


def test_a_row_that_is_about_to_end_supersedes_no_other() -> None:
    queue = Queue(view(directory=directory("kadikoy")))
    older, newer = (row(Action.DEACTIVATE_FOOD, number, food_id=7, account="kadikoy") for number in (1, 2))
    queue.put(older)
    queue.ends()
    queue.accounts.take(1, Counter(), 1, lambda _: True, lambda _: True)
    queue.put(replace(newer, withdraw=True))
    assert [one.id for one, _ in queue.ends()] == [2]  # a till holds it: that is not written yet
    queue.give_back(1, next_attempt_utc=NOW)
    assert queue.ends() == []


def test_a_food_whose_menu_is_not_known_yet_supersedes_none_of_another_restaurant() -> None:
    queue = Queue(view(directory=directory("kadikoy", "besiktas", complete=False)))
    for number, restaurant in enumerate((RESTAURANT, KEYS[0]), 1):
        queue.put(row(Action.DEACTIVATE_FOOD, number, food_id=7, restaurant_id=restaurant))
    assert queue.ends() == []


def test_when_a_menu_becomes_known_no_row_overtakes_one_that_is_held() -> None:
    queue = Queue(view(directory=directory("besiktas", "kadikoy", reach={RESTAURANT: ["kadikoy"]}, complete=False)))
    queue.put(row(Action.DEACTIVATE_FOOD, 1, food_id=7, restaurant_id=RESTAURANT))
    queue.ends()
    queue.accounts.take(1, Counter(), 1, lambda _: True, lambda _: True)
    queue.put(row(Action.ACTIVATE_FOOD, 2, food_id=7, restaurant_id=RESTAURANT))
    queue.direct(directory("besiktas", "kadikoy", reach={RESTAURANT: ["besiktas", "kadikoy"]}))
    assert queue.ends() == []
    queue.give_back(1, state=ActionState.SENDING, tried=True, next_attempt_utc=NOW)
    assert [one.id for one, _ in queue.ends()] == [1], "the newer row takes its place"
    queue.drop(1)
    queue.ends()
    assert [(one.row.id, one.account) for one in queue.accounts.rows("besiktas")] == [(2, "besiktas")]


def test_a_row_that_comes_after_its_menu_is_known_waits_for_one_that_is_held_in_the_former_lane() -> None:
    queue = Queue(view(directory=directory("besiktas", "kadikoy", reach={RESTAURANT: ["kadikoy"]}, complete=False)))
    queue.put(row(Action.DEACTIVATE_FOOD, 1, food_id=7, restaurant_id=RESTAURANT))
    queue.ends()
    queue.accounts.take(1, Counter(), 1, lambda _: True, lambda _: True)
    queue.direct(directory("besiktas", "kadikoy", reach={RESTAURANT: ["besiktas", "kadikoy"]}))
    queue.put(row(Action.ACTIVATE_FOOD, 2, food_id=7, restaurant_id=RESTAURANT))
    queue.ends()
    assert queue.accounts.rows("besiktas") == []
    queue.drop(1)
    queue.ends()
    assert [one.row.id for one in queue.accounts.rows("besiktas")] == [2]


def test_a_row_on_the_wire_at_the_end_of_its_closure_is_not_due_again_and_again() -> None:
    queue = Queue(view(directory=directory("kadikoy", reach={RESTAURANT: ["kadikoy"]})))
    queue.put(row(Action.CLOSE_RESTAURANT, 1, restaurant_id=RESTAURANT, valid_until_minutes=15, created_utc=NOW))
    queue.ends()
    queue.accounts.take(1, Counter(), 1, lambda _: True, lambda _: True)
    queue.view.now += timedelta(minutes=16)
    assert queue.ends() == []
    due = queue.due()
    assert due is not None
    assert due > queue.view.now


def test_an_order_ends_the_row_that_goes_first_and_no_other() -> None:
    queue = Queue(view(directory=directory("kadikoy")))
    sent, waiting = (row(Action.CANCEL, 1, state=ActionState.SENDING), row(Action.COMPLETE, 2))
    for one in (sent, waiting):
        queue.put(replace(one, service_status_id=CANCELED))
    assert queue.ends() == []
    queue.drop(1)
    assert queue.ends() == [
        (replace(waiting, service_status_id=CANCELED), Verdict(ActionState.REFUSED, "order_cancelled"))
    ]


def test_a_row_of_an_unknown_order_ends_and_one_that_was_sent_waits_for_its_order() -> None:
    queue = Queue(view(directory=directory("kadikoy")))
    unknown = row(Action.ACCEPT, 1, owner=None)
    queue.put(unknown)
    queue.put(row(Action.ACCEPT, 2, owner=None, payment_key=KEYS[1], state=ActionState.SENDING, next_attempt_utc=NOW))
    assert queue.ends() == [(unknown, Verdict(ActionState.REFUSED, "order_unknown"))]
    assert queue.accounts.take(2, Counter(), 2, lambda _: True, lambda _: True) == []


def test_a_row_that_may_not_leave_now_is_offered_again() -> None:
    queue = Queue(view(directory=directory("kadikoy")))
    queue.put(row(Action.ACCEPT, 1))
    assert queue.ends() == []
    assert queue.accounts.take(1, Counter(), 1, lambda _: True, lambda _: False) == []
    assert [entry.row.id for entry in queue.accounts.take(1, Counter(), 1, lambda _: True, lambda _: True)] == [1]


def test_one_account_takes_no_more_places_than_it_may() -> None:
    queue = Queue(view(directory=directory("kadikoy", "besiktas")))
    for number, account in enumerate(("kadikoy", "kadikoy", "besiktas"), 1):
        queue.put(row(Action.DEACTIVATE_FOOD, number, food_id=number, account=account))
    assert queue.ends() == []
    taken = queue.accounts.take(3, Counter(), 1, lambda _: True, lambda _: True)
    assert [entry.row.id for entry in taken] == [1, 3]
