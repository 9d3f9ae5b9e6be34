"""One account of the configuration: its name, its pair of secrets, and what it accepts by itself."""

import re
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, PrivateAttr, SecretStr, field_validator

from orderbridge.actions import PREPARING_TIME
from orderbridge.config.addresses import fingerprint
from orderbridge.config.keys import Table
from orderbridge.texts import say

SECRETS = ("app_secret_key", "rest_secret_key")
ACCOUNT_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")  # it names credential files: no slash
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
QUOTED = re.compile(r"[\"'\u201c\u2018].*[\"'\u201d\u2019]")
NAMED = re.compile(r"\w*secret_key\w*\s*[=:]")  # a line of a configuration in place of the secret
CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")  # and half a letter, as JSON and the environment may give it

PreparingTime = Annotated[int, Field(ge=PREPARING_TIME.least, le=PREPARING_TIME.most)]  # minutes


class RestaurantRule(Table):
    """What is different for one restaurant of an account. No minutes: it does not accept by itself."""

    id: str
    auto_accept_minutes: PreparingTime | None = None

    @field_validator("id")
    @classmethod
    def _check_id(cls, value: str) -> str:
        if not UUID.fullmatch(value.lower()):
            raise ValueError(say("config.restaurant_id", value=repr(value)))
        return value.lower()


class Account(Table):
    """One pair of secrets. `load` has read the secrets' files: here both secrets are always present."""

    name: str
    app_secret_key: SecretStr
    app_secret_key_file: Path | None = None
    rest_secret_key: SecretStr
    rest_secret_key_file: Path | None = None
    default: bool = False
    auto_accept_minutes: PreparingTime | None = None
    auto_accept_scheduled: bool = False
    restaurants: tuple[RestaurantRule, ...] = ()
    _fingerprint: str = PrivateAttr(default="")

    def at(self, base_url: str) -> Self:
        """It knows its service's address from now on, and so its fingerprint."""
        secrets = (self.app_secret_key.get_secret_value(), self.rest_secret_key.get_secret_value())
        self._fingerprint = fingerprint(base_url, *secrets)
        return self

    @cached_property
    def fingerprint(self) -> str:
        """What the cooldown and the stored token hang on; see the function of this name."""
        return self._fingerprint  # pydantic looks long for what is private, and health asks for thousands

    @property
    def application(self) -> str:
        """The same for all accounts with one app_secret_key, which it does not give away."""
        return fingerprint("application", self.app_secret_key.get_secret_value(), "")

    def auto_accept(self, restaurant_id: str | None) -> int | None:
        """The preparing time with which this restaurant's orders are accepted by themselves, or None."""
        for rule in self.restaurants:
            if restaurant_id is not None and rule.id == restaurant_id.lower():
                return rule.auto_accept_minutes
        return self.auto_accept_minutes

    @field_validator("name")
    @classmethod
    def _check_name(cls, value: str) -> str:
        if not ACCOUNT_NAME.fullmatch(value):
            raise ValueError(say("config.account_name", value=repr(value)))
        return value

    @field_validator(*SECRETS)
    @classmethod
    def _check_secret(cls, value: SecretStr) -> SecretStr:
        secret = value.get_secret_value().strip()
        if not secret:
            raise ValueError(say("config.secret_empty"))
        if CONTROL.search(secret):
            raise ValueError(say("config.secret_lines"))
        if QUOTED.fullmatch(secret):
            raise ValueError(say("config.secret_quoted"))
        if NAMED.match(secret):
            raise ValueError(say("config.secret_named"))
        return value

    @field_validator("restaurants")
    @classmethod
    def _check_restaurants(cls, value: tuple[RestaurantRule, ...]) -> tuple[RestaurantRule, ...]:
        if twice := first_repeated(rule.id for rule in value):
            raise ValueError(say("config.restaurant_twice", value=twice))
        return value


def first_repeated(values: Iterable[str]) -> str | None:
    """The first value that was there before."""
    seen: set[str] = set()
    for value in values:
        if value in seen:
            return value
        seen.add(value)
    return None
