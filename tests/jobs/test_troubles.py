"""Failures that once harmed more than the order, row or account concerned."""

import asyncio

import pytest
from structlog.testing import capture_logs
from tests.jobs.shop import Shop, database_error, listing, raising

from orderbridge.errors import Message, Over
from orderbridge.jobs.outbox_reader import FLOOR_S
from orderbridge.jobs.postponed import STUCK_S
from orderbridge.store import actions, orders
from orderbridge.texts import sentence
from orderbridge_sandbox import Fault


async def test_a_login_that_a_row_found_refused_is_in_the_database_with_the_next_poll(shop: Shop):
    shop.world.refuse_account("kadikoy")
    await shop.acted("deactivate_food", food_id=1001)
    assert (await shop.tick()).again_in > 0
    assert (len(shop.calls("login")), shop.calls("get_current")) == (1, [])
    assert shop.one("SELECT state FROM delivery_accounts")["state"] == "login_refused"


async def test_an_acknowledgement_in_flight_is_awaited_when_the_intake_fails(shop, monkeypatch):
    known = await shop.taken_in()
    new = shop.place()
    shop.world.change_status(known.key, 2)
    shop.world.faults.add(Fault.delay("acknowledge", 3))
    monkeypatch.setattr(orders, "update_delivered", raising(RuntimeError("a fault of ours")))
    with pytest.raises(RuntimeError):
        await shop.poll()
    assert (shop.order(new)["acknowledged_status_id"], shop.lanes.taken()) == (1, frozenset())


async def test_an_order_stored_by_another_account_meanwhile_is_not_quarantined(open_shop, monkeypatch):
    shop = await open_shop("kadikoy", "besiktas")
    order = shop.place()
    await shop.poll("kadikoy")
    shop.world.faults.add(listing(order.document, account="besiktas"))
    true, reads = orders.stored, 0

    def too_early(connection, keys):
        nonlocal reads
        wanted = list(keys)
        reads += bool(wanted)
        return {} if wanted and reads == 1 else true(connection, wanted)

    monkeypatch.setattr(orders, "stored", too_early)
    await shop.poll("besiktas")
    assert (shop.count("delivery_orders"), shop.count("delivery_quarantine")) == (1, 0)
    assert [call.account for call in shop.calls("acknowledge")] == ["kadikoy"]


async def test_a_lost_token_row_loses_no_outcome(shop: Shop, monkeypatch: pytest.MonkeyPatch):
    row = shop.act("accept", await shop.taken_in())
    monkeypatch.setattr(shop.account._vault, "save", raising(database_error()))
    shop.world.end_tokens("kadikoy")
    await shop.drain()
    assert shop.end(row) == ("done", None, "answer")


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """While it is not empty, no OK can be noted."""
    held, true = ["by a till"], orders.mark_acknowledged

    def mark(*arguments):
        if held:
            raise database_error()
        true(*arguments)

    monkeypatch.setattr(orders, "mark_acknowledged", mark)
    return held


async def test_all_oks_that_could_not_be_noted_at_several_polls_are_noted(shop: Shop, held: list[str]):
    placed = []
    with capture_logs() as logs:
        for _ in range(2):
            placed.append(shop.place())
            await shop.poll()
    assert "database.mark_failed" in [line["event"] for line in logs]
    assert [shop.order(one)["acknowledged_status_id"] for one in placed] == [None, None]
    held.clear()
    assert (await shop.poll()).delivered == 0
    assert [shop.order(one)["acknowledged_status_id"] for one in placed] == [1, 1]


async def test_an_ok_noted_late_does_not_replace_a_newer_one(shop: Shop, held: list[str]):
    order = shop.place()
    await shop.poll()
    shop.world.change_status(order.key, 2)
    shop.line.when_leaving("acknowledge", held.clear)  # by then the first one was tried again
    assert ((await shop.poll()).acknowledged, shop.order(order)["acknowledged_status_id"]) == (1, 2)
    await shop.poll()
    assert shop.order(order)["acknowledged_status_id"] == 2


async def test_a_refused_note_of_an_ok_harms_no_other(shop: Shop):
    shop.refuse("UPDATE OF acknowledged_utc ON delivery_orders", when="NEW.pos_reference = 'no'")
    placed = [shop.place() for _ in range(2)]

    mark = f"UPDATE delivery_orders SET pos_reference = 'no' WHERE payment_key = '{placed[0].key}'"
    shop.line.when_leaving("acknowledge", lambda: shop.till.execute(mark))
    with capture_logs() as logs:
        for _ in range(3):
            await shop.poll()
    assert [shop.order(order)["acknowledged_status_id"] for order in placed] == [None, 1]
    assert [line["event"] for line in logs if line["log_level"] == "error"] == ["order.database_refused"]


async def test_a_lock_of_minutes_is_reported_once_with_its_end(shop: Shop):
    rows = [shop.act("accept", await shop.taken_in()) for _ in range(2)]
    with capture_logs() as logs:
        shop.till.execute("BEGIN IMMEDIATE")
        for _ in range(20):
            await shop.outbox.safe_cycle()
            await asyncio.sleep(FLOOR_S)
        shop.till.execute("ROLLBACK")
        for row in rows:
            assert (await shop.verdict(row))["state"] == "done"
    alarms = [line for line in logs if line["log_level"] in {"warning", "error"}]
    assert [(line["event"], line["log_level"]) for line in alarms] == [("database.failed", "error")]
    assert "Another program holds the database" in sentence(alarms[0]["remedy"])
    assert [line["failures"] for line in logs if line["event"] == "database.recovered"] == [20]


async def test_trouble_that_comes_and_goes_is_logged_once_a_minute(shop: Shop):
    """One table refuses all writes: every second unit of work fails, and the others succeed."""
    trouble = shop.database.trouble
    with capture_logs() as logs:
        for _ in range(70):
            trouble.failed("write", "InsufficientPrivilege", Message("database.denied"))
            trouble.worked("write")
            await asyncio.sleep(1)
    said = [(line["event"], line.get("failures")) for line in logs]
    first = [("database.failed", None), ("database.recovered", 1)]
    assert said == [*first, ("database.failed", None), ("database.recovered", 60)]


async def test_writes_to_a_read_only_database_are_tried_with_pauses(shop: Shop, monkeypatch: pytest.MonkeyPatch):
    shop.act("accept", await shop.taken_in())
    tries = 0

    def full(*_):
        nonlocal tries
        tries += 1
        if tries > 1000:
            raise Over("it tries without a pause")
        raise database_error("database or disk is full")

    monkeypatch.setattr(actions, "start", full)
    work = asyncio.create_task(shop.outbox.run())
    await asyncio.sleep(10)
    assert not work.done()
    assert 2 <= tries <= 60  # at most six in a second
    work.cancel()


async def test_verdicts_blocked_by_a_till_are_retried_together(shop: Shop):
    rows = [shop.act("accept", await shop.taken_in()) for _ in range(3)]
    await shop.outbox.tick()
    shop.till.execute("BEGIN IMMEDIATE")
    await shop.outbox.quiet()
    await asyncio.sleep(4.5 * STUCK_S)
    assert shop.database.trouble._failures == 5, "each of the three alone would wait as long again"
    shop.till.execute("ROLLBACK")
    await shop.drain()
    await asyncio.sleep(STUCK_S)
    await shop.drain()
    assert {shop.row(row)["state"] for row in rows} == {"done"}
    for row in rows:
        await shop.verdict(row)
    assert ({shop.end(row) for row in rows}, len(shop.calls("accept"))) == ({("done", None, "answer")}, 3)
