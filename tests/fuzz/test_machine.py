"""Any story of customers, a till, a service with bad hours and a daemon that crashes: what must hold holds throughout.

The steps are one after another, so what is between the sending of a request and its answer is reached by cutting a
step off in the middle: by a crash, or by a till that holds the file.
"""

import asyncio
import sqlite3
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy.exc import DBAPIError
from tests.fuzz.grammar import examples
from tests.fuzz.street import Street
from tests.jobs.shop import FINAL

from orderbridge.model import COMPLETE_WITH_PAYMENT
from orderbridge_sandbox import Fault, When
from orderbridge_sandbox.scenery import KADIKOY
from orderbridge_sandbox.state import Order
from orderbridge_sandbox.world import NotAllowed

pytestmark = pytest.mark.timeout(900)  # an evening is long on a busy machine

MOST_ORDERS = 4
MOST_REQUESTS = 4
UNTIL_ALL_ENDED_S = 3 * 3600.0  # a row is waiting for two hours at most
ORDER_ACTIONS = ["accept", "on_the_way", "complete", "cancel"]
OTHER_ACTIONS = {
    "open_restaurant": {"restaurant_id": KADIKOY},
    "close_restaurant": {"restaurant_id": KADIKOY},
    "activate_food": {"food_id": 1005},
    "deactivate_food": {"food_id": 1005},
}
WRONG: list[dict[str, object]] = [
    {"preparing_time": 0},
    {"preparing_time": "25"},
    {"reason_id": 9},
    {"payment_key": None},
    {"payment_key": "00000000-0000-4000-8000-000000000000"},
    {"valid_minutes": 0},
    {"account": "moda"},
    {"action": "fly"},
]
FAULTS: dict[str, Callable[..., Fault]] = {
    "lost on the way there": Fault.drop,
    "lost on the way back": lambda operation: Fault.drop(operation, when=When.AFTER),
    "never answered": Fault.hang,
    "done and never answered": lambda operation: Fault.hang(operation, when=When.AFTER),
    "answered late": lambda operation: Fault.delay(operation, 12.0),
    "500": lambda operation: Fault(operation=operation, status=500),
    "500 twice, and done": lambda operation: Fault(operation=operation, status=500, when=When.AFTER, times=2),
    "502": lambda operation: Fault.page(operation, 502),
    "429": Fault.too_many,
    "401": Fault.unauthorized,
    "401 twice": lambda operation: Fault.unauthorized(operation, times=2),
    "a page": lambda operation: Fault.page(operation, 200),
    "refused": lambda operation: Fault.error(operation, 404, "sipariş bulunamadı"),
    "all refuse to answer for a while": lambda operation: Fault(operation="*", status=503, times=5),
}
OPERATIONS = ["get_current", "acknowledge", "login", "get_restaurant_status", *ORDER_ACTIONS, *OTHER_ACTIONS]


