"""Each planted bug must be found by the judge of its promise, so that no judge passes everything.

In its corner, or within a few seeds.
"""

import re
from pathlib import Path

import pytest
from sqlalchemy import String, literal, select
from tests.jobs.shop import START
from tests.sim import vfs
from tests.sim.bugs import BUGS, FOUND_BY, Bug
from tests.sim.compiled import share_compiled
from tests.sim.corners import CORNERS
from tests.sim.judges import WATCHING
from tests.sim.planted_search import ROOT
from tests.sim.planting import nothing, plant

from orderbridge.store.database import Database
from orderbridge.store.ddl import Utc


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


def test_a_planted_bug_meets_no_statement_that_was_compiled_without_it_and_leaves_none_behind(tmp_path: Path):
    """How a value is converted is kept with the statement."""
    before = _written(tmp_path)
    with pytest.MonkeyPatch.context() as monkeypatch:
        plant(monkeypatch, ((Utc, "process_bind_param"), nothing))
        assert _written(tmp_path) is None
    assert before == _written(tmp_path) == "2026-03-02 09:00:00.000"


def _written(folder: Path) -> object:
    """The lines that a life writes for a moment."""
    database = Database(f"sqlite:///{folder}/pos.db", inline=True)
    share_compiled(database)
    try:
        return database.read_now(lambda tx: tx.execute(select(literal(START, Utc()).cast(String))).scalar())
    finally:
        database.close()
