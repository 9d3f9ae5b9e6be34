"""Judges the database contract (docs/design.md): tables except orders and actions, and the till's own columns."""

import math
import re
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, ClassVar

from tests.jobs.shop import COOLDOWN_S, TIMEOUT_S, text_of
from tests.sim.bounds import ACKNOWLEDGING_S
from tests.sim.judge import Judge, time_of
from tests.sim.line import FOOD_OPERATIONS, ORDER_OPERATIONS, RESTAURANT_OPERATIONS, Call
from tests.sim.plan import ACCEPT_MINUTES, ACCEPT_STEPS
from tests.sim.reading import Document
from tests.sim.simulation import TICK_S

from orderbridge.jobs.accounts_at_work import LISTS_AGAIN_S
from orderbridge.jobs.acknowledge import ACKNOWLEDGE_WITHIN_S
from orderbridge.jobs.lists import STATUSES_S
from orderbridge.jobs.menu import EVERY
from orderbridge_sandbox import rules
from orderbridge_sandbox.scenery import KADIKOY

WITHIN_S = 10.0  # a write on a slow disk may take this long
SLACK_S = 0.5  # two clocks differ
LISTS_AFTER_S = 2 * LISTS_AGAIN_S + TICK_S  # of a start without trouble
TAKES_S = 60.0  # the longest unit of work, while a till locks the file
MOST_SILENT = 2  # deliveries: an acknowledgement can be lost
LOOK_EVERY = 20  # ticks
MENU = "SELECT food_id, name, category FROM delivery_foods WHERE account = ? AND source = 'menu' AND gone_utc IS NULL"
SINCE = "SELECT account || ' ' || id, status, status_since_utc FROM delivery_restaurants"
LATE_MINUTES, PLAIN_TIME = 20, r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
KEPT = "SELECT id, times_seen, last_seen_utc, first_seen_utc, resolved_utc FROM delivery_quarantine WHERE payload <> ''"


class ListsAreStored(Judge):
    """When an account's next poll leaves, all orders of the last list are stored or reported as another account's."""

    promise = "1 and 7"

    def __init__(self) -> None:
        self._silent: Counter[str] = Counter()  # by order: deliveries in a row without an acknowledgement
        self._flown: dict[str, float] = {}  # by order: when a request of it last left or ended
        self._strangers: dict[tuple[str, str], int] = {}  # by account and owner: the life that logged it

    def ended(self, call: Call) -> None:
        if call.operation in ORDER_OPERATIONS:
            self._flown[call.argument] = self.sim.now()
        if call.operation == "acknowledge":
            self._silent[call.argument] = 0

    def logged(self, level: str, event: str, facts: dict[str, Any], _: str) -> None:
        if event != "order.foreign_delivery" or level != "error" or self.sim.life is None:
            return
        pair, life = (facts["account"], facts["owner"]), self.sim.life.number
        if self._strangers.get(pair) == life:
            self.broken(f"{pair[0]} logs twice that it is delivered orders of {pair[1]}")
        self._strangers[pair] = life

    def leaving(self, call: Call) -> None:
        self.ended(call)
        answer = self.before(call) if call.operation == "get_current" else None
        if answer is None or not answer.is_heard or answer.life != call.life:
            return
        if max(self.sim.disturbed.values()) >= answer.left_at:
            return
        for key, document in answer.documents.items():
            self._check(answer, key, document)
        for document in answer.bad:
            self._check_kept(answer, document)

    def _check(self, answer: Call, key: str, document: Document) -> None:
        stored = self.order(key)
        if stored is None:
            self.broken(f"#{answer.number} delivered {key}, and delivery_orders has no such order")
        elif stored["account"] != answer.account:
            # Two accounts may get an order at the same moment: the second one learns of the owner at its next poll.
            is_late = stored["received_utc"] < text_of(self.sim.clock.now() - _seconds(self.sim.now() - answer.left_at))
            if is_late and self._strangers.get((answer.account, stored["account"])) != answer.life:
                self.broken(f"#{answer.number} delivered {key}, which is another account's, and no error was logged")
        elif stored["payload"] is None and stored["ended_utc"] is not None:
            return  # retention has blanked it since
        elif stored["payload"] != document.text:
            self.broken(f"#{answer.number} delivered {key}, and delivery_orders has an older document")
        elif self.sim.disk_took - answer.disk_took >= ACKNOWLEDGE_WITHIN_S:
            return  # on a slow disk it may have been too late to acknowledge
        elif self._flown.get(key, -1.0) < answer.left_at and not self.is_unresolved(key):
            self._silent[key] += 1  # an acknowledgement sets it to 0
            if self._silent[key] > MOST_SILENT:
                self.broken(f"#{answer.number} delivered {key} again, which was stored before and never acknowledged")

    def finish(self) -> None:
        kept = "SELECT payment_key FROM delivery_quarantine JOIN delivery_orders USING (payment_key, payload)"
        for row in self.rows(f"{kept} WHERE resolved_utc IS NULL"):
            self.broken(f"the document of order {row['payment_key']} is stored, and still in quarantine")

    def _check_kept(self, answer: Call, document: Document) -> None:
        query = "SELECT * FROM delivery_quarantine WHERE account = ? AND payload = ?"
        kept = self.rows(query, answer.account, document.text)
        missing = document.value.get("payment_key") is None
        reason = "payment_key_missing" if missing else "payment_key_invalid"
        found = [(row["reason"], row["payment_key"], row["resolved_utc"]) for row in kept]
        if found != [(reason, None, None)]:
            self.broken(f"#{answer.number} delivered a document without a usable key; delivery_quarantine has {found}")


