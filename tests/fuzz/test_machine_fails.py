"""Each thing that the state machine asserts can fail: a bug planted for it is found, and by that assertion."""

import shutil
import sqlite3
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.fuzz.test_machine import Evening
from tests.sim.planting import plant

from orderbridge.jobs import carry
from orderbridge.jobs.drain import Outbox
from orderbridge.jobs.poll import Poller
from orderbridge.rules import outbox, retry
from orderbridge.store import actions, orders

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

# by which assertion, what is wrong, in which function, the sound text, the broken one
PLANTED: tuple[tuple[str, str, Callable[..., object], str, str], ...] = (
    (ACKNOWLEDGED, "the_document_is_not_kept", orders._new_row, "without_nul(order.payload)", "None"),
    (
        COOLDOWN,
        "the_next_poll_leaves_after_a_second",
        Poller._cool_down,
        (
            "self._next = self._clock.monotonic() + self._cooldown.total_seconds()\n"
            "    return self._clock.now() + self._cooldown"
        ),
        "self._next = self._clock.monotonic() + 1.0\n    return self._clock.now() + timedelta(seconds=1)",
    ),
    (LANES, "the_newest_row_goes_first", outbox._plan_lane, "oldest = alive[::-1]", "oldest = alive"),
    (
        TWICE,
        "a_refusal_is_tried_again",
        retry.decide,
        "return _refused(action, history)",
        "return Again(now + timedelta(seconds=5), last.code)",
    ),
    (TWICE, "sending_crashes", carry._call, "await client.complete(key)", "raise KeyError(key)"),
    (
        ENDS,
        "a_row_disappears",
        actions.finish,
        "return bool(",
        "connection.execute(delete(actions).where(actions.c.id == row_id))\n    return bool(",
    ),
    (
        ENDS,
        "an_end_is_taken_back",
        Outbox._end_rows,
        "now = self._clock.now()",
        (
            "now = self._clock.now()\n"
            "    connection.exec_driver_sql(\"UPDATE delivery_actions SET state = 'pending' WHERE state = 'refused'\")"
        ),
    ),
    (WELL, "an_end_has_no_words", actions.finish, "error_text=text", "error_text=None"),
    (WELL, "nobody_says_how_it_is_known", actions.finish, "known_by=verdict.known_by", "known_by=None"),
    (
        WELL,
        "a_new_status_is_not_written",
        orders.update_delivered,
        "if change.status_counts:\n        values",
        "if False:\n        values",
    ),
)


def failing(empty: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The functions that the machine's first failure came through."""
    monkeypatch.setattr(Evening, "empty", empty, raising=False)
    with pytest.raises(AssertionError) as failure:
        run_state_machine_as_test(Evening, settings=SEARCH)
    return [frame.name for frame in traceback.extract_tb(failure.value.__traceback__)]


@pytest.mark.parametrize("by, name, function, sound, broken", PLANTED, ids=[row[1] for row in PLANTED])
@pytest.mark.timeout(120)
def test_a_planted_bug_fails_the_machine(
    empty_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    by: str,
    name: str,
    function: Callable[..., object],
    sound: str,
    broken: str,
):
    plant(monkeypatch, function, sound, broken)
    assert by in failing(empty_file, monkeypatch), name


def test_a_good_row_that_is_refused_fails_the_machine(
    empty_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    strict = tmp_path / "strict.db"
    shutil.copy(empty_file, strict)
    with sqlite3.connect(strict) as connection:
        connection.execute(
            "CREATE TRIGGER no_complete BEFORE INSERT ON delivery_actions WHEN NEW.action = 'complete'"
            " BEGIN SELECT RAISE(ABORT, 'no'); END"
        )
    connection.close()
    assert "_write" in failing(strict, monkeypatch)
