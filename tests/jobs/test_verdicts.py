"""The outbox against the sandbox: every row ends, nothing is sent twice that was answered, an unknown outcome is found out."""

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.jobs.conftest import OpenShop
from tests.jobs.shop import Shop, listing

from orderbridge.jobs.postponed import REFUSED_S, STUCK_S
from orderbridge_sandbox import Fault, When, World
from orderbridge_sandbox.options import Disallowed
from orderbridge_sandbox.scenery import ATASEHIR, BESIKTAS, KADIKOY, USKUDAR

pytestmark = pytest.mark.plays_daemon

FOOD = 1005
UNKNOWN_KEY = "00000000-0000-4000-8000-000000000000"
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


def unknown_outcomes() -> dict[str, Callable[[str, When], Fault]]:
    return {
        "502": lambda action, when: Fault.page(action, 502, when=when),
        "dropped": lambda action, when: Fault.drop(action, when=when),
        "silence": lambda action, when: Fault.hang(action, when=when),
        "page": lambda action, when: Fault.page(action, 200, when=when),
        "404 page": lambda action, when: Fault.page(action, 404, when=when),
    }


# ---- done ------------------------------------------------------------------------------------------------------------


@pytest.mark.interface("Restaurant status", "Menu item status", "Endpoints 9")
@pytest.mark.parametrize("action", ACTIONS)
async def test_each_action_is_carried_out(shop: Shop, action: str):
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


@pytest.mark.interface("Order transitions")
@pytest.mark.parametrize("action", BEFORE)
async def test_a_done_action_writes_its_status_with_the_verdict(shop: Shop, action: str):
    await asked(shop, action)
    await shop.drain()
    (order,) = shop.world.orders.values()
    stored = shop.order(order)
    assert (stored["status_id"], stored["service_status_id"], stored["revision"]) == (TARGET[action], TARGET[action], 2)
    ended = {"complete": ("ended", "completed"), "cancel": ("cancelled", "cancelled")}
    assert (stored["last_change"], stored["ended_by"]) == ended.get(action, ("status", None))
    assert shop.story(order) == ["received", "acknowledged", f"{action}.done"]


async def test_an_order_is_addressed_by_its_key_and_never_by_its_number(shop: Shop):
    order = await shop.taken_in(id=424242)
    for action in ("accept", "on_the_way", "complete", "cancel"):
        shop.act(action, order)
        await shop.drain()
    assert {call.argument for call in shop.world.calls() if call.argument} == {order.key}


@pytest.mark.interface("Order transitions", "Endpoints 10")
@pytest.mark.parametrize("method", ["Nakit", "Kredi Kartı (pre-paid)", "Banka Kartı (pre-paid)", "Kupon"])
async def test_an_order_is_completed_however_it_is_paid(shop: Shop, method: str):
    order = await shop.taken_in(status_id=16, payment_method=method)
    row = shop.act("complete", order)
    await shop.drain()
    assert shop.end(row) == ("done", None, "answer")
    assert (order.status_id, shop.order(order)["status_id"]) == (5, 5)


@pytest.mark.interface("Order transitions", "Endpoints 11")
@pytest.mark.parametrize("status_id", [1, 2, 16, 7, 42])
@pytest.mark.parametrize("needs_payment", [None, 7])
async def test_an_order_can_be_cancelled_in_any_status_that_is_no_end(
    open_shop: OpenShop, status_id: int, needs_payment: int | None
):
    shop = await open_shop(needs_payment_status_id=needs_payment)
    order = await shop.taken_in(status_id=status_id)
    row = shop.act("cancel", order, reason_id=4)
    await shop.drain()
    assert shop.end(row) == ("done", None, "answer")
    assert (order.status_id, order.reason_id) == (6, 4)


@pytest.mark.interface("Cancel reason", "Order transitions")
@pytest.mark.parametrize("reason_id", range(1, 9))
async def test_each_reason_of_the_service_cancels(shop: Shop, reason_id: int):
    order = await shop.taken_in()
    shop.act("cancel", order, reason_id=reason_id)
    await shop.drain()
    assert (order.status_id, order.reason_id) == (6, reason_id)


@pytest.mark.interface("Restaurant status")
async def test_a_closed_restaurant_goes_on_with_its_orders(shop: Shop):
    order = shop.place()
    shop.act("close_restaurant", restaurant_id=KADIKOY)
    await shop.drain()
    await shop.poll()
    assert shop.order(order)["acknowledged_status_id"] == 1
    for action in ("accept", "on_the_way", "complete"):
        shop.act(action, order)
    await shop.drain()
    assert order.status_id == 5
    assert KADIKOY not in shop.world.open_restaurants


@pytest.mark.interface("Order item", "Menu item status")
async def test_an_inactive_food_leaves_the_orders_alone_that_have_it(shop: Shop):
    order = await shop.taken_in()
    food_id = order.document["foods"][0]["food_id"]
    shop.act("deactivate_food", food_id=food_id)
    row = shop.act("accept", order)
    await shop.drain()
    await shop.poll()
    assert ("kadikoy", food_id) in shop.world.inactive_foods
    assert shop.end(row) == ("done", None, "answer")
    foods = shop.rows("SELECT food_id FROM delivery_order_items WHERE payment_key = ?", order.key)
    assert foods[0]["food_id"] == food_id


@pytest.mark.interface("Order transitions")
async def test_the_arguments_are_the_ones_of_the_row(shop: Shop):
    order, other = await shop.taken_in(), await shop.taken_in()
    shop.act("accept", order, preparing_time=37)
    shop.act("cancel", other, reason_id=7)
    await shop.drain()
    assert (order.preparing_time, other.reason_id) == (37, 7)


