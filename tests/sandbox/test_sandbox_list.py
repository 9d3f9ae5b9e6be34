"""Endpoints 6 and 7, "Acknowledgement (repetition) rules" and the cooldown of "Limits"."""

import json
from dataclasses import replace

import pytest
from tests.sandbox.conftest import Pos

from orderbridge_sandbox.scenery import ATASEHIR, BESIKTAS, KADIKOY, USKUDAR

NEEDS_PAYMENT = 7


def keys(orders) -> list[str]:
    return [order["payment_key"] for order in orders]


@pytest.mark.interface("Order statuses", "Acknowledgement rules 1", "Acknowledgement rules 4")
@pytest.mark.parametrize(
    "status_id, listed", [(1, True), (2, True), (16, True), (NEEDS_PAYMENT, True), (6, True), (42, True), (5, False)]
)
async def test_active_orders_are_listed_and_completed_ones_are_not(world, pos, status_id: int, listed: bool):
    world.place_order(restaurant_id=KADIKOY, document={"status_id": status_id})
    assert [order["status_id"] for order in await pos.poll()] == ([status_id] if listed else [])


@pytest.mark.parametrize(
    "scope, others",
    [
        pytest.param("credential", [200, 200], id="each credential has its own"),
        pytest.param("application", [429, 200], id="one application shares one"),
        pytest.param("address", [429, 429], id="one address shares one"),
    ],
)
async def test_a_cooldown_belongs_to_whom_the_option_says(world, pos, chain, clock, scope: str, others: list[int]):
    world.set_options(cooldown_scope=scope)
    world.accounts["sandbox-besiktas-secret"] = replace(
        world.accounts["sandbox-besiktas-secret"], app_secret_key="another"
    )
    stranger = Pos(pos.http, "besiktas")
    stranger.secrets["app_secret_key"] = "another"
    await stranger.login()
    await pos.poll()
    clock.advance(29.9)
    path = "/orders/get-current"
    assert [(await other.get(path)).status_code for other in (chain, stranger)] == others
    clock.advance(0.1)
    assert (await pos.get(path)).status_code == 200


@pytest.mark.interface("Acknowledgement rules 1")
async def test_an_order_repeats_until_it_is_acknowledged(world, pos, clock):
    order = world.place_order(restaurant_id=KADIKOY)
    first = await pos.poll()
    clock.advance(30)
    assert await pos.poll() == first
    answer = await pos.put(f"/orders/success/{order.key}")
    assert (answer.status_code, answer.json()) == (200, {"status": True, "data": "OK"})
    clock.advance(30)
    assert await pos.poll() == []


@pytest.mark.interface("Endpoints 7")
async def test_an_acknowledgement_marks_the_status_of_its_own_moment(world, pos):
    """The list showed 1, the acknowledgement comes after the customer's cancellation: the POS never sees the 6."""
    order = world.place_order(restaurant_id=KADIKOY)
    assert [o["status_id"] for o in await pos.poll()] == [1]
    world.cancel_by_customer(order.key)
    await pos.put(f"/orders/success/{order.key}")
    assert order.acknowledged
    assert [ack.status_id for ack in order.acknowledgements] == [6]


