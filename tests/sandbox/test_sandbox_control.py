"""The control interface below /_sandbox/: its commands, the refusal of unknown names, and who may call it."""

import base64

import httpx
import pytest
from tests.sandbox.conftest import Pos

from orderbridge_sandbox import create_app
from orderbridge_sandbox.commands import INNER_FIELDS, ORDER_FIELDS
from orderbridge_sandbox.scenery import ATASEHIR, BESIKTAS, KADIKOY, USKUDAR

ORDERS = "/_sandbox/orders"
JSON = {"Content-Type": "application/json; charset=utf-8"}
OPTIONS = "/_sandbox/options"
NOBODY = "99999999-9999-4999-8999-999999999999"


@pytest.fixture
async def named(world):
    """The application as a server that has one name more than its address."""
    transport = httpx.ASGITransport(create_app(world, names=("localhost", "127.0.0.1", "::1", "pos.lan")))
    async with httpx.AsyncClient(transport=transport, base_url="https://sandbox.test") as client:
        yield client


async def test_orders_are_placed_shown_and_changed_by_another_client(http):
    placed = (await http.post(ORDERS, json={"count": 3, "restaurant_id": BESIKTAS})).json()
    assert ({order["restaurant_id"] for order in placed}, (await http.get(ORDERS)).json()) == ({BESIKTAS}, placed)
    one = (await http.get(f"{ORDERS}/{placed[1]['payment_key']}")).json()
    assert (one, one["status_id"], one["acknowledged"], one["acknowledgements"]) == (placed[1], 1, False, [])
    await http.post(f"{ORDERS}/{one['payment_key']}/acknowledge")
    changed = {"status_id": 42, "status_text": "Yolda"}
    shown = (await http.post(f"{ORDERS}/{one['payment_key']}/status", json=changed)).json()
    assert (shown["status_id"], shown["status_text"], shown["history"][-1]["by"]) == (42, "Yolda", "panel")


async def test_this_very_document_can_be_placed(http, pos, world):
    content = '{"restaurant_id": "%s", "document": {"total": 12.50, "note": "ç", "courier_type": "drone"},'
    content += ' "without": ["foods"]}'
    await http.post(ORDERS, content=content % KADIKOY, headers=JSON)
    answer = await pos.get("/orders/get-current")
    [order] = answer.json()["data"]
    assert '"total":12.50' in answer.text
    assert order["note"] == "ç" and order["courier_type"] == "drone" and "foods" not in order
    body = {"document": {"extra": [1], "customer": {"vip": True}}, "unknown_fields": True, "without": ["extra"]}
    [order] = (await http.post(ORDERS, json=body)).json()
    assert "extra" not in order["document"] and order["document"]["customer"]["vip"] is True
    document = world.place_order().document
    assert (list(document), {name: list(document[name]) for name in INNER_FIELDS}) == (ORDER_FIELDS, INNER_FIELDS)


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
    changes = [({"quantity": 2}, "220.00", [(1003, 2, 210)]), ({"price": 50.5}, "121.00", [(1003, 2, 111)])]
    changes.append(({"food_id": 1009}, "156.00", [(1003, 2, 111), (1009, 1, 35)]))
    for body, total, lines in (*changes, ({"quantity": 0}, "45.00", [(1009, 1, 35)])):
        await http.post(f"{ORDERS}/{order.key}/foods", json={"food_id": 1003} | body)
        assert str(order.document["total"]) == total
        assert [(one["food_id"], one["quantity"], one["total"]) for one in order.document["foods"]] == lines


async def test_the_ledger_can_be_read(http, pos):
    await pos.poll()
    lines = (await http.get("/_sandbox/ledger")).json()
    assert [(line["operation"], line["body"]) for line in lines] == [("login", None), ("get_current", None)]
    assert len((await http.get("/_sandbox/ledger?operation=login&account=kadikoy")).json()) == 1


@pytest.mark.parametrize("fault, status, body, content_type", [
    ({"body": {"a": "ş", "b": 1.50}}, 500, '{"a":"ş","b":1.5}'.encode(), "application/json"),
    ({"status": 502, "body": "<p>"}, 502, b"<p>", "text/html; charset=utf-8"),
    ({"body": "x", "content_type": "text/plain"}, 500, b"x", "text/plain"),
    ({"body_base64": base64.b64encode(b"\xff").decode()}, 500, b"\xff", "application/json"),
    ({"status": 503, "seconds": 0.001}, 503, b"", None),
])  # fmt: skip
async def test_faults_can_be_added_and_forgotten(world, http, fault, status, body, content_type):
    added = await http.post("/_sandbox/faults", json={"operation": "get_variables", **fault})
    assert (await http.get("/_sandbox/faults")).json() == [added.json()]
    answer = await http.get("/orders/variables")
    assert (answer.status_code, answer.content, answer.headers.get("content-type")) == (status, body, content_type)
    await http.post("/_sandbox/faults", json={"kind": "drop", "times": None})
    await http.delete("/_sandbox/faults")
    assert world.faults.pending() == []


