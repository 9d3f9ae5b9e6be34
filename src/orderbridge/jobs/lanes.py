"""Lanes serialize the requests about one order, one food or one restaurant (promises 2 and 5).

A lane belongs to an order (by payment_key), to a restaurant, or to a food of one account's menu; the same food number
on another menu is another food. Requests of one lane are sent one after another, requests of different lanes in
parallel.

Why: the marketplace executes requests in the order of their arrival. If an accept overtook a cancel, the order would be
cooked; if "sold out" overtook "on sale", the food would stay sold out. And an acknowledgement names no status: it marks
the order's current status as seen. If an action changed the order between the list that we stored and its
acknowledgement, the marketplace would never show us the result.

Holders of a lane:

    an outbox row          from leaving the queue until its verdict, or its next try, is on disk
    an acknowledgement     from reading its list, before the order is stored, until it is answered or dropped
    the end of an order's  while it is written, so that the storing of a list does not see half of it
    unresolved row
    a poll                 while it resolves an unresolved row of an order that its list lacks

In between, the lane is free, even while one of its rows waits for its next try: the queue keeps the rows of a lane in
order (rules.queue), and an acknowledgement may go first.

No row of a lane overtakes another, even if the first waits for a retry or its outcome is unknown. But a later row may
supersede an earlier one, which is then not sent: a cancel supersedes an accept or on_the_way that is not in flight,
and the newest of several toggles supersedes the others (rules.outbox_rows). Among lanes, orders go before restaurants
and foods (rules.queue).

A list cannot show what an action did after the list was made. So the status in a poll counts only if no action of the
order was in flight or unresolved since the poll began. These moments are numbers from a counter, not times, so that a
change of the clock cannot disturb the comparison.
"""

from orderbridge.rules.outbox_rows import Lane, order_lane


class Lanes:
    """The lanes that are held. Used by the event loop only; nothing here waits."""

    def __init__(self) -> None:
        self._moment = 0
        self._taken: set[Lane] = set()
        self._used: dict[Lane, int] = {}  # moment at which an action of the lane was last in flight
        self._polls: set[int] = set()  # moments at which the running polls began

    def begin_poll(self) -> int:
        """Note the beginning of a poll and return its moment, for `end_poll`."""
        began = self._stamp()
        self._polls.add(began)
        return began

    def end_poll(self, began: int) -> None:
        """End a poll, and forget the moments that no running poll needs."""
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
        """Take the lane. Returns False if it is held."""
        if lane in self._taken:
            return False
        self._taken.add(lane)
        return True

    def free(self, lane: Lane) -> None:
        """Release the lane after an acknowledgement, or when nothing was sent."""
        self._taken.discard(lane)

    def free_after_action(self, lane: Lane) -> None:
        """Release the lane after a row's verdict is written. Polls that began before do not count for it."""
        self.touch(lane)
        self._taken.discard(lane)

    def touch(self, lane: Lane) -> None:
        """Note that an action of the lane was resolved. Polls that began before do not count for it."""
        self._used[lane] = self._stamp()

    def taken(self) -> frozenset[Lane]:
        """The lanes that are held now."""
        return frozenset(self._taken)

    def hold_for_poll(self, payment_key: str, began: int) -> bool:
        """Take an order's lane for an acknowledgement. Fails if an action was in flight since the poll began."""
        lane = order_lane(payment_key)
        return self._used.get(lane, 0) < began and self.take(lane)
