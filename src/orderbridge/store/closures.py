"""Reads and writes the planned ends of closures (rules.closures): rows with `until_utc`."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, bindparam, literal_column, or_, select, update

from orderbridge.actions import ACTIONS, CLOSURE_MINUTES
from orderbridge.store.rows import insert_all
from orderbridge.store.tables import PLANNED, actions, is_newer

_ROW = actions.c.id, actions.c.action, actions.c.state, actions.c.restaurant_id, actions.c.food_id, actions.c.account
_PLANS = (
    select(*_ROW, actions.c.until_utc, actions.c.valid_until_minutes, actions.c.withdraw)
    .add_columns(actions.c.created_utc, actions.c.finished_utc)
    .where(literal_column(PLANNED))
    .order_by(actions.c.id)
)
_is_restaurant = actions.c.food_id.is_(None) & (actions.c.restaurant_id == bindparam("restaurant_id"))
_NEWER = select(*_ROW).where(
    actions.c.payment_key.is_(None),
    is_newer(actions, *(bindparam(name, type_=actions.c[name].type) for name in ("id", "created_utc", "finished_utc"))),
    or_(actions.c.food_id == bindparam("food_id"), _is_restaurant),
)


def planned(connection: Connection) -> Sequence[Any]:
    """All rows with a planned end."""
    return connection.execute(_PLANS).all()


def newer(connection: Connection, plan: Any) -> Sequence[Any]:
    """The newer rows about the same restaurant, or about a food of this number on any menu."""
    restaurant_id = plan.restaurant_id if plan.food_id is None else None
    asked = {"food_id": plan.food_id, "restaurant_id": restaurant_id, "id": plan.id}
    times = {"created_utc": plan.created_utc, "finished_utc": plan.finished_utc}
    return connection.execute(_NEWER, asked | times).all()


def set_end(connection: Connection, plan: Any, until: datetime | None) -> bool:
    """Move or forget a planned end. False if it was changed meanwhile."""
    same = actions.c.id == plan.id, actions.c.until_utc == plan.until_utc, actions.c.withdraw == plan.withdraw
    return bool(connection.execute(update(actions).where(*same).values(until_utc=until)).rowcount)


def end(connection: Connection, plan: Any) -> None:
    """Write the opposite action. It may wait for a week, because no person would repeat it.

    Raises IntegrityError if it was written before.
    """
    values = {
        "action": ACTIONS[plan.action].ended_by,
        "restaurant_id": plan.restaurant_id,
        "food_id": plan.food_id,
        "account": plan.account,
        "valid_minutes": CLOSURE_MINUTES[-1],
        "request_id": f"until:{plan.id}",
        "created_by": "orderbridge",
    }
    insert_all(connection, actions, tuple(values), [tuple(values.values())])
