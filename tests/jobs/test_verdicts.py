"""The outbox with the sandbox: every row ends, no answered one is sent again, unknown outcomes are resolved."""

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.jobs.conftest import OpenShop
from tests.jobs.shop import Shop

from orderbridge.jobs.postponed import REFUSED_S
from orderbridge_sandbox import Fault, When, World
from orderbridge_sandbox.scenery import KADIKOY

pytestmark = pytest.mark.plays_daemon

FOOD = 1005
BEFORE = {"accept": 1, "on_the_way": 2, "complete": 16, "cancel": 1}
TARGET = {"accept": 2, "on_the_way": 16, "complete": 5, "cancel": 6}
ABOUT: dict[str, dict[str, object]] = {
    "open_restaurant": {"restaurant_id": KADIKOY},
    "close_restaurant": {"restaurant_id": KADIKOY},
    "activate_food": {"food_id": FOOD},
    "deactivate_food": {"food_id": FOOD},
}
RESTAURANT_ACTIONS = ["open_restaurant", "close_restaurant"]
FOOD_ACTIONS = ["activate_food", "deactivate_food"]
ACTIONS = [*BEFORE, *ABOUT]


async def asked(shop: Shop, action: str, **columns: Any) -> int:
    """A row whose action is due: its order, restaurant or food is as the action finds it, and acknowledged."""
    if action in BEFORE:
        order = await shop.taken_in(status_id=BEFORE[action])
        return shop.act(action, order, **columns)
    await shop.poll()
    if action == "open_restaurant":
        shop.world.close_restaurant(KADIKOY)
    if action == "activate_food":
        shop.world.inactive_foods.add(("kadikoy", FOOD))
    return shop.act(action, **ABOUT[action], **columns)


def is_so(world: World, action: str) -> bool:
    """Whether the service has done it."""
    match action:
        case "open_restaurant" | "close_restaurant":
            return (KADIKOY in world.open_restaurants) == (action == "open_restaurant")
        case "activate_food" | "deactivate_food":
            return (("kadikoy", FOOD) in world.inactive_foods) == (action == "deactivate_food")
        case _:
            (order,) = world.orders.values()
            return order.status_id == TARGET[action]


def effects(shop: Shop, action: str) -> int:
    return sum(call.effect or call.status_before != call.status_after for call in shop.calls(action))


# ---- done ------------------------------------------------------------------------------------------------------------


@pytest.mark.interface("Restaurant status", "Menu item status", "Endpoints 9", "Order transitions")
@pytest.mark.parametrize("action", ACTIONS)
async def test_each_action_is_carried_out_and_an_order_gets_its_status_with_the_verdict(shop: Shop, action: str):
    row = await asked(shop, action)
    await shop.drain()
    written = shop.row(row)
    assert (written["state"], written["known_by"], written["http_status"]) == ("done", "answer", 200)
    assert (written["attempts"], written["error_code"], written["error_text"]) == (1, None, None)
    assert written["finished_utc"] is not None
    assert is_so(shop.world, action)
    assert len(shop.calls(action)) == 1
    attempt = shop.one("SELECT * FROM delivery_action_attempts")
    assert (attempt["action_id"], attempt["attempt"], attempt["outcome"]) == (row, 1, "ok")
    for order in shop.world.orders.values():
        stored, target = shop.order(order), TARGET[action]
        assert (stored["status_id"], stored["service_status_id"], stored["revision"]) == (target, target, 2)
        ended = {"complete": ("ended", "completed"), "cancel": ("cancelled", "cancelled")}
        assert (stored["last_change"], stored["ended_by"]) == ended.get(action, ("status", None))
        assert shop.story(order) == ["received", "acknowledged", f"{action}.done"]


# ---- the order of things ---------------------------------------------------------------------------------------------


async def test_a_row_that_waits_for_a_retry_holds_its_lane_and_no_other(shop: Shop):
    order, other = await shop.taken_in(), await shop.taken_in()
    shop.world.faults.add(Fault(operation="accept", status=500, argument=order.key))
    first, second = shop.act("accept", order), shop.act("on_the_way", order)
    third = shop.act("accept", other)
    await shop.drain()
    assert [shop.row(row)["state"] for row in (first, second, third)] == ["sending", "pending", "done"]
    assert shop.row(first)["attempts"] == 1
    assert shop.calls("on_the_way") == []
    assert (await shop.verdict(second))["state"] == "done"
    assert shop.operations("accept", "on_the_way")[-2:] == ["accept", "on_the_way"]


