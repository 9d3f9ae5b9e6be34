"""What can meet on one order: a list, its acknowledgement, our actions, a crash, somebody else (promises 2 and 6)."""

from collections.abc import Sequence

import pytest
from sqlalchemy import Connection
from tests.jobs.shop import Shop, listing

from orderbridge.sandbox import Fault, When
from orderbridge.store import orders


async def over_by_refusal(shop: Shop, action: str) -> int:
    """An order on its way whose end, brought about by us, only the refusal of its repetition proves."""
    shop.world.set_options(cancelled_are_delivered=False)
    order = await shop.taken_in(status_id=16)
    shop.world.faults.add(Fault.drop(action, when=When.AFTER))
    row = shop.act(action, order)
    await shop.verdict(row)
    assert shop.end(row) == ("done", None, "refusal")
    return row


@pytest.mark.parametrize("action, status_id", [("complete", 5), ("cancel", 6)])
async def test_a_row_that_is_done_already_takes_no_end_back(shop: Shop, action: str, status_id: int):
    await over_by_refusal(shop, action)
    (order,) = shop.world.orders.values()
    row = shop.act("on_the_way", order)
    await shop.drain()
    assert shop.end(row) == ("done", "already", "poll")
    stored = shop.order(order)
    assert (stored["status_id"], stored["ended_utc"] is None) == (status_id, False)


async def test_a_row_found_to_be_done_already_does_not_overwrite_a_later_delivery(shop: Shop):
    order = await shop.taken_in(status_id=2)
    row = shop.act("accept", order)
    survey = await shop.database.read(lambda tx: shop.outbox._chooser.survey(tx, 8, {}, frozenset()))
    shop.world.change_status(order.key, 16)
    await shop.poll()
    await shop.outbox._end_unsent(survey)
    assert (shop.end(row), shop.order(order)["status_id"]) == (("done", "already", "poll"), 16)


async def test_a_complete_after_a_cancel_of_ours_is_not_proved_by_its_refusal(shop: Shop):
    await over_by_refusal(shop, "cancel")
    (order,) = shop.world.orders.values()
    shop.world.faults.add(Fault.drop("complete", when=When.BEFORE))
    row = shop.act("complete", order)
    await shop.verdict(row)
    assert shop.end(row) == ("failed", "outcome_unknown", "poll")
    assert (order.status_id, shop.order(order)["status_id"]) == (6, 6)


async def test_a_row_given_up_while_the_list_is_on_its_way_withholds_the_status(shop: Shop):
    shop.world.faults.add(Fault.drop("acknowledge", when=When.BEFORE))
    order = shop.place()
    await shop.poll()
    shop.world.faults.add(Fault.drop("accept", when=When.BEFORE))
    row = shop.act("accept", order, valid_minutes=1)
    await shop.drain()
    shop.world.faults.add(Fault.error("get_current", 500, "hata"))
    await shop.poll()  # no look
    shop.line.when_answered("get_current", shop.drain)
    polled = await shop.poll()
    assert shop.end(row) == ("failed", "outcome_unknown", None)
    assert (polled.delivered, polled.withheld, polled.acknowledged) == (1, 1, 0)


async def test_a_change_by_somebody_else_after_the_acknowledgement_is_delivered(shop: Shop):
    order = shop.place()

    async def moves_on() -> None:
        shop.world.change_status(order.key, 2)

    shop.line.when_answered("acknowledge", moves_on)  # it has landed, and nobody knows yet
    await shop.poll()
    assert shop.order(order)["acknowledged_status_id"] == 1
    await shop.poll()
    stored = shop.order(order)
    assert (stored["status_id"], stored["acknowledged_status_id"]) == (2, 2)


async def test_a_change_by_somebody_else_before_the_acknowledgement_is_the_blind_spot(shop: Shop):
    """PUT success names no status. What is noted is what was delivered, and the next change brings the order again."""
    order = shop.place()

    async def moves_on() -> None:
        shop.world.change_status(order.key, 2)

    shop.line.when_leaving("acknowledge", moves_on)
    await shop.poll()
    assert (await shop.poll()).delivered == 0
    stored = shop.order(order)
    assert (stored["status_id"], stored["acknowledged_status_id"]) == (1, 1)
    shop.world.change_status(order.key, 16)
    await shop.poll()
    assert shop.order(order)["status_id"] == 16


async def test_the_look_that_finds_an_accept_done_is_acknowledged(shop: Shop):
    """Both answers are lost, the acknowledgement's and the accept's; both requests had their effect."""
    shop.world.faults.add(Fault.drop("acknowledge", when=When.AFTER))
    order = shop.place()
    await shop.poll()
    shop.world.faults.add(Fault.drop("accept", when=When.AFTER))
    row = shop.act("accept", order)
    await shop.drain()
    assert shop.order(order)["acknowledged_status_id"] is None
    await shop.poll()
    assert (shop.end(row), len(shop.calls("accept"))) == (("done", None, "poll"), 1)
    assert shop.order(order)["acknowledged_status_id"] == 2


async def test_a_row_chosen_before_the_list_came_in_does_not_pass_its_acknowledgement(shop: Shop):
    shop.world.faults.add(Fault.drop("acknowledge", when=When.BEFORE))
    order = shop.place()
    await shop.poll()
    shop.act("accept", order)
    survey = await shop.database.read(lambda tx: shop.outbox._chooser.survey(tx, 8, {}, frozenset()))
    claimed = []

    async def goes_on() -> None:
        claimed.append(shop.outbox._take(survey))

    shop.line.when_leaving("acknowledge", goes_on)
    await shop.poll()
    assert (len(survey.ready), claimed) == (1, [[]])


async def test_the_lane_is_held_until_the_acknowledgement_is_noted(shop: Shop, monkeypatch: pytest.MonkeyPatch):
    """What goes next may be judged by it: an accept's absence from a list, for one."""
    held = []
    note = orders.mark_acknowledged

    def watched(connection: Connection, marks: Sequence[orders.Mark]) -> None:
        held.append(len(shop.lanes.taken()))
        note(connection, marks)

    monkeypatch.setattr(orders, "mark_acknowledged", watched)
    await shop.taken_in()
    assert held == [1]


async def test_a_list_with_a_document_that_could_be_any_order_does_not_show_absence(shop: Shop):
    order = await shop.taken_in()
    shop.world.faults.add(Fault.drop("accept", when=When.BEFORE))
    row = shop.act("accept", order)
    await shop.drain()
    waits_until = shop.row(row)["next_attempt_utc"]
    shop.world.faults.add(listing("no order"))
    await shop.poll()
    assert shop.row(row)["next_attempt_utc"] == waits_until
