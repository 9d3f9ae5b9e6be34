"""Many rows: those that may be sent are sent, none takes another's slot, and changes of the table are seen."""

import asyncio

import pytest
from structlog.testing import capture_logs
from tests.jobs.shop import Shop

from orderbridge.jobs import outcome_writer
from orderbridge.jobs.outbox_reader import FLOOR_S
from orderbridge.model import Action
from orderbridge.store.unfinished import PAGE

pytestmark = pytest.mark.plays_daemon

FOODS = "INSERT INTO delivery_actions (action, food_id, account) VALUES ('deactivate_food', ?, ?)"


def insert_foods(shop: Shop, number: int, account: str = "kadikoy", *, first: int = 1) -> None:
    shop.till.execute("BEGIN IMMEDIATE")
    shop.till.executemany(FOODS, [(food, account) for food in range(first, first + number)])
    shop.till.execute("COMMIT")


async def cycle(shop: Shop, *, woken: bool = True) -> None:
    """Run the woken outbox until nothing is left to read. Each answer arrives before the next page is read."""
    if woken:
        shop.outbox.wake()
    while await shop.outbox.cycle() == 0:
        await shop.outbox.quiet()
    await shop.outbox.quiet()


async def test_rows_of_an_account_with_a_refused_login_block_no_other(open_shop):
    shop = await open_shop("kadikoy", "besiktas")
    order = await shop.taken_in()
    shop.world.refuse_account("besiktas")
    insert_foods(shop, 2 * PAGE + 100, "besiktas")
    stuck = shop.act("deactivate_food", food_id=1, account="besiktas", valid_minutes=1)
    accept = await shop.acted("accept", order)
    assert (shop.row(accept)["state"], shop.row(stuck)["state"]) == ("done", "pending")
    await asyncio.sleep(61)
    await shop.outbox.tick()
    assert shop.row(stuck)["state"] == "expired"


async def test_order_actions_go_before_foods_and_restaurants(open_shop):
    shop = await open_shop(actions={"max_in_flight": 2})
    orders = [await shop.taken_in(status_id=status) for status in (1, 16)]
    insert_foods(shop, 30)
    complete, accept = shop.act("complete", orders[1]), shop.act("accept", orders[0])
    await shop.outbox.tick()
    await shop.outbox.quiet()
    assert (shop.row(accept)["state"], shop.row(complete)["state"]) == ("done", "done")
    assert shop.calls("deactivate_food") == []


@pytest.mark.parametrize("down", ["line", "login"])
async def test_an_outage_is_logged_at_its_beginning_and_its_end(shop: Shop, down: str):
    rows = [shop.act("complete", await shop.taken_in(status_id=16)) for _ in range(8)]
    if down == "line":
        shop.line.cut = {"*"}
    else:
        shop.world.end_tokens("kadikoy")
        shop.world.refuse_account("kadikoy")
    with capture_logs() as logs:
        for _ in range(90):  # three minutes
            await shop.drain()
            await asyncio.sleep(2.0)
        told = [line for line in logs if line["event"].startswith(("account.rows", "action."))]
        (line,) = (line for line in told if line["log_level"] != "debug")
        assert (line["event"], line["rows"], line["log_level"]) == ("account.rows_wait", 8, "warning")
        if down == "login":  # which this test does not repair here
            return
        logs.clear()
        shop.line.cut = set()
        for row in rows:
            assert (await shop.verdict(row))["state"] == "done"
    assert [line["event"] for line in logs if line["event"].startswith("account.rows")] == ["account.rows_go"]


async def test_a_row_that_is_committed_late_is_seen_at_the_next_reading_of_all(open_shop):
    shop = await open_shop("kadikoy", "besiktas")
    order = await shop.taken_in()
    shop.world.refuse_account("besiktas")
    shop.till.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('delivery_actions', 100)")
    insert_foods(shop, 1500, "besiktas")
    await cycle(shop)
    late = shop.act("accept", order, id=7)
    await asyncio.sleep(FLOOR_S)
    await cycle(shop, woken=False)
    assert shop.row(late)["state"] == "done"


@pytest.mark.parametrize("beside", [0, 300])
async def test_a_withdrawn_row_ends_at_once_however_many_wait(open_shop, beside: int):
    shop = await open_shop("kadikoy", "besiktas")
    shop.world.refuse_account("besiktas")
    row = shop.act("deactivate_food", food_id=999, account="besiktas")
    insert_foods(shop, beside, "besiktas")
    await cycle(shop)
    shop.till.execute("UPDATE delivery_actions SET withdraw = 1 WHERE id = ?", (row,))
    await cycle(shop)
    assert shop.row(row)["state"] == "withdrawn"


@pytest.mark.parametrize("from_the_start", [True, False])
async def test_no_row_overtakes_an_older_one_of_its_lane_that_is_not_read_yet(open_shop, from_the_start):
    shop = await open_shop("kadikoy", "besiktas")
    order, other = await shop.taken_in(status_id=2), await shop.taken_in()
    shop.world.refuse_account("besiktas")
    if not from_the_start:
        await cycle(shop)
    insert_foods(shop, 1100, "besiktas")
    older = [shop.act("deactivate_food", food_id=1001, account="kadikoy")]
    older += [shop.act("on_the_way", order), shop.act("accept", other)]
    insert_foods(shop, 1100, "besiktas", first=5000)
    newer = [shop.act("activate_food", food_id=1001, account="kadikoy")]
    newer += [shop.act("complete", order), shop.act("cancel", other)]
    await cycle(shop)
    await cycle(shop)
    assert [shop.row(row)["state"] for row in older] == ["superseded", "done", "superseded"]
    assert [shop.row(row)["state"] for row in newer] == ["done"] * 3
    assert (shop.operations("on_the_way", "complete"), shop.calls("accept")) == (["on_the_way", "complete"], [])


async def test_a_claim_whose_commit_was_reported_as_failed_is_found(shop: Shop):
    row = shop.act("accept", await shop.taken_in())
    await shop.outbox.reader.everything()
    shop.till.execute("UPDATE delivery_actions SET state = 'sending'")
    attempt = "INSERT INTO delivery_action_attempts (action_id, attempt, started_utc) VALUES (?, 1, '')"
    shop.till.execute(attempt, (row,))
    for _ in range(60):
        shop.outbox.wake()
        await shop.outbox.safe_cycle()
        await asyncio.sleep(FLOOR_S)
    assert shop.row(row)["state"] == "done"


async def test_a_row_that_crashes_the_program_is_tried_again_only_after_a_pause(shop, monkeypatch):
    other = await shop.taken_in()
    request, stumbles = outcome_writer.next_request, 0

    def stumble(action, history):
        nonlocal stumbles
        if action == Action.ACCEPT:
            return request(action, history)
        if (stumbles := stumbles + 1) > 100:  # it tries without a pause
            shop.outbox.stop()
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(outcome_writer, "next_request", stumble)
    shop.act("deactivate_food", food_id=1001)
    accept = shop.act("accept", other)
    with capture_logs():
        at_work = asyncio.create_task(shop.outbox.run())
        await asyncio.sleep(5.0)
        shop.outbox.stop()
        await at_work
    assert 1 < stumbles < 40
    assert shop.row(accept)["state"] == "done"
