"""Judges promises 1 to 3: storing, acknowledging and polling."""

import sqlite3
from collections import defaultdict

from tests.jobs.shop import COOLDOWN_S, TIMEOUT_S
from tests.sim.bounds import ACKNOWLEDGE_TIMEOUT_S, ACKNOWLEDGE_WITHIN_S
from tests.sim.judge import UNDISTURBED_S, Judge
from tests.sim.line import Call

from orderbridge.rules.cooldown import LIMITED_IN_A_ROW

LATE, FINDING_OUT = 1.1, LIMITED_IN_A_ROW + 1  # cooldowns: of one round, and to find out that accounts share one
A_MOMENT_S = 0.1
BLANK = "SELECT payment_key FROM delivery_orders WHERE payload IS NULL AND ended_utc IS NOT NULL"


class StoredBeforeAcknowledged(Judge):
    """An acknowledgement leaves only after the order and its document were committed, and they stay.

    Retention and `erase` blank ended orders. One of them may be open again before its document is delivered again.
    """

    promise = "1"

    def __init__(self) -> None:
        self._blanked: set[str] = set()

    def committed(self, name: str) -> None:
        if name == "blank_old":
            self.erased()

    def erased(self) -> None:
        self._blanked |= {row["payment_key"] for row in self.rows(BLANK)}

    def connected(self, connection: sqlite3.Connection) -> None:
        synchronous = connection.execute("PRAGMA synchronous").fetchone()[0]
        if synchronous < 2 or connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            self.broken(f"a power loss may lose a commit: synchronous is {synchronous}")

    def leaving(self, call: Call) -> None:
        if call.operation != "acknowledge":
            return
        order = self.sim.world.orders[call.argument]
        stored = self.rows("SELECT payload FROM delivery_orders WHERE payment_key = ?", order.key)
        kept = self.rows("SELECT payload FROM delivery_quarantine WHERE payment_key = ?", order.key)
        if not stored and not kept:
            self.broken(f"#{call.number} acknowledges {order.key}, which is not stored")
        elif (answer := self.sim.lists.get(call.account)) is None or order.key not in answer.documents:
            self.broken(f"#{call.number} acknowledges {order.key}, which was not delivered")
        elif order.key in self._blanked and any(row["payload"] is None for row in stored):
            return
        elif not any(row["payload"] == answer.documents[order.key].text for row in [*stored, *kept]):
            self.broken(f"#{call.number} acknowledges {order.key}, whose document is not stored")

    def finish(self) -> None:
        acknowledged = {key for key, order in self.sim.world.orders.items() if order.acknowledgements}
        if not acknowledged:
            return
        self.erased()
        whole = "SELECT payment_key FROM delivery_orders WHERE payload > ''"
        stored = self._blanked | {row["payment_key"] for row in self.rows(whole)}
        stored |= {row["payment_key"] for row in self.rows("SELECT payment_key FROM delivery_quarantine")}
        if lost := sorted(acknowledged - stored):
            self.broken(f"these orders were acknowledged, and their documents are lost: {lost}")

    restarted = finish


