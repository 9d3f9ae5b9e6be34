"""Stores the foods of each account: those of its menu, and those that only its orders have shown.

`seen_utc` is the last sign of a food: when the request whose answer had it was sent, or when a row of ours switched it.
So a menu that was requested before a food was switched does not overwrite its status. A time in the future, from a
clock that was set back, does not count.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, and_, bindparam, delete, insert, or_, select, tuple_, update
from sqlalchemy.exc import DBAPIError

from orderbridge.model import Food, Order
from orderbridge.store.failures import is_busy
from orderbridge.store.rows import batches, in_list
from orderbridge.store.tables import accounts, foods

FROM_MENU, FROM_ORDER = "menu", "order"
NEW, RENAMED, GONE, BACK = "new", "renamed", "gone", "back"  # last_change
SIGN_EACH = timedelta(days=1)  # how often an order renews the sign of a food that no menu has
KEPT = timedelta(days=400)  # how long a food is kept that is gone, or that is no longer ordered
ORDERED_WITHIN = timedelta(days=7)  # how long such a food is listed

_MINE = foods.c.account == bindparam("mine")
_SOME = and_(_MINE, in_list(foods.c.food_id))
_KNOWN = select(foods).where(_SOME)
_SIGNS = select(foods.c.food_id, foods.c.source, foods.c.seen_utc).where(_SOME)
_SEEN = update(foods).where(_SOME).values(seen_utc=bindparam("at"))
_SEEN_IN_MENU = _SEEN.where(or_(foods.c.seen_utc < bindparam("at"), foods.c.seen_utc > bindparam("now")))
_CHANGE = update(foods).where(_MINE, foods.c.food_id == bindparam("number"))  # the parameters name the columns to set


# ---- when a menu is read ---------------------------------------------------------------------------------------------


def reserve(connection: Connection, fingerprint: str, *, now: datetime, until: datetime, longest: timedelta) -> float:
    """Note a request of the menu, so that no other is sent before `until`. Returns 0, or the seconds to wait instead.

    A noted time further away than `longest` is due to a clock change, and does not count.
    """
    due = accounts.c.menu_next_utc
    mine = update(accounts).where(accounts.c.fingerprint == fingerprint)
    free = or_(due.is_(None), due <= now, due > now + longest)
    if connection.execute(mine.where(free).values(menu_next_utc=until)).rowcount:
        return 0.0
    noted = connection.execute(select(due).where(accounts.c.fingerprint == fingerprint)).scalar()
    return (longest if noted is None else noted - now).total_seconds()


# ---- the foods of a menu ---------------------------------------------------------------------------------------------


def update_menu(
    connection: Connection, account: str, listed: Sequence[Food], *, began: datetime, now: datetime
) -> list[tuple[str, int]]:
    """Store foods of a menu that was requested at `began`. Returns what changed: (last_change, food_id).

    Raises IntegrityError if an order has just brought one of them; a new transaction sees it.
    """
    changes: list[tuple[str, int]] = []
    for some in batches(listed):
        ids = {"mine": account, "wanted": [food.food_id for food in some]}
        known = {row.food_id: row for row in connection.execute(_KNOWN, ids)}
        if new := [food for food in some if food.food_id not in known]:
            signs = {"account": account, "source": FROM_MENU, "seen_utc": began, "changed_utc": now}
            connection.execute(insert(foods), [asdict(food) | signs for food in new])
        there = [(known[food.food_id], food) for food in some if food.food_id in known]
        changed = [values for row, food in there if (values := _changed(row, food, began, now))]
        if changed:
            connection.execute(_CHANGE, [{"mine": account, **values} for values in changed])
        connection.execute(_SEEN_IN_MENU, {**ids, "at": began, "now": now})
        changes += [(NEW, food.food_id) for food in new]
        changes += [(one["last_change"], one["number"]) for one in changed if one["changed_utc"] == now]
    return changes


def _changed(row: Row[Any], food: Food, began: datetime, now: datetime) -> dict[str, Any] | None:
    """The parameters of _CHANGE if the menu shows the stored food differently. What it lacks is kept."""
    is_newer = row.status is not None and began < row.seen_utc <= now
    values = {
        "name": food.name or row.name,
        "category": food.category or row.category,
        "status": row.status if is_newer else food.status or row.status,
        "price": food.price,
        "payload": food.payload,
        "source": FROM_MENU,
        "gone_utc": None,
        "last_change": row.last_change,
        "old_name": row.old_name,
    }
    if all(row._mapping[name] == value for name, value in values.items()):  # noqa: SLF001 - SQLAlchemy's name
        return None
    at = row.changed_utc
    if values["name"] != row.name:
        values |= {"last_change": RENAMED, "old_name": row.name}
        at = now
    elif row.gone_utc is not None:
        values["last_change"], at = BACK, now
    return {"number": row.food_id, **values, "changed_utc": at}


def mark_gone(connection: Connection, account: str, *, began: datetime, now: datetime) -> list[tuple[str, int]]:
    """Mark the foods that a whole menu lacks as gone, and delete those gone for long. Returns like `update_menu`.

    A food that only orders have shown is kept: it is sold without the menu, and the till still has to map it.
    """
    was_listed = foods.c.source == FROM_MENU
    lacking = and_(foods.c.account == account, was_listed, foods.c.gone_utc.is_(None), foods.c.seen_utc < began)
    ids = connection.execute(select(foods.c.food_id).where(lacking)).scalars().all()
    connection.execute(update(foods).where(lacking).values(gone_utc=began, last_change=GONE, changed_utc=now))
    is_over = or_(foods.c.gone_utc < now - KEPT, and_(~was_listed, foods.c.seen_utc < now - KEPT))
    old = and_(foods.c.account == account, is_over)
    connection.execute(delete(foods).where(old))
    return [(GONE, number) for number in ids]


# ---- signs from elsewhere --------------------------------------------------------------------------------------------


def note_ordered(connection: Connection, account: str, new: Iterable[Order], now: datetime) -> None:
    """Add the foods of these orders that are not known. A refusal does not affect the orders."""
    named: dict[int, str | None] = {}
    for order in new:
        named |= {item.food_id: item.name for item in order.facts.items if item.food_id and item.food_id >= 1}
    for some in batches(sorted(named)):
        ids: dict[str, Any] = {"mine": account, "wanted": some}
        known = {row.food_id: row for row in connection.execute(_SIGNS, ids)}
        old = [one for one, row in known.items() if row.source == FROM_ORDER and row.seen_utc < now - SIGN_EACH]
        missing = [
            {"account": account, "food_id": one, "name": named[one], "source": FROM_ORDER}
            | {"seen_utc": now, "changed_utc": now}
            for one in some
            if one not in known
        ]
        if not old and not missing:
            continue
        try:
            with connection.begin_nested():
                if old:
                    connection.execute(_SEEN, {**ids, "wanted": old, "at": now})
                if missing:
                    connection.execute(insert(foods), missing)
        except DBAPIError as error:
            if is_busy(error):
                raise


def set_status(connection: Connection, account: str, food_id: int, status: str, now: datetime) -> None:
    """Store the status that a row of ours gave a food."""
    mine = update(foods).where(foods.c.account == account, foods.c.food_id == food_id)
    connection.execute(mine.values(status=status, seen_utc=now))


def statuses(connection: Connection, wanted: Collection[tuple[str, int]], now: datetime) -> dict[Any, Any]:
    """By account and food: the known status, and `seen_utc`, the last sign of it."""
    query = select(foods.c.account, foods.c.food_id, foods.c.status, foods.c.seen_utc)
    query = query.where(foods.c.status.is_not(None), foods.c.seen_utc <= now, tuple_(*foods.primary_key).in_(wanted))
    return {(row.account, row.food_id): row for row in connection.execute(query)}


# ---- reading ---------------------------------------------------------------------------------------------------------


def on_sale(connection: Connection, now: datetime) -> list[dict[str, Any]]:
    """The foods that the menus have, and those that were ordered lately and that no menu has shown yet."""
    lately = or_(foods.c.source == FROM_MENU, foods.c.seen_utc >= now - ORDERED_WITHIN)
    names = ("account", "food_id", "name", "category", "status", "price", "source", "seen_utc")
    query = select(*(foods.c[name] for name in names)).where(foods.c.gone_utc.is_(None), lately)
    return [dict(row) for row in connection.execute(query.order_by(foods.c.account, foods.c.food_id)).mappings()]
