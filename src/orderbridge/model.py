"""The words of the field as values: orders and their problems, actions, outcomes. No behaviour, no I/O."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from orderbridge.document import Facts

RECEIVED = 1
CONFIRMED = 2
COMPLETE_WITH_PAYMENT = 5
CANCELED = 6
IN_DELIVERY = 16

# Codes of ways to pay: what is collected at the door, and what leaves nothing to collect.
CASH = "CASH"
PREPAID = frozenset({"CREDIT_CARD", "DEBIT_CARD"})
STATUS_DOUBTFUL = "status_doubtful"  # the service refused what its last shown status should allow
TOTAL_MISMATCH = "total_mismatch"  # the amounts do not add up
LATE = "late"  # it was ordered long before it came in, or its scheduled time was over
CONTENTS_OUTDATED = "contents_outdated"  # the database refuses newer contents than are stored


def codes_of(problem: str | None) -> list[str]:
    """The codes that an order's column `problem` lists."""
    return [code for code in (problem or "").split(",") if code]


def as_problem(codes: Iterable[str]) -> str | None:
    """Codes as that column lists them; None: nobody has to look."""
    return ",".join(codes) or None


class Outcome(StrEnum):
    """How one request ended, as far as the caller can know."""

    OK = "ok"
    REFUSED = "refused"
    UNAUTHORIZED = "unauthorized"
    RATE_LIMITED = "rate_limited"
    SERVICE_FAILED = "service_failed"
    UNKNOWN = "unknown"
    NOT_SENT = "not_sent"


class Action(StrEnum):
    """What a POS can ask for through the outbox."""

    ACCEPT = "accept"
    ON_THE_WAY = "on_the_way"
    COMPLETE = "complete"
    CANCEL = "cancel"
    OPEN_RESTAURANT = "open_restaurant"
    CLOSE_RESTAURANT = "close_restaurant"
    ACTIVATE_FOOD = "activate_food"
    DEACTIVATE_FOOD = "deactivate_food"


class ActionState(StrEnum):
    """The life of an outbox row. PENDING and SENDING are unfinished; the rest are final."""

    PENDING = "pending"
    SENDING = "sending"
    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"
    EXPIRED = "expired"
    SUPERSEDED = "superseded"
    WITHDRAWN = "withdrawn"


UNFINISHED = frozenset({ActionState.PENDING, ActionState.SENDING})
ANSWERED = UNFINISHED | {ActionState.DONE}  # of an accept or a cancel: its customer is no longer without an answer

REPLAYED = "replayed"  # the event of an order that was stored from the journal or from quarantine

# How a request_id begins that is ours; any other one is the POS's own.
AUTO_MARK = "auto:"  # an accept that the configuration wants
BOARD_MARK = "board:"  # what was tapped on the board
BOARD_REFERENCE = "board"  # pos_reference of what the board has taken over


class KnownBy(StrEnum):
    """How the verdict of an outbox row is known."""

    ANSWER = "answer"
    POLL = "poll"
    STATUS = "status"
    REFUSAL = "refusal"


class AccountState(StrEnum):
    """How an account's last poll ended."""

    NEW = "new"  # it had none yet
    OK = "ok"
    FAILING = "failing"  # what came back is no list of orders
    UNREACHABLE = "unreachable"  # the request never left
    LOGIN_REFUSED = "login_refused"


class CooldownScope(StrEnum):
    """Which accounts share one cooldown of the list of orders."""

    AUTO = "auto"  # as CREDENTIAL, until 429s show that this is wrong
    CREDENTIAL = "credential"
    APPLICATION = "application"  # those with one app_secret_key
    ADDRESS = "address"  # all that call from one address


class EndedBy(StrEnum):
    """Why an order is over."""

    COMPLETED = "completed"
    CANCELLED = "cancelled"
    SILENCE = "silence"


class LastChange(StrEnum):
    """What the newest revision of an order brought."""

    NEW = "new"
    STATUS = "status"
    CONTENTS = "contents"
    CANCELLED = "cancelled"
    ENDED = "ended"
    START = "start"  # the kitchen begins with a scheduled order


class Differs(StrEnum):
    """In what a delivered document differs from the stored one. PRINT: in items, notes or money; what a kitchen prints."""

    NOTHING = "nothing"
    DETAILS = "details"
    PRINT = "print"


@dataclass(frozen=True, slots=True)
class Restaurant:
    """A branch (docs/interface.md, Restaurant). `service_id` is its id as sent, where that is not in lower case."""

    id: str
    name: str
    service_id: str | None = None


@dataclass(frozen=True, slots=True)
class CancelReason:
    """A reason that PUT orders/cancel takes (docs/interface.md, Cancel reason)."""

    id: int
    reason: str


