"""Value types of the domain: orders and their problems, actions and outcomes. They have no behaviour."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import StrEnum

from orderbridge.document import Facts

RECEIVED = 1
CONFIRMED = 2
COMPLETE_WITH_PAYMENT = 5
CANCELED = 6
IN_DELIVERY = 16

# Payment codes: cash is collected at the door; prepaid orders leave nothing to collect.
CASH = "CASH"
PREPAID = frozenset({"CREDIT_CARD", "DEBIT_CARD"})
STATUS_DOUBTFUL = "status_doubtful"  # the marketplace refused an action that the shown status should allow
TOTAL_MISMATCH = "total_mismatch"  # the amounts do not add up
LATE = "late"  # it arrived long after it was ordered, or after its scheduled time
CONTENTS_OUTDATED = "contents_outdated"  # the database refuses newer contents than are stored


def codes_of(problem: str | None) -> list[str]:
    """The codes that an order's column `problem` lists."""
    return [code for code in (problem or "").split(",") if code]


def as_problem(codes: Iterable[str]) -> str | None:
    """Join codes for the column `problem`; None if there are none."""
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
    """The actions of the outbox."""

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
ANSWERED = UNFINISHED | {ActionState.DONE}  # states of an accept or cancel in which its customer counts as answered

REPLAYED = "replayed"  # the event of an order that was stored from the journal or from quarantine

# Prefixes of our own request_ids.
AUTO_MARK = "auto:"  # an automatic accept
BOARD_MARK = "board:"  # an action from the board
BOARD_REFERENCE = "board"  # pos_reference of orders that the board took over


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
    FAILING = "failing"  # the answer was not a list of orders
    UNREACHABLE = "unreachable"  # the request never left
    LOGIN_REFUSED = "login_refused"


class CooldownScope(StrEnum):
    """Which accounts share one cooldown of the list of orders."""

    AUTO = "auto"  # as CREDENTIAL until 429s show otherwise
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
    """How a delivered document differs from the stored one.

    PRINT: in items, notes or amounts, which a kitchen prints.
    """

    NOTHING = "nothing"
    DETAILS = "details"
    PRINT = "print"


@dataclass(frozen=True, slots=True)
class Restaurant:
    """A branch (docs/interface.md, Restaurant). `service_id` is its id as sent, if it is not in lower case."""

    id: str
    name: str
    service_id: str | None = None


@dataclass(frozen=True, slots=True)
class Food:
    """A food as the menu lists it; None for what the menu does not show. `payload`: its element as JSON."""

    food_id: int
    name: str | None
    category: str | None
    status: str | None
    price: Decimal | None
    payload: str


@dataclass(frozen=True, slots=True)
class Menu:
    """The answer of GET foods/get-foods. `is_whole`: every food in it could be identified. `shape`: see `shape_of`."""

    foods: tuple[Food, ...]
    is_whole: bool
    shape: str = ""


@dataclass(frozen=True, slots=True)
class Variables:
    """The answer of GET orders/variables: the names of the methods, by code."""

    payment_methods: Mapping[str, str]
    shipping_methods: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Grant:
    """The answer of POST auth/login. `expiration_date` may be unreadable or in a wrong time zone."""

    access_token: str = field(repr=False)
    expiration_date: str | None


@dataclass(frozen=True, slots=True)
class Token:
    """An access token with the validity that we trust (rules.tokens). Times are UTC."""

    access_token: str = field(repr=False)
    issued_utc: datetime
    expires_utc: datetime


def text_of(raw: bytes) -> str:
    """Decode a document as UTF-8, replacing invalid bytes."""
    return raw.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Document:
    """One element of the get-current list, cut out of the body as received and not yet validated.

    It stays bytes until it is needed, because a parsed list of 32 MB takes many times that in memory. `reason` is None
    for an order, else the code why the document is quarantined. `status_id` is None if it is missing or unreadable.
    """

    raw: bytes = field(repr=False)
    digest: str
    payment_key: str | None
    status_id: int | None
    reason: str | None = None
    service_key: str | None = None  # the payment_key as sent, if it is not in lower case

    @property
    def payload(self) -> str:
        """The document's text."""
        return text_of(self.raw)


@dataclass(frozen=True, slots=True)
class Order:
    """A delivered order, parsed from a document. A person must check its `problems`; `remarks` are for information."""

    payment_key: str
    status_id: int | None
    status_text: str | None
    facts: Facts
    problems: tuple[str, ...]
    raw: bytes = field(repr=False)
    digest: str
    service_key: str | None = None  # see Document
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Arrival:
    """A delivered order as it is to be written, with the name of its status, and its end if it has one."""

    order: Order
    status: str
    ended_by: EndedBy | None


@dataclass(frozen=True, slots=True)
class Stored:
    """The columns of a stored order that decisions need."""

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
    """The changes of one delivery to a stored order. `last_change` is None if no till must read it again.

    `problem`: the new value of the column.
    """

    status_counts: bool
    differs: Differs
    ended_by: EndedBy | None
    last_change: LastChange | None
    problem: str | None


@dataclass(frozen=True, slots=True)
class NewStatus:
    """The status that a verdict gives an order. `last_change` is None if no till must read it again.

    `shown`: the marketplace itself showed this status, which ends a doubt; only then is `problem` written. `ends`:
    whether `ended_by` changes.
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
    spent: bool = False  # made before `actions retry`: not counted, but its outcome may still be unknown
    ended_utc: datetime | None = None  # None: just now


@dataclass(frozen=True, slots=True)
class Verdict:
    """The end of an outbox row. `status_id`: the new status of the order, if any."""

    state: ActionState
    code: str | None = None
    known_by: KnownBy | None = None
    status_id: int | None = None
    http_status: int | None = None


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """An unfinished row of the outbox. The values that the POS wrote are not validated."""

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
    tried: bool  # it has at least one recorded attempt
    valid_until_minutes: int | None = None
    owner: str | None = None  # the account of its order, if known
    service_status_id: int | None = None  # of its order
    courier_type: str | None = None  # of its order
    service_id: str | None = None  # of its order or restaurant, as sent, if not in lower case
    last_outcome: Outcome | None = None  # of its last finished request, while it is `sending`
    waits_for: str | None = field(default=None, compare=False)  # its error_code; no decision depends on it
