"""Lanes: one request at a time; a polled status counts only if none of our actions ran meanwhile."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from orderbridge.jobs.lanes import Lanes
from orderbridge.rules.outbox_rows import order_lane

ONE, OTHER = "order-1", "order-2"


def act(lanes: Lanes, key: str) -> None:
    """An action of this order goes out and is answered."""
    assert lanes.take(order_lane(key))
    lanes.free_after_action(order_lane(key))


def test_an_order_a_restaurant_and_a_food_with_the_same_id_have_three_lanes() -> None:
    lanes, taken = Lanes(), []
    for lane in (("order", "1"), ("restaurant", "1"), ("food kadikoy", "1")):
        assert lanes.take(lane)
        taken.append(lanes.taken())
    assert [len(one) for one in taken] == [1, 2, 3]


def test_stamps_older_than_every_poll_are_dropped() -> None:
    lanes = Lanes()
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
    """Any sequence of polls, acknowledgements and actions of two orders."""

    polls = Bundle("polls")
    keys = st.sampled_from([ONE, OTHER])

    def __init__(self) -> None:
        super().__init__()
        self.lanes = Lanes()
        self.in_flight: set[str] = set()
        self.acknowledging: set[str] = set()
        self.touched: dict[int, set[str]] = {}  # by poll under way: the orders with an action since it began

    @rule(target=polls)
    def begin_poll(self) -> int:
        began = self.lanes.begin_poll()
        self.touched[began] = set(self.in_flight)
        return began

    @rule(began=consumes(polls))
    def end_poll(self, began: int) -> None:
        self.lanes.end_poll(began)
        del self.touched[began]

    @rule(key=keys)
    def send(self, key: str) -> None:
        is_free = key not in self.in_flight | self.acknowledging
        assert self.lanes.take(order_lane(key)) is is_free
        if is_free:
            self.in_flight.add(key)
            for touched in self.touched.values():
                touched.add(key)

    @rule(key=keys)
    def answered(self, key: str) -> None:
        if key in self.in_flight:
            self.in_flight.remove(key)
            self.lanes.free_after_action(order_lane(key))

    @rule(began=polls, key=keys)
    def hold(self, began: int, key: str) -> None:
        counts = key not in self.in_flight | self.acknowledging | self.touched[began]
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
        assert self.lanes.taken() == {order_lane(key) for key in self.in_flight | self.acknowledging}


TestAnyStory = LanesBesideAMemoryThatForgetsNothing.TestCase
TestAnyStory.settings = settings(max_examples=min(50, settings.default.max_examples))