class Evening(RuleBasedStateMachine):
    """The rules are what happens; `empty` is set by the test."""

    empty: Path

    def __init__(self) -> None:
        super().__init__()
        self.street = Street(self.empty)
        self.orders: list[Order] = []
        self.written: list[int] = []
        self.ends: dict[int, str] = {}

    # ---- customers and the service ----------------------------------------------------------------------------------

    @initialize()
    def first_order(self) -> None:
        self.orders.append(self.street.now(self.street.shop.place))

    @precondition(lambda self: len(self.orders) < MOST_ORDERS and KADIKOY in self.street.world.open_restaurants)
    @rule(courier=st.sampled_from(["restaurant", "restaurant", "come_get", "platform_courier", None]))
    def a_customer_orders(self, courier: str | None) -> None:
        self.orders.append(self.street.now(lambda: self.street.shop.place(courier_type=courier)))

    @rule(data=st.data(), status_id=st.sampled_from([1, 2, 5, 6, 16, 99]))
    def the_panel_changes_a_status(self, data: st.DataObject, status_id: int) -> None:
        order = data.draw(st.sampled_from(self.orders))
        self.street.now(lambda: self.street.world.change_status(order.key, status_id))

    @rule(data=st.data())
    def a_customer_cancels(self, data: st.DataObject) -> None:
        order = data.draw(st.sampled_from(self.orders))
        try:
            self.street.now(lambda: self.street.world.cancel_by_customer(order.key))
        except NotAllowed:
            return

    @rule(operation=st.sampled_from(OPERATIONS), what=st.sampled_from(sorted(FAULTS)))
    def the_next_answer_goes_wrong(self, operation: str, what: str) -> None:
        self.street.world.faults.add(FAULTS[what](operation))

    @rule()
    def the_line_is_cut_or_mended(self) -> None:
        self.street.shop.line.cut ^= {"*"}

    @rule()
    def all_tokens_end(self) -> None:
        self.street.now(self.street.world.end_tokens)

    # ---- the till ----------------------------------------------------------------------------------------------------

    def _write(self, action: str, order: Order | None, **columns: object) -> None:
        try:
            self.written.append(self.street.now(lambda: self.street.shop.act(action, order, **columns)))
        except sqlite3.IntegrityError:
            assert columns, "a good row is never refused"

    @rule(data=st.data(), action=st.sampled_from(ORDER_ACTIONS), valid=st.sampled_from([None, None, 1]))
    def the_till_asks_for_an_action(self, data: st.DataObject, action: str, valid: int | None) -> None:
        columns = {} if valid is None else {"valid_minutes": valid}
        self._write(action, data.draw(st.sampled_from(self.orders)), **columns)

    @rule(action=st.sampled_from(sorted(OTHER_ACTIONS)))
    def the_till_opens_or_closes(self, action: str) -> None:
        self._write(action, None, **OTHER_ACTIONS[action])

    @rule(data=st.data(), action=st.sampled_from(ORDER_ACTIONS), wrong=st.sampled_from(WRONG))
    def the_till_writes_a_wrong_row(self, data: st.DataObject, action: str, wrong: dict[str, object]) -> None:
        self._write(**({"action": action, "order": None, "payment_key": self.orders[0].key} | wrong))

    @precondition(lambda self: self.written)
    @rule(data=st.data())
    def the_till_withdraws_a_row(self, data: st.DataObject) -> None:
        row = data.draw(st.sampled_from(self.written))
        self.street.shop.till.execute("UPDATE delivery_actions SET withdraw = 1 WHERE id = ?", (row,))

    @rule(data=st.data())
    def the_till_takes_a_revision_over(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(self.orders)).key
        self.street.shop.till.execute(
            "UPDATE delivery_orders SET pos_revision = revision WHERE payment_key = ?", (key,)
        )

    # ---- the daemon --------------------------------------------------------------------------------------------------

    async def _poll(self) -> None:
        try:
            await self.street.shop.poll()
        except DBAPIError:  # the till holds the file
            await asyncio.sleep(1.0)

    async def _look(self) -> float:
        """One tick of the outbox as its loop makes it; seconds to the next."""
        self.street.shop.outbox.wake()
        return (await self.street.shop.outbox.safe_cycle()).again_in

    async def _work(self, seconds: float) -> None:
        """The daemon as it does for so long, polls and outbox side by side."""
        over = self.street.clock.monotonic() + seconds

        async def look() -> None:
            while self.street.clock.monotonic() < over:
                await self._look()
                if self.street.shop.outbox.is_busy():
                    await self.street.shop.outbox.quiet()
                else:
                    await asyncio.sleep(2.0)

        async def poll() -> None:
            while self.street.clock.monotonic() < over:
                await self._poll()

        await asyncio.gather(look(), poll())

    @rule()
    def a_poll(self) -> None:
        self.street.run(self._poll())

    @rule()
    def a_look_at_the_outbox(self) -> None:
        self.street.run(self.street.shop.drain())

    @rule(seconds=st.sampled_from([3.0, 65.0]))
    def the_daemon_works(self, seconds: float) -> None:
        self.street.run(self._work(seconds))

    @rule(seconds=st.sampled_from([1.0, 31.0, 700.0]))
    def time_passes(self, seconds: float) -> None:
        self.street.run(asyncio.sleep(seconds))

    @rule(at_poll=st.booleans(), steps=st.integers(0, 80))
    def the_daemon_crashes_at_work_and_starts_again(self, at_poll: bool, steps: int) -> None:
        """After so many steps of the event loop. A request may be on the wire, or answered and not yet written."""

        async def begin() -> asyncio.Task[None]:
            if at_poll:
                await asyncio.sleep(self.street.shop._polls_at["kadikoy"] - self.street.clock.monotonic())
            work = asyncio.create_task(self._work(40.0))
            for _ in range(steps):
                await asyncio.sleep(0)
            return work

        work = self.street.run(begin())
        self.street.crash()
        assert work.done()

    @rule(seconds=st.sampled_from([0.5, 4.0]))
    def the_till_holds_the_file_while_the_daemon_works(self, seconds: float) -> None:
        async def held() -> None:
            work = asyncio.create_task(self._work(seconds + 2.0))
            till = self.street.shop.till
            await asyncio.sleep(0)
            till.execute("BEGIN IMMEDIATE")
            await asyncio.sleep(seconds)
            till.execute("COMMIT")
            await work

        self.street.run(held())

    # ---- what must hold ----------------------------------------------------------------------------------------------

    def rows(self, sql: str) -> list[dict[str, Any]]:
        return self.street.shop.rows(sql)

    @invariant()
    def what_is_acknowledged_is_stored(self) -> None:
        stored = {row["payment_key"] for row in self.rows("SELECT payment_key FROM delivery_orders WHERE payload > ''")}
        assert {order.key for order in self.orders if order.acknowledgements} <= stored

    @invariant()
    def the_cooldown_is_kept(self) -> None:
        calls = self.street.world.calls("get_current")
        assert not [call for call in calls if call.http_status == 429 and not call.fault]

    @invariant()
    def rows_of_one_lane_go_one_after_another_by_their_ids(self) -> None:
        attempts = self.rows(
            "SELECT a.id, a.payment_key, a.restaurant_id, a.food_id, t.started_utc, t.finished_utc FROM delivery_actions a"
            " JOIN delivery_action_attempts t ON t.action_id = a.id ORDER BY t.rowid"  # many begin at one moment
        )
        last: dict[tuple[Any, ...], dict[str, Any]] = {}
        for attempt in attempts:
            lane = (attempt["payment_key"], attempt["restaurant_id"], attempt["food_id"])
            before = last.get(lane, attempt)
            assert before["id"] <= attempt["id"]
            if before is not attempt:
                assert before["finished_utc"], "sent while the one before is on the wire"
                assert before["finished_utc"] <= attempt["started_utc"]
            last[lane] = attempt

    @invariant()
    def nothing_is_sent_after_a_definite_answer_nor_more_than_four_times(self) -> None:
        assert not self.rows(
            "SELECT * FROM delivery_action_attempts t WHERE outcome IN ('ok', 'refused') AND EXISTS (SELECT 1 FROM"
            " delivery_action_attempts n WHERE n.action_id = t.action_id AND n.attempt > t.attempt)"
        )
        counted = "outcome IS NULL OR outcome NOT IN ('unauthorized', 'rate_limited', 'not_sent')"
        sent = f"SELECT action_id FROM delivery_action_attempts WHERE {counted} GROUP BY action_id HAVING count(*) > ?"
        assert not self.street.shop.rows(sent, MOST_REQUESTS)
        assert not self.rows("SELECT * FROM delivery_action_attempts WHERE error_code = 'internal_error'")

    @invariant()
    def no_row_disappears_and_no_end_is_taken_back(self) -> None:
        states = {row["id"]: row["state"] for row in self.rows("SELECT id, state FROM delivery_actions")}
        assert set(self.written) <= states.keys()
        assert all(states[row] == end for row, end in self.ends.items())
        self.ends = {row: state for row, state in states.items() if state in FINAL}

    def teardown(self) -> None:
        try:
            self.all_is_well_again()
        finally:
            self.street.close()

    def all_is_well_again(self) -> None:
        """Every row ends, with a reason, and every order that is active is stored and acknowledged."""
        self.street.world.faults.clear()
        self.street.shop.line.cut.clear()
        over = self.street.now(self.street.clock.monotonic) + UNTIL_ALL_ENDED_S
        unfinished = "SELECT * FROM delivery_actions WHERE finished_utc IS NULL"
        while self.street.now(self.street.clock.monotonic) < over:
            self.street.run(self._work(65.0))
            over_already = COMPLETE_WITH_PAYMENT  # it is delivered no more
            if not self.rows(unfinished) and all(o.acknowledged or o.status_id == over_already for o in self.orders):
                break
        self.no_row_disappears_and_no_end_is_taken_back()
        self.rows_of_one_lane_go_one_after_another_by_their_ids()
        for row in self.rows("SELECT * FROM delivery_actions"):
            assert row["state"] in FINAL, row
            assert datetime.fromisoformat(row["finished_utc"])
            assert row["known_by"] if row["state"] == "done" and row["error_code"] != "already" else row["error_text"]
        for order in self.orders:
            if order.status_id != COMPLETE_WITH_PAYMENT:
                stored = self.street.shop.order(order)
                assert order.acknowledged
                assert stored["status_id"] == order.status_id


def test_any_evening_ends_well(empty_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Evening, "empty", empty_file, raising=False)
    run_state_machine_as_test(Evening, settings=examples(25, stateful_step_count=30))
