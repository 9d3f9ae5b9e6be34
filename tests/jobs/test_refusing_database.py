"""A POS whose triggers refuse the daemon's writes: an unwritten order is never acknowledged."""

import asyncio

import pytest
from structlog.testing import capture_logs
from tests.jobs.shop import Shop, database_error
from tests.jobs.test_health import open_codes

from orderbridge.jobs import intake
from orderbridge.store import actions, unfinished
from orderbridge_sandbox import Fault
from orderbridge_sandbox.state import Order

RAISES = ["RAISE(ABORT, 'no')", "RAISE(FAIL, 'no')", "RAISE(ROLLBACK, 'no')"]
LEFT_OUT = "RAISE(IGNORE)"
NO_SUCH_TABLE = "1 FROM pos_tickets"  # the POS's own trigger is broken


def told(lines: list[dict[str, object]], *events: str) -> list[str]:
    return [line["event"] for line in lines if line["event"] in events]


async def cancelled(shop: Shop) -> Order:
    """An order that a till has taken over, and that its customer has cancelled since, with other lines."""
    order = await shop.taken_in(note="with onions")
    shop.till.execute("UPDATE delivery_orders SET pos_revision = 1")
    order.document["note"] = "without onions"
    shop.world.cancel_by_customer(order.key)
    return order


@pytest.mark.parametrize("raises", RAISES)
async def test_an_order_whose_automatic_accept_is_refused_comes_in_without_it(open_shop, raises: str):
    shop = await open_shop(auto_accept_minutes=20)
    refused, fine = shop.place(), shop.place()
    shop.refuse("INSERT ON delivery_actions", raises, when=f"NEW.payment_key = '{refused.key}'")
    with capture_logs() as lines:
        assert (await shop.poll()).acknowledged == 2
        await shop.poll()
    assert {row["payment_key"] for row in shop.rows("SELECT * FROM delivery_new_orders")} == {refused.key, fine.key}
    assert [row["payment_key"] for row in shop.rows("SELECT * FROM delivery_actions")] == [fine.key]
    assert shop.count("delivery_quarantine") == 0
    (line,) = (line for line in lines if line["event"] == "order.auto_accept_refused")
    assert (line["log_level"], line["payment_key"]) == ("error", refused.key)
    assert "accept it in the POS" in line["remedy"]


async def test_a_temporary_disk_error_loses_no_automatic_accept(open_shop, monkeypatch):
    shop = await open_shop(auto_accept_minutes=20)
    order = shop.place()
    errors, add_once = [database_error("disk I/O error")], actions.add_once

    def fail_once(*of, **how):
        if errors:
            raise errors.pop()
        return add_once(*of, **how)

    monkeypatch.setattr(actions, "add_once", fail_once)
    assert (await shop.poll()).acknowledged == 1
    assert [row["payment_key"] for row in shop.rows("SELECT * FROM delivery_actions")] == [order.key]


@pytest.mark.parametrize("raises", [*RAISES, LEFT_OUT])
async def test_where_new_contents_are_refused_the_status_is_shown_and_nothing_is_acknowledged(shop: Shop, raises: str):
    order = await cancelled(shop)
    shop.refuse("UPDATE ON delivery_orders", raises, when="NEW.note <> OLD.note")
    assert (await shop.poll()).acknowledged == 0
    changed = shop.one("SELECT * FROM delivery_changed_orders")
    assert (changed["status"], changed["last_change"], changed["ended_by"]) == ("CANCELED", "cancelled", "cancelled")
    assert (changed["problem"], changed["note"], changed["revision"]) == ("contents_outdated", "with onions", 2)
    assert not order.acknowledged


@pytest.mark.parametrize("table", ["delivery_order_items", "delivery_order_item_options"])
async def test_a_known_order_whose_new_lines_are_refused_keeps_the_old_ones_and_shows_its_status(shop, table):
    order = await shop.taken_in(foods=[line(2)])
    order.document["foods"] = [line(3)]
    shop.world.change_status(order.key, 2)
    shop.refuse(f"INSERT ON {table}")
    await shop.poll()
    stored = shop.order(order)
    assert (stored["status"], stored["problem"]) == ("CONFIRMED", "contents_outdated")
    assert [row["quantity"] for row in shop.rows("SELECT quantity FROM delivery_order_items")] == [2]
    assert (order.acknowledged, open_codes(shop)) == (False, [("contents_outdated", order.key)])
    shop.allow()
    await shop.poll()
    assert open_codes(shop) == []


