"""Endpoints 8 to 11 and "Order transitions": every operation in every status."""

from itertools import product

import pytest

from orderbridge_sandbox import service
from orderbridge_sandbox.scenery import BESIKTAS, KADIKOY

BODIES = {"accept": {"preparing_time": 25}, "cancel": {"reason_id": 3}}
PATHS = {name: name for name in ("accept", "complete", "cancel")} | {"on_the_way": "ontheway", "acknowledge": "success"}
LACKS = {"status": False, "error": "eksik alan"}
NOBODY = "99999999-9999-4999-8999-999999999999"

# Written out again from docs/interface.md, not taken from the code. 7: COMPLETE_NEEDS_PAYMENT, 42: unknown.
ALLOWED = {("accept", 1): 2, ("on_the_way", 2): 16, ("complete", 16): 5}
ALLOWED |= dict.fromkeys((("cancel", status) for status in (1, 2, 16, 7, 42)), 6)
EVERY_MOVE = [*product(("accept", "on_the_way", "complete", "cancel"), (1, 2, 16, 5, 6, 7, 42))]


def place(world, status_id: int = 1, **document):
    document = {"status_id": status_id, "courier_type": "restaurant", **document}
    return world.place_order(restaurant_id=KADIKOY, document=document)


async def ask(pos, operation: str, key: str, body=None):
    return await pos.put(f"/orders/{PATHS[operation]}/{key}", body or BODIES.get(operation))


@pytest.mark.interface("Endpoints 9", "Endpoints 10", "Endpoints 11")
@pytest.mark.parametrize("operation, status", EVERY_MOVE)
async def test_the_moves_are_those_of_the_specification(world, pos, operation: str, status: int):
    order, target = place(world, status), ALLOWED.get((operation, status))
    answer = await ask(pos, operation, order.key)
    if target is None:
        assert (answer.status_code, answer.json()) == (422, {"status": False, "error": "sipariş durumu uygun değil"})
        assert (order.status_id, len(order.history)) == (status, 1)
    else:
        assert (answer.status_code, answer.json()) == (200, {"status": True, "data": "OK"})
        assert (order.status_id, [h.by for h in order.history]) == (target, ["customer", "pos"])


@pytest.mark.interface("Order transitions", "Errors")
@pytest.mark.parametrize("options, status_code, envelope", [
    ({"disallowed": "not_found"}, 404, {"status": False, "error": "sipariş bulunamadı"}),
    ({"disallowed": "ok"}, 200, {"status": True, "data": "OK"}),
    ({"disallowed_status": 409, "disallowed_error": "çakışma"}, 409, {"status": False, "error": "çakışma"}),
])  # fmt: skip
async def test_a_forbidden_move_can_be_answered_in_other_ways(world, pos, options, status_code, envelope):
    world.set_options(**options)
    order = place(world, 5)
    answer = await ask(pos, "accept", order.key)
    assert (answer.status_code, answer.json(), order.status_id) == (status_code, envelope, 5)


@pytest.mark.interface("Order transitions", "Endpoints 9")
@pytest.mark.parametrize("courier", ["platform_courier", "come_get", "drone", None])
async def test_only_the_restaurants_own_couriers_are_marked_on_the_way(world, pos, courier):
    order = place(world, 2, courier_type=courier)
    assert ((await ask(pos, "on_the_way", order.key)).status_code, order.status_id) == (422, 2)


@pytest.mark.interface("Order transitions", "Endpoints 8", "Conventions")
async def test_accepting_needs_a_positive_integer_and_keeps_it(world, pos, clock):
    order = place(world)
    for body in ({}, [25], *({"preparing_time": value} for value in ("25", 25.0, True, 0, -5, [25], None))):
        answer = await pos.put(f"/orders/accept/{order.key}", body)
        assert (answer.status_code, answer.json()) == (422, LACKS | {"message": "preparing_time is required"})
    answer = await pos.http.put(f"/orders/accept/{order.key}", headers=pos.headers, content=b'{"preparing_time": 25}')
    assert (answer.status_code, order.status_id) == (422, 1), "no JSON is declared"
    clock.advance(60)
    await ask(pos, "accept", order.key.upper())
    assert (order.preparing_time, order.history[-1].status_id, order.history[-1].at) == (25, 2, clock.now)


