"""The menu listing, whose shape the interface leaves open."""

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orderbridge.errors import MarketplaceError, RateLimited
from orderbridge.marketplace.menu import read_menu
from orderbridge.model import Menu

pytestmark = pytest.mark.interface("Menu item", "Menu listing")
RESTAURANT = "5e9c1f6a-0000-4000-8000-000000000001"
SOUP = {"food_id": 1, "name": "Ezogelin", "status": "ACTIVE"}
KEBAB = {"food_id": 2, "name": "Adana", "status": "INACTIVE"}
FLAT = [(1, "Ezogelin", None, "active"), (2, "Adana", None, "inactive")]
GROUPED = [(1, "Ezogelin", "Çorbalar", "active"), (2, "Adana", "Kebaplar", "inactive")]


def menu(data: Any) -> Menu:
    return read_menu(200, json.dumps({"status": True, "data": data}).encode())


def read(data: Any) -> list[tuple[int, str | None, str | None, str | None]]:
    return [(one.food_id, one.name, one.category, one.status) for one in menu(data).foods]


def without_id(food: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in food.items() if name != "food_id"}


def with_id(food: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"id": food["food_id"], **without_id(food), **more}


def category(number: int, name: str, **more: Any) -> dict[str, Any]:
    return {"id": number, "name": name, **more}


TWO, THREE = category(2, "Kebaplar"), category(3, "Tatlılar", status="ACTIVE", foods=[])

SHAPES: dict[str, tuple[Any, Any]] = {
    "a list": ([SOUP, KEBAB], FLAT),
    "an object with a list": ({"foods": [SOUP, KEBAB]}, FLAT),
    "a page": ({"total": 2, "page": 1, "items": [SOUP, KEBAB]}, FLAT),
    "one food": (SOUP, FLAT[:1]),
    "a list of lists": ([[SOUP], [[KEBAB]]], FLAT),
    "a list with gaps": ({"0": SOUP, "7": KEBAB}, FLAT),
    "by food_id": ({"1": without_id(SOUP), "2": without_id(KEBAB)}, FLAT),
    "by food_id, which is inside, too": ({"9": SOUP, "8": KEBAB}, FLAT),
    "id in place of food_id": ([with_id(SOUP), with_id(KEBAB, options=[{"id": 7, "name": "Acılı"}])], FLAT),
    "ids as text": ([SOUP | {"food_id": "1"}, KEBAB | {"food_id": " 2 "}], FLAT),
    "statuses in any case": ([SOUP | {"status": "Active"}, KEBAB | {"status": "passive "}], FLAT),
    "a category of its own": ([SOUP | {"category": "Çorbalar"}, KEBAB | {"category": TWO}], GROUPED),
    "with foods": ([{"category": "Çorbalar", "foods": [SOUP]}, {"category": "Kebaplar", "foods": [KEBAB]}], GROUPED),
    "with ids": ({"categories": [category(1, "Çorbalar", x=[SOUP]), {"name": "Kebaplar", "y": [KEBAB]}]}, GROUPED),
    "categories and foods with id alone": (
        [category(1, "Çorbalar", status="ACTIVE", foods=[with_id(SOUP)]),
         category(9, "Kebaplar", status="ACTIVE", foods=[with_id(KEBAB)]), THREE], GROUPED,
    ),
    "categories as keys": ({"Çorbalar": [SOUP], "Kebaplar": {"2": KEBAB}}, GROUPED),
    "restaurants": ([{"id": RESTAURANT, "name": "Kadıköy Şube", "foods": [SOUP, KEBAB]}], FLAT),
    "restaurants by id": ({RESTAURANT: [SOUP, KEBAB]}, FLAT),
    "restaurants with categories": (
        [{"restaurant_id": 5, "name": "Kadıköy", "menu": {"Çorbalar": [SOUP], "Kebaplar": [KEBAB]}}], GROUPED,
    ),
    "six levels": ([{"x": [{"1": {"foods": [{"id": RESTAURANT, "name": "Kadıköy", "menu": [SOUP, [KEBAB]]}]}}]}], FLAT),
    "a food with foods inside": ([SOUP | {"goes_with": [KEBAB]}], FLAT[:1]),
    "a name that is empty": ([SOUP | {"name": " "}], [(1, None, None, "active")]),
    "an unknown status": ([SOUP | {"status": "SOLD"}], [(1, "Ezogelin", None, None)]),
    "bad entries": ([None, 5, "x", {}, [], SOUP], FLAT[:1]),
}  # fmt: skip