class QuarantineCounts(Judge):
    """A document without a usable key is kept once, and each of its deliveries is counted."""

    promise = "7"

    def __init__(self) -> None:
        self._kept: dict[int, tuple[int, str]] = {}
        self._first: dict[int, str] = {}

    def restarted(self) -> None:
        """Power may have failed during a commit that reached the disk."""
        if self.sim.power is not None:
            self._kept |= {row["id"]: (row["times_seen"], row["last_seen_utc"]) for row in self.rows(KEPT)}

    def committed(self, name: str) -> None:
        if not self.wrote("delivery_quarantine"):
            return
        now, is_set = self.sim.clock.now(), self.sim.jumped_since(self.sim.now() - TAKES_S)
        for row in self.rows(KEPT):
            times, seen = self._kept.get(row["id"], (0, ""))
            told = row["times_seen"], row["last_seen_utc"]
            # It may be written later, and the clock may be set meanwhile.
            fresh = timedelta() <= now - time_of(told[1]) < _seconds(TAKES_S) or is_set
            if told != (times, seen) and not (told[0] == times + 1 and fresh):
                self.broken(f"{name}: document {row['id']} was seen {times} times, last {seen}, and now {told}")
            if told != (times, seen) and row["resolved_utc"] is not None:
                self.broken(f"{name}: document {row['id']} came again, and is not in quarantine")
            if row["first_seen_utc"] != self._first.setdefault(row["id"], row["last_seen_utc"]):
                self.broken(f"{name}: first_seen_utc of document {row['id']} is no longer {self._first[row['id']]}")
            self._kept[row["id"]] = told


