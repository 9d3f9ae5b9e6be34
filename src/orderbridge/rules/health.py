"""Turns facts into the list of open problems (promise 8), for `status`, the log, the alarm command and all others.

A problem is open as long as the facts show it; there is no memory here.

Rules of this file:

- One cause is one problem. An account that is not polled has one code. An order that was not taken over does not count
  as unanswered as well, and an order with a failed accept has only that problem.
- A problem that follows from another one is suppressed: `behind` names the other. A warning suppresses no severe one.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, tzinfo

from orderbridge.clock import local_moment
from orderbridge.errors import ONCE_KNOWN
from orderbridge.model import UNFINISHED, AccountState, ActionState
from orderbridge.rules.problems import NO_DATABASE, Cause, Code, Problem, Severity

_SEVERE = Severity.SEVERE

LATE_COOLDOWNS = 3  # without a good poll: 90 s at a cooldown of 30 s
SEVERE_COOLDOWNS = 4  # with error answers: after two of them the third poll is slightly later than 90 s
MIN_LATE_S = 10.0  # for the short cooldowns of tests
LONGEST_START = timedelta(hours=1)  # of very many accounts, limited by their logins
SCHEDULED_SLACK = timedelta(seconds=5)  # a login may delay a scheduled first poll

# Steps of an unanswered order: reported twice as a warning, then severe, then once more after LAST_STEP.
FIRST_STEPS = (timedelta(seconds=30), timedelta(seconds=90))
LAST_STEP = timedelta(minutes=2)  # after the configured minutes
SCHEDULED_STEPS = (timedelta(minutes=5), timedelta(minutes=15))  # for an order that is not due yet; the last is severe

# Prefixes of reasons with their own remedies (sentences/line.toml).
FINER = ("dns_", "tls_", "proxy_", "here_", "net_", "front_", "service_", "wrong_path", "no_envelope", "bad_gateway")
FOREIGN_ANSWERS = ("front_", "wrong_path", "no_envelope")  # another server than the marketplace's answered
LOGIN_FAILED = "login_failed"
OF_SERVICE = frozenset({"service_error", "bad_gateway", LOGIN_FAILED})  # errors of the marketplace: the network works
# Codes for a broken connection, by the error of the last try.
LINES: Mapping[str, Code] = {
    "dns_": Code.LINE_DNS,
    "tls_": Code.LINE_TLS,
    "proxy_": Code.LINE_PROXY,
    "connection_refused": Code.LINE_REFUSED,
    "service_refuses": Code.LINE_REFUSED,
    "connect_timeout": Code.LINE_TIMEOUT,
    "service_silent": Code.LINE_TIMEOUT,
}
# Codes for sent polls, by their error; any other error is POLL_FAILING.
FAILURES: Mapping[str, Code] = {
    "rate_limited": Code.COOLDOWN_TAKEN,
    "timeout": Code.LINE_TIMEOUT,  # sent but not answered, which has the same remedy
    "connection_lost": Code.UNREACHABLE,  # cut, without an answer
}
_LINE = frozenset(LINES.values())
Row = tuple[str, datetime | None, str | None, int]  # subject, since, account, count
ENDED_WITHIN = timedelta(seconds=5)  # a running daemon ends an expired accept in this time

TOKEN_OVER = "token_over"  # noqa: S105 - a code: the first 401 since the last good poll


@dataclass(frozen=True, slots=True)
class Thresholds:
    """How long a condition may last before it is a problem; None: it never is one.

    `unanswered`: before it is severe; as a warning it is reported sooner (FIRST_STEPS).
    """

    late: timedelta
    unanswered: timedelta | None
    not_taken_over: timedelta | None
    cancellation_unseen: timedelta | None
    by_board: bool = False  # the board is the till
    not_acknowledged: timedelta = timedelta(minutes=5)
    ahead: timedelta = timedelta(minutes=1)  # a time that lies further ahead is of before the clock was set back


@dataclass(frozen=True, slots=True)
class Polling:
    """The poll state of one account.

    `state` is None if no daemon has polled it, or if a newer one wrote an unknown state.
    """

    name: str
    state: AccountState | None = None
    last_poll_utc: datetime | None = None
    last_poll_ok_utc: datetime | None = None
    last_error: str | None = None
    next_poll_utc: datetime | None = None
    not_stored: int = 0  # orders of the last poll that could not even be quarantined
    not_written: int = 0  # outbox rows of all accounts that could not be written at the last poll
    in_turn_with: str | None = None  # names of accounts with the same cooldown: "a, b", the same text for each


@dataclass(frozen=True, slots=True)
class Received:
    """An open order in RECEIVED, with the state and end of its newest accept. An unfinished cancel counts as an answer.

    `accept_was_over_utc`: when the accept expired. `cancel_waits`: a cancel is unfinished for so long that it no longer
    counts.
    """

    payment_key: str
    received_utc: datetime
    taken_over: bool
    is_due: bool  # not scheduled for later
    accept: ActionState | None = None
    accept_ended_utc: datetime | None = None
    account: str = ""
    accept_was_over_utc: datetime | None = None
    cancel_waits: bool = False

    @property
    def is_unattended(self) -> bool:
        """Whether its accept expired while no daemon worked, and not because of the network or the marketplace."""
        ended, over = self.accept_ended_utc, self.accept_was_over_utc
        return ended is not None and over is not None and ended > over + ENDED_WITHIN


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts to judge, with the orders of the last day. `found`: problems found elsewhere."""

    accounts: tuple[Polling, ...]
    received: tuple[Received, ...] = ()
    found: tuple[Problem, ...] = ()
    refused: frozenset[str] = frozenset()  # orders that the database lets nothing update
    is_silent: bool = False  # no daemon has given a sign of life for too long (asked by another program)
    is_gone: bool = False  # certainly no daemon runs (asked by another program)