@pytest.mark.parametrize("raises", [*RAISES, LEFT_OUT])
async def test_an_update_that_cannot_be_stored_is_quarantined_and_not_acknowledged(shop: Shop, raises: str):
    order = await cancelled(shop)
    shop.refuse("UPDATE OF status ON delivery_orders", raises)
    with capture_logs() as lines:
        await shop.poll()
        await shop.poll()
    assert (order.acknowledged, shop.order(order)["status"]) == (False, "RECEIVED")
    kept = shop.one("SELECT payment_key, reason, times_seen, resolved_utc FROM delivery_quarantine")
    assert tuple(kept.values()) == (order.key, "database_refused", 2, None)
    assert told(lines, "order.update_refused", "order.quarantined") == ["order.update_refused", "order.quarantined"]
    await asyncio.sleep(200)
    await shop.poll()
    assert open_codes(shop) == [("contents_outdated", order.key)], "whether it waits for an answer is not known"
    shop.allow()
    await shop.poll()
    assert (open_codes(shop), shop.order(order)["status"], order.acknowledged) == ([], "CANCELED", True)
    assert shop.one("SELECT resolved_utc FROM delivery_quarantine")["resolved_utc"] is not None


async def test_an_order_that_changed_back_while_the_database_refused_it_is_not_outdated(shop: Shop):
    order = await shop.taken_in()
    shop.refuse("UPDATE ON delivery_orders")
    for status, is_waiting in ((2, True), (1, False)):
        shop.world.change_status(order.key, status)
        await shop.poll()
        kept = shop.one("SELECT resolved_utc FROM delivery_quarantine")["resolved_utc"]
        assert (kept is None, order.acknowledged) == (is_waiting, not is_waiting)


@pytest.mark.parametrize("raises", [RAISES[0], LEFT_OUT])
async def test_an_order_refused_by_every_table_is_not_acknowledged_and_logged_once(shop: Shop, raises: str):
    order = shop.place()
    shop.refuse("INSERT ON delivery_orders")
    shop.till.execute(f"CREATE TRIGGER full BEFORE INSERT ON delivery_quarantine BEGIN SELECT {raises}; END")
    with capture_logs() as lines:
        for _ in range(3):
            await shop.poll()
    assert not order.acknowledged
    events = ["order.database_refused", "order.lost_sight_of"]
    assert told(lines, *events) == events
    assert [line["payment_key"] for line in lines if line["event"] == "order.lost_sight_of"] == [order.key]
    assert open_codes(shop) == [("not_stored", "kadikoy")]
    shop.till.execute("DROP TRIGGER full")
    await shop.poll()
    assert open_codes(shop) == [("quarantined", "")]


@pytest.mark.parametrize("is_known", [False, True])
async def test_an_order_refused_by_a_broken_trigger_is_a_problem_until_the_trigger_is_fixed(shop: Shop, is_known: bool):
    order = await cancelled(shop) if is_known else shop.place()
    shop.refuse("UPDATE ON delivery_orders" if is_known else "INSERT ON delivery_orders", NO_SUCH_TABLE)
    await shop.poll()
    assert not order.acknowledged
    waiting = [("unanswered", order.key)] if is_known else []  # which the tables show, too
    assert open_codes(shop) == [("not_stored", "kadikoy"), *waiting]
    shop.allow()
    await shop.poll()
    assert open_codes(shop) == []


@pytest.mark.parametrize("state", ["sending", "done"])
@pytest.mark.parametrize("raises", [RAISES[0], LEFT_OUT, NO_SUCH_TABLE])
async def test_a_verdict_refused_by_the_database_is_logged_once_and_written_when_accepted(shop, state, raises):
    row, other = (shop.act("deactivate_food", food_id=food) for food in (1007, 1008))
    shop.refuse("UPDATE ON delivery_actions", raises, when=f"NEW.state = '{state}' AND NEW.id = {row}")
    with capture_logs() as lines:
        for _ in range(5):
            await shop.drain()
            await asyncio.sleep(5)
        # SQLite prepares a trigger with each UPDATE: a broken one refuses all of them.
        is_broken = raises == NO_SUCH_TABLE
        assert told(lines, "action.database_refused", "batch.crashed") == ["action.database_refused"] * (1 + is_broken)
        assert shop.row(row)["state"] == ("sending" if state == "done" and not is_broken else "pending")
        assert shop.row(other)["state"] == ("pending" if is_broken else "done")
        await shop.poll()
        assert open_codes(shop) == [("not_written", "")]
        shop.allow()
        await asyncio.sleep(60)
        await shop.drain()
    assert shop.row(row)["state"] == "done"
    await shop.poll()
    assert (open_codes(shop), len(shop.calls("deactivate_food"))) == ([], 2)


