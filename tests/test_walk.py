"""The number of files and functions that one order, one action and one login use (benchmarks/walk.py lists them)."""

import pytest
from benchmarks.walk import files_of, steps_of

# A few more than were counted. On a slow machine an order may include the check for a restored file: 20 functions.
MOST = {"order": (46, 246), "action": (41, 255), "token": (31, 118)}


@pytest.mark.slow
@pytest.mark.parametrize("walk", MOST)
def test_a_walk_does_not_grow(walk: str):
    steps, (most_files, most_functions) = steps_of(walk), MOST[walk]
    assert len(files_of(steps)) <= most_files and len(steps) <= most_functions
