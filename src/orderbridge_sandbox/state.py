"""The state of the sandbox: accounts, orders, tokens, recorded calls, and its clock."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, TypeAlias

Document: TypeAlias = dict[str, Any]  # an order as get-current shows it; amounts are Decimal
Clock: TypeAlias = Callable[[], datetime]  # returns the current time with a time zone; tests pass their own


def system_clock() -> datetime:
    """Return the machine's time. Nothing else in the sandbox reads it."""
    return datetime.now(UTC)  # noqa: TID251


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A credential: branch-specific with one restaurant, vendor-wide with several ("Authentication" 6)."""

    name: str
    app_secret_key: str
    rest_secret_key: str
    restaurant_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Restaurant:
    """A branch; branches with the same menu share its foods."""

    id: str
    name: str
    menu: str
    district: str = "Kadıköy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A modifier that a customer may add to a food: one element of option_groups."""

    group_id: int
    group_name: str
    option_id: int
    option_name: str
    price: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Food:
    """A menu item."""

    menu: str
    id: int
    name: str
    category: str
    price: Decimal
    choices: tuple[Choice, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenery:
    """The initial accounts, restaurants and foods."""

    accounts: tuple[Account, ...]
    restaurants: tuple[Restaurant, ...]
    foods: tuple[Food, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """An access token that was issued."""

    text: str
    account: Account
    expires: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusChange:
    """One line of an order's status history."""

    status_id: int
    at: datetime
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgement:
    """A PUT orders/success: the status that the order had at that moment."""

    status_id: int
    at: datetime


@dataclass(slots=True, kw_only=True)
class Order:
    """An order, with what the sandbox knows of it."""

    key: str  # the payment_key in lower case: how paths find it
    number: int
    restaurant_id: str
    placed: Document  # the document as it was placed
    status_id: int
    status_text: str
    history: list[StatusChange]
    acknowledgements: list[Acknowledgement] = field(default_factory=list)
    acknowledged: bool = False  # whether it is acknowledged for its current status
    preparing_time: int | None = None
    reason_id: int | None = None
    shown_status_id: int | None = None  # the status in which a list showed it last; None before the first

    @property
    def document(self) -> Document:
        """The document as get-current shows it now."""
        if len(self.history) == 1:
            return self.placed  # the caller may have given it any status; it stays until the first change
        return {**self.placed, "status_id": self.status_id, "status_text": self.status_text}

    @property
    def courier_type(self) -> object:
        """The courier type, as placed."""
        return self.placed.get("courier_type")

    def as_json(self) -> dict[str, Any]:
        """Return the order for the control interface."""
        return {
            "payment_key": self.key,
            "number": self.number,
            "restaurant_id": self.restaurant_id,
            "status_id": self.status_id,
            "status_text": self.status_text,
            "acknowledged": self.acknowledged,
            "preparing_time": self.preparing_time,
            "reason_id": self.reason_id,
            "history": self.history,
            "acknowledgements": self.acknowledgements,
            "document": self.document,
        }


@dataclass(frozen=True, slots=True)
class Advice:
    """What was wrong with a call: a code for programs and a sentence for people."""

    code: str
    text: str


@dataclass(slots=True, kw_only=True)
class CallRecord:
    """One line of the ledger: a call, what it did and what was answered."""

    number: int
    at: datetime
    operation: str
    account: str = ""  # the account's name; empty when no valid credential came with the call
    argument: str = ""  # the id in the path, or get-current's status_id
    body: object = None  # the JSON body; never kept for a login
    answered_at: datetime | None = None  # None while the call is in progress, and if it never got an answer
    http_status: int | None = None
    error: str = ""
    effect: bool = False  # whether the call changed the world
    status_before: int | None = None
    status_after: int | None = None  # an order's status around the call
    # What a list contained: payment_key and status_id of each order, even if a fault hid the answer.
    delivered: tuple[tuple[str, int], ...] = ()
    fault: str = ""  # the kind of fault that affected the call
    method: str = ""
    path: str = ""  # as requested, with its query
    message: str = ""  # the answer's message beside its error
    advice: tuple[Advice, ...] = ()  # what was wrong with the call, whatever was answered

    def as_json(self) -> dict[str, Any]:
        """Return the line for the control interface."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        values["delivered"] = [{"payment_key": key, "status_id": status} for key, status in self.delivered]
        return values
