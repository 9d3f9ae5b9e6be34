"""Each thing that the state machine asserts can fail: a bug planted for it is found, and by that assertion."""

import shutil
import sqlite3
import traceback
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from sqlalchemy import Connection, delete, update
from tests.fuzz.test_machine import Evening
from tests.sim.bugs import BUGS
from tests.sim.planting import Plant, plant

from orderbridge.marketplace.client import Client
from orderbridge.model import Action, Outcome
from orderbridge.rules import retry
from orderbridge.rules.cooldown import Cooldowns
from orderbridge.store import actions, orders, tables

pytestmark = pytest.mark.timeout(900)  # an evening is long on a busy machine

# Without a seed of its own, without shrinking: the first story that shows it is enough.
SEARCH = settings(
    deadline=None,
    max_examples=200,
    stateful_step_count=30,
    phases=(Phase.generate,),
    database=None,
    derandomize=True,
    report_multiple_bugs=False,
    print_blob=False,
    suppress_health_check=list(HealthCheck),
)
ACKNOWLEDGED = "what_is_acknowledged_is_stored"
COOLDOWN = "the_cooldown_is_kept"
LANES = "rows_of_one_lane_go_one_after_another_by_their_ids"
TWICE = "nothing_is_sent_after_a_definite_answer_nor_more_than_four_times"
ENDS = "no_row_disappears_and_no_end_is_taken_back"
WELL = "all_is_well_again"


def disappearing(true: Any, tx: Connection, ends: Any, now: Any) -> Any:
    ended = true(tx, ends, now)
    tx.execute(delete(tables.actions).where(tables.actions.c.id.in_([row_id for row_id, _ in ends])))
    return ended


def taking_back(true: Any, tx: Connection, ends: Any, now: Any) -> Any:
    tx.execute(update(tables.actions).where(tables.actions.c.state == "refused").values(state="failed"))
    return true(tx, ends, now)


def of_unknown_source(true: Any, tx: Connection, ends: Any, now: Any) -> Any:
    return true(tx, [(row, replace(end, verdict=replace(end.verdict, known_by=None))) for row, end in ends], now)


def without_status(true: Any, tx: Connection, known: Any, arrival: Any, change: Any, now: Any) -> Any:
    return true(tx, known, arrival, replace(change, status_counts=False), now)


def trying_once_more(true: Any, action: Action, history: Any, **how: Any) -> Any:
    made = true(action, history, **how)
    refused = [attempt for attempt in history if attempt.outcome == Outcome.REFUSED]
    return retry.RetryAt(how["now"] + timedelta(seconds=5), made.code) if len(refused) == 1 else made


async def crashing(true: Any, self: Client, action: Action, *rest: Any, **how: Any) -> None:
    if action == Action.ACCEPT:
        raise KeyError(action)
    await true(self, action, *rest, **how)


# what is wrong, by which assertion that is found, how it is planted
PLANTED: dict[str, tuple[str, Plant]] = {
    "the_document_is_not_kept": (ACKNOWLEDGED, BUGS["the_document_is_not_kept"].plants[0]),
    "the_next_poll_leaves_after_a_second": (
        COOLDOWN,
        ((Cooldowns, "configure"), lambda true, self, scope, _: true(self, scope, 1.0)),
    ),
    "the_newest_row_goes_first": (LANES, BUGS["the_newest_row_goes_first"].plants[0]),
    "a_refusal_is_tried_again": (TWICE, (retry.decide, trying_once_more)),
    "sending_crashes": (TWICE, ((Client, "act"), crashing)),
    "a_row_disappears": (ENDS, (actions.finish, disappearing)),
    "an_end_is_taken_back": (ENDS, (actions.finish, taking_back)),
    "an_end_has_no_words": (WELL, BUGS["a_verdict_has_no_words"].plants[0]),
    "nobody_says_how_it_is_known": (WELL, (actions.finish, of_unknown_source)),
    "a_new_status_is_not_written": (WELL, (orders.update_delivered, without_status)),
}


def failing(empty: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The functions that the machine's first failure came through."""
    monkeypatch.setattr(Evening, "empty", empty, raising=False)
    with pytest.raises(AssertionError) as failure:
        run_state_machine_as_test(Evening, settings=SEARCH)
    return [frame.name for frame in traceback.extract_tb(failure.value.__traceback__)]


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_fails_the_machine(empty_file: Path, monkeypatch: pytest.MonkeyPatch, name: str):
    by, planted = PLANTED[name]
    plant(monkeypatch, planted)
    assert by in failing(empty_file, monkeypatch)


def test_a_good_row_that_is_refused_fails_the_machine(
    empty_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    strict = tmp_path / "strict.db"
    shutil.copy(empty_file, strict)
    with closing(sqlite3.connect(strict)) as connection, connection:
        connection.execute(
            "CREATE TRIGGER no_complete BEFORE INSERT ON delivery_actions WHEN NEW.action = 'complete'"
            " BEGIN SELECT RAISE(ABORT, 'no'); END"
        )
    connection.close()
    assert "_write" in failing(strict, monkeypatch)
