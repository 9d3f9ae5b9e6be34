"""Lanes: what concerns one order, one food or one restaurant goes one after another (promises 2 and 5).

A lane is what only one request at a time may concern: an order, by its payment_key; a restaurant; a food of one
account's menu, because the same number on another menu is another food. Different lanes know nothing of each other, so
all of them go side by side.

Why. The service answers 200 to whatever it can do, in the order in which it hears of it: an accept that overtakes a
cancel is cooked, a "sold out" that overtakes an "on sale" stays. And an acknowledgement names no status: it marks
whatever the order has at that moment as seen. Were an action to change the order between the list that we stored and
the acknowledgement of it, the service would never show us what came of it.

Who takes a lane:

    a row of the outbox    from being taken out of the queue until its verdict, or its next try, is on disk
    an acknowledgement     from the moment its list is read, before the order is stored, until it is answered or dropped
    the end of an order's  while it is written, if the row was sent: a list that is being taken in must not see it
    unresolved row         end halfway
    a poll                 while it resolves an unresolved row of an order that its list lacks

Between them a lane is free, also while a row of it waits for its next try: the queue keeps the rows of a lane in their
order by itself (rules.queue), and an acknowledgement may go first.

What may overtake. Of the rows of a lane nothing may: not a row that waits for its retry, not one whose outcome is
unknown. A cancel ends an earlier accept or on_the_way that is not on the wire, and the newest of several toggles the
others (rules.outbox_rows): that is superseding, the older row does not leave at all. An acknowledgement goes before every
row that waits. Between lanes, orders go before restaurants and foods (rules.queue).

A list is older than its arrival. What an action did after the list was made, the list cannot show; so a poll's word
about an order counts only if no action of it was on the wire, or unresolved, at any moment since the poll began. Moments
are counted, not measured: "used since the poll began" is a comparison of two numbers, and no clock that is set can
spoil it.
"""

from orderbridge.rules.outbox_rows import Lane, order_lane


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

    @property
    def polls(self) -> int:
        """How many polls are under way."""
        return len(self._polls)

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
        """The lanes that are held now."""
        return frozenset(self._taken)

    def hold_for_poll(self, payment_key: str, began: int) -> bool:
        """Take an order's lane for an acknowledgement, if no action was on the wire since the poll began."""
        lane = order_lane(payment_key)
        return self._used.get(lane, 0) < began and self.take(lane)
