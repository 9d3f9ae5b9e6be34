"""Judges the database contract (docs/design.md): each commit changes an order in a permitted way, in every column.

After each commit the orders that it wrote are read again. The change must be the one that a delivery, an OK, a verdict
or the time makes of the former values: in all columns, lines, options and events.
"""

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from tests.jobs.shop import text_of
from tests.sim.bounds import listening_s
from tests.sim.judge import IN_TIME_S, Judge, time_of
from tests.sim.line import ORDER_OPERATIONS, TARGET, Call
from tests.sim.plan import HOUR, LOUD_SWEEP_S, QUIET_SWEEP_S
from tests.sim.reading import ENDS, LINE_COLUMNS, OPTION_COLUMNS, STATUS_WORDS, Document, plain, read

from orderbridge.store.retention import SLACK

State = dict[str, Any]  # the daemon's columns of an order, its lines and its options
Event = tuple[str, str, int | None, str | None, str | None]  # at_utc, event, status_id, status, detail

OF_THE_POS = ("pos_revision", "pos_reference", "pos_total")
BOOKKEEPING = ("silence_from", "service_key", "start_utc")  # judged by their effects
DOUBT = "status_doubtful"
LATE = "late"  # depends on the clocks, which are not judged here
NAMES_A_CUSTOMER = (
    "note customer_name customer_phone address address_description apartment_no building_no"
    " neighborhood_name district_name city_name payload"
).split()
LOOK_AT_ALL, LOOK_FOR_LATE = 100, 5  # ticks
TAKING_IN_S = 20.0  # with acknowledgements that time out, and a slow disk
BEGUN_BEFORE_S = 0.5  # a poll begins with its commit, and leaves a moment later
SWEEP_TAKES_S = 60.0  # a sweep reads first, and may wait before it writes

# A claim holds the lane of its order, and takes long on a slow disk.
_PENDING = "SELECT 1 FROM delivery_actions WHERE payment_key = ? AND state = 'pending'"
_WRONG_START = (  # the scheduled time is in UTC+3; the newest accept that is done has the minutes
    "SELECT payment_key, start_utc, max(a.id) FROM delivery_orders JOIN delivery_actions a USING (payment_key)"
    " WHERE ended_utc IS NULL AND scheduled_for IS NOT NULL AND action = 'accept' AND a.state = 'done' GROUP BY 1"
    " HAVING max(changed_utc, a.finished_utc) < ? AND datetime(start_utc) IS NOT"
    " datetime(scheduled_for, '-3 hours', -preparing_time || ' minutes')"
)
_WRONGLY_BEGUN = (  # the event `start` is written once, when it has come
    "SELECT payment_key, start_utc, times FROM (SELECT o.*, count(e.id) AS times FROM delivery_orders o"
    " LEFT JOIN delivery_order_events e ON e.payment_key = o.payment_key AND event = 'start' GROUP BY o.payment_key)"
    " WHERE times > 1 OR (times = 0 AND ended_utc IS NULL AND start_utc < ?1 AND changed_utc < ?1)"
)
_DETAILS = (
    "SELECT 1 FROM delivery_action_attempts JOIN delivery_actions a ON a.id = action_id"
    " WHERE payment_key = ? AND detail > ''"
)
_TAKEN = "SELECT payment_key, account FROM delivery_orders WHERE pos_revision > 0 AND ended_utc IS NULL"


def _times_last(column: str) -> tuple[bool, str]:
    return column.endswith("_utc"), column


class Step(NamedTuple):
    """One permitted change of an order, with the values after it."""

    why: str
    state: State
    events: list[Event]