@pytest.mark.interface("Restaurant status")
@pytest.mark.parametrize("action, status", [("open_restaurant", "Open"), ("close_restaurant", "Closed")])
async def test_a_restaurants_status_is_known_after_our_change(shop: Shop, action: str, status: str):
    row = await asked(shop, action)
    shop.till.execute("INSERT INTO delivery_restaurants (account, id) VALUES ('kadikoy', ?)", (KADIKOY,))
    await shop.drain()
    stored = shop.one("SELECT status, status_utc FROM delivery_restaurants")
    assert stored == {"status": status, "status_utc": shop.row(row)["finished_utc"]}


async def test_unexpected_data_in_a_success_is_a_success(shop: Shop):
    row = await asked(shop, "accept")
    shop.world.faults.add(
        Fault(operation="accept", status=200, body=b'{"status": true, "data": {"a": 1}}', when=When.AFTER)
    )
    await shop.drain()
    assert shop.row(row)["state"] == "done"


# ---- the order of things ---------------------------------------------------------------------------------------------


async def test_the_actions_of_one_order_go_by_their_ids(shop: Shop):
    order = await shop.taken_in()
    rows = [shop.act(action, order) for action in ("accept", "on_the_way", "complete")]
    await shop.drain()
    assert shop.told("accept", "on_the_way", "complete") == ["accept", "on_the_way", "complete"]
    assert [shop.row(row)["state"] for row in rows] == ["done"] * 3
    assert order.status_id == 5


async def test_a_row_that_waits_for_a_retry_holds_its_lane_and_no_other(shop: Shop):
    order, other = await shop.taken_in(), await shop.taken_in()
    shop.world.faults.add(Fault(operation="accept", status=500, argument=order.key))
    first, second = shop.act("accept", order), shop.act("on_the_way", order)
    third = shop.act("accept", other)
    await shop.drain()
    assert [shop.row(row)["state"] for row in (first, second, third)] == ["sending", "pending", "done"]
    assert shop.calls("on_the_way") == []
    assert (await shop.verdict(second))["state"] == "done"
    assert shop.told("accept", "on_the_way")[-2:] == ["accept", "on_the_way"]


async def test_a_slow_answer_keeps_only_its_own_lane(shop: Shop):
    order, other = await shop.taken_in(), await shop.taken_in()
    shop.world.faults.add(Fault.delay("accept", 15, argument=order.key))
    slow, quick = shop.act("accept", order), shop.act("accept", other)
    await shop.outbox.tick()
    await asyncio.sleep(0.001)
    while shop.row(quick)["state"] != "done":
        await shop.outbox.tick()
        await asyncio.sleep(0)
    assert (shop.row(slow)["state"], shop.clock.monotonic() < 31) == ("sending", True)
    await shop.drain()
    assert shop.row(slow)["state"] == "done"


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


async def test_an_account_whose_service_hangs_leaves_places_for_the_others(open_shop: OpenShop):
    shop = await open_shop("kadikoy", "besiktas", "chain", actions={"max_in_flight": 4})
    for name, first in (("kadikoy", 1001), ("besiktas", 2001), ("chain", 3001)):
        for food in range(first, first + 4):
            shop.act("deactivate_food", food_id=food, account=name)
    shop.world.faults.add(Fault.delay("deactivate_food", 5, times=None))
    await shop.outbox.tick()
    await asyncio.sleep(1)
    sent = Counter(call.account for call in shop.calls("deactivate_food"))
    assert sorted(sent.values()) == [1, 1, 2]
    await shop.drain()
    assert shop.rows("SELECT DISTINCT state FROM delivery_actions") == [{"state": "done"}]


# ---- refused ---------------------------------------------------------------------------------------------------------


@pytest.mark.interface("Order", "Order transitions")
@pytest.mark.parametrize(
    "document, action, code",
    [
        pytest.param(None, "accept", "order_unknown", id="unknown order"),
        pytest.param({"status_id": 6}, "accept", "order_cancelled", id="cancelled"),
        pytest.param({"status_id": 6}, "complete", "order_cancelled", id="cancelled, to complete"),
        pytest.param({"status_id": 5}, "cancel", "order_completed", id="completed"),
        pytest.param(
            {"status_id": 2, "courier_type": "platform_courier"},
            "on_the_way",
            "courier_not_restaurant",
            id="platform courier",
        ),
        pytest.param({"courier_type": "come_get"}, "on_the_way", "courier_not_restaurant", id="pickup"),
    ],
)
async def test_what_can_never_be_right_is_refused_unsent(
    shop: Shop, document: dict[str, Any] | None, action: str, code: str
):
    if document is None:
        row = shop.act(action, payment_key=UNKNOWN_KEY)
    else:
        order = shop.place(**document)
        shop.world.faults.add(listing(order.document))
        await shop.poll()
        row = shop.act(action, order)
    await shop.drain()
    written = shop.row(row)
    assert (written["state"], written["error_code"], written["attempts"]) == ("refused", code, 0)
    assert written["error_text"]
    assert shop.calls(action) == []


@pytest.mark.interface("Endpoints 9")
@pytest.mark.parametrize("courier_type", ["restaurant", "", None], ids=["ours", "empty", "missing"])
async def test_on_the_way_is_sent_when_the_courier_may_be_ours(shop: Shop, courier_type: str | None):
    order = await shop.taken_in(status_id=2, courier_type=courier_type)
    shop.act("on_the_way", order)
    await shop.drain()
    assert len(shop.calls("on_the_way")) == 1


