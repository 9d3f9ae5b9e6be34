"""A plan that breaks a promise becomes small Python that breaks the same promise."""

import sys
from pathlib import Path

import pytest
from tests.sim import __main__ as command
from tests.sim import reached
from tests.sim.bugs import BUGS
from tests.sim.machine import simulate
from tests.sim.plan import Plan, plan_for
from tests.sim.planting import plant
from tests.sim.shrink import knobs_on, promise_of


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
    assert promise_of(simulate(small, tmp_path, bug.watchers()).violations) == f"promise {bug.promise}"


def test_every_cell_that_must_be_reached_is_one_that_can_be():
    must = {cell for kind in reached.WITHIN.values() for names in kind.values() for cell in names}
    assert must <= set(reached.POSSIBLE)
