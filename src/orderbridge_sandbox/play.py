"""Places the orders of a journal again, without their customers' data.

Only the fields that this file names are taken from a document: amounts, ids of products and options, known codes, and
whether there is a note. All texts are invented or left out, so no unknown field can appear. Ids and amounts are limited
in length, so that none can hold a phone number.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any, Final

from . import rules
from .documents import ITEM_NOTES, ORDER_NOTES, random_uuid
from .state import Document, Food
from .world import CannotOrder, NotAllowed, World

LARGEST_AMOUNT: Final = 1_000_000
LARGEST_ID: Final = 1_000_000_000
LARGEST_STATUS: Final = 1_000
_STAGES: Final = (rules.RECEIVED, rules.CONFIRMED, rules.IN_DELIVERY)  # then unknown ids, and the ends
_AMOUNT: Final = re.compile(r"-?[0-9]{1,6}([.,][0-9]{1,4})?")
_PAID: Final = [name.removesuffix(rules.PREPAID_SUFFIX) for name in rules.PAYMENT_METHODS.values()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A document of the journal, masked. `order` and `restaurant` number them by first appearance."""

    after: timedelta  # since the first one
    order: int
    restaurant: int
    status_id: int
    document: Document
    without: tuple[str, ...]
    scheduled_in: timedelta | None  # from the order's own time


class Play:
    """Places a journal's orders at the recorded intervals. `faster`: 2 halves them."""

    def __init__(self, played: Iterable[Played], faster: float = 1) -> None:
        self._played, self._faster = tuple(played), faster
        self.reset()

    def __bool__(self) -> bool:
        return bool(self._played)

    def reset(self) -> None:
        """Start from the first document again."""
        self._next = 0
        self._keys: dict[int, str] = {}

    def advance(self, world: World) -> None:
        """Place the orders that are due, and change the statuses that are due."""
        past = (world.now() - world.began) * self._faster
        while self._next < len(self._played) and self._played[self._next].after <= past:
            played = self._played[self._next]
            self._next += 1
            with suppress(CannotOrder, NotAllowed):  # a test has closed the restaurant, or completed the order
                if played.order not in self._keys and played.status_id != rules.CANCELED:
                    self._keys[played.order] = self._place(world, played)
                if key := self._keys.get(played.order):
                    self._move(world, key, played.status_id)

    def _move(self, world: World, key: str, status_id: int) -> None:
        """Change the status, unless the till has already changed it to this or a later one."""
        if status_id == rules.CANCELED:
            world.cancel_by_customer(key)
        elif _stage(status_id) > _stage(world.order(key).status_id):
            world.change_status(key, status_id, by="journal")

    def _place(self, world: World, played: Played) -> str:
        restaurant = list(world.restaurants.values())[played.restaurant % len(world.restaurants)]
        for item in played.document.get("foods", ()):
            if number := item.get("food_id"):
                price = Decimal(str(item.get("price", 0)).replace(",", "."))
                food = Food(menu=restaurant.menu, id=number, name=item["name"], category="Menü", price=price)
                world.foods.setdefault((food.menu, food.id), food)
        changes = {}
        if played.scheduled_in is not None:
            changes["scheduled_date"] = (world.local(world.now()) + played.scheduled_in).strftime(rules.TIME_FORMAT)
        document = played.document | changes
        return world.place_order(restaurant_id=restaurant.id, document=document, without=played.without).key


def read(path: Path) -> Iterator[Played]:
    """The documents of a journal's file, or of all files in its folder. Lines that cannot be read are left out."""
    random = Random(1)  # noqa: S311 - the same journal gives the same orders
    orders: dict[str, int] = {}
    restaurants: dict[str, int] = {}
    begin = None
    for file in sorted(path.glob("*.jsonl")) if path.is_dir() else [path]:
        for line in file.read_bytes().splitlines():
            with suppress(ValueError, TypeError, KeyError, AttributeError):  # cut off, blanked, or not an object
                entry = json.loads(line.decode("utf-8", "replace"))
                raw = json.loads(entry["document"], parse_float=Decimal, parse_constant=str)
                at = datetime.fromisoformat(entry["at"])
                begin = begin or at
                restaurant = str(raw.get("restaurant_id"))
                yield Played(
                    after=max(at - begin, timedelta()),
                    order=orders.setdefault(entry["payment_key"], len(orders)),
                    restaurant=restaurants.setdefault(restaurant, len(restaurants)),
                    status_id=_status(raw.get("status_id")),
                    document=_named(raw, ORDER, random),
                    without=tuple(name for name in (*ORDER, "scheduled_date") if name not in raw),
                    scheduled_in=_scheduled(raw),
                )


