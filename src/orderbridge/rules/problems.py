"""The words for what is wrong: its code, everything that is true of a code (KINDS), and one problem.

Codes are stable; the sentences for people are in sentences/. A new code is a word in Code and a row in KINDS: the program
does not start while a word has no row.
"""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime
from enum import Enum, StrEnum, auto


class Severity(StrEnum):
    """SEVERE: orders are lost, late or cooked in vain while it lasts."""

    WARNING = "warning"
    SEVERE = "severe"


class Code(StrEnum):
    """What can be wrong."""

    LOGIN_REFUSED = "login_refused"
    LINE_DNS = "line_dns"
    LINE_TLS = "line_tls"
    LINE_REFUSED = "line_refused"
    LINE_TIMEOUT = "line_timeout"
    LINE_PROXY = "line_proxy"
    UNREACHABLE = "unreachable"  # a dead line of any other kind
    POLL_FAILING = "poll_failing"
    LIST_FULL = "list_full"
    COOLDOWN_TAKEN = "cooldown_taken"
    NO_GOOD_POLL = "no_good_poll"
    NOT_POLLING = "not_polling"
    COOLDOWN_SHARED = "cooldown_shared"
    CREDENTIALS_SHARED = "credentials_shared"
    NO_RESTAURANT = "no_restaurant"
    CLOCK_WRONG = "clock_wrong"
    TIMEZONE_WRONG = "timezone_wrong"
    NOT_DURABLE = "not_durable"
    DATABASE_FAILING = "database_failing"
    DATABASE_FULL = "database_full"
    DATABASE_READ_ONLY = "database_read_only"
    DATABASE_BUSY = "database_busy"
    DATABASE_SLOW = "database_slow"
    DATABASE_LOST = "database_lost"
    DATABASE_RESTORED = "database_restored"
    VIEW_BROKEN = "view_broken"
    WAL_LARGE = "wal_large"
    JOURNAL_NOT_WRITTEN = "journal_not_written"
    ALARM_FAILING = "alarm_failing"
    LAST_WORD_NOT_WRITTEN = "last_word_not_written"
    ACCOUNT_UNREADABLE = "account_unreadable"
    WRITES_FENCED = "writes_fenced"
    LOG_NOT_READ = "log_not_read"
    HEALTHCHECK_TAKEN = "healthcheck_taken"
    NOT_TAKEN_OVER = "not_taken_over"
    UNANSWERED = "unanswered"
    ACCEPT_FAILED = "accept_failed"
    CANCELLATION_UNSEEN = "cancellation_unseen"
    NOT_ACKNOWLEDGED = "not_acknowledged"
    NOT_STORED = "not_stored"
    NOT_WRITTEN = "not_written"
    NOT_STARTED = "not_started"
    CONTENTS_OUTDATED = "contents_outdated"
    OUTCOME_UNKNOWN = "outcome_unknown"
    UNDECIDED = "undecided"
    QUARANTINED = "quarantined"
    RESTAURANT_CLOSED = "restaurant_closed"
    BOARD_UNHEARD = "board_unheard"
    PAGE_NOT_SERVED = "page_not_served"
    CERTIFICATE_REFUSED = "certificate_refused"
    CERTIFICATE_ENDS = "certificate_ends"


class Cause(Enum):
    """What others may follow from (rules.causes)."""

    CUT_OFF = auto()  # its account from the service: its rows wait, and what they would have answered is overdue
    NO_LIST = auto()  # the line is there, and the service gives it no list of orders
    NO_DATABASE = auto()  # the daemon cannot write: no poll is made, no row is sent, and no till writes either
    PAGE = auto()  # no tablet can open the board, where it is severe: then nobody can hear it


class Link(StrEnum):
    """Where the chain from the tablet to the orders is broken."""

    DATABASE = "database"
    DAEMON = "daemon"
    LOGIN = "login"
    INTERNET = "internet"
    MARKETPLACE = "marketplace"
    POS = "pos"