class PollsAreWritten(Judge):
    """next_poll_utc is committed before a poll leaves and after its answer, and so is the poll's result."""

    promise = "3"

    def __init__(self) -> None:
        self._last: dict[str, tuple[Call, datetime]] = {}
        self._heard: set[str] = set()  # accounts with a whole list that is not noted as a good poll yet
        self._good: dict[str, str] = {}  # by account: its last good poll

    def committed(self, name: str) -> None:
        """A good poll is noted for the account that had it, and for no other, whose silence would be no alarm."""
        if self.wrote("last_poll_ok_utc"):
            before = self._good
            self.restarted()
            for account in [one for one, at in self._good.items() if at != before.get(one)]:
                if account not in self._heard:
                    self.broken(f"{name} notes a good poll of {account}, and no list came")
                self._heard.discard(account)

    def restarted(self) -> None:
        rows = self.rows("SELECT name, last_poll_ok_utc FROM delivery_accounts WHERE last_poll_ok_utc IS NOT NULL")
        self._good = {row["name"]: row["last_poll_ok_utc"] for row in rows}

    def leaving(self, call: Call) -> None:
        if call.operation != "get_current":
            return
        self._check_pace(call)
        row, now = self._row(call.account), self.sim.clock.now()
        least = now + _seconds(TIMEOUT_S + COOLDOWN_S - SLACK_S)
        if row["next_poll_utc"] is None or time_of(row["next_poll_utc"]) < least:
            self.broken(f"#{call.number} leaves, and next_poll_utc is {row['next_poll_utc']}, too early")
        if abs(time_of(row["last_poll_utc"]) - now) > _seconds(WITHIN_S):
            self.broken(f"#{call.number} leaves, and last_poll_utc is {row['last_poll_utc']}, not now")

    def _check_pace(self, call: Call) -> None:
        last = self._last.get(call.account)
        if last is None or last[0].life != call.life or self.sim.disturbed[call.account] >= last[0].left_at:
            return
        if call.left_at > last[0].ended_at + self._longest_s(last[0]):
            self.broken(f"#{call.number} polls {call.left_at - last[0].ended_at:.0f} s after #{last[0].number}: late")

    def _longest_s(self, last: Call) -> float:
        """The longest time from the end of a poll to the next one: acknowledgements, and the cooldown.

        Accounts that share a cooldown are polled in turn, and each of the others may have a timeout. One more turn
        passes until the sharing is detected. A poll is written before it leaves, so a slow disk may delay it.
        """
        plan = self.sim.plan
        turns = plan.in_turn + (plan.in_turn > 1 and plan.configured_scope == "auto")
        waits = COOLDOWN_S * turns + TIMEOUT_S * (plan.in_turn - 1)
        return waits + WITHIN_S + ACKNOWLEDGING_S + self.sim.disk_took - last.disk_took

    def ended(self, call: Call) -> None:
        if call.operation == "get_current":
            self._last[call.account] = call, self.sim.clock.now()
            if call.is_heard and not call.argument:
                self._heard.add(call.account)

    def tick(self) -> None:
        for account, (call, then) in self._last.items():
            life, late = self.sim.life, self.sim.now() - call.ended_at
            is_disturbed = call.never_left or self.sim.disturbed[account] > call.left_at
            if is_disturbed or life is None or life.number != call.life:
                continue
            if late > self._longest_s(call):
                self.broken(f"no poll of {account} since #{call.number}, {late:.0f} s ago")
            is_slow = self.sim.disk_took - call.disk_took > WITHIN_S
            if WITHIN_S + ACKNOWLEDGING_S < late < COOLDOWN_S - SLACK_S and not is_slow:
                self._check_note(call, then)

    def _check_note(self, call: Call, then: datetime) -> None:
        row = self._row(call.account)
        after = (time_of(row["next_poll_utc"]) - then).total_seconds()
        most = math.inf if call.status == 401 else COOLDOWN_S + SLACK_S  # after a 401 comes a login
        if not COOLDOWN_S <= after <= most:
            self.broken(f"#{call.number} is answered, and next_poll_utc is {after:.2f} s later")
        told = row["state"], row["last_error"] is None
        good_after = time_of(row["last_poll_ok_utc"] or "2000-01-01") - then
        if call.argument:  # a list of one status
            if good_after > -_seconds(SLACK_S):
                self.broken(f"#{call.number} is a list of one status, and counts as a good poll")
            return
        if call.is_heard and told != ("ok", True):
            self.broken(f"#{call.number} is a good poll, and {call.account} has {told} {row['last_error']}")
        if call.is_heard and not -_seconds(SLACK_S) <= good_after <= _seconds(WITHIN_S + ACKNOWLEDGING_S):
            self.broken(f"#{call.number} is a good poll at {then}, and last_poll_ok_utc is {row['last_poll_ok_utc']}")
        if not call.is_heard and told[0] not in {"failing", "login_refused"}:
            self.broken(f"#{call.number} failed, and {call.account} has {told}")

    def _row(self, account: str) -> Any:
        return self.rows("SELECT * FROM delivery_accounts WHERE name = ?", account)[0]