def _stage(status_id: int) -> int:
    ended = status_id in (rules.COMPLETE_WITH_PAYMENT, rules.CANCELED)
    return _STAGES.index(status_id) if status_id in _STAGES else len(_STAGES) + ended


# ---- what is taken from a document -----------------------------------------------------------------------------------

Mask = Callable[[Any, Random], Any]


def _named(raw: Any, names: Mapping[str, Mask], random: Random) -> Document:
    return {name: mask(raw[name], random) for name, mask in names.items() if name in raw}


def _amount(value: Any, _: Random) -> Any:
    """A number, also one written as text; else 0."""
    if isinstance(value, str) and _AMOUNT.fullmatch(value):
        return value
    is_number = isinstance(value, int | Decimal) and not isinstance(value, bool)
    return round(value, 4) if is_number and abs(value) < LARGEST_AMOUNT else 0


def _id(value: Any, _: Random) -> int | None:
    is_id = isinstance(value, int) and not isinstance(value, bool) and 0 < value < LARGEST_ID
    return value if is_id else None


def _status(value: Any) -> int:
    is_id = isinstance(value, int) and not isinstance(value, bool) and 0 < value < LARGEST_STATUS
    return value if is_id else rules.RECEIVED


def _one_of(*known: str) -> Mask:
    return lambda value, _: value if isinstance(value, str) and value in known else known[0]


def _note(made_up: Iterable[str]) -> Mask:
    notes = [note for note in made_up if note]
    return lambda value, random: random.choice(notes) if value else ""


def _scheduled(raw: Any) -> timedelta | None:
    """How long after the order's date its scheduled date is."""
    with suppress(ValueError, TypeError, KeyError):
        times = [datetime.strptime(raw[name], rules.TIME_FORMAT) for name in ("scheduled_date", "date")]  # noqa: DTZ007
        return times[0] - times[1]
    return None


def _foods(value: Any, random: Random) -> list[Document]:
    found = [_named(food, ITEM, random) for food in _objects(value)]
    return [food | {"id": random_uuid(random), "name": f"Ürün {food.get('food_id') or ''}".strip()} for food in found]


def _groups(value: Any, random: Random) -> list[Document]:
    found = [_named(group, GROUP, random) for group in _objects(value)]
    return [group | {"name": f"Grup {group.get('id') or ''}".strip()} for group in found]


def _options(value: Any, random: Random) -> Any:
    found = [_named(option, OPTION, random) for option in _objects(value)]
    named = [option | {"name": f"Seçenek {option.get('id') or ''}".strip()} for option in found]
    return named[0] if isinstance(value, dict) and named else named


def _objects(value: Any) -> list[Document]:
    return [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, dict)]


OPTION: Final[Mapping[str, Mask]] = {"id": _id, "price": _amount}
GROUP: Final[Mapping[str, Mask]] = {
    "id": _id,
    "type": _one_of("multi"),
    "operation": _one_of("+", "-"),
    "options": _options,
}
ITEM: Final[Mapping[str, Mask]] = {
    "food_id": _id,
    "note": _note(ITEM_NOTES),
    "price": _amount,
    "quantity": _amount,
    "total": _amount,
    "option_groups": _groups,
}
ORDER: Final[Mapping[str, Mask]] = {
    "shipping_method": _one_of(*rules.SHIPPING_METHODS),
    "payment_method": _one_of(*rules.PAYMENT_METHODS.values(), *_PAID),
    "note": _note(ORDER_NOTES),
    "total": _amount,
    "discount": _amount,
    "courier_type": _one_of("restaurant", "come_get", "platform_courier"),
    "courier_fee": _amount,
    "order_tip": _amount,
    "foods": _foods,
}
