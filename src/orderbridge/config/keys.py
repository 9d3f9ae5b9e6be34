"""The keys of the configuration with their types, defaults and checks, one class for each table.

`orderbridge.config.settings` puts the tables together.
"""

import base64
import binascii
import re
import secrets
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Literal, Self
from zoneinfo import ZoneInfo, available_timezones

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from orderbridge.actions import AWAITED, PREPARING_TIME
from orderbridge.config.addresses import (
    database_address,
    fingerprint,
    host_name,
    https_address,
    is_loopback,
    is_private,
    listen_address,
)
from orderbridge.model import CANCELED, COMPLETE_WITH_PAYMENT, CONFIRMED, IN_DELIVERY, RECEIVED, CooldownScope
from orderbridge.texts import say

COOLDOWN_SECONDS = 30  # docs/interface.md, Limits
MIN_RECORDS_DAYS = 30  # a row may wait for a week, and a POS may repeat a request_id after a long outage
KNOWN_STATUS_IDS = frozenset({RECEIVED, CONFIRMED, COMPLETE_WITH_PAYMENT, CANCELED, IN_DELIVERY})

SECRETS = ("app_secret_key", "rest_secret_key")
ACCOUNT_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")  # no slash: credential files have this name
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# Typical mistakes in a pasted secret, by the key of their message.
COPYING_MISTAKES = {
    "config.secret_empty": re.compile(r"\A\Z"),
    "config.secret_lines": re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]"),  # and lone surrogates from JSON
    "config.secret_quoted": re.compile(r"\A[\"'\u201c\u2018].*[\"'\u201d\u2019]\Z"),
    "config.secret_named": re.compile(r"\A\w*secret_key\w*\s*[=:]"),  # a line of a configuration
}
KEY_BYTES = 32

Wait = Annotated[float, Field(ge=0, le=3600)]  # seconds
PerSecond = Annotated[int, Field(ge=1, le=100_000)]
Minutes = Annotated[int, Field(ge=0, le=1440)]
PreparingTime = Annotated[int, Field(ge=PREPARING_TIME.least, le=PREPARING_TIME.most)]  # minutes
# (orders, minutes): the preparing time if the last hour had at least this many orders; 0: do not accept.
AcceptStep = tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0, le=PREPARING_TIME.most)]]


# ---- checks of one value ---------------------------------------------------------------------------------------------


def no_home(value: str) -> str:
    """Refuse a leading ~: only a shell expands it, not systemd."""
    if value.startswith("~"):
        raise ValueError(say("config.home"))
    return value


def on_folder(value: Path, info: ValidationInfo) -> Path:
    """Resolve a path against the configuration's folder, which `load` passes as context."""
    return Path(info.context or "", no_home(str(value)))


def on_folder_url(value: str, info: ValidationInfo) -> str:
    """Resolve the path of a SQLite address. Strip a line break, which a secret file may end with."""
    scheme, is_file, path = value.strip().partition(":///")
    is_relative = is_file and scheme.startswith("sqlite") and path and not path.startswith("/")
    return database_address(f"{scheme}:///{on_folder(Path(path), info)}" if is_relative else value.strip())


def readable(value: Path) -> Path:
    """Refuse a file that cannot be opened."""
    try:
        value.open("rb").close()
    except OSError as error:
        raise ValueError(say("config.ca_file", file=value, reason=error.strerror)) from None
    return value


def known_zone(value: str) -> str:
    """Refuse a time zone without data on this machine."""
    try:
        ZoneInfo(value)
    except (KeyError, ValueError, OSError):
        key = "config.timezone" if available_timezones() else "config.no_timezones"
        raise ValueError(say(key, value=repr(value))) from None
    return value


def new_status(value: int) -> int:
    """Refuse a status id that the interface already uses."""
    if value in KNOWN_STATUS_IDS:
        raise ValueError(say("config.status_id", value=value))
    return value


def long_enough(value: int) -> int:
    """Refuse too few days; 0: rows are never deleted."""
    if 0 < value < MIN_RECORDS_DAYS:
        raise ValueError(say("config.records_days", value=value, least=MIN_RECORDS_DAYS))
    return value