async def test_no_more_rows_are_claimed_than_can_be_sent_at_once(open_shop: OpenShop):
    shop = await open_shop(actions={"max_in_flight": 3})
    placed = [shop.place() for _ in range(8)]
    await shop.poll()
    rows = [shop.act("accept", order) for order in placed]
    shop.world.faults.add(Fault.delay("accept", 5, times=None))
    await shop.outbox.tick()
    await asyncio.sleep(1)
    assert len(shop.calls("accept")) == 3
    assert [shop.row(row)["state"] for row in rows] == ["sending"] * 3 + ["pending"] * 5
    await shop.drain()
    assert {shop.row(row)["state"] for row in rows} == {"done"}


# ---- refused ---------------------------------------------------------------------------------------------------------


async def test_an_account_whose_service_hangs_leaves_places_for_the_others(open_shop: OpenShop):
    shop = await open_shop("kadikoy", "besiktas", "chain", actions={"max_in_flight": 4})
    shop.world.faults.add(Fault.delay("deactivate_food", 5, times=None))
    for name, first in (("kadikoy", 1001), ("besiktas", 2001), ("chain", 3001)):
        for food in range(first, first + 4):
            shop.act("deactivate_food", food_id=food, account=name)
        await shop.outbox.tick()
    await asyncio.sleep(1)
    assert Counter(call.account for call in shop.calls("deactivate_food")) == {"kadikoy": 2, "besiktas": 2}
    await shop.drain()
    assert shop.rows("SELECT DISTINCT state FROM delivery_actions") == [{"state": "done"}]


@pytest.mark.interface("Endpoints 10", "Endpoints 14", "Endpoints 15")
@pytest.mark.parametrize("healed_by", ["a delivery", "an OK"])
async def test_after_a_definite_no_the_status_of_the_order_is_doubtful_until_the_service_shows_it(
    shop: Shop, healed_by: str
):
    row = await asked(shop, "accept")
    shop.world.faults.add(Fault.error("accept", 422, "eksik alan"))
    await shop.drain()
    written, (order,) = shop.row(row), shop.world.orders.values()
    assert (written["state"], written["error_code"], written["http_status"]) == ("refused", "missing_field", 422)
    assert (shop.order(order)["status_id"], shop.order(order)["problem"]) == (1, "status_doubtful")
    if healed_by == "an OK":
        shop.act("accept", order)
        await shop.drain()
    else:
        order.acknowledged = False
        await shop.poll()
    assert (shop.row(row)["state"], shop.order(order)["problem"]) == ("refused", None)


# ---- waiting ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut, code", [({"*"}, "unreachable"), (set(), "login_refused")], ids=["line", "login"])
async def test_a_row_that_was_not_even_tried_says_for_what_it_waits(cut: set[str], code: str, shop: Shop):
    await shop.poll()
    shop.line.cut = cut
    accounts = dict(shop.world.accounts)
    shop.world.refuse_account("kadikoy")
    first = shop.act("deactivate_food", food_id=1001)
    await shop.drain()
    later = shop.act("deactivate_food", food_id=1002)
    await shop.drain()
    assert (shop.row(first)["state"], shop.row(later)["state"]) == ("pending", "pending")
    assert shop.row(later)["error_code"] == code
    assert shop.row(later)["error_text"] == shop.row(first)["error_text"]
    shop.line.cut = set()
    shop.world.accounts = accounts
    assert (await shop.verdict(later))["state"] == "done"
    assert (shop.row(later)["error_code"], shop.row(later)["error_text"]) == (None, None)


# ---- unknown outcomes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", When)
async def test_a_restaurant_is_asked_for_its_status_at_once(shop: Shop, when: When):
    action = "open_restaurant"
    row = await asked(shop, action)
    shop.world.faults.add(Fault.drop(action, when=when))
    known_by = (await shop.verdict(row))["known_by"]
    ask = "get_restaurant_status"
    expected = {When.BEFORE: ("answer", [action, ask, ask, action]), When.AFTER: ("status", [action, ask])}
    assert (known_by, shop.operations(action, ask)) == expected[when]
    assert shop.calls(ask)[0].at - shop.calls(action)[0].at <= timedelta(seconds=0.1)


