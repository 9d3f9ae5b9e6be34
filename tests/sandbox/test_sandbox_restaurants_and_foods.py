"""Endpoints 2 to 5, 12 to 15, the menu listing, and their effect on new orders."""

import re

import pytest

from orderbridge_sandbox import World
from orderbridge_sandbox.rules import ENDPOINTS
from orderbridge_sandbox.scenery import ATASEHIR, BESIKTAS, KADIKOY, USKUDAR
from orderbridge_sandbox.world import CannotOrder

NOBODY = "99999999-9999-4999-8999-999999999999"
RESTAURANT_CALLS = [("GET", "/restaurants/status/get/")]
RESTAURANT_CALLS += [("PUT", f"/restaurants/status/{word}/") for word in ("open", "close")]
FOOD_CALLS = ["/foods/status-passive/", "/foods/status-active/"]


async def call(pos, method: str, path: str):
    return await pos.http.request(method, path, headers=pos.headers)


@pytest.mark.interface("Restaurant", "Endpoints 2")
async def test_a_credential_reaches_its_restaurants(pos, chain):
    answer = await pos.get("/restaurants/get")
    assert answer.json() == {"status": True, "data": [{"id": KADIKOY, "name": "Örnek Lokanta Kadıköy"}]}
    answer = await chain.get("/restaurants/get")
    assert [entry["id"] for entry in answer.json()["data"]] == [USKUDAR, ATASEHIR]


@pytest.mark.interface("Endpoints 3", "Endpoints 4", "Endpoints 5")
async def test_a_restaurant_closes_and_opens(pos):
    assert (await pos.get(f"/restaurants/status/get/{KADIKOY}")).json() == {"status": True, "data": "Open"}
    for word, status in (("close", "Closed"), ("close", "Closed"), ("open", "Open"), ("open", "Open")):
        assert (await pos.put(f"/restaurants/status/{word}/{KADIKOY}")).json() == {"status": True, "data": "OK"}
        assert (await pos.get(f"/restaurants/status/get/{KADIKOY}")).json()["data"] == status


@pytest.mark.interface("Restaurant", "Endpoints 5", "Authentication 3")
@pytest.mark.parametrize("method, path", RESTAURANT_CALLS)
async def test_a_wrong_restaurant_is_an_error(pos, method, path):
    there_is_none = (404, "restoran bulunamadı")
    for key, status, error in (("12", 403, "URL hatalı"), (NOBODY, *there_is_none), (BESIKTAS, *there_is_none)):
        answer = await call(pos, method, path + key)
        assert (answer.status_code, answer.json()) == (status, {"status": False, "error": error})


@pytest.mark.interface("Errors")
async def test_errors_of_restaurants_and_foods_can_have_any_status(world, pos):
    world.set_options(restaurant_error_status=400, food_error_status=200)
    for method, path, status, error in (
        *((method, path + NOBODY, 400, "restoran bulunamadı") for method, path in RESTAURANT_CALLS),
        *(("PUT", path + "999999", 200, "ürün bulunamadı") for path in FOOD_CALLS),
    ):
        answer = await call(pos, method, path)
        assert (answer.status_code, answer.json()) == (status, {"status": False, "error": error})


@pytest.mark.interface("Restaurant status")
async def test_a_closed_restaurant_takes_no_new_orders_but_goes_on_with_old_ones(world, pos):
    order = world.place_order(restaurant_id=KADIKOY)
    await pos.put(f"/restaurants/status/close/{KADIKOY}")
    with pytest.raises(CannotOrder, match="closed"):
        world.place_order(restaurant_id=KADIKOY)
    assert [o["payment_key"] for o in await pos.poll()] == [order.key]
    assert (await pos.put(f"/orders/accept/{order.key}", {"preparing_time": 5})).status_code == 200
    await pos.put(f"/restaurants/status/open/{KADIKOY}")
    world.place_order(restaurant_id=KADIKOY)


@pytest.mark.interface("Order item", "Menu item status")
async def test_an_inactive_food_is_not_ordered_and_old_orders_keep_it(world, pos):
    order = world.place_order(restaurant_id=KADIKOY)
    first = order.document["foods"][0]["food_id"]
    for word, is_ordered in (("passive", False), ("active", True)):
        assert (await pos.put(f"/foods/status-{word}/{first}")).json() == {"status": True, "data": "OK"}
        later = [world.place_order(restaurant_id=KADIKOY) for _ in range(60)]
        assert (first in {food["food_id"] for o in later for food in o.document["foods"]}) is is_ordered
    assert order.document["foods"][0]["food_id"] == first
    for food in world.active_foods("kadikoy"):
        await pos.put(f"/foods/status-passive/{food.id}")
    with pytest.raises(CannotOrder):
        world.place_order(restaurant_id=KADIKOY)


