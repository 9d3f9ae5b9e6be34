"""Finds the foods in the menu listing, whose shape docs/interface.md does not define.

The whole answer is searched: lists and objects in any order and depth, grouped by category, by restaurant or not.

- A food is an object with a `food_id`. If the answer has none, it is an object with a number as its `id`, a name and a
  status, and nothing inside that could be a food; if there is none either, an object with a name and a status whose key
  is a number. Objects inside a food are not searched, so its options do not count as foods.
- The status is ACTIVE or INACTIVE, in capitals or not; anything else is unknown.
- The category is the food's own, as text or as an object with a name; else it is the nearest heading around the food:
  the category or name of an object, or a key. A restaurant is no heading.
- An id that occurs several times (a menu for each restaurant) is one food, as in the paths of the interface. The first
  element counts. It is active if one of them is, and inactive only if all are.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from orderbridge.actions import ACTIVE, INACTIVE
from orderbridge.errors import UnknownOutcome
from orderbridge.marketplace.answers import judge
from orderbridge.marketplace.fields import UUID, Reader, is_empty
from orderbridge.marketplace.scan import BROKEN, BrokenText, decode, read_members, utf8
from orderbridge.model import Food, Menu

_STATUSES = {"active": ACTIVE, "inactive": INACTIVE, "passive": INACTIVE}
_HEADINGS = ("category", "category_name", "name", "title")
_OF_RESTAURANTS = frozenset({"restaurant_id", "restaurant_name", "rest_id"})
_OPTIONS = frozenset({"category", "option_groups", "options"})  # may be inside a food
# Keys that name no category.
_WORDS = frozenset(
    """active categories category content data food foods inactive items list menu menus passive products restaurant
    restaurants result results""".split()
)
_NUMBER = re.compile("[0-9]{1,19}")
_UNREADABLE = 0  # the id of a food that cannot be identified

_Object = Mapping[str, Any]
_Identify = Callable[[_Object, str], int | None]  # an object and its key; None: it is not a food


def read_menu(http_status: int, body: bytes) -> Menu:
    """All foods of the answer. Raises MarketplaceError, also if it has none: an empty menu proves nothing.

    A body with more values than `decode` takes is cut into the elements of `data`, which must have a `food_id` then.
    """
    members: Any = None
    with suppress(BrokenText):
        members = decode(utf8(body))
    if members is None:
        with suppress(BrokenText):
            members = read_members(body, cut="data", take=_foods_of_element)
    data = judge(http_status, members)
    if isinstance(data, tuple):
        found = [food for foods in data for food in foods]
    else:
        ways = (list(_foods(data, identify)) for identify in (_by_food_id, _by_id, _by_key))
        found = next((foods for foods in ways if any(food.food_id for food in foods)), [])
    foods = _merged(food for food in found if food.food_id != _UNREADABLE)
    if not foods:
        raise UnknownOutcome("malformed_data", "menu", http_status=http_status)
    return Menu(foods, is_whole=all(food.food_id != _UNREADABLE for food in found), shape=shape_of(data))


def shape_of(data: object) -> str:
    """The path to the first food: `[]` a list, `[restaurant]` one of restaurants, `.key` a member, `{}` any other one.

    Empty for a list that was cut into its elements, since their shapes are not kept.
    """
    shape, key = "", ""
    while isinstance(data, list | dict) and data:
        if isinstance(data, dict):
            if any(identify(data, key) is not None for identify in (_by_food_id, _by_id, _by_key)):
                break
            key = next((key for key, one in data.items() if isinstance(one, list | dict)), "")
            shape, data = f"{shape}{f'.{key}' if key.lower() in _WORDS else '{}'}", data.get(key)
        else:
            key, data = "", data[0]
            shape += "[restaurant]" if isinstance(data, dict) and _is_restaurant(data) else "[]"
    return shape


def _foods_of_element(raw: bytes, value: object) -> list[Food]:
    """The foods in one element of a large list. `value` has its texts as Latin-1, so it is decoded again."""
    with suppress(BrokenText):
        if value is not BROKEN:
            return list(_foods(decode(utf8(raw)), _by_food_id))
    return [_food({}, _UNREADABLE, None)]


def _foods(data: object, identify: _Identify) -> Iterator[Food]:
    """The foods in their order. It uses a stack instead of recursion, because the sender chooses the depth."""
    stack: list[tuple[object, str, str | None]] = [(data, "", None)]  # value, key, heading
    while stack:
        value, key, heading = stack.pop()
        if isinstance(value, list):
            stack += [(one, "", heading) for one in reversed(value)]
        elif isinstance(value, dict):
            if (number := identify(value, key)) is not None:
                yield _food(value, number, heading)
            else:
                stack += reversed(list(_inside(value, heading)))


def _inside(value: _Object, heading: str | None) -> Iterator[tuple[object, str, str | None]]:
    """The members of an object that is not a food, each with its heading."""
    is_restaurant = _is_restaurant(value)
    own = None if is_restaurant else next(filter(None, map(_text, map(value.get, _HEADINGS))), None)
    for key, member in value.items():
        named = key if _is_heading(key) and own is None and not is_restaurant else None
        yield member, key, own or named or (None if is_restaurant else heading)


def _is_restaurant(value: _Object) -> bool:
    return not value.keys().isdisjoint(_OF_RESTAURANTS) or _is_uuid(value.get("id"))


def _is_heading(key: str) -> bool:
    return not (key.lower() in _WORDS or _NUMBER.fullmatch(key) or _is_uuid(key) or is_empty(key))


def _is_uuid(value: object) -> bool:
    return isinstance(value, str) and UUID.fullmatch(value.strip().lower()) is not None


# ---- which objects are foods -----------------------------------------------------------------------------------------


def _by_food_id(value: _Object, _: str) -> int | None:
    return _number(value["food_id"]) if "food_id" in value else None


def _by_id(value: _Object, _: str) -> int | None:
    may_hold_foods = any(
        isinstance(member, list | dict) for key, member in value.items() if key.lower() not in _OPTIONS
    )
    return _number(value.get("id")) or None if _is_described(value) and not may_hold_foods else None


def _by_key(value: _Object, key: str) -> int | None:
    return _number(key) or None if _is_described(value) else None


def _is_described(value: _Object) -> bool:
    return _text(value.get("name")) is not None and _status(value) is not None


def _number(value: object) -> int:
    """A food's id, or _UNREADABLE."""
    number = Reader().integer(value, "food_id")
    return number if number is not None and number >= 1 else _UNREADABLE