def late_after(cooldown_s: float) -> timedelta:
    """The longest normal time without a good poll."""
    return timedelta(seconds=max(LATE_COOLDOWNS * cooldown_s, MIN_LATE_S))


def late_in_turn(late: timedelta, accounts: int) -> timedelta:
    """The same for an account in a group of `accounts` that are polled in turn; 0: no group."""
    return late * max(accounts, 1)


def is_due(scheduled_for: str | None, now: datetime, zone: tzinfo) -> bool:
    """Whether an order is not scheduled, or its time is reached."""
    wanted = local_moment(scheduled_for, zone)
    return wanted is None or wanted <= now


def all_problems(facts: Facts, limits: Thresholds, now: datetime) -> list[Problem]:
    """All problems, including suppressed ones; severe ones first, then the oldest."""
    accounts, unanswered = _accounts(facts, limits, now), _unanswered(facts.received, limits, now)
    unattended = {one.payment_key for one in facts.received if one.is_unattended}
    found = _with_causes([*facts.found, *accounts, *unanswered], facts.refused, unattended)
    last = datetime.max.replace(tzinfo=now.tzinfo)
    return sorted(found, key=lambda one: (one.severity != _SEVERE, one.since or last))


def of_row(code: Code, row: Row, names: Collection[str], limits: Thresholds) -> Problem:
    """The problem for one row of store.problem_queries. `names`: all accounts."""
    subject, since, account, count = row
    facts = {}
    if code in {Code.NOT_TAKEN_OVER, Code.CANCELLATION_UNSEEN} and limits.by_board:
        facts["by"] = "board"
    if code == Code.NOT_TAKEN_OVER and account not in names:
        account = None  # a removed account has no status row, so that the problem must concern all
    return Problem(code, subject, since, code.kind.severity, count, account=account, facts=facts)


