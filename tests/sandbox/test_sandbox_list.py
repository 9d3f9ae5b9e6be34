"""Endpoints 6 and 7, "Acknowledgement (repetition) rules" and the cooldown of "Limits"."""

import json
from dataclasses import replace

import pytest
from tests.sandbox.conftest import Pos

from orderbridge_sandbox.scenery import ATASEHIR, BESIKTAS, KADIKOY, USKUDAR

NEEDS_PAYMENT = 7


def keys(orders) -> list[str]:
    return [order["payment_key"] for order in orders]


@pytest.mark.interface("Order statuses", "Acknowledgement rules 1", "Acknowledgement rules 4", "Endpoints 6")
async def test_active_orders_are_listed_and_completed_ones_are_not(world, pos, clock):
    for status_id in (1, 2, 16, NEEDS_PAYMENT, 6, 42, 5):
        world.place_order(restaurant_id=KADIKOY, document={"status_id": status_id})
    assert [order["status_id"] for order in await pos.poll()] == [1, 2, 16, NEEDS_PAYMENT, 6, 42]
    clock.advance(30)
    assert [order["status_id"] for order in await pos.poll("?status_id=2")] == [2]
    world.set_options(cancelled_are_delivered=False)
    clock.advance(30)
    assert [order["status_id"] for order in await pos.poll()] == [1, 2, 16, NEEDS_PAYMENT, 42]


SCOPES = {"credential": [200, 200], "application": [429, 200], "address": [429, 429]}


@pytest.mark.parametrize("scope", SCOPES)
async def test_the_option_sets_the_scope_of_the_cooldown(world, pos, chain, clock, scope: str):
    world.set_options(cooldown_scope=scope)
    stranger = Pos(pos.http, "besiktas")
    rest, stranger.secrets["app_secret_key"] = stranger.secrets["rest_secret_key"], "another"
    world.accounts[rest] = replace(world.accounts[rest], app_secret_key="another")
    await stranger.login()
    await pos.poll()
    clock.advance(29.9)
    path = "/orders/get-current"
    assert [(await other.get(path)).status_code for other in (chain, stranger)] == SCOPES[scope]
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


@pytest.mark.interface("Endpoints 7", "Acknowledgement rules 2")
async def test_an_acknowledgement_marks_the_status_of_its_own_moment(world, pos):
    """The list showed 1, the acknowledgement comes after the customer's cancellation: the POS never sees the 6."""
    order = world.place_order(restaurant_id=KADIKOY)
    assert [o["status_id"] for o in await pos.poll()] == [1]
    world.cancel_by_customer(order.key)
    assert [(await pos.put(f"/orders/success/{order.key}")).status_code for _ in range(2)] == [200, 200]
    assert [call.effect for call in world.calls("acknowledge")] == [True, False]
    assert order.acknowledgements[0].status_id == 6


async def test_a_filter_that_is_no_integer_and_a_call_without_a_token_do_not_use_the_cooldown_up(pos, http):
    answer = await pos.get("/orders/get-current?status_id=new")
    assert (answer.status_code, answer.json()["error"]) == (422, "eksik alan")
    assert (await http.get("/orders/get-current")).status_code == 401
    await pos.poll()


@pytest.mark.interface("Endpoints 1", "Endpoints 6", "Errors", "Limits")
@pytest.mark.parametrize("restarts", [False, True])
async def test_a_call_inside_the_cooldown_is_refused_by_filter_and_with_a_new_token_too(world, pos, clock, restarts):
    world.set_options(cooldown_restarts_on_429=restarts)
    await pos.poll()
    await pos.login()
    clock.advance(29.9)
    answer = await pos.get("/orders/get-current?status_id=1")
    refusal = {"status": False, "error": "çok fazla istek", "message": "Lütfen 30 saniye bekleyip tekrar deneyin."}
    assert (answer.status_code, answer.json()) == (429, refusal)
    clock.advance(0.1)
    assert (await pos.get("/orders/get-current")).status_code == (429 if restarts else 200)


@pytest.mark.interface("Endpoints 6", "Authentication 3")
async def test_a_list_holds_only_orders_within_reach(world, pos, chain):
    placed = {key: world.place_order(restaurant_id=key).key for key in (KADIKOY, BESIKTAS, USKUDAR, ATASEHIR)}
    assert keys(await pos.poll()) == [placed[KADIKOY]]
    assert keys(await chain.poll()) == [placed[USKUDAR], placed[ATASEHIR]]


@pytest.mark.interface("Endpoints 6", "Limits")
async def test_the_order_and_the_length_of_the_list_can_be_chosen(world, pos, clock):
    placed = [world.place_order(restaurant_id=KADIKOY).key for _ in range(20)]
    for order, limit in (("oldest_first", None), ("newest_first", None), ("shuffled", None), ("oldest_first", 2)):
        world.set_options(list_order=order, list_limit=limit)
        listed = keys(await pos.poll())
        assert sorted(listed) == sorted(placed[:limit])
        assert (listed == placed[:limit], listed == placed[::-1]) == (order == "oldest_first", order == "newest_first")
        clock.advance(30)


@pytest.mark.interface("Conventions")
async def test_the_body_is_utf_8_with_amounts_of_two_decimals(world, pos):
    world.place_order(restaurant_id=KADIKOY, document={"note": "Şöyle 🌶️ böyle", "status_text": "\ud83d"})
    answer = await pos.get("/orders/get-current")
    assert answer.headers["content-type"] == "application/json"
    assert "Şöyle 🌶️ böyle".encode() in answer.content
    assert b'"status_text":"\\ud83d"' in answer.content  # a lone surrogate survives as its escape
    [order] = json.loads(answer.content, parse_float=str)["data"]
    amounts = [food[name] for food in order["foods"] for name in ("price", "total")]
    assert all(amount[-3] == "." for amount in (*amounts, order["total"], order["courier_fee"], order["order_tip"]))


@pytest.mark.interface("Order transitions", "Acknowledgement rules 3")
async def test_an_order_that_moved_is_listed_again_whatever_its_status(world, pos, clock):
    """For example COMPLETE_NEEDS_PAYMENT: docs/interface.md does not show who sets it."""
    order = world.place_order(restaurant_id=KADIKOY)
    await pos.put(f"/orders/success/{order.key}")
    world.change_status(order.key, 1)  # no change
    assert await pos.poll() == []
    for status_id in (NEEDS_PAYMENT, 42):
        clock.advance(30)
        world.change_status(order.key, status_id)
        assert [again["status_id"] for again in await pos.poll()] == [status_id]
