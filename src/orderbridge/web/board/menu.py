"""Sold out, open and closed: foods of the last days with a switch, restaurants with their state."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from orderbridge.actions import Subject
from orderbridge.model import Action, ActionState
from orderbridge.rules import board as rules
from orderbridge.store import board as store
from orderbridge.web.board.state import shown_row


def menu(connection: Connection, now: datetime) -> dict[str, Any]:
    """Both lists. `tries`: the id of the newest row that is over, which makes the next tap another one."""
    toggles = store.newest_toggles(connection, Subject.FOOD, now)
    foods = []
    for food in store.foods(connection, now):
        mine = [row for row in toggles if row.food_id == food["food_id"] and row.account in {None, food["account"]}]
        foods.append(food | _switch(mine, off=Action.DEACTIVATE_FOOD))
    toggles = store.newest_toggles(connection, Subject.RESTAURANT, now)
    shops = []
    for shop in store.shops(connection):
        mine = [row for row in toggles if row.restaurant_id == shop["id"]]
        shown = {name: shop[name] for name in ("id", "name", "account", "status")}
        shops.append(shown | _switch(mine, off=Action.CLOSE_RESTAURANT))
    return {"foods": foods, "restaurants": shops}


def _switch(rows: list[Any], *, off: Action) -> dict[str, Any]:
    """Whether it was switched off here, the newest row, and what makes the next one another."""
    done = [row for row in rows if row.state == ActionState.DONE]
    return {
        "off": bool(done) and done[-1].action == off,
        "tries": max((row.id for row in _over(rows)), default=0),
        "row": shown_row(rules.newest(rows)),
    }


def _over(rows: Iterable[Any]) -> list[Any]:
    return [row for row in rows if row.state not in rules.UNFINISHED]
