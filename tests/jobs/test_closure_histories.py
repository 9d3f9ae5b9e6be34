"""Random histories of a restaurant and a food: closed, opened, undone, with ends, and with clock changes."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import event, text
from tests.store.samples import NOW, RESTAURANT

from orderbridge.actions import ACTIONS
from orderbridge.jobs.account import Roster
from orderbridge.jobs.closures import Closures
from orderbridge.model import Action, ActionState, KnownBy, Verdict
from orderbridge.rules.closures import planned_end
from orderbridge.store import actions, closures, unfinished
from orderbridge.store.database import Database
from orderbridge.store.ddl import time_text

SUBJECTS: dict[str, dict[str, Any]] = {"restaurant": {"restaurant_id": RESTAURANT}, "food": {"food_id": 7}}
COUNTS = {"pending", "sending", "done"}
ENDS = [ActionState.DONE, ActionState.DONE, ActionState.REFUSED, ActionState.FAILED, ActionState.EXPIRED]

about = st.sampled_from(sorted(SUBJECTS))
step = st.one_of(
    st.tuples(st.just("close"), about, st.sampled_from([None, 5, 30, 60])),
    st.tuples(st.just("open"), about, st.none()),
    st.tuples(st.just("verdict"), about, st.sampled_from(ENDS)),
    st.tuples(st.just("withdraw"), about, st.integers(0, 2)),
    st.tuples(st.just("pass"), st.none(), st.sampled_from([1, 4, 29, 61])),
    st.tuples(st.just("set the clock"), st.none(), st.sampled_from([-1440, -20, 20])),
)


@dataclass
class Clock:
    at: datetime = NOW

    def now(self) -> datetime:
        return self.at


@dataclass
class History:
    """The tables, and what was seen in them."""

    database: Database
    clock: Clock = field(default_factory=Clock)
    taken_back: set[int] = field(default_factory=set)

    def rows(self) -> list[Any]:
        return list(self.database.read_now(lambda tx: tx.execute(text("SELECT * FROM delivery_actions ORDER BY id"))))

    def of(self, subject: str) -> Iterator[Any]:
        return (row for row in self.rows() if (row.food_id is not None) == (subject == "food"))

    def write(self, subject: str, close: bool, minutes: int | None = None) -> None:
        closing, opening = {
            "restaurant": (Action.CLOSE_RESTAURANT, Action.OPEN_RESTAURANT),
            "food": (Action.DEACTIVATE_FOOD, Action.ACTIVATE_FOOD),
        }[subject]
        values = SUBJECTS[subject] | {"action": closing if close else opening, "valid_until_minutes": minutes}
        row = self.database.write_now(lambda tx: actions.add(tx, **values))
        at = time_text(self.clock.at)
        self._plain(f"UPDATE delivery_actions SET created_utc = '{at}' WHERE id = {row}")

    def _plain(self, sql: str) -> None:
        def work(tx: Any) -> None:
            tx.execute(text("DROP TRIGGER IF EXISTS delivery_actions_update"))
            tx.execute(text(sql))

        self.database.write_now(work)

    def verdict(self, subject: str, state: ActionState) -> None:
        """The oldest row that waits is carried out, or not."""
        waiting = {row.id: row for row in self.database.read_now(unfinished.read_unfinished)[0]}
        row = next((waiting[one.id] for one in self.of(subject) if one.id in waiting), None)
        if row is not None:
            verdict = Verdict(state, None if state == ActionState.DONE else "x", KnownBy.ANSWER)
            end = actions.End(verdict, None, 1, planned_end(row, verdict, self.clock.at))
            self.database.write_now(lambda tx: actions.finish(tx, [(row.id, end)], self.clock.at))

    def withdraw(self, subject: str, back: int) -> None:
        own = [row.id for row in self.of(subject) if row.created_by != "orderbridge"]
        if own:
            row = own[-1 - min(back, len(own) - 1)]
            self.taken_back.add(row)
            self._plain(f"UPDATE delivery_actions SET withdraw = 1 WHERE id = {row}")

    def tick(self) -> None:
        """One run of the job, and what must hold for it."""
        before = self.rows()
        plans = self.database.read_now(closures.planned)
        self.database.write_now(lambda tx: self.job().carry_out(tx, plans))
        after = self.rows()
        written = [row for row in after if row.id not in {one.id for one in before}]
        for row in written:
            closed = next(one for one in before if f"until:{one.id}" == row.request_id)
            assert ACTIONS[Action(closed.action)].ended_by == row.action
            assert (row.food_id, row.restaurant_id) == (closed.food_id, closed.restaurant_id)
            assert closed.until_utc <= time_text(self.clock.at)
            assert closed.id not in self.taken_back
            lane = [one for one in before if (one.food_id is None) == (closed.food_id is None)]
            assert not [one for one in lane if one.id > closed.id and one.state in COUNTS]
        names = [row.request_id for row in after]
        assert len(names) == len(set(names))
        for row in after:
            if row.until_utc is None:
                continue
            latest = self.clock.at + timedelta(minutes=row.valid_until_minutes)
            newer = {one.state for one in after if one.id > row.id and (one.food_id is None) == (row.food_id is None)}
            assert row.state == "done"
            assert row.until_utc <= time_text(latest) or newer & COUNTS
            assert row.until_utc > time_text(self.clock.at) or newer & {"pending", "sending"}
        shown = self.database.read_now(lambda tx: tx.execute(text("SELECT * FROM delivery_closures")).all())
        planned = [row.food_id for row in shown if row.until_utc is not None]
        assert len(planned) == len(set(planned)), "one planned end of a lane"

    def job(self) -> Closures:
        """As a daemon that has just started: the job remembers nothing."""
        chosen = SimpleNamespace(default_account=SimpleNamespace(name="kadikoy"))
        context = SimpleNamespace(settings=chosen, database=self.database, clock=self.clock)
        roster = Roster()
        roster.known = {"kadikoy": None}
        return Closures(cast("Any", context), roster, cast("Any", None))


@given(steps=st.lists(step, max_size=25))
def test_an_end_is_written_once_and_never_after_a_newer_row(steps, empty_file: Path):
    with TemporaryDirectory() as folder:
        path = shutil.copy(empty_file, folder)
        database = Database(f"sqlite:///{path}", inline=True)
        event.listen(database.engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous = OFF"))
        history = History(database)
        try:
            for what, subject, value in steps:
                match what:
                    case "close" | "open":
                        history.write(subject, what == "close", value)
                    case "verdict":
                        history.verdict(subject, value)
                    case "withdraw":
                        history.withdraw(subject, value)
                    case _:
                        history.clock.at += timedelta(minutes=value)
                history.tick()
        finally:
            database.close()
