"""Closures with an end: the opposite action is written at the promised time, once, and never after a newer row."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.jobs.shop import START, Shop, roster_of, text_of

from orderbridge.jobs.audit import audit
from orderbridge.jobs.closures import Closures
from orderbridge.jobs.context import Context
from orderbridge.jobs.restore_check import RestoreCheck
from orderbridge.store import closures, high_water
from orderbridge_sandbox.scenery import KADIKOY

pytestmark = pytest.mark.plays_daemon

MINUTE_S = 60.0
STEP_S = 120.0  # the daemon runs the job every five seconds; fewer runs keep the test fast
FOOD = 1001


class Daemon:
    def __init__(self, shop: Shop) -> None:
        self.shop = shop
        context = Context.of(shop.settings, shop.database, shop.clock)
        self.roster = roster_of(shop.accounts)
        self.restore_check = RestoreCheck(context, self.roster.known)
        self.closures = Closures(context, self.roster, self.restore_check)

    async def run(self, minutes: float) -> None:
        over = self.shop.clock.monotonic() + minutes * MINUTE_S
        while self.shop.clock.monotonic() < over:
            await self.shop.drain()
            await self.closures.follow()
            await asyncio.sleep(min(STEP_S, over - self.shop.clock.monotonic()))
        await self.closures.follow()
        await self.shop.drain()

    async def close(self, minutes: int | None = 30, action: str = "close_restaurant", **columns: object) -> int:
        row = self.asked(action, valid_until_minutes=minutes, **columns)
        await self.shop.drain()
        return row

    def asked(self, action: str, **columns: object) -> int:
        """A row about the restaurant or, without a restaurant in its name, the food."""
        subject = {"restaurant_id": KADIKOY} if action.endswith("restaurant") else {"food_id": FOOD}
        return self.shop.act(action, **subject | columns)

    def written(self) -> list[dict[str, Any]]:
        return self.shop.rows("SELECT * FROM delivery_actions WHERE created_by = 'orderbridge' ORDER BY id")

    def until(self, row: int) -> str | None:
        return self.shop.row(row)["until_utc"]  # type: ignore[no-any-return]

    def closures_shown(self) -> list[tuple[int, str | None]]:
        shown = self.shop.rows("SELECT * FROM delivery_closures ORDER BY action_id")
        return [(row["action_id"], row["until_utc"]) for row in shown]


@pytest.fixture
async def daemon(shop: Shop) -> Daemon:
    await shop.poll()
    return Daemon(shop)


def in_minutes(daemon: Daemon, minutes: float) -> str:
    return text_of(daemon.shop.clock.now() + timedelta(minutes=minutes))


def is_open(daemon: Daemon) -> bool:
    return KADIKOY in daemon.shop.world.open_restaurants


async def test_a_closure_ends_at_the_promised_time_and_once(daemon: Daemon):
    until = in_minutes(daemon, 30)
    row = await daemon.close()
    assert (daemon.until(row), daemon.closures_shown(), is_open(daemon)) == (until, [(row, until)], False)
    await daemon.run(29.8)
    assert daemon.written() == []
    await daemon.run(0.4)
    (opened,) = daemon.written()
    named = tuple(opened[name] for name in ("action", "restaurant_id", "request_id", "state"))
    assert named == ("open_restaurant", KADIKOY, f"until:{row}", "done")
    assert until <= opened["created_utc"] <= in_minutes(daemon, 0)
    assert (daemon.until(row), daemon.closures_shown(), is_open(daemon)) == (None, [], True)
    await daemon.run(120)
    assert len(daemon.written()) == 1
    checked = await daemon.shop.database.read(lambda tx: audit(tx, daemon.shop.settings, START))
    assert (checked.actions, checked.findings) == (2, [])


@pytest.mark.parametrize("first", ["another daemon", "withdraw"])
async def test_an_outdated_decision_is_not_written(daemon: Daemon, first: str):
    shop = daemon.shop
    row = await daemon.close()
    await asyncio.sleep(31 * MINUTE_S)
    plans = await shop.database.read(closures.planned)
    if first == "withdraw":
        shop.till.execute("UPDATE delivery_actions SET withdraw = 1 WHERE id = ?", (row,))
    else:
        await Daemon(shop).closures.follow()
    before = len(daemon.written())
    assert await shop.database.run(lambda tx: daemon.closures.carry_out(tx, plans)) == []
    assert len(daemon.written()) == before


async def test_only_the_lead_ends_closures(shop: Shop):
    daemon = Daemon(shop)
    await daemon.close()
    await asyncio.sleep(31 * MINUTE_S)
    daemon.roster.owns = lambda _: False  # type: ignore[method-assign]
    await daemon.closures.follow()
    assert daemon.written() == []


@pytest.mark.parametrize("days", [-400, -1, 1, 400])
async def test_a_clock_that_is_set_ends_a_closure_once_and_never_later_than_its_minutes(daemon: Daemon, days: int):
    row = await daemon.close()
    await daemon.run(10)
    daemon.shop.clock.ahead = timedelta(days=days)
    await daemon.run(0.2)
    if days < 0:
        assert (daemon.written(), daemon.until(row)) == ([], daemon.until(row))
        assert in_minutes(daemon, 29.5) <= str(daemon.until(row)) <= in_minutes(daemon, 30)
        await daemon.run(30.2)
    assert [one["state"] for one in daemon.written()] == ["done"]
    daemon.shop.clock.ahead = timedelta()
    await daemon.run(60)
    assert len(daemon.written()) == 1


@pytest.mark.parametrize("refusal", ["RAISE(IGNORE)", "RAISE(ABORT, 'no')"])
async def test_a_trigger_of_a_pos_harms_only_its_own_closure_and_is_reported(daemon: Daemon, refusal: str):
    stuck = await daemon.close()
    await daemon.close(30, "deactivate_food")
    daemon.shop.refuse("INSERT ON delivery_actions", refusal, when="NEW.action = 'open_restaurant'")
    with capture_logs() as lines:
        await daemon.run(32)
    assert [one["action"] for one in daemon.written()] == ["activate_food"]
    assert daemon.until(stuck) is not None and daemon.closures.refused == {stuck}
    assert [line["id"] for line in lines if line["event"] == "action.database_refused"] == [stuck]
    daemon.shop.allow()
    await daemon.run(1)
    assert [one["action"] for one in daemon.written()] == ["activate_food", "open_restaurant"]
    assert not daemon.closures.refused


async def test_an_older_copy_ends_nothing_before_it_is_confirmed(shop: Shop, restore):
    daemon = Daemon(shop)
    await daemon.restore_check.start()
    row = await daemon.close()
    await daemon.restore_check.check()
    shop.back_up()
    await daemon.run(31)
    await daemon.close(None)  # and then a person closes for good, which the copy does not know
    await daemon.restore_check.check()
    again = Daemon(await restore(shop))
    await again.restore_check.start()
    await again.run(60)
    assert again.written() == []
    again.shop.database.write_now(high_water.settle)
    await again.run(1)
    assert [one["request_id"] for one in again.written()] == [f"until:{row}"]


async def test_an_older_copy_is_detected_before_a_closure_ends(shop: Shop):
    """On a server the tables change under a daemon that runs."""
    daemon = Daemon(shop)
    await daemon.restore_check.start()
    await daemon.close()
    for _ in range(3):
        await daemon.restore_check.check()
    await asyncio.sleep(31 * MINUTE_S)
    shop.till.execute("UPDATE delivery_books SET generation = 1")
    await daemon.closures.follow()
    assert daemon.written() == []
    assert shop.one("SELECT older_since_utc FROM delivery_books")["older_since_utc"]
