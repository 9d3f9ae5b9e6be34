"""Reads and decrypts the accounts in the database; account_changes.py writes them.

Rules of this file:

- A row that cannot be decrypted, or is invalid, affects only itself: it is reported with a `Fault`.
- The version is read before the rows. Each change raises it in its own transaction, one after another. So a reader with
  a version has seen all changes up to it, and may see a later one twice.
- A removed account stays as a row without secrets, so that readers of changes notice it.
- Settings are encrypted with AES-GCM and a random nonce, with a key derived from a master key.
- The ciphertext is bound to the account's name.
"""

import base64
import binascii
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from sqlalchemy import Connection, func, literal_column, or_, select

from orderbridge.config import Account
from orderbridge.config.keys import SECRETS
from orderbridge.errors import Unusable
from orderbridge.store.own_tables import ENABLED, account_settings, alarms, fleet, lamp
from orderbridge.store.rows import batches, in_list
from orderbridge.store.tables import OPEN, accounts, actions, orders, restaurants, unfinished

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

NONCE_BYTES = 12
CIPHER_KEY_BYTES = 32
ID_DIGITS = 16


class Fault(StrEnum):
    """Why an account's row cannot be used. `accounts.fault` has the sentences."""

    KEY_UNKNOWN = "key_unknown"  # encrypted with an unknown master key
    DAMAGED = "damaged"  # cut, altered, or of another account
    WRONG = "wrong"  # decrypted, but not a valid account
    SAME_SECRETS = "same_secrets"  # as an account that was read before


class MasterKeys:
    """The master keys. The first one encrypts, all of them decrypt."""

    def __init__(self, keys: Iterable[bytes]) -> None:
        self._keys = {key_id(key): key for key in keys}
        self._ciphers: dict[str, AESGCM] = {}

    @property
    def ids(self) -> tuple[str, ...]:
        """The public ids of the keys, in order."""
        return tuple(self._keys)

    def seal(self, name: str, plain: bytes) -> tuple[str, str]:
        """Encrypt. Returns the text and the id of the key."""
        first = next(iter(self._keys))
        nonce = os.urandom(NONCE_BYTES)
        sealed = self._cipher(first).encrypt(nonce, plain, _bound_to(name))
        return base64.b64encode(nonce + sealed).decode(), first

    def open(self, name: str, sealed: str | None, by: str | None) -> bytes | Fault:
        """Decrypt the text of this account with the key of this id."""
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - see store.accounts.Vault

        if by not in self._keys:
            return Fault.KEY_UNKNOWN
        try:
            kept = base64.b64decode(sealed or "", validate=True)
            return self._cipher(by).decrypt(kept[:NONCE_BYTES], kept[NONCE_BYTES:], _bound_to(name))
        except (binascii.Error, ValueError, InvalidTag):
            return Fault.DAMAGED

    def _cipher(self, chosen: str) -> "AESGCM":
        if chosen not in self._ciphers:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - as above
            from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415
            from cryptography.hazmat.primitives.kdf.hkdf import HKDF  # noqa: PLC0415

            derived = HKDF(algorithm=SHA256(), length=CIPHER_KEY_BYTES, salt=None, info=b"orderbridge accounts v1")
            self._ciphers[chosen] = AESGCM(derived.derive(self._keys[chosen]))
        return self._ciphers[chosen]


def key_id(key: bytes) -> str:
    """The public id of a master key."""
    return hashlib.sha256(b"orderbridge master key v1\0" + key).hexdigest()[:ID_DIGITS]


def _bound_to(name: str) -> bytes:
    return f"orderbridge account settings v1\0{name}".encode()


OPTIONS = ("auto_accept_minutes", "auto_accept_steps", "auto_accept_scheduled", "restaurants")
STATE = ("state", "last_poll_utc", "last_poll_ok_utc", "last_error")
_LISTED = account_settings.c["name", "fingerprint", "key_id", "enabled", "changed_utc"]
_LAMP = lamp.c["account", "lamp", "since_utc", "code", "sentence", "remedy"]
_PROBLEM = alarms.c["account", "severity", "level", "since_utc", "code", "cause", "remedy"]
_READ = account_settings.c["name", "sealed", "key_id", "enabled", "fingerprint"]
_ROWS = select(*_READ).order_by(account_settings.c.name)


@dataclass(frozen=True, slots=True)
class Loaded:
    """Accounts by name: enabled ones, `broken` ones with the reason, and `gone` (disabled or removed) ones.

    `elsewhere`: how many were stored for another address of the marketplace.
    """

    accounts: tuple[Account, ...]
    version: int
    broken: Mapping[str, Fault] = field(default_factory=dict)
    gone: frozenset[str] = frozenset()
    elsewhere: int = 0


