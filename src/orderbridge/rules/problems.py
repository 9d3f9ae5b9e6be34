"""The problems: their codes with everything that is true of each, and what follows from those that are open.

The sentences for people are in sentences/health.toml. A new code is one row of Code and its sentences. Open problems make
the status of each account, green, yellow or red, and whether the daemon is ready. A daemon whose marketplace is down is
alive and not ready: no restart would help it (observe.liveness).

`OpenProblems` decides which changes of a problem are reported: its beginning, that it gets worse, and its end.
- `announced` is what the log reported last, `seen` is what is so. A difference is reported at the next check, unless
  the problem flaps.
- Of a problem that comes and goes at most FLAP_LIMIT messages leave in ten minutes. What is held back is reported when
  its time has come, if it is still so. A problem that is worse than all that was reported in these ten minutes never waits.
- A problem behind another one neither begins nor gets worse, and if it was open it stays open.
- Times are of the monotonic clock: the wall clock may be set.
- The alarm command hears of the same changes; what it has not heard yet is the difference between what is open here and
  what it has heard (`unheard`).
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta
from enum import Enum, StrEnum, auto
from operator import attrgetter
from typing import Self

SOON = timedelta(days=14)  # before a certificate's end
PAGE_SUBJECT = "web"  # as the configuration calls it

FLAP_WINDOW_S = 600.0
FLAP_LIMIT = 2  # beginnings and ends of one problem within that time
ALIKE_LIMIT = 5  # up to so many of one kind at one check are reported one by one; of more, so many are named

Key = tuple["Code", str]
Rank = tuple[bool, int]
NOT_OPEN: Rank = (False, 0)
_RANK = attrgetter("rank")


class Severity(StrEnum):
    """SEVERE: orders are lost, late or cooked in vain while it lasts."""

    WARNING = "warning"
    SEVERE = "severe"


class Cause(Enum):
    """What others may follow from (rules.health)."""

    CUT_OFF = auto()  # its account from the service: its rows wait, and what they would have answered is overdue
    NO_LIST = auto()  # the line is there, and the service gives it no list of orders
    NO_DATABASE = auto()  # the daemon cannot write: no poll is made, no row is sent, and no till writes either
    PAGE = auto()  # no tablet can open the board, where it is severe: then it cannot be heard


class Link(StrEnum):
    """Where the chain from the tablet to the orders is broken."""

    DATABASE = "database"
    DAEMON = "daemon"
    LOGIN = "login"
    INTERNET = "internet"
    MARKETPLACE = "marketplace"
    POS = "pos"


@dataclass(frozen=True, slots=True)
class Kind:
    """What is true of a code.

    `severity`: the worst, of a code that may be more or less bad. A WARNING needs a person, and nothing is getting
    worse meanwhile.
    """

    severity: Severity
    link: Link | None = None  # None: it breaks none
    _: KW_ONLY
    cause: Cause | None = None  # what it is to others
    behind: frozenset[Cause] = frozenset()  # what it follows from
    of_the_daemon: bool = False  # the daemon at work alone can know it, and others read of it
    by_time_alone: bool = False  # a daemon that has just started cannot know it


_SEVERE, _WARNING = Severity.SEVERE, Severity.WARNING
_NO_DATABASE = frozenset({Cause.NO_DATABASE})
_CUT_OFF = _NO_DATABASE | {Cause.CUT_OFF}


class Code(StrEnum):
    """What can be wrong, and everything that is true of it. Codes are stable."""

    kind: Kind

    def __new__(cls, code: str, *kind: Kind) -> Self:  # a star: mypy reads Code("login_refused") as a call of this
        one = str.__new__(cls, code)
        one._value_, (one.kind,) = code, kind
        return one

    LOGIN_REFUSED = "login_refused", Kind(_SEVERE, Link.LOGIN, cause=Cause.CUT_OFF)
    LINE_DNS = "line_dns", Kind(_SEVERE, Link.INTERNET, cause=Cause.CUT_OFF)
    LINE_TLS = "line_tls", Kind(_SEVERE, Link.INTERNET, cause=Cause.CUT_OFF)
    LINE_REFUSED = "line_refused", Kind(_SEVERE, Link.INTERNET, cause=Cause.CUT_OFF)
    LINE_TIMEOUT = "line_timeout", Kind(_SEVERE, Link.INTERNET, cause=Cause.CUT_OFF)
    LINE_PROXY = "line_proxy", Kind(_SEVERE, Link.INTERNET, cause=Cause.CUT_OFF)
    UNREACHABLE = "unreachable", Kind(_SEVERE, Link.INTERNET, cause=Cause.CUT_OFF)  # a dead line of any other kind
    POLL_FAILING = "poll_failing", Kind(_SEVERE, Link.MARKETPLACE, cause=Cause.NO_LIST, behind=_NO_DATABASE)
    LIST_FULL = "list_full", Kind(_SEVERE, Link.MARKETPLACE, behind=_NO_DATABASE, of_the_daemon=True)
    COOLDOWN_TAKEN = "cooldown_taken", Kind(_SEVERE, Link.MARKETPLACE, cause=Cause.NO_LIST)
    NO_GOOD_POLL = (
        "no_good_poll",
        Kind(_SEVERE, Link.DAEMON, cause=Cause.NO_LIST, behind=_NO_DATABASE, by_time_alone=True),
    )
    NOT_POLLING = (
        "not_polling",
        Kind(_SEVERE, Link.DAEMON, cause=Cause.CUT_OFF, behind=_NO_DATABASE, by_time_alone=True),
    )
    COOLDOWN_SHARED = "cooldown_shared", Kind(_WARNING, of_the_daemon=True)
    CREDENTIALS_SHARED = "credentials_shared", Kind(_WARNING, of_the_daemon=True)
    NO_RESTAURANT = "no_restaurant", Kind(_WARNING, of_the_daemon=True)
    CLOCK_WRONG = "clock_wrong", Kind(_WARNING, of_the_daemon=True)
    TIMEZONE_WRONG = "timezone_wrong", Kind(_WARNING, of_the_daemon=True)
    NOT_DURABLE = "not_durable", Kind(_SEVERE, Link.DATABASE)
    DATABASE_FAILING = "database_failing", Kind(_SEVERE, Link.DATABASE, cause=Cause.NO_DATABASE, of_the_daemon=True)
    DATABASE_FULL = "database_full", Kind(_SEVERE, Link.DATABASE, cause=Cause.NO_DATABASE, of_the_daemon=True)
    DATABASE_READ_ONLY = "database_read_only", Kind(_SEVERE, Link.DATABASE, cause=Cause.NO_DATABASE, of_the_daemon=True)
    DATABASE_BUSY = "database_busy", Kind(_SEVERE, Link.DATABASE, cause=Cause.NO_DATABASE, of_the_daemon=True)
    DATABASE_SLOW = "database_slow", Kind(_WARNING, behind=_NO_DATABASE, of_the_daemon=True)
    DATABASE_LOST = "database_lost", Kind(_SEVERE, Link.DATABASE, cause=Cause.NO_DATABASE, of_the_daemon=True)
    DATABASE_RESTORED = "database_restored", Kind(_SEVERE, Link.DATABASE, of_the_daemon=True)
    VIEW_BROKEN = "view_broken", Kind(_SEVERE, Link.DATABASE, behind=_NO_DATABASE, of_the_daemon=True)
    WAL_LARGE = "wal_large", Kind(_WARNING, of_the_daemon=True)
    JOURNAL_NOT_WRITTEN = "journal_not_written", Kind(_WARNING, behind=_NO_DATABASE, of_the_daemon=True)
    ALARM_FAILING = "alarm_failing", Kind(_WARNING, of_the_daemon=True)
    LAST_WORD_NOT_WRITTEN = "last_word_not_written", Kind(_WARNING, behind=_NO_DATABASE, of_the_daemon=True)
    ACCOUNT_UNREADABLE = "account_unreadable", Kind(_SEVERE, Link.LOGIN, of_the_daemon=True)
    WRITES_FENCED = "writes_fenced", Kind(_WARNING, of_the_daemon=True)
    LOG_NOT_READ = "log_not_read", Kind(_WARNING, of_the_daemon=True)
    HEALTHCHECK_TAKEN = "healthcheck_taken", Kind(_WARNING, of_the_daemon=True)
    NOT_TAKEN_OVER = "not_taken_over", Kind(_SEVERE, Link.POS, behind=_NO_DATABASE)
    UNANSWERED = "unanswered", Kind(_SEVERE, behind=_CUT_OFF)
    ACCEPT_FAILED = "accept_failed", Kind(_SEVERE, behind=_CUT_OFF)
    CANCELLATION_UNSEEN = "cancellation_unseen", Kind(_SEVERE, Link.POS, behind=_NO_DATABASE)
    NOT_ACKNOWLEDGED = "not_acknowledged", Kind(_SEVERE, behind=_CUT_OFF | {Cause.NO_LIST})
    NOT_STORED = "not_stored", Kind(_SEVERE, Link.DATABASE, behind=_NO_DATABASE)
    NOT_WRITTEN = "not_written", Kind(_SEVERE, Link.DATABASE, behind=_NO_DATABASE)
    NOT_STARTED = "not_started", Kind(_SEVERE, Link.POS, behind=_NO_DATABASE)
    CONTENTS_OUTDATED = "contents_outdated", Kind(_SEVERE, Link.DATABASE)
    OUTCOME_UNKNOWN = "outcome_unknown", Kind(_WARNING)
    UNDECIDED = "undecided", Kind(_SEVERE, behind=_CUT_OFF | {Cause.NO_LIST})
    QUARANTINED = "quarantined", Kind(_SEVERE, Link.DATABASE)
    RESTAURANT_CLOSED = "restaurant_closed", Kind(_WARNING, behind=_CUT_OFF)
    BOARD_UNHEARD = "board_unheard", Kind(_WARNING, behind=frozenset({Cause.PAGE}), of_the_daemon=True)
    PAGE_NOT_SERVED = "page_not_served", Kind(_SEVERE, cause=Cause.PAGE, of_the_daemon=True)
    CERTIFICATE_REFUSED = "certificate_refused", Kind(_SEVERE, cause=Cause.PAGE, of_the_daemon=True)
    CERTIFICATE_ENDS = "certificate_ends", Kind(_SEVERE, cause=Cause.PAGE, of_the_daemon=True)


BY_TIME_ALONE = frozenset(code for code in Code if code.kind.by_time_alone)
OF_THE_DAEMON = frozenset(code for code in Code if code.kind.of_the_daemon)
NO_DATABASE = frozenset(code for code in Code if code.kind.cause is Cause.NO_DATABASE)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong now.

    `subject`: an account, an order's payment_key, an outbox row's id; empty where it concerns all. `since` is None
    where it cannot be known. `detail`: the error's own words, where there are any; an answer's may hold a customer's name,
    so `status` shows it, and neither the log nor a message does. `level` grows while it gets worse. `account`: whose
    it is. `facts` stand in the sentences; they are our own words and numbers. `behind`: the cause that this one follows
    from: it is no problem of its own as long as that one is open.
    """

    code: Code
    subject: str
    since: datetime | None
    severity: Severity
    count: int = 1
    detail: str | None = None
    level: int = 1
    account: str | None = None
    facts: dict[str, str] = field(default_factory=dict, compare=False)
    behind: Code | None = None

    @property
    def key(self) -> tuple[Code, str]:
        """What makes it this problem and no other."""
        return self.code, self.subject

    @property
    def rank(self) -> tuple[bool, int]:
        """How bad it is: one that grows escalates."""
        return self.severity == Severity.SEVERE, self.level


