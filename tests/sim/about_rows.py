"""Judges promises 4 to 6: each row of the outbox ends, in order, and nothing is sent twice."""

import sqlite3
from datetime import datetime, timedelta

from tests.jobs.shop import FINAL, START
from tests.sim.bounds import ACCEPT_VALID_MINUTES, LOOKED_UP_S, MINUTE, UNREAD_S, VALID_MINUTES
from tests.sim.judge import CLAIM_S, NOT_OURS, UNDISTURBED_S, Judge, account_of, in_one_lane, is_on_menu, past_its_time
from tests.sim.line import FOOD_OPERATIONS, ORDER_OPERATIONS, TARGET, Call

from orderbridge.jobs.audit import LaneUse, lane_violation
from orderbridge.rules.outbox_rows import NOT_PERMITTED
from orderbridge.rules.tokens import REFUSAL_WAITS

EXPIRES_WITHIN_S = 100.0  # with a till that locks the file, a slow disk, and a slow outbox cycle
LOOK_EVERY, LOOK_FOR_FORGOTTEN = 20, 4  # ticks
OF_ATTEMPTS = "attempts withdraw next_attempt_utc finished_utc error_code known_by http_status".split()
A_MOMENT_S = 0.002  # times have three decimals
ON_THE_WIRE = (
    "SELECT a.*, t.started_utc FROM delivery_actions a JOIN delivery_action_attempts t ON t.action_id = a.id"
    " WHERE a.id = ? AND t.finished_utc IS NULL"
)


class RowsEnd(Judge):
    """Every row ends with a text for the cashier; none disappears, and no end is changed."""

    promise = "4"

    def __init__(self) -> None:
        self._ends: dict[int, str] = {}
        # By row: since when it is overdue, and in which run of the daemon.
        self._too_old: dict[int, tuple[float, int]] = {}

    def leaving(self, call: Call) -> None:
        """A row that waits, and has had no effect, leaves before it expires."""
        if call.row is None or any(one.counts for one in self.tries(call.row)[:-1]) or self.lost_an_answer(call.row):
            return
        (row,) = self.rows(ON_THE_WIRE, call.row)
        over = past_its_time(row, self.sim.clock.now(), waited=True) - self.seconds_since(row["started_utc"])
        shaky = self.sim.plan.slow_disk or self.sim.plan.locks or self.sim.plan.replicas
        if over > (CLAIM_S if shaky else 1.0) and not self.jumped_since_written(call.row):
            self.broken(f"#{call.number} sends row {call.row}, which expired {over:.0f} s ago")

    def tick(self) -> None:
        self._look_for_expired()
        if self.sim.ticks % LOOK_EVERY == 0:
            self.restarted()
        # An order's document without a key looks as if it were missing.
        if self.sim.ticks % LOOK_FOR_FORGOTTEN == 0 and not self.sim.plan.poison:
            self._look_for_forgotten()

    def _look_for_expired(self) -> None:
        """A pending or unresolved row ends when it expires, also while the line is broken."""
        life = self.sim.life.number if self.sim.life else 0
        waiting = self.rows("SELECT * FROM delivery_actions WHERE state IN ('pending', 'sending')")
        begun = "SELECT 1 FROM delivery_action_attempts WHERE action_id = ? AND finished_utc IS NULL"
        before, self._too_old = self._too_old, {}
        if self.sim.technician.is_refusing:
            return
        for row in waiting:
            on_the_wire = row["state"] == "sending" and self.rows(begun, row["id"])
            if past_its_time(row, self.sim.clock.now()) <= 0 or on_the_wire:
                continue
            since, there = before.get(row["id"], (self.sim.now(), life))
            if there == life:
                self._too_old[row["id"]] = since, life
                if self.sim.now() - since > EXPIRES_WITHIN_S:
                    self.broken(f"row {row['id']} ({row['action']}) has expired, and its state is {row['state']}")

    def _look_for_forgotten(self) -> None:
        """A row is sent, sent again or looked up as soon as the line works."""
        for row in self.rows("SELECT * FROM delivery_actions WHERE state IN ('pending', 'sending')"):
            account = account_of(self.sim, row) or ""
            quiet_since = self.sim.disturbed.get(account, self.sim.now())
            waits = self.sim.now() - max(quiet_since, self.sim.till.written.get(row["id"], self.sim.now()))
            longest = UNDISTURBED_S + (REFUSAL_WAITS[-1] if row["error_code"] == NOT_PERMITTED else 0.0)
            if waits > longest and account not in self.sim.refused:
                self.broken(f"row {row['id']} ({row['action']}) is still {row['state']}, although the line works")

    def retried(self, row: int) -> None:
        """It waits as if it was written now."""
        self._ends.pop(row, None)
        found = self.row(row)
        left = [name for name in OF_ATTEMPTS if found[name]]
        minutes = found["valid_minutes"] or (ACCEPT_VALID_MINUTES if found["action"] == "accept" else VALID_MINUTES)
        if left or abs(past_its_time(found, self.sim.clock.now()) + minutes * MINUTE) > 1.0:
            self.broken(f"row {row} is retried until {found['expires_utc']}, and still has {left}")

    def restarted(self) -> None:
        if not self.sim.till.written:
            return
        states = {row["id"]: row["state"] for row in self.rows("SELECT id, state FROM delivery_actions")}
        for row in self.sim.till.written:
            if row not in states:
                self.broken(f"row {row} has disappeared")
        for row, end in self._ends.items():
            if states.get(row) != end:
                self.broken(f"row {row} had ended as {end}, and now is {states.get(row)}")
        self._ends = {row: state for row, state in states.items() if state in FINAL}

    def finish(self) -> None:
        """All rows have ended; the audit finds an end without code, proof or time."""
        self.restarted()
        for row in self.rows("SELECT * FROM delivery_actions"):
            if self.sim.till.written.get(row["id"], 0.0) >= self.sim.stopping_at:
                continue
            if row["state"] not in FINAL:
                self.broken(f"row {row['id']} ({row['action']}) is {row['state']}")


