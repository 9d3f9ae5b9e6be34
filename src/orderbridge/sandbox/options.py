"""One switch for each thing that docs/interface.md leaves open ("not shown"), and the pace of the world.

The defaults are one plausible service. A client that is right must work with every setting.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from enum import StrEnum
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from . import rules


class Disallowed(StrEnum):
    """What an operation answers in a status that does not allow it ("Order transitions", last line)."""

    REFUSED = "refused"  # disallowed_status and disallowed_error
    NOT_FOUND = "not_found"  # 404 "sipariş bulunamadı"
    OK = "ok"  # 200 "OK", without effect


class Coverage(StrEnum):
    """Which restaurants one get-current list covers (endpoint 6, last line)."""

    ALL = "all"  # every restaurant of the credential
    FIRST = "first"  # the credential's first one only


class CooldownScope(StrEnum):
    """Whose a cooldown is ("Limits"): who calls inside it gets 429."""

    CREDENTIAL = "credential"
    APPLICATION = "application"  # all credentials with one app_secret_key
    ADDRESS = "address"  # all that call from one network address


class ListOrder(StrEnum):
    """The order of the orders in get-current (endpoint 6)."""

    OLDEST_FIRST = "oldest_first"
    NEWEST_FIRST = "newest_first"
    SHUFFLED = "shuffled"


class MenuShape(StrEnum):
    """The shape of `data` in the menu listing."""

    FLAT = "flat"  # a list of foods
    BY_CATEGORY = "by_category"  # a list of categories, each with its foods
    WRAPPED = "wrapped"  # an object with a list `foods`


class TokenMessage(StrEnum):
    """The message of a 401 ("Authentication" 4), where the endpoint itself does not fix it."""

    EXPIRED_OR_INVALID = rules.EXPIRED_OR_INVALID
    INVALID_OR_EXPIRED = rules.INVALID_OR_EXPIRED


class BadOption(ValueError):
    """An option that does not exist, or a value that it cannot take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The switches. Times are seconds."""

    # Pace of the world.
    orders_per_minute: float = 0.0
    max_orders: int | None = None
    """How many orders the ticker places at most."""

    # Limits that docs/interface.md gives; shorter ones make tests and demos quick.
    cooldown_seconds: float = 30.0
    token_seconds: float = 86400.0

    # Open points of get-current.
    cooldown_restarts_on_429: bool = False
    cooldown_scope: CooldownScope = CooldownScope.CREDENTIAL
    cancelled_are_delivered: bool = True
    """Whether a cancelled order is listed until it is acknowledged, as rule 3 and "Events" suggest."""
    list_covers: Coverage = Coverage.ALL
    list_order: ListOrder = ListOrder.OLDEST_FIRST
    list_limit: int | None = None
    """How many orders one list holds at most; 0 or None: all."""

    # Open points of the ids.
    ids_in_capitals: bool = False
    """Whether orders' and restaurants' ids are shown in capitals, and known in no other form."""

    # Open points of the order operations.
    needs_payment_status_id: int = 7
    disallowed: Disallowed = Disallowed.REFUSED
    disallowed_status: int = 422
    disallowed_error: str = "sipariş durumu uygun değil"
    longest_preparing_time: int | None = None
    """An accept with more minutes than these lacks its field; None: any number will do."""

    # HTTP statuses that docs/interface.md does not give; None: as for the other operations.
    complete_error_status: int | None = None
    restaurant_error_status: int | None = None
    food_error_status: int | None = None
    token_errors_stay_401: bool = True
    """Whether a bad token is a 401 in those operations too, as "Authentication" 4 says."""

    # Open points of the login.
    new_login_ends_old_token: bool = False
    token_message: TokenMessage = TokenMessage.EXPIRED_OR_INVALID

    # Open points of the texts.
    timezone: str = "Europe/Istanbul"
    expiration_timezone: str = "Europe/Istanbul"
    """The zone of expiration_date alone: another one plays a service that is wrong about its own zone."""
    prepaid_suffix: bool = True
    """Whether payment names carry the " (pre-paid)" of docs/interface.md's table."""

    # Open points of the menu listing.
    menu_shape: MenuShape = MenuShape.FLAT
    menu_cooldown_seconds: float = 60.0

    def __post_init__(self) -> None:
        """Refuse what the world could not play."""
        for name, value in asdict(self).items():
            if isinstance(value, int | float) and not 0 <= value < math.inf:
                raise BadOption(f"{name}: {value} is not a number from 0 on")
            if name.endswith("_status") and value is not None and not 200 <= value <= 599:  # noqa: PLR2004
                raise BadOption(f"{name}: {value} is not between 200 and 599")
        if self.needs_payment_status_id in rules.STATUS_TEXTS:
            raise BadOption(f"needs_payment_status_id: {self.needs_payment_status_id} is the id of another status")
        for name in ("timezone", "expiration_timezone"):
            try:
                ZoneInfo(getattr(self, name))
            except (ZoneInfoNotFoundError, ValueError) as error:
                raise BadOption(f"{name}: {getattr(self, name)!r} is no time zone") from error

    def changed(self, changes: Mapping[str, Any]) -> "Options":
        """Return a copy with the changes, which may come from JSON."""
        kinds = {field.name: field.type for field in fields(self)}
        unknown = sorted(changes.keys() - kinds.keys())
        if unknown:
            raise BadOption(f"no such option: {', '.join(unknown)}; there are {', '.join(kinds)}")
        values: dict[str, Any] = {name: _converted(name, value, kinds[name]) for name, value in changes.items()}
        return replace(self, **values)

    def as_json(self) -> dict[str, Any]:
        """Return the options as JSON values."""
        return asdict(self)


def _converted(name: str, value: Any, kind: Any) -> Any:
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        if value in list(kind):
            return kind(value)
        raise BadOption(f"{name}: {value!r} is none of {', '.join(kind)}")
    if kind is float and type(value) is int:
        return float(value)
    # A bool is an int to Python, but never a sensible number of seconds.
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise BadOption(f"{name}: {value!r} is no {getattr(kind, '__name__', kind)}")
    return value
