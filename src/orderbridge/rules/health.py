"""What is wrong, decided in one place (promise 8): from facts to the list of open problems.

`status`, the log and the alarm command ask `all_problems`, so that they all say the same. A problem is open as long as the
facts say so: nothing here remembers.

Rules of this file:
- One cause, one problem. An account that does not poll has one code, whatever waits behind it. An order that no till has
  taken over is not counted as unanswered, and one whose accept failed is that and nothing else.
- What follows from another problem stands `behind` it (rules.health).
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

LATE_COOLDOWNS = 3  # without a good poll: 90 s at the service's 30
SEVERE_COOLDOWNS = 4  # of answers that were errors: two in a row are made good by the third poll, a little after 90 s
LEAST_LATE_S = 10.0  # with the short cooldowns of a test
LONGEST_START = timedelta(hours=1)  # of very many accounts, as fast as their logins may go
SCHEDULED_SLACK = timedelta(seconds=5)  # from the time of a first poll to its note: a login comes before

# A customer waits for an answer: when it is reported, when it is severe, and once more a little later.
FIRST_STEPS = (timedelta(seconds=30), timedelta(seconds=90))
LAST_STEP = timedelta(minutes=2)  # after the configured minutes
SCHEDULED_STEPS = (timedelta(minutes=5), timedelta(minutes=15))  # of an order that is not due yet; the last is severe

# It is noted where a line is dead, and who answers in place of the service: each has a remedy of its own (`line`).
FINER = ("dns_", "tls_", "proxy_", "here_", "net_", "front_", "service_", "wrong_path", "no_envelope", "bad_gateway")
STRANGERS = ("front_", "wrong_path", "no_envelope")  # not the service has answered
LOGIN_FAILED = "login_failed"
OF_SERVICE = frozenset({"service_error", "bad_gateway", LOGIN_FAILED})  # a login that was answered: the line is well
# Of a line that is dead, by what ended the last try.
LINES: Mapping[str, Code] = {
    "dns_": Code.LINE_DNS,
    "tls_": Code.LINE_TLS,
    "proxy_": Code.LINE_PROXY,
    "connection_refused": Code.LINE_REFUSED,
    "service_refuses": Code.LINE_REFUSED,
    "connect_timeout": Code.LINE_TIMEOUT,
    "service_silent": Code.LINE_TIMEOUT,
}
# Of polls that left, by what came back; anything else is an answer that is none.
FAILURES: Mapping[str, Code] = {
    "rate_limited": Code.COOLDOWN_TAKEN,
    "timeout": Code.LINE_TIMEOUT,  # the line takes the request, and nothing answers: no better than one that does not
    "connection_lost": Code.UNREACHABLE,  # it was cut on the way: no error was answered
}
_LINE = frozenset(LINES.values())
Row = tuple[str, datetime | None, str | None, int]  # subject, since when, account, how many
ENDED_WITHIN = timedelta(seconds=5)  # a daemon at work ends an accept that is over, a till that holds the file included

TOKEN_OVER = "token_over"  # noqa: S105 - a code: the first 401 since the last good poll


@dataclass(frozen=True, slots=True)
class Thresholds:
    """For how long something may last before it is a problem; None: it never is one.

    `unanswered`: before it is severe; it is reported sooner (FIRST_STEPS).
    """

    late: timedelta
    unanswered: timedelta | None
    not_taken_over: timedelta | None
    cancellation_unseen: timedelta | None
    by_board: bool = False  # the board is the till
    not_acknowledged: timedelta = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Polling:
    """How one configured account does; `state` is None for one that no daemon has ever known, or of which a newer one has a word of its own."""

    name: str
    state: AccountState | None = None
    last_poll_utc: datetime | None = None
    last_poll_ok_utc: datetime | None = None
    last_error: str | None = None
    next_poll_utc: datetime | None = None
    not_stored: int = 0  # orders of the last poll that neither the tables nor quarantine could hold
    not_written: int = 0  # outbox rows of all accounts that the database did not let the daemon write at the last poll
    in_turn_with: str | None = None  # who shares one cooldown, as many as fit: "a, b"; the same text for each of them


@dataclass(frozen=True, slots=True)
class Received:
    """An open order that is stored as RECEIVED. `accept`: the state of its newest accept, and when it ended.

    A cancel that is on its way counts as an answer. `accept_was_over_utc`: from when on it was too late.
    `cancel_waits`: one is unfinished for so long that it counts as none.
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
        """Its accept became too late while no daemon worked, so that is not what the line or the service has done."""
        ended, over = self.accept_ended_utc, self.accept_was_over_utc
        return ended is not None and over is not None and ended > over + ENDED_WITHIN


