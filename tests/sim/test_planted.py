"""Each planted bug must be found by the judge of its promise, so that no judge passes everything."""

import re

import pytest
from tests.sim import vfs
from tests.sim.bugs import BUGS, FOUND_BY, Bug
from tests.sim.corners import CORNERS
from tests.sim.judges import WATCHING
from tests.sim.planted_search import ROOT
from tests.sim.planting import plant


@pytest.mark.parametrize("bug", BUGS.values(), ids=BUGS)
@pytest.mark.timeout(900)
def test_a_planted_bug_is_found(monkeypatch: pytest.MonkeyPatch, bug: Bug):
    if bug.kind == "power" and (missing := vfs.missing()):
        pytest.skip(missing)
    plant(monkeypatch, *bug.plants)
    assert bug.is_found_somewhere()


def test_each_corner_and_each_judge_has_its_bug():
    assert {bug.where for bug in BUGS.values() if isinstance(bug.where, str)} == set(CORNERS)
    assert {bug.promise for bug in BUGS.values()} == {*WATCHING, "restore"}


def test_each_bug_has_its_unit_test():
    assert FOUND_BY.keys() == BUGS.keys()
    named = [test.split("::") for test in FOUND_BY.values()]
    assert [name for file, name in named if not re.search(rf"\b{name}\b", (ROOT / file).read_text())] == []
