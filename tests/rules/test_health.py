"""What is wrong: each fact its own code, one cause one problem."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from orderbridge.model import ActionState
from orderbridge.rules.health import (
    Code,
    Facts,
    Pile,
    Polling,
    Received,
    Severity,
    Thresholds,
    is_due,
    late_after,
    problems,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
LIMITS = Thresholds(
    late=timedelta(seconds=90), unanswered=3 * MINUTE, not_taken_over=3 * MINUTE, cancellation_unseen=2 * MINUTE
)
WELL = Polling("kadikoy", "ok", NOW - timedelta(seconds=20), NOW - timedelta(seconds=20))
OLD = NOW - 4 * MINUTE


def found(limits: Thresholds = LIMITS, **facts: Any) -> list[tuple[str, str, Severity]]:
    told = problems(Facts(**{"accounts": (WELL,)} | facts), limits, NOW)
    return [(one.code, one.subject, one.severity) for one in told]


def received(**changes: Any) -> tuple[Received, ...]:
    return (replace(Received("k", OLD, taken_over=True, is_due=True), **changes),)


def test_nothing_is_wrong_when_all_is_well():
    assert found() == []


@pytest.mark.parametrize(
    "seconds, late", [(30, 90), (10, 30), (0.2, 10)], ids=["the service's", "shorter", "of a test"]
)
def test_a_poll_is_late_after_three_cooldowns(seconds: float, late: float):
    assert late_after(seconds) == timedelta(seconds=late)


@pytest.mark.parametrize(
    "first, expected",
    [(NOW + timedelta(seconds=15), []), (NOW - timedelta(seconds=2), []), (NOW - MINUTE, [Code.NOT_POLLING])],
    ids=["is still to come", "is just leaving", "did not come"],
)
def test_an_account_whose_first_poll(first: datetime, expected: list[Code]):
    """The first polls of several accounts are spread over the cooldown."""
    new = Polling("besiktas", "new", next_poll_utc=first)
    assert [code for code, _, _ in found(accounts=(WELL, new))] == expected


@pytest.mark.parametrize(
    "changes, code, severity",
    [
        ({"last_poll_ok_utc": NOW - timedelta(seconds=91)}, Code.NO_GOOD_POLL, Severity.SEVERE),
        ({"last_poll_ok_utc": None}, Code.NO_GOOD_POLL, Severity.SEVERE),
        ({"state": "new", "last_poll_ok_utc": None}, Code.NO_GOOD_POLL, Severity.SEVERE),
        ({"last_poll_utc": OLD, "last_poll_ok_utc": OLD}, Code.NOT_POLLING, Severity.SEVERE),
        ({"state": "failing", "last_poll_utc": OLD}, Code.NOT_POLLING, Severity.WARNING),
        ({"state": None, "last_poll_utc": None, "last_poll_ok_utc": None}, Code.NOT_POLLING, Severity.SEVERE),
        ({"state": "failing"}, Code.POLL_FAILING, Severity.WARNING),
        ({"state": "failing", "last_poll_ok_utc": OLD}, Code.POLL_FAILING, Severity.SEVERE),
        ({"state": "unreachable"}, Code.UNREACHABLE, Severity.WARNING),
        ({"state": "unreachable", "last_poll_utc": OLD, "last_poll_ok_utc": OLD}, Code.UNREACHABLE, Severity.SEVERE),
        ({"state": "login_refused"}, Code.LOGIN_REFUSED, Severity.SEVERE),
        (
            {"state": "login_refused", "last_poll_utc": OLD, "last_poll_ok_utc": OLD},
            Code.LOGIN_REFUSED,
            Severity.SEVERE,
        ),
    ],
)
def test_an_account_has_one_code(changes: dict[str, Any], code: Code, severity: Severity):
    assert found(accounts=(replace(WELL, **changes), replace(WELL, name="moda"))) == [(code, "kadikoy", severity)]


def test_accounts_that_share_a_cooldown_may_wait_for_each_other():
    late = NOW - timedelta(seconds=150)
    two = [replace(WELL, name=name, last_poll_utc=late, last_poll_ok_utc=late) for name in ("a", "b")]
    assert [code for code, _, _ in found(accounts=tuple(two))] == [Code.NOT_POLLING] * 2
    in_turn = tuple(replace(one, in_turn_with="a, b") for one in two)
    assert found(accounts=in_turn) == [(Code.COOLDOWN_SHARED, "a, b", Severity.WARNING)]
    later = tuple(replace(one, last_poll_ok_utc=NOW - timedelta(seconds=181)) for one in in_turn)
    assert [code for code, _, _ in found(accounts=later)][:2] == [Code.NO_GOOD_POLL] * 2


@pytest.mark.parametrize(
    "changes, code",
    [
        ({}, Code.UNANSWERED),
        ({"received_utc": NOW - 3 * MINUTE}, None),
        ({"is_due": False}, None),
        ({"taken_over": False}, None),
        ({"accept": ActionState.PENDING}, None),
        ({"accept": ActionState.SENDING}, None),
        ({"accept": ActionState.REFUSED}, Code.UNANSWERED),
        ({"accept": ActionState.WITHDRAWN}, Code.UNANSWERED),
        ({"accept": ActionState.EXPIRED, "accept_ended_utc": NOW}, Code.ACCEPT_FAILED),
        ({"accept": ActionState.FAILED, "accept_ended_utc": NOW, "received_utc": NOW}, Code.ACCEPT_FAILED),
        ({"accept": ActionState.FAILED, "taken_over": False, "is_due": False}, Code.ACCEPT_FAILED),
    ],
)
def test_a_customer_who_was_not_answered(changes: dict[str, Any], code: Code | None):
    assert found(received=received(**changes)) == ([] if code is None else [(code, "k", Severity.SEVERE)])


def test_where_nobody_minds_that_no_till_takes_over_an_answer_is_waited_for_all_the_same():
    limits = replace(LIMITS, not_taken_over=None)
    facts = {"received": received(taken_over=False), "not_taken_over": Pile(3, OLD)}
    assert found(limits, **facts) == [(Code.UNANSWERED, "k", Severity.SEVERE)]
    assert found(replace(limits, unanswered=None), **facts) == []


def test_what_an_account_noted_before_it_stopped_polling_says_nothing() -> None:
    silent = replace(WELL, not_written=2, last_poll_utc=OLD, last_poll_ok_utc=OLD)
    assert found(accounts=(silent,)) == [(Code.NOT_POLLING, "kadikoy", Severity.SEVERE)]


@pytest.mark.parametrize(
    "facts, problem",
    [
        ({"not_taken_over": Pile(3, OLD)}, (Code.NOT_TAKEN_OVER, "", Severity.SEVERE)),
        ({"unseen_cancellations": (("k", OLD),)}, (Code.CANCELLATION_UNSEEN, "k", Severity.SEVERE)),
        ({"accounts": (replace(WELL, not_stored=2),)}, (Code.NOT_STORED, "kadikoy", Severity.SEVERE)),
        ({"accounts": (replace(WELL, not_written=2),)}, (Code.NOT_WRITTEN, "", Severity.SEVERE)),
        ({"outdated": (("k", OLD),)}, (Code.CONTENTS_OUTDATED, "k", Severity.SEVERE)),
        ({"unknown_outcomes": ((17, OLD),)}, (Code.OUTCOME_UNKNOWN, "17", Severity.WARNING)),
        ({"quarantined": Pile(2, OLD)}, (Code.QUARANTINED, "", Severity.WARNING)),
        ({"unsafe": "Set it to 1."}, (Code.NOT_DURABLE, "", Severity.SEVERE)),
    ],
)
def test_each_fact_has_its_code(facts: dict[str, Any], problem: tuple[str, str, Severity]):
    assert found(**facts) == [problem]


def test_the_severe_come_first_and_then_the_oldest():
    older = OLD - MINUTE
    facts = {"quarantined": Pile(1, older), "received": received(), "unseen_cancellations": (("x", older),)}
    assert [code for code, _, _ in found(**facts)] == [Code.CANCELLATION_UNSEEN, Code.UNANSWERED, Code.QUARANTINED]


@pytest.mark.parametrize(
    "scheduled_for, due",
    [(None, True), ("2026-03-01 15:00:00", True), ("2026-03-01 15:00:01", False), ("on Sunday", True), ("", True)],
)
def test_an_order_is_due_when_its_time_has_come(scheduled_for: str | None, due: bool):
    assert is_due(scheduled_for, "2026-03-01 15:00:00") is due
