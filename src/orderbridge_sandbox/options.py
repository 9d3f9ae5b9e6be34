"""All options of the sandbox: behaviour that docs/interface.md leaves open, and behaviour for tests.

The defaults are one plausible marketplace. A correct client must work with every setting of Limits, Lists and
Operations. Times are seconds; words.toml describes each option.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from . import rules
from .faults import EVERY_OPERATION, FaultKind, When
from .switches import BadOption, Switch, switches_of, unknown

# ---- what docs/interface.md leaves open ("Open") ---------------------------------------------------------------------


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
    """Who shares a cooldown ("Limits")."""

    CREDENTIAL = "credential"
    APPLICATION = "application"  # all credentials with one app_secret_key
    ADDRESS = "address"  # all that call from one network address
    RESTAURANT = "restaurant"  # all credentials that reach one restaurant


class RetryAfter(StrEnum):
    """Whether a 429 has the header Retry-After, and in which form."""

    NONE = "none"
    SECONDS = "seconds"
    DATE = "date"


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
    BY_RESTAURANT = "by_restaurant"  # a list of restaurants, each with its foods
    BY_ID = "by_id"  # an object of foods by food_id


class TokenMessage(StrEnum):
    """The message of a 401 ("Authentication" 4), where the endpoint itself does not fix it."""

    EXPIRED_OR_INVALID = rules.EXPIRED_OR_INVALID
    INVALID_OR_EXPIRED = rules.INVALID_OR_EXPIRED


class Completable(StrEnum):
    """Which orders can be completed from CONFIRMED; the table has only IN_DELIVERY."""

    NONE = "none"
    WITHOUT_OWN_COURIER = "without_own_courier"  # pickup and platform couriers, for which ontheway is not valid
    ALL = "all"


class Life(StrEnum):
    """Who advances an order that the restaurant's own courier does not deliver."""

    POS = "pos"  # only the POS's calls
    PLATFORM = "platform"  # the platform itself, step by step


class Check(StrEnum):
    """What a call is checked for."""

    TOKEN = "token"  # noqa: S105 - 401
    URL = "url"  # 403: the id in the path is no UUID
    BODY = "body"  # 422
    EXISTS = "exists"  # 404
    STATUS = "status"  # the order's status does not allow it
    LIMIT = "limit"  # 429


# ---- behaviour for tests ---------------------------------------------------------------------------------------------


class Where(StrEnum):
    """In which restaurants the sandbox places orders."""

    ANYWHERE = "anywhere"
    LOGGED_IN = "logged_in"  # where a valid token shows them


class Courier(StrEnum):
    """The courier of an order whose document names none."""

    ANY = "any"
    RESTAURANT = "restaurant"
    COME_GET = "come_get"
    PLATFORM_COURIER = "platform_courier"


class Line(StrEnum):
    """A fault of the connection or the certificate, before a call is read."""

    GOOD = "good"
    REFUSED = "refused"  # no listener
    RESET = "reset"  # the connection is accepted, then reset
    SILENT = "silent"  # it is accepted, but the TLS handshake is never answered
    GARBAGE = "garbage"  # it is answered in plain text
    EXPIRED = "expired"  # an expired certificate
    NOT_YET_VALID = "not_yet_valid"
    WRONG_NAME = "wrong_name"
    UNTRUSTED = "untrusted"  # a certificate of another authority


class Language(StrEnum):
    """The language of advice."""

    ENGLISH = "en"
    TURKISH = "tr"


