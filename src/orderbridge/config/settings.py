"""The whole configuration: checks across tables, its source, its output without secrets, and its warnings.

Constructing `Settings` reads no file and no variable, so tests do not depend on the machine.
"""

import os
import shutil
import threading
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from stat import S_IROTH
from typing import Any, Literal, Self

from pydantic import Field, PrivateAttr, ValidationInfo, field_validator, model_validator

from orderbridge.config import keys
from orderbridge.config.addresses import sqlite_file, without_password
from orderbridge.mounts import is_mounted_alone
from orderbridge.texts import say

PREFIX = "ORDERBRIDGE_"
MAX_SHEBANG = 256
TEST_S = 2.0  # timeout for a folder that may be on another machine


@dataclass(frozen=True, slots=True)
class Source:
    """The file of a configuration, and the origins of its other keys.

    `warnings`: sentences for a technician about settings that work but should be changed.
    `origins`: the variable or secret file that set a key (accounts[0].name).
    `without_secrets`: the accounts with unreadable secrets; commands that need no secrets still work (config.load).
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
        """The source of the settings; empty if they were constructed directly."""
        return self._source

    @property
    def secret_files(self) -> list[Path]:
        """The secret files of the accounts, and the master key file."""
        files = [file for one in self.accounts for file in (one.app_secret_key_file, one.rest_secret_key_file)]
        return [file for file in (*files, self.fleet.master_key_file) if file]

    @property
    def journal(self) -> Path | None:
        """The folder of acknowledged documents, by default beside a SQLite file; None if there is none."""
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
        """The entry points of the extensions that this configuration needs."""
        needed = {"board": self.web.board != "off", "fleet": self.fleet.from_database}
        return tuple(name for name, is_needed in needed.items() if is_needed)

    @property
    def default_account(self) -> str | None:
        """The name of the account for actions without one: the configured default, or the only account."""
        is_alone = len(self.accounts) == 1 and not self.fleet.from_database
        chosen = [account.name for account in self.accounts if account.default or is_alone]
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
        """Refuse a board for a fleet: it would show each restaurant the orders of all others."""
        if value.board != "off" and "fleet" in info.data and info.data["fleet"].from_database:
            raise ValueError(say("config.fleet_board"))
        return value

    @model_validator(mode="after")
    def _check_fingerprints(self) -> Self:
        """Refuse two accounts with one fingerprint: they would share a cooldown and each other's orders."""
        names: dict[str, str] = {}
        for account in self.accounts:
            other = names.setdefault(account.at(self.marketplace.base_url).fingerprint, account.name)
            if other != account.name:
                raise ValueError(say("config.same_secrets", one=repr(other), other=repr(account.name)))
        return self


def shown(settings: Settings) -> dict[str, Any]:
    """The effective configuration as plain values, with secrets as `***`."""
    values: dict[str, Any] = settings.model_dump(mode="json")  # SecretStr becomes asterisks
    for account in values["accounts"]:
        account.update(dict.fromkeys(keys.SECRETS, "***"))
    if settings.fleet.master_key is not None:
        values["fleet"]["master_key"] = "***"
    values["database"]["url"] = without_password(settings.database.url)
    if settings.alarms.ping_url is not None:
        values["alarms"]["ping_url"] = "***"
    return values


# ---- warnings --------------------------------------------------------------------------------------------------------


def warnings_of(settings: Settings, file: Path | None, *, holds_secrets: bool) -> Iterator[str]:
    """The warnings, as sentences. `file` is the configuration's."""
    if file and holds_secrets and _is_open(file):
        yield say("config.open_file", file=file)
    if file and is_mounted_alone(str(file)):
        yield say("config.mounted_alone", file=file, folder=file.parent)
    key = settings.web.certificate_key
    for secret_file in dict.fromkeys([*settings.secret_files, *([key] if key else [])]):
        if _is_open(secret_file):
            yield say("config.open_secret", file=secret_file)
    if (kept := sqlite_file(settings.database.url)) and _is_open(kept) and not kept.is_dir():
        yield say("config.open_database", file=kept)
    for account in settings.accounts:
        for name, secret in zip(keys.SECRETS, (account.app_secret_key, account.rest_secret_key), strict=True):
            yield from _strange(account.name, name, secret.get_secret_value())
    if settings.alarms.command and (fault := _fault(settings.alarms.command[0])):
        yield fault
    if settings.orders.journal != "auto" and settings.journal and not _can_be_written(settings.journal):
        yield say("config.journal_closed", folder=settings.journal)


def _strange(account: str, key: str, secret: str) -> Iterator[str]:
    """Warn of an invisible character that copying from a mail or a phone may add; a login with it is refused."""
    for place, character in enumerate(secret, 1):
        if not character.isascii():
            name = unicodedata.name(character, f"U+{ord(character):04X}")
            yield say("config.strange_secret", account=account, secret=key, place=place, name=name)
            return


def _can_be_written(folder: Path) -> bool:
    """Whether the folder, or its parent if it is missing, is writable. False after TEST_S on a disk that hangs."""

    def test() -> None:
        here = folder if os.path.lexists(folder) else folder.parent
        found.append(os.access(here, os.W_OK | os.X_OK) and here.is_dir())

    found: list[bool] = []
    testing = threading.Thread(target=test, daemon=True)
    testing.start()
    testing.join(TEST_S)
    return found == [True]


def _fault(program: str) -> str | None:
    """Why the alarm command cannot run, or None. Without this check only the first alarm would show it."""
    found = Path(program) if os.sep in program else Path(shutil.which(program) or "/nowhere")
    if not found.exists():
        return say("config.alarm_missing", program=program)
    if found.is_dir() or not os.access(found, os.X_OK):
        return say("config.alarm_closed", program=program)
    named = _interpreter(found)
    if named and not Path(named).exists():
        return say("config.alarm_interpreter", program=program, named=named.strip())
    return None


def _interpreter(script: Path) -> str:
    """The interpreter in the script's first line, with a carriage return from Windows; "" if it is not a script."""
    try:
        with script.open("rb") as file:
            first = file.readline(MAX_SHEBANG)
    except OSError:  # executable but not readable
        return ""
    named = first.removeprefix(b"#!").rstrip(b"\n").strip(b" \t").partition(b" ")[0]
    return named.decode(errors="replace") if first.startswith(b"#!") else ""


def _is_open(file: Path) -> bool:
    """Whether every user may read the file. False if it cannot be examined: opening it will report that."""
    try:
        return bool(file.stat().st_mode & S_IROTH)
    except OSError:
        return False