async def test_tokens_end_accounts_change_and_the_clock_goes_ahead_until_the_reset(world, http, pos):
    assert (await http.post("/_sandbox/tokens/end", json={"account": "kadikoy"})).json() == {"ended": 1}
    await http.post("/_sandbox/accounts/refuse", json={"account": "kadikoy"})
    assert (await pos.login()).status_code == 401
    await http.post("/_sandbox/reset", json={"seed": 3})
    assert (await pos.login()).status_code == 200
    changes = {"restaurant_ids": [USKUDAR, BESIKTAS], "rest_secret_key": "new"}
    await http.patch("/_sandbox/accounts/kadikoy", json=changes)
    assert [one["id"] for one in (await pos.get("/restaurants/get")).json()["data"]] == [USKUDAR, BESIKTAS]
    assert (await pos.login()).status_code == 401
    pos.secrets["rest_secret_key"] = "new"
    assert (await pos.login()).status_code == 200
    await http.post("/_sandbox/reset")
    assert [account.restaurant_ids for account in world.accounts.values()][2] == (USKUDAR, ATASEHIR)
    assert (await http.post("/_sandbox/clock", json={"advance": 3600})).json()["now"] == "2026-03-01T16:00:00+03:00"


async def test_restaurants_and_foods_come_change_and_close(world, http, pos):
    restaurant = (await http.post("/_sandbox/restaurants", json={"name": "Yeni Şube"})).json()
    food = {"menu": restaurant["menu"], "id": 4001, "name": "Simit", "price": 15.5}
    assert (await http.post("/_sandbox/foods", json=food)).json()["status"] == "ACTIVE"
    await http.post("/_sandbox/accounts", json={"name": "moda", "restaurant_ids": [restaurant["id"], KADIKOY]})
    moda = Pos(http, "moda")
    await moda.login()
    listed = (await moda.get("/restaurants/get")).json()["data"]
    assert [one["name"] for one in listed] == ["Yeni Şube", "Örnek Lokanta Kadıköy"]
    order = (await http.post(ORDERS, json={"restaurant_id": restaurant["id"]})).json()[0]
    assert [one["name"] for one in order["document"]["foods"]] == ["Simit"]
    assert [one["payment_key"] for one in await moda.poll()] == [order["payment_key"]]
    changes = {"price": 99.9, "name": "Çorba", "status": "INACTIVE"}
    shown = (await http.patch("/_sandbox/foods/1001", json=changes)).json()
    assert (shown["price"], shown["name"], shown["status"]) == (99.9, "Çorba", "INACTIVE")
    [listed] = [food for food in (await pos.get("/foods/get-foods")).json()["data"] if food["food_id"] == 1001]
    assert (listed["name"], listed["status"]) == ("Çorba", "INACTIVE")
    assert (await http.post(f"/_sandbox/restaurants/{KADIKOY.upper()}/close")).json() == {"status": "Closed"}
    scenery = (await http.get("/_sandbox/scenery")).json()
    assert [one["status"] for one in scenery["restaurants"]][:2] == ["Closed", "Open"]
    assert [one["id"] for one in scenery["foods"] if one["status"] == "INACTIVE"] == [1001]
    assert scenery["accounts"][0]["rest_secret_key"] == "sandbox-kadikoy-secret"