@dataclass(frozen=True, slots=True)
class ProblemKind:
    """One row of the table.

    `severity`: the worst, of a code that may be more or less bad. Of a WARNING a person has to look, and nothing is getting
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

# Everything that is true of a code, in one place.
KINDS: Mapping[Code, ProblemKind] = {
    Code.LOGIN_REFUSED: ProblemKind(_SEVERE, Link.LOGIN, cause=Cause.CUT_OFF),
    Code.LINE_DNS: ProblemKind(_SEVERE, Link.INTERNET, cause=Cause.CUT_OFF),
    Code.LINE_TLS: ProblemKind(_SEVERE, Link.INTERNET, cause=Cause.CUT_OFF),
    Code.LINE_REFUSED: ProblemKind(_SEVERE, Link.INTERNET, cause=Cause.CUT_OFF),
    Code.LINE_TIMEOUT: ProblemKind(_SEVERE, Link.INTERNET, cause=Cause.CUT_OFF),
    Code.LINE_PROXY: ProblemKind(_SEVERE, Link.INTERNET, cause=Cause.CUT_OFF),
    Code.UNREACHABLE: ProblemKind(_SEVERE, Link.INTERNET, cause=Cause.CUT_OFF),
    Code.POLL_FAILING: ProblemKind(_SEVERE, Link.MARKETPLACE, cause=Cause.NO_LIST, behind=_NO_DATABASE),
    Code.LIST_FULL: ProblemKind(_SEVERE, Link.MARKETPLACE, behind=_NO_DATABASE, of_the_daemon=True),
    Code.COOLDOWN_TAKEN: ProblemKind(_SEVERE, Link.MARKETPLACE, cause=Cause.NO_LIST),
    Code.NO_GOOD_POLL: ProblemKind(_SEVERE, Link.DAEMON, cause=Cause.NO_LIST, behind=_NO_DATABASE, by_time_alone=True),
    Code.NOT_POLLING: ProblemKind(_SEVERE, Link.DAEMON, cause=Cause.CUT_OFF, behind=_NO_DATABASE, by_time_alone=True),
    Code.COOLDOWN_SHARED: ProblemKind(_WARNING, of_the_daemon=True),
    Code.CREDENTIALS_SHARED: ProblemKind(_WARNING, of_the_daemon=True),
    Code.NO_RESTAURANT: ProblemKind(_WARNING, of_the_daemon=True),
    Code.CLOCK_WRONG: ProblemKind(_WARNING, of_the_daemon=True),
    Code.TIMEZONE_WRONG: ProblemKind(_WARNING, of_the_daemon=True),
    Code.NOT_DURABLE: ProblemKind(_SEVERE, Link.DATABASE),
    Code.DATABASE_FAILING: ProblemKind(_SEVERE, Link.DATABASE, cause=Cause.NO_DATABASE, of_the_daemon=True),
    Code.DATABASE_FULL: ProblemKind(_SEVERE, Link.DATABASE, cause=Cause.NO_DATABASE, of_the_daemon=True),
    Code.DATABASE_READ_ONLY: ProblemKind(_SEVERE, Link.DATABASE, cause=Cause.NO_DATABASE, of_the_daemon=True),
    Code.DATABASE_BUSY: ProblemKind(_SEVERE, Link.DATABASE, cause=Cause.NO_DATABASE, of_the_daemon=True),
    Code.DATABASE_SLOW: ProblemKind(_WARNING, behind=_NO_DATABASE, of_the_daemon=True),
    Code.DATABASE_LOST: ProblemKind(_SEVERE, Link.DATABASE, cause=Cause.NO_DATABASE, of_the_daemon=True),
    Code.DATABASE_RESTORED: ProblemKind(_SEVERE, Link.DATABASE, of_the_daemon=True),
    Code.VIEW_BROKEN: ProblemKind(_SEVERE, Link.DATABASE, behind=_NO_DATABASE, of_the_daemon=True),
    Code.WAL_LARGE: ProblemKind(_WARNING, of_the_daemon=True),
    Code.JOURNAL_NOT_WRITTEN: ProblemKind(_WARNING, behind=_NO_DATABASE, of_the_daemon=True),
    Code.ALARM_FAILING: ProblemKind(_WARNING, of_the_daemon=True),
    Code.LAST_WORD_NOT_WRITTEN: ProblemKind(_WARNING, behind=_NO_DATABASE, of_the_daemon=True),
    Code.ACCOUNT_UNREADABLE: ProblemKind(_SEVERE, Link.LOGIN, of_the_daemon=True),
    Code.WRITES_FENCED: ProblemKind(_WARNING, of_the_daemon=True),
    Code.LOG_NOT_READ: ProblemKind(_WARNING, of_the_daemon=True),
    Code.HEALTHCHECK_TAKEN: ProblemKind(_WARNING, of_the_daemon=True),
    Code.NOT_TAKEN_OVER: ProblemKind(_SEVERE, Link.POS, behind=_NO_DATABASE),
    Code.UNANSWERED: ProblemKind(_SEVERE, behind=_CUT_OFF),
    Code.ACCEPT_FAILED: ProblemKind(_SEVERE, behind=_CUT_OFF),
    Code.CANCELLATION_UNSEEN: ProblemKind(_SEVERE, Link.POS, behind=_NO_DATABASE),
    Code.NOT_ACKNOWLEDGED: ProblemKind(_SEVERE, behind=_CUT_OFF | {Cause.NO_LIST}),
    Code.NOT_STORED: ProblemKind(_SEVERE, Link.DATABASE, behind=_NO_DATABASE),
    Code.NOT_WRITTEN: ProblemKind(_SEVERE, Link.DATABASE, behind=_NO_DATABASE),
    Code.NOT_STARTED: ProblemKind(_SEVERE, Link.POS, behind=_NO_DATABASE),
    Code.CONTENTS_OUTDATED: ProblemKind(_SEVERE, Link.DATABASE),
    Code.OUTCOME_UNKNOWN: ProblemKind(_WARNING),
    Code.UNDECIDED: ProblemKind(_SEVERE, behind=_CUT_OFF | {Cause.NO_LIST}),
    Code.QUARANTINED: ProblemKind(_SEVERE, Link.DATABASE),
    Code.RESTAURANT_CLOSED: ProblemKind(_WARNING, behind=_CUT_OFF),
    Code.BOARD_UNHEARD: ProblemKind(_WARNING, behind=frozenset({Cause.PAGE}), of_the_daemon=True),
    Code.PAGE_NOT_SERVED: ProblemKind(_SEVERE, cause=Cause.PAGE, of_the_daemon=True),
    Code.CERTIFICATE_REFUSED: ProblemKind(_SEVERE, cause=Cause.PAGE, of_the_daemon=True),
    Code.CERTIFICATE_ENDS: ProblemKind(_SEVERE, cause=Cause.PAGE, of_the_daemon=True),
}
if missing := set(Code) - set(KINDS):
    raise TypeError(f"{', '.join(sorted(missing))}: no row in rules.problems, so nobody would know how bad it is")

BY_TIME_ALONE = frozenset(code for code, kind in KINDS.items() if kind.by_time_alone)
OF_THE_DAEMON = frozenset(code for code, kind in KINDS.items() if kind.of_the_daemon)
NO_DATABASE = frozenset(code for code, kind in KINDS.items() if kind.cause is Cause.NO_DATABASE)


def severity_of(code: Code) -> Severity:
    """Of a code that is always as bad."""
    return KINDS[code].severity


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong now.

    `subject`: an account, an order's payment_key, an outbox row's id; empty where it concerns all. `since` is None
    where nobody can know. `detail`: the error's own words, where there are any; an answer's may hold a customer's name,
    so it is for who looks, and neither for the log nor for messages. `level` grows while it gets worse. `account`: whose
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
