"""Judges promises 1, 2 and 4 to 6 at the end of a simulation: audits the tables, compares them, and reads the files."""

import sqlite3
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, StaticPool, create_engine
from tests.sim.judge import Judge, status_shown
from tests.sim.line import Call

from orderbridge.jobs.audit import audit
from orderbridge.store import high_water, journal, retention
from orderbridge_sandbox.state import Order

LOOK_EVERY = 20  # ticks
LATER = timedelta(days=1)
UNFINISHED = (
    "SELECT id FROM delivery_actions WHERE state IN ('pending', 'sending')",
    "SELECT payment_key FROM delivery_orders WHERE ended_utc IS NULL",
    "SELECT id FROM delivery_quarantine WHERE resolved_utc IS NULL",
)


class AuditFindsNothing(Judge):
    """`orderbridge audit` over the tables, at the end."""

    def finish(self) -> None:
        engine = create_engine(f"sqlite:///{self.sim.path}")
        with engine.connect() as connection:
            result = audit(connection, self.sim.settings, datetime(2000, 1, 1, tzinfo=UTC))
        engine.dispose()
        for finding in result.findings:
            self.sim.violated(str(finding.promise), f"{finding}")


class RetentionKeeps(Judge):
    """Retention would delete nothing unfinished, however old. It is tried in a copy."""

    promise = "contract"

    def tick(self) -> None:
        if self.sim.ticks % LOOK_EVERY or not self.rows("SELECT 1 FROM delivery_quarantine"):
            return
        with closing(sqlite3.connect(":memory:", check_same_thread=False)) as copy:
            with closing(sqlite3.connect(self.sim.path)) as file:
                file.backup(copy)
            for (guard,) in copy.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
                copy.execute(f"DROP TRIGGER {guard}")  # they admit only the daemon's connections
            with create_engine("sqlite://", creator=lambda: copy, poolclass=StaticPool).begin() as connection:
                before = _rows(connection)
                late = self.sim.clock.now() + LATER
                retention.delete_actions(connection, retention.old_actions(connection, late), before=late)
                retention.delete_orders(connection, retention.old_orders(connection, late), before=late)
                retention.delete_documents(connection, late)
                if gone := sorted(before - _rows(connection), key=str):
                    self.broken(f"retention would delete unfinished data: {gone}")


def _rows(connection: Connection) -> set[object]:
    return {row[0] for query in UNFINISHED for row in connection.exec_driver_sql(query)}


class TruthAtTheEnd(Judge):
    """At the end the tables agree with the sandbox: each order once, with its status, unless a verdict was wrong."""

    promise = "1, 2 and 6"

    def __init__(self) -> None:
        self._stored: set[int] = set()  # lists whose orders were stored; a fault of the database or a crash prevents it
        self._unwritten: set[str] = set()  # orders that the database did not let a verdict update
        # Orders that neither the tables nor quarantine took: reported and not acknowledged.
        self._unstored: set[str] = set()

    def logged(self, _: str, event: str, facts: dict[str, Any], __: str) -> None:
        if event == "action.order_not_written":
            self._unwritten.add(facts["payment_key"])
        if event == "orders.polled":
            self._stored.add(self.sim.lists[facts["account"]].number)
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
        stored = self.order(order.key)
        lists = [call for call in self.sim.calls if call.whole and call.status == 200 and order.key in call.delivered]
        if stored is None:
            completed_elsewhere = order.status_id == 5 and order.history[-1].by != "pos"
            acknowledged = any((call.operation, call.argument) == ("acknowledge", order.key) for call in self.sim.calls)
            cut_off = not acknowledged and all(one.number not in self._stored for one in lists)
            unstored = order.key in self._unstored or cut_off
            # A clock that was set ahead may be believed for two days: longer than a retention of one day. A person may
            # have erased it for its customer's other orders.
            blanked = "SELECT 1 FROM delivery_quarantine WHERE payment_key = ? AND payload = ''"
            if (self.sim.jumped_since(0.0) or self.sim.plan.hands) and self.rows(blanked, order.key):
                return
            if order.status_id != 5 or (lists and not (completed_elsewhere and unstored)):
                self.broken(f"delivery_orders lacks order {order.key}")
            return
        received = "SELECT 1 FROM delivery_order_events WHERE payment_key = ? AND event = 'received'"
        if (times := len(self.rows(received, order.key))) != 1:
            self.broken(f"order {order.key} was received {times} times")
        if stored["status_id"] == status_shown(order) or uncertain:
            return
        if order.status_id == 5 and (order.history[-1].by != "pos" or order.key in self._unwritten):
            return  # completed orders are not delivered
        if not self._changed_between(order):
            self.broken(f"order {order.key} is {order.status_id}, and {stored['status_id']} is stored")

    def _changed_between(self, order: Order) -> bool:
        """Whether it was changed elsewhere between list and acknowledgement, which the interface hides."""
        for call in self.sim.calls:
            if call.operation == "acknowledge" and call.argument == order.key and call.reached and call.reached.effect:
                polls = (one for one in self.sim.calls[: call.number - 1][::-1] if one.operation == "get_current")
                lists = (one for one in polls if one.account == call.account and one.reached and one.whole)
                answer = next(lists, None)
                if (answer and answer.delivered.get(order.key)) != call.reached.status_before:
                    return True
        return False


