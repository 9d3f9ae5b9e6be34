"""`./run sim --bugs`: the simulation finds each planted bug in time, and its unit test fails with it."""

import os
import sys
import time
from collections.abc import Iterable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from tests.sim.bugs import BUGS, FOUND_BY, Bug
from tests.sim.planting import plant

WITHIN_S = 120.0  # of the processor
ROOT = Path(__file__).parents[2]
NO_WARNING = "ignore::pytest.PytestAssertRewriteWarning"  # the modules with planted bugs are already loaded


def search(names: Iterable[str]) -> int:
    """Print how each bug is found. Returns how many are not."""
    missed = 0
    for name in names:
        found, took = _in_its_own_process(lambda _, bug: bug.is_found_somewhere(), name)
        by_test, _ = _in_its_own_process(_by_unit_test, name)
        is_late = took > WITHIN_S
        missed += is_late or not (found and by_test)
        words = [f"{took:6.1f} s", "found" if found else "NOT FOUND", "late" if is_late else ""]
        words += [FOUND_BY.get(name, "no unit test") if by_test else f"NOT FOUND BY {FOUND_BY.get(name)}"]
        sys.stdout.write(f"{name}: {' '.join(filter(None, words))}\n")
        sys.stdout.flush()
    return missed


def _in_its_own_process(look: Any, name: str) -> tuple[bool, float]:
    """Run in another process, where the bug stays. Returns whether it was found, and the processor seconds."""
    context = get_context("fork")
    answers = context.SimpleQueue()
    process = context.Process(target=_planted, args=(look, name, answers))
    process.start()
    found = answers.get()
    process.join()
    return found


def _planted(look: Any, name: str, answers: Any) -> None:
    began, found = time.process_time(), False
    try:
        plant(pytest.MonkeyPatch(), *BUGS[name].plants)
        found = look(name, BUGS[name])
    finally:
        answers.put((found, time.process_time() - began))


def _by_unit_test(name: str, _: Bug) -> bool:
    os.chdir(ROOT)
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    test = FOUND_BY.get(name)
    words = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-W", NO_WARNING, "-m", ""]
    return test is not None and pytest.main([*words, test]) == pytest.ExitCode.TESTS_FAILED