@pytest.mark.interface("Order transitions")
@pytest.mark.parametrize("action", BEFORE)
async def test_what_the_service_has_already_shown_is_done_unsent(shop: Shop, action: str):
    order = shop.place(status_id=TARGET[action])
    shop.world.faults.add(listing(order.document))
    await shop.poll()
    row = shop.act(action, order)
    await shop.drain()
    assert shop.end(row) == ("done", "already", "poll")
    assert (shop.calls(action), shop.order(order)["revision"]) == ([], 1)


async def test_a_stored_status_that_does_not_fit_is_no_reason_not_to_ask(shop: Shop):
    order = await shop.taken_in(status_id=16)
    shop.world.change_status(order.key, 1)
    row = shop.act("accept", order)
    await shop.drain()
    assert (shop.row(row)["state"], shop.order(order)["status_id"]) == ("done", 2)


@pytest.mark.parametrize(
    "columns",
    [
        pytest.param({"action": "dance"}, id="no such action"),
        pytest.param({"action": "accept", "payment_key": UNKNOWN_KEY, "preparing_time": 0}, id="no time"),
        pytest.param({"action": "accept", "payment_key": UNKNOWN_KEY, "preparing_time": "soon"}, id="time in words"),
        pytest.param({"action": "cancel", "payment_key": UNKNOWN_KEY, "reason_id": 9}, id="no such reason"),
        pytest.param({"action": "complete"}, id="no order"),
        pytest.param({"action": "open_restaurant"}, id="no restaurant"),
        pytest.param({"action": "activate_food", "food_id": "soup"}, id="a food's name"),
        pytest.param({"action": "complete", "payment_key": UNKNOWN_KEY, "valid_minutes": "x"}, id="minutes in words"),
        pytest.param(
            {"action": "complete", "payment_key": UNKNOWN_KEY, "valid_minutes": 10**15}, id="minutes for ever"
        ),
        pytest.param({"action": "complete", "payment_key": UNKNOWN_KEY, "created_utc": "today"}, id="no time at all"),
    ],
)
async def test_a_bad_row_that_slipped_in_is_refused_alone(shop: Shop, columns: dict[str, object]):
    order = await shop.taken_in()
    shop.till.execute("PRAGMA ignore_check_constraints = ON")
    values = ", ".join("?" * len(columns))
    bad = shop.till.execute(
        f"INSERT INTO delivery_actions ({', '.join(columns)}) VALUES ({values})", tuple(columns.values())
    ).lastrowid
    good = shop.act("accept", order)
    await shop.drain()
    assert shop.row(int(bad or 0))["state"] == "refused"
    assert shop.row(good)["state"] == "done"


@pytest.mark.interface("Endpoints 10", "Endpoints 14", "Endpoints 15")
@pytest.mark.parametrize(
    "fault, code",
    [
        pytest.param(Fault.error("accept", 404, "sipariş bulunamadı"), "order_not_found", id="404"),
        pytest.param(Fault.error("accept", 403, "URL hatalı"), "bad_url_id", id="403"),
        pytest.param(Fault.error("accept", 422, "eksik alan"), "missing_field", id="422"),
        pytest.param(Fault.error("accept", 400, "olmaz"), "refused", id="400 in other words"),
        pytest.param(Fault.error("accept", 200, "olmaz"), "refused", id="200 with status false"),
        pytest.param(Fault.error("accept", 500, "sipariş bulunamadı"), "order_not_found", id="known words under a 500"),
    ],
)
async def test_a_definite_no_is_final(shop: Shop, fault: Fault, code: str):
    row = await asked(shop, "accept")
    shop.world.faults.add(fault)
    await shop.drain()
    written = shop.row(row)
    assert (written["state"], written["error_code"], written["http_status"]) == ("refused", code, fault.status)
    assert written["error_text"]
    (order,) = shop.world.orders.values()
    assert (shop.order(order)["status_id"], shop.order(order)["problem"]) == (1, "status_doubtful")
    await asyncio.sleep(600)
    await shop.drain()
    assert len(shop.calls("accept")) == 1


@pytest.mark.parametrize("healed_by", ["a delivery", "an OK"])
async def test_the_doubt_about_a_status_ends(shop: Shop, healed_by: str):
    row = await asked(shop, "accept")
    shop.world.faults.add(Fault.error("accept", 422, "eksik alan"))
    await shop.drain()
    (order,) = shop.world.orders.values()
    if healed_by == "an OK":
        shop.act("accept", order)
        await shop.drain()
    else:
        order.acknowledged = False
        await shop.poll()
    assert (shop.row(row)["state"], shop.order(order)["problem"]) == ("refused", None)


# ---- waiting ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", ACTIONS)
async def test_a_429_waits_for_the_cooldown_and_uses_no_attempt(shop: Shop, action: str):
    row = await asked(shop, action)
    shop.world.faults.add(Fault.too_many(action, times=5))
    await shop.drain()
    waiting = shop.row(row)
    assert (waiting["state"], waiting["attempts"], waiting["error_code"]) == ("pending", 0, "rate_limited")
    ended = await shop.verdict(row)
    assert (ended["state"], ended["known_by"], ended["attempts"]) == ("done", "answer", 1)
    times = [call.at for call in shop.calls(action)]
    assert len(times) == 6
    assert min(later - at for at, later in itertools.pairwise(times)) >= timedelta(seconds=30)


