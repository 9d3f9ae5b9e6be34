"""The world without the POS's calls: documents, customers, the ticker, the ledger, switches, reset."""

import re
import subprocess
import sys
from decimal import Decimal
from threading import Thread
from uuid import UUID

import pytest

from orderbridge_sandbox import Options, World, rules
from orderbridge_sandbox.scenery import BESIKTAS, KADIKOY
from orderbridge_sandbox.world import CannotOrder, NotAllowed, UnknownOrder

TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")


@pytest.fixture
def documents(world):
    return [world.place_order().document for _ in range(300)]


@pytest.mark.interface("Order")
def test_an_order_has_the_fields_of_the_specification(documents):
    for document in documents:
        assert list(document) == [path for path in TYPES if "." not in path]
        assert UUID(document["payment_key"]).version == 4
        for name in ("customer", "address"):
            assert document[name].keys() == {path.partition(".")[2] for path in TYPES if path.startswith(f"{name}.")}
        assert TIME.fullmatch(document["date"])
        assert document["scheduled_date"] == "" or TIME.fullmatch(document["scheduled_date"])


KINDS = {"text": str, "whole": int, "number": Decimal, "object": dict, "list": list}
FIELDS = """
id:whole payment_key:text status_id:whole status_text:text shipping_method:text payment_method:text note:text
total:number discount:text date:text restaurant_id:text restaurant_name:text courier_type:text courier_fee:number
scheduled_date:text order_tip:number customer:object customer.name:text customer.phone:text address:object
address.address:text address.description:text address.apartment_no:text address.building_no:text
address.neighborhood_name:text address.district_name:text address.city_name:text foods:list foods.id:text
foods.food_id:whole foods.name:text foods.note:text foods.price:number foods.quantity:whole foods.total:number
foods.option_groups:list foods.option_groups.id:whole foods.option_groups.name:text foods.option_groups.type:text
foods.option_groups.operation:text foods.option_groups.options:object foods.option_groups.options.id:whole
foods.option_groups.options.name:text foods.option_groups.options.price:number
"""
TYPES = {path: KINDS[kind] for path, kind in (field.split(":") for field in FIELDS.split())}  # as documents have them


def reached(value: object, way: list[str]) -> list[object]:
    """What stands at the end of the way, in each element of each list on it."""
    if not way:
        return [value]
    if isinstance(value, list):
        return [found for element in value for found in reached(element, way)]
    assert isinstance(value, dict)
    return reached(value[way[0]], way[1:])


@pytest.mark.interface("Order", "Order item", "Option group")
@pytest.mark.parametrize("path", TYPES)
def test_a_field_is_always_there_and_of_its_type(documents, path: str):
    found = [value for document in documents for value in reached(document, path.split("."))]
    assert found
    assert {type(value) for value in found} == {TYPES[path]}
    if path in ("payment_key", "restaurant_id", "foods.id"):
        assert [value for value in found if str(UUID(str(value))) != value] == []


@pytest.mark.interface("Option group")
def test_an_option_may_be_of_any_other_kind(world):
    groups = [{"id": 1, "name": "Boy", "type": "single", "operation": "-", "options": []}]
    order = world.place_order(document={"foods": [{"option_groups": groups}]})
    assert order.document["foods"][0]["option_groups"] == groups


@pytest.mark.interface("Order", "Order item")
def test_the_amounts_agree(documents):
    for document in documents:
        foods = document["foods"]
        for food in foods:
            extra = sum(group["options"]["price"] for group in food["option_groups"])
            assert food["total"] == food["price"] * food["quantity"] + extra
        paid = sum(food["total"] for food in foods) + document["courier_fee"] + document["order_tip"]
        assert document["total"] == paid - Decimal(document["discount"])
        assert document["total"] >= 0


@pytest.mark.interface("Order")
def test_the_orders_are_of_every_kind(documents):
    def seen(name):
        return {document[name] for document in documents}

    assert seen("courier_type") == {"restaurant", "come_get", "platform_courier"}
    assert seen("shipping_method") == {"delivery", "pickup"}
    assert seen("payment_method") == set(rules.PAYMENT_METHODS.values())
    assert "" in seen("scheduled_date")
    assert len(seen("scheduled_date")) > 1
    assert any("👶" in note for note in seen("note"))
    groups = [group for document in documents for food in document["foods"] for group in food["option_groups"]]
    assert {(group["type"], group["operation"]) for group in groups} == {("multi", "+")}
    assert all((d["shipping_method"] == "pickup") == (d["courier_type"] == "come_get") for d in documents)
    assert all(re.fullmatch(r"\+90500000\d{4}", document["customer"]["phone"]) for document in documents)


