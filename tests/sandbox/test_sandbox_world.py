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
    """The values at the end of the path, in each element of each list on it."""
    if not way:
        return [value]
    if isinstance(value, list):
        return [found for element in value for found in reached(element, way)]
    assert isinstance(value, dict)
    return reached(value[way[0]], way[1:])


@pytest.mark.interface("Order", "Order item", "Option group")
def test_an_order_has_the_fields_of_the_specification_each_of_its_type(documents):
    for document in documents:
        assert list(document) == [path for path in TYPES if "." not in path]
        for name in ("customer", "address"):
            assert document[name].keys() == {path.partition(".")[2] for path in TYPES if path.startswith(f"{name}.")}
        assert TIME.fullmatch(document["date"])
        assert document["scheduled_date"] == "" or TIME.fullmatch(document["scheduled_date"])
    for path, kind in TYPES.items():
        found = [value for document in documents for value in reached(document, path.split("."))]
        assert {type(value) for value in found} == {kind}, path
        if path in ("payment_key", "restaurant_id", "foods.id"):
            assert [value for value in found if str(UUID(str(value))) != value] == []


@pytest.mark.interface("Order", "Order item")
def test_the_amounts_agree(documents):
    for document in documents:
        foods = document["foods"]
        for food in foods:
            extra = sum(group["options"]["price"] for group in food["option_groups"])
            assert food["total"] == food["price"] * food["quantity"] + extra
        paid = sum(food["total"] for food in foods) + document["courier_fee"] + document["order_tip"]
        assert (document["total"], document["total"] >= 0) == (paid - Decimal(document["discount"]), True)


@pytest.mark.interface("Order")
def test_the_orders_are_of_every_kind(documents):
    def seen(name):
        return {document[name] for document in documents}

    assert seen("courier_type") == {"restaurant", "come_get", "platform_courier"}
    assert seen("shipping_method") == {"delivery", "pickup"}
    assert (seen("payment_method"), {""} < seen("scheduled_date")) == (set(rules.PAYMENT_METHODS.values()), True)
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
    before, anew = (World.default(clock=clock, seed=7) for _ in range(2))
    kept = before.issue_token(before.scenery.accounts[0])
    anew.issue_token(anew.scenery.accounts[1])
    assert anew.account_of(kept.text) is None  # after a restart


@pytest.mark.interface("Versioning")
def test_a_caller_can_put_any_value_in(world):
    given = {
        "restaurant_id": BESIKTAS, "payment_key": "AAAAAAAA-0000-4000-8000-000000000001", "status_id": 42,
        "courier_type": "drone", "payment_method": "Kupon", "total": "12,50", "foods": None, "extra": [1],
    }  # fmt: skip
    order = world.place_order(document=given | {"customer": {"name": "Deneme"}})
    document = order.document
    assert (order.key, order.restaurant_id) == ("aaaaaaaa-0000-4000-8000-000000000001", BESIKTAS)
    assert {name: document[name] for name in given} == given
    assert (document["status_text"], document["customer"]["name"]) == ("Durum 42", "Deneme")
    assert document["customer"]["phone"].startswith("+90500000")


def test_a_customer_cancels_an_active_order_and_none_that_has_ended(world):
    for status in (1, 2, 16, 7, 42):
        order = world.cancel_by_customer(world.place_order(document={"status_id": status}).key)
        assert (order.status_id, order.reason_id, order.history[-1].by) == (6, 4, "customer")
    for status in (5, 6):
        with pytest.raises(NotAllowed):
            world.cancel_by_customer(world.place_order(document={"status_id": status}).key)
    with pytest.raises(UnknownOrder):
        world.change_status("nothing", 2)


@pytest.mark.parametrize("rate, seconds, placed", [(0, 600, 0), (2, 29, 0), (2, 30, 1), (60, 1.5, 1), (6000, 60, 100)])
def test_the_ticker_places_what_is_due(world, clock, rate, seconds, placed):
    world.set_options(orders_per_minute=rate)
    world.tick()
    clock.advance(seconds)
    assert len(world.tick()) == placed
    world.set_options(orders_per_minute=6, max_orders=placed + 45)
    for _ in range(700):  # whatever the steps
        clock.advance(0.75)
        world.tick()
    assert len(world.orders) == placed + 45


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


async def test_each_call_is_reported_in_one_line_without_a_secret(world, pos):
    reported: list[str] = []
    world.report = reported.append
    order = world.place_order(restaurant_id=KADIKOY)
    await pos.poll()
    await pos.put(f"/orders/accept/{order.key}", {"preparing_time": 10})
    await pos.get("/orders/get-current")
    await pos.get("/foods")
    assert reported == [
        "order.placed number=100001 restaurant='Örnek Lokanta Kadıköy' status=1",
        "call.answered operation=get_current account=kadikoy http=200 orders=1",
        (
            "call.answered operation=accept account=kadikoy order=100001 http=200 status=1>2"
            " advice='accept before the order was acknowledged: store it, acknowledge it, then go on.'"
        ),
        (
            "call.answered operation=get_current account=kadikoy http=429 orders=0 error='çok fazla istek'"
            " message='Lütfen 30 saniye bekleyip tekrar deneyin.'"
            " advice='30.0 seconds too early: wait out the cooldown.'"
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
    assert (world.orders, list(world.ledger), world.tokens, world.options) == ({}, [], {}, Options())
    assert (world.place_order(restaurant_id=KADIKOY).document, (await pos.login()).status_code) == (first, 200)
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