@pytest.mark.interface("Endpoints 5", "Endpoints 14", "Endpoints 15")
@pytest.mark.parametrize("action", ACTIONS)
async def test_a_401_is_met_by_one_login_and_one_repeat(shop: Shop, action: str):
    row = await asked(shop, action)
    shop.world.end_tokens()
    await shop.drain()
    assert (shop.row(row)["state"], shop.row(row)["attempts"]) == ("done", 1)
    assert shop.told("login", action)[-3:] == [action, "login", action]


async def test_after_a_second_401_the_row_waits_alone(shop: Shop):
    row = await asked(shop, "accept")
    shop.world.faults.add(Fault.unauthorized("accept", times=2))
    await shop.drain()
    waiting = shop.row(row)
    assert (waiting["state"], waiting["attempts"], waiting["error_code"]) == ("pending", 0, "not_permitted")
    assert shop.account.paused() <= 0
    assert (await shop.verdict(row))["state"] == "done"
    assert shop.clock.monotonic() >= 60


async def test_a_row_that_alone_is_answered_401_waits_alone_until_it_expires(shop: Shop):
    """A restaurant that is none of ours: its account is well, polls at each slot, and logs in once for it."""
    await shop.poll()
    row = shop.act("deactivate_food", food_id=1001, valid_minutes=60)
    shop.world.faults.add(Fault.unauthorized("deactivate_food", argument="1001", times=None))
    await shop.drain()
    waiting = shop.row(row)
    assert (waiting["state"], waiting["attempts"], waiting["error_code"]) == ("pending", 0, "not_permitted")
    assert shop.account.paused() <= 0
    other = shop.act("deactivate_food", food_id=1002)
    await shop.drain()
    assert shop.row(other)["state"] == "done"
    order = shop.place()
    ended = await shop.verdict(row, within_s=3700)
    assert (ended["state"], ended["error_code"]) == ("expired", "not_permitted")
    assert "is not retried any more" in ended["error_text"]
    assert shop.order(order)["acknowledged_status_id"] == 1
    times = [call.at for call in shop.calls("deactivate_food") if call.argument == "1001"]
    waits = [round((later - earlier).total_seconds(), -1) for earlier, later in itertools.pairwise(times)][1:]
    assert waits[:4] == [60, 120, 300, 600]
    assert set(waits[4:]) == {900}
    polls = [call.at for call in shop.calls("get_current")]
    assert max(later - earlier for earlier, later in itertools.pairwise(polls)) < timedelta(seconds=31)
    assert len(shop.calls("login")) == 2


async def test_many_rows_that_are_answered_401_pause_nobody_and_log_in_once(shop: Shop):
    await shop.poll()
    for food in range(1001, 1011):
        shop.world.faults.add(Fault.unauthorized("deactivate_food", argument=str(food), times=None))
        shop.act("deactivate_food", food_id=food)
    await shop.drain()
    assert {row["error_code"] for row in shop.rows("SELECT error_code FROM delivery_actions")} == {"not_permitted"}
    assert shop.account.paused() <= 0
    assert (await shop.poll()).ok
    assert len(shop.calls("login")) == 2


async def test_a_row_waits_while_the_line_is_down(shop: Shop):
    row = await asked(shop, "accept")
    shop.line.cut = {"*"}
    await shop.drain()
    await asyncio.sleep(120)
    await shop.drain()
    waiting = shop.row(row)
    assert (waiting["state"], waiting["attempts"], waiting["error_code"]) == ("pending", 0, "connection_refused")
    assert shop.count("delivery_action_attempts") == 0
    shop.line.cut = set()
    assert (await shop.verdict(row, within_s=20))["state"] == "done"


async def test_many_rows_do_not_knock_at_a_line_that_is_down(shop: Shop):
    await shop.poll()
    shop.line.cut = {"*"}
    shop.act("deactivate_food", food_id=1001)
    await shop.drain()
    for food in range(1002, 1010):
        shop.act("deactivate_food", food_id=food)
        await shop.drain()
    assert shop.line.refused == 1


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


async def test_a_row_waits_while_the_login_is_refused(shop: Shop):
    row = await asked(shop, "accept")
    accounts = dict(shop.world.accounts)
    shop.world.refuse_account("kadikoy")
    await shop.drain()
    assert (shop.row(row)["state"], shop.row(row)["error_code"]) == ("pending", "login_refused")
    shop.world.accounts = accounts
    assert (await shop.verdict(row))["state"] == "done"


# ---- unknown outcomes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", When)
@pytest.mark.parametrize("action", ACTIONS)
async def test_a_500_is_followed_by_a_resend_after_two_seconds(shop: Shop, action: str, when: When):
    row = await asked(shop, action)
    shop.world.faults.add(Fault(operation=action, status=500, when=when))
    ended = await shop.verdict(row)
    first, second = shop.calls(action)
    assert timedelta(seconds=2) <= second.at - first.at <= timedelta(seconds=2.6)
    assert (ended["state"], is_so(shop.world, action), effects(shop, action)) == ("done", True, 1)
    found_out = {"accept": "poll", "on_the_way": "poll", "cancel": "poll", "complete": "refusal"}
    known_by = found_out.get(action, "answer") if when is When.AFTER else "answer"
    assert (ended["known_by"], ended["attempts"]) == (known_by, 2)


@pytest.mark.parametrize("when", When)
@pytest.mark.parametrize("fault", unknown_outcomes())
@pytest.mark.parametrize("action", ["accept", "on_the_way"])
async def test_a_look_tells_whether_an_accept_or_on_the_way_had_its_effect(
    shop: Shop, action: str, fault: str, when: When
):
    row = await asked(shop, action)
    shop.world.faults.add(unknown_outcomes()[fault](action, when))
    await shop.drain()
    assert shop.row(row)["state"] == "sending"
    ended = await shop.verdict(row)
    assert (ended["state"], is_so(shop.world, action), effects(shop, action)) == ("done", True, 1)
    assert (ended["known_by"], len(shop.calls(action))) == (("answer", 2) if when is When.BEFORE else ("poll", 1))
    looks = [call for call in shop.calls("get_current") if call.at > shop.calls(action)[0].at]
    assert len(looks) == 1


