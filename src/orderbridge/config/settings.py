"""The whole configuration: what holds across its tables, where it came from, how it is shown, and its warnings.

Making settings reads no file and no variable: settings made by hand, as in a test, do not depend on the machine.
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
LONGEST_SHEBANG = 256
TEST_S = 2.0  # for a folder that may lie on another machine


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


# ---- what works and should be changed ---------------------------------------------------------------------------------


def noticed(settings: Settings, file: Path | None, *, holds_secrets: bool) -> Iterator[str]:
    """A sentence for each. `file`: the configuration."""
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
    """A character that a copy from a letter or a phone brings along, and that is invisible: the login would be refused."""
    for place, character in enumerate(secret, 1):
        if not character.isascii():
            name = unicodedata.name(character, f"U+{ord(character):04X}")
            yield say("config.strange_secret", account=account, secret=key, place=place, name=name)
            return


def _can_be_written(folder: Path) -> bool:
    """A folder that is not there is made, and the one around it is not. A disk that hangs holds up no start."""

    def test() -> None:
        here = folder if os.path.lexists(folder) else folder.parent
        found.append(os.access(here, os.W_OK | os.X_OK) and here.is_dir())

    found: list[bool] = []
    testing = threading.Thread(target=test, daemon=True)
    testing.start()
    testing.join(TEST_S)
    return found == [True]


def _fault(program: str) -> str | None:
    """Why it would reach no one. Else that shows with the first alarm, at night."""
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
    """What its first line names, with the carriage return of a file from Windows; "": it is no script."""
    try:
        with script.open("rb") as file:
            first = file.readline(LONGEST_SHEBANG)
    except OSError:  # may be run and not read
        return ""
    named = first.removeprefix(b"#!").rstrip(b"\n").strip(b" \t").partition(b" ")[0]
    return named.decode(errors="replace") if first.startswith(b"#!") else ""


def _is_open(file: Path) -> bool:
    """Whether every user may read it. What may not be examined is reported when it is opened."""
    try:
        return bool(file.stat().st_mode & S_IROTH)
    except OSError:
        return False
