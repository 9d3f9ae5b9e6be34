"""A handful of simulated hours at each test run; `./run sim --seeds A..B` searches further."""

import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError
from tests.sim import vfs
from tests.sim.corners import CORNERS, seed_of
from tests.sim.disk import SimDatabase
from tests.sim.judge import Judge
from tests.sim.judges import judges_of
from tests.sim.machine import simulate
from tests.sim.plan import MADE, plan_for
from tests.sim.shrink import Limit
from tests.sim.simulation import Sim

from orderbridge.rules import cooldown

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory):
    """Play one seed. What was played before is not played again."""
    played: dict[tuple[int, str], Sim] = {}

    def play(seed: int, kind: str) -> Sim:
        if (seed, kind) not in played:
            folder = tmp_path_factory.mktemp(f"{kind}-{seed}")
            played[seed, kind] = simulate(plan_for(seed, kind), folder, judges_of(plan_for(seed, kind)))
        return played[seed, kind]

    return play


@pytest.mark.parametrize("seed", [1, 2, 3, 5])
def test_every_promise_is_kept_in_a_squall(play, seed: int):
    assert play(seed, "squall").violations == []


@pytest.mark.parametrize("corner", CORNERS)
def test_every_promise_is_kept_in_a_corner(play, corner: str):
    assert play(seed_of(corner), "corner").violations == []


def test_every_promise_is_kept_in_a_storm(play):
    sim = play(4, "storm")
    assert sim.violations == []
    assert sim.trace.faults["crash"] > 0


@pytest.mark.skipif(bool(vfs.missing()), reason=vfs.missing())
@pytest.mark.parametrize("seed", [3, 6])
def test_every_promise_is_kept_where_the_power_fails(play, seed: int):
    sim = play(seed, "power")
    assert sim.violations == []
    assert sim.trace.faults["power_lost"] > 2


@pytest.mark.parametrize("seed", [3, 14])  # while the daemon runs, and after a kill; beside a foreign -wal
def test_nothing_is_repeated_where_an_older_copy_is_put_back(play, seed: int):
    sim = play(seed, "restore")
    assert sim.violations == []
    assert sim.trace.faults["older_copy"] > 0


def test_every_promise_is_kept_while_people_use_commands_and_tablets(play):
    sim = play(7003, "hands")
    assert sim.violations == []
    assert any("tablet=one" in line for line in sim.trace.lines)


def test_five_accounts_with_the_scope_of_their_cooldown_configured_are_polled_in_turn(play):
    sim = play(2, "crowd")
    assert sim.plan.configured_scope != "auto"
    assert sim.violations == []


@pytest.mark.parametrize("seed", [1, 2])
def test_every_promise_is_kept_by_a_fleet(play, seed: int):
    sim = play(seed, "fleet")
    assert sim.violations == []
    assert sim.trace.faults["pause"] > 0


@pytest.mark.parametrize("seed", [3, 4])  # one cooldown for an address, and for an application
def test_nobody_starves_where_five_accounts_share_a_cooldown(play, seed: int):
    sim = play(seed, "crowd")
    assert sim.violations == []
    assert {call.account for call in sim.calls if call.status == 429} >= {"besiktas"}


def test_a_cooldown_that_is_not_found_to_be_shared_is_found_by_the_judge(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr(cooldown, "LIMITED_IN_A_ROW", 1_000_000)
    plan = plan_for(1, "crowd")
    sim = simulate(plan, tmp_path, judges_of(plan))
    assert any("has had no good poll" in violation for violation in sim.violations)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_promise_is_kept_on_a_morning(tmp_path: Path):
    """A day's pace; its faults end tokens again and again."""
    plan = plan_for(30, "morning")
    sim = simulate(plan, tmp_path, judges_of(plan))
    assert sim.violations == []
    assert sim.trace.faults["token_lost"] > 0


def test_another_seed_gives_another_trace(play):
    assert play(2, "squall").trace.text() != play(3, "squall").trace.text()


def traces(*kinds: str) -> dict[str, str]:
    """Of the first minutes of one plan of each kind."""
    found = {}
    for kind in kinds:
        limit = Limit(300.0, float("inf"), time.monotonic)
        with tempfile.TemporaryDirectory() as folder:
            found[kind] = simulate(plan_for(3, kind), Path(folder), [limit]).trace.text()
    return found


def test_another_process_with_other_hashes_and_in_another_order_gives_the_same_traces():
    kinds = [kind for kind in MADE if kind != "power" or not vfs.missing()]
    code = f"from tests.sim.test_sim import traces; print(json.dumps(traces(*{kinds[::-1]})))"
    not_ours = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    environment = os.environ | {"PYTHONHASHSEED": not_ours}
    command = [sys.executable, "-c", f"import json; {code}"]
    other = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=True)
    here, there = traces(*kinds), json.loads(other.stdout)
    assert [kind for kind in kinds if here[kind] != there[kind]] == []


def test_a_limit_ends_a_simulation_in_which_no_start_succeeds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def locked(*_: object) -> None:
        raise OperationalError("SELECT", None, sqlite3.OperationalError("database is locked"))

    monkeypatch.setattr(SimDatabase, "read_now", locked)
    limit = Limit(60.0, float("inf"), time.monotonic)
    simulate(plan_for(2, "squall"), tmp_path, [limit])
    assert limit.given_up


def test_an_error_of_a_judge_is_not_taken_for_one_of_the_program(tmp_path: Path):
    class Wrong(Judge):
        def committed(self, _: str) -> None:
            raise sqlite3.OperationalError("no such table")

    with pytest.raises(sqlite3.OperationalError):
        simulate(plan_for(2, "squall"), tmp_path, [Wrong()])


def test_a_crash_in_the_first_migration_leaves_a_file_that_the_next_start_uses(play):
    seed = next(seed for seed in range(100) if any("upgrade" in c.point for c in plan_for(seed, "squall").crashes))
    sim = play(seed, "squall")
    assert any("at=statement upgrade" in line for line in sim.trace.lines)
    assert sim.violations == []


def test_a_row_that_was_asked_back_while_it_was_on_the_wire_is_sent_again_in_time(play):
    assert play(5057, "squall").violations == []
