"""The accounts in the database as people look at them: who there is, how each was last polled, what is open. No secret."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, func, literal_column, or_, select

from orderbridge.store.own_tables import ENABLED, account_settings, alarms, lamp
from orderbridge.store.rows import batches, in_list
from orderbridge.store.tables import OPEN, accounts, actions, orders, restaurants, unfinished

_SETTINGS = (
    select(
        account_settings.c.name,
        account_settings.c.fingerprint,
        account_settings.c.key_id,
        account_settings.c.enabled,
        account_settings.c.changed_utc,
    )
    .where(account_settings.c.sealed.is_not(None))
    .order_by(account_settings.c.name)
)
_ENABLED = select(account_settings.c.fingerprint, account_settings.c.name, account_settings.c.changed_utc).where(
    account_settings.c.enabled == ENABLED
)
_STATES = select(
    accounts.c.fingerprint,
    accounts.c.state,
    accounts.c.last_poll_utc,
    accounts.c.last_poll_ok_utc,
    accounts.c.last_error,
)
_LAMPS = select(lamp.c.account, lamp.c.lamp, lamp.c.since_utc, lamp.c.code, lamp.c.sentence, lamp.c.remedy)
_TOLD = select(
    alarms.c.account,
    alarms.c.severity,
    alarms.c.level,
    alarms.c.since_utc,
    alarms.c.code,
    alarms.c.cause,
    alarms.c.remedy,
).where(alarms.c.account.is_not(None))
STATE = tuple(column.name for column in _STATES.selected_columns if column.name != "fingerprint")


def listed(connection: Connection) -> list[dict[str, Any]]:
    """All that are not removed, by name: name, fingerprint, key_id, enabled, changed_utc."""
    return [dict(row) for row in connection.execute(_SETTINGS).mappings()]


def sealed(connection: Connection, names: Iterable[str]) -> dict[str, tuple[str | None, str | None]]:
    """What is sealed of these, and by which key; none of those that are not there, or were removed."""
    query = select(account_settings.c.name, account_settings.c.sealed, account_settings.c.key_id).where(
        in_list(account_settings.c.name), account_settings.c.sealed.is_not(None)
    )
    found = (row for some in batches(names) for row in connection.execute(query, {"wanted": some}))
    return {row.name: (row.sealed, row.key_id) for row in found}


def states(connection: Connection) -> dict[str, dict[str, Any]]:
    """How each pair of secrets was last polled, by fingerprint: the columns of STATE."""
    return {row["fingerprint"]: dict(row) for row in connection.execute(_STATES).mappings()}


def since(connection: Connection) -> dict[str, datetime]:
    """When those that are to be polled were last changed."""
    return {row.name: row.changed_utc for row in connection.execute(_ENABLED)}


def lamps(connection: Connection) -> Sequence[Any]:
    """What the view delivery_lamp shows: account, lamp, since_utc, code, sentence, remedy."""
    return connection.execute(_LAMPS).all()


def told(connection: Connection) -> Sequence[Any]:
    """Open problems of one account each: account, severity, level, since_utc, code, cause, remedy."""
    return connection.execute(_TOLD).all()


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