def test_the_seed_and_the_clock_decide_everything(clock):
    def orders(seed: int, logins: int = 0):
        world = World.default(clock=clock, seed=seed)
        for _ in range(logins):
            world.issue_token(world.scenery.accounts[0])
        return [world.place_order().document for _ in range(20)]

    assert orders(7) == orders(7) == orders(7, logins=3)
    assert orders(7) != orders(8)


def test_a_kept_token_is_invalid_after_a_restart(clock):
    before, anew = (World.default(clock=clock, seed=7) for _ in range(2))
    kept = before.issue_token(before.scenery.accounts[0])
    anew.issue_token(anew.scenery.accounts[1])
    assert anew.account_of(kept.text) is None


@pytest.mark.interface("Versioning")
def test_a_caller_can_put_any_value_in(world):
    order = world.place_order(
        document={
            "restaurant_id": BESIKTAS,
            "payment_key": "AAAAAAAA-0000-4000-8000-000000000001",
            "status_id": 42,
            "courier_type": "drone",
            "payment_method": "Kupon",
            "total": "12,50",
            "customer": {"name": "Deneme"},
            "foods": None,
            "extra": [1],
        }
    )
    document = order.document
    assert order.key == "aaaaaaaa-0000-4000-8000-000000000001"
    assert document["payment_key"] == "AAAAAAAA-0000-4000-8000-000000000001"
    assert (document["status_id"], document["status_text"]) == (42, "Durum 42")
    assert (document["courier_type"], document["payment_method"], document["total"]) == ("drone", "Kupon", "12,50")
    assert document["customer"]["name"] == "Deneme"
    assert document["customer"]["phone"].startswith("+90500000")
    assert (document["foods"], document["extra"], order.restaurant_id) == (None, [1], BESIKTAS)


def test_a_caller_can_leave_fields_out_and_put_nonsense_in(world):
    document = world.place_order(without=["foods", "customer.phone", "nothing", "note.inner"]).document
    assert "foods" not in document
    assert document["customer"].keys() == {"name"}
    nonsense = {"status_id": "bir", "restaurant_id": "nowhere"}
    order = world.place_order(restaurant_id=KADIKOY, document=nonsense, without=["payment_key"])
    assert (order.document["status_id"], order.status_id) == ("bir", 1)
    assert (order.restaurant_id, order.document["restaurant_id"]) == (KADIKOY, "nowhere")
    world.change_status(order.key, 2)
    assert order.document["status_id"] == 2


@pytest.mark.parametrize("status", [1, 2, 16, 7, 42])
def test_a_customer_cancels_an_active_order(world, status):
    order = world.cancel_by_customer(world.place_order(document={"status_id": status}).key)
    assert (order.status_id, order.reason_id, order.history[-1].by) == (6, 4, "customer")


@pytest.mark.parametrize("status", [5, 6])
def test_a_customer_cannot_cancel_what_has_ended(world, status):
    with pytest.raises(NotAllowed):
        world.cancel_by_customer(world.place_order(document={"status_id": status}).key)


def test_a_status_can_be_renamed_in_place_and_an_unknown_order_cannot_be_changed(world):
    with pytest.raises(UnknownOrder):
        world.change_status("nothing", 2)
    order = world.place_order()
    world.change_status(order.key, 1, "Yeni")
    assert order.document["status_text"] == "Yeni"


@pytest.mark.parametrize(
    "rate, seconds, placed",
    [(0, 600, 0), (2, 29, 0), (2, 30, 1), (2, 60, 2), (60, 1.5, 1), (6000, 60, 100)],
    ids=["off", "not yet", "one", "two", "part of one", "a backlog is cut"],
)
def test_the_ticker_places_what_is_due(world, clock, rate, seconds, placed):
    world.set_options(orders_per_minute=rate)
    world.tick()
    clock.advance(seconds)
    assert len(world.tick()) == placed


