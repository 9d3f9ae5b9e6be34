"""Unknown outcomes in the whole outbox; tests/rules/test_retry.py has the table row by row."""

import asyncio

import pytest
from structlog.testing import capture_logs
from tests.jobs.conftest import OpenShop
from tests.jobs.shop import Shop
from tests.jobs.test_verdicts import asked, effects, is_so

from orderbridge_sandbox import Fault, When

NO = "sipariş durumu uygun değil"


# ---- accept and on_the_way -------------------------------------------------------------------------------------------


async def test_after_a_start_the_first_poll_is_the_look(shop: Shop, open_shop: OpenShop):
    row = await asked(shop, "accept")
    shop.world.faults.add(Fault.drop("accept", when=When.AFTER))
    await shop.drain()
    await shop.crash()
    await asyncio.sleep(300)
    shop = await open_shop()
    await shop.drain()
    assert (shop.row(row)["state"], len(shop.calls("accept"))) == ("sending", 1)
    await shop.poll()
    assert (shop.end(row), len(shop.calls("accept"))) == (("done", None, "poll"), 1)


async def test_a_look_that_is_under_way_is_waited_for(shop: Shop):
    row = await asked(shop, "accept")
    shop.world.faults.add(Fault.drop("accept", when=When.AFTER))
    await shop.drain()
    await asyncio.sleep(300)
    shop.line.when_answered("get_current", shop.drain)
    await shop.poll()
    assert (shop.end(row), len(shop.calls("accept"))) == (("done", None, "poll"), 1)


async def test_a_poll_that_fails_is_not_waited_for(shop: Shop, open_shop: OpenShop):
    row = await asked(shop, "accept")
    shop.world.faults.add(Fault.drop("accept"))
    await shop.drain()
    await shop.crash()
    await asyncio.sleep(300)
    shop = await open_shop()
    shop.world.faults.add(Fault(operation="get_current", status=500))
    await shop.poll()
    await shop.drain()
    assert (shop.end(row), len(shop.calls("accept"))) == (("done", None, "answer"), 2)


async def test_a_look_that_never_leaves_keeps_no_row_beyond_its_time(shop: Shop, open_shop: OpenShop):
    row = await asked(shop, "accept")
    shop.world.faults.add(Fault.drop("accept"))
    await shop.drain()
    await shop.crash()
    await asyncio.sleep(300)
    shop = await open_shop(secrets={"kadikoy": "mistyped"})
    await shop.drain()  # it waits for the first poll
    await shop.verdict(row, within_s=301)
    assert shop.end(row)[:2] == ("failed", "outcome_unknown")


async def test_one_that_is_refused_and_not_seen_is_an_alarm_and_a_doubt(shop: Shop):
    row = await asked(shop, "on_the_way")
    (order,) = shop.world.orders.values()
    shop.world.faults.add(Fault(operation="on_the_way", status=500), Fault.error("on_the_way", 422, NO))
    with capture_logs() as lines:
        await shop.verdict(row)
    assert (shop.end(row), len(shop.calls("on_the_way"))) == (("failed", "outcome_unknown", "poll"), 2)
    assert "panel" in shop.row(row)["error_text"]
    (told,) = [line for line in lines if line["event"] == "action.failed"]
    assert (told["log_level"], told["action"], told["code"]) == ("error", "on_the_way", "outcome_unknown")
    assert shop.order(order)["problem"] == "status_doubtful"


@pytest.mark.interface("Acknowledgement rules 4")
@pytest.mark.parametrize("action", ["complete", "cancel"])
async def test_one_that_is_refused_is_proved_by_the_next_list_that_lacks_the_order(shop: Shop, action: str):
    row = await asked(shop, action)
    shop.world.faults.add(Fault(operation=action, status=500), Fault.error(action, 404, "sipariş bulunamadı"))
    await shop.drain()
    await asyncio.sleep(3)
    await shop.drain()
    (order,) = shop.world.orders.values()
    assert (shop.row(row)["state"], shop.order(order)["problem"]) == ("sending", "status_doubtful")
    await shop.verdict(row)
    assert (shop.end(row), len(shop.calls(action))) == (("done", None, "refusal"), 2)


# ---- complete --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("refused", [False, True], ids=["in doubt", "after a refused resend"])
async def test_a_look_that_shows_the_order_cancelled_refuses_what_is_in_doubt(shop: Shop, refused: bool):
    row = await asked(shop, "accept")
    (order,) = shop.world.orders.values()
    shop.world.faults.add(Fault(operation="accept", status=500), *[Fault.error("accept", 422, NO)] * refused)
    shop.world.faults.add(Fault(operation="accept", status=500, times=None))
    await shop.drain()
    shop.world.cancel_by_customer(order.key)
    await shop.verdict(row)
    assert shop.end(row) == ("refused", "order_cancelled", "poll")
    assert shop.order(order)["ended_by"] == "cancelled"


# ---- restaurants -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", When)
async def test_a_restaurant_whose_status_cannot_be_read_is_sent_to_again(shop: Shop, when: When):
    row = await asked(shop, "close_restaurant")
    shop.world.faults.add(Fault.drop("close_restaurant", when=when), Fault.page("get_restaurant_status", 404))
    ended = await shop.verdict(row)
    assert (ended["state"], is_so(shop.world, "close_restaurant")) == ("done", True)
    assert effects(shop, "close_restaurant") == 1
    assert len(shop.calls("close_restaurant")) <= 2


async def test_a_restaurant_that_stays_mute_stays_unknown(shop: Shop):
    row = await asked(shop, "open_restaurant")
    shop.world.faults.add(
        Fault.drop("open_restaurant", times=None, when=When.AFTER),
        Fault(operation="get_restaurant_status", status=500, times=None),
    )
    await shop.verdict(row)
    assert (shop.end(row), len(shop.calls("open_restaurant"))) == (("failed", "outcome_unknown", None), 4)
    assert shop.row(row)["attempts"] == 4


# ---- the doubt about an order's status -------------------------------------------------------------------------------


@pytest.mark.parametrize("status, error", [(422, "eksik alan"), (403, "URL hatalı")], ids=["its body", "its path"])
async def test_a_refusal_for_the_requests_own_sake_proves_nothing_about_the_one_before(
    shop: Shop, status: int, error: str
):
    row = await asked(shop, "cancel")
    (order,) = shop.world.orders.values()
    message = "Invalid reason_id" if status == 422 else None
    shop.world.faults.add(Fault(operation="cancel", status=500), Fault.error("cancel", status, error, message))
    await shop.verdict(row)
    assert shop.end(row)[:2] == ("failed", "outcome_unknown")
    assert (order.status_id, shop.order(order)["ended_by"]) == (1, None)


@pytest.mark.parametrize("status, error", [(429, "çok fazla istek"), (401, "yetkisiz erişim")])
async def test_a_restaurant_is_not_opened_again_because_the_question_was_turned_away(
    shop: Shop, status: int, error: str
):
    row = await asked(shop, "open_restaurant")
    shop.world.faults.add(Fault.drop("open_restaurant", when=When.AFTER))
    shop.world.faults.add(Fault.error("get_restaurant_status", status, error, times=2 if status == 401 else 1))
    await shop.verdict(row)
    assert shop.end(row)[0] == "done"
    assert shop.told("open_restaurant") == ["open_restaurant"]