@dataclass(frozen=True, slots=True)
class Facts:
    """All that is judged. Of the orders, those of the last day. `found`: what is a problem already."""

    accounts: tuple[Polling, ...]
    received: tuple[Received, ...] = ()
    found: tuple[Problem, ...] = ()
    refused: frozenset[str] = frozenset()  # orders of which the database takes no news at all
    is_silent: bool = False  # another program asks, and no daemon has given a sign of life for long enough
    is_gone: bool = False  # another program asks, and certainly none runs


def late_after(cooldown_s: float) -> timedelta:
    """For how long an account may have no good poll."""
    return timedelta(seconds=max(LATE_COOLDOWNS * cooldown_s, LEAST_LATE_S))


def late_in_turn(late: timedelta, accounts: int) -> timedelta:
    """The same of one that is polled in turn with others. `accounts`: how many they are together; 0: it is in no group."""
    return late * max(accounts, 1)


def is_due(scheduled_for: str | None, now: datetime, zone: tzinfo) -> bool:
    """Whether an order is for now: not scheduled, or its time has come."""
    wanted = local_moment(scheduled_for, zone)
    return wanted is None or wanted <= now


def all_problems(facts: Facts, limits: Thresholds, now: datetime) -> list[Problem]:
    """Everything that is wrong, the severe first, then the oldest; also what is behind another problem."""
    accounts, unanswered = _accounts(facts, limits, now), _unanswered(facts.received, limits, now)
    unattended = {one.payment_key for one in facts.received if one.is_unattended}
    found = _with_causes([*facts.found, *accounts, *unanswered], facts.refused, unattended)
    last = datetime.max.replace(tzinfo=now.tzinfo)
    return sorted(found, key=lambda one: (one.severity != _SEVERE, one.since or last))


