"""One status for each account."""

from datetime import UTC, datetime
from typing import Any

import pytest

from orderbridge.rules.problems import STARTING, WELL, Code, Lamp, Problem, Severity, account_statuses

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
BOTH = ("kadikoy", "moda")


def problem(code: Code, account: str | None = None, level: int = 1, behind: Code | None = None) -> Problem:
    severity = Severity.WARNING if code in {Code.CLOCK_WRONG, Code.QUARANTINED} else Severity.SEVERE
    return Problem(code, account or "", NOON, severity, level=level, account=account, behind=behind)


REFUSED, QUARANTINED = problem(Code.LOGIN_REFUSED, "moda"), problem(Code.QUARANTINED, "moda")
FULL, CLOCK = problem(Code.DATABASE_FULL), problem(Code.CLOCK_WRONG)
WAITING = [problem(Code.UNANSWERED, "moda", level=level) for level in (2, 4, 3)]
BEHIND = problem(Code.UNANSWERED, "moda", behind=Code.LINE_DNS)
NOT_ASKED = problem(Code.NO_GOOD_POLL, "moda", behind=Code.NO_GOOD_POLL)


@pytest.mark.parametrize(
    "found, kadikoy, moda",
    [
        ([], WELL, WELL), ([QUARANTINED], WELL, (Lamp.YELLOW, QUARANTINED)), ([REFUSED], WELL, (Lamp.RED, REFUSED)),
        ([FULL], (Lamp.RED, FULL), (Lamp.RED, FULL)), ([BEHIND], WELL, WELL), ([NOT_ASKED], WELL, STARTING),
        ([CLOCK, *WAITING, QUARANTINED], (Lamp.YELLOW, CLOCK), (Lamp.RED, WAITING[1])),
        ([NOT_ASKED, REFUSED], WELL, (Lamp.RED, REFUSED)), ([problem(Code.LOGIN_REFUSED, "sisli")], WELL, WELL),
    ],
)  # fmt: skip
def test_each_account_shows_its_worst_problem(found: list[Problem], kadikoy: Any, moda: Any) -> None:
    for name, expected in (("kadikoy", kadikoy), ("moda", moda)):
        shown = account_statuses(BOTH, found)[name]
        assert (shown if isinstance(expected, type(WELL)) else (shown.lamp, shown.problem)) == expected