class AutoAccepts(Judge):
    """Each order in status 1 without a problem and without a scheduled time gets an automatic accept, and no other."""

    promise = "contract"

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def committed(self, name: str) -> None:
        if not self.wrote("INSERT INTO delivery_orders "):
            return
        for order in self.rows("SELECT * FROM delivery_orders ORDER BY payment_key"):
            if order["payment_key"] not in self._seen:
                self._seen.add(order["payment_key"])
                self._check(name, order)

    def released(self, key: str, _: int = 0) -> None:
        """An order that a command stores is not accepted automatically."""
        self._seen.add(key)

    replayed = released

    def _usual(self, order: Any) -> int | None:
        """The account's minutes, by its orders of the last hour, this one included."""
        if not self.sim.plan.steps:
            return ACCEPT_MINUTES
        lately = (
            "SELECT count(*) FROM delivery_orders WHERE account = ? AND received_utc BETWEEN ? AND ?"
            " AND max(changed_utc, coalesce(ended_utc, '')) >= ?"
        )
        since = text_of(time_of(order["received_utc"]) - timedelta(hours=1))
        count = self.rows(lately, order["account"], since, order["received_utc"], since)[0][0]
        return [minutes for least, minutes in ACCEPT_STEPS if least <= count][-1] or None

    def _check(self, name: str, order: Any) -> None:
        settings, minutes = self.sim.plan, None
        rule = settings.rule if order["restaurant_id"] == KADIKOY else None
        hinder = [code for code in (order["problem"] or "").split(",") if code and "total_mismatch" not in code]
        if settings.auto_accept and order["status_id"] == 1 and not (order["scheduled_for"] or hinder):
            minutes = self._usual(order) if rule is None else rule or None
        if order["status_id"] == 1 and not (order["scheduled_for"] or settings.jumps):
            self._check_late(order)
        made = self.rows("SELECT * FROM delivery_actions WHERE request_id = ?", f"auto:{order['payment_key']}")
        self.sim.till.written |= {row["id"]: self.sim.now() for row in made}  # counts as the till's
        columns = ("action", "payment_key", "preparing_time", "created_by")
        found = [tuple(row[column] for column in columns) for row in made]
        wanted = [] if minutes is None else [("accept", order["payment_key"], minutes, "orderbridge")]
        # After two errors in a row, which the log reports.
        may_lack = self.sim.technician.is_refusing or self.sim.plan.broken_disk > 0
        if found != wanted and not (may_lack and not found):
            self.broken(f"{name} of order {order['payment_key']}: its automatic accepts are {found}, expected {wanted}")

    def _check_late(self, order: Any) -> None:
        """An order that is too old when it comes is `late`. After hours its time zone may count as wrong."""
        if re.fullmatch(PLAIN_TIME, order["ordered_at"] or ""):
            age = time_of(order["received_utc"]) - time_of(order["ordered_at"]) + timedelta(hours=3)
            is_late, over = "late" in (order["problem"] or "").split(","), age - timedelta(minutes=LATE_MINUTES)
            if _seconds(TAKES_S) < abs(over) < timedelta(minutes=30) and is_late != (over > timedelta()):
                self.broken(f"order {order['payment_key']} came {age} after its date, with {order['problem']}")


class ViewsAreRight(Judge):
    """The three views show the right orders, and the till's columns hold what the till wrote."""

    promise = "contract"
    views: ClassVar[dict[str, Callable[[dict[str, Any]], bool]]] = {
        "delivery_new_orders": lambda row: row["pos_revision"] == 0 and row["ended_utc"] is None,
        "delivery_changed_orders": lambda row: 0 < row["pos_revision"] < row["revision"],
        "delivery_open_orders": lambda row: row["ended_utc"] is None,
    }

    def tick(self) -> None:
        if self.sim.ticks % LOOK_EVERY == 0:
            self.finish()

    def finish(self) -> None:
        orders = [dict(row) for row in self.rows("SELECT * FROM delivery_orders ORDER BY payment_key")]
        for row in orders:
            del row["silence_from"], row["service_key"]  # not in the views
        for view, holds in self.views.items():
            shown = [dict(row) for row in self.rows(f"SELECT * FROM {view} ORDER BY payment_key")]
            for row in shown:
                if view == "delivery_open_orders" and row.pop("needs_answer_since") != self._waits_since(row):
                    self.broken(f"order {row['payment_key']}: its needs_answer_since is wrong")
            if shown != [row for row in orders if holds(row)]:
                self.broken(f"{view} shows the wrong orders or columns: {[row['payment_key'] for row in shown]}")
        for row in orders:
            written = self.sim.till.taken_over.get(row["payment_key"], (0, None))
            if (row["pos_revision"], row["pos_reference"]) != written:
                self.broken(f"the till wrote {written} to order {row['payment_key']}, and it has other values")

    def _waits_since(self, row: dict[str, Any]) -> str | None:
        """None if an accept or a cancel is pending, sending or done."""
        asked = self.rows("SELECT action, state FROM delivery_actions WHERE payment_key = ?", row["payment_key"])
        answers = {one["state"] for one in asked if one["action"] in {"accept", "cancel"}}
        return None if row["status_id"] != 1 or answers & {"pending", "sending", "done"} else row["received_utc"]