class Lamp(StrEnum):
    """GREEN: orders arrive. YELLOW: a person is needed. RED: orders are lost, late or cooked in vain."""

    GREEN = "green"
    YELLOW = "yellow"
    RED = "red"


@dataclass(frozen=True, slots=True)
class AccountStatus:
    """`problem`: why; None of a green account, and of one that has not been polled yet."""

    lamp: Lamp
    problem: Problem | None = None


WELL, STARTING = AccountStatus(Lamp.GREEN), AccountStatus(Lamp.YELLOW)


def account_statuses(accounts: Iterable[str], found: Iterable[Problem]) -> dict[str, AccountStatus]:
    """By account. A problem without an account applies to all of them.

    `found`: with what is behind another problem. An account of a daemon that has just started is behind itself.
    """
    worst: dict[str | None, Problem] = {}
    starting: set[str | None] = set()
    for one in found:
        if one.behind is None:
            before = worst.get(one.account)
            worst[one.account] = one if before is None else max(before, one, key=_RANK)
        elif one.behind == one.code and one.code in BY_TIME_ALONE:
            starting.add(one.account)
    statuses = {}
    for account in accounts:
        own = max(filter(None, (worst.get(account), worst.get(None))), key=_RANK, default=None)
        unpolled = STARTING if account in starting else WELL
        statuses[account] = unpolled if own is None else AccountStatus(lamp_of(own), own)
    return statuses


