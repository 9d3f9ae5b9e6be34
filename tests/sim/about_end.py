"""Promises 1 and 2 at the end: the tables against the truth."""

from typing import Any

from tests.sim.judge import Judge
from tests.sim.line import Call
from tests.sim.reading import status_in

from orderbridge_sandbox.state import Order


class TruthAtTheEnd(Judge):
    """At the end the tables have the truth: each order once, and its status. A wrong verdict leaves a wrong status."""

    promise = "1, 2 and 6"

    def __init__(self) -> None:
        self._failed: list[Call] = []  # lists that the database could not store
        self._unwritten: set[str] = set()  # orders that the database did not let a verdict update
        # Orders that neither the tables nor quarantine took: reported and not acknowledged.
        self._unstored: set[str] = set()

    def logged(self, _: str, event: str, facts: dict[str, Any], __: str) -> None:
        if event == "action.order_not_written":
            self._unwritten.add(facts["payment_key"])
        if event == "job.database_failed":
            polls = [call for call in self.sim.calls if call.operation == "get_current"]
            self._failed += [call for call in polls if facts["job"] == f"poll {call.account}"][-1:]
        if event in {"order.lost_sight_of", "order.not_stored"}:
            self._unstored.add(facts["payment_key"])

    def finish(self) -> None:
        unknown = {
            row["payment_key"]
            for row in self.rows("SELECT * FROM delivery_actions")
            if row["state"] == "failed" or (row["known_by"] == "refusal" and self._was_refused_by_others(row["id"]))
        }
        for key, order in self.sim.world.orders.items():
            if isinstance(order.placed.get("payment_key"), str) and len(key) == 36:
                self._check_order(order, uncertain=key in unknown)

    def _was_refused_by_others(self, row: int) -> bool:
        """Whether the deciding refusal was injected, which the daemon cannot know."""
        return any(call.row == row and call.outcome == "no" and not call.whole for call in self.sim.calls)

    def _check_order(self, order: Order, *, uncertain: bool) -> None:
        stored = self.rows("SELECT * FROM delivery_orders WHERE payment_key = ?", order.key)
        lists = [
            call
            for call in self.sim.calls
            if call.operation == "get_current"
            and call.whole
            and call.status == 200
            and call.reached
            and any(key == order.key for key, _ in call.reached.delivered)
        ]
        if len(stored) != 1:
            completed_elsewhere = order.status_id == 5 and order.history[-1].by != "pos"
            acknowledged = any((call.operation, call.argument) == ("acknowledge", order.key) for call in self.sim.calls)
            cut_off = not acknowledged and all(
                one in self._failed or self._was_the_last_of_its_life(one) for one in lists
            )
            unstored = order.key in self._unstored or cut_off
            # A clock that was set ahead may be believed for two days, which a retention of one day exceeds.
            blanked = "SELECT 1 FROM delivery_quarantine WHERE payment_key = ? AND payload = ''"
            if self.sim.jumped_since(0.0) and self.rows(blanked, order.key):
                return
            if order.status_id != 5 or (lists and not (completed_elsewhere and unstored)):
                self.broken(f"delivery_orders has order {order.key} {len(stored)} times")
            return
        events = self.rows(
            "SELECT 1 FROM delivery_order_events WHERE payment_key = ? AND event = 'received'", order.key
        )
        if len(events) != 1:
            self.broken(f"order {order.key} was received {len(events)} times")
        if (
            stored[0]["status_id"] == (order.status_id if len(order.history) > 1 else status_in(order.document))
            or uncertain
        ):
            return
        if order.status_id == 5 and (order.history[-1].by != "pos" or order.key in self._unwritten):
            return  # completed orders are not delivered
        if self._changed_between(order):
            return
        self.broken(f"order {order.key} is {order.status_id}, and {stored[0]['status_id']} is stored")

    def _was_the_last_of_its_life(self, poll: Call) -> bool:
        """Whether the daemon crashed before the account's next poll: unacknowledged orders need not be stored then."""
        return not any(
            call.operation == "get_current" and (call.account, call.life) == (poll.account, poll.life)
            for call in self.sim.calls
            if call.number > poll.number
        )

    def _changed_between(self, order: Order) -> bool:
        """Whether it was changed elsewhere between list and acknowledgement, which the interface hides."""
        for call in self.sim.calls:
            if call.operation == "acknowledge" and call.argument == order.key and call.reached and call.reached.effect:
                answers = [
                    c
                    for c in self.sim.calls
                    if c.operation == "get_current"
                    and c.account == call.account
                    and c.number < call.number
                    and c.reached
                    and c.whole
                ]
                listed = dict(answers[-1].reached.delivered).get(order.key) if answers and answers[-1].reached else None
                if listed != call.reached.status_before:
                    return True
        return False