@pytest.mark.parametrize("when", When)
@pytest.mark.parametrize("fault", unknown_outcomes())
@pytest.mark.parametrize("action", ["complete", "cancel", *FOOD_ACTIONS])
async def test_what_can_be_repeated_is_resent(shop: Shop, action: str, fault: str, when: When):
    row = await asked(shop, action)
    shop.world.faults.add(unknown_outcomes()[fault](action, when))
    ended = await shop.verdict(row)
    assert (ended["state"], is_so(shop.world, action), effects(shop, action)) == ("done", True, 1)
    assert len(shop.calls(action)) == 2
    found_out = {"cancel": "poll", "complete": "refusal"}
    assert ended["known_by"] == (found_out.get(action, "answer") if when is When.AFTER else "answer")


@pytest.mark.parametrize("when", When)
@pytest.mark.parametrize("fault", unknown_outcomes())
@pytest.mark.parametrize("action", RESTAURANT_ACTIONS)
async def test_a_restaurant_is_asked_for_its_status_at_once(shop: Shop, action: str, fault: str, when: When):
    row = await asked(shop, action)
    shop.world.faults.add(unknown_outcomes()[fault](action, when))
    ended = await shop.verdict(row)
    assert (ended["state"], is_so(shop.world, action)) == ("done", True)
    known_by, told = ("answer", [action, "get_restaurant_status", "get_restaurant_status", action])
    if when is When.AFTER:
        known_by, told = ("status", [action, "get_restaurant_status"])
    assert (ended["known_by"], shop.told(action, "get_restaurant_status")) == (known_by, told)
    sent = [call.at for call in shop.calls(action)]
    assert when is When.AFTER or sent[1] - sent[0] >= timedelta(seconds=2)
    assert shop.calls("get_restaurant_status")[0].at - shop.calls(action)[0].at <= timedelta(seconds=20.1)


async def test_a_cancel_that_no_list_shows_is_proved_by_its_refusal(shop: Shop):
    shop.world.set_options(cancelled_are_delivered=False)
    row = await asked(shop, "cancel")
    shop.world.faults.add(Fault.drop("cancel", when=When.AFTER))
    await shop.verdict(row)
    assert shop.end(row) == ("done", None, "refusal")


async def test_the_status_that_the_look_showed_is_written(shop: Shop):
    row = await asked(shop, "accept")
    (order,) = shop.world.orders.values()
    shop.world.faults.add(Fault.drop("accept", when=When.AFTER))
    await shop.drain()
    shop.world.change_status(order.key, 16)
    await shop.verdict(row)
    assert shop.end(row) == ("done", None, "poll")
    assert shop.order(order)["status_id"] == 16


async def test_an_accept_seen_as_not_done_is_sent_again(shop: Shop):
    shop.world.faults.add(Fault(operation="acknowledge", status=500))
    order = shop.place()
    await shop.poll()
    shop.world.faults.add(Fault.drop("accept"))
    row = shop.act("accept", order)
    await shop.verdict(row)
    assert (shop.end(row), len(shop.calls("accept"))) == (("done", None, "answer"), 2)


async def test_without_a_look_an_accept_is_sent_again_after_two_cooldowns(shop: Shop):
    row = await asked(shop, "accept")
    shop.world.faults.add(Fault.drop("accept"), Fault(operation="get_current", status=500, times=None))
    await shop.verdict(row)
    first, second = shop.calls("accept")
    assert timedelta(seconds=60) <= second.at - first.at <= timedelta(seconds=61)
    assert shop.end(row) == ("done", None, "answer")


async def test_a_poll_that_began_before_the_attempt_ended_is_no_look(shop: Shop):
    row = await asked(shop, "accept")
    await asyncio.sleep(30.05)
    shop.world.faults.add(Fault.drop("accept", when=When.AFTER))
    (order,) = shop.world.orders.values()
    shop.line.when_answered("get_current", shop.drain)  # the list, made before, lacks the order
    await shop.tick()
    assert shop.row(row)["state"] == "sending"
    assert shop.row(row)["next_attempt_utc"] is not None
    await shop.drain()
    assert len(shop.calls("accept")) == 1
    await shop.poll()
    assert (shop.end(row), order.status_id) == (("done", None, "poll"), 2)


@pytest.mark.parametrize(
    "action, state, code, known_by",
    [
        pytest.param("accept", "failed", "outcome_unknown", "poll", id="accept"),
        pytest.param("on_the_way", "failed", "outcome_unknown", "poll", id="on_the_way"),
        pytest.param("complete", "done", None, "refusal", id="complete"),
        pytest.param("cancel", "done", None, "refusal", id="cancel"),
    ],
)
async def test_a_resend_is_refused_and_the_next_look_lacks_the_order(
    shop: Shop, action: str, state: str, code: str | None, known_by: str
):
    row = await asked(shop, action)
    shop.world.faults.add(Fault(operation=action, status=500), Fault.error(action, 404, "sipariş bulunamadı"))
    await shop.drain()
    await asyncio.sleep(3)
    await shop.drain()
    (order,) = shop.world.orders.values()
    assert (shop.row(row)["state"], shop.order(order)["problem"]) == ("sending", "status_doubtful")
    await shop.verdict(row)
    assert (shop.end(row), len(shop.calls(action))) == ((state, code, known_by), 2)


