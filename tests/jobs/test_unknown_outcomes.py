"""The table of unknown outcomes (docs/design.md, Behaviour), row by row in the whole outbox: what `test_verdicts.py` leaves out."""

import asyncio

import pytest
from structlog.testing import capture_logs
from tests.jobs.conftest import OpenShop
from tests.jobs.shop import Shop
from tests.jobs.test_verdicts import ABOUT, BEFORE, RESTAURANT_ACTIONS, TARGET, asked, effects, is_so

from orderbridge_sandbox import Fault, When
from orderbridge_sandbox.faults import FaultKind
from orderbridge_sandbox.state import Order

NO = "sipariş durumu uygun değil"
LOOKED_FOR = ["accept", "on_the_way"]


async def without_our_ok(shop: Shop, action: str) -> Order:
    """An order that the service took as acknowledged and whose OK never came: its absence will prove nothing."""
    shop.world.faults.add(Fault.drop("acknowledge", when=When.AFTER))
    order = shop.place(status_id=BEFORE[action])
    await shop.poll()
    assert (order.acknowledged, shop.order(order)["acknowledged_status_id"]) == (True, None)
    return order


async def still_listed(shop: Shop, action: str) -> Order:
    """An order whose acknowledgement came to nothing: the list goes on showing it."""
    shop.world.faults.add(Fault(operation="acknowledge", status=500))
    order = shop.place(status_id=BEFORE[action])
    await shop.poll()
    assert not order.acknowledged
    return order


def gap(shop: Shop, action: str) -> float:
    first, second = shop.calls(action)
    return (second.at - first.at).total_seconds()


# ---- accept and on_the_way -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", LOOKED_FOR)
async def test_a_look_that_shows_the_status_before_sends_it_again_at_once(shop: Shop, action: str):
    order = await still_listed(shop, action)
    shop.world.faults.add(Fault.drop(action))
    row = shop.act(action, order)
    await shop.verdict(row)
    assert (shop.end(row), order.status_id) == (("done", None, "answer"), TARGET[action])
    assert 29 <= gap(shop, action) <= 32


@pytest.mark.parametrize("action", LOOKED_FOR)
async def test_after_a_start_the_first_poll_is_the_look(shop: Shop, open_shop: OpenShop, action: str):
    row = await asked(shop, action)
    shop.world.faults.add(Fault.drop(action, when=When.AFTER))
    await shop.drain()
    await shop.crash()
    await asyncio.sleep(300)
    shop = await open_shop()
    await shop.drain()
    assert (shop.row(row)["state"], len(shop.calls(action))) == ("sending", 1)
    await shop.poll()
    assert (shop.end(row), len(shop.calls(action))) == (("done", None, "poll"), 1)


@pytest.mark.parametrize("action", LOOKED_FOR)
async def test_a_look_that_is_under_way_is_waited_for(shop: Shop, action: str):
    row = await asked(shop, action)
    shop.world.faults.add(Fault.drop(action, when=When.AFTER))
    await shop.drain()
    await asyncio.sleep(300)
    shop.line.when_answered("get_current", shop.drain)
    await shop.poll()
    assert (shop.end(row), len(shop.calls(action))) == (("done", None, "poll"), 1)


@pytest.mark.parametrize("action", LOOKED_FOR)
async def test_a_poll_that_fails_is_not_waited_for(shop: Shop, open_shop: OpenShop, action: str):
    row = await asked(shop, action)
    shop.world.faults.add(Fault.drop(action))
    await shop.drain()
    await shop.crash()
    await asyncio.sleep(300)
    shop = await open_shop()
    shop.world.faults.add(Fault(operation="get_current", status=500))
    await shop.poll()
    await shop.drain()
    assert (shop.end(row), len(shop.calls(action))) == (("done", None, "answer"), 2)


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


