"""The words of the field as values: orders, actions, outcomes. No behaviour, no I/O."""

from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any

RECEIVED = 1
CONFIRMED = 2
COMPLETE_WITH_PAYMENT = 5
CANCELED = 6
IN_DELIVERY = 16

STATUS_DOUBTFUL = "status_doubtful"  # a problem code: the service refused what its last shown status should allow


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


class KnownBy(StrEnum):
    """How the verdict of an outbox row is known."""

    ANSWER = "answer"
    POLL = "poll"
    STATUS = "status"
    REFUSAL = "refusal"


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


@dataclass(frozen=True, slots=True)
class Restaurant:
    """A branch (SPEC.md, Restaurant)."""

    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CancelReason:
    """A reason that PUT orders/cancel takes (SPEC.md, Cancel reason)."""

    id: int
    reason: str


@dataclass(frozen=True, slots=True)
class Method:
    """A payment or shipping method (SPEC.md, Payment and shipping methods)."""

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


@dataclass(frozen=True, slots=True)
class Option:
    """One selected modifier: its group and the option in it."""

    group_id: int | None
    group_name: str | None
    type: str | None
    operation: str | None
    option_id: int | None
    option_name: str | None
    price: Decimal | None


@dataclass(frozen=True, slots=True)
class Item:
    """One line of an order (SPEC.md, Order item)."""

    item_id: str | None
    food_id: int | None
    name: str | None
    note: str | None
    price: Decimal | None
    quantity: int | None
    total: Decimal | None
    options: tuple[Option, ...]


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything of an order that a till shows, its status aside. Field names are the columns of delivery_orders."""

    order_number: int | None
    restaurant_id: str | None
    restaurant_name: str | None
    shipping_method: str | None
    payment_method: str | None
    payment_code: str | None
    amount_due: Decimal | None
    note: str | None
    total: Decimal | None
    discount: Decimal | None
    courier_type: str | None
    courier_fee: Decimal | None
    order_tip: Decimal | None
    ordered_at: str | None
    scheduled_for: str | None
    customer_name: str | None
    customer_phone: str | None
    address: str | None
    address_description: str | None
    apartment_no: str | None
    building_no: str | None
    neighborhood_name: str | None
    district_name: str | None
    city_name: str | None
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Document:
    """One element of the get-current list, cut out of the body as received and not yet validated.

    `reason` is None for a document that can be an order; else a code that says why it goes to quarantine.
    `status_id` is None when the document shows none that can be read.
    """

    payload: str = field(repr=False)
    digest: str
    payment_key: str | None
    status_id: int | None
    value: Any = field(repr=False, default=None)
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Order:
    """A delivered order, read from a document. `problems` are codes for what could not be read as it should."""

    payment_key: str
    status_id: int | None
    status_text: str | None
    facts: Facts
    problems: tuple[str, ...]
    payload: str = field(repr=False)
    digest: str


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
    """What one delivery changes in a stored order. `last_change` is None when no till needs to look again."""

    status_counts: bool
    status_changed: bool
    contents_changed: bool
    reopened: bool
    ended_by: EndedBy | None
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
