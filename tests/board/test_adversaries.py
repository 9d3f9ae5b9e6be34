"""A daemon that ends during a tap: no row is doubled or lost."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from tests.board.branch import Branch, at_work, settings_of
from tests.board.tablets import Tablet
from tests.test_daemon import Till, certificates, sandbox, till, until, world

from orderbridge_board import cards, pages
from orderbridge_sandbox import Sandbox
from orderbridge_sandbox.state import Order

__all__ = ["certificates", "sandbox", "till", "world"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

FINAL = ("done", "refused", "failed", "expired", "superseded", "withdrawn")
ROWS = "SELECT * FROM delivery_actions WHERE payment_key = ? ORDER BY id"


@pytest.fixture
async def branch(sandbox: Sandbox, till: Till) -> AsyncIterator[Branch]:
    branch = Branch(settings_of(sandbox, till, "till"), sandbox, till)
    async with at_work(branch):
        yield branch


@pytest.fixture(autouse=True)
def hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cards, "HOLD", timedelta(0))


async def tap(tablet: Tablet, action: str, **more: Any) -> dict[str, Any]:
    """What the page sends for a button of its only card."""
    (card,) = (await tablet.get("/board/state")).data["orders"]
    tries = next((one["tries"] for one in card["actions"] if one["action"] == action), 0)
    return {"action": action, "payment_key": card["key"], "revision": card["revision"], "tries": tries} | more


async def rows(branch: Branch, order: Order) -> list[dict[str, Any]]:
    """The order's rows, once all have ended."""
    await until(lambda: all(row["state"] in FINAL for row in branch.till.rows(ROWS, order.key)))
    return branch.till.rows(ROWS, order.key)


@pytest.mark.parametrize("ends", ["before the row", "after the row"])
async def test_a_tap_during_the_daemons_stop_fails_and_its_repetition_makes_one_row(branch, monkeypatch, ends):
    tablet = await branch.paired("Tezgâh")
    order = await branch.order()
    assert (await tablet.post("act", await tap(tablet, "accept", preparing_time=20))).status == 200
    await rows(branch, order)
    values = await tap(tablet, "on_the_way")
    database, run = branch.daemon.database, branch.daemon.database.run
    came = asyncio.Event()

    async def cut(work: Any, **options: Any) -> Any:
        if (work.__module__, options) != (pages.__name__, {"urgent": True}):  # not the tap's
            return await run(work, **options)
        if ends == "after the row":
            await run(work, **options)
        came.set()
        return await asyncio.Event().wait()

    monkeypatch.setattr(database, "run", cut)
    tapped = asyncio.create_task(tablet.post("act", values))
    await came.wait()
    monkeypatch.undo()
    monkeypatch.setattr(cards, "HOLD", timedelta(0))
    for connection in list(branch.service._listening._server.opened):
        connection.transport.abort()
    with contextlib.suppress(ConnectionError, IndexError, ValueError):
        raise AssertionError(await tapped)  # an answer would claim a success
    await branch.stop()
    await branch.start()
    answer = await tablet.post("act", values)
    assert answer.status == 200
    made = [row for row in await rows(branch, order) if row["action"] == "on_the_way"]
    assert [(row["id"], row["state"]) for row in made] == [(answer.data["row"]["id"], "done")]
    assert len(branch.world.calls("on_the_way")) == 1
