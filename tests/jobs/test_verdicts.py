"""The outbox with the sandbox: every row ends, no answered one is sent again, unknown outcomes are resolved."""

import asyncio
from collections import Counter

import pytest
from structlog.testing import capture_logs
from tests.jobs.shop import NEEDED, Shop

from orderbridge_sandbox import Fault, When, World
from orderbridge_sandbox.scenery import KADIKOY

pytestmark = pytest.mark.plays_daemon

FOOD = 1005
BEFORE = {"accept": 1, "on_the_way": 2, "complete": 16, "cancel": 1}
TARGET = {"accept": 2, "on_the_way": 16, "complete": 5, "cancel": 6}
ABOUT = {f"{word}_restaurant": {"restaurant_id": KADIKOY} for word in ("open", "close")}
ABOUT |= {f"{word}_food": {"food_id": FOOD} for word in ("activate", "deactivate")}
ACTIONS = [*BEFORE, *ABOUT]


async def asked(shop: Shop, action: str, **columns: object) -> int:
    """A row whose action is possible: its order, restaurant or food has the status for it, and is acknowledged."""
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
    match action:
        case "open_restaurant" | "close_restaurant":
            return (KADIKOY in world.open_restaurants) == (action == "open_restaurant")
        case "activate_food" | "deactivate_food":
            return (("kadikoy", FOOD) in world.inactive_foods) == (action == "deactivate_food")
        case _:
            (order,) = world.orders.values()
            return order.status_id == TARGET[action]


@pytest.mark.interface("Restaurant status", "Menu item status", "Endpoints 9", "Endpoints 11", "Cancel reason")
@pytest.mark.parametrize("ids_in_capitals", [False, True])
@pytest.mark.parametrize("action", ACTIONS)
async def test_each_action_is_carried_out_and_an_order_gets_its_status_with_the_verdict(shop, action, ids_in_capitals):
    """An id of the service is sent as it was received: the sandbox knows no other form."""
    shop.world.set_options(ids_in_capitals=ids_in_capitals)
    row = await asked(shop, action)
    await shop.drain()
    written = shop.row(row)
    assert (written["state"], written["known_by"], written["http_status"]) == ("done", "answer", 200)
    assert (written["attempts"], written["error_code"], written["error_text"]) == (1, None, None)
    assert written["finished_utc"] is not None
    assert is_so(shop.world, action)
    (call,) = shop.calls(action)
    assert (call.body or {}) == NEEDED.get(action, {})
    attempt = shop.one("SELECT * FROM delivery_action_attempts")
    assert (attempt["action_id"], attempt["attempt"], attempt["outcome"]) == (row, 1, "ok")
    for order in shop.world.orders.values():
        assert {one.argument.isupper() for one in (call, *shop.calls("acknowledge"))} == {ids_in_capitals}
        stored, target = shop.order(order), TARGET[action]
        assert (stored["status_id"], stored["service_status_id"], stored["revision"]) == (target, target, 2)
        ended = {"complete": ("ended", "completed"), "cancel": ("cancelled", "cancelled")}
        assert (stored["last_change"], stored["ended_by"]) == ended.get(action, ("status", None))
        assert shop.story(order) == ["received", "acknowledged", f"{action}.done"]


async def test_an_account_with_hanging_requests_leaves_slots_for_others(open_shop):
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
async def test_after_a_refusal_the_orders_status_is_doubtful_until_it_is_delivered(shop: Shop, healed_by: str):
    row = await asked(shop, "accept")
    shop.world.faults.add(Fault.error("accept", 422, "eksik alan"))
    await shop.drain()
    written, (order,) = shop.row(row), shop.world.orders.values()
    assert (written["state"], written["error_code"], written["http_status"]) == ("refused", "missing_field", 422)
    assert (shop.order(order)["status_id"], shop.order(order)["problem"]) == (1, "status_doubtful")
    if healed_by == "an OK":
        await shop.acted("accept", order)
    else:
        order.acknowledged = False
        await shop.poll()
    assert (shop.row(row)["state"], shop.order(order)["problem"]) == ("refused", None)


