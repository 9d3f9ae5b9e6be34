"""The commands of the control interface, and the refusal of unknown names."""

import pytest
from tests.sandbox.conftest import Pos

from orderbridge_sandbox.commands import COMMANDS, INNER_FIELDS, ORDER_FIELDS
from orderbridge_sandbox.scenery import ATASEHIR, BESIKTAS, KADIKOY, USKUDAR

ORDERS = "/_sandbox/orders"
NOBODY = "99999999-9999-4999-8999-999999999999"


# ---- what does not exist is refused by name --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method, path, body, status, message",
    [
        ("POST", "/orders", {"colour": 1}, 400, "no such field: colour; there are count, restaurant_id, document, unk"),
        ("POST", "/orders", {"restaurant_id": NOBODY}, 400, f"no such restaurant: {NOBODY}; there are {KADIKOY}"),
        ("POST", "/orders", {"without": ["colour"]}, 400, "no such field of an order: colour; there are id, "),
        ("POST", "/orders", {"document": {"notee": ""}}, 400, "no such field of an order: notee; there are id, "),
        ("POST", "/orders", {"document": {"customer": {"fon": ""}}}, 400, "of an order: fon; there are name"),
        ("PATCH", "/orders/{key}", {"document": {"notee": ""}}, 400, "no such field of an order: notee"),
        ("PATCH", "/options", {"clock_offset_seconds": -1e300}, 400, "is more than 1,000,000,000"),
        ("POST", "/faults", {"times": 1.5}, 400, "times: 1.5 is not a whole number"),
        ("POST", "/orders", {"count": "1"}, 400, "count: '1'; expected: whole number"),
        ("POST", "/orders/{key}/status", {}, 400, "status_id is missing: whole number"),
        ("POST", "/orders/{key}/foods", {"food_id": 9}, 404, "no such food: 9; there are 1001, "),
        ("POST", "/orders/{key}/foods", {"food_id": 1001, "quantity": -1}, 400, "quantity: -1 is below 0"),
        ("PATCH", "/orders/{key}", {"document": {"status_id": 2}}, 400, "status_id: cannot be changed"),
        ("PATCH", "/options", {"colour": 1}, 400, "no such option: colour; there are orders_per_minute, "),
        ("POST", "/presets", {"name": "monday"}, 400, "no such preset: monday; there are quiet, friday, "),
        ("POST", "/faults", {"colour": 1}, 400, "no such field: colour; there are account, "),
        ("POST", "/faults", {"account": "moda"}, 400, "no such account: moda; there are kadikoy, "),
        ("POST", "/faults", {"kind": "explode"}, 400, "explode"),
        ("POST", "/faults", {"status": "500"}, 400, ""),
        ("POST", "/faults", {"headers": {"X": 1}}, 400, ""),
        ("POST", "/faults", {"body_base64": "%"}, 400, ""),
        ("POST", "/orders", [1], 400, "the body must be a JSON object"),
        ("POST", "/orders", {"count": 0}, 400, "count: 0"),
        ("POST", "/orders", {"count": True}, 400, "count: True"),
        ("POST", "/orders", {"document": "x"}, 400, "document: 'x'"),
        ("POST", f"/orders/{NOBODY}/cancel", {}, 404, NOBODY),
        ("GET", f"/orders/{NOBODY}", None, 404, NOBODY),
        ("POST", "/accounts/refuse", {}, 400, "account is missing"),
        ("POST", "/faults", {"account": 1}, 400, "account: 1 is not a text"),
        ("POST", "/faults", {"operation": "acept"}, 400, "operation: 'acept' is none of "),
        ("POST", "/faults", {"percent": 101}, 400, "percent: 101 is not between 0 and 100"),
        ("POST", "/faults", {"every": 0}, 400, "every must be at least 1"),
        ("POST", "/tokens/end", {"account": "moda"}, 400, "no such account: moda"),
        ("POST", "/accounts/refuse", {"account": "moda"}, 400, "no such account: moda"),
        ("PATCH", "/accounts/moda", {}, 404, "no such account: moda"),
        ("POST", "/accounts", {"name": "moda", "restaurant_ids": [NOBODY]}, 400, "no such restaurant"),
        ("POST", "/accounts", {"name": "kadikoy", "restaurant_ids": []}, 409, "there is already an account"),
        ("PATCH", "/accounts/chain", {"rest_secret_key": "sandbox-kadikoy-secret"}, 409, "another account has"),
        ("POST", "/restaurants", {"name": "X", "id": KADIKOY}, 409, "there is already a restaurant"),
        ("POST", f"/restaurants/{NOBODY}/close", {}, 404, "no such restaurant"),
        ("PATCH", "/foods/9", {}, 404, "no such food: 9"),
        ("PATCH", "/foods/x", {}, 400, "a food's id is a whole number"),
        ("PATCH", "/foods/1001", {"status": "OFF"}, 400, "status: 'OFF' is neither ACTIVE nor INACTIVE"),
        ("POST", "/foods", {"menu": "kadikoy", "id": 1001, "name": "X", "price": 1}, 409, "already a food 1001"),
        ("GET", "/ledger?operation=acept", None, 400, "no such operation: acept; there are login, "),
        ("GET", "/ledger?account=moda", None, 400, "no such account: moda"),
        ("GET", "/ledger?colour=1", None, 400, "no such query parameter: colour; there are operation, account"),
        ("GET", "/orders?x=1", None, 400, "no such query parameter: x; there are none"),
        ("GET", "/nothing", None, 404, "no such path: /_sandbox/nothing; there are /_sandbox/, "),
        ("DELETE", "/orders", None, 405, "/_sandbox/orders takes GET, POST, not DELETE"),
    ],
)
async def test_a_mistake_is_named(world, http, method, path, body, status, message):
    key = world.place_order(restaurant_id=KADIKOY).key
    answer = await http.request(method, "/_sandbox" + path.replace("{key}", key), json=body)
    assert (answer.status_code, len(world.orders)) == (status, 1)
    assert message in answer.json()["error"]


