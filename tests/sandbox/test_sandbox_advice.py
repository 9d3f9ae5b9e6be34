"""The ledger has advice on each mistaken call, whatever the answer, and keeps calls to unknown paths."""

import pytest

from orderbridge_sandbox.scenery import BESIKTAS, KADIKOY
from orderbridge_sandbox.switches import words

NOBODY = "99999999-9999-4999-8999-999999999999"
LOGIN = "/auth/login"


def codes(world) -> list[str]:
    return [one.code for one in world.calls()[-1].advice]


@pytest.fixture
def order(world):
    return world.place_order(restaurant_id=KADIKOY, document={"courier_type": "restaurant"})


@pytest.fixture
async def listed(pos, order):
    await pos.poll()
    return order


@pytest.fixture
async def acknowledged(pos, listed):
    await pos.put(f"/orders/success/{listed.key}")
    return listed


# ---- what hits nothing -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method, path, status, code, message",
    [
        ("GET", "/orders", 404, "unknown_path", "The service has no such path."),
        ("GET", "/orders/accept", 404, "unknown_path", "The service has no such path."),
        ("POST", f"/orders/accept/{NOBODY}?x=1", 405, "unknown_method", "This path is called with PUT."),
        ("GET", LOGIN, 405, "unknown_method", "This path is called with POST."),
        ("PATCH", "/orders/get-current", 405, "unknown_method", "This path is called with GET."),
    ],
)
async def test_a_call_to_what_is_not_there_is_kept(world, pos, method, path, status, code, message):
    answer = await pos.http.request(method, path, headers=pos.headers, json={"app_secret_key": "secret"})
    line = world.calls()[-1]
    assert (line.operation, line.method, line.path, line.account) == ("unknown", method, path, "kadikoy")
    assert (answer.status_code, line.http_status, line.answered_at is not None) == (status, status, True)
    assert [(one.code, one.text) for one in line.advice] == [(code, message)]
    assert line.body is None


# ---- a call in its turn has nothing wrong with it --------------------------------------------------------------------


async def test_a_whole_life_in_order_gets_no_advice(world, pos, clock, order):
    for action, body in (("accept", {"preparing_time": 20}), ("ontheway", None), ("complete", None)):
        assert len(await pos.poll()) == 1
        await pos.put(f"/orders/success/{order.key}")
        await pos.put(f"/orders/{action}/{order.key}", body)
        clock.advance(30)
    await pos.get("/restaurants/get")
    await pos.get(f"/restaurants/status/get/{KADIKOY}")
    await pos.put(f"/restaurants/status/close/{KADIKOY}")
    await pos.put("/foods/status-passive/1001")
    await pos.get("/foods/get-foods")
    clock.advance(84000)
    await pos.login()
    assert [(line.operation, line.advice) for line in world.calls() if line.advice] == []


# ---- and out of it ---------------------------------------------------------------------------------------------------


async def test_accept_before_the_list_and_before_the_acknowledgement(world, pos, order):
    await pos.put(f"/orders/accept/{order.key}", {"preparing_time": 20})
    assert codes(world) == ["never_delivered"]
    await pos.poll()
    await pos.put(f"/orders/ontheway/{order.key}")
    [advice] = world.calls()[-1].advice
    assert advice.code == "not_acknowledged"
    assert advice.text.startswith("on_the_way before the order was acknowledged")


@pytest.mark.parametrize(
    "action, body, code",
    [
        ("ontheway", None, "wrong_status"),
        ("complete", None, "wrong_status"),
        ("success", None, "acknowledged_again"),
        ("accept", {"preparing_time": "20"}, "wrong_value"),
        ("accept", {}, "missing_field"),
        ("accept", {"preparing_time": 20, "minutes": 20}, "unknown_field"),
        ("accept", [], "body_no_object"),
        ("cancel", {"reason_id": 9}, "wrong_value"),
        ("cancel", {"reason_id": True}, "wrong_value"),
        ("success", {"id": 1}, "body_not_asked_for"),
    ],
)
async def test_a_call_out_of_its_turn(world, pos, acknowledged, action, body, code):
    await pos.put(f"/orders/{action}/{acknowledged.key}", body)
    assert code in codes(world)


async def test_what_is_acknowledged_unseen(world, pos, listed):
    world.cancel_by_customer(listed.key)
    await pos.put(f"/orders/success/{listed.key}")
    assert codes(world) == ["acknowledged_unseen"]


async def test_an_order_with_another_courier_is_not_on_the_way(world, pos):
    order = world.place_order(restaurant_id=KADIKOY, document={"courier_type": "come_get", "status_id": 2})
    await pos.poll()
    await pos.put(f"/orders/success/{order.key}")
    await pos.put(f"/orders/ontheway/{order.key}")
    assert codes(world) == ["not_own_courier"]


@pytest.mark.parametrize(
    "path, code",
    [
        ("/orders/success/100001", "number_for_key"),
        ("/orders/success/abc", "not_a_uuid"),
        (f"/orders/success/{NOBODY}", "unknown_order"),
        (f"/restaurants/status/open/{BESIKTAS}", "foreign_restaurant"),
        ("/restaurants/status/open/1", "not_a_uuid"),
        ("/orders/success/{foreign}", "foreign_order"),
    ],
)
async def test_an_id_that_will_not_do(world, pos, path, code):
    await pos.put(path.format(foreign=world.place_order(restaurant_id=BESIKTAS).key))
    assert codes(world) == [code]


async def test_a_refusal_is_not_to_be_repeated(world, pos):
    for expected in (["unknown_order"], ["unknown_order", "repeated_refusal"]):
        await pos.put(f"/orders/success/{NOBODY}")
        assert codes(world) == expected


@pytest.mark.parametrize(
    "sent, expected",
    [
        ({"json": {"app_secret_key": "x", "rest_secret_key": "y"}}, ["wrong_credentials"]),
        ({"json": {"app_secret_key": "x"}}, ["missing_field"]),
        ({"json": {"app_secret_key": 7, "rest_secret_key": "y"}}, ["wrong_value"]),
        ({"content": '{"app_secret_key": "x"}'}, ["body_not_json", "missing_field", "missing_field"]),
    ],
)
async def test_a_login_that_fails(world, http, sent, expected):
    await http.post(LOGIN, **sent)
    assert codes(world) == expected
    assert "7" not in str(world.calls()[-1].advice)


async def test_a_login_while_the_token_is_valid(world, pos, clock):
    clock.advance(3600)
    await pos.login()
    assert next(one.text.split(" for ")[1] for one in world.calls()[-1].advice).startswith("1380 more minutes")


@pytest.mark.parametrize(
    "headers, seconds, code",
    [(None, 0, "no_token"), ({"Access-Token": "x"}, 0, "unknown_token"), ({}, 86400, "expired_token")],
)
async def test_a_token_that_will_not_do(world, pos, clock, headers, seconds, code):
    clock.advance(seconds)
    await pos.http.get("/orders/variables", headers=pos.headers if headers == {} else headers)
    assert codes(world) == [code]


async def test_advice_is_in_the_language_of_the_switch_and_on_the_control_interface(world, pos):
    world.set_options(language="tr")
    await pos.http.get("/nothing")
    [line] = (await pos.http.get("/_sandbox/ledger?operation=unknown")).json()
    assert line["advice"] == [{"code": "unknown_path", "text": "Platformda böyle bir yol yok."}]


def test_every_advice_is_in_both_languages():
    assert [
        code
        for code, message in words()["advice"].items()
        if message.keys() != {"en", "tr"} or message["en"] == message["tr"]
    ] == []
