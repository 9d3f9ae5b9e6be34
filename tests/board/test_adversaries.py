"""Two tablets at once, a tablet that was away, a daemon that ends during a tap: no row is doubled or lost."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests import databases
from tests.board.branch import Branch, at_work, settings_of, till_on
from tests.board.tablets import Tablet
from tests.test_daemon import Till, certificates, sandbox, until, world

from orderbridge_board import cards, pages
from orderbridge_sandbox import Sandbox
from orderbridge_sandbox.state import Order

__all__ = ["certificates", "sandbox", "world"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

FINAL = ("done", "refused", "failed", "expired", "superseded", "withdrawn")
ROWS = "SELECT * FROM delivery_actions WHERE payment_key = ? ORDER BY id"


@pytest.fixture(params=databases.KINDS)
def till(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Till]:
    with till_on(request.param, tmp_path / "pos.db") as till:
        yield till


@pytest.fixture
async def branch(sandbox: Sandbox, till: Till) -> AsyncIterator[Branch]:
    branch = Branch(settings_of(sandbox, till, "till"), sandbox, till)
    async with at_work(branch):
        yield branch


@pytest.fixture(autouse=True)
def hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cards, "HOLD", timedelta(0))


async def card(tablet: Tablet, order: Order) -> dict[str, Any]:
    shown = (await tablet.get("/board/state")).data["orders"]
    return next(one for one in shown if one["key"] == order.key)


def tap(card: dict[str, Any], action: str, **more: Any) -> dict[str, Any]:
    """What the page sends for a button of this card."""
    tries = next((one["tries"] for one in card["actions"] if one["action"] == action), 0)
    return {"action": action, "payment_key": card["key"], "revision": card["revision"], "tries": tries} | more


async def rows(branch: Branch, order: Order) -> list[dict[str, Any]]:
    """The order's rows, once all have their end."""
    found: list[dict[str, Any]] = []

    def are_over() -> bool:
        found[:] = branch.till.rows(ROWS, order.key)
        return all(row["state"] in FINAL for row in found)

    await until(are_over)
    return found


async def brought_to(branch: Branch, tablet: Tablet, action: str) -> tuple[Order, dict[str, Any]]:
    """An order whose next button is this one, and its card."""
    order = await branch.order()
    for step, more in (("accept", {"preparing_time": 20}), ("on_the_way", {}), ("complete", {})):
        shown = await card(tablet, order)
        if step == action:
            return order, shown
        assert (await tablet.post("act", tap(shown, step, **more))).status == 200
        await rows(branch, order)
    raise AssertionError(action)


# ---- two tablets ---------------------------------------------------------------------------------------------------------


async def test_what_two_tablets_put_away_and_bring_back_at_once_is_one_or_the_other(branch: Branch):
    tablets = [await branch.paired(name) for name in ("Tezgâh", "Mutfak")]
    _, shown = await brought_to(branch, tablets[0], "on_the_way")
    away = {"subjects": [shown["handed"]]}
    for _ in range(5):
        answers = await asyncio.gather(
            *(one.post("seen", away) for one in tablets),
            *(one.post("back", {"subject": shown["handed"]}) for one in tablets),
        )
        assert {answer.status for answer in answers} == {200}
        states = [(await one.get("/board/state")).data["orders"] for one in tablets]
        listed = [(await one.get("/board/recall")).data["orders"] for one in tablets]
        assert states[0] == states[1]
        assert listed[0] == listed[1]
        assert len(states[0]) + len(listed[0]) == 1  # never nowhere


# ---- a daemon that ends --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ends", ["before the row", "after the row"])
async def test_a_tap_during_the_daemons_end_has_no_success_and_its_repetition_no_second_row(branch, monkeypatch, ends):
    tablet = await branch.paired("Tezgâh")
    order, shown = await brought_to(branch, tablet, "on_the_way")
    values = tap(shown, "on_the_way")
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
        raise AssertionError(await tapped)  # an answer would be a success that is none
    await branch.stop()
    await branch.start()
    answer = await tablet.post("act", values)
    assert answer.status == 200
    made = [row for row in await rows(branch, order) if row["action"] == "on_the_way"]
    assert [(row["id"], row["state"]) for row in made] == [(answer.data["row"]["id"], "done")]
    assert len(branch.world.calls("on_the_way")) == 1


async def test_what_was_put_away_and_what_was_finished_is_listed_by_the_next_daemon_and_comes_back(branch: Branch):
    tablet = await branch.paired("Tezgâh")
    finished, shown = await brought_to(branch, tablet, "complete")
    await tablet.post("act", tap(shown, "complete"))
    await rows(branch, finished)
    away, shown = await brought_to(branch, tablet, "on_the_way")
    assert (await tablet.post("seen", {"subjects": [shown["handed"]]})).status == 200
    before = (await tablet.get("/board/recall")).data["orders"]
    assert {(one["key"], one["how"]) for one in before} == {(away.key, "handed"), (finished.key, "completed")}
    await branch.stop()
    await branch.start()
    assert (await tablet.get("/board/recall")).data["orders"] == before
    assert (await tablet.get("/board/state")).data["orders"] == []
    assert (await tablet.post("back", {"subject": shown["handed"]})).status == 200
    assert (await card(tablet, away))["handed"] == shown["handed"]
    assert [one["key"] for one in (await tablet.get("/board/recall")).data["orders"]] == [finished.key]
