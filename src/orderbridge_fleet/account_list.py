"""The accounts in the database as people look at them: who there is, how each was last polled, what is open. No secret."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, func, literal_column, or_, select

from orderbridge.store.own_tables import ENABLED, account_settings, alarms, lamp
from orderbridge.store.rows import batches, in_list
from orderbridge.store.tables import OPEN, accounts, actions, orders, restaurants, unfinished

STATE = ("state", "last_poll_utc", "last_poll_ok_utc", "last_error")
_LISTED = account_settings.c["name", "fingerprint", "key_id", "enabled", "changed_utc"]
_LAMP = lamp.c["account", "lamp", "since_utc", "code", "sentence", "remedy"]
_PROBLEM = alarms.c["account", "severity", "level", "since_utc", "code", "cause", "remedy"]


def listed(connection: Connection) -> list[dict[str, Any]]:
    """All that are not removed, by name: name, fingerprint, key_id, enabled, changed_utc."""
    query = select(*_LISTED).where(account_settings.c.sealed.is_not(None)).order_by(account_settings.c.name)
    return [dict(row) for row in connection.execute(query).mappings()]


def sealed(connection: Connection, names: Iterable[str]) -> dict[str, tuple[str | None, str | None]]:
    """What is sealed of these, and by which key; none of those that are not there, or were removed."""
    query = select(account_settings.c.name, account_settings.c.sealed, account_settings.c.key_id).where(
        in_list(account_settings.c.name), account_settings.c.sealed.is_not(None)
    )
    found = (row for some in batches(names) for row in connection.execute(query, {"wanted": some}))
    return {row.name: (row.sealed, row.key_id) for row in found}


def states(connection: Connection) -> dict[str, dict[str, Any]]:
    """How each pair of secrets was last polled, by fingerprint: the columns of STATE."""
    rows = connection.execute(select(*accounts.c["fingerprint", *STATE])).mappings()
    return {row["fingerprint"]: dict(row) for row in rows}


def since(connection: Connection) -> dict[str, datetime]:
    """When those that are to be polled were last changed."""
    query = select(account_settings.c.name, account_settings.c.changed_utc)
    return {row.name: row.changed_utc for row in connection.execute(query.where(account_settings.c.enabled == ENABLED))}


def lamps(connection: Connection) -> Sequence[Any]:
    """What the view delivery_lamp shows: account, lamp, since_utc, code, sentence, remedy."""
    return connection.execute(select(*_LAMP)).all()


def problems(connection: Connection) -> Sequence[Any]:
    """Open problems of one account each: account, severity, level, since_utc, code, cause, remedy."""
    return connection.execute(select(*_PROBLEM).where(alarms.c.account.is_not(None))).all()


def work(connection: Connection, name: str) -> tuple[int, int]:
    """How many orders of this account are open, and how many outbox rows without a verdict concern it."""
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
