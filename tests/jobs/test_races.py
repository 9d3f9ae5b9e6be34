"""Concurrent events of one order: a list, its acknowledgement, actions, a crash, another client (promises 2, 6)."""

from datetime import timedelta

import pytest
from tests.jobs.shop import Shop

from orderbridge.store import orders
from orderbridge_sandbox import Fault, When


async def test_a_status_does_not_count_if_a_row_of_its_order_ends_during_the_poll(shop: Shop):
    shop.world.faults.add(Fault.drop("acknowledge", when=When.BEFORE))
    order = shop.place()
    await shop.poll()
    shop.world.faults.add(Fault.drop("accept", when=When.BEFORE))
    row = await shop.acted("accept", order, valid_minutes=1)
    shop.world.faults.add(Fault.error("get_current", 500, "hata"))
    await shop.poll()  # cannot resolve the row
    shop.line.when_answered("get_current", shop.drain)
    polled = await shop.poll()
    assert shop.end(row) == ("failed", "outcome_unknown", None)
    assert (polled.delivered, polled.withheld, polled.acknowledged) == (1, 1, 0)


async def test_the_lane_is_held_until_the_acknowledgement_is_noted(shop: Shop, monkeypatch: pytest.MonkeyPatch):
    """The next action may be judged by this note, for example an accept whose order is missing from a list."""
    held, note = [], orders.mark_acknowledged

    def watched(connection, marks):
        held.append(len(shop.lanes.taken()))
        note(connection, marks)

    monkeypatch.setattr(orders, "mark_acknowledged", watched)
    await shop.taken_in()
    assert held == [1]


async def test_recovery_skips_a_row_whose_verdict_is_being_written(shop: Shop, monkeypatch: pytest.MonkeyPatch):
    shop.act("accept", await shop.taken_in())
    await shop.outbox.tick()  # it is on the wire

    async def slowly(work):
        monkeypatch.undo()
        with shop.database.engine.connect().execution_options(orderbridge_read=True) as connection, connection.begin():
            connection.exec_driver_sql("SELECT count(*) FROM delivery_actions").all()  # begins the read here
            await shop.outbox.quiet()
            return work(connection)

    monkeypatch.setattr(shop.database, "read", slowly)
    await shop.outbox.recover()
    assert shop.one("SELECT outcome FROM delivery_action_attempts") == {"outcome": "ok"}


async def test_a_cancel_waits_until_the_accepts_end_is_written(shop: Shop, monkeypatch: pytest.MonkeyPatch):
    order = await shop.taken_in()
    shop.world.faults.add(Fault(operation="accept", status=500))
    accept = await shop.acted("accept", order)
    cancel = shop.act("cancel", order)

    def held_by_a_till(_, ends):
        monkeypatch.undo()
        return [(end, None) for end in ends]

    monkeypatch.setattr(shop.outbox.writer, "end", held_by_a_till)
    await shop.verdict(cancel)
    assert (shop.row(accept)["state"], shop.row(cancel)["state"]) == ("superseded", "done")
    assert shop.operations("accept", "cancel") == ["accept", "cancel"]


async def test_a_clock_that_is_set_while_rows_are_read_expires_none(shop: Shop, monkeypatch: pytest.MonkeyPatch):
    row = shop.act("accept", await shop.taken_in())
    step = shop.outbox.reader.step

    async def set_meanwhile(**named):
        read = await step(**named)
        shop.clock.ahead += timedelta(hours=1)
        shop.outbox.reader.server.behind = timedelta(hours=1)  # as a server's own clock shows it from now on
        monkeypatch.undo()
        return read

    monkeypatch.setattr(shop.outbox.reader, "step", set_meanwhile)
    shop.outbox.wake()
    await shop.outbox.cycle()
    await shop.drain()
    assert shop.row(row)["state"] == "done"