class LaneOrder(Judge):
    """A lane has one request at a time, and its rows are sent in the order of their ids: the audit's rule, on the wire.

    The audit knows only the tables. They have no acknowledgements, which use the lane of their order, and no times of
    commits, so the audit excuses rows of the last minute. Here both are known.
    """

    promise = "5"

    def __init__(self) -> None:
        self._flying: dict[tuple[str, str], Call] = {}

    def leaving(self, call: Call) -> None:
        lane = call.held_lane
        if lane is None:
            return
        flying = self._flying.get(lane)
        if flying is not None and not flying.ended and not self._is_unheard(flying):
            self.broken(f"#{call.number} leaves while #{flying.number} of the same lane is on the wire")
        self._flying[lane] = call
        if call.lane is not None:
            self._find_row(call)
        if call.row is not None:
            self.sim.of_row[call.row].append(call)
            self._check_turn(call)

    def _check_turn(self, call: Call) -> None:
        of_lane = {row for row, calls in self.sim.of_row.items() if any(one.lane == call.lane for one in calls)}
        rows = {row: self.tries(row) for row in of_lane}
        turns = {row: turn for row, calls in rows.items() if (turn := self._turn(row, calls)) is not None}
        for row in turns.keys() - {call.row}:
            older, newer = sorted((row, call.row or 0))
            if code := lane_violation(turns[older], turns[newer]):
                other = rows[row][-1].number
                self.broken(f"#{call.number} of row {call.row}, #{other} of row {row} in one lane: {code}")

    def _turn(self, row: int, calls: list[Call]) -> LaneUse | None:
        """When a row uses its lane; None if no request of the row can have had an effect."""
        counted = [call for call in calls if call.counts]
        if not counted:
            return None
        end = max(call.ended_at if call.ended else call.left_at for call in counted)
        visible = self.sim.till.written.get(row, 0.0) + CLAIM_S
        return LaneUse(_moment(counted[0].left_at), _moment(end), _moment(visible))

    def _is_unheard(self, call: Call) -> bool:
        """Whether only a paused replica waits for the answer, which its successor cannot know."""
        fleet = self.sim.fleet
        if fleet is None:
            return False
        return any(life.process == call.process and fleet.is_paused(life) for life in self.sim.processes)

    def _find_row(self, call: Call) -> None:
        """Find the row of a request: the one that is claimed and not on the wire yet."""
        marked = (
            "SELECT a.* FROM delivery_actions a JOIN delivery_action_attempts t"
            f" ON t.action_id = a.id WHERE a.{call.column} = ? AND a.state = 'sending' AND t.finished_utc IS NULL"
        )
        account = next((a for a in self.sim.world.scenery.accounts if a.name == call.account), None)
        flying = {other.row for other in self._flying.values() if not other.ended and other is not call}
        of_lane = [
            row
            for row in self.rows(marked, call.argument)
            if row["action"] in _TOGETHER[call.column]
            and row["id"] not in flying
            and (call.operation not in FOOD_OPERATIONS or is_on_menu(account, row))
        ]
        if len(of_lane) > 1:  # two accounts reach one restaurant, and their rows were claimed together
            of_lane = [row for row in of_lane if account_of(self.sim, row) == call.account]
        if len(of_lane) != 1 or of_lane[0]["action"] != call.operation:
            self.broken(f"#{call.number} {call.operation} left, and no row is in the state sending for it")
            return
        call.row = of_lane[0]["id"]


def _moment(second: float) -> datetime:
    return START + timedelta(seconds=second)