def lamp_of(one: Problem) -> Lamp:
    """The colour of one problem."""
    return Lamp.RED if one.severity == Severity.SEVERE else Lamp.YELLOW


@dataclass(frozen=True, slots=True)
class Readiness:
    """`is_working`: False while it starts, or while another process works on the database."""

    is_working: bool = False
    database_answers: bool = False
    is_polled: bool = False
    problems: tuple[Problem, ...] = ()

    @property
    def is_ready(self) -> bool:
        """The one word."""
        return self.is_working and self.database_answers and self.is_polled

    @property
    def severe(self) -> dict[str, int]:
        """The codes of severe problems, and how many of each there are."""
        found: dict[str, int] = {}
        for one in self.problems:
            if one.severity == Severity.SEVERE:
                found[one.code] = found.get(one.code, 0) + one.count
        return found


@dataclass(frozen=True, slots=True)
class Page:
    """How it stands. `failed`: why the newest configuration is not what is served, since when, and in the error's words."""

    is_served: bool = False
    has_board: bool = False
    ends: datetime | None = None  # the certificate that is in use
    failed: Code | None = None
    since: datetime | None = None
    error: str = ""
    reason: str = ""  # why, where it lies with the machine: a key of the sentences of `line`


def page_problems(page: Page, now: datetime) -> Iterator[Problem]:
    """What is wrong with the page at `[web] listen`.

    Where the board is on it, it is severe when no tablet can open it: then orders are not heard. Who reads figures there
    notices by himself; of an address that is taken only the board reports. A certificate is reported before its end.
    """
    if page.failed is not None and (page.has_board or page.failed != Code.PAGE_NOT_SERVED):
        severity = _page_severity(page, is_shut=not page.is_served)
        facts = {"error": page.error} | ({"reason": page.reason} if page.reason else {})
        yield Problem(page.failed, PAGE_SUBJECT, page.since, severity, facts=facts)
    if page.is_served and page.ends is not None and page.ends - now < SOON:
        is_over = page.ends <= now
        since, facts = page.ends if is_over else page.ends - SOON, {"end": f"{page.ends:%Y-%m-%d}"}
        yield Problem(Code.CERTIFICATE_ENDS, PAGE_SUBJECT, since, _page_severity(page, is_shut=is_over), facts=facts)


