"""A check that cannot fail proves nothing: each bug planted here must be found by its promise.

In its corner, or within a few seeds.
"""

from pathlib import Path

import pytest
from tests.sim.bugs import BUGS, FIRST, WATCHING, Bug
from tests.sim.corners import CORNERS, seed_of
from tests.sim.invariants import all_invariants
from tests.sim.machine import simulate
from tests.sim.plan import plan_for
from tests.sim.planting import Planting

SEEDS = range(FIRST, FIRST + 20)  # for the day when a bug no longer shows where it did


@pytest.mark.parametrize("bug", BUGS.values(), ids=BUGS)
@pytest.mark.timeout(900)
def test_a_planted_bug_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, bug: Bug):
    bug.plant(Planting(monkeypatch))
    found: list[str] = []
    plans = [plan_for(seed, "squall") for seed in dict.fromkeys([bug.seed, *SEEDS])]
    for plan in [plan_for(seed_of(bug.corner), "corner")] if bug.corner else plans:
        folder = tmp_path / str(plan.seed)
        folder.mkdir()
        found += simulate(plan, folder, bug.watchers()).violations
        if bug.is_found(found):
            return
    pytest.fail(f"not found; found: {found}")


def test_each_corner_has_its_bug():
    assert {bug.corner for bug in BUGS.values()} == {*CORNERS, ""}


def test_each_invariant_has_its_bugs():
    watching = {type(watcher) for promise in WATCHING for watcher in Bug(promise, lambda _: None).watchers()}
    assert watching == {type(invariant) for invariant in all_invariants()}
    assert {bug.promise for bug in BUGS.values()} == set(WATCHING)