async def test_a_row_that_a_till_keeps_locked_is_reported_until_it_is_sent(shop: Shop, monkeypatch):
    """A single lock is no problem, however long its row then waits for another reason."""
    row, read = shop.act("deactivate_food", food_id=1007), unfinished.claim
    with monkeypatch.context() as till:
        till.setattr(unfinished, "claim", lambda tx, ids, *rest: (read(tx, [], *rest)[0], set(ids)))
        await shop.drain()
        await asyncio.sleep(60)
        await shop.poll()
        assert open_codes(shop) == []
        for codes in ([], [("not_written", "")]):
            for _ in range(2):
                await asyncio.sleep(5)
                await shop.drain()
            await shop.poll()
            assert open_codes(shop) == codes
    await shop.drain()
    await shop.poll()
    assert (shop.row(row)["state"], open_codes(shop)) == ("done", [])


async def test_a_cancelled_order_that_a_till_keeps_locked_is_reported(shop: Shop, monkeypatch):
    order = await cancelled(shop)
    with monkeypatch.context() as till:
        till.setattr(intake, "lock", lambda *_: [])
        for codes in ([], [("not_written", "")]):
            await shop.poll()
            assert open_codes(shop) == [*codes, ("unanswered", order.key)]
    assert not order.acknowledged
    await shop.poll()
    assert (open_codes(shop), shop.order(order)["ended_by"]) == ([], "cancelled")


@pytest.mark.plays_daemon
@pytest.mark.parametrize("raises", [RAISES[0], LEFT_OUT, NO_SUCH_TABLE])
async def test_a_row_in_flight_at_a_crash_is_recovered_when_the_database_accepts_it(open_shop, raises: str):
    first = await open_shop()
    row, there = first.act("accept", await first.taken_in()), asyncio.Event()

    async def crash_here() -> None:
        there.set()
        await asyncio.Event().wait()

    first.line.when_leaving("accept", crash_here)
    await first.outbox.tick()
    await there.wait()
    first.refuse("UPDATE ON delivery_actions", raises)
    await first.crash()
    shop = await open_shop()
    with capture_logs() as lines:
        for _ in range(5):
            await shop.outbox.safe_cycle()
            await asyncio.sleep(2)
    assert told(lines, "action.database_refused", "outbox.recovered") == []  # reported at the start
    await shop.poll()
    assert (shop.row(row)["state"], open_codes(shop)) == ("sending", [("not_written", "")])
    shop.allow()
    wait_s = await shop.outbox.safe_cycle()
    await asyncio.sleep(60)
    assert wait_s < 60
    await shop.outbox.safe_cycle()
    await shop.poll()
    assert shop.end((await shop.verdict(row))["id"])[0] == "done"
    await shop.poll()
    assert (open_codes(shop), len(shop.calls("accept"))) == ([], 1)


@pytest.mark.plays_daemon
@pytest.mark.parametrize("end", ["a poll proves it", "a poll shows no effect", "it expires"])
async def test_a_lost_attempt_whose_end_is_refused_ends_with_the_next_write_to_its_row(open_shop, end: str):
    first = await open_shop()
    row, there = first.act("accept", order := await first.taken_in()), asyncio.Event()

    async def crash_here() -> None:
        there.set()
        await asyncio.Event().wait()

    first.world.faults.add(Fault.drop("accept"))
    await first.drain()
    await asyncio.sleep(120)
    await first.poll()  # shows no effect, so it is sent again
    first.line.when_leaving("accept", crash_here)
    await first.outbox.tick()
    await there.wait()
    first.refuse("UPDATE ON delivery_actions")
    await first.crash()
    shop = await open_shop()
    shop.allow()
    if end == "a poll proves it":
        shop.world.change_status(order.key, 2)
    elif end == "it expires":
        shop.line.cut.add("*")
        await asyncio.sleep(7200)
    if end != "it expires":
        await shop.poll()
    ended = await shop.verdict(row)
    attempts = shop.rows("SELECT attempt, outcome FROM delivery_action_attempts WHERE action_id = ?", row)
    assert [one["outcome"] for one in attempts][:2] == ["unknown", "unknown"]
    assert (ended["attempts"], None in [one["outcome"] for one in attempts]) == (len(attempts), False)


def line(quantity: int) -> dict[str, object]:
    option = {"id": 511, "name": "Ekstra Kaşar", "price": 35}
    group = {"id": 51, "name": "Ekstra", "type": "multi", "operation": "+", "options": option}
    return {"food_id": 1007, "name": "Lahmacun", "price": 90, "quantity": quantity, "option_groups": [group]}