@pytest.mark.parametrize("cut, code", [({"*"}, "unreachable"), (set(), "login_refused")], ids=["line", "login"])
async def test_a_row_that_was_not_tried_says_what_it_waits_for(cut: set[str], code: str, shop: Shop):
    await shop.poll()
    shop.line.cut = cut
    accounts = dict(shop.world.accounts)
    shop.world.refuse_account("kadikoy")
    first = await shop.acted("deactivate_food", food_id=1001)
    later = await shop.acted("deactivate_food", food_id=1002)
    assert (shop.row(first)["state"], shop.row(later)["state"]) == ("pending", "pending")
    assert (shop.row(later)["error_code"], shop.row(later)["error_text"]) == (code, shop.row(first)["error_text"])
    shop.line.cut = set()
    shop.world.accounts = accounts
    assert (await shop.verdict(later))["state"] == "done"
    assert (shop.row(later)["error_code"], shop.row(later)["error_text"]) == (None, None)


@pytest.mark.parametrize("check", ["the first poll after a start", "a poll under way"])
async def test_a_row_in_doubt_waits_for_its_check(shop: Shop, open_shop, check: str):
    row = await asked(shop, "accept")
    shop.world.faults.add(Fault.drop("accept", when=When.AFTER))
    await shop.drain()
    if check == "a poll under way":
        await asyncio.sleep(300)
        shop.line.when_answered("get_current", shop.drain)
    else:
        await shop.crash()
        await asyncio.sleep(300)
        shop = await open_shop()
        await shop.drain()
        assert (shop.row(row)["state"], len(shop.calls("accept"))) == ("sending", 1)
    await shop.poll()
    assert (shop.end(row), len(shop.calls("accept"))) == (("done", None, "poll"), 1)


async def test_one_list_ends_all_rows_in_doubt_of_its_account(shop: Shop):
    rows = [await asked(shop, "accept") for _ in range(3)]
    for _ in rows:
        shop.world.faults.add(Fault.drop("accept", when=When.AFTER))
    await shop.drain()
    await shop.poll()
    assert {shop.end(row) for row in rows} == {("done", None, "poll")}


async def test_two_unresolved_ends_are_judged_by_their_own_orders(shop: Shop):
    complete, cancel = await asked(shop, "complete"), await asked(shop, "cancel")
    for action in ("complete", "cancel"):
        shop.world.faults.add(Fault.drop(action, when=When.AFTER))
    await shop.verdict(complete)
    assert (shop.end(complete), shop.end(cancel)) == (("done", None, "refusal"), ("done", None, "poll"))


async def test_a_failure_of_ours_in_one_row_harms_no_other(shop: Shop, monkeypatch: pytest.MonkeyPatch):
    order, act = await shop.taken_in(), shop.account.client.act

    async def broken(action, *of):
        if action == "deactivate_food":
            raise RuntimeError("broken")
        await act(action, *of)

    monkeypatch.setattr(shop.account.client, "act", broken)
    bad, good = shop.act("deactivate_food", food_id=FOOD), shop.act("accept", order)
    await shop.drain()
    assert (shop.row(bad)["state"], shop.row(good)["state"]) == ("sending", "done")


async def test_the_rows_of_an_account_that_left_wait_and_expire(open_shop):
    first = await open_shop("kadikoy")
    order = await first.taken_in()
    await first.crash()
    shop = await open_shop("besiktas")
    row = await shop.acted("accept", order)
    assert shop.row(row)["state"] == "pending"
    await asyncio.sleep(600)
    with capture_logs() as lines:
        await shop.drain()
    assert shop.end(row) == ("expired", "account_missing", None)
    assert [line["log_level"] for line in lines if line["event"] == "action.expired"] == ["error"]  # a customer waits
