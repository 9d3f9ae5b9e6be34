"""Defines all problem codes with their properties, and decides which changes of problems are reported.

A new code needs one row in `Code` and its sentences in sentences/health.toml. The open problems also determine the
status of each account (green, yellow or red) and the readiness. While the marketplace is down, the daemon is alive but
not ready, because a restart would not help (observe.liveness).

`OpenProblems` reports the beginning, the worsening and the end of a problem:

- `announced` is what the log reported last; `seen` is the current state. A difference is reported at the next check.
- Only the end of a flapping problem waits, until the last FLAP_WINDOW_S seconds had fewer than FLAP_LIMIT messages
  about it. A beginning never waits, because the last message would say that the problem has ended.
- A problem that is suppressed by another one neither begins nor gets worse, and stays open if it was open.
- Times are monotonic, because the wall clock may be set.
- The alarm command gets the same changes. `unreported`: the open problems minus those reported to the command.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta
from enum import Enum, StrEnum, auto
from operator import attrgetter
from typing import Self

SOON = timedelta(days=14)  # before a certificate's end
PAGE_SUBJECT = "web"  # the table of the configuration

FLAP_WINDOW_S = 600.0
FLAP_LIMIT = 2  # beginnings and ends of one problem within that time; then its next end waits
ALIKE_LIMIT = 5  # up to this many similar problems are reported one by one; of more, this many are named

Key = tuple["Code", str]
Rank = tuple[bool, int]
NOT_OPEN: Rank = (False, 0)
_RANK = attrgetter("rank")


class Severity(StrEnum):
    """SEVERE: until it ends, orders are lost, late or cooked needlessly.

    WARNING: a person is needed, but it does not get worse.
    """

    WARNING = "warning"
    SEVERE = "severe"


class Cause(Enum):
    """Kinds of problems that cause others (rules.health)."""

    CUT_OFF = auto()  # the account cannot reach the marketplace: its rows wait, and its orders are not answered
    NO_LIST = auto()  # the marketplace is reachable, but returns no list of orders
    NO_DATABASE = auto()  # the database cannot be written: no polls, no sent rows, no writes of a till
    PAGE = auto()  # tablets cannot open the board


class Link(StrEnum):
    """The part between the tablet and the marketplace that is broken."""

    DATABASE = "database"
    DAEMON = "daemon"
    LOGIN = "login"
    INTERNET = "internet"
    MARKETPLACE = "marketplace"
    POS = "pos"


@dataclass(frozen=True, slots=True)
class Kind:
    """The properties of a code. `severity` is the worst if it varies."""

    severity: Severity
    link: Link | None = None  # None: no part is broken
    _: KW_ONLY
    cause: Cause | None = None  # which other problems it causes
    behind: frozenset[Cause] = frozenset()  # the causes that suppress it
    of_the_daemon: bool = False  # only the running daemon can detect it; other programs read it from the table
    by_time_alone: bool = False  # a daemon that has just started cannot detect it


_SEVERE, _WARNING = Severity.SEVERE, Severity.WARNING
_NO_DATABASE = frozenset({Cause.NO_DATABASE})
_CUT_OFF = _NO_DATABASE | {Cause.CUT_OFF}


class Code(StrEnum):
    """All problem codes. They are stable."""

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
    UNREACHABLE = "unreachable", Kind(_SEVERE, Link.INTERNET, cause=Cause.CUT_OFF)  # any other network error
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
    LEARNED_OTHERWISE = "learned_otherwise", Kind(_WARNING, of_the_daemon=True)
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
    AUTO_ACCEPT_PAUSED = "auto_accept_paused", Kind(_WARNING, behind=_CUT_OFF | {Cause.NO_LIST}, of_the_daemon=True)
    BOARD_UNHEARD = "board_unheard", Kind(_WARNING, behind=frozenset({Cause.PAGE}), of_the_daemon=True)
    PAGE_NOT_SERVED = "page_not_served", Kind(_SEVERE, cause=Cause.PAGE, of_the_daemon=True)
    CERTIFICATE_REFUSED = "certificate_refused", Kind(_SEVERE, cause=Cause.PAGE, of_the_daemon=True)
    CERTIFICATE_ENDS = "certificate_ends", Kind(_SEVERE, cause=Cause.PAGE, of_the_daemon=True)


BY_TIME_ALONE = frozenset(code for code in Code if code.kind.by_time_alone)
OF_THE_DAEMON = frozenset(code for code in Code if code.kind.of_the_daemon)
NO_DATABASE = frozenset(code for code in Code if code.kind.cause is Cause.NO_DATABASE)


@dataclass(frozen=True, slots=True)
class Problem:
    """An open problem.

    `subject`: an account, a payment_key or the id of an outbox row; empty if it concerns all. `since`: None if unknown.
    `detail`: the error's text. Since it may hold a customer's name, only `status` shows it, not the log or a message.
    `level` grows while the problem gets worse. `account`: the affected account. `facts` fill the sentences, and are our
    own words and numbers. `behind`: the problem that causes, and so suppresses, this one.
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
        """The identity of the problem."""
        return self.code, self.subject

    @property
    def rank(self) -> tuple[bool, int]:
        """How bad it is; a growing rank is an escalation."""
        return self.severity == Severity.SEVERE, self.level