def _page_severity(page: Page, *, is_shut: bool) -> Severity:
    return Severity.SEVERE if page.has_board and is_shut else Severity.WARNING


# ---- which changes are reported -----------------------------------------------------------------------------------------


class EventKind(StrEnum):
    """What has happened to a problem."""

    BEGAN = "began"
    ESCALATED = "escalated"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Event:
    """One message. `seconds`: at its end, for how long the problem was open. `flapped`: so often it came and went unreported."""

    kind: EventKind
    problem: Problem
    seconds: float = 0.0
    flapped: int = 0
    began: float = 0.0


@dataclass(slots=True)
class History:
    """What was reported of one problem."""

    problem: Problem
    began: float
    announced: Rank = NOT_OPEN
    seen: bool = False  # open at the last check
    returns: int = 0  # unreported ones
    flapped: int = 0  # `returns` at its last beginning
    messages: list[tuple[float, Rank]] = field(default_factory=list)  # beginnings and ends of the last ten minutes


@dataclass(slots=True)
class Heard:
    """What the alarm command has heard of one problem. `rank`: how bad it was then; NOT_OPEN: the command failed."""

    problem: Problem
    rank: Rank
    began: float


class OpenProblems:
    """What was reported of the problems, in the log and by the alarm command."""

    def __init__(self) -> None:
        self._histories: dict[Key, History] = {}
        self._heard: dict[Key, Heard] = {}

    def check(self, found: Iterable[Problem], monotonic: float) -> list[Event]:
        """What the log is to report now. `found`: all, also what is behind another problem."""
        seen = {one.key: one for one in found}
        began = [self._of_open(one, monotonic) for one in seen.values() if one.behind is None]
        over = [self._of_gone(key, monotonic) for key in [*self._histories] if key not in seen]
        return [event for event in (*began, *over) if event is not None]

    def open(self) -> dict[Key, Problem]:
        """What the log has reported and is not over."""
        return {key: one.problem for key, one in self._histories.items() if one.announced != NOT_OPEN}

    def remember(self, reported: Iterable[Problem], monotonic: float) -> None:
        """What the alarm command has heard from the daemon before this one."""
        self._heard |= {one.key: Heard(one, one.rank, monotonic) for one in reported}

    def heard(self) -> dict[Key, Rank]:
        """How bad each problem was when the command last heard of it; without those whose end it has heard."""
        return {key: one.rank for key, one in self._heard.items() if one.rank != NOT_OPEN}

    def unheard(self, kept: Collection[Key], now: float, *, severe_only: bool = False) -> list[Event]:
        """What the command does not know yet, one event for each problem. `kept`: behind another one, so it does not end."""
        events, opened = [], set()
        for key, one in self._histories.items():
            if one.announced == NOT_OPEN or (severe_only and one.problem.severity != Severity.SEVERE):
                continue
            opened.add(key)
            before = NOT_OPEN
            if key in self._heard:
                self._heard[key].problem, before = one.problem, self._heard[key].rank
            if one.problem.rank > before:
                kind, flapped = (EventKind.BEGAN, one.flapped) if before == NOT_OPEN else (EventKind.ESCALATED, 0)
                events.append(Event(kind, one.problem, flapped=flapped, began=one.began))
        over = (one for key, one in self._heard.items() if key not in opened and key not in kept)
        return [*events, *(Event(EventKind.ENDED, one.problem, seconds=now - one.began) for one in over)]

    def sent(self, events: Iterable[Event], *, failed: bool = False) -> None:
        """The command was run with these. If it failed it may have worked all the same: then it hears of the end, too."""
        for one in events:
            key, problem = one.problem.key, one.problem
            if failed:
                self._heard.setdefault(key, Heard(problem, NOT_OPEN, one.began))
            elif one.kind == EventKind.ENDED:
                self._heard.pop(key, None)
            else:
                self._heard[key] = Heard(problem, problem.rank, one.began)

    def _of_open(self, problem: Problem, now: float) -> Event | None:
        one = self._histories.setdefault(problem.key, History(problem, now))
        one.returns += one.announced == NOT_OPEN and not one.seen and bool(one.messages)
        one.problem, one.seen = problem, True
        rank = problem.rank
        _forget_old(one, now)
        if one.announced != NOT_OPEN:
            if rank <= one.announced:
                return None
            one.announced = rank
            return Event(EventKind.ESCALATED, problem)
        if len(one.messages) >= FLAP_LIMIT and rank <= max(announced for _, announced in one.messages):
            return None
        one.began, one.announced = now, rank
        one.messages.append((now, rank))
        one.flapped, one.returns = max(one.returns - 1, 0), 0
        return Event(EventKind.BEGAN, problem, flapped=one.flapped)

    def _of_gone(self, key: Key, now: float) -> Event | None:
        one = self._histories[key]
        one.seen = False
        _forget_old(one, now)
        if one.announced == NOT_OPEN:
            if not one.messages:  # calm for ten minutes
                del self._histories[key]
            return None
        if len(one.messages) >= FLAP_LIMIT:
            return None
        one.messages.append((now, one.announced))
        one.announced = NOT_OPEN
        return Event(EventKind.ENDED, one.problem, seconds=now - one.began)


def _forget_old(one: History, now: float) -> None:
    one.messages = [message for message in one.messages if message[0] > now - FLAP_WINDOW_S]


def alike(events: Iterable[Event], most: int = ALIKE_LIMIT) -> list[list[Event]]:
    """One list for each message: what many have in common is reported in one."""
    kinds: dict[tuple[EventKind, Code, bool], list[Event]] = {}
    for one in events:
        kinds.setdefault((one.kind, one.problem.code, one.problem.rank[0]), []).append(one)
    messages = []
    for some in kinds.values():
        messages += [some] if len(some) > most else [[one] for one in some]
    return messages