@pytest.mark.interface("Endpoints 14", "Endpoints 15", "Errors")
@pytest.mark.parametrize("path", FOOD_CALLS)
async def test_a_wrong_food_is_an_error(pos, path):
    for key, status, error in (
        *((key, 403, "URL hatalı") for key in ("abc", "1.5", "1_000", "٣", KADIKOY, "9" * 19)),
        *((key, 404, "ürün bulunamadı") for key in ("-1", "999999", "2001")),
    ):
        answer = await pos.put(path + key)
        assert (answer.status_code, answer.json()) == (status, {"status": False, "error": error})


@pytest.mark.interface("Menu item", "Menu listing", "Limits")
async def test_the_menu_lists_foods_with_their_status_and_has_its_own_limit(pos, clock):
    await pos.poll()
    await pos.put("/foods/status-passive/1002")
    foods = (await pos.get("/foods/get-foods")).json()["data"]
    assert foods[1] == {"food_id": 1002, "name": "Ezogelin Çorbası", "category": "Çorbalar", "status": "INACTIVE"}
    assert (len(foods), {food["status"] for food in foods}) == (12, {"ACTIVE", "INACTIVE"})
    assert (await pos.get("/foods/get-foods")).json()["error"] == "çok fazla istek"
    clock.advance(60)
    assert (await pos.get("/foods/get-foods")).status_code == 200


@pytest.mark.interface("Menu listing")
async def test_the_shape_of_the_menu_can_be_chosen(world, pos, clock):
    ways = {"flat": [0], "wrapped": ["foods", 0], "by_category": [0, "foods", 0], "by_restaurant": [0, "foods", 0]}
    for shape, way in (ways | {"by_id": ["1001"]}).items():
        world.set_options(menu_shape=shape)
        found = (await pos.get("/foods/get-foods")).json()["data"]
        for step in way:
            found = found[step]
        assert found["name"] == "Mercimek Çorbası", shape
        clock.advance(60)


@pytest.mark.interface("Cancel reason", "Endpoints 12")
async def test_the_cancel_reasons_are_the_eight(pos):
    data = (await pos.get("/orders/cancel-reasons")).json()["data"]
    reasons = "Ürün tükendi, Adres bulunamıyor, Yoğunluk nedeniyle, Müşteri iptal etti, Teknik sorun, "
    reasons += "Çok uzak teslimat adresi, Ödeme problemi, Diğer"
    assert data == [{"id": number, "reason": reason} for number, reason in enumerate(reasons.split(", "), 1)]


@pytest.mark.interface("Payment and shipping methods", "Endpoints 13")
@pytest.mark.parametrize("suffix, card", [(True, "Kredi Kartı (pre-paid)"), (False, "Kredi Kartı")])
async def test_the_variables_are_those_of_the_tables(world: World, pos, suffix: bool, card: str):
    world.set_options(prepaid_suffix=suffix)
    data = (await pos.get("/orders/variables")).json()["data"]
    assert data["paymentMethod"][:2] == [{"key": "CASH", "name": "Nakit"}, {"key": "CREDIT_CARD", "name": card}]
    assert data["paymentMethod"][2]["key"] == "DEBIT_CARD"
    assert data["shippingMethod"] == [{"key": "delivery", "name": "Teslimat"}, {"key": "pickup", "name": "Gel Al"}]


@pytest.mark.interface("Authentication 4", "Versioning")
async def test_what_the_specification_does_not_name_is_a_page_and_no_path_names_a_version(pos):
    for method, path, status in (
        *(("GET", path, 404) for path in ("/", "/orders", "/orders/get-current/", "/v1/orders/get-current")),
        *(("PUT", "/orders/accept/", 404), ("POST", "/auth/logout", 404), ("PUT", "/auth/revoke", 404)),
        *(("POST", "/orders/get-current", 405), ("GET", f"/orders/accept/{NOBODY}", 405)),
    ):
        answer = await call(pos, method, path)
        assert (answer.status_code, answer.headers["content-type"][:9]) == (status, "text/html")
    assert [path for _, _, path in ENDPOINTS if re.search(r"/v\d+(/|$)", path)] == []
    assert (await pos.get("/orders/get-current")).headers.keys() <= {"content-type", "content-length"}
