"""The list of a fleet's branches, the worst first."""

from datetime import UTC, datetime, timedelta

import pytest

from orderbridge.rules.problems import Lamp
from orderbridge_fleet.cli.branches import Branch, OpenProblem, ranked

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
EARLIER = NOW - timedelta(hours=1)


def lit(account: str, lamp: Lamp, since: datetime = NOW) -> Branch:
    return Branch(account, lamp, since, "code", "sentence", None)


def problem(account: str = "a", severity: str = "severe", level: int = 1, code: str = "x") -> OpenProblem:
    return OpenProblem(account, severity, level, NOW, code, "cause", "remedy")


def test_red_goes_before_dark_before_yellow_before_green():
    lamps = [lit("a", Lamp.GREEN), lit("b", Lamp.YELLOW), lit("d", Lamp.RED)]
    found = ranked(dict.fromkeys("abcd"), lamps, [])
    lit_up = [("d", Lamp.RED), ("c", None), ("b", Lamp.YELLOW), ("a", Lamp.GREEN)]
    assert [(one.account, one.lamp) for one in found] == lit_up
    assert [one.is_well for one in found] == [False, False, False, True]


def test_of_equally_bad_ones_the_oldest_goes_first_then_the_name():
    lamps = [lit("c", Lamp.RED), lit("b", Lamp.RED), lit("a", Lamp.RED), lit("z", Lamp.RED, EARLIER)]
    assert [one.account for one in ranked(dict.fromkeys("abcz"), lamps, [])] == ["z", "a", "b", "c"]


def test_a_dark_one_is_as_old_as_the_account():
    assert ranked({"a": EARLIER, "b": None}, [], []) == [Branch("b", None, None), Branch("a", None, EARLIER)]


def test_whoever_is_not_known_any_more_is_left_out():
    assert ranked({"a": None}, [lit("a", Lamp.GREEN), lit("gone", Lamp.RED)], [problem("left")]) == [
        lit("a", Lamp.GREEN)
    ]


@pytest.mark.parametrize("severity, colour", [("severe", Lamp.RED), ("warning", Lamp.YELLOW)])
def test_without_a_lamp_a_problem_says_why(severity, colour):
    found = ranked({"a": EARLIER}, [], [problem(severity=severity)])
    assert found == [Branch("a", colour, NOW, "x", "cause", "remedy")]


def test_of_several_problems_the_worst_counts():
    several = [problem(severity="warning", level=9, code="w"), problem(level=1, code="x"), problem(level=2, code="y")]
    for given in (several, several[::-1]):
        (found,) = ranked({"a": None}, [], given)
        assert (found.code, found.lamp) == ("y", Lamp.RED)


def test_a_lamp_goes_before_a_problem():
    """It is the daemon's own word on all of them."""
    assert ranked({"a": None}, [lit("a", Lamp.GREEN)], [problem()]) == [lit("a", Lamp.GREEN)]