class Lamp(StrEnum):
    """GREEN: orders arrive. YELLOW: a person is needed. RED: orders are lost, late or cooked needlessly."""

    GREEN = "green"
    YELLOW = "yellow"
    RED = "red"


@dataclass(frozen=True, slots=True)
class AccountStatus:
    """The status of an account. `problem`: the reason; None if green, or not polled yet."""

    lamp: Lamp
    problem: Problem | None = None


WELL, STARTING = AccountStatus(Lamp.GREEN), AccountStatus(Lamp.YELLOW)


def account_statuses(accounts: Iterable[str], found: Iterable[Problem]) -> dict[str, AccountStatus]:
    """The status of each account. A problem without an account applies to all accounts.

    `found` includes suppressed problems. A newly started account has a problem that suppresses itself.
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
    """The readiness. `is_working`: False during a start, and while another process works on the database."""

    is_working: bool = False
    database_answers: bool = False
    is_polled: bool = False
    problems: tuple[Problem, ...] = ()

    @property
    def is_ready(self) -> bool:
        """Whether /readyz answers with success."""
        return self.is_working and self.database_answers and self.is_polled

    @property
    def severe(self) -> dict[str, int]:
        """The codes of severe problems with their counts."""
        found: dict[str, int] = {}
        for one in self.problems:
            if one.severity == Severity.SEVERE:
                found[one.code] = found.get(one.code, 0) + one.count
        return found


@dataclass(frozen=True, slots=True)
class Page:
    """The state of the web page. `failed`, `since` and `error`: why the newest configuration is not served."""

    is_served: bool = False
    has_board: bool = False
    ends: datetime | None = None  # expiry of the certificate in use
    failed: Code | None = None
    since: datetime | None = None
    error: str = ""
    reason: str = ""  # if the machine is the cause: a key in sentences/line.toml


def page_problems(page: Page, now: datetime) -> Iterator[Problem]:
    """The problems of the page at `[web] listen`.

    With the board, a page that no tablet can open is severe, because new orders are not noticed. Without the board, an
    address in use is not reported. A certificate is reported before it expires.
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


# ---- which changes are reported --------------------------------------------------------------------------------------


class EventKind(StrEnum):
    """The kinds of changes."""

    BEGAN = "began"
    ESCALATED = "escalated"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Event:
    """One reported change.

    `seconds`: how long an ended problem was open. `flapped`: how often it came back meanwhile.
    """

    kind: EventKind
    problem: Problem
    seconds: float = 0.0
    flapped: int = 0
    began: float = 0.0


@dataclass(slots=True)
class History:
    """The reports about one problem in the log."""

    problem: Problem
    began: float
    announced: Rank = NOT_OPEN
    seen: bool = False  # open at the last check
    flapped: int = 0  # how often it came back since its reported beginning
    messages: list[float] = field(default_factory=list)  # times of its beginnings and ends, of the last ten minutes


@dataclass(slots=True)
class Reported:
    """The last report about one problem to the alarm command. `rank`: its rank then; NOT_OPEN: the command failed."""

    problem: Problem
    rank: Rank
    began: float


