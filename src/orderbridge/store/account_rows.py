"""The rows of the accounts in the database. Their secrets only the fleet's package opens.

Each change locks the row of delivery_fleet to its commit, so that changes come one after another, and raises its version.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select, update

from orderbridge.store.own_tables import ENABLED, HELD, account_settings, fleet

ROWS = select(account_settings)
CHANGE = update(account_settings).where(account_settings.c.name == bindparam("mine"))
_ENABLED = select(account_settings.c.fingerprint, account_settings.c.name, account_settings.c.version).where(
    account_settings.c.enabled == ENABLED
)


def versions(connection: Connection) -> dict[str, int]:
    """With which version each account was changed last, by name, removed ones too."""
    rows = connection.execute(select(account_settings.c.name, account_settings.c.version))
    return {row.name: row.version for row in rows}


def enabled(connection: Connection) -> dict[str, str]:
    """The names of those that are to be polled, by fingerprint."""
    return {row.fingerprint: row.name for row in connection.execute(_ENABLED)}


def is_there(connection: Connection, name: str) -> bool:
    """Whether an account has this name and was not removed."""
    query = ROWS.where(account_settings.c.name == name, account_settings.c.sealed.is_not(None))
    return connection.execute(query).first() is not None


def hold(connection: Connection, mark: Mapping[str, int], above: int, now: datetime) -> tuple[str, ...]:
    """The tables are an older copy: enabled accounts that the mark knows otherwise are not polled until `release`."""
    version = max(lock_version(connection), above) + 1
    rows = {row.name: row.version for row in connection.execute(_ENABLED)}
    names = sorted(name for name, there in rows.items() if mark.get(name) != there)
    values = {"enabled": HELD, "version": version, "changed_utc": now}
    write(connection, version, [], [{"mine": name, **values} for name in names])
    return tuple(names)


def held(connection: Connection) -> tuple[str, ...]:
    """The accounts that wait for `release`."""
    found = select(account_settings.c.name).where(account_settings.c.enabled == HELD).order_by(account_settings.c.name)
    return tuple(connection.execute(found).scalars())


def release(connection: Connection, now: datetime) -> tuple[str, ...]:
    """A person has compared them: they are polled again."""
    version = lock_version(connection) + 1
    names = held(connection)
    values = {"enabled": ENABLED, "version": version, "changed_utc": now}
    write(connection, version, [], [{"mine": name, **values} for name in names])
    return names


def lock_version(connection: Connection) -> int:
    """The version; nobody else changes an account until this transaction is over."""
    found = connection.execute(select(fleet.c.accounts_version).with_for_update()).scalar()
    if found is None:  # somebody has emptied the table
        connection.execute(insert(fleet).values(id=1))
    return found or 0


def write(connection: Connection, version: int, new: Sequence[Any], changed: Sequence[Any]) -> None:
    """Add and change these rows, if any, and raise the version."""
    if not new and not changed:
        return
    if changed:
        connection.execute(CHANGE, changed)
    if new:
        connection.execute(insert(account_settings), new)
    connection.execute(update(fleet).values(accounts_version=version))
