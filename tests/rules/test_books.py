"""An older copy of the tables is told from what only looks like one."""

from dataclasses import dataclass, replace

import pytest

from orderbridge.rules.books import Copy, judge


@dataclass(frozen=True)
class Books:
    """How far they go."""

    books: str = "ours"
    event: int = 100
    listened: int = 3600


BEFORE = Books()
ANOTHER = Books(books="another", event=1, listened=0)


@pytest.mark.parametrize(
    "now, at_a_start, within_a_run",
    [
        pytest.param(BEFORE, Copy.IF_MISSING, Copy.NONE, id="as it was"),
        pytest.param(replace(BEFORE, event=101, listened=3630), Copy.IF_MISSING, Copy.NONE, id="it has gone on"),
        pytest.param(replace(BEFORE, event=90, listened=3000), Copy.OLDER, Copy.OLDER, id="both are behind"),
        pytest.param(replace(BEFORE, event=90), Copy.OLDER, Copy.NONE, id="lines are gone, and no poll was made"),
        pytest.param(replace(BEFORE, event=90, listened=3630), Copy.IF_MISSING, Copy.NONE, id="old lines were deleted"),
        pytest.param(replace(BEFORE, listened=3000), Copy.IF_MISSING, Copy.NONE, id="an account has left"),
        pytest.param(ANOTHER, Copy.NONE, Copy.NONE, id="a new database"),
    ],
)
def test_books_are_older_when_their_stories_and_their_polls_went_further(
    now: Books, at_a_start: Copy, within_a_run: Copy
) -> None:
    assert judge(now, BEFORE, strictly=False, was_lost=False) is at_a_start
    assert judge(now, BEFORE, strictly=True, was_lost=False) is within_a_run


@pytest.mark.parametrize("strictly", [False, True])
def test_other_books_are_older_where_the_ones_before_were_taken_away_and_had_a_story(strictly: bool) -> None:
    assert judge(ANOTHER, BEFORE, strictly=strictly, was_lost=True) is Copy.OLDER
    assert judge(ANOTHER, replace(BEFORE, event=0), strictly=strictly, was_lost=True) is Copy.NONE
    same = judge(BEFORE, BEFORE, strictly=strictly, was_lost=True)
    assert same is (Copy.NONE if strictly else Copy.IF_MISSING)
