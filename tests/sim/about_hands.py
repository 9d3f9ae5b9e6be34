"""Judges the board's buttons and the ends of closures."""

import math
import sqlite3
from datetime import timedelta
from typing import Any

from sqlalchemy import Engine, NullPool, create_engine
from tests.jobs.shop import text_of
from tests.sim.hands import Tap, held_s
from tests.sim.judge import Judge, in_one_lane, one_menu, time_of

from orderbridge.actions import ACTIONS, CLOSURES
from orderbridge.jobs.closures import IDLE_S
from orderbridge.model import UNFINISHED, Action
from orderbridge_board.queries import STOP_SHOWN
from orderbridge_board.snapshot import state

ENDS_WITHIN_S = 2 * IDLE_S + 60.0  # with a till that locks the file, and a slow disk
A_MOMENT = timedelta(seconds=0.1)
BOARD_EVERY = 10  # ticks, while the same orders are shown, and on a day, which has many
SAME = ("action", "payment_key", "restaurant_id", "food_id")  # of a button and its row
CLOSED = "SELECT * FROM delivery_actions WHERE state = 'done' AND valid_until_minutes IS NOT NULL"
NEWER = "SELECT * FROM delivery_actions WHERE id > ? AND action IN (?, ?) AND (food_id = ? OR restaurant_id = ?)"
BY_REQUEST = "SELECT * FROM delivery_actions WHERE request_id = ?"
OPEN = (  # where the board is the till, an order rings until it is answered, or taken over if it needs no answer
    "SELECT *, CASE ifnull(status_id, 0) WHEN 1 THEN needs_answer_since IS NOT NULL ELSE pos_revision = 0 END AS rings"
    " FROM delivery_open_orders"
)
CANCELLED = (
    "SELECT *, 0 AS rings FROM delivery_orders WHERE ended_by = 'cancelled' AND payload > '' AND ended_utc > ?"
    " AND payment_key NOT IN (SELECT payment_key FROM delivery_actions"
    " WHERE action = 'cancel' AND state IN ('pending', 'sending', 'done'))"
)
OURS = "SELECT * FROM delivery_actions WHERE request_id LIKE 'board:%' OR request_id LIKE 'until:%'"


class ClosuresEnd(Judge):
    """A closure ends at its time, once, unless a newer row about its restaurant or food was done."""

    promise = "closures"

    def __init__(self) -> None:
        self._ends: dict[int, int] = {}  # by closure: the row that ends it

    def committed(self, name: str) -> None:
        if name == "Closures.carry_out":
            self.tick()

    def tick(self) -> None:
        for closure in self.rows(CLOSED) if self.sim.till.written else ():
            until = closure["until_utc"] and time_of(closure["until_utc"])
            if until and abs(until - self._due(closure)) > A_MOMENT and not self.jumped_since_written(closure["id"]):
                self.broken(f"closure {closure['id']} ends at {until}, and should end at {self._due(closure)}")
            ends = self.rows(BY_REQUEST, f"until:{closure['id']}")
            if ends:
                self._check_end(closure, ends[0])
            elif closure["id"] in self._ends:
                self.broken(f"the end of closure {closure['id']}, row {self._ends[closure['id']]}, is gone")
            else:
                self._check_late(closure)

    finish = tick

    def _due(self, closure: sqlite3.Row) -> Any:
        """Its minutes count from its INSERT; those of a retried row from its outcome."""
        since = closure["created_utc"] if closure["expires_utc"] is None else closure["finished_utc"]
        return time_of(since) + timedelta(minutes=closure["valid_until_minutes"])

    def _check_end(self, closure: sqlite3.Row, end: sqlite3.Row) -> None:
        if self._ends.setdefault(closure["id"], end["id"]) != end["id"]:
            self.broken(f"closure {closure['id']} is ended by row {self._ends[closure['id']]} and by row {end['id']}")
        wanted = ACTIONS[Action(closure["action"])].ended_by
        same = ("restaurant_id", "food_id", "account")
        if end["action"] != wanted or [end[name] for name in same] != [closure[name] for name in same]:
            self.broken(f"row {end['id']} ({end['action']}) ends closure {closure['id']} ({closure['action']})")
        if self.jumped_since_written(closure["id"]):
            return
        if time_of(end["created_utc"]) < self._due(closure) - A_MOMENT:
            self.broken(f"row {end['id']} ends closure {closure['id']} at {end['created_utc']}, before its time")
        withdrawn = self.sim.till.withdrawn.get(closure["id"], math.inf) if closure["withdraw"] else math.inf
        if self.sim.now() - withdrawn > self.seconds_since(end["created_utc"]) + A_MOMENT.total_seconds():
            self.broken(f"row {end['id']} ends closure {closure['id']}, whose end was withdrawn")
        for newer in self._newer(closure):
            if newer["id"] < end["id"] and self._is_of_one_lane(closure, newer) and _counts(newer, closure, end):
                self.broken(f"row {end['id']} ends closure {closure['id']}, and row {newer['id']} is newer")

    def _is_of_one_lane(self, closure: sqlite3.Row, newer: sqlite3.Row) -> bool:
        """Whether both are certainly in one lane. Where two accounts reach a restaurant, one of them has its foods."""
        return closure["food_id"] is None or any(
            in_one_lane(self.sim, closure, name, newer) and in_one_lane(self.sim, newer, name, closure)
            for name in self.sim.plan.accounts
        )

    def _check_late(self, closure: sqlite3.Row) -> None:
        late = (self.sim.clock.now() - self._due(closure)).total_seconds()
        if min(late, self.sim.quiet_s()) < ENDS_WITHIN_S or closure["withdraw"] or self.sim.technician.is_refusing:
            return
        if self.jumped_since_written(closure["id"]):
            return
        if all(newer["state"] not in {"done", "pending", "sending"} for newer in self._newer(closure)):
            self.broken(f"closure {closure['id']} ({closure['action']}) should have ended {late:.0f} s ago")

    def _newer(self, closure: sqlite3.Row) -> list[sqlite3.Row]:
        kinds = (closure["action"], ACTIONS[Action(closure["action"])].ended_by)
        restaurant = closure["restaurant_id"] if closure["food_id"] is None else None
        found = self.rows(NEWER, closure["id"], *kinds, closure["food_id"], restaurant)
        return [row for row in found if closure["food_id"] is None or one_menu(self.sim, closure, row)]


