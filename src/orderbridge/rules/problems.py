"""The words for what is wrong: its code, how bad it is, and one problem.

Codes are stable; the sentences for people are in sentences/.
"""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


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
    COOLDOWN_TAKEN = "cooldown_taken"
    NO_GOOD_POLL = "no_good_poll"
    NOT_POLLING = "not_polling"
    COOLDOWN_SHARED = "cooldown_shared"
    CREDENTIALS_SHARED = "credentials_shared"
    CLOCK_WRONG = "clock_wrong"
    NOT_DURABLE = "not_durable"
    DATABASE_FAILING = "database_failing"
    DATABASE_FULL = "database_full"
    DATABASE_READ_ONLY = "database_read_only"
    DATABASE_BUSY = "database_busy"
    DATABASE_SLOW = "database_slow"
    DATABASE_LOST = "database_lost"
    DATABASE_RESTORED = "database_restored"
    JOURNAL_NOT_WRITTEN = "journal_not_written"
    ACCOUNT_UNREADABLE = "account_unreadable"
    WRITES_FENCED = "writes_fenced"
    NOT_TAKEN_OVER = "not_taken_over"
    UNANSWERED = "unanswered"
    ACCEPT_FAILED = "accept_failed"
    CANCELLATION_UNSEEN = "cancellation_unseen"
    NOT_ACKNOWLEDGED = "not_acknowledged"
    NOT_STORED = "not_stored"
    NOT_WRITTEN = "not_written"
    CONTENTS_OUTDATED = "contents_outdated"
    OUTCOME_UNKNOWN = "outcome_unknown"
    QUARANTINED = "quarantined"
    BOARD_UNHEARD = "board_unheard"
    PAGE_NOT_SERVED = "page_not_served"
    CERTIFICATE_REFUSED = "certificate_refused"
    CERTIFICATE_ENDS = "certificate_ends"


BY_TIME_ALONE = {Code.NO_GOOD_POLL, Code.NOT_POLLING}  # what a daemon that has just started cannot know
WARNINGS = {
    Code.OUTCOME_UNKNOWN,
    Code.QUARANTINED,
    Code.COOLDOWN_SHARED,
    Code.CREDENTIALS_SHARED,
    Code.CLOCK_WRONG,
    Code.DATABASE_SLOW,
    Code.JOURNAL_NOT_WRITTEN,
    Code.WRITES_FENCED,
    Code.BOARD_UNHEARD,
}  # a person has to look, and nothing is getting worse meanwhile

# What keeps an account from the service: its rows wait, and what they would have answered is overdue for that reason.
CUT_OFF = {
    Code.LOGIN_REFUSED,
    Code.LINE_DNS,
    Code.LINE_TLS,
    Code.LINE_REFUSED,
    Code.LINE_TIMEOUT,
    Code.LINE_PROXY,
    Code.UNREACHABLE,
    Code.NOT_POLLING,
}
# The line is there, and the service gives it no list of orders.
NO_LIST = {Code.POLL_FAILING, Code.COOLDOWN_TAKEN, Code.NO_GOOD_POLL}
# What keeps the daemon from writing: no poll is made, no row is sent, and no till writes either.
NO_DATABASE = {
    Code.DATABASE_LOST,
    Code.DATABASE_FULL,
    Code.DATABASE_READ_ONLY,
    Code.DATABASE_BUSY,
    Code.DATABASE_FAILING,
}
# What keeps tablets from the board, where it is severe: then nobody can hear it.
OF_THE_PAGE = {Code.PAGE_NOT_SERVED, Code.CERTIFICATE_REFUSED, Code.CERTIFICATE_ENDS}
# What only the daemon at work can know, and others read of it.
OF_THE_DAEMON = (
    NO_DATABASE
    | OF_THE_PAGE
    | {
        Code.DATABASE_SLOW,
        Code.DATABASE_RESTORED,
        Code.JOURNAL_NOT_WRITTEN,
        Code.ACCOUNT_UNREADABLE,
        Code.WRITES_FENCED,
        Code.CLOCK_WRONG,
        Code.CREDENTIALS_SHARED,
        Code.BOARD_UNHEARD,
    }
)


def severity_of(code: Code) -> Severity:
    """Of a code that is always as bad."""
    return Severity.WARNING if code in WARNINGS else Severity.SEVERE


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
