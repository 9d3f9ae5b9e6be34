"""A plan that breaks a promise becomes small Python that breaks the same promise."""

import subprocess
import sys
from collections import Counter
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
from tests.sim import __main__ as command
from tests.sim import reached
from tests.sim.bugs import BUGS
from tests.sim.judges import judges_of
from tests.sim.machine import simulate
from tests.sim.plan import MADE, Crash, Plan, plan_for
from tests.sim.planting import plant
from tests.sim.shrink import Shrinker, as_python, knobs_on, promise_of


def read_back(text: str) -> Plan:
    names: dict[str, Plan] = {}
    exec(text, names)
    return names["PLAN"]


@pytest.mark.timeout(900)
def test_a_search_ends_with_a_small_plan_that_breaks_the_same_promise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    bug = BUGS["a_document_that_is_no_order_is_forgotten"]
    plant(monkeypatch, *bug.plants)
    monkeypatch.setattr(command, "judges_of", lambda _: bug.watchers())
    monkeypatch.setattr(sys, "argv", f"sim --seeds {bug.where} --kind squall --jobs 1".split())
    assert command.main() == 1
    found, _, python = capsys.readouterr().out.partition("# promise")
    assert found.startswith(f"seed {bug.where} (squall): promise {bug.promise}: ")
    small = read_back(f"# {python}")
    assert set(knobs_on(small)) <= {"poison", "orders", "seconds"}
    assert len(knobs_on(plan_for(int(bug.where), "squall"))) > 15
    again = simulate(small, tmp_path, bug.watchers())
    assert promise_of(again.violations) == f"promise {bug.promise}"


def test_events_go_until_only_those_that_break_it_are_left(monkeypatch: pytest.MonkeyPatch):
    crashes = tuple(Crash(float(at), "leaving", 0, 2.0) for at in range(30, 37))
    guilty = {crashes[2], crashes[5]}
    shrinker = Shrinker(judges_of)

    def breaks(plan: Plan, _: float) -> tuple[str, float]:
        is_broken = guilty <= set(plan.crashes) and plan.orders >= 2 and plan.edits
        return ("promise 1" if is_broken else ""), 100.0

    monkeypatch.setattr(shrinker, "_breaks", breaks)
    loud = replace(plan_for(3, "squall"), crashes=crashes)
    small = shrinker.shrink(replace(loud, edits=0.6))
    assert (set(small.crashes), small.orders, small.edits) == (guilty, 2, 0.6)
    assert set(knobs_on(small)) == {"crashes", "orders", "edits", "seconds"}
    assert read_back(as_python(small)) == small


def test_a_plan_that_breaks_nothing_stays_as_it_is(monkeypatch: pytest.MonkeyPatch):
    shrinker = Shrinker(judges_of)
    monkeypatch.setattr(shrinker, "_breaks", lambda *_: ("", 0.0))
    assert shrinker.shrink(plan_for(3, "squall")) == plan_for(3, "squall")


def test_a_search_names_the_cells_that_stayed_empty():
    some = Counter({("end", "done - answer"): 3, ("end", "a new one"): 1})
    said = reached.table(some)
    assert said.startswith("empty:\n")
    assert "done - answer 3" in said
    assert "a new one 1" in said
    within, names = next(iter(reached.WITHIN["squall"].items()))
    assert len(reached.missing("squall", within, Counter())) == len(names)
    assert reached.missing("squall", within, Counter(names)) == []
    assert reached.missing("squall", within - 1, Counter()) == []


def test_every_cell_that_must_be_reached_is_one_that_can_be():
    must = {cell for kind in reached.WITHIN.values() for names in kind.values() for cell in names}
    assert must <= set(reached.POSSIBLE)


def test_the_seeds_of_a_landing_come_from_its_commit_and_are_of_all_kinds(monkeypatch: pytest.MonkeyPatch):
    def says(*_: object, **__: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess([], 0, "00000ff123\n")

    monkeypatch.setattr(command.subprocess, "run", says)
    seeds = list(islice(command._of_the_commit(""), 2 * len(MADE)))
    assert [seed for seed, _ in seeds[:3]] == [0xFF, 0x100, 0x101]
    assert {kind for _, kind in seeds} == {"", *MADE}


def test_without_a_history_the_day_chooses_the_seeds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "none"))
    (seed, kind), *_ = islice(command._of_the_commit("storm"), 1)
    assert (seed > 700_000_000, kind) == (True, "storm")
