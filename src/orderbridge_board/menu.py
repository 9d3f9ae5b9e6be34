"""Sold out, open and closed: foods of the last days with a switch, restaurants with their state."""

from collections import defaultdict
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from orderbridge.actions import Subject
from orderbridge.model import UNFINISHED, Action, ActionState
from orderbridge_board import cards, queries
from orderbridge_board.snapshot import shown_row


def menu(connection: Connection, now: datetime, language: str) -> dict[str, Any]:
    """Both lists. `tries` makes the next tap another one: the id of the newest row that is over.

    Where there is none of the last days there may be older ones: then it is the day, as a number that is no id.
    """
    toggles, today = queries.newest_toggles(connection, now), now.toordinal()
    of_food, of_shop = defaultdict(list), defaultdict(list)
    for row in toggles[Subject.FOOD]:
        of_food[row.food_id].append(row)
    for row in toggles[Subject.RESTAURANT]:
        of_shop[row.restaurant_id].append(row)
    foods = []
    for food in queries.foods(connection, now):
        mine = [row for row in of_food[food["food_id"]] if row.account in {None, food["account"]}]
        foods.append(food | _switch(mine, today, language, off=Action.DEACTIVATE_FOOD))
    shops = []
    for shop in queries.shops(connection):
        shown = {name: shop[name] for name in ("id", "name", "account", "status")}
        shops.append(shown | _switch(of_shop[shop["id"]], today, language, off=Action.CLOSE_RESTAURANT))
    return {"foods": foods, "restaurants": shops}


def _switch(rows: list[Any], today: int, language: str, *, off: Action) -> dict[str, Any]:
    """Whether it was switched off here, the newest row, and what makes the next one another."""
    done = [row for row in rows if row.state == ActionState.DONE]
    return {
        "off": bool(done) and done[-1].action == off,
        "tries": max((row.id for row in rows if row.state not in UNFINISHED), default=-today),
        "row": shown_row(cards.newest(rows), language),
    }