def _accounts(facts: Facts, limits: Thresholds, now: datetime) -> Iterator[Problem]:
    not_written = 0
    # Counted by the rows: the text may be cut, and a name may contain a comma.
    groups = Counter(account.in_turn_with for account in facts.accounts if account.in_turn_with)
    for account in facts.accounts:
        late = late_in_turn(limits.late, groups[account.in_turn_with or ""])
        if (problem := _polling(account, late, now, facts)) is not None:
            yield problem
        else:  # the note of an account that is not polled may be outdated
            not_written = max(not_written, account.not_written)
        if account.not_stored:
            yield Problem(Code.NOT_STORED, account.name, None, _SEVERE, account.not_stored, account=account.name)
    if not_written:
        yield Problem(Code.NOT_WRITTEN, "", None, _SEVERE, not_written)


def _polling(account: Polling, late: timedelta, now: datetime, seen: Facts) -> Problem | None:
    """The one problem of an account: why it is not polled, or that no daemon tries."""
    since, state = account.last_poll_ok_utc, account.state
    is_late = since is None or since < now - late
    is_tried = account.last_poll_utc is not None and account.last_poll_utc >= now - late
    error, _, words = (account.last_error or "").partition(": ")
    is_tried |= state == AccountState.FAILING and error in OF_SERVICE  # by logins, which precede polls
    is_scheduled = _is_scheduled(account, late if seen.is_silent else max(late, LONGEST_START), now)
    is_scheduled = is_scheduled and not seen.is_gone
    if state == AccountState.NEW and account.last_poll_utc is None and is_scheduled:
        return None
    match state:
        case _ if seen.is_gone or (seen.is_silent and is_late):  # its state may be outdated
            code = Code.NOT_POLLING
        case AccountState.LOGIN_REFUSED:  # no polls without a login, so that they show nothing about the daemon
            code = Code.LOGIN_REFUSED
        case AccountState.UNREACHABLE:
            code = next((code for begin, code in LINES.items() if error.startswith(begin)), Code.UNREACHABLE)
        case _ if not is_tried:
            code = Code.NOT_POLLING
        case AccountState.FAILING if error in {TOKEN_OVER, "unauthorized"} and not is_late:
            return None  # the token had ended; the next poll has a new one
        case AccountState.FAILING:
            code = FAILURES.get(error, Code.POLL_FAILING)
        case AccountState.OK if not is_late:
            return None
        case AccountState.OK | AccountState.NEW | None:
            code = Code.NO_GOOD_POLL
    severity = _SEVERE if seen.is_gone else _severity(account, code, error, late, now)
    detail = account.last_error
    facts = _where(code, error if since is None else ONCE_KNOWN.get(error, error), words)
    # A new daemon will poll it soon; until then the old state means nothing.
    behind = code if code == Code.NOT_POLLING and is_scheduled and not is_tried else None
    return Problem(code, account.name, since, severity, detail=detail, account=account.name, facts=facts, behind=behind)


def _severity(account: Polling, code: Code, error: str, late: timedelta, now: datetime) -> Severity:
    """Severe if late, unless only a token has ended: the next poll has a new one."""
    if account.state == AccountState.FAILING:
        late = late * SEVERE_COOLDOWNS / LATE_COOLDOWNS
    is_late = account.last_poll_ok_utc is None or account.last_poll_ok_utc < now - late
    is_over = code == Code.POLL_FAILING and error == TOKEN_OVER
    is_severe = code == Code.LOGIN_REFUSED or (is_late and not is_over)
    return _SEVERE if is_severe else Severity.WARNING


def _where(code: Code, error: str, words: str) -> dict[str, str]:
    """Facts for a more exact remedy. Only our own texts are used: an answer may hold a customer's name."""
    if code in _LINE:
        return {"reason": error, "why": words or error}
    return {"reason": error} if error == TOKEN_OVER or (error.startswith(FINER) and error not in OF_SERVICE) else {}


def _is_scheduled(account: Polling, within: timedelta, now: datetime) -> bool:
    """Whether its next poll is scheduled soon: the first polls of many accounts are spread over time."""
    planned = account.next_poll_utc
    return planned is not None and now - SCHEDULED_SLACK <= planned <= now + within


