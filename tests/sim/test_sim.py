"""A handful of simulated hours at each test run; `./run sim --seeds A..B` searches further."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.sim.invariants import all_invariants
from tests.sim.line import FAULTS
from tests.sim.machine import simulate
from tests.sim.plan import KINDS, plan_for
from tests.sim.simulation import Sim

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory):
    """Play one seed. What was played before is not played again, unless `anew`."""
    played: dict[tuple[int, str], Sim] = {}

    def play(seed: int, kind: str, *, anew: bool = False) -> Sim:
        if anew or (seed, kind) not in played:
            folder = tmp_path_factory.mktemp(f"{kind}-{seed}")
            played[seed, kind] = simulate(plan_for(seed, kind), folder, all_invariants())
        return played[seed, kind]

    return play


@pytest.mark.parametrize("seed", range(1, 6))
def test_every_promise_is_kept_in_a_squall(play, seed: int):
    assert play(seed, "squall").violations == []


def test_every_promise_is_kept_in_a_storm(play):
    sim = play(4, "storm")
    assert sim.violations == []
    assert sim.trace.faults["crash"] > 0


def test_the_same_seed_gives_the_same_trace(play):
    assert play(2, "squall").trace.text() == play(2, "squall", anew=True).trace.text()


def test_another_seed_gives_another_trace(play):
    assert play(3, "squall").trace.text() != play(4, "squall").trace.text()


def test_another_process_with_other_hashes_gives_the_same_trace(play):
    command = [sys.executable, "-m", "tests.sim", "--seed", "2", "--kind", "squall"]
    for seed in ("1", "2"):  # one of them at least is not ours
        environment = os.environ | {"PYTHONHASHSEED": seed}
        other = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=True)
        assert other.stdout.decode() == play(2, "squall").trace.text()


def test_the_faults_of_the_plan_are_all_played():
    assert FAULTS.keys() == KINDS.keys()


def test_a_crash_in_the_first_migration_leaves_a_file_that_the_next_start_uses(play):
    seed = next(seed for seed in range(100) if any("upgrade" in c.point for c in plan_for(seed, "squall").crashes))
    sim = play(seed, "squall")
    assert any("at=statement upgrade" in line for line in sim.trace.lines)
    assert sim.violations == []