async def test_what_is_no_command_answers_no_stranger_either(http):
    assert (await http.get("/_sandbox/nothing", headers={"Host": "evil.example"})).status_code == 403
    assert (await http.get("/_sandbox")).status_code == 404


def test_the_fields_of_an_order_are_those_of_an_order(world):
    document = world.place_order().document
    assert list(document) == ORDER_FIELDS
    assert {name: list(document[name]) for name in INNER_FIELDS} == INNER_FIELDS


async def test_a_field_that_no_order_has_is_kept_when_it_is_wanted(http):
    body = {"document": {"extra": [1], "customer": {"vip": True}}, "unknown_fields": True, "without": ["extra"]}
    [order] = (await http.post(ORDERS, json=body)).json()
    assert ("extra" in order["document"], order["document"]["customer"]["vip"]) == (False, True)


def test_every_command_has_words_in_both_languages():
    parts = [command.words[name] for command in COMMANDS for name in command.parts or {}]
    texts = [(one["en"], one["tr"]) for one in [*(command.words for command in COMMANDS), *parts]]
    assert [pair for pair in texts if not all(pair)] == []
    assert [command.path for command in COMMANDS if command.words["en"] == command.words["tr"]] == []


# ---- restaurants, accounts, foods ------------------------------------------------------------------------------------


async def test_the_platform_opens_and_closes(world, http, pos):
    for word, status in (("close", "Closed"), ("open", "Open")):
        answer = await http.post(f"/_sandbox/restaurants/{KADIKOY.upper()}/{word}")
        assert answer.json() == {"status": status}
        assert (await pos.get(f"/restaurants/status/get/{KADIKOY}")).json()["data"] == status


async def test_a_restaurant_a_food_and_an_account_that_come_later_work_like_the_others(world, http):
    restaurant = (await http.post("/_sandbox/restaurants", json={"name": "Yeni Şube"})).json()
    food = {"menu": restaurant["menu"], "id": 4001, "name": "Simit", "price": 15.5}
    assert (await http.post("/_sandbox/foods", json=food)).json()["status"] == "ACTIVE"
    account = {"name": "moda", "restaurant_ids": [restaurant["id"], KADIKOY]}
    await http.post("/_sandbox/accounts", json=account)
    pos = Pos(http, "moda")
    await pos.login()
    listed = (await pos.get("/restaurants/get")).json()["data"]
    assert [one["name"] for one in listed] == ["Yeni Şube", "Örnek Lokanta Kadıköy"]
    order = (await http.post(ORDERS, json={"restaurant_id": restaurant["id"]})).json()[0]
    assert [one["name"] for one in order["document"]["foods"]] == ["Simit"]
    assert [one["payment_key"] for one in await pos.poll()] == [order["payment_key"]]