@pytest.mark.parametrize("action", LOOKED_FOR)
async def test_an_absence_that_no_acknowledgement_explains_proves_nothing(shop: Shop, action: str):
    order = await without_our_ok(shop, action)
    shop.world.faults.add(Fault.drop(action))
    row = shop.act(action, order)
    await shop.drain()
    await shop.poll()
    await shop.drain()
    assert (shop.row(row)["state"], len(shop.calls(action))) == ("sending", 1)
    await shop.verdict(row)
    assert (shop.end(row), order.status_id) == (("done", None, "answer"), TARGET[action])
    assert 60 <= gap(shop, action) <= 61  # two cooldowns


@pytest.mark.parametrize("healed_by", ["an OK", "a delivery"])
@pytest.mark.parametrize("action", LOOKED_FOR)
async def test_one_that_is_refused_and_not_seen_is_an_alarm_and_a_doubt_until_the_service_shows_it(
    shop: Shop, action: str, healed_by: str
):
    row = await asked(shop, action)
    (order,) = shop.world.orders.values()
    shop.world.faults.add(Fault(operation=action, status=500), Fault.error(action, 422, NO))
    with capture_logs() as lines:
        await shop.verdict(row)
    assert (shop.end(row), len(shop.calls(action))) == (("failed", "outcome_unknown", "poll"), 2)
    assert "panel" in shop.row(row)["error_text"]
    (told,) = [line for line in lines if line["event"] == "action.failed"]
    assert (told["log_level"], told["action"], told["code"]) == ("error", action, "outcome_unknown")
    assert shop.order(order)["problem"] == "status_doubtful"
    if healed_by == "an OK":
        again = shop.act(action, order)
        await shop.drain()
        assert shop.end(again) == ("done", None, "answer")
    else:
        shop.world.change_status(order.key, TARGET[action])
        await shop.poll()
    assert (shop.order(order)["problem"], shop.order(order)["status_id"]) == (None, TARGET[action])


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


async def test_an_ok_to_on_the_way_counts_as_the_services_own_word(shop: Shop):
    order = await shop.taken_in(status_id=2)
    shop.act("on_the_way", order)
    await shop.drain()
    shop.world.faults.add(Fault.drop("complete", when=When.AFTER))
    row = shop.act("complete", order)
    await shop.verdict(row)
    assert (shop.end(row), order.status_id) == (("done", None, "refusal"), 5)


async def test_a_complete_that_a_look_shows_undone_keeps_the_time_of_its_resend(shop: Shop):
    order = await still_listed(shop, "complete")
    shop.world.faults.add(Fault.hang("complete", times=2))
    row = shop.act("complete", order)
    await shop.verdict(row)
    assert (shop.end(row), order.status_id) == (("done", None, "answer"), 5)
    times = [call.at for call in shop.calls("complete")]
    assert 30 <= (times[2] - times[1]).total_seconds() <= 33  # 20 s of silence, and ten to twelve and a half


@pytest.mark.parametrize("action", ["accept", "on_the_way", "complete"])
@pytest.mark.parametrize("refused", [False, True], ids=["in doubt", "after a refused resend"])
async def test_a_look_that_shows_the_order_cancelled_refuses_what_is_in_doubt(shop: Shop, action: str, refused: bool):
    row = await asked(shop, action)
    (order,) = shop.world.orders.values()
    shop.world.faults.add(Fault(operation=action, status=500), *[Fault.error(action, 422, NO)] * refused)
    shop.world.faults.add(Fault(operation=action, status=500, times=None))
    await shop.drain()
    shop.world.cancel_by_customer(order.key)
    await shop.verdict(row)
    assert shop.end(row) == ("refused", "order_cancelled", "poll")
    assert shop.order(order)["ended_by"] == "cancelled"


# ---- cancel ----------------------------------------------------------------------------------------------------------