@pytest.mark.interface("Endpoints 7", "Acknowledgement rules 2")
async def test_a_second_acknowledgement_is_ok_without_effect_and_the_same_status_again_is_no_change(world, pos):
    order = world.place_order(restaurant_id=KADIKOY)
    answers = [await pos.put(f"/orders/success/{order.key}") for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert [call.effect for call in world.calls("acknowledge")] == [True, False]
    world.change_status(order.key, 1)
    assert await pos.poll() == []


@pytest.mark.interface("Acknowledgement rules 1")
async def test_cancelled_orders_can_be_hidden(world, pos):
    world.set_options(cancelled_are_delivered=False)
    world.place_order(restaurant_id=KADIKOY, document={"status_id": 6})
    assert await pos.poll() == []


@pytest.mark.interface("Endpoints 6")
async def test_the_filter_keeps_one_status(world, pos):
    for status_id in (1, 2, 2, 16):
        world.place_order(restaurant_id=KADIKOY, document={"status_id": status_id})
    assert [o["status_id"] for o in await pos.poll("?status_id=2")] == [2, 2]


async def test_a_filter_that_is_no_integer_and_a_call_without_a_token_do_not_use_the_cooldown_up(pos, http):
    answer = await pos.get("/orders/get-current?status_id=new")
    assert (answer.status_code, answer.json()["error"]) == (422, "eksik alan")
    assert (await http.get("/orders/get-current")).status_code == 401
    await pos.poll()


@pytest.mark.interface("Endpoints 6", "Errors", "Limits")
@pytest.mark.parametrize(
    "seconds, status", [(0, 429), (29.9, 429), (30, 200), (31, 200)], ids=["at once", "early", "in time", "late"]
)
async def test_a_call_inside_the_cooldown_is_refused(pos, clock, seconds: float, status: int):
    """And asks in Turkish to wait 30 seconds. The filter does not get around it."""
    await pos.poll()
    clock.advance(seconds)
    answer = await pos.get("/orders/get-current?status_id=1")
    assert answer.status_code == status
    message = "Lütfen 30 saniye bekleyip tekrar deneyin."
    refusal = {"status": False, "error": "çok fazla istek", "message": message}
    assert answer.json() == (refusal if status == 429 else {"status": True, "data": []})


@pytest.mark.interface("Limits")
@pytest.mark.parametrize("restarts, status", [(False, 200), (True, 429)], ids=["default", "switched on"])
async def test_the_cooldown_counts_from_the_last_accepted_call(world, pos, clock, restarts: bool, status: int):
    world.set_options(cooldown_restarts_on_429=restarts)
    await pos.poll()
    clock.advance(20)
    assert (await pos.get("/orders/get-current")).status_code == 429
    clock.advance(10)
    assert (await pos.get("/orders/get-current")).status_code == status


@pytest.mark.interface("Endpoints 1", "Limits")
async def test_the_cooldown_belongs_to_the_credential_not_to_the_token(pos, chain):
    await pos.poll()
    await chain.poll()
    await pos.login()
    assert (await pos.get("/orders/get-current")).status_code == 429


@pytest.mark.interface("Limits")
async def test_the_cooldown_can_be_shorter(world, pos, clock):
    world.set_options(cooldown_seconds=0.5)
    await pos.poll()
    answer = await pos.get("/orders/get-current")
    assert answer.json()["message"] == "Lütfen 0.5 saniye bekleyip tekrar deneyin."
    clock.advance(0.5)
    await pos.poll()


@pytest.mark.interface("Endpoints 6", "Authentication 3")
async def test_a_list_holds_only_orders_within_reach(world, pos, chain):
    placed = {key: world.place_order(restaurant_id=key).key for key in (KADIKOY, BESIKTAS, USKUDAR, ATASEHIR)}
    assert keys(await pos.poll()) == [placed[KADIKOY]]
    assert keys(await chain.poll()) == [placed[USKUDAR], placed[ATASEHIR]]


@pytest.mark.interface("Endpoints 6")
@pytest.mark.parametrize(
    "order, expected", [("oldest_first", [1, 2, 3]), ("newest_first", [3, 2, 1])], ids=["oldest", "newest"]
)
async def test_the_order_of_the_list_can_be_chosen(world, pos, order: str, expected: list[int]):
    world.set_options(list_order=order)
    for number in (1, 2, 3):
        world.place_order(restaurant_id=KADIKOY, document={"id": number})
    assert [o["id"] for o in await pos.poll()] == expected


@pytest.mark.interface("Endpoints 6", "Limits")
async def test_a_shuffled_list_is_complete(world, pos):
    world.set_options(list_order="shuffled")
    placed = [world.place_order(restaurant_id=KADIKOY).key for _ in range(20)]
    listed = keys(await pos.poll())
    assert listed != placed
    assert sorted(listed) == sorted(placed)


@pytest.mark.interface("Limits")
async def test_a_list_can_be_limited(world, pos, clock):
    world.set_options(list_limit=2)
    placed = [world.place_order(restaurant_id=KADIKOY).key for _ in range(3)]
    assert keys(await pos.poll()) == placed[:2]
    await pos.put(f"/orders/success/{placed[0]}")
    clock.advance(30)
    assert keys(await pos.poll()) == placed[1:]


@pytest.mark.interface("Conventions")
async def test_the_body_is_utf_8_with_amounts_of_two_decimals(world, pos):
    world.place_order(restaurant_id=KADIKOY, document={"note": "Şöyle 🌶️ böyle", "status_text": "Yeni Sipariş"})
    answer = await pos.get("/orders/get-current")
    assert answer.headers["content-type"] == "application/json"
    assert "Şöyle 🌶️ böyle".encode() in answer.content
    assert b"\\u" not in answer.content
    [order] = json.loads(answer.content, parse_float=str)["data"]
    amounts = [order["total"], order["courier_fee"], order["order_tip"]]
    amounts += [food[name] for food in order["foods"] for name in ("price", "total")]
    assert all(amount[-3] == "." for amount in amounts)


async def test_a_lone_surrogate_survives_as_its_escape(world, pos):
    world.place_order(restaurant_id=KADIKOY, document={"note": "\ud83d"})
    answer = await pos.get("/orders/get-current")
    assert b'"note":"\\ud83d"' in answer.content
    assert json.loads(answer.content)["data"][0]["note"] == "\ud83d"


@pytest.mark.interface("Order transitions", "Acknowledgement rules 3")
@pytest.mark.parametrize("status_id", [3, 7, 42, 99])
async def test_an_order_can_be_moved_to_a_status_that_has_no_row(world, pos, clock, status_id: int):
    """COMPLETE_NEEDS_PAYMENT and whatever else there may be: who moves an order there is not shown."""
    order = world.place_order(restaurant_id=KADIKOY)
    await pos.put(f"/orders/success/{order.key}")
    world.change_status(order.key, status_id)
    [again] = await pos.poll()
    assert again["status_id"] == status_id
