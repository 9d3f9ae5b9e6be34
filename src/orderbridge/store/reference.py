"""The lists that change rarely: restaurants and their status, cancel reasons, payment and shipping methods."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from sqlalchemy import Connection, Table, delete, insert, select, update

from orderbridge.model import CancelReason, Method, Restaurant, Variables
from orderbridge.store.tables import cancel_reasons, payment_methods, restaurants, shipping_methods

# docs/interface.md, Payment and shipping methods.
USUAL_PAYMENT_METHODS = {
    "Nakit": "CASH",
    "Kredi Kartı (pre-paid)": "CREDIT_CARD",
    "Banka Kartı (pre-paid)": "DEBIT_CARD",
}


def replace_restaurants(connection: Connection, account: str, found: Iterable[Restaurant]) -> None:
    """The restaurants that an account reaches. The ones that stay keep their status."""
    listed = {one.id: {"name": one.name, "service_id": one.service_id} for one in found}
    mine = restaurants.c.account == account
    known = set(connection.execute(select(restaurants.c.id).where(mine)).scalars())
    if gone := known - listed.keys():
        connection.execute(delete(restaurants).where(mine, restaurants.c.id.in_(gone)))
    for key in known & listed.keys():
        connection.execute(update(restaurants).where(mine, restaurants.c.id == key).values(**listed[key]))
    if new := sorted(listed.keys() - known):
        connection.execute(insert(restaurants), [{"account": account, "id": key, **listed[key]} for key in new])


def set_restaurant_status(connection: Connection, account: str, key: str, status: str, now: datetime) -> None:
    """`Open` or `Closed`, as the service said it at that time."""
    connection.execute(
        update(restaurants)
        .where(restaurants.c.account == account, restaurants.c.id == key)
        .values(status=status, status_utc=now)
    )


def restaurant_accounts(connection: Connection) -> dict[str, list[str]]:
    """Which accounts reach a restaurant."""
    found: dict[str, list[str]] = {}
    for row in connection.execute(select(restaurants.c.id, restaurants.c.account).order_by(restaurants.c.account)):
        found.setdefault(row.id, []).append(row.account)
    return found


def restaurants_of(connection: Connection, account: str) -> dict[str, str]:
    """From each restaurant's id to the one that the service calls it by."""
    query = select(restaurants.c.id, restaurants.c.service_id).where(restaurants.c.account == account)
    return {row.id: row.service_id or row.id for row in connection.execute(query.order_by(restaurants.c.id))}


def replace_cancel_reasons(connection: Connection, found: Sequence[CancelReason]) -> None:
    """The whole list anew; an empty answer leaves the old one."""
    if found:
        told = {reason.id: reason.reason for reason in found}  # an id that comes twice counts once
        connection.execute(delete(cancel_reasons))
        connection.execute(insert(cancel_reasons), [{"id": key, "reason": reason} for key, reason in told.items()])


def replace_variables(connection: Connection, found: Variables) -> None:
    """Both lists of methods anew; an empty one leaves the old one."""
    _replace_methods(connection, payment_methods, found.payment_methods)
    _replace_methods(connection, shipping_methods, found.shipping_methods)


def _replace_methods(connection: Connection, table: Table, found: Sequence[Method]) -> None:
    if found:
        told = {method.code: method.name for method in found}
        connection.execute(delete(table))
        connection.execute(insert(table), [{"code": key, "name": name} for key, name in told.items()])


def payment_codes(connection: Connection) -> dict[str, str]:
    """From a payment method's name to its code; docs/interface.md's own list until the service has told its list."""
    rows = connection.execute(select(payment_methods.c.name, payment_methods.c.code))
    return {row.name: row.code for row in rows} or dict(USUAL_PAYMENT_METHODS)