_TOGETHER = {
    "payment_key": ORDER_OPERATIONS,
    "restaurant_id": {"open_restaurant", "close_restaurant"},
    "food_id": {"activate_food", "deactivate_food"},
}


class LookedUpFirst(Judge):
    """After an unknown outcome a list comes before an accept is sent again."""

    promise = "6"

    def leaving(self, call: Call) -> None:
        before = self.tries(call.row)[:-1] if call.operation in {"accept", "on_the_way"} else ()
        if not before or not (before[-1].ended in {"given_up", "reset"} or before[-1].status in {502, 504}):
            return
        last, waited = before[-1], self.sim.now() - before[-1].ended_at
        polls = [one for one in self.sim.calls[last.number :] if one.operation == "get_current"]
        # A list that is cut, of one status, or with a keyless document would not show each order.
        looks = [one for one in polls if one.account == last.account and one.is_heard and one.left_at >= last.ended_at]
        is_looked_up = any(
            call.argument in one.documents or not (one.argument or one.bad or one.is_cut) for one in looks
        )
        jumped = self.sim.jumped_since(last.ended_at)  # the wait uses the clock
        if not jumped and waited < LOOKED_UP_S and not is_looked_up:
            self.broken(f"#{call.number} sends row {call.row} again after {waited:.1f} s, and no list came between")
        poll = next((one for one in reversed(polls) if one.account == call.account), None)
        if poll is not None and not poll.ended and last.ended_at < poll.left_at < self.sim.now() - CLAIM_S:
            self.broken(f"#{call.number} sends row {call.row} again, and poll #{poll.number} may show its effect")


class MayBeSent(Judge):
    """A row that was withdrawn, superseded, or whose order shows its target or has ended, is not sent."""

    promise = "6"

    def __init__(self) -> None:
        self._doubtful: set[int] = set()  # rows that were being sent when the program ended

    def restarted(self) -> None:
        lost = "SELECT id FROM delivery_actions WHERE state = 'sending'"
        self._doubtful |= {row["id"] for row in self.rows(lost)} if self.sim.till.written else set()

    def leaving(self, call: Call) -> None:
        if call.row is None or self.jumped_since_written(call.row):
            return
        (row,) = self.rows(ON_THE_WIRE, call.row)
        shaky = self.sim.plan.slow_disk or self.sim.plan.locks
        claimed_at = self.sim.now() - self.seconds_since(row["started_utc"])
        read_at = claimed_at - (CLAIM_S if shaky else 1.0) - (UNREAD_S if self.sim.plan.slow_disk else 0.0)
        if by := self._replaced(row, call.account, read_at):
            self.broken(f"#{call.number} sends row {row['id']} ({row['action']}), which the newer row {by} supersedes")
        in_doubt = any(one.outcome in {"unknown", "failed"} for one in self.sim.of_row[row["id"]])
        if in_doubt or row["id"] in self._doubtful:  # an earlier request may have succeeded
            return
        if self.sim.till.withdrawn.get(row["id"], claimed_at) < claimed_at - A_MOMENT_S:
            self.broken(f"#{call.number} sends row {row['id']}, which was withdrawn")
        if row["payment_key"] is not None:
            self._check_order(call, row)

    def _replaced(self, row: sqlite3.Row, account: str, read_at: float) -> int | None:
        """The newer row that supersedes this one and existed when the outbox was read."""
        if row["action"] in {"accept", "on_the_way"}:
            column, by = "payment_key", {"cancel"}
        else:
            column = "restaurant_id" if row["action"] in _TOGETHER["restaurant_id"] else "food_id"
            by = _TOGETHER[column] if row["action"] in _TOGETHER[column] else set()
        newer = (
            "SELECT * FROM delivery_actions"
            f" WHERE {column} = ? AND id > ? AND withdraw = 0 AND state IN ('pending', 'sending')"
        )
        for other in self.rows(newer, row[column], row["id"]) if by else []:
            there = self.sim.till.written.get(other["id"], read_at) < read_at
            same = column != "food_id" or in_one_lane(self.sim, row, account, other)
            if other["action"] in by and same and there and past_its_time(other, self.sim.clock.now()) < -CLAIM_S:
                return int(other["id"])
        return None

    def _check_order(self, call: Call, row: sqlite3.Row) -> None:
        order = self.order(row["payment_key"])
        what = f"#{call.number} sends row {row['id']} ({row['action']})"
        if order is None:
            self.broken(f"{what} of an unknown order")
        elif (shown := order["service_status_id"]) in {TARGET[row["action"]], 5, 6}:
            self.broken(f"{what}, and the marketplace had shown the status {shown}")
        elif row["action"] == "on_the_way" and order["courier_type"] in NOT_OURS:
            self.broken(f"{what}, and its courier type is {order['courier_type']}")