async def test_an_account_can_be_given_other_restaurants_and_secrets(world, http, pos):
    changes = {"restaurant_ids": [USKUDAR, BESIKTAS], "rest_secret_key": "new"}
    await http.patch("/_sandbox/accounts/kadikoy", json=changes)
    assert [one["id"] for one in (await pos.get("/restaurants/get")).json()["data"]] == [USKUDAR, BESIKTAS]
    assert (await pos.login()).status_code == 401
    pos.secrets["rest_secret_key"] = "new"
    assert (await pos.login()).status_code == 200
    await http.post("/_sandbox/reset")
    assert [account.restaurant_ids for account in world.accounts.values()][2] == (USKUDAR, ATASEHIR)


async def test_a_food_of_the_menu_changes_and_placed_orders_stay(world, http, pos):
    order = world.place_order(restaurant_id=KADIKOY)
    before = order.document
    changes = {"price": 99.9, "name": "Çorba", "status": "INACTIVE"}
    shown = (await http.patch("/_sandbox/foods/1001", json=changes)).json()
    assert (shown["price"], shown["name"], shown["status"]) == (99.9, "Çorba", "INACTIVE")
    [listed] = [food for food in (await pos.get("/foods/get-foods")).json()["data"] if food["food_id"] == 1001]
    assert (listed["name"], listed["status"]) == ("Çorba", "INACTIVE")
    assert order.document == before
    assert (await http.patch("/_sandbox/foods/1001", json={"status": "ACTIVE"})).json()["status"] == "ACTIVE"


# ---- a placed order --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("again", [False, True])
async def test_the_platform_changes_an_order_and_lists_it_again_by_the_switch(world, http, pos, clock, again):
    world.set_options(changed_are_listed_again=again)
    order = world.place_order(restaurant_id=KADIKOY)
    await pos.poll()
    await pos.put(f"/orders/success/{order.key}")
    body = {"document": {"note": "Kapıda", "customer": {"name": "Deneme"}}, "without": ["customer.phone"]}
    shown = (await http.patch(f"{ORDERS}/{order.key}", json=body)).json()["document"]
    assert (shown["note"], shown["customer"]) == ("Kapıda", {"name": "Deneme"})
    clock.advance(30)
    assert len(await pos.poll()) == again


async def test_a_line_of_a_placed_order_changes_and_its_totals_follow(world, http):
    line = {"id": NOBODY, "food_id": 1003, "name": "Köfte", "note": "", "price": 100, "quantity": 1, "total": 110}
    line["option_groups"] = [{"id": 1, "name": "x", "type": "multi", "operation": "+", "options": {"price": 10}}]
    document = {"foods": [line], "courier_fee": 20, "order_tip": 5, "discount": "15.00", "total": 120}
    order = world.place_order(restaurant_id=KADIKOY, document=document)

    async def changed(**body) -> tuple[str, list[tuple[int, int, float]]]:
        await http.post(f"{ORDERS}/{order.key}/foods", json=body)
        return str(order.document["total"]), [
            (f["food_id"], f["quantity"], f["total"]) for f in order.document["foods"]
        ]

    assert await changed(food_id=1003, quantity=2) == ("220.00", [(1003, 2, 210)])
    assert await changed(food_id=1003, price=50.5) == ("121.00", [(1003, 2, 111)])
    assert await changed(food_id=1009) == ("156.00", [(1003, 2, 111), (1009, 1, 35)])
    assert await changed(food_id=1003, quantity=0) == ("45.00", [(1009, 1, 35)])


async def test_an_order_whose_amounts_are_nonsense_is_not_added_up(world, http):
    order = world.place_order(restaurant_id=KADIKOY, document={"discount": "12,50"})
    answer = await http.post(f"{ORDERS}/{order.key}/foods", json={"food_id": 1001})
    assert (answer.status_code, "cannot be added up" in answer.json()["error"]) == (409, True)


# ---- time and presets ------------------------------------------------------------------------------------------------


async def test_the_platforms_clock_goes_ahead(world, http, pos):
    assert (await http.post("/_sandbox/clock", json={"advance": 3600})).json()["now"] == "2026-03-01T16:00:00+03:00"
    await http.post("/_sandbox/clock", json={"advance": 82800.5})
    assert (await pos.get("/orders/variables")).status_code == 401