class OnlyDelivered(Judge):
    """Only orders of the latest list are acknowledged, once, in time, with the status that the list showed.

    The audit finds an acknowledgement beside an action that is on the wire or unresolved.
    """

    promise = "2"

    def __init__(self) -> None:
        self._acknowledged: dict[tuple[int, str], list[Call]] = defaultdict(list)
        self._answers: dict[int, Call] = {}  # by acknowledgement: the list that it belongs to
        self._open: list[Call] = []  # acknowledgements on the wire, and some that have ended
        self._unresolved: dict[int, str] = {}
        self._given_up: dict[str, float] = {}  # by order: when its unresolved row ended without answer or list

    def restored(self) -> None:
        self._unresolved.clear()

    def committed(self, name: str) -> None:
        if not self.wrote("delivery_actions"):
            return
        before = self._unresolved
        query = "SELECT id, payment_key FROM delivery_actions WHERE state = 'sending' AND payment_key IS NOT NULL"
        self._unresolved = {row["id"]: row["payment_key"] for row in self.rows(query)}
        for row in before.keys() - self._unresolved.keys():
            ended = self.row(row)
            if ended["known_by"] is None and ended["state"] in {"failed", "superseded"}:
                self._given_up[before[row]] = self.sim.now()

    def leaving(self, call: Call) -> None:
        if call.operation == "get_current":
            self._open = [one for one in self._open if not one.ended]
            if mine := [one for one in self._open if (one.account, one.life) == (call.account, call.life)]:
                self.broken(f"#{call.number} polls while acknowledgement #{mine[0].number} is on the wire")
        if call.operation == "acknowledge":
            self._check(call)

    def _check(self, call: Call) -> None:
        key, now = call.argument, self.sim.now()
        answer = self.sim.lists.get(call.account)
        if answer is None or answer.life != call.life or answer.reached is None:
            self.broken(f"#{call.number} acknowledges before this process got a list")
            return
        delivered = answer.delivered
        if key not in delivered:
            self.broken(f"#{call.number} acknowledges {key}, which #{answer.number} did not deliver")
            return
        before = self._acknowledged[answer.number, key]
        repeat = ACKNOWLEDGE_TIMEOUT_S if before else 0.0  # after a 401
        if now > answer.ended_at + ACKNOWLEDGE_WITHIN_S + repeat + A_MOMENT_S:
            self.broken(f"#{call.number} acknowledges {now - answer.ended_at:.1f} s after the list's answer: too late")
        if before and not (len(before) == 1 and before[0].status == 401):
            self.broken(f"#{call.number} acknowledges {key} again after #{before[-1].number}")
        before.append(call)
        self._open.append(call)
        self._answers[call.number] = answer
        if self._given_up.get(key, -1.0) >= answer.left_at:
            self.broken(f"#{call.number} acknowledges {key}: a row of it was unresolved since the poll began")
        stored = self.rows("SELECT status_id, account FROM delivery_orders WHERE payment_key = ?", key)
        read = answer.documents[key].status if key in answer.documents else None  # it may be unreadable
        if stored and stored[0]["status_id"] not in (delivered[key], read):
            self.broken(f"#{call.number} acknowledges {key}: {stored[0][0]} is stored, {delivered[key]} was delivered")

    def ended(self, call: Call) -> None:
        took = call.ended_at - call.left_at
        fleet = self.sim.fleet
        was_paused = fleet is not None and fleet.went_on.get(call.process, -1.0) >= call.left_at
        is_late = took > ACKNOWLEDGE_TIMEOUT_S + A_MOMENT_S and not was_paused
        if call.operation == "acknowledge" and call.ended != "crashed" and is_late:
            self.broken(f"#{call.number} is an acknowledgement and lasted {took:.1f} s: too long")
        # The service acknowledges the status of that moment, which no action of ours may have changed meanwhile.
        # The successor of a paused replica cannot know of it.
        if call.operation == "acknowledge" and call.reached and call.reached.effect and not was_paused:
            self._check_effect(call)

    def _check_effect(self, call: Call) -> None:
        answer = self._answers.get(call.number)
        if answer is None or answer.reached is None or call.reached is None:
            return
        delivered = answer.delivered.get(call.argument)
        if call.reached.status_before == delivered:
            return
        history = self.sim.world.orders[call.argument].history
        if all(change.by == "pos" for change in history if change.at >= answer.reached.at):
            self.broken(f"#{call.number} acknowledged status {call.reached.status_before}, delivered was {delivered}")


class EachIsPolled(Judge):
    """Of n accounts that share a cooldown, each has a good poll in about n cooldowns.

    A 401 costs two rounds: that of the 401, and that of the login.
    """

    promise = "3"

    def tick(self) -> None:
        accounts = self.sim.plan.in_turn
        for account in self.sim.plan.accounts if accounts > 1 else ():
            polls = [one for one in self.sim.calls if (one.operation, one.account) == ("get_current", account)]
            good = max((at for at, one in enumerate(polls) if one.outcome == "ok"), default=-1)
            rounds = 2 if any(one.outcome == "unauthorized" for one in polls[good + 1 :]) else 1
            most = (rounds * accounts * LATE + FINDING_OUT) * COOLDOWN_S
            since = max(
                polls[good].ended_at if good >= 0 else 0.0, self.sim.disturbed.get(account, 0.0) + UNDISTURBED_S
            )
            if self.sim.now() - since > most and account not in self.sim.refused:
                self.broken(f"{account} has had no good poll since {since:.0f}")


class Cooldown(Judge):
    """A poll leaves at least 30 s after the end of the last one, also after a crash."""

    promise = "3"

    def __init__(self) -> None:
        self._restored_at = 0.0

    def restored(self) -> None:
        self._restored_at = self.sim.now()

    def leaving(self, call: Call) -> None:
        if call.operation != "get_current":
            return
        last = self.before(call)
        # Neither an older copy nor the mark knows a lost poll.
        lost = last and self._restored_at - self.sim.restorer.lag_s < last.left_at < self._restored_at
        if last is not None and not last.never_left and not lost:
            ended = last.ended_at if last.ended else self.sim.now()
            if last.life != call.life:  # a paused replica ends it when it continues
                ended = min(ended, last.left_at + TIMEOUT_S)
            # A clock that was set forward while the daemon was down may cost one 429.
            is_set = any(by > 0 and last.left_at <= at <= self.sim.now() for at, by in self.sim.plan.jumps)
            forgiven = last.process != call.process and is_set
            if call.left_at < ended + COOLDOWN_S and not forgiven:
                self.broken(f"#{call.number} polls {call.left_at - ended:.2f} s after the end of #{last.number}")
