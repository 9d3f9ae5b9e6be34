"""What is wrong, decided in one place (promise 8): from facts to the list of open problems.

`status`, the log and whatever tells people later ask `problems`, so that they all say the same. A problem is open as
long as the facts say so: nothing here remembers.

Rules of this file:
- One cause, one problem. An account that does not poll has one code, whatever waits behind it. An order that no till has
  taken over is not counted as unanswered, and one whose accept failed is that and nothing else.
- Codes are stable; the sentences for people are in sentences.toml.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from orderbridge.model import ActionState

LATE_COOLDOWNS = 3  # without a good poll: 90 s at the service's 30
LEAST_LATE_S = 10.0  # with the short cooldowns of a test
SCHEDULED_SLACK = timedelta(seconds=5)  # from the time of a first poll to its note: a login comes before


class Severity(StrEnum):
    """SEVERE: orders are lost, late or cooked in vain while it lasts."""

    WARNING = "warning"
    SEVERE = "severe"


class Code(StrEnum):
    """What can be wrong."""

    LOGIN_REFUSED = "login_refused"
    UNREACHABLE = "unreachable"
    POLL_FAILING = "poll_failing"
    NO_GOOD_POLL = "no_good_poll"
    NOT_POLLING = "not_polling"
    COOLDOWN_SHARED = "cooldown_shared"
    NOT_DURABLE = "not_durable"
    NOT_TAKEN_OVER = "not_taken_over"
    UNANSWERED = "unanswered"
    ACCEPT_FAILED = "accept_failed"
    CANCELLATION_UNSEEN = "cancellation_unseen"
    NOT_STORED = "not_stored"
    NOT_WRITTEN = "not_written"
    CONTENTS_OUTDATED = "contents_outdated"
    OUTCOME_UNKNOWN = "outcome_unknown"
    QUARANTINED = "quarantined"


BY_TIME_ALONE = {Code.NO_GOOD_POLL, Code.NOT_POLLING}  # what a daemon that has just started cannot know
WARNINGS = {
    Code.OUTCOME_UNKNOWN,
    Code.QUARANTINED,
    Code.COOLDOWN_SHARED,
}  # a person has to look, and nothing is getting worse meanwhile


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong now.

    `subject`: an account, an order's payment_key, an outbox row's id; empty where it concerns all. `since` is None
    where nobody can know. `detail`: the error's own words, where there are any.
    """

    code: Code
    subject: str
    since: datetime | None
    severity: Severity
    count: int = 1
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class Thresholds:
    """For how long something may last before it is a problem; None: it never is one."""

    late: timedelta
    unanswered: timedelta | None
    not_taken_over: timedelta | None
    cancellation_unseen: timedelta | None


@dataclass(frozen=True, slots=True)
class Polling:
    """How one configured account does; `state` is None for one that no daemon has ever known."""

    name: str
    state: str | None = None
    last_poll_utc: datetime | None = None
    last_poll_ok_utc: datetime | None = None
    last_error: str | None = None
    next_poll_utc: datetime | None = None
    not_stored: int = 0  # orders of the last poll that neither the tables nor quarantine could hold
    not_written: int = 0  # outbox rows of all accounts that the database did not let the daemon write at the last poll
    in_turn_with: str | None = None  # the accounts that share one cooldown, this one among them: "a, b"


@dataclass(frozen=True, slots=True)
class Received:
    """An open order that the service shows as RECEIVED. `accept`: the state of its newest accept, and when it ended."""

    payment_key: str
    received_utc: datetime
    taken_over: bool
    is_due: bool  # not scheduled for later
    accept: ActionState | None = None
    accept_ended_utc: datetime | None = None


@dataclass(frozen=True, slots=True)
class Pile:
    """How many of something there are, and since when the oldest one is."""

    count: int = 0
    oldest: datetime | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """All that is looked at. Of the orders, the ones of the last day."""

    accounts: tuple[Polling, ...]
    received: tuple[Received, ...] = ()
    not_taken_over: Pile = Pile()  # for longer than the threshold
    unseen_cancellations: tuple[tuple[str, datetime], ...] = ()  # for longer than the threshold: order, since
    outdated: tuple[
        tuple[str, datetime], ...
    ] = ()  # open orders whose newer contents the database refuses: order, since
    unknown_outcomes: tuple[tuple[int, datetime], ...] = ()  # outbox rows of which nothing newer is known
    quarantined: Pile = Pile()
    unsafe: str | None = None  # why nothing is acknowledged


def late_after(cooldown_s: float) -> timedelta:
    """For how long an account may have no good poll."""
    return timedelta(seconds=max(LATE_COOLDOWNS * cooldown_s, LEAST_LATE_S))


def is_due(scheduled_for: str | None, local_now: str) -> bool:
    """Whether an order is for now: not scheduled, or its time has come. What is no date cannot be compared."""
    return scheduled_for is None or not scheduled_for[:4].isdigit() or scheduled_for <= local_now


