"""The problems: each fact has its own code, and one cause makes one problem."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from orderbridge.model import ActionState
from orderbridge.rules.cooldown import Member, names_of
from orderbridge.rules.health import Facts, Polling, Received, Thresholds, all_problems, is_due, late_after, of_row
from orderbridge.rules.problems import OF_THE_DAEMON, Code, Lamp, Problem, Severity, account_statuses
from orderbridge.texts import problem_text

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
LIMITS = Thresholds(1.5 * MINUTE, unanswered=3 * MINUTE, not_taken_over=3 * MINUTE, cancellation_unseen=2 * MINUTE)
WELL = Polling("kadikoy", "ok", NOW - timedelta(seconds=20), NOW - timedelta(seconds=20))
OLD = NOW - 4 * MINUTE


def problems(facts: Facts, limits: Thresholds, now: datetime) -> list[Problem]:
    return [one for one in all_problems(facts, limits, now) if one.behind is None]


def found(limits: Thresholds = LIMITS, **facts: Any) -> list[tuple[str, str, Severity]]:
    made = problems(Facts(**{"accounts": (WELL,)} | facts), limits, NOW)
    return [(one.code, one.subject, one.severity) for one in made]


def received(**changes: Any) -> tuple[Received, ...]:
    return (replace(Received("k", OLD, taken_over=True, is_due=True), **changes),)


def test_unsent_rows_of_an_older_copy_are_suppressed_by_its_alarm():
    restored = Problem(Code.DATABASE_RESTORED, "", NOW, Severity.SEVERE)
    with_it = received(accept=ActionState.FAILED, accept_ended_utc=NOW)
    assert [code for code, *_ in found(received=with_it, found=(restored,))] == [Code.DATABASE_RESTORED]
    before = received(accept=ActionState.FAILED, accept_ended_utc=NOW - timedelta(minutes=5))
    assert len(found(received=before, found=(restored,))) == 2
    assert [code for code, *_ in found(received=with_it)] == [Code.ACCEPT_FAILED]


@pytest.mark.parametrize("seconds, late", [(30, 90), (10, 30), (0.2, 10)])
def test_a_poll_is_late_after_three_cooldowns(seconds: float, late: float):
    assert late_after(seconds) == timedelta(seconds=late)


@pytest.mark.parametrize("state", ["ok", "failing", "new"])
@pytest.mark.parametrize("is_silent", [False, True], ids=["has given a sign", "is about to"])
@pytest.mark.parametrize("left", [None, OLD], ids=["of a new account", "after a restart"])
@pytest.mark.parametrize(
    "planned, expected", [(15, []), (-2, []), (-60, [Code.NOT_POLLING]), (86400, [Code.NOT_POLLING])]
)
def test_a_planned_first_poll_is_late_only_after_its_time(planned, expected, left, is_silent, state):
    """The first polls of several accounts are spread over the cooldown. A day ahead: the clock jumped."""
    state = state if left else "new"
    account = Polling("moda", state, left, left, next_poll_utc=NOW + timedelta(seconds=planned))
    assert [code for code, _, _ in found(accounts=(WELL, account), is_silent=is_silent)] == expected


LATE = {"last_poll_utc": OLD, "last_poll_ok_utc": OLD}
UNAVAILABLE = {"state": "failing", "last_error": "service_error: HTTP 503"}
TOKEN_OVER = {"state": "failing", "last_error": "unauthorized: Invalid or expired access token"}
ACCOUNTS: list[tuple[dict[str, Any], Code | None, Severity]] = [
    ({}, None, Severity.WARNING),
    ({"last_poll_ok_utc": NOW - timedelta(seconds=91)}, Code.NO_GOOD_POLL, Severity.SEVERE),
    ({"last_poll_ok_utc": None}, Code.NO_GOOD_POLL, Severity.SEVERE),
    ({"state": "new", "last_poll_ok_utc": None}, Code.NO_GOOD_POLL, Severity.SEVERE),
    ({"last_poll_ok_utc": OLD, "next_poll_utc": NOW + timedelta(seconds=15)}, Code.NO_GOOD_POLL, Severity.SEVERE),
    (LATE, Code.NOT_POLLING, Severity.SEVERE),
    (LATE | {"not_written": 2}, Code.NOT_POLLING, Severity.SEVERE),
    ({"state": "failing", "last_poll_utc": OLD}, Code.NOT_POLLING, Severity.WARNING),
    ({"state": None, "last_poll_utc": None, "last_poll_ok_utc": None}, Code.NOT_POLLING, Severity.SEVERE),
    ({"state": "failing"}, Code.POLL_FAILING, Severity.WARNING),
    ({"state": "failing", "last_poll_ok_utc": OLD}, Code.POLL_FAILING, Severity.SEVERE),
    # not severe before the third poll is answered
    (UNAVAILABLE | {"last_poll_ok_utc": NOW - timedelta(seconds=95)}, Code.POLL_FAILING, Severity.WARNING),
    (UNAVAILABLE | {"last_poll_ok_utc": NOW - timedelta(seconds=121)}, Code.POLL_FAILING, Severity.SEVERE),
    # a login that the service cannot answer is no fault of the line
    (LATE | {"state": "failing", "last_error": "service_error: HTTP 500"}, Code.POLL_FAILING, Severity.SEVERE),
    (LATE | {"state": "failing", "last_error": "bad_gateway: HTTP 502"}, Code.POLL_FAILING, Severity.SEVERE),
    ({"state": "failing", "last_error": "rate_limited: Ayşe"}, Code.COOLDOWN_TAKEN, Severity.WARNING),
    (TOKEN_OVER, None, Severity.WARNING),
    (TOKEN_OVER | {"last_poll_ok_utc": OLD}, Code.POLL_FAILING, Severity.SEVERE),
    # a token that ended during an outage is no problem of its own
    (TOKEN_OVER | {"last_error": "token_over: Invalid"}, None, Severity.WARNING),
    (TOKEN_OVER | {"last_error": "token_over: Invalid", "last_poll_ok_utc": OLD}, Code.POLL_FAILING, Severity.WARNING),
    ({"state": "failing", "last_error": "timeout: after 20.0 s"}, Code.LINE_TIMEOUT, Severity.WARNING),
    ({"state": "failing", "last_error": "connection_lost: EOF"}, Code.UNREACHABLE, Severity.WARNING),
    ({"state": "unreachable"}, Code.UNREACHABLE, Severity.WARNING),
    (LATE | {"state": "unreachable"}, Code.UNREACHABLE, Severity.SEVERE),
    ({"state": "login_refused"}, Code.LOGIN_REFUSED, Severity.SEVERE),
    (LATE | {"state": "login_refused"}, Code.LOGIN_REFUSED, Severity.SEVERE),
]


@pytest.mark.parametrize("changes, code, severity", ACCOUNTS)
def test_an_account_has_one_code(changes: dict[str, Any], code: Code | None, severity: Severity):
    expected = [] if code is None else [(code, "kadikoy", severity)]
    assert found(accounts=(replace(WELL, **changes), replace(WELL, name="moda"))) == expected


@pytest.mark.parametrize("state", ["login_refused", "unreachable", "failing", "ok", "new"])
def test_a_silent_daemon_is_not_polling_whatever_the_problem_before(state: str):
    """So `status`, which is another program, shows the same as the view."""
    if state != "new":
        last = Polling("kadikoy", state, OLD, OLD)
        assert [code for code, *_ in found(accounts=(last,), is_silent=True)] == [Code.NOT_POLLING]
    assert found(is_silent=True) == [], "a sign that is late, and a poll that was just made"
    for polled in (NOW - timedelta(seconds=20), OLD):
        last = Polling("kadikoy", state, polled, polled, next_poll_utc=NOW + timedelta(seconds=10))
        assert found(accounts=(last,), is_gone=True) == [(Code.NOT_POLLING, "kadikoy", Severity.SEVERE)]


@pytest.mark.parametrize("accounts", [2, 100], ids=["two", "more than the column names"])
def test_only_existing_accounts_of_a_group_count(accounts: int):
    members = [Member(f"f{number}", f"branch, {number}", "app") for number in range(accounts)]
    whole_round, names = LIMITS.late * accounts, names_of(members)

    def codes(last: datetime) -> set[str]:
        group = (replace(WELL, name=one.name, last_poll_ok_utc=last, in_turn_with=names) for one in members)
        return {code for code, _, _ in found(accounts=tuple(group))}

    assert codes(NOW - whole_round) == set()
    alone = tuple(replace(WELL, name=name, last_poll_utc=NOW - whole_round) for name in ("a", "b"))
    assert [code for code, *_ in found(accounts=alone)] == [Code.NOT_POLLING] * 2
    assert codes(NOW - whole_round - timedelta(seconds=1)) == {Code.NO_GOOD_POLL}


@pytest.mark.parametrize("changes, code", [
    ({}, Code.UNANSWERED), ({"received_utc": NOW - MINUTE / 2}, None), ({"taken_over": False}, None),
    ({"is_due": False, "received_utc": NOW - 5 * MINUTE}, None),
    ({"is_due": False, "received_utc": NOW - 16 * MINUTE}, Code.UNANSWERED),
    ({"accept": ActionState.PENDING}, None), ({"accept": ActionState.SENDING}, None),
    ({"accept": ActionState.REFUSED}, Code.UNANSWERED), ({"accept": ActionState.WITHDRAWN}, Code.UNANSWERED),
    ({"accept": ActionState.EXPIRED, "accept_ended_utc": NOW}, Code.ACCEPT_FAILED),
    ({"accept": ActionState.FAILED, "accept_ended_utc": NOW, "received_utc": NOW}, Code.ACCEPT_FAILED),
    ({"accept": ActionState.FAILED, "taken_over": False, "is_due": False}, Code.ACCEPT_FAILED),
])  # fmt: skip
def test_a_customer_who_was_not_answered(changes: dict[str, Any], code: Code | None):
    assert found(received=received(**changes)) == ([] if code is None else [(code, "k", Severity.SEVERE)])


@pytest.mark.parametrize("red, steps", [
    (3 * MINUTE, {31: (1, "warning"), 91: (2, "warning"), 181: (3, "severe"), 301: (4, "severe")}),
    (MINUTE, {31: (1, "warning"), 61: (3, "severe"), 91: (3, "severe"), 181: (4, "severe")}),
], ids=["as it is", "configured"])  # fmt: skip
def test_a_problem_gets_worse_the_longer_a_customer_waits(red: timedelta, steps: dict[int, tuple[int, str]]):
    for seconds, step in steps.items():
        facts = Facts((WELL,), received=received(received_utc=NOW - timedelta(seconds=seconds)))
        (one,) = problems(facts, replace(LIMITS, unanswered=red), NOW)
        assert (one.level, one.severity) == step


@pytest.mark.parametrize("error, code, why", [
    ("dns_failed: gaierror: Name or service not known", Code.LINE_DNS, "gaierror: Name or service not known"),
    ("tls_failed: SSLError", Code.LINE_TLS, "SSLError"), ("tls_expired: issued by X", Code.LINE_TLS, "issued by X"),
    ("connection_refused: Errno 111", Code.LINE_REFUSED, "Errno 111"),
    ("service_silent: after 20 s", Code.LINE_TIMEOUT, "after 20 s"), ("here_files: Errno 24", Code.UNREACHABLE, None),
    ("connect_timeout: after 20 s", Code.LINE_TIMEOUT, "after 20 s"),
    ("proxy_refused: the proxy answered 407", Code.LINE_PROXY, "the proxy answered 407"),
    ("login_failed: service_error", Code.UNREACHABLE, None), (None, Code.UNREACHABLE, None),
])  # fmt: skip
def test_an_unreachable_marketplace_names_the_step_that_fails(error: str | None, code: Code, why: str | None):
    account = replace(WELL, state="unreachable", last_error=error)
    (one,) = problems(Facts((account,)), LIMITS, NOW)
    assert (one.code, one.facts.get("why")) == (code, why)


@pytest.mark.parametrize("state, code", [("unreachable", Code.UNREACHABLE), ("failing", Code.POLL_FAILING)])
@pytest.mark.parametrize("error", ["wrong_path", "front_or_path", "no_envelope"])
def test_a_wrong_address_is_suspected_only_if_nothing_ever_worked(error: str, state: str, code: Code):
    account = replace(WELL, state=state, last_error=f"{error}: HTTP 403")
    for ever, says in ((WELL.last_poll_ok_utc, False), (None, True)):
        (one,) = problems(Facts((replace(account, last_poll_ok_utc=ever),)), LIMITS, NOW)
        remedy = problem_text(code, "en", **one.facts)[1]
        assert (one.code, "marketplace.base_url" in remedy) == (code, says)


def row(code: Code, subject: str, since=OLD, account: str | None = None, count=1, by=LIMITS) -> Problem:
    return of_row(code, (subject, since, account, count), ("kadikoy", "moda"), by)


def known(*codes: Code) -> tuple[Problem, ...]:
    return tuple(Problem(code, "", OLD, Severity.SEVERE) for code in codes)


ALL_WAITING: dict[str, Any] = {
    "received": received(account="kadikoy") + received(payment_key="l", account="kadikoy", accept=ActionState.EXPIRED),
    "found": (row(Code.NOT_ACKNOWLEDGED, "kadikoy", OLD, "kadikoy", 50),),
}


@pytest.mark.parametrize("changes", [
    {"state": "login_refused"},
    {"state": "unreachable", "last_error": "dns_failed", "last_poll_ok_utc": OLD},
    {"last_poll_utc": OLD, "last_poll_ok_utc": OLD},
])  # fmt: skip
def test_waiting_rows_of_an_unreachable_account_are_no_problem_of_their_own(changes: dict[str, Any]):
    facts = Facts((replace(WELL, **changes), replace(WELL, name="moda")), **ALL_WAITING)
    (one,) = problems(facts, LIMITS, NOW)
    behind = {(other.code, other.behind) for other in all_problems(facts, LIMITS, NOW) if other != one}
    of_account = {Code.UNANSWERED, Code.ACCEPT_FAILED, Code.NOT_ACKNOWLEDGED}
    assert behind == {(code, one.code) for code in of_account}
    of_another = Facts((replace(WELL, name="moda", **changes),), **ALL_WAITING)
    assert {one.code for one in problems(of_another, LIMITS, NOW)} == of_account | {one.code}


def test_a_warning_suppresses_no_severe_problem():
    facts = Facts((replace(WELL, state="unreachable", last_error="dns_failed"),), **ALL_WAITING)
    shown = {(one.code, one.severity) for one in problems(facts, LIMITS, NOW)}
    severe = {Code.UNANSWERED, Code.ACCEPT_FAILED, Code.NOT_ACKNOWLEDGED}
    assert shown == {(Code.LINE_DNS, Severity.WARNING)} | {(code, Severity.SEVERE) for code in severe}


@pytest.mark.parametrize("error, code", [("service_error", Code.POLL_FAILING), ("rate_limited", Code.COOLDOWN_TAKEN)])
def test_failures_since_the_last_good_poll_are_suppressed_by_failing_polls(error: str, code: Code):
    failing = replace(WELL, state="failing", last_error=error, last_poll_ok_utc=OLD)

    def failed(at: datetime) -> dict[str, Any]:
        accept = received(account="kadikoy", accept=ActionState.FAILED, accept_ended_utc=at)
        unknown = row(Code.OUTCOME_UNKNOWN, "17", at, "kadikoy")
        return {"received": accept, "found": (unknown, row(Code.NOT_ACKNOWLEDGED, "kadikoy", OLD, "kadikoy", 50))}

    assert [one for one, *_ in found(accounts=(failing,), **failed(NOW))] == [code]
    unanswered = found(accounts=(failing,), received=received(account="kadikoy"))
    assert {one for one, *_ in unanswered} == {code, Code.UNANSWERED}, "a till could answer"
    before = {one for one, *_ in found(accounts=(failing,), **failed(OLD - MINUTE))}
    assert before == {code, Code.ACCEPT_FAILED, Code.OUTCOME_UNKNOWN}
    assert [one for one, *_ in found(accounts=(replace(failing, last_poll_ok_utc=None),), **failed(OLD))] == [code]


@pytest.mark.parametrize("accept", [ActionState.EXPIRED, ActionState.FAILED])
@pytest.mark.parametrize("changes", [
    {"state": "failing", "last_error": "rate_limited"}, {"state": "failing", "last_error": "unauthorized"},
    {"state": "login_refused"}, {"state": "unreachable", "last_error": "dns_failed"}, {"last_poll_utc": OLD},
], ids=str)  # fmt: skip
def test_an_accept_that_expired_without_a_daemon_is_a_problem_of_its_own(changes: dict[str, Any], accept: ActionState):
    account = replace(WELL, **{"last_poll_ok_utc": OLD} | changes)
    over = received(account="kadikoy", accept=accept, accept_ended_utc=NOW, accept_was_over_utc=NOW - 4 * MINUTE)
    at_work = (replace(over[0], accept_was_over_utc=NOW - timedelta(seconds=4)),)
    assert ("accept_failed", "k", Severity.SEVERE) in found(accounts=(account,), received=over)
    assert found(accounts=(account,), received=at_work) == found(accounts=(account,))


def test_an_order_with_refused_updates_has_only_that_problem():
    outdated = (row(Code.CONTENTS_OUTDATED, "k", NOW),)
    facts = {"refused": frozenset("k"), "found": outdated}
    for accept in (None, ActionState.FAILED):
        waiting = received(accept=accept, accept_ended_utc=NOW)
        assert found(received=waiting, **facts) == [(Code.CONTENTS_OUTDATED, "k", Severity.SEVERE)]
    assert len(found(received=received(payment_key="other"), **facts)) == 2
    assert len(found(received=received(), found=outdated)) == 2, "its status is known"


UNSEEN_BY_TILL = (
    row(Code.NOT_TAKEN_OVER, "kadikoy", OLD, "kadikoy", 3),
    row(Code.CANCELLATION_UNSEEN, "k", OLD, "kadikoy"),
)


@pytest.mark.parametrize("code", [Code(f"database_{how}") for how in ("full", "read_only", "busy", "failing", "lost")])
def test_an_unwritable_database_is_one_problem(code: Code):
    stuck = replace(WELL, last_poll_utc=OLD, last_poll_ok_utc=OLD, not_stored=1)
    shown = known(code, Code.DATABASE_SLOW, Code.JOURNAL_NOT_WRITTEN) + ALL_WAITING["found"] + UNSEEN_BY_TILL
    all_at_once = found(accounts=(stuck,), received=ALL_WAITING["received"], found=shown)
    assert all_at_once == [(code, "", Severity.SEVERE)]


@pytest.mark.parametrize(
    "ahead, expected", [(MINUTE / 2, []), (60 * MINUTE, [(Code.UNANSWERED, "k", Severity.SEVERE)])]
)
def test_an_order_from_before_the_clock_was_set_back_has_waited_too_long(ahead: timedelta, expected: list[Any]):
    assert found(received=received(received_utc=NOW + ahead)) == expected


def test_unanswered_orders_are_reported_also_without_a_till():
    limits = replace(LIMITS, not_taken_over=None)
    waiting = received(taken_over=False)
    assert found(limits, received=waiting) == [(Code.UNANSWERED, "k", Severity.SEVERE)]
    assert found(replace(limits, unanswered=None), received=waiting) == []
    limits = replace(LIMITS, by_board=True)
    codes = (Code.NOT_TAKEN_OVER, Code.CANCELLATION_UNSEEN)
    rows = tuple(row(code, "kadikoy", OLD, "kadikoy", by=limits) for code in codes)
    shown = problems(Facts((WELL,), received=waiting, found=rows), limits, NOW)
    assert {one.code: one.facts.get("by") for one in shown} == {Code.UNANSWERED: None} | dict.fromkeys(codes, "board")
    for code, language in product(codes, ("tr", "en")):
        assert "POS" not in " ".join(problem_text(code, language, by="board"))


@pytest.mark.parametrize("facts, problem", [
    *(({"found": (one,)}, (one.code, one.subject)) for one in UNSEEN_BY_TILL),
    ({"accounts": (replace(WELL, not_stored=2),)}, (Code.NOT_STORED, "kadikoy")),
    ({"accounts": (replace(WELL, not_written=2),)}, (Code.NOT_WRITTEN, "")),
    ({"found": (row(Code.OUTCOME_UNKNOWN, "17", OLD),)}, (Code.OUTCOME_UNKNOWN, "17", Severity.WARNING)),
    *(({"found": known(code)}, (code, "")) for code in OF_THE_DAEMON),
    # what follows from it is behind it
    ({"found": (*known(Code.NOT_DURABLE), row(Code.NOT_ACKNOWLEDGED, "kadikoy"))}, (Code.NOT_DURABLE, "")),
])  # fmt: skip
def test_each_fact_has_its_code(facts: dict[str, Any], problem: tuple[Any, ...]):
    assert found(**facts) == [(*problem, Severity.SEVERE)[:3]]


def test_the_severe_come_first_and_then_the_oldest():
    older = OLD - MINUTE
    both = Problem(Code.QUARANTINED, "", older, Severity.WARNING), row(Code.CANCELLATION_UNSEEN, "x", older)
    in_order = [Code.CANCELLATION_UNSEEN, Code.UNANSWERED, Code.QUARANTINED]
    assert [code for code, _, _ in found(found=both, received=received())] == in_order


@pytest.mark.parametrize("scheduled_for, due", [
    (None, True), ("2026-03-01 15:00:00", True), ("2026-03-01 15:00:01", False), ("2026-03-01T12:00:00Z", True),
    ("2026-03-01T14:30:00+02:00", False), ("01.03.2026 15:30", False), ("on Sunday", True), ("", True),
])  # fmt: skip
def test_an_order_is_due_when_its_time_has_come(scheduled_for: str | None, due: bool):
    assert is_due(scheduled_for, datetime(2026, 3, 1, 12, tzinfo=UTC), ZoneInfo("Europe/Istanbul")) is due


def test_not_taken_over_concerns_only_its_own_account() -> None:
    moda = replace(WELL, name="moda")
    for left, lamp_of_others in (("kadikoy", Lamp.GREEN), ("an account that has left", Lamp.RED)):
        found = problems(Facts((WELL, moda), found=(row(Code.NOT_TAKEN_OVER, left, OLD, left),)), LIMITS, NOW)
        shown = account_statuses(["kadikoy", "moda"], found)
        assert (shown["kadikoy"].lamp, shown["moda"].lamp) == (Lamp.RED, lamp_of_others)