def _unanswered(received: Iterable[Received], limits: Thresholds, now: datetime) -> Iterator[Problem]:
    """Customers who wait for an answer. An unfinished accept counts as one."""
    for order in received:
        if order.accept in {ActionState.EXPIRED, ActionState.FAILED}:
            since = order.accept_ended_utc
            yield Problem(Code.ACCEPT_FAILED, order.payment_key, since, _SEVERE, account=order.account)
        elif order.accept not in UNFINISHED:
            yield from _overdue(order, limits, now)


def _overdue(order: Received, limits: Thresholds, now: datetime) -> Iterator[Problem]:
    is_reported = not order.taken_over and limits.not_taken_over is not None and not limits.by_board
    if limits.unanswered is None or is_reported:
        return
    steps = (*FIRST_STEPS, limits.unanswered, limits.unanswered + LAST_STEP) if order.is_due else SCHEDULED_STEPS
    severe_after = limits.unanswered if order.is_due else SCHEDULED_STEPS[-1]
    waited = now - order.received_utc if order.received_utc <= now + limits.ahead else timedelta.max
    if level := max((number for number, step in enumerate(steps, 1) if waited > step), default=0):
        severity = _SEVERE if waited > severe_after else Severity.WARNING
        key, since, by = order.payment_key, order.received_utc, {"by": "cancel"} if order.cancel_waits else {}
        yield Problem(Code.UNANSWERED, key, since, severity, level=level, account=order.account, facts=by)


_BY_STATUS = {Code.UNANSWERED, Code.ACCEPT_FAILED}  # found by the stored status
_FAILED = {Code.ACCEPT_FAILED, Code.OUTCOME_UNKNOWN}  # `since` is the end of the row


def _with_causes(found: list[Problem], refused: Collection[str], unattended: Collection[str]) -> list[Problem]:
    """Set `behind` of problems that follow from others. `refused`: orders that the database lets nothing update.

    `unattended`: orders whose accept expired while no daemon worked.
    """
    since = {one.code: one.since for one in found}
    database = next((code for code in Code if code in NO_DATABASE and code in since), None)
    polls = {one.subject: one for one in found if one.code.kind.cause in {Cause.CUT_OFF, Cause.NO_LIST}}
    page = next((one.code for one in found if one.code.kind.cause is Cause.PAGE and one.severity == _SEVERE), None)

    def cause(one: Problem) -> Code | None:
        code, behind = one.code, one.code.kind.behind
        if database is not None and (Cause.NO_DATABASE in behind or (code in NO_DATABASE and code != database)):
            return database
        if code != Code.ACCEPT_FAILED or one.subject not in unattended:
            poll = polls.get(one.account or "")
            if poll is not None and (poll.code.kind.cause in behind or (code in _FAILED and _is_newer(one, poll))):
                return poll.code
        if code in _BY_STATUS and one.subject in refused:
            return Code.CONTENTS_OUTDATED  # without updates, its stored status means nothing
        if code == Code.NOT_ACKNOWLEDGED and Code.NOT_DURABLE in since:
            return Code.NOT_DURABLE
        # The unsent rows of an older copy were ended when it was detected; the marketplace's panel shows their effect.
        restored = since.get(Code.DATABASE_RESTORED)
        if code == Code.ACCEPT_FAILED and restored and one.since and abs(one.since - restored) < timedelta(seconds=1):
            return Code.DATABASE_RESTORED
        return page if Cause.PAGE in behind else None

    severe = {(one.code, one.account) for one in found if one.severity == _SEVERE}

    def hides(code: Code | None, one: Problem) -> bool:
        """Whether it suppresses the problem. A warning suppresses no severe one: the lamp would become yellow."""
        return code is not None and (
            one.severity != _SEVERE or not severe.isdisjoint({(code, one.account), (code, None)})
        )

    causes = map(cause, found)
    return [replace(one, behind=code) if hides(code, one) else one for one, code in zip(found, causes, strict=True)]


def _is_newer(one: Problem, poll: Problem) -> bool:
    """Whether it failed after the last good poll of its account, and so because of the same outage."""
    return one.since is not None and (poll.since is None or one.since > poll.since)