def problems(facts: Facts, limits: Thresholds, now: datetime) -> list[Problem]:
    """Everything that is wrong, the severe first, then the oldest."""
    found = list(_all(facts, limits, now))
    return sorted(
        found, key=lambda one: (one.severity != Severity.SEVERE, one.since or datetime.max.replace(tzinfo=now.tzinfo))
    )


def _all(facts: Facts, limits: Thresholds, now: datetime) -> Iterator[Problem]:
    if facts.unsafe is not None:
        yield Problem(Code.NOT_DURABLE, "", None, Severity.SEVERE, detail=facts.unsafe)
    yield from _accounts(facts.accounts, limits, now)
    if facts.not_taken_over.count and limits.not_taken_over is not None:
        yield _piled(Code.NOT_TAKEN_OVER, facts.not_taken_over)
    yield from _unanswered(facts.received, limits, now)
    for payment_key, since in facts.unseen_cancellations:
        yield Problem(Code.CANCELLATION_UNSEEN, payment_key, since, Severity.SEVERE)
    for payment_key, since in facts.outdated:
        yield Problem(Code.CONTENTS_OUTDATED, payment_key, since, Severity.SEVERE)
    for row_id, since in facts.unknown_outcomes:
        yield Problem(Code.OUTCOME_UNKNOWN, str(row_id), since, Severity.WARNING)
    if facts.quarantined.count:
        yield _piled(Code.QUARANTINED, facts.quarantined)


def _accounts(accounts: tuple[Polling, ...], limits: Thresholds, now: datetime) -> Iterator[Problem]:
    not_written = 0
    for account in accounts:
        sharing = len((account.in_turn_with or "").split(","))
        if (problem := _polling(account, limits.late * sharing, now)) is not None:
            yield problem
        else:  # what an account that does not poll has noted may be long over
            not_written = max(not_written, account.not_written)
        if account.not_stored:
            yield Problem(Code.NOT_STORED, account.name, None, Severity.SEVERE, account.not_stored)
    if not_written:
        yield Problem(Code.NOT_WRITTEN, "", None, Severity.SEVERE, not_written)
    for names in dict.fromkeys(account.in_turn_with for account in accounts if account.in_turn_with):
        yield Problem(Code.COOLDOWN_SHARED, names, None, Severity.WARNING)


def _piled(code: Code, pile: Pile) -> Problem:
    severity = Severity.WARNING if code in WARNINGS else Severity.SEVERE
    return Problem(code, "", pile.oldest, severity, pile.count)


def _polling(account: Polling, late: timedelta, now: datetime) -> Problem | None:
    """One code for each account: its own word about why it does not poll, or that nobody tries."""
    since, state = account.last_poll_ok_utc, account.state
    is_late = since is None or since < now - late
    is_tried = account.last_poll_utc is not None and account.last_poll_utc >= now - late
    if state == "new" and _is_scheduled(account, late, now):
        return None
    match state:
        case "login_refused":  # without a login no poll is tried: whether somebody tries to log in is not seen
            code = Code.LOGIN_REFUSED
        case "unreachable":
            code = Code.UNREACHABLE
        case _ if not is_tried:
            code = Code.NOT_POLLING
        case "failing":
            code = Code.POLL_FAILING
        case "ok" if not is_late:
            return None
        case _:
            code = Code.NO_GOOD_POLL
    severe = is_late or code == Code.LOGIN_REFUSED
    return Problem(
        code, account.name, since, Severity.SEVERE if severe else Severity.WARNING, detail=account.last_error
    )


def _is_scheduled(account: Polling, late: timedelta, now: datetime) -> bool:
    """Whether it is about to be polled for the first time: many accounts are spread over the cooldown."""
    first = account.next_poll_utc
    return account.last_poll_utc is None and first is not None and now - SCHEDULED_SLACK <= first <= now + late


def _unanswered(received: Iterable[Received], limits: Thresholds, now: datetime) -> Iterator[Problem]:
    """Customers who wait for an answer. An accept that is still on its way is one."""
    for order in received:
        match order.accept:
            case ActionState.EXPIRED | ActionState.FAILED:
                since = order.accept_ended_utc
                yield Problem(Code.ACCEPT_FAILED, order.payment_key, since, Severity.SEVERE)
            case ActionState.PENDING | ActionState.SENDING:
                pass
            case _:
                if _is_overdue(order, limits, now):
                    yield Problem(Code.UNANSWERED, order.payment_key, order.received_utc, Severity.SEVERE)


def _is_overdue(order: Received, limits: Thresholds, now: datetime) -> bool:
    told_already = not order.taken_over and limits.not_taken_over is not None
    if limits.unanswered is None or told_already or not order.is_due:
        return False
    return order.received_utc < now - limits.unanswered