# ---- the switches, in the order of docs/sandbox.md -------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Pace:
    """Automatic orders, and the clock."""

    orders_per_minute: float = 0.0
    max_orders: int | None = None
    orders_where: Where = Where.ANYWHERE
    orders_courier: Courier = Courier.ANY
    clock_offset_seconds: float = 0.0
    language: Language = Language.ENGLISH


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of the list, of tokens and of logins. The first two are in docs/interface.md; tests may shorten them."""

    cooldown_seconds: float = 30.0
    token_seconds: float = 86400.0
    cooldown_scope: CooldownScope = CooldownScope.CREDENTIAL
    cooldown_restarts_on_429: bool = False
    retry_after: RetryAfter = RetryAfter.NONE
    retry_after_seconds: float | None = None
    login_limit: int | None = None
    login_window_seconds: float = 60.0
    tokens_at_once: int | None = None
    menu_cooldown_seconds: float = 60.0


@dataclass(frozen=True, kw_only=True)
class Lists:
    """What the lists hold."""

    cancelled_are_delivered: bool = True
    changed_are_listed_again: bool = False
    list_covers: Coverage = Coverage.ALL
    list_order: ListOrder = ListOrder.OLDEST_FIRST
    list_limit: int | None = None
    ids_in_capitals: bool = False
    menu_shape: MenuShape = MenuShape.FLAT
    timezone: str = "Europe/Istanbul"
    expiration_timezone: str = "Europe/Istanbul"
    prepaid_suffix: bool = True


@dataclass(frozen=True, kw_only=True)
class Operations:
    """What the operations answer."""

    needs_payment_status_id: int = 7
    disallowed: Disallowed = Disallowed.REFUSED
    disallowed_status: int = 422
    disallowed_error: str = "sipariş durumu uygun değil"
    complete_from_confirmed: Completable = Completable.NONE
    pickup_life: Life = Life.POS
    platform_courier_life: Life = Life.POS
    life_seconds: float = 60.0
    cancel_unanswered_seconds: float | None = None
    error_order: str = " ".join(Check)
    longest_preparing_time: int | None = None
    complete_error_status: int | None = None
    restaurant_error_status: int | None = None
    food_error_status: int | None = None
    token_errors_stay_401: bool = True
    new_login_ends_old_token: bool = False
    token_message: TokenMessage = TokenMessage.EXPIRED_OR_INVALID


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """Recurring failures of calls; POST /_sandbox/faults adds a single one."""

    latency_seconds: float = 0.0
    latency_jitter_seconds: float = 0.0
    trouble_percent: float = 0.0
    trouble_every: int = 0
    outage_every_seconds: float = 0.0
    outage_seconds: float = 60.0
    trouble_operation: str = EVERY_OPERATION
    trouble_kind: FaultKind = FaultKind.ANSWER
    trouble_status: int = 503
    trouble_when: When = When.BEFORE


@dataclass(frozen=True, kw_only=True)
class Connections:
    """Connections and their limits. They apply to the control interface, too, because it has the same address."""

    line: Line = Line.GOOD
    line_seconds: float = 30.0
    keep_alive_seconds: float = 5.0
    reading_seconds: float = 30.0
    header_limit_bytes: int = 65_536
    body_limit_bytes: int = 1_048_576


GROUPS: Final = (Pace, Limits, Lists, Operations, Trouble, Connections)  # in the order of docs/sandbox.md
LARGEST: Final = 1_000_000_000  # the largest value of a number: 31 years in seconds, which datetime can still add
_BELOW_0: Final = frozenset({"clock_offset_seconds"})


@dataclass(frozen=True, kw_only=True)
class Options(Pace, Limits, Lists, Operations, Trouble, Connections):
    """The switches. Times are seconds."""

    def __post_init__(self) -> None:
        """Refuse invalid values."""
        for name, value in asdict(self).items():
            if isinstance(value, int | float):
                _check_number(name, value)
        if self.needs_payment_status_id in rules.STATUS_TEXTS:
            raise BadOption(f"needs_payment_status_id: {self.needs_payment_status_id} is the id of another status")
        if sorted(self.error_order.split()) != sorted(Check):
            raise BadOption(f"error_order: {self.error_order!r} is not these six words: {', '.join(Check)}")
        if self.trouble_operation not in (EVERY_OPERATION, *rules.Operation):
            raise BadOption(unknown("operation", [self.trouble_operation], [EVERY_OPERATION, *rules.Operation]))
        for name in ("timezone", "expiration_timezone"):
            try:
                ZoneInfo(getattr(self, name))
            except (ZoneInfoNotFoundError, ValueError) as error:
                raise BadOption(f"{name}: {getattr(self, name)!r} is not a time zone") from error

    def changed(self, changes: Mapping[str, Any]) -> "Options":
        """Return a copy with the changes, which may come from JSON."""
        missing = [name for name in changes if name not in SWITCHES]
        if missing:
            raise BadOption(unknown("option", missing, list(SWITCHES)))
        values: dict[str, Any] = {name: SWITCHES[name].of(value) for name, value in changes.items()}
        return replace(self, **values)

    def as_json(self) -> dict[str, Any]:
        """Return the options by name, in the order of the table."""
        return {name: getattr(self, name) for name in SWITCHES}


def _check_number(name: str, value: float) -> None:
    if not math.isfinite(value) or (value < 0 and name not in _BELOW_0):
        raise BadOption(f"{name}: {value} is not a number of at least 0")
    if abs(value) > LARGEST:
        raise BadOption(f"{name}: {value} is more than {LARGEST:,}")
    if name.endswith("_status") and not 200 <= value <= 599:  # noqa: PLR2004 - what a final answer can have
        raise BadOption(f"{name}: {value} is not between 200 and 599")
    if name.endswith("_percent") and value > 100:  # noqa: PLR2004
        raise BadOption(f"{name}: {value} is not between 0 and 100")


# Every switch by its name.
SWITCHES: Final[Mapping[str, Switch]] = {name: line for group in GROUPS for name, line in switches_of(group).items()}


def settings_from(texts: Iterable[str]) -> dict[str, Any]:
    """Return the options of `--set NAME=VALUE`; raises BadOption."""
    settings = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise BadOption(f"--set {text}: write NAME=VALUE")
        if name not in SWITCHES:
            raise BadOption(unknown("option", [name], list(SWITCHES)))
        settings[name] = SWITCHES[name].parsed(value)
    return settings


# ---- presets: settings that belong together, by name -----------------------------------------------------------------

PRESETS: Final[Mapping[str, Mapping[str, Any]]] = {
    "quiet": {"orders_per_minute": 0.0},
    "friday": {
        "orders_per_minute": 20.0,
        "latency_seconds": 0.2,
        "latency_jitter_seconds": 1.0,
        "trouble_percent": 2.0,
        "pickup_life": Life.PLATFORM,
        "platform_courier_life": Life.PLATFORM,
        "life_seconds": 120.0,
        "cancel_unanswered_seconds": 600.0,
    },
    "outages": {"outage_every_seconds": 300.0, "outage_seconds": 60.0, "retry_after": RetryAfter.SECONDS},
    "lost_answers": {"trouble_every": 5, "trouble_kind": "drop", "trouble_when": "after"},
    "otherwise": {
        "cooldown_scope": CooldownScope.APPLICATION,
        "cooldown_restarts_on_429": True,
        "cancelled_are_delivered": False,
        "changed_are_listed_again": True,
        "list_order": ListOrder.SHUFFLED,
        "list_limit": 20,
        "menu_shape": MenuShape.BY_CATEGORY,
        "disallowed": Disallowed.NOT_FOUND,
        "complete_from_confirmed": "without_own_courier",
        "new_login_ends_old_token": True,
        "token_errors_stay_401": False,
        "needs_payment_status_id": 17,
        "prepaid_suffix": False,
    },
    "short_days": {"token_seconds": 300.0, "login_limit": 3, "tokens_at_once": 1},
}


def settings_of(names: Iterable[str]) -> dict[str, Any]:
    """Return the options of the presets; a later one overrides an earlier one. Raises BadOption."""
    settings: dict[str, Any] = {}
    for name in names:
        if name not in PRESETS:
            raise BadOption(unknown("preset", [name], list(PRESETS)))
        settings |= PRESETS[name]
    return settings