# ---- one food --------------------------------------------------------------------------------------------------------


def _food(value: _Object, number: int, heading: str | None) -> Food:
    category = next(filter(None, (_text(value.get(key)) for key in _HEADINGS[:2])), heading)
    payload = json.dumps(value, ensure_ascii=False, default=float).encode("utf-8", "replace").decode()
    price = Reader().amount(value.get("price"), "price")
    return Food(number, _text(value.get("name")), category, _status(value), price, payload)


def _text(value: object) -> str | None:
    """A name: a text, or an object with one."""
    if isinstance(value, dict):
        value = value.get("name")
    text = None if is_empty(value) else Reader().text(value, "name")
    return text.strip() or None if text else None


def _status(value: _Object) -> str | None:
    status = value.get("status")
    return _STATUSES.get(status.strip().lower()) if isinstance(status, str) else None


def _merged(found: Iterable[Food]) -> tuple[Food, ...]:
    """Make one food of all elements with the same id."""
    first: dict[int, Food] = {}
    statuses: dict[int, set[str | None]] = {}
    for food in found:
        first.setdefault(food.food_id, food)
        statuses.setdefault(food.food_id, set()).add(food.status)
    of_all = {
        number: ACTIVE if ACTIVE in shown else INACTIVE if shown == {INACTIVE} else None
        for number, shown in statuses.items()
    }
    return tuple(replace(food, status=of_all[number]) for number, food in first.items())