@pytest.mark.parametrize("most, placed", [(None, 45), (5, 5)])
def test_the_ticker_keeps_its_pace_whatever_its_steps_up_to_max_orders(world, clock, most, placed):
    world.set_options(orders_per_minute=6, max_orders=most)
    for _ in range(600):
        clock.advance(0.75)
        world.tick()
    assert len(world.orders) == placed


def test_no_order_comes_when_everything_is_closed(world, clock):
    world.set_options(orders_per_minute=60)
    for key in world.restaurants:
        world.close_restaurant(key)
    with pytest.raises(CannotOrder):
        world.place_order()
    clock.advance(10)
    assert world.tick() == []


async def test_the_ledger_keeps_every_call(world, pos, clock):
    order = world.place_order(restaurant_id=KADIKOY)
    clock.advance(5)
    await pos.put(f"/orders/accept/{order.key}", {"preparing_time": 10})
    await pos.put(f"/orders/complete/{order.key}")
    login, accept, complete = world.calls()
    assert (login.operation, login.account, login.body, login.effect) == ("login", "kadikoy", None, True)
    assert (accept.argument, accept.body, accept.http_status) == (order.key, {"preparing_time": 10}, 200)
    assert (accept.at, accept.answered_at) == (clock.now, clock.now)
    assert (accept.status_before, accept.status_after, accept.effect) == (1, 2, True)
    assert (complete.status_before, complete.status_after, complete.effect) == (2, 2, False)
    assert (complete.http_status, complete.error) == (422, "sipariş durumu uygun değil")
    assert world.calls("accept", account="chain") == []


async def test_no_reported_line_is_secret(clock, http):
    reported: list[str] = []
    world = World.default(clock=clock, report=reported.append)
    world.cancel_by_customer(world.place_order(restaurant_id=KADIKOY).key)
    assert reported == [
        "order.placed number=100001 restaurant='Örnek Lokanta Kadıköy' status=1",
        "order.changed number=100001 status=6 by=customer",
    ]


async def test_each_call_is_reported_in_one_line(world, pos):
    reported: list[str] = []
    world.report = reported.append
    order = world.place_order(restaurant_id=KADIKOY)
    await pos.get("/orders/variables")
    await pos.poll()
    await pos.put(f"/orders/success/{order.key}")
    await pos.put(f"/orders/accept/{order.key}", {"preparing_time": 10})
    await pos.get("/foods/get-foods")
    await pos.get("/foods/get-foods")
    await pos.get("/foods")
    assert reported[1:] == [
        "call.answered operation=get_variables account=kadikoy http=200",
        "call.answered operation=get_current account=kadikoy http=200 orders=1",
        "call.answered operation=acknowledge account=kadikoy order=100001 http=200 status=1>1",
        "call.answered operation=accept account=kadikoy order=100001 http=200 status=1>2",
        "call.answered operation=get_foods account=kadikoy http=200",
        (
            "call.answered operation=get_foods account=kadikoy http=429 error='çok fazla istek'"
            " message='Lütfen 60 saniye bekleyip tekrar deneyin.' advice='60.0 seconds too early: wait out the cooldown.'"
        ),
        (
            "call.answered operation=unknown account=kadikoy path=GET /foods http=404"
            " advice='The service has no such path.'"
        ),
    ]


async def test_a_reset_puts_everything_back(world, pos):
    first = world.place_order(restaurant_id=KADIKOY).document
    world.set_options(cooldown_seconds=1)
    world.close_restaurant(KADIKOY)
    world.refuse_account("kadikoy")
    world.reset()
    assert (world.orders, list(world.ledger), world.tokens) == ({}, [], {})
    assert world.options == Options()
    assert world.place_order(restaurant_id=KADIKOY).document == first
    assert (await pos.login()).status_code == 200
    world.reset(seed=2)
    assert world.place_order(restaurant_id=KADIKOY).document != first


def test_waiting_ends_when_another_thread_changes_the_world(world):
    thread = Thread(target=world.place_order)
    thread.start()
    assert world.wait_for(lambda: bool(world.orders), timeout=60)
    thread.join()
    assert not world.wait_for(lambda: False, timeout=0)


@pytest.mark.interface("Events")
def test_importing_the_sandbox_loads_no_network_library():
    code = "import sys, orderbridge_sandbox; print(sorted({'starlette', 'uvicorn', 'cryptography'} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
