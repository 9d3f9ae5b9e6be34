"""The whole configuration: what holds across its tables, where it came from, and how it is shown.

Nothing here reads a secret's file or the environment: settings made by hand, as in a test, do not depend on the machine.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, PrivateAttr, ValidationInfo, field_validator, model_validator

from orderbridge.config import keys
from orderbridge.config.addresses import sqlite_file, without_password
from orderbridge.texts import say

PREFIX = "ORDERBRIDGE_"


@dataclass(frozen=True, slots=True)
class Source:
    """Where a configuration came from: its file, what set the keys that the file did not, and what a technician should know.

    `origins`: the variable, or the file of a secret, by the key as a person writes it (accounts[0].name).
    `without_secrets`: whose secrets could not be read. A command that needs none works all the same (config.load).
    """

    file: Path | None = None
    origins: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    without_secrets: frozenset[str] = frozenset()  # names of accounts; "" for the master key


class Settings(keys.Table):
    """The whole configuration, checked."""

    language: Literal["tr", "en"] = "tr"
    marketplace: keys.Marketplace
    database: keys.Database = keys.Database()
    actions: keys.Actions = keys.Actions()
    orders: keys.Orders = keys.Orders()
    alarms: keys.Alarms = keys.Alarms()
    fleet: keys.Fleet = keys.Fleet()
    accounts: tuple[keys.Account, ...] = Field(default=(), validate_default=True)
    web: keys.Web = keys.Web()
    log: keys.Log = keys.Log()
    _source: Source = PrivateAttr(default=Source())

    @property
    def source(self) -> Source:
        """Where it all came from; empty for settings made by hand."""
        return self._source

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences about what works but should be changed."""
        return self._source.warnings

    @property
    def secret_files(self) -> list[Path]:
        """The files of accounts' secrets and of the master key."""
        files = [file for one in self.accounts for file in (one.app_secret_key_file, one.rest_secret_key_file)]
        return [file for file in (*files, self.fleet.master_key_file) if file]

    @property
    def journal(self) -> Path | None:
        """The folder of acknowledged documents; None: there is none. By itself it lies beside a SQLite file."""
        match self.orders.journal:
            case "off":
                return None
            case "auto":
                file = sqlite_file(self.database.url)
                return None if file is None else Path(f"{os.path.realpath(file)}.documents")
            case folder:
                return Path(folder)

    @property
    def extensions(self) -> tuple[str, ...]:
        """The packages beside the core that it needs, by the names of their entry points."""
        needed = {"board": self.web.board != "off", "fleet": self.fleet.from_database}
        return tuple(name for name, is_needed in needed.items() if is_needed)

    @property
    def default_account(self) -> keys.Account | None:
        """The account for actions that name none: the configured one, or the only one that there can be."""
        is_alone = len(self.accounts) == 1 and not self.fleet.from_database
        chosen = [account for account in self.accounts if account.default or is_alone]
        return chosen[0] if chosen else None

    @field_validator("fleet")
    @classmethod
    def _check_fleet(cls, value: keys.Fleet, info: ValidationInfo) -> keys.Fleet:
        url = info.data["database"].url if "database" in info.data else ""
        if value.from_database and url.startswith(("mysql", "mariadb")):
            raise ValueError(say("config.fleet_mariadb"))
        return value

    @field_validator("accounts")
    @classmethod
    def _check_accounts(cls, value: tuple[keys.Account, ...], info: ValidationInfo) -> tuple[keys.Account, ...]:
        if not value and "fleet" in info.data and not info.data["fleet"].from_database:
            raise ValueError(say("config.no_account"))
        if twice := keys.first_repeated(account.name for account in value):
            raise ValueError(say("config.name_twice", value=repr(twice)))
        if len(defaults := [account.name for account in value if account.default]) > 1:
            raise ValueError(say("config.two_defaults", names=", ".join(defaults)))
        return value

    @field_validator("web")
    @classmethod
    def _check_web(cls, value: keys.Web, info: ValidationInfo) -> keys.Web:
        """A fleet's restaurants have screens of their own; a board would show each of them all the others."""
        if value.board != "off" and "fleet" in info.data and info.data["fleet"].from_database:
            raise ValueError(say("config.fleet_board"))
        return value

    @model_validator(mode="after")
    def _tell_accounts_apart(self) -> Self:
        """Two accounts with one fingerprint would share a cooldown and steal each other's orders."""
        names: dict[str, str] = {}
        for account in self.accounts:
            other = names.setdefault(account.at(self.marketplace.base_url).fingerprint, account.name)
            if other != account.name:
                raise ValueError(say("config.same_secrets", one=repr(other), other=repr(account.name)))
        return self


def shown(settings: Settings) -> dict[str, Any]:
    """The effective configuration as plain values, secrets as `***`. `settings.source.origins` says who set what."""
    values: dict[str, Any] = settings.model_dump(mode="json")  # SecretStr comes out as asterisks
    for account in values["accounts"]:
        account.update(dict.fromkeys(keys.SECRETS, "***"))
    if settings.fleet.master_key is not None:
        values["fleet"]["master_key"] = "***"
    values["database"]["url"] = without_password(settings.database.url)
    if settings.alarms.ping_url is not None:
        values["alarms"]["ping_url"] = "***"
    return values
