"""Makes realistic orders from a seeded Random ("Order" in docs/interface.md).

total = the line totals + courier_fee + order_tip - discount. A line total is price x quantity plus the modifiers
of the line, added once: docs/interface.md does not multiply them. Phones begin with +90 500 000, which is not assigned.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any, Final
from uuid import UUID

from . import rules
from .options import Courier
from .state import Choice, Document, Food, Restaurant

CENT: Final = Decimal("0.01")
NOTHING: Final = Decimal("0.00")

_FIRST_NAMES: Final = ("Ayşe", "Çağrı", "Elif", "Gökhan", "İpek", "Mehmet", "Nur", "Oğuz", "Şule", "Ümit")
_LAST_NAMES: Final = ("Örnek", "Deneme", "Numune", "Sınar", "Taslak")
_STREETS: Final = ("Çınar Sokak", "Ihlamur Caddesi", "Lale Sokak", "Şehit Öğretmen Caddesi", "Gül Çıkmazı")
_NEIGHBORHOODS: Final = ("Örnek Mahallesi", "Yeşilyurt Mahallesi", "Çiçekli Mahallesi", "Güneşli Mahallesi")
_DIRECTIONS: Final = ("", "", "Zil bozuk, lütfen arayın", "Yeşil kapı", "Marketin üstü", "Güvenliğe bırakın")
ORDER_NOTES: Final = (
    "",
    "",
    "",
    "Zile basmayın, bebek uyuyor 👶",
    "Peçete ekler misiniz?",
    "Sıcak gelsin 🔥🌶️",
    "Acele",
)
ITEM_NOTES: Final = ("", "", "", "Acısız", "Soğansız lütfen", "Az pişmiş", "Buzsuz 🧊")
_COURIERS: Final = ("restaurant", "restaurant", "restaurant", "platform_courier", "come_get")
_COURIER_FEES: Final = (NOTHING, Decimal("19.90"), Decimal("29.90"))
_TIPS: Final = (NOTHING, NOTHING, NOTHING, Decimal("10.00"), Decimal("25.00"))
_DISCOUNTS: Final = (NOTHING, NOTHING, Decimal("15.00"), Decimal("37.50"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Occasion:
    """The circumstances of an order: restaurant, time, foods and payment names to draw from."""

    number: int
    at: datetime  # local time of the restaurant
    restaurant: Restaurant
    foods: Sequence[Food]
    payment_names: Sequence[str]


def draft_order(random: Random, occasion: Occasion, wanted: Courier = Courier.ANY) -> Document:
    """Return a complete order document in status RECEIVED, with the wanted courier."""
    foods = [_item(random, food) for food in _basket(random, occasion.foods)]
    drawn = random.choice(_COURIERS)  # always drawn, so that an option does not change the later random numbers
    courier = drawn if wanted is Courier.ANY else str(wanted)
    pickup = courier == "come_get"
    fee = NOTHING if pickup else random.choice(_COURIER_FEES)
    tip = random.choice(_TIPS)
    goods = sum((item["total"] for item in foods), NOTHING)
    discount = min(random.choice(_DISCOUNTS), goods)
    return {
        "id": occasion.number,
        "payment_key": random_uuid(random),
        "status_id": rules.RECEIVED,
        "status_text": rules.STATUS_TEXTS[rules.RECEIVED],
        "shipping_method": "pickup" if pickup else "delivery",
        "payment_method": random.choice(occasion.payment_names),
        "note": random.choice(ORDER_NOTES),
        "total": goods + fee + tip - discount,
        "discount": str(discount),
        "date": occasion.at.strftime(rules.TIME_FORMAT),
        "restaurant_id": occasion.restaurant.id,
        "restaurant_name": occasion.restaurant.name,
        "courier_type": courier,
        "courier_fee": fee,
        "scheduled_date": _scheduled(random, occasion.at),
        "order_tip": tip,
        "customer": _customer(random),
        "address": _address(random, occasion.restaurant.district),
        "foods": foods,
    }


def altered(document: Document, changes: Mapping[str, Any], without: Collection[str]) -> Document:
    """Return the document with a caller's values, and without the named fields.

    `customer` and `address` are merged field by field, everything else is replaced. A field to leave out may be
    dotted: `customer.phone`.
    """
    result = dict(document)
    for name, value in changes.items():
        old = result.get(name)
        result[name] = {**old, **value} if isinstance(old, dict) and isinstance(value, Mapping) else value
    for path in without:
        outer, _, inner = path.partition(".")
        if inner and isinstance(result.get(outer), dict):
            result[outer] = {name: value for name, value in result[outer].items() if name != inner}
        else:
            result.pop(path, None)
    return result


def random_uuid(random: Random) -> str:
    """Return a version 4 UUID from the seeded Random."""
    return str(UUID(int=random.getrandbits(128), version=4))


def _basket(random: Random, foods: Sequence[Food]) -> list[Food]:
    return random.sample(list(foods), k=min(random.randint(1, 4), len(foods)))


def _item(random: Random, food: Food) -> dict[str, Any]:
    quantity = random.choice((1, 1, 1, 2, 3))
    choices = [choice for choice in food.choices if random.random() < 0.4]  # noqa: PLR2004 - chosen freely
    return item_of(random_uuid(random), food, quantity, random.choice(ITEM_NOTES), choices)


def item_of(key: str, food: Food, quantity: int = 1, note: str = "", choices: Sequence[Choice] = ()) -> dict[str, Any]:
    """Return one element of `foods`."""
    extra = sum((choice.price for choice in choices), NOTHING)
    return {
        "id": key,
        "food_id": food.id,
        "name": food.name,
        "note": note,
        "price": food.price,
        "quantity": quantity,
        "total": (food.price * quantity + extra).quantize(CENT),
        "option_groups": [
            {
                "id": choice.group_id,
                "name": choice.group_name,
                "type": "multi",
                "operation": "+",
                "options": {"id": choice.option_id, "name": choice.option_name, "price": choice.price},
            }
            for choice in choices
        ],
    }


def _scheduled(random: Random, at: datetime) -> str:
    if random.randrange(8):
        return ""
    later = (at + timedelta(hours=random.randint(1, 5))).replace(minute=0, second=0)
    return later.strftime(rules.TIME_FORMAT)


def _customer(random: Random) -> dict[str, str]:
    return {
        "name": f"{random.choice(_FIRST_NAMES)} {random.choice(_LAST_NAMES)}",
        "phone": f"+90500000{random.randrange(10_000):04d}",
    }


def _address(random: Random, district: str) -> dict[str, str]:
    return {
        "address": random.choice(_STREETS),
        "description": random.choice(_DIRECTIONS),
        "apartment_no": str(random.randint(1, 30)),
        "building_no": f"{random.randint(1, 120)}{random.choice(('', '', '/A', '/B'))}",
        "neighborhood_name": random.choice(_NEIGHBORHOODS),
        "district_name": district,
        "city_name": "İstanbul",
    }