@pytest.mark.parametrize("action", BEFORE)
async def test_a_resend_is_refused_and_the_next_look_shows_it_not_done(shop: Shop, action: str):
    row = await asked(shop, action)
    (order,) = shop.world.orders.values()
    order.acknowledged = False
    shop.world.faults.add(Fault(operation=action, status=500), Fault.error(action, 404, "sipariş bulunamadı"))
    await shop.verdict(row)
    assert (shop.end(row), len(shop.calls(action))) == (("refused", "order_not_found", "poll"), 2)


@pytest.mark.parametrize("action", [*FOOD_ACTIONS, *RESTAURANT_ACTIONS])
async def test_a_refused_resend_of_a_food_or_restaurant_action_is_refused(shop: Shop, action: str):
    row = await asked(shop, action)
    shop.world.faults.add(Fault(operation=action, status=500), Fault.error(action, 403, "URL hatalı"))
    await shop.verdict(row)
    assert (shop.end(row), len(shop.calls(action))) == (("refused", "bad_url_id", "answer"), 2)


@pytest.mark.interface("Acknowledgement rules 4")
async def test_an_absent_order_does_not_prove_a_complete(shop: Shop):
    row = await asked(shop, "complete")
    shop.world.faults.add(Fault(operation="complete", status=500, times=None))
    await shop.drain()
    await shop.poll()
    assert shop.row(row)["state"] == "sending"


@pytest.mark.interface("Errors")
@pytest.mark.parametrize(
    "action, code",
    [
        pytest.param("accept", "service_error", id="accept"),
        pytest.param("on_the_way", "service_error", id="on_the_way"),
        pytest.param("complete", "outcome_unknown", id="complete"),
        pytest.param("cancel", "outcome_unknown", id="cancel"),
        pytest.param("open_restaurant", "service_error", id="open_restaurant"),
        pytest.param("close_restaurant", "service_error", id="close_restaurant"),
        pytest.param("activate_food", "service_error", id="activate_food"),
        pytest.param("deactivate_food", "service_error", id="deactivate_food"),
    ],
)
async def test_there_are_three_resends_at_most(shop: Shop, action: str, code: str):
    row = await asked(shop, action)
    shop.world.faults.add(Fault(operation=action, status=500, times=None))
    ended = await shop.verdict(row)
    assert (ended["state"], ended["error_code"], ended["attempts"]) == ("failed", code, 4)
    times = [call.at for call in shop.calls(action)]
    waits = [(later - at).total_seconds() for at, later in itertools.pairwise(times)]
    assert [2 <= waits[0] <= 2.6, 10 <= waits[1] <= 12.6, 60 <= waits[2] <= 75.1, len(waits)] == [True, True, True, 3]
    await asyncio.sleep(3600)
    await shop.drain()
    assert len(shop.calls(action)) == 4


@pytest.mark.parametrize("action", ACTIONS)
async def test_silence_for_ever_ends_too(shop: Shop, action: str):
    row = await asked(shop, action)
    shop.world.faults.add(Fault.hang(action, times=None))
    ended = await shop.verdict(row)
    assert (ended["state"], len(shop.calls(action)) <= 4) == ("failed", True)
    assert effects(shop, action) == 0


async def test_a_failed_accept_is_an_alarm(shop: Shop):
    row = await asked(shop, "accept")
    shop.world.faults.add(Fault(operation="accept", status=500, times=None))
    with capture_logs() as lines:
        await shop.verdict(row)
    levels = {line["event"]: line["log_level"] for line in lines}
    assert "error" in {levels.get("action.failed"), levels.get("action.resolved")}


@pytest.mark.parametrize("action", BEFORE)
async def test_a_service_that_says_ok_to_what_is_done_is_believed(shop: Shop, action: str):
    shop.world.set_options(disallowed=Disallowed.OK)
    row = await asked(shop, action)
    shop.world.faults.add(Fault(operation=action, status=500, when=When.AFTER))
    await shop.verdict(row)
    assert (shop.end(row), effects(shop, action)) == (("done", None, "answer"), 1)


# ---- never sent ------------------------------------------------------------------------------------------------------


async def test_a_cancel_goes_before_an_accept_that_waits(shop: Shop):
    order = await shop.taken_in()
    shop.world.faults.add(Fault.too_many("accept"))
    accept = shop.act("accept", order)
    await shop.drain()
    cancel = shop.act("cancel", order)
    await shop.drain()
    assert (shop.end(accept), shop.end(cancel)) == (("superseded", "superseded", None), ("done", None, "answer"))
    assert order.status_id == 6


@pytest.mark.parametrize("when", When)
async def test_a_cancel_goes_before_an_accept_that_is_unresolved(shop: Shop, when: When):
    order = await shop.taken_in()
    shop.world.faults.add(Fault.drop("accept", when=when))
    accept = shop.act("accept", order)
    await shop.drain()
    assert shop.row(accept)["state"] == "sending"
    cancel = shop.act("cancel", order)
    await shop.drain()
    assert (shop.end(accept), shop.end(cancel)) == (("superseded", "superseded", None), ("done", None, "answer"))
    assert (order.status_id, len(shop.calls("accept"))) == (6, 1)


async def test_a_cancel_waits_for_an_accept_that_is_on_the_wire(shop: Shop):
    order = await shop.taken_in()
    shop.world.faults.add(Fault.delay("accept", 5))
    accept = shop.act("accept", order)
    await shop.outbox.tick()
    cancel = shop.act("cancel", order)
    await shop.drain()
    assert (shop.row(accept)["state"], shop.row(cancel)["state"]) == ("done", "done")
    assert shop.told("accept", "cancel") == ["accept", "cancel"]


