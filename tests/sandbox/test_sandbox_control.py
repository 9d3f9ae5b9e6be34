"""The control interface below /_sandbox/."""

import base64

import httpx
import pytest

from orderbridge_sandbox import create_app
from orderbridge_sandbox.scenery import BESIKTAS, KADIKOY

ORDERS = "/_sandbox/orders"
JSON = {"Content-Type": "application/json; charset=utf-8"}
OPTIONS = "/_sandbox/options"


@pytest.fixture
async def named(world):
    """The application as a server that has one name more than its address."""
    transport = httpx.ASGITransport(create_app(world, names=("localhost", "127.0.0.1", "::1", "pos.lan")))
    async with httpx.AsyncClient(transport=transport, base_url="https://sandbox.test") as client:
        yield client


async def test_it_describes_itself(http):
    answer = (await http.get("/_sandbox/")).json()
    assert any(line.startswith("POST /_sandbox/orders: ") for line in answer["commands"])
    assert "get_current" in answer["operations"]
    assert "drip" in answer["fault_kinds"]
    assert answer["options"]["cooldown_seconds"] == 30


async def test_orders_are_placed_and_shown_with_their_truth(world, http):
    placed = (await http.post(ORDERS, json={"count": 3, "restaurant_id": BESIKTAS})).json()
    assert {order["restaurant_id"] for order in placed} == {BESIKTAS}
    assert (await http.get(ORDERS)).json() == placed
    one = (await http.get(f"{ORDERS}/{placed[1]['payment_key']}")).json()
    assert one == placed[1]
    assert (one["status_id"], one["acknowledged"], one["acknowledgements"]) == (1, False, [])
    assert one["document"]["payment_key"] == one["payment_key"]


async def test_this_very_document_can_be_placed(http, pos):
    content = '{"restaurant_id": "%s", "document": {"total": 12.50, "note": "ç", "courier_type": "drone"}, "without": ["foods"]}'
    await http.post(ORDERS, content=content % KADIKOY, headers=JSON)
    answer = await pos.get("/orders/get-current")
    [order] = answer.json()["data"]
    assert '"total":12.50' in answer.text
    assert (order["note"], order["courier_type"], "foods" in order) == ("ç", "drone", False)


async def test_another_client_changes_the_status(world, http):
    order = world.place_order()
    await http.post(f"{ORDERS}/{order.key}/acknowledge")
    answer = await http.post(f"{ORDERS}/{order.key}/status", json={"status_id": 42, "status_text": "Yolda"})
    assert (answer.json()["status_id"], answer.json()["status_text"]) == (42, "Yolda")
    assert answer.json()["history"][-1]["by"] == "panel"


async def test_the_ledger_can_be_read(world, http, pos):
    await pos.poll()
    lines = (await http.get("/_sandbox/ledger")).json()
    assert [line["operation"] for line in lines] == ["login", "get_current"]
    assert [line["body"] for line in lines] == [None, None]
    assert len((await http.get("/_sandbox/ledger?operation=login&account=kadikoy")).json()) == 1


@pytest.mark.parametrize(
    "fault, status, body, content_type",
    [
        pytest.param({"body": {"a": "ş", "b": 1.50}}, 500, '{"a":"ş","b":1.5}'.encode(), "application/json", id="JSON"),
        pytest.param({"status": 502, "body": "<p>"}, 502, b"<p>", "text/html; charset=utf-8", id="a page"),
        pytest.param({"body": "x", "content_type": "text/plain"}, 500, b"x", "text/plain", id="a type of its own"),
        pytest.param(
            {"body_base64": base64.b64encode(b"\xff").decode()}, 500, b"\xff", "application/json", id="any bytes"
        ),
        pytest.param({"status": 503, "seconds": 0.001}, 503, b"", None, id="nothing, a little later"),
    ],
)
async def test_faults_can_be_added_and_forgotten(world, http, fault, status, body, content_type):
    added = await http.post("/_sandbox/faults", json={"operation": "get_variables", **fault})
    assert added.status_code == 200
    assert (await http.get("/_sandbox/faults")).json() == [added.json()]
    answer = await http.get("/orders/variables")
    assert (answer.status_code, answer.content, answer.headers.get("content-type")) == (status, body, content_type)
    assert (await http.get("/_sandbox/faults")).json() == []
    await http.post("/_sandbox/faults", json={"kind": "drop", "times": None})
    await http.delete("/_sandbox/faults")
    assert world.faults.pending() == []


async def test_tokens_end_and_credentials_go_until_the_reset(http, pos):
    assert (await http.post("/_sandbox/tokens/end", json={"account": "kadikoy"})).json() == {"ended": 1}
    await http.post("/_sandbox/accounts/refuse", json={"account": "kadikoy"})
    assert (await pos.login()).status_code == 401
    await http.post("/_sandbox/reset", json={"seed": 3})
    assert (await pos.login()).status_code == 200


async def test_the_scenery_shows_what_is_open_and_active(world, http):
    world.close_restaurant(KADIKOY)
    world.inactive_foods.add(("kadikoy", 1001))
    scenery = (await http.get("/_sandbox/scenery")).json()
    assert [r["status"] for r in scenery["restaurants"]] == ["Closed", "Open", "Open", "Open"]
    assert [f["id"] for f in scenery["foods"] if f["status"] == "INACTIVE"] == [1001]
    assert scenery["accounts"][0]["rest_secret_key"] == "sandbox-kadikoy-secret"


# ---- who may call it -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    ["localhost:8443", "127.0.0.1", "127.0.0.9:8443", "[::1]:8443", "LOCALHOST.", "sandbox.test", "pos.lan:8443"],
)
async def test_it_answers_under_its_own_names(host, world, named):
    assert (await named.get(OPTIONS, headers={"Host": host})).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1", "[", ""]
)
@pytest.mark.parametrize("method, path", [("GET", OPTIONS), ("POST", ORDERS), ("DELETE", "/_sandbox/faults")])
async def test_it_answers_under_no_foreign_name(method, path, host, world, named):
    answer = await named.request(method, path, headers={"Host": host})
    assert (answer.status_code, len(world.orders)) == (403, 0)


@pytest.mark.parametrize(
    "origin, status",
    [
        ("https://localhost:8443", 200),
        ("https://LOCALHOST:8443", 200),
        ("http://localhost:8443", 403),
        ("https://localhost:3000", 403),
        ("https://evil.example", 403),
        ("null", 403),
        ("", 403),
    ],
)
async def test_it_answers_no_other_page(origin, status, world, named):
    headers = {"Host": "localhost:8443", "Origin": origin}
    assert (await named.post(ORDERS, headers=headers)).status_code == status
    assert len(world.orders) == (1 if status == 200 else 0)


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded", "application/jsonx"])
@pytest.mark.parametrize("method, path", [("POST", ORDERS), ("PATCH", OPTIONS), ("DELETE", "/_sandbox/faults")])
async def test_only_a_body_declared_as_json_is_read(method, path, kind, world, http):
    headers = {} if kind is None else {"Content-Type": kind}
    answer = await http.request(method, path, content=b'{"cooldown_seconds": 1}', headers=headers)
    assert (answer.status_code, "Content-Type: application/json" in answer.json()["error"]) == (415, True)
    assert (len(world.orders), world.options.cooldown_seconds) == (0, 30)