def version(connection: Connection) -> int:
    """The version, which grows with each change of an account; 0 before the first."""
    return connection.execute(select(fleet.c.accounts_version)).scalar() or 0


def refuse_strange(connection: Connection, keys: MasterKeys) -> None:
    """Raise Unusable if these keys decrypt no account: such a replica would block its share of accounts."""
    query = select(account_settings.c.key_id).where(account_settings.c.sealed.is_not(None)).distinct()
    used = set(connection.scalars(query))
    if used and used.isdisjoint(keys.ids):
        raise Unusable("fleet.strange_key")


def read(connection: Connection, keys: MasterKeys, base_url: str, *, since: int | None = None) -> Loaded:
    """Read all accounts or, with a version in `since`, only those that changed after it."""
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
    """The enabled accounts by name, decrypted lazily."""
    for row in connection.execute(_ROWS.where(account_settings.c.enabled == ENABLED)):
        account = opened(keys, row.name, row.sealed, row.key_id)
        yield row.name, account if isinstance(account, Fault) else account.at(base_url)


def opened(keys: MasterKeys, name: str, sealed: str | None, by: str | None) -> Account | Fault:
    """The account of one row, without a fingerprint yet."""
    plain = keys.open(name, sealed, by)
    if isinstance(plain, Fault):
        return plain
    try:
        return Account(**{**json.loads(plain), "name": name})
    except (ValueError, TypeError, ValidationError):  # its text has the secrets in it
        return Fault.WRONG


def plain_of(account: Account) -> dict[str, Any]:
    """The values to encrypt: the secrets, and the options that differ from their defaults."""
    options = account.model_dump(mode="json", include=set(OPTIONS), exclude_defaults=True)
    return {key: getattr(account, key).get_secret_value() for key in SECRETS} | options


def sealed(keys: MasterKeys, account: Account) -> tuple[str, str]:
    """The encrypted values, and the id of the key."""
    plain = json.dumps(plain_of(account), ensure_ascii=False, sort_keys=True)
    return keys.seal(account.name, plain.encode())


# ---- without secrets, for people -------------------------------------------------------------------------------------


def listed(connection: Connection) -> list[dict[str, Any]]:
    """The accounts that are not removed, by name: name, fingerprint, key_id, enabled, changed_utc."""
    query = select(*_LISTED).where(account_settings.c.sealed.is_not(None)).order_by(account_settings.c.name)
    return [dict(row) for row in connection.execute(query).mappings()]


def sealed_texts(connection: Connection, names: Iterable[str]) -> dict[str, tuple[str | None, str | None]]:
    """The encrypted texts and key ids of these accounts, without unknown and removed ones."""
    query = select(account_settings.c.name, account_settings.c.sealed, account_settings.c.key_id).where(
        in_list(account_settings.c.name), account_settings.c.sealed.is_not(None)
    )
    found = (row for some in batches(names) for row in connection.execute(query, {"wanted": some}))
    return {row.name: (row.sealed, row.key_id) for row in found}


def states(connection: Connection) -> dict[str, dict[str, Any]]:
    """The poll states by fingerprint: the columns of STATE."""
    rows = connection.execute(select(*accounts.c["fingerprint", *STATE])).mappings()
    return {row["fingerprint"]: {name: row[name] for name in STATE} for row in rows}


def since(connection: Connection) -> dict[str, datetime]:
    """When enabled accounts were last changed."""
    query = select(account_settings.c.name, account_settings.c.changed_utc)
    return {row.name: row.changed_utc for row in connection.execute(query.where(account_settings.c.enabled == ENABLED))}


def lamps(connection: Connection) -> Sequence[Any]:
    """What the view delivery_lamp shows: account, lamp, since_utc, code, sentence, remedy."""
    return connection.execute(select(*_LAMP)).all()


def problems(connection: Connection) -> Sequence[Any]:
    """Open problems of one account each: account, severity, level, since_utc, code, cause, remedy."""
    return connection.execute(select(*_PROBLEM).where(alarms.c.account.is_not(None))).all()


def work(connection: Connection, name: str) -> tuple[int, int]:
    """The numbers of the account's open orders and of its unfinished outbox rows."""
    is_open = select(func.count()).where(literal_column(OPEN), orders.c.account == name)
    of_order = select(orders.c.payment_key).where(
        orders.c.payment_key == actions.c.payment_key, orders.c.account == name
    )
    of_restaurant = select(restaurants.c.id).where(
        restaurants.c.id == actions.c.restaurant_id, restaurants.c.account == name
    )
    concerns = or_(actions.c.account == name, of_order.exists(), of_restaurant.exists())
    waits = select(func.count()).select_from(actions).where(unfinished, concerns)
    return connection.execute(is_open).scalar_one(), connection.execute(waits).scalar_one()
