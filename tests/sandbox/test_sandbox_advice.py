"""The ledger has advice on each mistaken call, whatever the answer, and keeps calls to unknown paths."""

import pytest

from orderbridge_sandbox.scenery import BESIKTAS, KADIKOY

NOBODY = "99999999-9999-4999-8999-999999999999"
LOGIN = "/auth/login"


def codes(world) -> list[str]:
    return [one.code for one in world.calls()[-1].advice]


@pytest.fixture
def order(world):
    return world.place_order(restaurant_id=KADIKOY, document={"courier_type": "restaurant"})


@pytest.mark.parametrize("method, path, status, code, message", [
    ("GET", "/orders/accept", 404, "unknown_path", "The service has no such path."),
    ("POST", f"/orders/accept/{NOBODY}?x=1", 405, "unknown_method", "This path is called with PUT."),
    ("PATCH", "/orders/get-current", 405, "unknown_method", "This path is called with GET."),
])  # fmt: skip
async def test_a_call_to_what_is_not_there_is_kept(world, pos, method, path, status, code, message):
    answer = await pos.http.request(method, path, headers=pos.headers, json={"app_secret_key": "secret"})
    line = world.calls()[-1]
    assert (line.operation, line.method, line.path, line.account) == ("unknown", method, path, "kadikoy")
    assert answer.status_code == status and line.http_status == status and line.answered_at is not None
    assert [(one.code, one.text) for one in line.advice] == [(code, message)]
    assert line.body is None


async def test_a_whole_life_in_order_gets_no_advice(world, pos, clock, order):
    for action, body in (("accept", {"preparing_time": 20}), ("ontheway", None), ("complete", None)):
        assert len(await pos.poll()) == 1
        await pos.put(f"/orders/success/{order.key}")
        await pos.put(f"/orders/{action}/{order.key}", body)
        clock.advance(30)
    for path in ("/restaurants/get", f"/restaurants/status/get/{KADIKOY}", "/foods/get-foods"):
        await pos.get(path)
    for path in (f"/restaurants/status/close/{KADIKOY}", "/foods/status-passive/1001"):
        await pos.put(path)
    clock.advance(84000)
    await pos.login()
    assert [(line.operation, line.advice) for line in world.calls() if line.advice] == []


CALLS = [  # what has happened, the call, its body, and the advice
    ("", "accept/{key}", {"preparing_time": 20}, "never_delivered"),
    ("listed", "ontheway/{key}", None, "not_acknowledged"),
    ("listed cancelled", "success/{key}", None, "acknowledged_unseen"),
    ("listed acknowledged", "ontheway/{key}", None, "wrong_status"),
    ("listed acknowledged", "success/{key}", None, "acknowledged_again"),
    ("listed acknowledged", "success/{key}", {"id": 1}, "body_not_asked_for"),
    ("listed acknowledged", "accept/{key}", {"preparing_time": "20"}, "wrong_value"),
    ("listed acknowledged", "accept/{key}", {}, "missing_field"),
    ("listed acknowledged", "accept/{key}", {"preparing_time": 20, "minutes": 20}, "unknown_field"),
    ("listed acknowledged", "accept/{key}", [], "body_no_object"),
    ("listed acknowledged", "cancel/{key}", {"reason_id": True}, "wrong_value"),
    ("come_get listed acknowledged", "ontheway/{key}", None, "not_own_courier"),
    ("", "success/100001", None, "number_for_key"),
    ("", "success/abc", None, "not_a_uuid"),
    ("", f"success/{NOBODY}", None, "unknown_order"),
    ("repeated", f"success/{NOBODY}", None, "repeated_refusal"),
    ("", "success/{foreign}", None, "foreign_order"),
]


@pytest.mark.parametrize("before, path, body, code", CALLS, ids=str)
async def test_a_call_out_of_its_turn(world, pos, order, before, path, body, code):
    if "come_get" in before:
        order = world.place_order(restaurant_id=KADIKOY, document={"courier_type": "come_get", "status_id": 2})
    path = "/orders/" + path.format(key=order.key, foreign=world.place_order(restaurant_id=BESIKTAS).key)
    if "listed" in before:
        await pos.poll()
    if "cancelled" in before:
        world.cancel_by_customer(order.key)
    if "acknowledged" in before:
        await pos.put(f"/orders/success/{order.key}")
    if before == "repeated":
        await pos.put(path, body)
    await pos.put(path, body)
    assert code in codes(world)


async def test_advice_for_a_failed_login_and_a_bad_token(world, pos, clock):
    for sent, expected in [
        ({"json": {"app_secret_key": "x", "rest_secret_key": "y"}}, ["wrong_credentials"]),
        ({"json": {"app_secret_key": 7, "rest_secret_key": "y"}}, ["wrong_value"]),
        ({"content": '{"app_secret_key": "x"}'}, ["body_not_json", "missing_field", "missing_field"]),
    ]:
        await pos.http.post(LOGIN, **sent)
        assert codes(world) == expected and "7" not in str(world.calls()[-1].advice)
    clock.advance(3600)
    old = dict(pos.headers)
    await pos.login()
    assert next(one.text.split(" for ")[1] for one in world.calls()[-1].advice).startswith("1380 more minutes")
    for headers, code in ((None, "no_token"), ({"Access-Token": "x"}, "unknown_token"), (old, "expired_token")):
        clock.advance(86400 if headers is old else 0)
        await pos.http.get("/orders/variables", headers=headers)
        assert codes(world) == [code]


async def test_advice_is_in_the_language_of_the_switch_and_on_the_control_interface(world, pos):
    world.set_options(language="tr")
    await pos.http.get("/nothing")
    [line] = (await pos.http.get("/_sandbox/ledger?operation=unknown")).json()
    assert line["advice"] == [{"code": "unknown_path", "text": "Platformda böyle bir yol yok."}]
