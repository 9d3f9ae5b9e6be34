"""The accounts in the database, as the daemon reads them. account_changes.py writes them.

Rules of this file:
- A row that cannot be opened, or is wrong, harms only itself: it is named, with a `Fault`.
- The version is read before the rows. Each change of a row brings a higher one in its own transaction, one after another:
  who has seen a version has seen every change up to it, and may meet a later one twice.
- What was removed stays as a row without a secret, so that who reads only what changed hears of it.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError
from sqlalchemy import Connection, select

from orderbridge.config import Account
from orderbridge.config.keys import SECRETS
from orderbridge.errors import Unusable
from orderbridge.store.own_tables import ENABLED, account_settings, fleet
from orderbridge_fleet.sealing import Fault, MasterKeys

OPTIONS = ("auto_accept_minutes", "auto_accept_scheduled", "restaurants")
_READ = account_settings.c["name", "sealed", "key_id", "enabled", "fingerprint"]
_ROWS = select(*_READ).order_by(account_settings.c.name)


@dataclass(frozen=True, slots=True)
class Loaded:
    """`accounts`: enabled ones. `broken`: enabled, and why not usable. `gone`: disabled or removed. All by name.

    `elsewhere`: how many of them were noted with another address of the service.
    """

    accounts: tuple[Account, ...]
    version: int
    broken: Mapping[str, Fault] = field(default_factory=dict)
    gone: frozenset[str] = frozenset()
    elsewhere: int = 0


def version(connection: Connection) -> int:
    """It grows with each change of an account; 0: there has been none."""
    return connection.execute(select(fleet.c.accounts_version)).scalar() or 0


def refuse_strange(connection: Connection, keys: MasterKeys) -> None:
    """Raise Unusable where these open no account at all: such a replica would keep its share from all others."""
    query = select(account_settings.c.key_id).where(account_settings.c.sealed.is_not(None)).distinct()
    used = set(connection.scalars(query))
    if used and used.isdisjoint(keys.ids):
        raise Unusable("fleet.strange_key")


def read(connection: Connection, keys: MasterKeys, base_url: str, *, since: int | None = None) -> Loaded:
    """All accounts; with `since`, a version, what has changed after it, and nothing of the others."""
    seen = version(connection)
    query = _ROWS if since is None else _ROWS.where(account_settings.c.version > since)
    found: dict[str, Account] = {}  # by fingerprint
    broken: dict[str, Fault] = {}
    gone = set()
    elsewhere = 0
    for name, sealed, by, enabled, noted in connection.execute(query):
        if enabled != ENABLED:
            gone.add(name)
            continue
        account = opened(keys, name, sealed, by)
        if isinstance(account, Fault):
            broken[name] = account
        elif found.setdefault(fingerprint := account.at(base_url).fingerprint, account) is not account:
            broken[name] = Fault.SAME_SECRETS
        else:
            elsewhere += fingerprint != noted
    return Loaded(tuple(found.values()), seen, broken, frozenset(gone), elsewhere)


def enabled_ones(connection: Connection, keys: MasterKeys, base_url: str) -> Iterator[tuple[str, Account | Fault]]:
    """By name, each opened when it is asked for: who needs a few opens no more."""
    for row in connection.execute(_ROWS.where(account_settings.c.enabled == ENABLED)):
        account = opened(keys, row.name, row.sealed, row.key_id)
        yield row.name, account if isinstance(account, Fault) else account.at(base_url)


def opened(keys: MasterKeys, name: str, sealed: str | None, by: str | None) -> Account | Fault:
    """The account of one row, which does not know its service's address yet."""
    plain = keys.open(name, sealed, by)
    if isinstance(plain, Fault):
        return plain
    try:
        return Account(**{**json.loads(plain), "name": name})
    except (ValueError, TypeError, ValidationError):  # its text has the secrets in it
        return Fault.WRONG


def plain_of(account: Account) -> dict[str, Any]:
    """What is sealed of an account: its secrets, and the options that are not as they are by themselves."""
    options = account.model_dump(mode="json", include=set(OPTIONS), exclude_defaults=True)
    return {key: getattr(account, key).get_secret_value() for key in SECRETS} | options


def sealed(keys: MasterKeys, account: Account) -> tuple[str, str]:
    """The text, and the id of the key that sealed it."""
    plain = json.dumps(plain_of(account), ensure_ascii=False, sort_keys=True)
    return keys.seal(account.name, plain.encode())
