"""Stores the lists that change rarely: restaurants, cancel reasons, payment and shipping methods."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Table, delete, insert, literal_column, select, update

from orderbridge.model import Restaurant, Variables
from orderbridge.store.rows import alike
from orderbridge.store.tables import (
    ENDED,
    actions,
    cancel_reasons,
    orders,
    payment_methods,
    restaurants,
    shipping_methods,
)

WEEKS = 4
ABOUT = timedelta(hours=1)
PLATFORM = "platform"  # status_by of a restaurant whose status none of our rows changed

# docs/interface.md, Payment and shipping methods.
USUAL_PAYMENT_METHODS = {
    "Nakit": "CASH",
    "Kredi Kartı (pre-paid)": "CREDIT_CARD",
    "Banka Kartı (pre-paid)": "DEBIT_CARD",
}


def update_restaurants(connection: Connection, account: str, found: Iterable[Restaurant], *, whole: bool) -> int:
    """Store the restaurants of an account. Returns how many known ones the list lacks.

    A missing restaurant is kept, so that rows about it can be sent. It is removed only if the list is `whole` and
    another account reaches it.
    """
    listed = {one.id: {"name": one.name, "service_id": one.service_id} for one in found}
    mine = restaurants.c.account == account
    known = set(connection.execute(select(restaurants.c.id).where(mine)).scalars())
    lacking = known - listed.keys()
    if whole and lacking:
        others = set(connection.execute(select(restaurants.c.id).where(~mine)).scalars())
        connection.execute(delete(restaurants).where(mine, restaurants.c.id.in_(lacking & others)))
    for key in known & listed.keys():
        connection.execute(update(restaurants).where(mine, restaurants.c.id == key).values(**_named(listed[key])))
    if new := sorted(listed.keys() - known):
        connection.execute(insert(restaurants), [{"account": account, "id": key, **listed[key]} for key in new])
    return len(lacking)


def _named(values: dict[str, Any]) -> dict[str, Any]:
    """The values without an empty name, which would replace the known one."""
    return {column: value for column, value in values.items() if column != "name" or value}


def set_restaurant_status(
    connection: Connection, account: str, key: str, status: str, now: datetime, *, row_id: int | None = None
) -> None:
    """Store `Open` or `Closed`, as the marketplace reported it at that time.

    `row_id`: the outbox row that opened or closed the restaurant.
    """
    mine = update(restaurants).where(restaurants.c.account == account, restaurants.c.id == key)
    by: str | None = PLATFORM
    if row_id is not None:
        by = connection.execute(select(actions.c.created_by).where(actions.c.id == row_id)).scalar() or f"row {row_id}"
    is_news = restaurants.c.status.is_(None) | (restaurants.c.status != status)
    connection.execute(mine.where(is_news).values(status_since_utc=now, status_by=by))
    connection.execute(mine.values(status=status, status_utc=now))


def closed(connection: Connection, border: datetime) -> Sequence[Any]:
    """Restaurants closed since before `border`: account, id, name, status_since_utc, status_by."""
    c = restaurants.c
    query = select(c.account, c.id, c.name, c.status_since_utc, c.status_by)
    return connection.execute(query.where(c.status == "Closed", c.status_since_utc < border)).all()


def is_usual_hour(connection: Connection, restaurant: str, now: datetime) -> bool:
    """Whether it had orders around this hour and weekday in the last weeks, or none at all."""
    weeks = [now - timedelta(weeks=number) for number in range(1, WEEKS + 1)]
    if any(_had_order(connection, restaurant, at - ABOUT, at + ABOUT) for at in weeks):
        return True
    return not _had_order(connection, restaurant, weeks[-1] - ABOUT, now)


def _had_order(connection: Connection, restaurant: str, since: datetime, until: datetime) -> bool:
    came = orders.c.received_utc.between(since, until)
    query = select(orders.c.payment_key).where(literal_column(ENDED), came, orders.c.restaurant_id == restaurant)
    return connection.execute(query.limit(1)).first() is not None


def restaurant_accounts(connection: Connection) -> dict[str, list[str]]:
    """The accounts that reach each restaurant."""
    query = select(restaurants.c.id, restaurants.c.account).order_by(restaurants.c.account)
    return alike((row.id, row.account) for row in connection.execute(query))


def restaurant_name(connection: Connection, account: str, key: str) -> str | None:
    """The restaurant's name, if known."""
    query = select(restaurants.c.name).where(restaurants.c.account == account, restaurants.c.id == key)
    return connection.execute(query).scalar()


def restaurants_of(connection: Connection, account: str) -> dict[str, str]:
    """The marketplace's own form of each restaurant's id."""
    query = select(restaurants.c.id, restaurants.c.service_id).where(restaurants.c.account == account)
    return {row.id: row.service_id or row.id for row in connection.execute(query.order_by(restaurants.c.id))}


def update_common(connection: Connection, reasons: Mapping[int, str], methods: Variables, *, whole: bool) -> int:
    """Store the common lists. Returns how many known entries are missing; only with `whole` they are removed."""
    return (
        _update(connection, cancel_reasons, reasons, whole=whole)
        + _update(connection, payment_methods, methods.payment_methods, whole=whole)
        + _update(connection, shipping_methods, methods.shipping_methods, whole=whole)
    )


def _update(connection: Connection, table: Table, listed: Mapping[Any, str], *, whole: bool) -> int:
    """Store one list. An empty list or name removes nothing."""
    key, name = table.c
    known = {row[0]: row[1] for row in connection.execute(select(key, name))}
    lacking = known.keys() - listed.keys()
    if whole and listed and lacking:
        connection.execute(delete(table).where(key.in_(lacking)))
    for code in known.keys() & listed.keys():
        if listed[code] not in {"", known[code]}:
            connection.execute(update(table).where(key == code).values({name: listed[code]}))
    if new := [{key.name: code, name.name: listed[code]} for code in listed if code not in known]:
        connection.execute(insert(table), new)
    return len(lacking)


def payment_codes(connection: Connection) -> dict[str, str]:
    """The code of each payment method's name; those of docs/interface.md before the first list."""
    rows = connection.execute(select(payment_methods.c.name, payment_methods.c.code))
    return {row.name: row.code for row in rows} or dict(USUAL_PAYMENT_METHODS)