def of_row(code: Code, row: Row, names: Collection[str], limits: Thresholds, now: datetime) -> Problem:
    """The problem of one row of store.problem_queries. `names`: of the accounts that there are."""
    subject, since, account, count = row
    facts = {}
    if code == Code.NOT_ACKNOWLEDGED:
        facts["minutes"] = "?" if since is None else str(int((now - since).total_seconds()) // 60)
    if code in {Code.NOT_TAKEN_OVER, Code.CANCELLATION_UNSEEN} and limits.by_board:
        facts["by"] = "board"
    if code == Code.NOT_TAKEN_OVER and account not in names:
        account = None  # an account that was removed has no status: so it applies to all, and is seen
    return Problem(code, subject, since, code.kind.severity, count, account=account, facts=facts)


def _accounts(facts: Facts, limits: Thresholds, now: datetime) -> Iterator[Problem]:
    not_written = 0
    # Counted are those that are there: the text names no more than fit into it, and a name may have a comma.
    groups = Counter(account.in_turn_with for account in facts.accounts if account.in_turn_with)
    for account in facts.accounts:
        late = late_in_turn(limits.late, groups[account.in_turn_with or ""])
        if (problem := _polling(account, late, now, facts)) is not None:
            yield problem
        else:  # what an account that does not poll has noted may be long over
            not_written = max(not_written, account.not_written)
        if account.not_stored:
            yield Problem(Code.NOT_STORED, account.name, None, _SEVERE, account.not_stored, account=account.name)
    if not_written:
        yield Problem(Code.NOT_WRITTEN, "", None, _SEVERE, not_written)


def _polling(account: Polling, late: timedelta, now: datetime, seen: Facts) -> Problem | None:
    """One code for each account: why it does not poll, or that no daemon tries. `seen`: of the daemon."""
    since, state = account.last_poll_ok_utc, account.state
    is_late = since is None or since < now - late
    is_tried = account.last_poll_utc is not None and account.last_poll_utc >= now - late
    error, _, words = (account.last_error or "").partition(": ")
    is_tried |= state == AccountState.FAILING and error in OF_SERVICE  # by a login, without which no poll is made
    is_scheduled = _is_scheduled(account, late if seen.is_silent else max(late, LONGEST_START), now)
    is_scheduled = is_scheduled and not seen.is_gone
    if state == AccountState.NEW and account.last_poll_utc is None and is_scheduled:
        return None
    match state:
        case _ if seen.is_gone or (seen.is_silent and is_late):  # what it has written of itself may be long over
            code = Code.NOT_POLLING
        case AccountState.LOGIN_REFUSED:  # without a login no poll is tried: whether a daemon tries is not seen
            code = Code.LOGIN_REFUSED
        case AccountState.UNREACHABLE:
            code = next((code for begin, code in LINES.items() if error.startswith(begin)), Code.UNREACHABLE)
        case _ if not is_tried:
            code = Code.NOT_POLLING
        case AccountState.FAILING if error in {TOKEN_OVER, "unauthorized"} and not is_late:
            return None  # the token was over; the next poll has another one
        case AccountState.FAILING:
            code = FAILURES.get(error, Code.POLL_FAILING)
        case AccountState.OK if not is_late:
            return None
        case AccountState.OK | AccountState.NEW | None:
            code = Code.NO_GOOD_POLL
    severity = _SEVERE if seen.is_gone else _severity(account, code, error, late, now)
    detail = account.last_error
    facts = _where(code, error if since is None else ONCE_KNOWN.get(error, error), words)
    # A daemon has begun anew and polls it in a moment: what the last one left says nothing, as of any that just begins.
    behind = code if code == Code.NOT_POLLING and is_scheduled and not is_tried else None
    return Problem(code, account.name, since, severity, detail=detail, account=account.name, facts=facts, behind=behind)


def _severity(account: Polling, code: Code, error: str, late: timedelta, now: datetime) -> Severity:
    """After an outage that outlived the token no more is wrong than that the next poll is still to come."""
    if account.state == AccountState.FAILING:
        late = late * SEVERE_COOLDOWNS / LATE_COOLDOWNS
    is_late = account.last_poll_ok_utc is None or account.last_poll_ok_utc < now - late
    is_over = code == Code.POLL_FAILING and error == TOKEN_OVER
    is_severe = code == Code.LOGIN_REFUSED or (is_late and not is_over)
    return _SEVERE if is_severe else Severity.WARNING


def _where(code: Code, error: str, words: str) -> dict[str, str]:
    """What the remedy says more exactly. Of a request that never left the words are our own; an answer's may hold a customer's name."""
    if code in _LINE:
        return {"reason": error, "why": words or error}
    return {"reason": error} if error == TOKEN_OVER or (error.startswith(FINER) and error not in OF_SERVICE) else {}


def _is_scheduled(account: Polling, within: timedelta, now: datetime) -> bool:
    """Whether its next poll is about to leave: first ones of many accounts are spread over a cooldown, or over several."""
    planned = account.next_poll_utc
    return planned is not None and now - SCHEDULED_SLACK <= planned <= now + within


def _unanswered(received: Iterable[Received], limits: Thresholds, now: datetime) -> Iterator[Problem]:
    """Customers who wait for an answer. An accept that is still on its way is one."""
    for order in received:
        match order.accept:
            case ActionState.EXPIRED | ActionState.FAILED:
                since = order.accept_ended_utc
                yield Problem(Code.ACCEPT_FAILED, order.payment_key, since, _SEVERE, account=order.account)
            case _ if order.accept in UNFINISHED:
                pass
            case _:
                yield from _overdue(order, limits, now)


def _overdue(order: Received, limits: Thresholds, now: datetime) -> Iterator[Problem]:
    is_reported = not order.taken_over and limits.not_taken_over is not None and not limits.by_board
    if limits.unanswered is None or is_reported:
        return
    steps = (*FIRST_STEPS, limits.unanswered, limits.unanswered + LAST_STEP) if order.is_due else SCHEDULED_STEPS
    severe_after = limits.unanswered if order.is_due else SCHEDULED_STEPS[-1]
    waited = now - order.received_utc
    if level := max((number for number, step in enumerate(steps, 1) if waited > step), default=0):
        severity = _SEVERE if waited > severe_after else Severity.WARNING
        minutes = {"minutes": str(int(waited.total_seconds()) // 60)}
        by = {"by": "cancel"} if order.cancel_waits else {}
        yield Problem(
            Code.UNANSWERED,
            order.payment_key,
            order.received_utc,
            severity,
            level=level,
            account=order.account,
            facts=minutes | by,
        )


_BY_STATUS = {Code.UNANSWERED, Code.ACCEPT_FAILED}  # what an order's stored status says
_FAILED = {Code.ACCEPT_FAILED, Code.OUTCOME_UNKNOWN}  # `since` they ended


def _with_causes(found: list[Problem], refused: Collection[str], unattended: Collection[str]) -> list[Problem]:
    """Each problem with the one that it follows from. `refused`: the orders of which the database takes no news.

    `unattended`: those whose accept became too late while no daemon worked.
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
            return Code.CONTENTS_OUTDATED  # whether an order was answered is not known where it cannot be changed
        if code == Code.NOT_ACKNOWLEDGED and Code.NOT_DURABLE in since:
            return Code.NOT_DURABLE
        # What an older copy had still to send was ended when it was seen; the service's panel shows whether it was sent.
        restored = since.get(Code.DATABASE_RESTORED)
        if code == Code.ACCEPT_FAILED and restored and one.since and abs(one.since - restored) < timedelta(seconds=1):
            return Code.DATABASE_RESTORED
        return page if Cause.PAGE in behind else None

    causes = map(cause, found)
    return [one if code is None else replace(one, behind=code) for one, code in zip(found, causes, strict=True)]


def _is_newer(one: Problem, poll: Problem) -> bool:
    """Whether it has failed since its account had its last good poll: what the service did not give has no answer."""
    return one.since is not None and (poll.since is None or one.since > poll.since)