def _counts(newer: sqlite3.Row, closure: sqlite3.Row, end: sqlite3.Row) -> bool:
    """Whether a newer row waited when the end was written, or was done between the closure and its end."""
    if newer["state"] in UNFINISHED or newer["finished_utc"] > end["created_utc"]:
        return newer["expires_utc"] is None  # a person may have retried it later
    # If it was done before the closure, it was in another lane.
    return bool(newer["state"] == "done" and closure["finished_utc"] <= newer["finished_utc"] < end["created_utc"])


class TapsAreRows(Judge):
    """The board shows what the tables have; a button makes one row, however often it is tapped, and that row stays."""

    promise = "board"

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}  # by button: its row
        self._tapped_at: dict[int | None, float] = {}  # by row
        self._engine: Engine | None = None
        self._shown: list[sqlite3.Row] = []

    def committed(self, name: str) -> None:
        """Rows that the program writes for a tablet or for a closure's end count as the till's."""
        written = self.sim.till.written
        if name in {"BoardPages._tap", "Closures.carry_out"}:
            for row in self.rows(OURS):
                if row["id"] not in written:
                    held = held_s(row["action"]) if row["request_id"].startswith("board:") else 0.0
                    written[row["id"]] = self.sim.now() + held

    def tapped(self, tap: Tap) -> None:
        button = " ".join(str(tap.values.get(name)) for name in SAME)
        button += f" {tap.values.get('account')} {tap.values['tries']}"
        if self._rows.setdefault(button, tap.row) != tap.row:
            self.broken(f"tablet {tap.tablet} taps {button}: row {tap.row}, and before {self._rows[button]}")
        self._tapped_at[tap.row] = min(tap.at, self._tapped_at.get(tap.row, math.inf))
        if not self.rows("SELECT 1 FROM delivery_actions WHERE id = ?", tap.row):
            self.broken(f"tablet {tap.tablet} was shown row {tap.row}, which does not exist")
            return
        row = self.row(tap.row)
        if any(row[name] != tap.values.get(name) for name in SAME):
            self.broken(f"tablet {tap.tablet} taps {button}, and row {tap.row} is {row['action']}")
        if row["valid_until_minutes"] is not None and tap.values["action"] not in CLOSURES:
            self.broken(f"row {tap.row} ({row['action']}) has valid_until_minutes")

    def tick(self) -> None:
        """The board has a card for each open order, rings for one that needs an answer, and shows a cancelled one."""
        now = self.sim.clock.now()
        shown = [*self.rows(OPEN), *self.rows(CANCELLED, text_of(now - STOP_SHOWN))]
        is_same = shown == self._shown or self.sim.plan.kind == "day"
        if not shown or (is_same and self.sim.ticks % BOARD_EVERY):
            return
        self._shown = shown
        if self._engine is None:
            self._engine = create_engine(f"sqlite:///{self.sim.path}", poolclass=NullPool)
        web = self.sim.settings.web.model_copy(update={"board": "till"})
        settings = self.sim.settings.model_copy(update={"web": web})
        with self._engine.connect() as connection:
            cards = state(connection, settings, (), now, "en")["orders"]
        found = {card["key"]: (card["status"], card["revision"], "new" in card["sounds"]) for card in cards}
        for row in shown:
            if (card := found.get(row["payment_key"])) != (row["status"], row["revision"], bool(row["rings"])):
                self.broken(f"the board shows {card} of order {row['payment_key']}")

    def leaving(self, call: Any) -> None:
        """A step that a tablet can take back is not sent before the time for that is over."""
        tapped_at = self._tapped_at.get(call.row, -math.inf)
        waited = self.sim.now() - tapped_at
        if waited < held_s(call.operation) - A_MOMENT.total_seconds() and not self.sim.jumped_since(tapped_at):
            self.broken(f"#{call.number} sends row {call.row} ({call.operation}) {waited:.2f} s after the tap")

    def finish(self) -> None:
        for button, number in self._rows.items():
            if not self.rows("SELECT 1 FROM delivery_actions WHERE id = ?", number):
                self.broken(f"row {number} of {button} has disappeared")