async def test_a_refused_cancel_is_not_proved_by_absence_after_a_complete_of_ours(shop: Shop):
    completed = await asked(shop, "complete")
    shop.world.faults.add(Fault.drop("complete", when=When.AFTER))
    await shop.verdict(completed)
    assert shop.end(completed) == ("done", None, "refusal")
    (order,) = shop.world.orders.values()
    shop.world.faults.add(Fault.drop("cancel"))
    row = shop.act("cancel", order)
    await shop.verdict(row)
    assert (shop.end(row), order.status_id) == (("failed", "outcome_unknown", "poll"), 5)


# ---- restaurants -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", When)
@pytest.mark.parametrize(
    "mute",
    [
        pytest.param({"status": 500}, id="500"),
        pytest.param({"status": 404, "body": b"<html></html>"}, id="page"),
        pytest.param({"status": 200, "body": b'{"status": true, "data": "Maybe"}'}, id="neither"),
        pytest.param({"status": 429}, id="429"),
        pytest.param({"kind": FaultKind.HANG}, id="hang"),
    ],
)
async def test_a_restaurant_whose_status_cannot_be_read_is_sent_to_again(
    shop: Shop, mute: dict[str, object], when: When
):
    action = "close_restaurant"
    row = await asked(shop, action)
    shop.world.faults.add(Fault.drop(action, when=when), Fault(operation="get_restaurant_status", **mute))
    ended = await shop.verdict(row)
    assert (ended["state"], is_so(shop.world, action)) == ("done", True)
    assert effects(shop, action) == 1
    assert len(shop.calls(action)) <= 2


@pytest.mark.parametrize("action", RESTAURANT_ACTIONS)
async def test_a_restaurant_that_stays_mute_stays_unknown(shop: Shop, action: str):
    row = await asked(shop, action)
    shop.world.faults.add(
        Fault.drop(action, times=None, when=When.AFTER),
        Fault(operation="get_restaurant_status", status=500, times=None),
    )
    await shop.verdict(row)
    assert (shop.end(row), len(shop.calls(action))) == (("failed", "outcome_unknown", None), 4)
    assert shop.row(row)["attempts"] == 4


@pytest.mark.parametrize("action", ABOUT)
async def test_what_can_be_repeated_leaves_no_order_in_doubt(shop: Shop, action: str):
    order = await shop.taken_in()
    row = shop.act(action, **ABOUT[action])
    shop.world.faults.add(Fault(operation=action, status=500), Fault.error(action, 403, "URL hatalı"))
    await shop.verdict(row)
    assert (shop.end(row), len(shop.calls(action))) == (("refused", "bad_url_id", "answer"), 2)
    assert shop.order(order)["problem"] is None


# ---- the doubt about an order's status -------------------------------------------------------------------------------


async def test_a_proof_by_refusal_leaves_the_doubt_until_the_service_says_more(shop: Shop):
    row = await asked(shop, "complete")
    (order,) = shop.world.orders.values()
    shop.world.faults.add(Fault.drop("complete", when=When.AFTER))
    await shop.verdict(row)
    stored = shop.order(order)
    assert (shop.end(row), stored["status_id"]) == (("done", None, "refusal"), 5)
    assert (stored["service_status_id"], stored["problem"]) == (16, "status_doubtful")


@pytest.mark.parametrize("action", ["cancel", "complete"])
@pytest.mark.parametrize(
    "status, error, message",
    [(422, "eksik alan", "Invalid reason_id"), (403, "URL hatalı", None)],
    ids=["its body", "its path"],
)
async def test_a_refusal_for_the_requests_own_sake_proves_nothing_about_the_one_before(
    shop: Shop, action: str, status: int, error: str, message: str | None
):
    row = await asked(shop, action)
    (order,) = shop.world.orders.values()
    shop.world.faults.add(Fault(operation=action, status=500), Fault.error(action, status, error, message))
    before = order.status_id
    await shop.verdict(row)
    assert shop.end(row)[:2] == ("failed", "outcome_unknown")
    assert (order.status_id, shop.order(order)["ended_by"]) == (before, None)


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
