"""The problems that are shown and reported: one status of each account, the board's page, and the history of each."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from orderbridge.rules import health

from orderbridge.rules.problems import (  # isort: skip
    FLAP_LIMIT, FLAP_WINDOW_S, PAGE_SUBJECT, SOON, STARTING, WELL, Code, EventKind, Lamp, OpenProblems, Page, Problem,
    Severity, account_statuses, alike, page_problems,
)  # fmt: skip
from orderbridge.texts import problem_text

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
BOTH = ("kadikoy", "moda")


def problem(code: Code, account: str | None = None, level: int = 1, behind: Code | None = None) -> Problem:
    severity = Severity.WARNING if code in {Code.CLOCK_WRONG, Code.QUARANTINED} else Severity.SEVERE
    return Problem(code, account or "", NOW, severity, level=level, account=account, behind=behind)


LOGIN_REFUSED, QUARANTINED = problem(Code.LOGIN_REFUSED, "moda"), problem(Code.QUARANTINED, "moda")
FULL, CLOCK = problem(Code.DATABASE_FULL), problem(Code.CLOCK_WRONG)
WAITING = [problem(Code.UNANSWERED, "moda", level=level) for level in (2, 4, 3)]
FOLLOWS = problem(Code.UNANSWERED, "moda", behind=Code.LINE_DNS)
NOT_ASKED = problem(Code.NO_GOOD_POLL, "moda", behind=Code.NO_GOOD_POLL)


@pytest.mark.parametrize("found, kadikoy, moda", [
    ([], WELL, WELL), ([QUARANTINED], WELL, (Lamp.YELLOW, QUARANTINED)),
    ([LOGIN_REFUSED], WELL, (Lamp.RED, LOGIN_REFUSED)),
    ([FULL], (Lamp.RED, FULL), (Lamp.RED, FULL)), ([FOLLOWS], WELL, WELL), ([NOT_ASKED], WELL, STARTING),
    ([CLOCK, *WAITING, QUARANTINED], (Lamp.YELLOW, CLOCK), (Lamp.RED, WAITING[1])),
    ([NOT_ASKED, LOGIN_REFUSED], WELL, (Lamp.RED, LOGIN_REFUSED)), ([problem(Code.LOGIN_REFUSED, "sisli")], WELL, WELL),
])  # fmt: skip
def test_each_account_shows_its_worst_problem(found: list[Problem], kadikoy: Any, moda: Any) -> None:
    for name, expected in (("kadikoy", kadikoy), ("moda", moda)):
        shown = account_statuses(BOTH, found)[name]
        assert (shown if isinstance(expected, type(WELL)) else (shown.lamp, shown.problem)) == expected


MOMENT, SEVERE, WARNING = timedelta(seconds=1), Severity.SEVERE, Severity.WARNING
REFUSED, NOT_SERVED, ENDS = Code.CERTIFICATE_REFUSED, Code.PAGE_NOT_SERVED, Code.CERTIFICATE_ENDS
FAILED = {"since": NOW - MOMENT, "error": "no"}


@pytest.mark.parametrize("page, told", [
    ({}, None), ({"ends": NOW + SOON}, None), ({"ends": NOW + SOON - MOMENT}, (ENDS, WARNING, NOW - MOMENT)),
    ({"ends": NOW + MOMENT}, (ENDS, WARNING, NOW + MOMENT - SOON)), ({"ends": NOW}, (ENDS, SEVERE, NOW)),
    ({"ends": NOW, "has_board": False}, (ENDS, WARNING, NOW)), ({"ends": NOW, "is_served": False}, None),
    ({"failed": REFUSED, **FAILED}, (REFUSED, WARNING, NOW - MOMENT)),
    ({"failed": REFUSED, "is_served": False, **FAILED}, (REFUSED, SEVERE, NOW - MOMENT)),
    ({"failed": REFUSED, "is_served": False, "has_board": False, **FAILED}, (REFUSED, WARNING, NOW - MOMENT)),
    ({"failed": NOT_SERVED, "is_served": False, **FAILED}, (NOT_SERVED, SEVERE, NOW - MOMENT)),
    ({"failed": NOT_SERVED, "is_served": False, "has_board": False, **FAILED}, None),
])  # fmt: skip
def test_each_state_of_the_page(page: dict[str, Any], told: tuple[Code, Severity, datetime] | None):
    found = list(page_problems(Page(**{"is_served": True, "has_board": True} | page), NOW))
    assert [(one.code, one.severity, one.since) for one in found] == ([] if told is None else [told])
    assert all(one.subject == PAGE_SUBJECT for one in found)


def test_a_renewed_certificate_that_is_refused_does_not_hide_that_the_old_one_ends():
    page = Page(is_served=True, has_board=True, ends=NOW, failed=REFUSED, **FAILED)
    assert [one.code for one in page_problems(page, NOW)] == [REFUSED, ENDS]


@pytest.mark.parametrize("severity, said", [(SEVERE, [ENDS]), (WARNING, [ENDS, Code.BOARD_UNHEARD])])
def test_board_unheard_is_suppressed_if_the_page_is_not_served(severity: Severity, said: list[Code]):
    limits = health.Thresholds(MOMENT, None, None, None)
    known = Problem(ENDS, PAGE_SUBJECT, NOW, severity), Problem(Code.BOARD_UNHEARD, "", NOW, WARNING)
    found = health.all_problems(health.Facts((), found=known), limits, NOW)
    assert [one.code for one in found if one.behind is None] == said


def test_too_many_open_files_have_their_own_remedy():
    (one,) = page_problems(Page(has_board=True, failed=NOT_SERVED, reason="here_files", **FAILED), NOW)
    assert "LimitNOFILE" in problem_text(one.code, "en", **one.facts)[1]


ONE = Problem(Code.UNREACHABLE, "kadikoy", NOW, Severity.WARNING)
WORSE = replace(ONE, severity=Severity.SEVERE)
BEHIND = replace(ONE, behind=Code.DATABASE_FULL)


def every(begin: int, end: int, found: list[Problem]) -> list[tuple[float, list[Problem]]]:
    return [(at, found) for at in range(begin, end, 5)]


HISTORIES: dict[str, tuple[list[tuple[float, list[Problem]]], list[tuple[float, str]]]] = {
    "it begins, gets worse and ends": (
        [(0, [ONE]), (5, [ONE]), (10, [WORSE]), (15, [replace(WORSE, level=2)]), (20, [ONE]), (25, [])],
        [(0, "began"), (10, "escalated"), (15, "escalated"), (25, "ended")],
    ),
    "it begins again at once, and only its next end waits": (
        [(0, [ONE]), (5, []), *every(10, 20, [ONE]), *every(20, 1300, [])],
        [(0, "began"), (5, "ended"), (10, "began"), (605, "ended")],
    ),
    "what is behind another neither begins nor ends": (
        [(0, [BEHIND]), (5, [ONE]), (10, [replace(BEHIND, severity=Severity.SEVERE)]), (15, [])],
        [(5, "began"), (15, "ended")],
    ),
}


@pytest.mark.parametrize("checks, expected", HISTORIES.values(), ids=HISTORIES)
def test_what_is_reported_of_a_problem(checks: list[tuple[float, list[Problem]]], expected: list[tuple[float, str]]):
    history = OpenProblems()
    assert [(at, event.kind) for at, found in checks for event in history.check(found, at)] == expected


def test_a_flapping_problem_sends_few_messages_and_none_says_that_it_is_over():
    history = OpenProblems()
    events = [(at, one) for at in range(0, 7200, 5) for one in history.check([] if at // 5 % 2 else [ONE], at)]
    ends = [one for _, one in events if one.kind == EventKind.ENDED]
    assert [one.flapped for one in ends][:2] == [0, 59], "how often it came back unreported"
    for begin in range(0, 7200, 5):
        assert sum(begin <= at < begin + FLAP_WINDOW_S for at, _ in events) <= FLAP_LIMIT + 1


def test_the_history_of_old_problems_is_dropped():
    history = OpenProblems()
    for at in (0, 5, 620):
        history.check([ONE] if at == 0 else [], at)
    assert not history._histories


def test_a_reported_problem_that_is_suppressed_does_not_end():
    problems, moda = OpenProblems(), replace(ONE, subject="moda")
    problems.check([ONE], 0)
    problems.remember([ONE, moda], 0)
    assert problems.unreported({moda.key}, 60) == []
    (ended,) = problems.unreported((), 60)
    assert (ended.kind, ended.problem, ended.seconds) == ("ended", moda, 60)


def test_many_similar_problems_are_one_message():
    many = [replace(ONE, subject=str(number)) for number in range(6)]
    events = OpenProblems().check([*many, replace(ONE, code=Code.QUARANTINED)], 0)
    assert [[len(some) for some in alike(found)] for found in (events, events[1:], [])] == [[6, 1], [1] * 6, []]
    assert {one.kind for some in alike(events) for one in some} == {EventKind.BEGAN}
