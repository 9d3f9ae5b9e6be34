"""Lanes: one at a time, and a poll's word about an order counts only when nothing of ours came in between."""

from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from orderbridge.jobs.lanes import Lanes
from orderbridge.rules.outbox_rows import Lane, order_lane

ONE, OTHER = "order-1", "order-2"


@pytest.fixture
def lanes() -> Lanes:
    return Lanes()


def act(lanes: Lanes, key: str) -> None:
    """An action of this order goes out and is answered."""
    assert lanes.take(order_lane(key))
    lanes.free_after_action(order_lane(key))


def test_a_lane_is_taken_by_one_at_a_time(lanes: Lanes) -> None:
    assert lanes.take(order_lane(ONE))
    assert not lanes.take(order_lane(ONE))
    assert lanes.take(order_lane(OTHER))


@pytest.mark.parametrize("give_back", [Lanes.free, Lanes.free_after_action], ids=["unused", "after an action"])
def test_a_lane_that_is_given_back_can_be_taken_again(lanes: Lanes, give_back: Callable[[Lanes, Lane], None]) -> None:
    lanes.take(order_lane(ONE))
    give_back(lanes, order_lane(ONE))
    assert lanes.taken() == frozenset()
    assert lanes.take(order_lane(ONE))


def test_an_order_a_restaurant_and_a_food_of_one_name_are_three_lanes(lanes: Lanes) -> None:
    assert all(lanes.take(lane) for lane in [("order", "1"), ("restaurant", "1"), ("food kadikoy", "1")])


def test_what_is_taken_is_told_as_of_now(lanes: Lanes) -> None:
    lanes.take(order_lane(ONE))
    before = lanes.taken()
    lanes.take(order_lane(OTHER))
    assert before == {order_lane(ONE)}
    assert lanes.taken() == {order_lane(ONE), order_lane(OTHER)}


def test_giving_back_what_nobody_took_is_nothing(lanes: Lanes) -> None:
    lanes.free(order_lane(ONE))
    assert lanes.take(order_lane(ONE))


def test_a_poll_holds_an_order_that_nobody_touched(lanes: Lanes) -> None:
    began = lanes.begin_poll()
    assert lanes.hold_for_poll(ONE, began)
    assert lanes.taken() == {order_lane(ONE)}


def test_a_poll_does_not_hold_an_order_whose_action_is_on_the_wire(lanes: Lanes) -> None:
    began = lanes.begin_poll()
    lanes.take(order_lane(ONE))
    assert not lanes.hold_for_poll(ONE, began)


def test_a_poll_that_leaves_while_an_action_is_on_the_wire_does_not_count(lanes: Lanes) -> None:
    lanes.take(order_lane(ONE))
    began = lanes.begin_poll()
    lanes.free_after_action(order_lane(ONE))
    assert not lanes.hold_for_poll(ONE, began)


def test_a_poll_during_which_an_action_came_and_went_does_not_count(lanes: Lanes) -> None:
    began = lanes.begin_poll()
    act(lanes, ONE)
    assert not lanes.hold_for_poll(ONE, began)
    assert lanes.taken() == frozenset(), "an order that is not held must not stay taken"


def test_a_poll_that_begins_after_an_action_counts(lanes: Lanes) -> None:
    act(lanes, ONE)
    assert lanes.hold_for_poll(ONE, lanes.begin_poll())


def test_an_action_of_another_order_is_no_hindrance(lanes: Lanes) -> None:
    began = lanes.begin_poll()
    act(lanes, OTHER)
    assert lanes.hold_for_poll(ONE, began)


def test_an_acknowledgement_is_no_action(lanes: Lanes) -> None:
    began = lanes.begin_poll()
    assert lanes.hold_for_poll(ONE, began)
    lanes.free(order_lane(ONE))
    assert lanes.hold_for_poll(ONE, began)


def test_another_poll_that_ends_forgets_nothing_that_a_poll_under_way_must_know(lanes: Lanes) -> None:
    slow = lanes.begin_poll()
    act(lanes, ONE)
    quick = lanes.begin_poll()
    lanes.end_poll(quick)
    assert not lanes.hold_for_poll(ONE, slow)


def test_what_no_poll_can_ask_for_any_more_is_forgotten(lanes: Lanes) -> None:
    slow, quick = lanes.begin_poll(), lanes.begin_poll()
    act(lanes, ONE)
    late = lanes.begin_poll()
    act(lanes, OTHER)
    lanes.end_poll(slow)
    lanes.end_poll(quick)
    assert set(lanes._used) == {order_lane(OTHER)}
    lanes.end_poll(late)
    assert lanes._used == {}


class LanesBesideAMemoryThatForgetsNothing(RuleBasedStateMachine):
    """Any story of polls, acknowledgements and actions of two orders."""

    polls = Bundle("polls")
    keys = st.sampled_from([ONE, OTHER])

    def __init__(self) -> None:
        super().__init__()
        self.lanes = Lanes()
        self.on_wire: set[str] = set()
        self.acknowledging: set[str] = set()
        self.touched: dict[int, set[str]] = {}  # by poll under way: the orders with an action since it began

    @rule(target=polls)
    def begin_poll(self) -> int:
        began = self.lanes.begin_poll()
        self.touched[began] = set(self.on_wire)
        return began

    @rule(began=consumes(polls))
    def end_poll(self, began: int) -> None:
        self.lanes.end_poll(began)
        del self.touched[began]

    @rule(key=keys)
    def send(self, key: str) -> None:
        is_free = key not in self.on_wire | self.acknowledging
        assert self.lanes.take(order_lane(key)) is is_free
        if is_free:
            self.on_wire.add(key)
            for touched in self.touched.values():
                touched.add(key)

    @rule(key=keys)
    def answered(self, key: str) -> None:
        if key in self.on_wire:
            self.on_wire.remove(key)
            self.lanes.free_after_action(order_lane(key))

    @rule(began=polls, key=keys)
    def hold(self, began: int, key: str) -> None:
        counts = key not in self.on_wire | self.acknowledging | self.touched[began]
        assert self.lanes.hold_for_poll(key, began) is counts
        if counts:
            self.acknowledging.add(key)

    @rule(key=keys)
    def acknowledged(self, key: str) -> None:
        if key in self.acknowledging:
            self.acknowledging.remove(key)
            self.lanes.free(order_lane(key))

    @invariant()
    def what_is_taken_is_known(self) -> None:
        assert self.lanes.taken() == {order_lane(key) for key in self.on_wire | self.acknowledging}


TestAnyStory = LanesBesideAMemoryThatForgetsNothing.TestCase
TestAnyStory.settings = settings(deadline=None, max_examples=50)  # a busy machine is no failure