@pytest.mark.parametrize("data, expected", SHAPES.values(), ids=SHAPES)
def test_each_shape_is_read(data, expected):
    assert read(data) == expected


def test_a_food_keeps_its_element_and_its_price():
    (food,) = menu([SOUP | {"price": "85,50", "extra": [1.5, {"ü": None}], "bad": "\ud800"}]).foods
    assert food.price == Decimal("85.5")
    assert json.loads(food.payload) == {**SOUP, "price": "85,50", "extra": [1.5, {"ü": None}], "bad": "?"}
    assert menu([SOUP]).foods[0].price is None


def test_a_food_of_two_restaurants_is_one_and_inactive_only_if_both_are():
    def two(one: str, other: str) -> list[tuple[int, str | None, str | None, str | None]]:
        return read([SOUP | {"status": one}, SOUP | {"name": "Diğer", "status": other}])

    assert two("INACTIVE", "ACTIVE") == [(1, "Ezogelin", None, "active")]
    assert two("INACTIVE", "INACTIVE") == [(1, "Ezogelin", None, "inactive")]
    assert two("INACTIVE", "?") == [(1, "Ezogelin", None, None)]


@pytest.mark.parametrize("number", [None, 0, -1, "x", 1.5, 2**63, [], True])
def test_a_menu_with_a_food_that_cannot_be_identified_is_not_whole(number):
    found = menu([SOUP, KEBAB | {"food_id": number}])
    assert ([food.food_id for food in found.foods], found.is_whole) == ([1], False)
    assert menu([SOUP]).is_whole


@pytest.mark.parametrize("data", [[], {}, None, "OK", [{}], {"foods": []}, [{"name": "x"}], [{"food_id": 0}]])
def test_an_answer_without_a_food_is_an_error(data):
    with pytest.raises(MarketplaceError) as raised:
        menu(data)
    assert raised.value.code == "malformed_data"


def test_an_error_in_place_of_a_menu_is_that_error():
    for body in (b"", b"<html>", b'{"status": true, "data": [', b'{"status": true, "data": {"a": ]}}'):
        with pytest.raises(MarketplaceError):
            read_menu(200, body)
    with pytest.raises(RateLimited):
        read_menu(200, json.dumps({"status": False, "error": "çok fazla istek"}).encode())


def test_a_menu_with_very_many_values_is_read_element_by_element():
    foods = [[{"food_id": group * 100 + n, "name": "Çğ", "a": 1} for n in range(1, 100)] for group in range(300)]
    groups = [{"name": f"Grup {number}", "foods": some} for number, some in enumerate(foods)]
    found = menu(groups)
    assert (len(found.foods), found.is_whole) == (300 * 99, True)
    assert (found.foods[-1].name, found.foods[-1].category) == ("Çğ", "Grup 299")
    body = json.dumps({"status": True, "data": groups}).encode().replace(b'"food_id": 101,', b'"food_id": 01,')
    cut = read_menu(200, body)
    assert (len(cut.foods), cut.is_whole) == (299 * 99, False), "a broken element harms itself alone"


NAMES = st.sampled_from(["food_id", "id", "name", "status", "category", "foods", "1", "x"])
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner),
    max_leaves=20,
)


def test_a_shape_names_no_restaurant_and_is_known_of_a_whole_list_only():
    many = [SOUP | {"numbers": [0] * 50}] * 10_000
    shapes = [menu(data).shape for data in ({RESTAURANT: [SOUP]}, {"foods": [SOUP]}, [SOUP] * 2, many)]
    assert shapes == ["{}[]", ".foods[]", "[]", ""]


@given(ANYTHING)
def test_no_answer_raises_anything_but_a_marketplace_error(data: Any):
    try:
        found = menu(data)
    except MarketplaceError as error:
        assert error.code == "malformed_data"
    else:
        assert found.foods
        assert all(1 <= food.food_id < 2**63 and json.loads(food.payload) for food in found.foods)