class OpenProblems:
    """The problems as they were reported to the log and to the alarm command."""

    def __init__(self) -> None:
        self._histories: dict[Key, History] = {}
        self._reported: dict[Key, Reported] = {}

    def check(self, found: Iterable[Problem], monotonic: float) -> list[Event]:
        """The events to log now. `found` includes suppressed problems."""
        seen = {one.key: one for one in found}
        began = [self._of_open(one, monotonic) for one in seen.values() if one.behind is None]
        over = [self._of_gone(key, monotonic) for key in [*self._histories] if key not in seen]
        return [event for event in (*began, *over) if event is not None]

    def open(self) -> dict[Key, Problem]:
        """The problems that are open in the log."""
        return {key: one.problem for key, one in self._histories.items() if one.announced != NOT_OPEN}

    def remember(self, reported: Iterable[Problem], monotonic: float) -> None:
        """Take the problems that the previous daemon reported to the alarm command."""
        self._reported |= {one.key: Reported(one, one.rank, monotonic) for one in reported}

    def reported(self) -> dict[Key, Rank]:
        """The last reported rank of each problem whose end was not reported to the command."""
        return {key: one.rank for key, one in self._reported.items() if one.rank != NOT_OPEN}

    def unreported(self, kept: Collection[Key], now: float, *, severe_only: bool = False) -> list[Event]:
        """The events not yet reported to the command, one for each problem. Suppressed problems (`kept`) do not end."""
        events, opened = [], set()
        for key, one in self._histories.items():
            if one.announced == NOT_OPEN or (severe_only and one.problem.severity != Severity.SEVERE):
                continue
            opened.add(key)
            before = NOT_OPEN
            if key in self._reported:
                self._reported[key].problem, before = one.problem, self._reported[key].rank
            if one.problem.rank > before:
                kind = EventKind.BEGAN if before == NOT_OPEN else EventKind.ESCALATED
                events.append(Event(kind, one.problem, began=one.began))
        over = (one for key, one in self._reported.items() if key not in opened and key not in kept)
        return [*events, *(Event(EventKind.ENDED, one.problem, seconds=now - one.began) for one in over)]

    def sent(self, events: Iterable[Event], *, failed: bool = False) -> None:
        """Note that the command was run. Even if it failed it may have had an effect, so the end is reported, too."""
        for one in events:
            key, problem = one.problem.key, one.problem
            if failed:
                self._reported.setdefault(key, Reported(problem, NOT_OPEN, one.began))
            elif one.kind == EventKind.ENDED:
                self._reported.pop(key, None)
            else:
                self._reported[key] = Reported(problem, problem.rank, one.began)

    def _of_open(self, problem: Problem, now: float) -> Event | None:
        one = self._histories.setdefault(problem.key, History(problem, now))
        one.flapped += one.announced != NOT_OPEN and not one.seen
        one.problem, one.seen = problem, True
        if problem.rank <= one.announced:
            return None
        was_open, one.announced = one.announced != NOT_OPEN, problem.rank
        if was_open:
            return Event(EventKind.ESCALATED, problem)
        one.began, one.flapped = now, 0
        one.messages.append(now)
        return Event(EventKind.BEGAN, problem)

    def _of_gone(self, key: Key, now: float) -> Event | None:
        one = self._histories[key]
        one.seen = False
        one.messages = [at for at in one.messages if at > now - FLAP_WINDOW_S]
        if one.announced == NOT_OPEN:
            if not one.messages:  # unchanged for ten minutes
                del self._histories[key]
            return None
        if len(one.messages) >= FLAP_LIMIT:
            return None
        one.messages.append(now)
        one.announced = NOT_OPEN
        return Event(EventKind.ENDED, one.problem, seconds=now - one.began, flapped=one.flapped)


def alike(events: Iterable[Event], most: int = ALIKE_LIMIT) -> list[list[Event]]:
    """Group events into messages. Similar events share one message if there are more than `most` of them."""
    kinds: dict[tuple[EventKind, Code, bool], list[Event]] = {}
    for one in events:
        kinds.setdefault((one.kind, one.problem.code, one.problem.rank[0]), []).append(one)
    messages = []
    for some in kinds.values():
        messages += [some] if len(some) > most else [[one] for one in some]
    return messages