class ReferenceIsRead(Judge):
    """Reasons, methods, restaurants, and the statuses of restaurants and foods are those of the marketplace."""

    promise = "contract"

    def __init__(self) -> None:
        self._changed: dict[str, float] = {}  # restaurant: when we last changed it
        self._read: set[str] = set()  # accounts whose menu was read
        self._since: dict[str, list[str]] = {}  # by restaurant: its status, and since when

    def leaving(self, call: Call) -> None:
        if call.operation in RESTAURANT_OPERATIONS:
            self._changed[call.argument] = self.sim.now()
        last = self.before(call) if call.operation == "get_foods" else None
        if last is None or last.never_left or last.outcome == "unauthorized" or self.sim.jumped_since(last.left_at):
            return
        if call.left_at - last.left_at < EVERY.total_seconds() - TAKES_S:  # it is noted first
            self.broken(f"#{call.number} asks for the menu {call.left_at - last.left_at:.0f} s after #{last.number}")

    def committed(self, name: str) -> None:
        if self.wrote("delivery_restaurants"):
            before, self._since = self._since, {key: told for key, *told in self.rows(SINCE)}
            for key, (status, since) in self._since.items():
                if key in before and before[key][0] == status and before[key][1] != since:
                    self.broken(f"{name}: {key} was {status} since {before[key][1]}, and now is since {since}")

    def restarted(self) -> None:
        self._since.clear()  # power may have failed

    def ended(self, call: Call) -> None:
        if call.operation in RESTAURANT_OPERATIONS and call.is_heard:
            self._changed[call.argument] = self.sim.now()

    def tick(self) -> None:
        quiet = self.sim.quiet_s()
        if self.sim.ticks % LOOK_EVERY == 0 and quiet > LISTS_AFTER_S and not self.sim.refused:
            self._check_lists()
            # The first read after a lost one may be refused with its token (marketplace.session, Refusal).
            if quiet > 2 * STATUSES_S + LISTS_AFTER_S:
                self._check_statuses()

    def logged(self, _: str, event: str, facts: dict[str, Any], __: str) -> None:
        """A row that is done gives its food the status. A menu that was read is stored for its account."""
        if event == "menu.read":
            self._read.add(facts["account"])
            for account in [one for one in self.sim.world.scenery.accounts if one.name in self._read]:
                menus = {self.sim.world.restaurants[key].menu for key in account.restaurant_ids}
                foods = {(f.id, f.name, f.category) for f in self.sim.world.foods.values() if f.menu in menus}
                if (found := {tuple(row) for row in self.rows(MENU, account.name)}) != foods:
                    self.broken(f"the menu of {account.name} is stored as {sorted(found)}")
        if event != "action.done" or facts["known_by"] != "answer" or facts["action"] not in FOOD_OPERATIONS:
            return
        wanted = "active" if facts["action"] == "activate_food" else "inactive"
        account = next(call.account for call in reversed(self.sim.calls) if call.row == facts["id"])
        where = "WHERE account = ? AND food_id = ?"
        for row in self.rows(f"SELECT status FROM delivery_foods {where}", account, facts["food_id"]):
            if row["status"] != wanted and not self.sim.technician.is_refusing:
                self.broken(f"row {facts['id']} is done, and food {facts['food_id']} is {row['status']}")

    def _check_lists(self) -> None:
        self._compare("cancel_reasons", "id, reason", set(rules.CANCEL_REASONS.items()))
        self._compare("payment_methods", "code, name", set(self.sim.world.payment_names().items()))
        self._compare("shipping_methods", "code, name", set(rules.SHIPPING_METHODS.items()))
        world = self.sim.world
        reached = {
            (account.name, key, world.restaurants[key].name)
            for account in world.scenery.accounts
            for key in account.restaurant_ids
            if account.name in self.sim.plan.accounts
        }
        self._compare("restaurants", "account, id, name", reached)

    def _compare(self, table: str, columns: str, wanted: set[tuple[Any, ...]]) -> None:
        found = {tuple(row) for row in self.rows(f"SELECT {columns} FROM delivery_{table}")}
        if found != wanted:
            self.broken(f"delivery_{table} has {sorted(found)}, expected {sorted(wanted)}")

    def _check_statuses(self) -> None:
        for row in self.rows("SELECT * FROM delivery_restaurants"):
            status = "Open" if row["id"] in self.sim.world.open_restaurants else "Closed"
            asked = row["status_utc"] and self.sim.clock.now() - time_of(row["status_utc"])
            if self.sim.now() - self._changed.get(row["id"], 0.0) > STATUSES_S and row["status"] != status:
                self.broken(f"{row['id']} has the status {row['status']}, and is {status} at the service")
            if not asked or asked > _seconds(STATUSES_S + LISTS_AFTER_S):
                self.broken(f"the status of {row['id']} was read {asked} ago")


def _seconds(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)