@pytest.mark.parametrize(
    "first, second, about",
    [
        pytest.param("deactivate_food", "activate_food", {"food_id": FOOD}, id="food"),
        pytest.param("close_restaurant", "open_restaurant", {"restaurant_id": KADIKOY}, id="restaurant"),
    ],
)
async def test_of_several_toggles_only_the_newest_is_sent(
    shop: Shop, first: str, second: str, about: dict[str, object]
):
    rows = [shop.act(action, **about) for action in (first, second, first)]
    await shop.drain()
    assert [shop.row(row)["state"] for row in rows] == ["superseded", "superseded", "done"]
    assert shop.told(first, second) == [first]


async def test_toggles_of_different_foods_do_not_supersede_each_other(shop: Shop):
    rows = [shop.act("deactivate_food", food_id=food) for food in (1001, 1002, 1003)]
    await shop.drain()
    assert {shop.row(row)["state"] for row in rows} == {"done"}
    assert len(shop.world.inactive_foods) == 3


async def test_a_waiting_row_is_given_back_when_the_till_asks(shop: Shop):
    row = await asked(shop, "accept")
    shop.world.faults.add(Fault.too_many("accept"))
    await shop.drain()
    shop.till.execute("UPDATE delivery_actions SET withdraw = 1")
    await shop.drain()
    assert shop.end(row) == ("withdrawn", "withdrawn", None)
    await asyncio.sleep(60)
    await shop.drain()
    assert len(shop.calls("accept")) == 1


async def test_an_unresolved_row_is_not_given_back(shop: Shop):
    row = await asked(shop, "accept")
    shop.world.faults.add(Fault.drop("accept", when=When.AFTER))
    await shop.drain()
    shop.till.execute("UPDATE delivery_actions SET withdraw = 1")
    await shop.verdict(row)
    assert shop.end(row) == ("done", None, "poll")


async def test_a_row_that_is_taken_back_while_it_is_being_claimed_is_not_sent(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
):
    row = await asked(shop, "accept")
    take = shop.outbox.queue.accounts.take

    def too_late(*given: Any) -> Any:
        shop.till.execute("UPDATE delivery_actions SET withdraw = 1")
        return take(*given)

    monkeypatch.setattr(shop.outbox.queue.accounts, "take", too_late)
    await shop.outbox.tick()
    monkeypatch.undo()
    await shop.drain()
    assert (shop.end(row), shop.calls("accept")) == (("withdrawn", "withdrawn", None), [])


@pytest.mark.parametrize(
    "action, columns, minutes",
    [
        pytest.param("accept", {}, 10, id="accept"),
        pytest.param("complete", {}, 120, id="any other"),
        pytest.param("accept", {"valid_minutes": 3}, 3, id="the row's own time"),
        pytest.param("deactivate_food", {"valid_minutes": 600}, 600, id="the row's own longer time"),
    ],
)
async def test_a_waiting_row_expires(shop: Shop, action: str, columns: dict[str, int], minutes: int):
    row = await asked(shop, action, **columns)
    shop.line.cut = {"*"}
    await shop.drain()
    await asyncio.sleep(minutes * 60 - 1)
    await shop.drain()
    assert shop.row(row)["state"] == "pending"
    await asyncio.sleep(1)
    with capture_logs() as lines:
        await shop.drain()
    assert shop.end(row) == ("expired", "expired", None)
    (told,) = [line for line in lines if line["event"] == "action.expired"]
    assert told["log_level"] == ("error" if action == "accept" else "info")
    shop.line.cut = set()
    await shop.drain()
    assert shop.calls(action) == []


async def test_an_unresolved_row_does_not_expire_but_fails(shop: Shop):
    row = await asked(shop, "complete", valid_minutes=1)
    shop.world.faults.add(Fault.drop("complete", times=None), Fault(operation="get_current", status=500, times=None))
    ended = await shop.verdict(row, within_s=61)
    assert (ended["state"], ended["error_code"]) == ("failed", "outcome_unknown")


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


@pytest.mark.parametrize("answered", [False, True], ids=["before it arrived", "after it was done"])
@pytest.mark.parametrize("action", ACTIONS)
async def test_a_row_that_was_on_the_wire_in_a_crash_is_found_out(open_shop: OpenShop, action: str, answered: bool):
    first = await open_shop()
    row = await asked(first, action)
    there = asyncio.Event()

    async def crash_here() -> None:
        there.set()
        await asyncio.Event().wait()

    (first.line.when_answered if answered else first.line.when_leaving)(action, crash_here)
    await first.outbox.tick()
    await there.wait()
    assert first.row(row)["state"] == "sending"
    await first.crash()
    shop = await open_shop()
    assert shop.one("SELECT outcome FROM delivery_action_attempts") == {"outcome": "unknown"}
    ended = await shop.verdict(row)
    assert (ended["state"], is_so(shop.world, action), effects(shop, action)) == ("done", True, 1)
    expected = {"accept": "poll", "on_the_way": "poll", "cancel": "poll", "complete": "refusal"}
    expected |= dict.fromkeys(RESTAURANT_ACTIONS, "status")
    assert ended["known_by"] == (expected.get(action, "answer") if answered else "answer")


async def test_a_row_that_waits_survives_a_crash(open_shop: OpenShop):
    first = await open_shop()
    row = await asked(first, "accept")
    await first.crash()
    shop = await open_shop()
    assert (await shop.verdict(row))["state"] == "done"
    assert len(shop.calls("accept")) == 1