@pytest.mark.interface("Limits")
@pytest.mark.parametrize("longest, minutes, status_id", [(None, 100_000, 2), (60, 60, 2), (60, 61, 1)])
async def test_the_longest_preparation_time_can_be_chosen(world, pos, longest, minutes, status_id):
    world.set_options(**({} if longest is None else {"longest_preparing_time": longest}))
    order = place(world)
    answer = await pos.put(f"/orders/accept/{order.key}", {"preparing_time": minutes})
    assert (order.status_id, answer.json().get("error")) == (status_id, None if status_id == 2 else "eksik alan")


@pytest.mark.interface("Cancel reason")
@pytest.mark.interface("Order transitions", "Endpoints 11", "Limits")
async def test_cancelling_needs_a_reason_from_1_to_8(world, pos):
    order = place(world)
    wrong = [({}, "reason_id is required"), ({"reason_id": None}, "reason_id is required")]
    wrong += [({"reason_id": value}, "Invalid reason_id") for value in (0, 9, -1, "1", 1.0, True, [1], {})]
    for body, message in wrong:
        answer = await pos.put(f"/orders/cancel/{order.key}", body)
        assert (answer.status_code, answer.json()) == (422, LACKS | {"message": message})
    assert order.status_id == 1
    for reason in range(1, 9):
        order = place(world)
        assert (await ask(pos, "cancel", order.key, {"reason_id": reason})).status_code == 200
        assert (order.status_id, order.reason_id) == (6, reason)


@pytest.mark.interface("Endpoints 7", "Endpoints 9", "Endpoints 10", "Errors")
@pytest.mark.parametrize("operation", PATHS)
async def test_an_id_that_is_no_uuid_is_a_bad_address_and_an_unknown_one_is_not_found(world, pos, operation: str):
    order = world.place_order(restaurant_id=BESIKTAS)
    for key in ("100001", NOBODY + "0", NOBODY.replace("-", ""), "{" + NOBODY + "}", "g" + NOBODY[1:]):
        answer = await pos.put(f"/orders/{PATHS[operation]}/{key}", {})
        assert (answer.status_code, answer.json()) == (403, {"status": False, "error": "URL hatalı"})
    for key in (NOBODY, order.key):
        answer = await ask(pos, operation, key)
        assert (answer.status_code, answer.json()) == (404, {"status": False, "error": "sipariş bulunamadı"})
    assert not order.acknowledged
    if operation in BODIES:  # the body is checked first
        assert (await pos.put(f"/orders/{PATHS[operation]}/{NOBODY}", {})).status_code == 422


@pytest.mark.interface("Errors")
async def test_errors_of_complete_can_have_any_status(world, pos):
    world.set_options(complete_error_status=400)
    for key in (NOBODY, "no-uuid"):
        answer = await ask(pos, "complete", key)
        assert (answer.status_code, answer.json()["status"]) == (400, False)
        assert (await ask(pos, "on_the_way", key)).status_code in (403, 404)
    pos.headers = {}
    assert (await ask(pos, "complete", NOBODY)).status_code == 401
    world.set_options(token_errors_stay_401=False)
    assert (await ask(pos, "complete", NOBODY)).status_code == 400


@pytest.mark.interface("Order statuses")
async def test_the_id_of_needs_payment_can_be_chosen(world, pos):
    world.set_options(needs_payment_status_id=9)
    order = place(world, 16)
    world.change_status(order.key, 9)
    [listed] = await pos.poll()
    assert (listed["status_id"], listed["status_text"]) == (9, "Ödeme Bekleniyor")


async def test_whoever_reads_the_ledger_meets_no_call_that_is_being_answered(world, pos, monkeypatch):
    """Another thread waits until the call has its answer: the lock is held from the record on."""
    held = []

    def watched(call):
        return lambda *given, **facts: held.append(world.lock._is_owned()) or call(*given, **facts)

    monkeypatch.setattr(service, "perform", watched(service.perform))
    monkeypatch.setattr(world, "record", watched(world.record))
    await pos.poll()
    assert held == [True, True]