def private(value: SecretStr) -> SecretStr:
    """Refuse an address that is neither https nor on this machine."""
    if not is_private(value.get_secret_value()):
        raise ValueError(say("config.ping_url"))
    return value


def account_name(value: str) -> str:
    """Refuse a name that cannot be part of a file name."""
    if not ACCOUNT_NAME.fullmatch(value):
        raise ValueError(say("config.account_name", value=repr(value)))
    return value


def restaurant_id(value: str) -> str:
    """The id in lower case, as ids are compared."""
    if not UUID.fullmatch(value.lower()):
        raise ValueError(say("config.restaurant_id", value=repr(value)))
    return value.lower()


def secret(value: SecretStr) -> SecretStr:
    """Refuse a secret with a typical mistake of copying."""
    text = value.get_secret_value().strip()
    for key, pattern in COPYING_MISTAKES.items():
        if pattern.search(text):
            raise ValueError(say(key))
    return value


FilePath = Annotated[Path, AfterValidator(on_folder)]


# ---- the tables ------------------------------------------------------------------------------------------------------


class Table(BaseModel):
    """An immutable table that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)


class Marketplace(Table):
    """The marketplace and the limits of our requests."""

    base_url: Annotated[str, AfterValidator(https_address)]
    ca_file: Annotated[FilePath, AfterValidator(readable)] | None = None
    timezone: Annotated[str, AfterValidator(known_zone), Field(validate_default=True)] = "Europe/Istanbul"
    cooldown_seconds: Annotated[float, Field(gt=0, le=3600)] = COOLDOWN_SECONDS
    cooldown_scope: CooldownScope = CooldownScope.AUTO
    timeout_seconds: Annotated[float, Field(gt=0, le=120)] = 20
    logins_per_second: PerSecond = 50
    requests_per_second: PerSecond = 2000
    needs_payment_status_id: Annotated[int, AfterValidator(new_status)] | None = None
    list_limit: Annotated[int, Field(ge=1)] | None = None

    @field_validator("cooldown_seconds", "timeout_seconds")
    @classmethod
    def _check_seconds(cls, value: float, info: ValidationInfo) -> float:
        """Allow the short times of tests only for an address on this machine."""
        least = COOLDOWN_SECONDS if info.field_name == "cooldown_seconds" else 1
        address = info.data.get("base_url")
        if value < least and address and not is_loopback(address):
            raise ValueError(say("config.loopback_only", value=f"{value:g}", least=least))
        return value


class Database(Table):
    """Where the `delivery_` tables are."""

    url: Annotated[str, AfterValidator(on_folder_url)] = Field(default="sqlite:///orderbridge.db", repr=False)
    accept_unsafe_durability: bool = False
    busy_timeout_seconds: Annotated[float, Field(gt=0, le=60)] = 5


class Actions(Table):
    """How outbox rows are sent."""

    retry_waits_seconds: tuple[Wait, Wait, Wait] = (2, 10, 60)
    max_in_flight: Annotated[int, Field(ge=1, le=256)] = 32
    accept_valid_minutes: Annotated[int, Field(ge=1, le=1440)] = 10
    valid_minutes: Annotated[int, Field(ge=1, le=10080)] = 120

    def validity(self, action: str, minutes: int | None) -> timedelta:
        """How long a row is valid. `minutes`: its own `valid_minutes`."""
        usual = self.accept_valid_minutes if action in AWAITED else self.valid_minutes
        return timedelta(minutes=minutes or usual)


class Orders(Table):
    """When an order is late or ended, and how long its data is kept. 0 minutes: never; 0 days: without an end."""

    late_minutes: Minutes = 20
    preparing_minutes: Annotated[int, Field(ge=1, le=1440)] = 30
    silence_hours: Annotated[int, Field(ge=1, le=720)] = 24
    retention_days: Annotated[int, Field(ge=0, le=36500)] = 90
    records_days: Annotated[int, Field(ge=0, le=36500), AfterValidator(long_enough)] = 400
    journal: str = "auto"

    @field_validator("journal", mode="before")
    @classmethod
    def _check_journal(cls, value: object, info: ValidationInfo) -> object:
        """Accept a folder, "auto", "off", true or false."""
        if isinstance(value, bool):
            return "auto" if value else "off"
        if not isinstance(value, str):
            return value
        if not (named := value.strip()):
            raise ValueError(say("config.journal_empty"))
        return named if named in {"auto", "off"} else str(on_folder(Path(named), info))


class Alarms(Table):
    """After how many minutes a condition is a problem (0: never), and how problems are reported."""

    unanswered_minutes: Minutes = 3
    not_taken_over_minutes: Minutes = 3
    cancellation_unseen_minutes: Minutes = 2
    closed_minutes: Minutes = 30
    not_started_minutes: Minutes = 0
    command: tuple[Annotated[str, Field(min_length=1), AfterValidator(no_home)], ...] = ()
    command_timeout_seconds: Annotated[float, Field(gt=0, le=300)] = 30
    command_severity: Literal["warning", "severe"] = "severe"
    ping_url: Annotated[SecretStr, AfterValidator(private)] | None = None  # secret: its holder can report success


class Web(Table):
    """The web server: /livez, /readyz, /metrics and the board. An empty `listen` turns it off.

    `hosts` are the allowed host names (and addresses, for the board). The certificate's files are not checked here: a
    bad certificate stops the board, but no orders.
    """

    listen: Annotated[str, AfterValidator(listen_address)] = "127.0.0.1:8480"
    hosts: tuple[Annotated[str, AfterValidator(host_name)], ...] = ()
    board: Literal["off", "beside", "till"] = "off"
    certificate: FilePath | None = None
    certificate_key: FilePath | None = None
    customers_unencrypted: bool = False

    @property
    def is_local(self) -> bool:
        """Whether it listens only on this machine."""
        return is_loopback(f"http://{self.listen}")

    @property
    def scheme(self) -> str:
        """The scheme of its address."""
        return "http" if self.certificate is None else "https"

    @model_validator(mode="after")
    def _check_board(self) -> Self:
        if (self.certificate is None) != (self.certificate_key is None):
            raise ValueError(say("config.certificate_pair"))
        if self.board != "off" and not self.listen:
            raise ValueError(say("config.board_nowhere"))
        if self.board != "off" and not self.is_local and not self.hosts:
            raise ValueError(say("config.board_hosts", listen=self.listen))
        return self


class Fleet(Table):
    """Whether accounts are also read from the database. `load` puts the contents of the master key's file here."""

    accounts: Literal["file", "database"] = "file"
    master_key: SecretStr | None = Field(default=None, validate_default=True)
    master_key_file: FilePath | None = None

    @property
    def from_database(self) -> bool:
        """Whether delivery_account_settings holds accounts, too."""
        return self.accounts == "database"

    @property
    def master_keys(self) -> tuple[bytes, ...]:
        """All keys decrypt, the first one encrypts; empty without a master key."""
        return () if self.master_key is None else parsed(self.master_key.get_secret_value())

    @field_validator("master_key")
    @classmethod
    def _check_master_key(cls, value: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        if value is None and info.data.get("accounts") != "database":
            return value
        if value is None or not parsed(value.get_secret_value()):
            raise ValueError(say("config.master_key_missing"))
        return value


class Log(Table):
    """The level and the format of the log."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "console", "json"] = "auto"


def growing(value: tuple[AcceptStep, ...]) -> tuple[AcceptStep, ...]:
    """Refuse steps that do not begin at 0 orders, do not grow, or do not end with 0 minutes."""
    counts, minutes = [count for count, _ in value], [minutes for _, minutes in value]
    if not value or counts[0] != 0:
        raise ValueError(say("config.steps_begin"))
    if counts != sorted(set(counts)):
        raise ValueError(say("config.steps_grow"))
    if minutes[-1] or 0 in minutes[:-1]:
        raise ValueError(say("config.steps_end"))
    return value


class AutoAccept(Table):
    """The preparing time for automatic accepts: always the same, or by the orders of the last hour.

    Without both, orders are not accepted automatically.
    """

    auto_accept_minutes: PreparingTime | None = None
    auto_accept_steps: Annotated[tuple[AcceptStep, ...], AfterValidator(growing)] | None = None

    @model_validator(mode="after")
    def _check_steps(self) -> Self:
        if self.auto_accept_minutes is not None and self.auto_accept_steps is not None:
            raise ValueError(say("config.steps_and_minutes"))
        return self

    @property
    def most(self) -> int | None:
        """Automatic accepts stop at this number of orders in the last hour; None: no limit."""
        return None if self.auto_accept_steps is None else self.auto_accept_steps[-1][0]

    def minutes(self, received: Callable[[], int]) -> int | None:
        """The preparing time. `received` counts the orders of the last hour; it is called only for steps."""
        if self.auto_accept_steps is None:
            return self.auto_accept_minutes
        count = received()
        return [minutes for least, minutes in self.auto_accept_steps if least <= count][-1] or None


class RestaurantRule(AutoAccept):
    """The exception for one restaurant of an account."""

    id: Annotated[str, AfterValidator(restaurant_id)]


def each_once(value: tuple[RestaurantRule, ...]) -> tuple[RestaurantRule, ...]:
    """Refuse two rules for one restaurant."""
    if twice := first_repeated(rule.id for rule in value):
        raise ValueError(say("config.restaurant_twice", value=twice))
    return value


class Account(AutoAccept):
    """An account with its two secrets. Both are always set, because `load` has read their files."""

    name: Annotated[str, AfterValidator(account_name)]
    app_secret_key: Annotated[SecretStr, AfterValidator(secret)]
    app_secret_key_file: FilePath | None = None
    rest_secret_key: Annotated[SecretStr, AfterValidator(secret)]
    rest_secret_key_file: FilePath | None = None
    default: bool = False
    auto_accept_scheduled: bool = False
    restaurants: Annotated[tuple[RestaurantRule, ...], AfterValidator(each_once)] = ()
    _fingerprint: str = PrivateAttr(default="")

    def at(self, base_url: str) -> Self:
        """Set the marketplace's address and with it the fingerprint."""
        secrets = (self.app_secret_key.get_secret_value(), self.rest_secret_key.get_secret_value())
        self._fingerprint = fingerprint(base_url, *secrets)
        return self

    @cached_property
    def fingerprint(self) -> str:
        """The key of the cooldown and of the stored token; see the function of this name."""
        return self._fingerprint  # cached: pydantic's private attributes are slow

    @property
    def application(self) -> str:
        """A hash that is equal for all accounts with one app_secret_key."""
        return fingerprint("application", self.app_secret_key.get_secret_value(), "")

    def auto_accept(self, restaurant_id: str | None, received: Callable[[str | None], int] = lambda _: 0) -> int | None:
        """The preparing time for automatic accepts of this restaurant's orders, or None.

        `received` counts the orders of the last hour, of one restaurant or (None) of all of the account.
        """
        for rule in self.restaurants:
            if restaurant_id is not None and rule.id == restaurant_id.lower():
                return rule.minutes(partial(received, rule.id))
        return self.minutes(partial(received, None))

    @property
    def limits(self) -> dict[str | None, int]:
        """The value of `most` for each restaurant (None: the account) that has one."""
        rules: list[tuple[str | None, AutoAccept]] = [(None, self), *((rule.id, rule) for rule in self.restaurants)]
        return {key: rule.most for key, rule in rules if rule.most is not None}


def first_repeated(values: Iterable[str]) -> str | None:
    """The first value that occurs twice."""
    return next((value for value, count in Counter(values).items() if count > 1), None)


def new_master_key() -> str:
    """A new line for the master key file: 32 bytes in base64."""
    return base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()


def parsed(text: str) -> tuple[bytes, ...]:
    """The distinct master keys in the text, in order. A ValueError names only the line's number."""
    found: dict[bytes, None] = {}
    for number, line in enumerate(text.split(), 1):
        try:
            key = base64.b64decode(line, validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if len(key) != KEY_BYTES:
            raise ValueError(say("config.master_key", number=number)) from None
        found[key] = None
    return tuple(found)
