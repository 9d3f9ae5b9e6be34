"""What a claim or an end finds in the table: the row of the queue, a changed one, none, or a lock."""

import pytest
from tests.jobs.shop import Shop

from orderbridge.jobs.outcome_writer import Claim, Fresh
from orderbridge.model import ActionState, Verdict
from orderbridge.rules.queue import Entry
from orderbridge.rules.retry import NextRequest
from orderbridge.store import unfinished

OVER = Verdict(ActionState.EXPIRED, "expired")


async def read(shop: Shop, row_id: int) -> Entry:
    """The row as the queue reads it."""
    shop.outbox.set_now()
    await shop.outbox.reader.everything()
    entry = shop.outbox.queue.get(row_id)
    assert entry is not None
    return entry


async def claimed(shop, entry) -> Claim | Fresh:
    ((_, answer),) = await shop.database.run(lambda tx: shop.outbox.writer.claim(tx, [entry]))
    return answer


async def ended(shop, entry) -> Verdict | Fresh:
    ((_, answer),) = await shop.database.run(lambda tx: shop.outbox.writer.end(tx, [(entry.row, OVER)]))
    return answer


@pytest.fixture
async def entry(shop: Shop) -> Entry:
    """The queue's entry for an accept."""
    return await read(shop, shop.act("accept", await shop.taken_in()))


async def test_an_unchanged_row_is_sent(shop, entry):
    answer = await claimed(shop, entry)
    assert isinstance(answer, Claim)
    assert (answer.row, answer.request, answer.number, answer.again) == (entry.row, NextRequest.SEND, 1, None)
    assert shop.row(entry.row.id)["state"] == "sending"


@pytest.mark.parametrize("change", [
    "UPDATE delivery_actions SET withdraw = 1",
    "UPDATE delivery_orders SET account = 'besiktas'",
    "UPDATE delivery_orders SET service_status_id = 6",
])  # fmt: skip
async def test_a_row_that_has_changed_since_is_decided_again(shop, entry, change):
    await shop.database.run(lambda tx: tx.exec_driver_sql(change))
    for answer in (await claimed(shop, entry), await ended(shop, entry)):
        assert isinstance(answer, tuple)
        (row,) = answer
        assert (row.id, row) != (entry.row.id, entry.row)
    assert shop.calls("accept") == []


async def test_a_row_that_is_gone_is_forgotten(shop, entry):
    await shop.database.run(lambda tx: tx.exec_driver_sql("DELETE FROM delivery_actions"))
    assert (await claimed(shop, entry), await ended(shop, entry)) == ((), ())


async def test_a_row_that_another_session_has_locked_is_left(shop, entry, monkeypatch):
    monkeypatch.setattr(unfinished, "claim", lambda *_: (unfinished.Found(), {entry.row.id}))
    assert (await claimed(shop, entry), await ended(shop, entry)) == (None, None)


async def test_a_row_whose_order_another_session_has_locked_does_not_end(shop, entry, monkeypatch):
    held = ({}, {entry.row.payment_key})
    monkeypatch.setattr("orderbridge.store.orders.hold", lambda *_: held)
    assert await ended(shop, entry) is None


async def test_the_first_row_of_an_order_is_chosen_once_all_are_known(shop: Shop):
    order = await shop.taken_in()
    entry = await read(shop, shop.act("accept", order))
    cancel = shop.act("cancel", order)
    answer = await claimed(shop, entry)
    assert isinstance(answer, tuple)
    assert ([row.id for row in answer], await ended(shop, entry)) == ([entry.row.id, cancel], OVER)


async def test_a_row_whose_account_has_left_is_not_claimed(shop, entry):
    entry.account = "besiktas"
    assert (await claimed(shop, entry), shop.row(entry.row.id)["state"]) == ((), "pending")