class ColumnsAreRight(Judge):
    """Each commit writes what has happened to an order, in every column."""

    promise = "contract"

    def __init__(self) -> None:
        self._states: dict[str, State] = {}
        self._last_event: dict[str, int] = defaultdict(int)  # by order: its last event
        self._touched: set[str] = set()
        self._unfinished: set[int] = set()
        self._newest_row = 0
        self._answers: dict[str, Call] = {}  # by account: the latest list that came in whole
        self._acknowledged: dict[str, str] = {}  # by order: the last document that was acknowledged
        self._oks: dict[str, list[tuple[str, int | None]]] = defaultdict(list)  # not written yet
        self._may_be_lost: set[str] = set()  # orders whose last OK the database may have refused
        self._flying: Counter[str] = Counter()
        self._busy: dict[str, float] = {}  # by order: when a row of it was last sent or unresolved
        self._flown: dict[str, float] = {}  # by order: when a request of it last ended
        # By account: seconds between good polls without outages: the least and the most, as it may be polled in turn.
        self._listened: dict[str, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
        self._heard: dict[str, tuple[int, float]] = {}  # by account: life and end of the last good poll
        # By order: the seconds above when it last changed or was taken over.
        self._quiet_from: dict[str, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
        self._quiet_since: dict[str, float] = {}  # the same, in the simulation's time
        self._restarts: list[float] = []
        self._taken: set[str] = set()

    def leaving(self, call: Call) -> None:
        if call.operation in ORDER_OPERATIONS:
            self._flying[call.argument] += 1
            shaky = self.sim.plan.broken_disk or self.sim.plan.locks or self.sim.technician.is_refusing
            known = self._states.keys() - self._may_be_lost
            if self._oks[call.argument] and call.argument in known and not shaky:
                self.broken(f"#{call.number} leaves before the last OK of its order's acknowledgement is noted")
        if call.operation == "acknowledge" and call.account in self._answers:
            document = self._answers[call.account].documents.get(call.argument)
            self._acknowledged |= {} if document is None else {call.argument: document.text}
            self._check_acknowledged(call, document)

    def _check_acknowledged(self, call: Call, document: Document | None) -> None:
        """What is acknowledged is stored, also if nothing had to be written."""
        state = self._states.get(call.argument)
        if document is None or state is None or state["payload"] is None:
            return  # StoredBeforeAcknowledged reports this
        wanted = state | _contents(document) | {"status_id": document.status, "service_status_id": document.status}
        wanted |= {"status": self._word(document.status), "ended_by": ENDS.get(document.status or 0)}
        if apart := [name for name in sorted(state) if state[name] != wanted[name]]:
            name = apart[0]
            self.broken(f"#{call.number} acknowledges {call.argument}: {name} is {state[name]!r}, not {wanted[name]!r}")

    def ended(self, call: Call) -> None:
        if call.operation in ORDER_OPERATIONS:
            self._flying[call.argument] -= 1
            if not call.never_left:
                self._flown[call.argument] = self.sim.now()
        if not call.is_heard:
            return
        if call.operation == "get_current":
            self._answers[call.account] = call
            self._listen(call)
        if call.operation == "acknowledge" and call.account in self._answers:
            document = self._answers[call.account].documents.get(call.argument)
            if document is not None:
                self._oks[call.argument].append((self._now(), document.status))

    def _listen(self, call: Call) -> None:
        life, before = self._heard.get(call.account, (0, 0.0))
        if life == call.life:
            waited, (least, most) = self.sim.now() - before, self._listened[call.account]
            longest = listening_s(len(self.sim.plan.accounts))
            self._listened[call.account] = least + min(waited, listening_s(1)), most + min(waited, longest)
        self._heard[call.account] = call.life, self.sim.now()

    def crashed(self) -> None:
        self._answers.clear()
        self._oks.clear()

    def statement(self, sql: str, parameters: Any) -> None:
        """A statement is about to write. The orders that it names are checked after the commit."""
        if "delivery_order" in sql:
            many = parameters if isinstance(parameters, list) else [parameters]
            self._touched |= {v for one in many for v in one if isinstance(v, str) and len(v) == 36 and v[8] == "-"}

    def committed(self, name: str) -> None:
        rows = self._ended_rows() if self.wrote("delivery_actions") else []
        touched, self._touched = self._touched, set()
        touched |= {row["payment_key"] for row in rows if row["payment_key"]}
        for key in sorted(touched):
            self._check(name, key, [row for row in rows if row["payment_key"] == key])

    def _ended_rows(self) -> list[sqlite3.Row]:
        known = ",".join(map(str, sorted(self._unfinished)))
        found = self.rows(
            f"SELECT * FROM delivery_actions WHERE id > ? OR id IN ({known}) ORDER BY id", self._newest_row
        )
        ended = [row for row in found if row["state"] not in {"pending", "sending"}]
        self._unfinished = {row["id"] for row in found} - {row["id"] for row in ended}
        self._newest_row = max([self._newest_row, *(row["id"] for row in found)])
        sending = {row["payment_key"] for row in found if row["state"] == "sending"}
        self._busy |= dict.fromkeys(sending | {row["payment_key"] for row in ended}, self.sim.now())
        return ended

    def _check(self, name: str, key: str, rows: list[sqlite3.Row]) -> None:
        before, after = self._states.get(key), self._look(key)
        events = self._new_events(key)
        if after is None:
            if before is not None:
                self.broken(f"order {key} is gone after {name}")
            return
        self._states[key] = after
        if name == "blank_old" and after["payload"] is None and self.rows(_DETAILS, key):
            self.broken(f"the customer's data of order {key} is blanked, but not the answers to its actions")
        in_part = name == "Intake._write_least" and self.sim.plan.broken_disk > 0
        if self.sim.technician.is_refusing or in_part:  # only a part was written; the next delivery completes it
            self._drop_noted(key, after)
            self._may_be_lost.add(key)
            return
        if before == after and not events and not rows:
            return
        steps = list(self._steps(key, before, after, rows))
        if before is None or any(after[name] != before[name] for name in ("changed_utc", "account")):
            self._quiet_from[key] = self._listened[after["account"]]
            self._quiet_since[key] = self.sim.now()
        in_any_order = sorted(map(repr, events))  # rows that end together
        if any(step.state == after and sorted(map(repr, step.events)) == in_any_order for step in steps):
            self._drop_noted(key, after)
        else:
            self.broken(f"{name} of order {key}: {_nearest(steps, before or {}, after, events)}")

    def _drop_noted(self, key: str, state: State) -> None:
        noted = state["acknowledged_utc"]
        self._oks[key] = [ok for ok in self._oks[key] if noted is None or ok[0] > noted]
        if not self._oks[key]:
            self._may_be_lost.discard(key)

    def _steps(self, key: str, before: State | None, after: State, rows: list[sqlite3.Row]) -> Iterator[Step]:
        if before is None:
            for call in self._answers.values():
                if key in call.documents:
                    yield self._arrival(call, call.documents[key])
            return
        if rows:
            yield self._verdicts(key, before, rows)
            return
        configured = {account.name for account in self.sim.settings.accounts}
        is_moved = before["account"] not in configured and after["account"] in configured  # its account was removed
        if is_moved:
            before = before | {"account": after["account"]}
            yield Step("another account", before, [])
        for at, status in self._oks[key]:
            noted = {"acknowledged_utc": at, "acknowledged_status_id": status}
            yield Step("an OK", before | noted, [(at, "acknowledged", status, self._word(status), None)])
        for call in self._answers.values():
            if key in call.documents and before["account"] == call.account:
                yield from self._deliveries(key, before, call, is_moved=is_moved)
        yield from self._by_time(key, before, after)
        if self.is_unresolved(key):
            yield Step("a doubt", before | {"problem": before["problem"] | {DOUBT}}, [])

    def _arrival(self, call: Call, document: Document) -> Step:
        now = self._now()
        state = _contents(document) | self._status(document) | self._end({"ended_by": None}, document.status)
        state |= {"payment_key": document.key, "account": call.account, "received_utc": now}
        state |= {"acknowledged_utc": None, "acknowledged_status_id": None}
        state |= {"revision": 1, "contents_revision": 1, "last_change": "new", "changed_utc": now}
        return Step("a new order", state, [(now, "received", document.status, state["status"], None)])

    def _deliveries(self, key: str, before: State, call: Call, *, is_moved: bool) -> Iterator[Step]:
        """Promise 2: the delivered status counts, unless an action of ours was on the wire.

        An order that moves to another account is written, although nothing has changed.
        """
        document = call.documents[key]
        flown = self._flying[key] > 0 or self._flown.get(key, -1.0) >= call.left_at
        if self._is_unchanged(before, document) and not is_moved:
            return
        in_doubt = flown or self.is_unresolved(key)
        if not in_doubt:
            yield self._delivery(before, document)
        busy = self._busy.get(key, -1.0) >= call.left_at - BEGUN_BEFORE_S or bool(self.rows(_PENDING, key))
        disturbed = max(self.sim.disturbed.values(), default=0.0) >= call.left_at
        if in_doubt or busy or disturbed or self._is_taken_in(key, call):
            yield self._delivery_that_does_not_count(before, document)

    def _is_unchanged(self, before: State, document: Document) -> bool:
        same = before["payload_hash"] == document.hash
        same_status = before["status_id"] == document.status == before["service_status_id"]
        return same and same_status and before["ended_by"] != "silence" and DOUBT not in before["problem"]

    def _delivery(self, before: State, document: Document) -> Step:
        state = before | _contents(document) | self._status(document) | self._end(before, document.status)
        change = ""
        if state["status_id"] != before["status_id"] or (before["ended_by"] and not state["ended_by"]):
            change = "status"
        if _differ(before, state):
            change = "contents"
        if state["ended_by"] not in (None, before["ended_by"]):
            change = "cancelled" if state["ended_by"] == "cancelled" else "ended"
        state |= self._news(before, change) | _print(before, state)
        return Step("a delivery", state, [(self._now(), change or "delivered", *_shown(state), None)])

    def _is_taken_in(self, key: str, call: Call) -> bool:
        """Whether another account's list has the order, too, and may still hold its lane."""
        others = [other for other in self._answers.values() if other.account != call.account]
        return any(key in other.documents and other.ended_at > call.ended_at - TAKING_IN_S for other in others)

    def _delivery_that_does_not_count(self, before: State, document: Document) -> Step:
        state = before | _contents(document) | {"payload_hash": None}
        state["problem"] = state["problem"] | (before["problem"] & {DOUBT})
        state |= self._news(before, "contents" if _differ(before, state) else "") | _print(before, state)
        told = (self._now(), "status_withheld", document.status, self._word(document.status), None)
        return Step("a delivery beside an action", state, [told])

    def _verdicts(self, key: str, before: State, rows: list[sqlite3.Row]) -> Step:
        state, events = before, list[Event]()
        for row in rows:
            status = self._made_by(key, before["account"], row)
            if status is not None:
                state = self._with_status(state, status, shown=row["known_by"] != "refusal")
            elif row["state"] == "refused" and row["http_status"] is not None:
                state = state | {"problem": state["problem"] | {DOUBT}}
            events.append((row["finished_utc"], f"{row['action']}.{row['state']}", *_shown(state), row["error_code"]))
        return Step(" and ".join(f"{row['action']}.{row['state']}" for row in rows), state, events)

    def _made_by(self, key: str, account: str, row: sqlite3.Row) -> int | None:
        """The status that a row's end writes: the action's target, or the one that a list showed."""
        if row["state"] != "done" or row["error_code"] == "already":
            return None
        look = self._answers.get(account)
        if row["known_by"] == "poll" and look is not None and key in look.documents:
            return look.documents[key].status
        return TARGET[row["action"]]

    def _with_status(self, before: State, status: int, *, shown: bool) -> State:
        state = before | {"status_id": status, "status": self._word(status)} | self._end(before, status)
        if shown:
            state |= {"service_status_id": status, "problem": before["problem"] - {DOUBT}}
        if status == before["status_id"]:
            return state
        change = {5: "ended", 6: "cancelled"}.get(status, "status")
        return state | self._news(before, change)

    def _by_time(self, key: str, before: State, after: State) -> Iterator[Step]:
        if after["ended_by"] == "silence" and self._may_end(key, before, self.sim.clock.now()):
            ago = self.seconds_since(after["ended_utc"] or "0001-01-01")
            if 0.0 <= ago < SWEEP_TAKES_S or self.sim.jumped_since(self.sim.now() - SWEEP_TAKES_S):
                now = after["ended_utc"]
                state = before | {"ended_utc": now, "ended_by": "silence"} | self._news(before, "ended", now)
                yield Step("silence", state, [(now, "ended", *_shown(before), "silence")])
        if self._is_old(before, self.sim.clock.now()):
            yield Step("retention", _blank(before), [])

    def _may_end(self, key: str, before: State, now: datetime) -> bool:
        """Whether silence may end it: taken over, due, and its account was polled long enough without news of it."""
        listened = self._listened[before["account"]][1] - self._quiet_from[key][1]
        order = self.order(key)
        is_scheduled = before["scheduled_for"] is not None and order["start_utc"] is not None
        later = is_scheduled and time_of(order["start_utc"]) > now
        the_stored_one = listening_s(len(self.sim.plan.accounts))
        enough = self.sim.plan.silence_hours * HOUR - the_stored_one
        return before["ended_utc"] is None and order["pos_revision"] > 0 and not later and listened >= enough

    def _must_have_ended(self, key: str, state: State, sweep: float) -> bool:
        """Whether two sweeps have passed: one begins to count and one ends it. Each restart delays the next one."""
        listened = self._listened[state["account"]][0] - self._quiet_from[key][0]
        restarts = sum(at > self._quiet_since.get(key, 0.0) for at in self._restarts)
        enough = self.sim.plan.silence_hours * HOUR + (2 + restarts) * sweep + listening_s(1)
        open_at_once = state["ended_utc"] is None and state["scheduled_for"] is None
        return open_at_once and key in self._taken and listened > enough

    def _is_old(self, before: State, now: datetime) -> bool:
        border = now - timedelta(days=self.sim.settings.orders.retention_days)
        return before["ended_utc"] is not None and time_of(before["ended_utc"]) < border

    def _now(self) -> str:
        return text_of(self.sim.clock.now())

    def _word(self, status: int | None) -> str:
        if status is not None and status == self.sim.settings.marketplace.needs_payment_status_id:
            return "COMPLETE_NEEDS_PAYMENT"
        return STATUS_WORDS.get(status or 0, "UNKNOWN")

    def _status(self, document: Document) -> State:
        ids = dict.fromkeys(("status_id", "service_status_id"), document.status)
        words = {"status": self._word(document.status), "status_text": read(document).status_text}
        return ids | words | {"payload_hash": document.hash}

    def _end(self, before: State, status: int | None) -> State:
        ended_by = ENDS.get(status or 0)
        if ended_by is not None and ended_by == before["ended_by"]:
            return {}
        return {"ended_by": ended_by, "ended_utc": self._now() if ended_by else None}

    def _news(self, before: State, change: str, now: str = "") -> State:
        if not change:
            return {}
        return {"revision": before["revision"] + 1, "last_change": change, "changed_utc": now or self._now()}

    def _look(self, key: str) -> State | None:
        found = self.order(key)
        return None if found is None else self._with_lines(found)

    def _with_lines(self, row: sqlite3.Row) -> State:
        key, state = row["payment_key"], plain(dict(row))
        for column in (*OF_THE_POS, *BOOKKEEPING):
            del state[column]
        for column in ("problem", "remarks"):
            codes = [] if row[column] is None else row[column].split(",")
            state[column] = frozenset(codes if len(set(codes)) == len(codes) else [*codes, "one twice"])
        state["problem"] -= {LATE}
        state["lines"] = self._of("delivery_order_items", LINE_COLUMNS, key)
        state["options"] = self._of("delivery_order_item_options", OPTION_COLUMNS, key)
        return state

    def _of(self, table: str, columns: tuple[str, ...], key: str) -> tuple[tuple[Any, ...], ...]:
        query = f"SELECT {', '.join(columns)} FROM {table} WHERE payment_key = ? ORDER BY 1, 2"
        return tuple(tuple(plain(dict(row)).values()) for row in self.rows(query, key))

    def _new_events(self, key: str) -> list[Event]:
        query = "SELECT * FROM delivery_order_events WHERE payment_key = ? AND id > ? ORDER BY id"
        found = self.rows(query, key, self._last_event[key])
        if found:
            self._last_event[key] = found[-1]["id"]
        found = [row for row in found if row["event"] != "start"]  # made by the time alone
        return [tuple(row[column] for column in ("at_utc", "event", "status_id", "status", "detail")) for row in found]

    def retried(self, row: int) -> None:
        self._unfinished.add(row)

    def released(self, key: str, kept: int) -> None:
        """`quarantine retry` has stored it, from a document no older than the last acknowledged one."""
        (before,) = self.rows("SELECT payload FROM delivery_quarantine WHERE id = ?", kept)
        lists = [call.documents[key].text for call in self.sim.calls if call.is_heard and key in call.documents]
        when = {text: number for number, text in enumerate(lists)}
        if when[before["payload"]] < when.get(self._acknowledged.get(key, ""), -1):
            self.broken(f"order {key} was stored from document {kept} of the quarantine, and a newer one acknowledged")
        after = self._look(key) or {}
        self._take_as_it_is(key, after)
        if after.get("payload") != before["payload"]:
            self.broken(f"order {key} was stored from the quarantine, and has another document")

    def _take_as_it_is(self, key: str, state: State) -> None:
        self._states[key] = state
        self._new_events(key)
        self._oks[key].clear()  # they are older than the stored order

    def replayed(self, key: str) -> None:
        """A replay has stored an order or a newer document of it, never an older one."""
        before, after = self._states.get(key), self._look(key) or {}
        newest = next(
            (one.documents[key].text for one in self.sim.calls[::-1] if one.is_heard and key in one.documents), ""
        )
        if before is not None and before["payload"] == newest and after != before:
            self.broken(f"order {key} was changed by a replay, although it had its newest document")
        self._take_as_it_is(key, after)
        self._quiet_from[key] = self._listened[after["account"]]

    def erased(self) -> None:
        """`erase` has blanked the ended orders of one customer, and no others."""
        for key, before in self._states.items():
            after = self._look(key)
            if after == before:
                continue
            if before["ended_utc"] is None or after != _blank(before):
                self.broken(f"erasing a customer changed order {key} in another way")
            self._states[key] = _blank(before)

    def tick(self) -> None:
        self._see_taken()
        if self.sim.ticks % LOOK_AT_ALL == 0:
            self._look_at_all()
        if self.sim.ticks % LOOK_FOR_LATE == 0:
            self._look_for_late()

    def _see_taken(self) -> None:
        taken = {row["payment_key"]: row["account"] for row in self.rows(_TAKEN)}
        for key in taken.keys() - self._taken:
            self._quiet_from[key] = max(self._quiet_from[key], self._listened[taken[key]])
            self._quiet_since[key] = self.sim.now()
        self._taken = set(taken)

    def restarted(self) -> None:
        self._oks.clear()
        self._restarts.append(self.sim.now())
        if self.sim.power is not None:
            self._take_over_unheard()
        self._look_at_all()

    def finish(self) -> None:
        self._look_at_all()
        self._look_for_late()

    def _look_for_late(self) -> None:
        """An OK is written with the next poll at the latest, and changes by time with the next sweep."""
        quiet = self.sim.now() - max(self.sim.disturbed.values())
        # A write may wait for others and for the disk. An order in quarantine has no acknowledged_utc.
        before = text_of(self.sim.clock.now() - timedelta(seconds=IN_TIME_S))
        known = self._states.keys() - self._may_be_lost
        late = [key for key, oks in self._oks.items() if key in known and oks and oks[-1][0] < before]
        if quiet > IN_TIME_S and not self.sim.refused and late:
            self.broken(f"{late[0]} was acknowledged at {self._oks[late[0]][-1][0]}, which is not written")
        for row in self.rows(_WRONG_START, before) if quiet > IN_TIME_S else ():
            self.broken(f"order {row['payment_key']} starts at {row['start_utc']}")
        for row in self.rows(_WRONGLY_BEGUN, before) if quiet > IN_TIME_S else ():
            self.broken(f"order {row['payment_key']} starts at {row['start_utc']}, and has begun {row['times']} times")
        sweep = QUIET_SWEEP_S if self.sim.plan.kind == "day" else LOUD_SWEEP_S
        then = self.sim.clock.now() - timedelta(seconds=sweep + IN_TIME_S / 2)
        opening = self.sim.clock.true() - timedelta(seconds=self.sim.now())
        shown = min(then, opening + SLACK)
        if quiet < sweep + IN_TIME_S / 2:
            return
        for key, state in self._states.items():
            if self._must_have_ended(key, state, sweep):
                self.broken(f"order {key} is still open, without news since {state['changed_utc']}")
            is_news = self._quiet_since.get(key, 0.0) > self.sim.now() - sweep - IN_TIME_S / 2  # a new document
            if self._is_old(state, shown) and state["ordered_at"] and state["payload"] is not None and not is_news:
                self.broken(f"order {key} ended at {state['ended_utc']}, and its customer's data is still there")

    def _take_over_unheard(self) -> None:
        """Power failed during a commit, which may have reached the disk unseen."""
        touched, self._touched = self._touched, set()
        touched |= {row["payment_key"] for row in self._ended_rows() if row["payment_key"]}
        for key in sorted(touched):
            self._new_events(key)
            if (found := self._look(key)) is not None:
                self._states[key] = found
                self._quiet_from[key], self._quiet_since[key] = self._listened[found["account"]], self.sim.now()

    def _look_at_all(self) -> None:
        if not self._states:
            return
        found = {row["payment_key"]: self._with_lines(row) for row in self.rows("SELECT * FROM delivery_orders")}
        for key in sorted(found.keys() | self._states.keys()):
            if found.get(key) != self._states.get(key):
                self.broken(f"order {key} has changed without a statement that names it")


def _contents(document: Document) -> State:
    made = read(document)
    lines = {"lines": tuple(made.lines), "options": tuple(made.options)}
    codes = {"problem": frozenset(made.problems), "remarks": frozenset(made.remarks)}
    return made.columns | lines | codes | {"payload": document.text}


def _differ(before: State, after: State) -> bool:
    """Whether something that a till shows differs, except the status."""
    apart = {"status_id", "status", "status_text", "service_status_id", "payload", "payload_hash", "problem"}
    apart |= {"remarks", "ended_by", "ended_utc"}
    return before["payload"] is None or any(after[name] != before[name] for name in after.keys() - apart)


PRINTED = ("note", "amount_due", "total", "discount", "courier_fee", "order_tip", "lines", "options")


def _print(before: State, after: State) -> State:
    """A change of items, notes or money sets contents_revision, so that the kitchen prints again."""
    same = before["payload"] is not None and all(after[name] == before[name] for name in PRINTED)
    return {} if same else {"contents_revision": before["revision"] + 1}


def _shown(state: State) -> tuple[int | None, str]:
    return state["status_id"], state["status"]


def _blank(before: State) -> State:
    at = LINE_COLUMNS.index("note")
    lines = {"lines": tuple((*line[:at], None, *line[at + 1 :]) for line in before["lines"])}
    return before | dict.fromkeys([*NAMES_A_CUSTOMER, "payload_hash"]) | lines


def _nearest(steps: list[Step], before: State, after: State, events: list[Event]) -> str:
    """The permitted change with the fewest differences, and these differences."""
    ways = []
    for step in steps or [Step("no change at all", before, [])]:
        apart = [name for name in sorted(after, key=_times_last) if after[name] != step.state.get(name)]
        said = [f"{name} is {after[name]!r}, expected {step.state.get(name)!r}" for name in apart[:4]]
        if step.events != events:
            said.append(f"its new events are {events}, expected {step.events}")
        ways.append((len(apart), f"the nearest permitted change is {step.why}; {', '.join(said)}"))
    return min(ways, key=lambda way: way[0])[1]
