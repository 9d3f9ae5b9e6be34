"""The initial restaurants, menus and credentials.

Names and ids are the same at every start, so that documents and tests can refer to them. All are invented.
"""

from decimal import Decimal
from typing import Final

from .state import Account, Choice, Food, Restaurant, Scenery

APP_SECRET: Final = "sandbox-app-secret"  # noqa: S105 - the sandbox's own, published on purpose

KADIKOY: Final = "11111111-1111-4111-8111-111111111111"
BESIKTAS: Final = "22222222-2222-4222-8222-222222222222"
USKUDAR: Final = "33333333-3333-4333-8333-333333333333"
ATASEHIR: Final = "44444444-4444-4444-8444-444444444444"

_EXTRAS: Final = (
    Choice(group_id=51, group_name="Ekstra", option_id=511, option_name="Ekstra Kaşar", price=Decimal("35.00")),
    Choice(group_id=51, group_name="Ekstra", option_id=512, option_name="Acı Sos", price=Decimal("0.00")),
    Choice(group_id=52, group_name="Yanında", option_id=521, option_name="Közlenmiş Biber", price=Decimal("22.50")),
)
_PORTIONS: Final = (
    Choice(group_id=61, group_name="Porsiyon", option_id=611, option_name="Bir Buçuk", price=Decimal("110.00")),
    Choice(group_id=61, group_name="Porsiyon", option_id=612, option_name="Tek", price=Decimal("0.00")),
)

# Last two digits of the id, name, category, price, modifiers.
_DISHES: Final[tuple[tuple[int, str, str, str, tuple[Choice, ...]], ...]] = (
    (1, "Mercimek Çorbası", "Çorbalar", "95.00", ()),
    (2, "Ezogelin Çorbası", "Çorbalar", "97.50", ()),
    (3, "Izgara Köfte", "Izgaralar", "285.00", _PORTIONS),
    (4, "Tavuk Şiş", "Izgaralar", "265.00", _PORTIONS),
    (5, "Kıymalı Pide", "Pideler", "219.90", _EXTRAS),
    (6, "Kuşbaşılı Pide", "Pideler", "254.90", _EXTRAS),
    (7, "Lahmacun", "Pideler", "89.90", _EXTRAS),
    (8, "Çoban Salata", "Salatalar", "120.00", ()),
    (9, "Ayran", "İçecekler", "35.00", ()),
    (10, "Şalgam Suyu", "İçecekler", "40.00", ()),
    (11, "Künefe", "Tatlılar", "175.50", ()),
    (12, "Fırın Sütlaç", "Tatlılar", "110.00", ()),
)


def _menu(name: str, first_id: int) -> tuple[Food, ...]:
    return tuple(
        Food(menu=name, id=first_id + number, name=dish, category=category, price=Decimal(price), choices=choices)
        for number, dish, category, price, choices in _DISHES
    )


def _account(name: str, *restaurant_ids: str) -> Account:
    return Account(
        name=name,
        app_secret_key=APP_SECRET,
        rest_secret_key=f"sandbox-{name}-secret",
        restaurant_ids=restaurant_ids,
    )


DEFAULT_SCENERY: Final = Scenery(
    accounts=(
        _account("kadikoy", KADIKOY),
        _account("besiktas", BESIKTAS),
        _account("chain", USKUDAR, ATASEHIR),
        _account("uskudar", USKUDAR),  # the chain's branches have credentials of their own, too
        _account("atasehir", ATASEHIR),
    ),
    restaurants=(
        Restaurant(id=KADIKOY, name="Örnek Lokanta Kadıköy", menu="kadikoy", district="Kadıköy"),
        Restaurant(id=BESIKTAS, name="Deneme Ocakbaşı Beşiktaş", menu="besiktas", district="Beşiktaş"),
        Restaurant(id=USKUDAR, name="Numune Sofra Üsküdar", menu="chain", district="Üsküdar"),
        Restaurant(id=ATASEHIR, name="Numune Sofra Ataşehir", menu="chain", district="Ataşehir"),
    ),
    foods=_menu("kadikoy", 1000) + _menu("besiktas", 2000) + _menu("chain", 3000),
)
