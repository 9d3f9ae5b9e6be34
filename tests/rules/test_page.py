"""When the board's page is a problem, how severe, and what follows."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from orderbridge.rules import health
from orderbridge.rules.problems import PAGE_SUBJECT, SOON, Code, Page, Problem, Severity, page_problems
from orderbridge.texts import problem_text

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
MOMENT = timedelta(seconds=1)
REFUSED, NOT_SERVED, ENDS = Code.CERTIFICATE_REFUSED, Code.PAGE_NOT_SERVED, Code.CERTIFICATE_ENDS
SEVERE, WARNING = Severity.SEVERE, Severity.WARNING
FAILED = {"since": NOW - MOMENT, "error": "no"}


@pytest.mark.parametrize(
    "page, told",
    [
        ({}, None),
        ({"ends": NOW + SOON}, None),
        ({"ends": NOW + SOON - MOMENT}, (ENDS, WARNING, NOW - MOMENT)),
        ({"ends": NOW + MOMENT}, (ENDS, WARNING, NOW + MOMENT - SOON)),
        ({"ends": NOW}, (ENDS, SEVERE, NOW)),
        ({"ends": NOW, "has_board": False}, (ENDS, WARNING, NOW)),
        ({"ends": NOW, "is_served": False}, None),
        ({"failed": REFUSED, **FAILED}, (REFUSED, WARNING, NOW - MOMENT)),
        ({"failed": REFUSED, "is_served": False, **FAILED}, (REFUSED, SEVERE, NOW - MOMENT)),
        ({"failed": REFUSED, "is_served": False, "has_board": False, **FAILED}, (REFUSED, WARNING, NOW - MOMENT)),
        ({"failed": NOT_SERVED, "is_served": False, **FAILED}, (NOT_SERVED, SEVERE, NOW - MOMENT)),
        ({"failed": NOT_SERVED, "is_served": False, "has_board": False, **FAILED}, None),
    ],
)
def test_each_state_of_the_page(page: dict[str, Any], told: tuple[Code, Severity, datetime] | None):
    found = list(page_problems(Page(**{"is_served": True, "has_board": True} | page), NOW))
    assert [(one.code, one.severity, one.since) for one in found] == ([] if told is None else [told])
    assert all(one.subject == PAGE_SUBJECT for one in found)


def test_a_renewed_certificate_that_is_refused_does_not_hide_that_the_old_one_ends():
    page = Page(is_served=True, has_board=True, ends=NOW, failed=REFUSED, **FAILED)
    assert [one.code for one in page_problems(page, NOW)] == [REFUSED, ENDS]


@pytest.mark.parametrize("severity, said", [(SEVERE, [ENDS]), (WARNING, [ENDS, Code.BOARD_UNHEARD])])
def test_where_no_tablet_can_open_the_page_nobody_hears_it_for_that_reason(severity: Severity, said: list[Code]):
    limits = health.Thresholds(MOMENT, None, None, None)
    known = Problem(ENDS, PAGE_SUBJECT, NOW, severity), Problem(Code.BOARD_UNHEARD, "", NOW, WARNING)
    found = health.all_problems(health.Facts((), found=known), limits, NOW)
    assert [one.code for one in found if one.behind is None] == said


def test_where_the_machine_has_run_out_of_files_the_remedy_is_not_about_the_address():
    page = Page(has_board=True, failed=NOT_SERVED, reason="here_files", **FAILED)
    (one,) = page_problems(page, NOW)
    assert "LimitNOFILE" in problem_text(one.code, "en", **one.facts)[1]
