"""The technician: triggers that refuse the daemon's writes, and commands run by hand."""

from functools import partial
from typing import TYPE_CHECKING

import sqlalchemy
from tests.sim.disk import share_compiled
from tests.sim.people import Agenda
from tests.sim.plan import MINUTE, Span

from orderbridge.cli import action_commands
from orderbridge.jobs.postponed import REFUSED_S
from orderbridge.store.database import Database

if TYPE_CHECKING:
    from tests.sim.simulation import Sim

LOOKS_EVERY_S = 2 * MINUTE  # between two reads of the quarantine
BUSY_S = 5.0  # a till that holds the file is asked again
AGAIN_S = REFUSED_S + BUSY_S
_NOT_THE_TILLS = "NEW.pos_revision = OLD.pos_revision AND NEW.pos_reference IS OLD.pos_reference"
_NEW_ORDER = ("INSERT ON delivery_orders", "1")
# The triggers: the table and moment, and a condition.
TRIGGERS: dict[str, tuple[tuple[str, str], ...]] = {
    "new_orders": (_NEW_ORDER,),
    "orders": (_NEW_ORDER, ("UPDATE ON delivery_orders", _NOT_THE_TILLS)),
    "some_orders": (
        ("INSERT ON delivery_orders", "NEW.payment_key < '8'"),
        ("UPDATE ON delivery_orders", f"NEW.payment_key < '8' AND {_NOT_THE_TILLS}"),
    ),
    "contents": (("UPDATE ON delivery_orders", "NEW.payload IS NOT OLD.payload"),),
    "accepts": (("INSERT ON delivery_actions", "NEW.created_by = 'orderbridge'"),),
    "outbox": (("UPDATE ON delivery_actions", "NEW.withdraw = OLD.withdraw"),),
    "quarantine": (("INSERT ON delivery_quarantine", "1"), ("UPDATE ON delivery_quarantine", "1")),
}
TRIGGERS["all"] = (*TRIGGERS["orders"], *TRIGGERS["outbox"], *TRIGGERS["quarantine"])


class Technician:
    """A person who runs the program's commands, with a connection of their own."""

    def __init__(self, sim: "Sim") -> None:
        self._sim = sim
        self._random = sim.plan.stream("technician")
        self._agenda = Agenda(sim)
        self._refused_until = -1.0

    @property
    def is_refusing(self) -> bool:
        """Whether a trigger exists, or existed a moment ago."""
        return self._sim.now() <= self._refused_until

    def begin(self) -> None:
        plan = self._sim.plan
        for span in plan.refusing:
            self._agenda.at(span.start, partial(self._refuse, span))
        for at in plan.by_hand:
            self._agenda.at(at, self._retry_action)
        if plan.refusing:
            self._agenda.after(LOOKS_EVERY_S, self._look)

    def _refuse(self, span: Span) -> None:
        till = self._sim.till.connection
        if till.in_transaction:
            self._agenda.after(BUSY_S, partial(self._refuse, span))
            return
        for number, (when, condition) in enumerate(TRIGGERS[span.what]):
            till.execute(
                f"CREATE TRIGGER IF NOT EXISTS refuses_{span.what}_{number} BEFORE {when} WHEN {condition}"
                " BEGIN SELECT raise(ABORT, 'the POS says no'); END"
            )
        self._sim.trace.fault("database_refuses", what=span.what)
        self._refuse_until(span.end)
        self._agenda.at(span.end, partial(self._allow, span.what))

    def _allow(self, what: str) -> None:
        till = self._sim.till.connection
        if till.in_transaction:
            self._agenda.after(BUSY_S, partial(self._allow, what))
            return
        for number in range(len(TRIGGERS[what])):
            till.execute(f"DROP TRIGGER IF EXISTS refuses_{what}_{number}")
        self._refuse_until(self._sim.now())
        self._sim.trace.note("pos", "refuses no more", what=what)

    def mend_copy(self) -> None:
        """Repair the triggers: a copy that was put back has those of its time."""
        for span in self._sim.plan.refusing:
            if span.end <= self._sim.now():
                self._refuse_until(self._sim.now() + MINUTE)
                self._agenda.after(MINUTE, partial(self._allow, span.what))

    def _refuse_until(self, end: float) -> None:
        self._refused_until = max(self._refused_until, end + AGAIN_S)
        self._sim.disturb("", end + AGAIN_S - self._sim.now())

    def database(self) -> Database:
        database = Database(self._sim.settings.database.url, busy_timeout_s=0.0, inline=True)
        share_compiled(database)
        sqlalchemy.event.listen(database.engine, "connect", self._sim.prepare)
        return database

    def _retry_action(self) -> None:
        """`orderbridge actions retry ID`"""
        query = "SELECT id FROM delivery_actions WHERE state = 'failed' ORDER BY id"
        if failed := self._sim.till.connection.execute(query).fetchall():
            self.retry(self._random.choice(failed)["id"])

    def retry(self, row: int) -> None:
        if self._sim.hands.run(action_commands.actions, "retry", str(row))[0] == 0:
            self._sim.till.written[row] = self._sim.now()
            self._sim.spent[row] = len(self._sim.of_row[row])
            self._sim.till.withdrawn.pop(row, None)
            self._sim.tell("retried", row)
            self._sim.woken()

    def _look(self) -> None:
        self._agenda.after(LOOKS_EVERY_S, self._look)
        self._sim.hands.retry_quarantined()

    def leave(self) -> None:
        """Empty the quarantine of all documents that the database accepts by now."""
        if self._sim.plan.refusing:
            self._sim.hands.retry_quarantined(whole=True)
