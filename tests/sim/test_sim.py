"""A handful of simulated hours at each test run; `./run sim --seeds A..B` searches further."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from tests.sim import vfs
from tests.sim.corners import CORNERS, corner_of, seed_of
from tests.sim.judges import judges_of
from tests.sim.machine import simulate
from tests.sim.plan import MADE, MIX, plan_for
from tests.sim.shrink import Limit
from tests.sim.simulation import Sim

from orderbridge.rules import cooldown

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory):
    played: dict[tuple[int, str], Sim] = {}

    def play(seed: int, kind: str) -> Sim:
        if (seed, kind) not in played:
            folder = tmp_path_factory.mktemp(f"{kind}-{seed}")
            played[seed, kind] = simulate(plan_for(seed, kind), folder, judges_of(plan_for(seed, kind)))
        return played[seed, kind]

    return play


@pytest.mark.parametrize("corner", CORNERS)
def test_every_promise_is_kept_in_a_corner(play, corner: str):
    assert play(seed_of(corner), "corner").violations == []


@pytest.mark.parametrize(
    "kind, seed, fault",
    [
        *(("squall", seed, "") for seed in (1, 2, 3, 5, 5057)),  # 5057: a row is withdrawn while it is on the wire
        ("storm", 4, "crash"),
        ("power", 3, "power_lost"),
        ("power", 6, "power_lost"),
        ("restore", 3, "older_copy"),  # while the daemon runs, and after a kill
        ("restore", 14, "older_copy"),  # beside a foreign -wal
        ("hands", 7003, ""),
        *(("crowd", seed, "") for seed in (2, 3, 4)),  # the configuration says that they share a cooldown, or 429s do
        ("fleet", 1, "pause"),
        ("fleet", 2, "pause"),
        pytest.param("morning", 30, "token_lost", marks=[pytest.mark.slow, pytest.mark.timeout(900)]),  # a day's pace
    ],
)
def test_every_promise_is_kept(play, kind: str, seed: int, fault: str):
    if kind == "power" and (missing := vfs.missing()):
        pytest.skip(missing)
    sim = play(seed, kind)
    assert sim.violations == []
    assert not fault or sim.trace.faults[fault] > 0


def test_the_judge_finds_that_a_shared_cooldown_is_not_detected(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(cooldown, "LIMITED_IN_A_ROW", 1_000_000)
    plan = plan_for(1, "crowd")
    sim = simulate(plan, tmp_path, judges_of(plan))
    assert any("has had no good poll" in violation for violation in sim.violations)


def test_a_search_plays_each_kind_and_each_corner():
    seeds = range(len(MIX) * len(CORNERS))
    assert set(MIX) == set(MADE)
    assert {corner_of(seed) for seed in seeds if plan_for(seed).scripted} == set(CORNERS)


def traces(*kinds: str) -> dict[str, str]:
    """The traces of the first minutes of one plan of each kind."""
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


def test_a_crash_in_the_first_migration_leaves_a_file_that_the_next_start_uses(play):
    seed = next(seed for seed in range(100) if any("upgrade" in c.point for c in plan_for(seed, "squall").crashes))
    sim = play(seed, "squall")
    assert any("at=statement upgrade" in line for line in sim.trace.lines)
    assert sim.violations == []