@dataclass(frozen=True, slots=True)
class Method:
    """A payment or shipping method (docs/interface.md, Payment and shipping methods)."""

    code: str
    name: str


@dataclass(frozen=True, slots=True)
class Variables:
    """The answer of GET orders/variables."""

    payment_methods: tuple[Method, ...]
    shipping_methods: tuple[Method, ...]


@dataclass(frozen=True, slots=True)
class Grant:
    """What POST auth/login answered, as sent. `expiration_date` may be unreadable or in a wrong time zone."""

    access_token: str = field(repr=False)
    expiration_date: str | None


@dataclass(frozen=True, slots=True)
class Token:
    """An access token with the validity that we trust (rules.tokens). Times are UTC."""

    access_token: str = field(repr=False)
    issued_utc: datetime
    expires_utc: datetime


def text_of(raw: bytes) -> str:
    """A document as text: UTF-8, what is none replaced."""
    return raw.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Document:
    """One element of the get-current list, cut out of the body as received and not yet validated.

    It stays bytes until it is needed: a list can be 32 MB, and as text or as values it is many times that.
    `reason` is None for a document that can be an order; else a code that says why it goes to quarantine.
    `status_id` is None when the document shows none that can be read.
    """

    raw: bytes = field(repr=False)
    digest: str
    payment_key: str | None
    status_id: int | None
    reason: str | None = None
    service_key: str | None = None  # the payment_key as sent, where that is not in lower case

    @property
    def payload(self) -> str:
        """The text: UTF-8, what is none replaced."""
        return text_of(self.raw)


@dataclass(frozen=True, slots=True)
class Order:
    """A delivered order, read from a document. `problems` are codes for what a person must check.

    `remarks`: the same for what is merely noted.
    """

    payment_key: str
    status_id: int | None
    status_text: str | None
    facts: Facts
    problems: tuple[str, ...]
    raw: bytes = field(repr=False)
    digest: str
    service_key: str | None = None  # as Document has it
    remarks: tuple[str, ...] = ()

    @property
    def payload(self) -> str:
        """The document's text."""
        return text_of(self.raw)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A delivered order as it is to be written: what it says, the word for its status, and its end if it has one."""

    order: Order
    status: str
    ended_by: EndedBy | None


@dataclass(frozen=True, slots=True)
class Stored:
    """What the database knows of an order, as far as a decision needs it."""

    payment_key: str
    account: str
    status_id: int | None
    service_status_id: int | None
    revision: int
    digest: str | None
    courier_type: str | None
    acknowledged_status_id: int | None
    ended_by: str | None
    problem: str | None


@dataclass(frozen=True, slots=True)
class Change:
    """What one delivery changes in a stored order. `last_change` is None when no till needs to read it again.

    `problem`: its column from now on.
    """

    status_counts: bool
    status_changed: bool
    differs: Differs
    reopened: bool
    ended_by: EndedBy | None
    last_change: LastChange | None
    problem: str | None


@dataclass(frozen=True, slots=True)
class NewStatus:
    """The status that a verdict gives an order, with its word. `last_change` is None when no till needs to read it again.

    `shown`: by the service itself, which ends a doubt: only then `problem` is the column from now on. `ends`: whether
    `ended_by` is another one than before.
    """

    status_id: int
    status: str
    ended_by: EndedBy | None
    ends: bool
    shown: bool
    problem: str | None
    last_change: LastChange | None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One request of an outbox row and how it ended."""

    outcome: Outcome
    code: str | None = None
    http_status: int | None = None
    detail: str = ""
    spent: bool = False  # made before `actions retry`: it counts no more, but its doubt stays
    ended_utc: datetime | None = None  # None: only just


@dataclass(frozen=True, slots=True)
class Verdict:
    """The end of an outbox row. `status_id` is what it writes into the order, if anything."""

    state: ActionState
    code: str | None = None
    known_by: KnownBy | None = None
    status_id: int | None = None
    http_status: int | None = None


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """An unfinished row of the outbox, as plain values: what a POS wrote is not to be trusted."""

    id: int
    action: Action
    state: ActionState
    payment_key: str | None
    restaurant_id: str | None
    food_id: int | None
    account: str | None
    preparing_time: int | None
    reason_id: int | None
    valid_minutes: int | None
    withdraw: bool
    created_utc: datetime | None
    next_attempt_utc: datetime | None
    expires_utc: datetime | None
    attempts: int
    tried: bool  # a request of it was noted, whatever became of it
    owner: str | None = None  # the account of its order, as far as the order is known
    service_status_id: int | None = None  # of its order
    courier_type: str | None = None  # of its order
    service_id: str | None = None  # of its order or restaurant, as sent, where that is not in lower case
    last_outcome: Outcome | None = None  # of its last finished request, while it is `sending`
    waits_for: str | None = field(default=None, compare=False)  # its error_code: for words, no decision hangs on it