# ---- never sent ------------------------------------------------------------------------------------------------------


async def test_a_cancelled_order_ends_its_other_rows(shop: Shop):
    order = await shop.taken_in()
    shop.world.faults.add(Fault(operation="accept", status=500, times=None))
    rows = [shop.act("accept", order), shop.act("on_the_way", order), shop.act("complete", order)]
    await shop.drain()
    shop.world.cancel_by_customer(order.key)
    await shop.poll()
    await shop.drain()
    assert [shop.end(row)[:2] for row in rows] == [("refused", "order_cancelled")] * 3
    assert (shop.order(order)["ended_by"], shop.calls("complete")) == ("cancelled", [])


# ---- crashes and locks -----------------------------------------------------------------------------------------------


async def test_a_verdict_that_cannot_be_written_is_written_later_and_nothing_is_sent_again(shop: Shop):
    row = await asked(shop, "accept")
    (order,) = shop.world.orders.values()

    async def hold() -> None:
        shop.till.execute("BEGIN IMMEDIATE")

    shop.line.when_answered("accept", hold)
    await shop.drain()
    assert (shop.row(row)["state"], shop.order(order)["status_id"]) == ("sending", 1)
    shop.till.execute("ROLLBACK")
    await shop.verdict(row, within_s=10)
    assert (shop.end(row), len(shop.calls("accept"))) == (("done", None, "answer"), 1)


async def test_a_verdict_that_cannot_be_written_harms_no_other_and_takes_no_place(open_shop: OpenShop):
    shop = await open_shop(actions={"max_in_flight": 1})
    order, other = await shop.taken_in(), await shop.taken_in()
    stuck, fine = shop.act("accept", order), shop.act("accept", other)
    shop.till.execute(
        f"CREATE TRIGGER no BEFORE UPDATE ON delivery_actions WHEN NEW.id = {stuck} AND NEW.state = 'done'"
        " BEGIN SELECT raise(ABORT, 'no'); END"
    )
    with capture_logs() as logs:
        await shop.drain()
        for _ in range(10):
            await asyncio.sleep(REFUSED_S / 2)
            await shop.outbox.tick()
    assert (shop.row(stuck)["state"], shop.row(fine)["state"]) == ("sending", "done")
    logged = [(line["event"], line["id"]) for line in logs if "id" in line]
    assert sorted(logged) == [("action.database_refused", stuck), ("action.done", fine)]
    shop.till.execute("DROP TRIGGER no")
    assert (await shop.verdict(stuck, within_s=REFUSED_S + 1))["state"] == "done"
    assert len(shop.calls("accept")) == 2


async def test_a_failure_of_ours_in_one_row_harms_no_other(shop: Shop, monkeypatch: pytest.MonkeyPatch):
    order = await shop.taken_in()

    act = shop.account.client.act

    async def broken(action: str, *of: Any) -> None:
        if action == "deactivate_food":
            raise RuntimeError("broken")
        await act(action, *of)

    monkeypatch.setattr(shop.account.client, "act", broken)
    bad, good = shop.act("deactivate_food", food_id=FOOD), shop.act("accept", order)
    await shop.drain()
    assert (shop.row(bad)["state"], shop.row(good)["state"]) == ("sending", "done")


# ---- whose it is -----------------------------------------------------------------------------------------------------


async def test_the_rows_of_an_account_that_left_wait_and_expire(open_shop: OpenShop):
    first = await open_shop("kadikoy")
    order = await first.taken_in()
    await first.crash()
    shop = await open_shop("besiktas")
    row = shop.act("accept", order)
    await shop.drain()
    assert shop.row(row)["state"] == "pending"
    await asyncio.sleep(600)
    with capture_logs() as lines:
        await shop.drain()
    assert shop.end(row) == ("expired", "account_missing", None)
    assert [line["log_level"] for line in lines if line["event"] == "action.expired"] == ["error"]  # a customer waits
