"""The list of a fleet's branches, the worst first."""

from datetime import UTC, datetime, timedelta

import pytest

from orderbridge.rules.problems import Lamp
from orderbridge.texts import speak
from orderbridge_fleet.cli.branches import Branch, OpenProblem, lines, ranked

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
EARLIER = NOW - timedelta(hours=1)


def lit(account: str, lamp: Lamp, since: datetime = NOW) -> Branch:
    return Branch(account, lamp, since, "code", "sentence", None)


def problem(account: str = "a", severity: str = "severe", level: int = 1, code: str = "x") -> OpenProblem:
    return OpenProblem(account, severity, level, NOW, code, "cause", "remedy")


def test_branches_are_sorted_by_colour_age_and_name():
    lamps = [lit("c", Lamp.RED), lit("b", Lamp.RED), lit("z", Lamp.RED, EARLIER), lit("g", Lamp.GREEN)]
    lamps += [lit("y", Lamp.YELLOW), lit("gone", Lamp.RED)]
    found = ranked(dict.fromkeys("bcgyz") | {"n": None, "d": EARLIER}, lamps, [problem("left")])
    assert "".join(one.account for one in found) == "zbcndyg"
    assert found[3:5] == [Branch("n", None, None), Branch("d", None, EARLIER)]
    assert [one.account for one in found if one.is_well] == ["g"]


@pytest.mark.parametrize("severity, colour", [("severe", Lamp.RED), ("warning", Lamp.YELLOW)])
def test_without_a_lamp_the_problem_decides(severity, colour):
    found = ranked({"a": EARLIER}, [], [problem(severity=severity)])
    assert found == [Branch("a", colour, NOW, "x", "cause", "remedy")]


def test_the_lamp_decides_before_the_worst_problem():
    several = [problem(severity="warning", level=9, code="w"), problem(level=1, code="x"), problem(level=2, code="y")]
    for given in (several, several[::-1]):
        (found,) = ranked({"a": None}, [], given)
        assert (found.code, found.lamp) == ("y", Lamp.RED)
    assert ranked({"a": None}, [lit("a", Lamp.GREEN)], several) == [lit("a", Lamp.GREEN)]


def test_how_many_are_well_is_said_with_the_numbers_of_the_language():
    counts = {"well": 1000, "accounts": 1001, "branches": [], "at_utc": NOW, "timezone": "Europe/Istanbul"}
    try:
        speak("tr")
        assert [*lines(counts)] == ["1.001 hesabın 1.000 tanesi sorunsuz"]
    finally:
        speak("en")
    assert [*lines(counts)] == ["1,000 of 1,001 healthy"]
