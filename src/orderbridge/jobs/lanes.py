"""Lanes: what concerns one order, one food or one restaurant goes one after another (promises 2 and 5).

A lane is taken by an acknowledgement or by a row on the wire. Moments are counted, so that "between the sending of
the poll's request and the acknowledgement" is a comparison of numbers and no clock is asked.
"""

from orderbridge.rules.outbox import Lane, order_lane


class Lanes:
    """Who holds which lane. It belongs to the event loop: nothing here waits."""

    def __init__(self) -> None:
        self._moment = 0
        self._taken: set[Lane] = set()
        self._used: dict[Lane, int] = {}  # when an action of the lane was last on the wire
        self._polls: set[int] = set()  # when the polls that are under way began

    def begin_poll(self) -> int:
        """The moment at which a poll begins; `end_poll` takes it back."""
        began = self._stamp()
        self._polls.add(began)
        return began

    def end_poll(self, began: int) -> None:
        """Forget what no poll under way can ask for any more."""
        self._polls.discard(began)
        oldest = min(self._polls, default=self._moment + 1)
        self._used = {lane: used for lane, used in self._used.items() if used >= oldest}

    def _stamp(self) -> int:
        self._moment += 1
        return self._moment

    def take(self, lane: Lane) -> bool:
        """Take the lane; False when it is taken."""
        if lane in self._taken:
            return False
        self._taken.add(lane)
        return True

    def free(self, lane: Lane) -> None:
        """Give the lane back after an acknowledgement, or when nothing was sent."""
        self._taken.discard(lane)

    def free_after_action(self, lane: Lane) -> None:
        """Give the lane back after a row's verdict is written: polls that began before know less than we do."""
        self.touch(lane)
        self._taken.discard(lane)

    def touch(self, lane: Lane) -> None:
        """An action of the lane stopped being unresolved: polls that began before know less than we do."""
        self._used[lane] = self._stamp()

    def taken(self) -> frozenset[Lane]:
        """The lanes that somebody holds, as of now."""
        return frozenset(self._taken)

    def hold_for_poll(self, payment_key: str, began: int) -> bool:
        """Take an order's lane for an acknowledgement, if no action was on the wire since the poll began."""
        lane = order_lane(payment_key)
        return self._used.get(lane, 0) < began and self.take(lane)