@pytest.mark.parametrize("method, path, body, status, message", [
    ("POST", "/orders", {"colour": 1}, 400, "no such field: colour; known: count, restaurant_id, document, unk"),
    ("POST", "/orders", {"restaurant_id": NOBODY}, 400, f"no such restaurant: {NOBODY}; known: {KADIKOY}"),
    ("POST", "/orders", {"without": ["colour"]}, 400, "no such field of an order: colour; known: id, "),
    ("POST", "/orders", {"document": {"customer": {"fon": ""}}}, 400, "of an order: fon; known: name"),
    ("POST", "/orders", {"count": "1"}, 400, "count: '1'; expected: whole number"),
    ("POST", "/orders", [1], 400, "the body must be a JSON object"),
    ("POST", "/orders", {"document": "x"}, 400, "document: 'x'"),
    ("PATCH", "/orders/{key}", {"document": {"notee": ""}}, 400, "no such field of an order: notee"),
    ("PATCH", "/orders/{key}", {"document": {"status_id": 2}}, 400, "status_id: cannot be changed"),
    ("POST", "/orders/{key}/status", {}, 400, "status_id is missing: whole number"),
    ("POST", "/orders/{key}/foods", {"food_id": 9}, 404, "no such food: 9; known: 1001, "),
    ("POST", "/orders/{key}/foods", {"food_id": 1001, "quantity": -1}, 400, "quantity: -1 is below 0"),
    ("POST", f"/orders/{NOBODY}/cancel", {}, 404, NOBODY),
    ("PATCH", "/options", {"colour": 1}, 400, "no such option: colour; known: orders_per_minute, "),
    ("PATCH", "/options", {"clock_offset_seconds": -1e300}, 400, "is more than 1,000,000,000"),
    ("POST", "/presets", {"name": "monday"}, 400, "no such preset: monday; known: quiet, friday, "),
    ("POST", "/faults", {"account": "moda"}, 400, "no such account: moda; known: kadikoy, "),
    ("POST", "/faults", {"status": "500"}, 400, ""),
    ("POST", "/faults", {"headers": {"X": 1}}, 400, ""),
    ("POST", "/faults", {"body_base64": "%"}, 400, ""),
    ("POST", "/faults", {"operation": "acept"}, 400, "operation: 'acept' is none of "),
    ("POST", "/faults", {"percent": 101}, 400, "percent: 101 is not between 0 and 100"),
    ("POST", "/accounts", {"name": "kadikoy", "restaurant_ids": []}, 409, "there is already an account"),
    ("PATCH", "/accounts/chain", {"rest_secret_key": "sandbox-kadikoy-secret"}, 409, "another account has"),
    ("POST", "/restaurants", {"name": "X", "id": KADIKOY}, 409, "there is already a restaurant"),
    ("PATCH", "/foods/x", {}, 400, "a food's id is a whole number"),
    ("PATCH", "/foods/1001", {"status": "OFF"}, 400, "status: 'OFF' is neither ACTIVE nor INACTIVE"),
    ("GET", "/ledger?operation=acept", None, 400, "no such operation: acept; known: login, "),
    ("GET", "/ledger?colour=1", None, 400, "no such query parameter: colour; known: operation, account"),
    ("GET", "/nothing", None, 404, "no such path: /_sandbox/nothing; known: /_sandbox/, "),
    ("DELETE", "/orders", None, 405, "/_sandbox/orders takes GET, POST, not DELETE"),
])  # fmt: skip
async def test_a_mistake_is_named(world, http, method, path, body, status, message):
    key = world.place_order(restaurant_id=KADIKOY).key
    answer = await http.request(method, "/_sandbox" + path.replace("{key}", key), json=body)
    assert answer.status_code == status and len(world.orders) == 1 and message in answer.json()["error"]


async def test_the_control_interface_answers_only_under_its_own_names(world, named):
    for host in ("localhost:8443", "127.0.0.9:8443", "[::1]:8443", "LOCALHOST.", "sandbox.test", "pos.lan:8443"):
        assert (await named.get(OPTIONS, headers={"Host": host})).status_code == 200, host
    for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1", "[", ""):
        for call in (("GET", OPTIONS), ("POST", ORDERS), ("DELETE", "/_sandbox/faults"), ("GET", "/_sandbox/x")):
            answer = await named.request(*call, headers={"Host": host})
            assert (answer.status_code, len(world.orders)) == (403, 0), host


async def test_the_control_interface_answers_no_foreign_page(world, named):
    own, foreign = "https://LOCALHOST:8443", ("http://localhost:8443", "https://localhost:3000", "https://evil.example")
    for origin in (*foreign, "null", "", own):
        answer = await named.post(ORDERS, headers={"Host": "localhost:8443", "Origin": origin})
        assert (answer.status_code, len(world.orders)) == ((200, 1) if origin == own else (403, 0)), origin


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded", "application/jsonx"])
async def test_only_a_body_declared_as_json_is_read(kind, world, http):
    headers = {} if kind is None else {"Content-Type": kind}
    for method, path in (("POST", ORDERS), ("PATCH", OPTIONS), ("DELETE", "/_sandbox/faults")):
        answer = await http.request(method, path, content=b'{"cooldown_seconds": 1}', headers=headers)
        assert answer.status_code == 415 and "Content-Type: application/json" in answer.json()["error"]
    assert (len(world.orders), world.options.cooldown_seconds) == (0, 30)
