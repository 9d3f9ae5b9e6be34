"""Adds, changes, enables, disables, removes and re-encrypts the accounts in the database.

Rules of this file:

- Each change locks the version first (store.accounts).
- An unchanged account is not written, and the version stays.
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, select

from orderbridge.config import Account
from orderbridge.store.accounts import CHANGE, ROWS, lock_version, write
from orderbridge.store.own_tables import DISABLED, ENABLED, account_settings
from orderbridge.store.rows import batches, in_list
from orderbridge_fleet.account_settings import Fault, MasterKeys, opened, plain_of, sealed

RESEALED_AT_ONCE = 500
_NAMED = ROWS.where(in_list(account_settings.c.name))


@dataclass(frozen=True, slots=True)
class Put:
    """The names of accounts by result. `taken`: accounts that already use these secrets; then nothing was written."""

    added: tuple[str, ...] = ()
    altered: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    taken: Mapping[str, str] | None = None


def put(connection: Connection, keys: MasterKeys, accounts: Collection[Account], now: datetime) -> Put:
    """Add or change these accounts. New and removed ones are enabled; others stay enabled or disabled."""
    version = lock_version(connection) + 1
    if users := taken(connection, accounts):
        return Put(taken=users)
    rows = {row.name: row for row in connection.execute(ROWS)}
    wanted = [one for one in accounts if not _is_stored(keys, rows.get(one.name), one)]
    new, changed = [], []
    for account in wanted:
        row = rows.get(account.name)
        text, by = sealed(keys, account)
        values = {"fingerprint": account.fingerprint, "sealed": text, "key_id": by, "version": version}
        values |= {"changed_utc": now, "enabled": ENABLED if row is None or row.sealed is None else row.enabled}
        if row is None:
            new.append({"name": account.name, **values})
        else:
            changed.append({"mine": account.name, **values})
    write(connection, version, new, changed)
    before = {name for name, row in rows.items() if row.sealed is not None}
    touched = {one.name for one in wanted}
    return Put(
        tuple(one.name for one in wanted if one.name not in before),
        tuple(one.name for one in wanted if one.name in before),
        tuple(one.name for one in accounts if one.name not in touched),
    )


def taken(connection: Connection, accounts: Collection[Account]) -> dict[str, str]:
    """The accounts whose secrets another account uses, with its name. Locked until this transaction ends."""
    lock_version(connection)
    users = _users(connection, [one.fingerprint for one in accounts])
    return {one.name: user for one in accounts if (user := users.get(one.fingerprint, one.name)) != one.name}


def _is_stored(keys: MasterKeys, row: Any, account: Account) -> bool:
    if row is None or row.fingerprint != account.fingerprint:
        return False
    there = opened(keys, row.name, row.sealed, row.key_id)
    return not isinstance(there, Fault) and plain_of(there) == plain_of(account)


def enable(connection: Connection, names: Sequence[str], now: datetime, *, enabled: bool) -> list[str]:
    """Enable or disable accounts. Returns those that changed. Unknown and removed names are skipped."""
    version = lock_version(connection) + 1
    rows = _named(connection, names)
    state = ENABLED if enabled else DISABLED
    wanted = [row.name for row in rows if row.sealed is not None and row.enabled != state]
    values = {"enabled": state, "version": version, "changed_utc": now}
    write(connection, version, [], [{"mine": name, **values} for name in wanted])
    return wanted


def remove(connection: Connection, names: Sequence[str], now: datetime) -> list[str]:
    """Remove accounts with their secrets. Returns those that existed. Their names stay for readers of changes."""
    version = lock_version(connection) + 1
    there = [row.name for row in _named(connection, names) if row.sealed is not None]
    values = {"sealed": None, "key_id": None, "enabled": DISABLED, "version": version, "changed_utc": now}
    # A fingerprint that no secrets have, so that these secrets can be added again, also under another name.
    void = {name: hashlib.sha256(f"removed {name}".encode()).hexdigest() for name in there}
    write(connection, version, [], [{"mine": name, "fingerprint": void[name], **values} for name in there])
    return there


@dataclass(frozen=True, slots=True)
class Resealed:
    """The result for some rows. `last`: the name to continue after; None: all are done."""

    last: str | None
    anew: int
    already: int
    broken: Mapping[str, Fault]


def reseal(connection: Connection, keys: MasterKeys, base_url: str, after: str = "") -> Resealed:
    """Encrypt some rows again with the first key, and update their fingerprints for this address.

    The accounts themselves do not change, so the version stays.
    """
    lock_version(connection)
    page = ROWS.where(account_settings.c.name > after).order_by(account_settings.c.name).limit(RESEALED_AT_ONCE)
    rows = connection.execute(page).all()
    found = {row.name: opened(keys, row.name, row.sealed, row.key_id) for row in rows if row.sealed is not None}
    broken = {name: account for name, account in found.items() if isinstance(account, Fault)}
    good = {name: account.at(base_url) for name, account in found.items() if isinstance(account, Account)}
    users = _users(connection, [account.fingerprint for account in good.values()])
    changed = []
    already = 0
    for row in rows:
        if row.name not in good:
            continue
        account = good[row.name]
        if users.setdefault(account.fingerprint, row.name) != row.name:
            broken[row.name] = Fault.SAME_SECRETS
        elif row.key_id == keys.ids[0] and row.fingerprint == account.fingerprint:
            already += 1
        else:
            text, by = sealed(keys, account)
            changed.append({"mine": row.name, "sealed": text, "key_id": by, "fingerprint": account.fingerprint})
    if changed:
        connection.execute(CHANGE, changed)
    last = rows[-1].name if len(rows) == RESEALED_AT_ONCE else None
    return Resealed(last, len(changed), already, broken)


def _users(connection: Connection, fingerprints: Iterable[str]) -> dict[str, str]:
    """The names of the accounts with these fingerprints."""
    query = select(account_settings.c.fingerprint, account_settings.c.name).where(
        in_list(account_settings.c.fingerprint)
    )
    found = (row for some in batches(fingerprints) for row in connection.execute(query, {"wanted": some}))
    return {row.fingerprint: row.name for row in found}


def _named(connection: Connection, names: Iterable[str]) -> list[Any]:
    return [row for some in batches(names) for row in connection.execute(_NAMED, {"wanted": some})]