class JournalHolds(Judge):
    """Each document is in the journal before its order is acknowledged, and stays there."""

    promise = "journal"

    def __init__(self) -> None:
        self._acknowledged: dict[tuple[str, str], tuple[int, date]] = {}  # by order and document: request and day
        self._last: dict[str, str] = {}  # by order: its newest document
        self._newest: dict[str, str] = {}  # and the newest one that was acknowledged
        self._came: dict[tuple[str, str], int] = {}  # the last list with this document
        self._blank: set[tuple[str, str]] = set()  # orders and documents that the daemon does not write again
        self._today = date.min

    def ended(self, call: Call) -> None:
        if call.operation == "get_current" and call.is_heard:
            self._last |= {key: document.text for key, document in call.documents.items()}
            self._came |= {(key, document.text): call.number for key, document in call.documents.items()}

    def leaving(self, call: Call) -> None:
        if call.operation == "acknowledge" and (answer := self.sim.lists.get(call.account)) is not None:
            document = answer.documents.get(call.argument)
            if document is not None and (call.argument, document.text) not in self._blank:
                today = self.sim.clock.now().date()
                self._acknowledged.setdefault((call.argument, document.text), (call.number, today))
                self._newest[call.argument] = document.text

    def _entries(self) -> list[Any]:
        folder = self.sim.settings.journal
        found = () if folder is None else journal.entries(journal.files(folder))
        return [entry for entry in found if entry is not None]

    def erased(self) -> None:
        """Expect no more documents of erased customers in the journal."""
        blank = {entry.payment_key for entry in self._entries() if entry.digest is None}
        self._acknowledged = {of: told for of, told in self._acknowledged.items() if of[0] not in blank}
        self._blank |= {(key, self._last[key]) for key in blank & self._last.keys()}

    def finish(self) -> None:
        if self.sim.settings.journal is None:
            return
        held = {(entry.payment_key, journal.document(entry)) for entry in self._entries()}
        # Retention uses the latest time that a clock has shown.
        self._today = max(self._today, self.sim.clock.now().date())
        kept = self._today - timedelta(days=self.sim.plan.retention_days)
        for (key, text), (number, day) in self._acknowledged.items():
            if day >= kept and (key, text.encode()) not in held:
                self.broken(f"#{number} acknowledged {key}, whose document is not in the journal")

        last = {entry.payment_key: journal.document(entry) for entry in self._entries()}
        for key, text in self._newest.items():
            found = (last.get(key) or b"").decode(errors="replace")
            if self._came.get((key, found), 1 << 30) < self._came[key, text]:
                self.broken(f"the last line of order {key} in the journal is not its last document")

    restarted = finish


class MarkIsNeverAhead(Judge):
    """The high-water mark is readable and never ahead of the tables: no older copy is reported if none was put back."""

    promise = "mark"

    def logged(self, _: str, event: str, facts: dict[str, Any], __: str) -> None:
        if event == "database.older_copy":
            self.broken(f"an older copy is reported, and none was put back: {facts}")

    def restarted(self) -> None:
        path = self.sim.path.with_name(f"{self.sim.path.name}.last-word")
        if path.exists() and high_water.read_mark(path) is None:
            self.broken("the high-water mark cannot be read")
