"""One order with its service, daemon and till: all event sequences within bounds, none ends wrong.

The decisions are the daemon's own (see machine.py). The scenes below have bounds that suit a test run. With
ORDERBRIDGE_TEST_MODEL_DEPTH=1 (2, …) each scene has that many more faults and, from 2 on, more crashes. A depth of 1
takes some minutes.
"""

import os
import sys

import pytest
from tests.model.explore import explore
from tests.model.machine import Machine, Scene

from orderbridge.model import CONFIRMED, IN_DELIVERY
from orderbridge.rules import retry

DEPTH = int(os.environ.get("ORDERBRIDGE_TEST_MODEL_DEPTH", "0"))
pytestmark = [pytest.mark.timeout(0 if DEPTH else 900), pytest.mark.slow]


def deeper(scene: Scene) -> Scene:
    return scene._replace(faults=scene.faults + DEPTH, crashes=scene.crashes + DEPTH // 2)


SCENES = {
    "two rows": Scene(crashes=0, all_faults=False),
    "two rows and a crash": Scene(faults=0),
    "two rows, first heard of when confirmed": Scene(status=CONFIRMED, crashes=0, all_faults=False),
    "two rows, first heard of on its way": Scene(status=IN_DELIVERY, all_faults=False),
    "two rows, cancelled orders are listed": Scene(
        status=IN_DELIVERY, lists_cancelled=True, crashes=0, all_faults=False
    ),
    "one row, a fault of any kind and a crash": Scene(rows=1),
    "one row and two losses": Scene(rows=1, faults=2, crashes=0, all_faults=False),
    "one row and two losses on its way": Scene(rows=1, faults=2, status=IN_DELIVERY, all_faults=False),
    "one row and two crashes": Scene(rows=1, faults=0, crashes=2),
    "an automatic accept and a row": Scene(auto_accept=True, crashes=0, all_faults=False),
    "one row, asked back, too old, retried": Scene(
        rows=1, crashes=0, all_faults=False, withdrawals=1, expiries=1, retries=1
    ),
    "two rows, one too old": Scene(status=IN_DELIVERY, crashes=0, expiries=1, all_faults=False),
    "one row, 500 to what is not allowed": Scene(rows=1, crashes=0, when_not_allowed="failed", all_faults=False),
    "two rows, OK to what is not allowed": Scene(faults=1, crashes=0, when_not_allowed="ok", all_faults=False),
}


@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES)
def test_without_other_clients_nothing_ends_wrong(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every trace can end; the stored status is the service's; nothing is done twice; no status is swallowed.

    If the service answers OK to a step that is not allowed, the status of that step is stored. Nothing else follows.
    """
    found = explore(Machine(deeper(scene), monkeypatch))
    sys.stdout.write(f" {found.states} states")  # shown with -s
    assert found.wrong == {}, found.report()
    assert found.settled > 1


@pytest.mark.parametrize("status", [CONFIRMED, IN_DELIVERY])
def test_a_row_whose_resends_are_used_up_ends_true(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one resend in place of three, two faults are enough to use them up."""
    monkeypatch.setattr(retry, "MAX_RESENDS", 1)
    scene = Scene(rows=1, faults=3, crashes=0, status=status, all_faults=False)
    found = explore(Machine(deeper(scene), monkeypatch))
    assert found.wrong == {}, found.report()
