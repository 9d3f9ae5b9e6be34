"""One status for each account."""

from datetime import UTC, datetime

import pytest

from orderbridge.rules.problems import STARTING, WELL, Code, Lamp, Problem, Severity, account_statuses

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
BOTH = ("kadikoy", "moda")


def problem(code: Code, account: str | None = None, level: int = 1, behind: Code | None = None) -> Problem:
    severity = Severity.WARNING if code in {Code.CLOCK_WRONG, Code.QUARANTINED} else Severity.SEVERE
    return Problem(code, account or "", NOON, severity, level=level, account=account, behind=behind)


def test_where_nothing_is_wrong_each_account_is_green() -> None:
    assert account_statuses(BOTH, []) == dict.fromkeys(BOTH, WELL)


@pytest.mark.parametrize("code, lamp", [(Code.QUARANTINED, Lamp.YELLOW), (Code.LOGIN_REFUSED, Lamp.RED)])
def test_a_problem_of_one_account_is_nobody_elses(code: Code, lamp: Lamp) -> None:
    shown = account_statuses(BOTH, [problem(code, "moda")])
    assert shown["kadikoy"] == WELL
    assert (shown["moda"].lamp, shown["moda"].problem) == (lamp, problem(code, "moda"))


def test_a_problem_of_all_is_everybodys() -> None:
    shown = account_statuses(BOTH, [problem(Code.DATABASE_FULL)])
    assert [shown[account].lamp for account in BOTH] == [Lamp.RED, Lamp.RED]


def test_the_worst_is_shown() -> None:
    found = [
        problem(Code.CLOCK_WRONG),
        problem(Code.UNANSWERED, "moda", level=2),
        problem(Code.UNANSWERED, "moda", level=4),
        problem(Code.UNANSWERED, "moda", level=3),
        problem(Code.QUARANTINED, "moda"),
    ]
    shown = account_statuses(BOTH, found)
    assert shown["moda"].problem == found[2]
    assert shown["kadikoy"].problem == found[0]


def test_what_follows_from_a_cause_lights_nothing() -> None:
    assert account_statuses(["moda"], [problem(Code.UNANSWERED, "moda", behind=Code.LINE_DNS)])["moda"] == WELL


def test_an_account_that_was_not_asked_since_the_start_is_not_green() -> None:
    silent = problem(Code.NO_GOOD_POLL, "moda", behind=Code.NO_GOOD_POLL)
    assert account_statuses(BOTH, [silent]) == {"kadikoy": WELL, "moda": STARTING}
    assert account_statuses(BOTH, [silent, problem(Code.LOGIN_REFUSED, "moda")])["moda"].lamp == Lamp.RED


def test_an_account_that_is_not_configured_has_none() -> None:
    assert account_statuses(["moda"], [problem(Code.LOGIN_REFUSED, "kadikoy")]) == {"moda": WELL}