async def test_a_claim_that_cannot_be_written_is_not_sent(shop: Shop):
    row = await asked(shop, "accept")
    mend = shop.fail_commits("database or disk is full", "delivery_action_attempts")
    assert (await shop.outbox.tick()).claimed == 0
    assert (shop.calls("accept"), shop.row(row)["state"]) == ([], "pending")
    mend()
    assert (await shop.verdict(row, within_s=10))["state"] == "done"


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


async def test_a_verdict_that_cannot_be_written_harms_no_other(shop: Shop):
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
    told = [(line["event"], line["id"]) for line in logs if "id" in line]
    assert sorted(told) == [("action.database_refused", stuck), ("action.done", fine)]
    shop.till.execute("DROP TRIGGER no")
    assert (await shop.verdict(stuck, within_s=REFUSED_S + 1))["state"] == "done"
    assert len(shop.calls("accept")) == 2


async def test_rows_that_the_database_refuses_take_no_place_of_others(open_shop: OpenShop):
    shop = await open_shop(actions={"max_in_flight": 2})
    order = await shop.taken_in()
    shop.till.execute(
        "CREATE TRIGGER no BEFORE UPDATE ON delivery_actions WHEN NEW.food_id > 0 AND NEW.state = 'sending'"
        " BEGIN SELECT raise(ABORT, 'no'); END"
    )
    refused = [shop.act("deactivate_food", food_id=FOOD + n) for n in range(5)]
    fine = shop.act("accept", order)
    for _ in range(len(refused)):
        await shop.drain()
    assert shop.row(fine)["state"] == "done"
    assert {shop.row(row)["state"] for row in refused} == {"pending"}


async def test_the_end_of_the_daemon_waits_for_no_verdict_that_the_database_refuses(shop: Shop):
    row = shop.act("accept", await shop.taken_in())
    shop.till.execute(
        "CREATE TRIGGER no BEFORE UPDATE ON delivery_actions WHEN NEW.state = 'done'"
        " BEGIN SELECT raise(ABORT, 'no'); END"
    )
    await shop.drain()
    began = shop.clock.monotonic()
    shop.outbox.stop()
    await shop.outbox.run()
    assert (shop.clock.monotonic() - began < STUCK_S, shop.row(row)["state"]) == (True, "sending")


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


async def test_a_food_needs_an_account_where_there_are_several(open_shop: OpenShop):
    shop = await open_shop("kadikoy", "besiktas")
    nobody = shop.act("deactivate_food", food_id=FOOD)
    stranger = shop.act("deactivate_food", food_id=FOOD, account="stranger")
    named = shop.act("deactivate_food", food_id=2005, account="besiktas")
    await shop.drain()
    assert (shop.end(nobody)[:2], shop.end(stranger)[:2]) == (("refused", "account_needed"),) * 2
    assert (shop.row(named)["state"], shop.calls("deactivate_food")[0].account) == ("done", "besiktas")


@pytest.mark.parametrize(
    "restaurant_id, food_id, account",
    [
        pytest.param(BESIKTAS, 2005, "besiktas", id="a branch"),
        pytest.param(USKUDAR, 3005, "chain", id="a chain's first"),
        pytest.param(ATASEHIR, 3006, "chain", id="a chain's second"),
    ],
)
async def test_a_restaurant_tells_the_account(open_shop: OpenShop, restaurant_id: str, food_id: int, account: str):
    shop = await open_shop("kadikoy", "besiktas", "chain")
    for name, one in shop.accounts.items():
        reached = await one.client.restaurants()
        shop.till.executemany(
            "INSERT INTO delivery_restaurants (account, id) VALUES (?, ?)", [(name, place.id) for place in reached]
        )
    rows = [
        shop.act("close_restaurant", restaurant_id=restaurant_id),
        shop.act("deactivate_food", restaurant_id=restaurant_id, food_id=food_id),
    ]
    await shop.drain()
    assert {shop.row(row)["state"] for row in rows} == {"done"}
    assert {call.account for call in shop.calls("close_restaurant") + shop.calls("deactivate_food")} == {account}


async def test_a_restaurants_row_waits_until_the_restaurants_are_known(open_shop: OpenShop):
    shop = await open_shop("kadikoy", "besiktas")
    row = shop.act("close_restaurant", restaurant_id=UNKNOWN_KEY)
    await shop.drain()
    assert shop.row(row)["state"] == "pending"
    for account in shop.accounts.values():
        account.restaurants_known = True
    await shop.drain()
    assert shop.end(row)[:2] == ("refused", "restaurant_unknown")


async def test_the_rows_of_an_account_that_left_wait_and_expire(open_shop: OpenShop):
    first = await open_shop("kadikoy")
    order = await first.taken_in()
    await first.crash()
    shop = await open_shop("besiktas")
    row = shop.act("accept", order)
    await shop.drain()
    assert shop.row(row)["state"] == "pending"
    await asyncio.sleep(600)
    await shop.drain()
    assert shop.end(row) == ("expired", "account_missing", None)


async def test_an_account_that_is_down_does_not_hold_up_another(open_shop: OpenShop):
    shop = await open_shop("kadikoy", "besiktas")
    mine, other = shop.place(), shop.place(restaurant_id=BESIKTAS)
    await shop.poll("kadikoy")
    await shop.poll("besiktas")
    shop.world.refuse_account("kadikoy")
    stuck, fine = shop.act("accept", mine), shop.act("accept", other)
    await shop.drain()
    assert (shop.row(stuck)["state"], shop.row(fine)["state"]) == ("pending", "done")
