"""Scripted corners: situations that chance rarely brings, each played within some simulated minutes.

A seed chooses its corner by its number, and all latencies.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from tests.sim.plan import MINUTE, Span

from orderbridge_sandbox.scenery import BESIKTAS, KADIKOY

if TYPE_CHECKING:
    from tests.sim.line import Call
    from tests.sim.simulation import Sim

LOOK_S = 0.1
PATIENCE_S = 200.0
CONFIRMED, CANCELED = 2, 6
REFUSING = Span(5.0, 200.0, "new_orders"), Span(400.0, 460.0, "orders")


class Script:
    """What a corner can do and wait for."""

    def __init__(self, sim: "Sim") -> None:
        self._sim = sim
        self._faults: dict[str, deque[str]] = defaultdict(deque)  # operation: what its next requests meet
        self._slow_list = 0.0
        self._slow_unit: tuple[str, float, Callable[[], None]] | None = None

    async def order(self) -> str:
        return (await self.orders(1))[0]

    async def orders(self, count: int, scheduled: str = "") -> list[str]:
        """This number of customers order at one moment. Returns the orders' keys once all are acknowledged."""
        keys = self.place(count, scheduled)
        for key in keys:
            await self.acknowledged(key)
        return keys

    def place(self, count: int = 1, scheduled: str = "", **more: str) -> list[str]:
        document = {"scheduled_date": scheduled, "courier_type": "restaurant"} | more
        orders = [self._sim.world.place_order(restaurant_id=KADIKOY, document=document) for _ in range(count)]
        for order in orders:
            self._sim.trace.note("customer", "orders", key=order.key, number=order.number)
            self._sim.orders_at[order.key] = self._sim.now()
        return [order.key for order in orders]

    def act(self, action: str, **columns: object) -> int:
        """The till writes a row. Returns its id."""
        return self._sim.till.insert({"action": action} | columns)

    async def accepted(self, key: str) -> str:
        """The till accepts the order. Returns its key once the accept has ended."""
        await self.ended(self.accept(key))
        return key

    async def on_its_way(self) -> str:
        """A customer orders. Returns the order's key once its accept and its on_the_way have ended."""
        key = await self.accepted(await self.order())
        await self.ended(self.act("on_the_way", payment_key=key))
        return key

    def accept(self, key: str, **columns: object) -> int:
        return self.act("accept", payment_key=key, preparing_time=20, **columns)

    def hold_file(self) -> None:
        self._sim.till.lock(8.0)

    def withdraw(self, row: int) -> None:
        self._sim.till.withdraw("id = :id", {"id": row})

    def retry(self, row: int) -> None:
        self._sim.technician.retry(row)

    def panel(self, key: str, *statuses: int) -> None:
        for status in statuses:
            self._sim.world.change_status(key, status)
            self._sim.trace.note("panel", "changes", key=key, status=status)

    def meets(self, operation: str, *faults: str) -> None:
        self._faults[operation].extend(faults)

    def next_list_takes(self, seconds: float) -> None:
        self._slow_list = seconds

    def within(self, unit: str, seconds: float, act: Callable[[], None]) -> None:
        """The next transaction of that name begins late, and another one acts in between."""
        self._slow_unit = unit, seconds, act

    def hide_key(self, key: str, *, hidden: bool) -> None:
        """Lists show the order's document without its key, or with it again."""
        order = self._sim.world.orders[key]
        order.placed = order.placed | {"payment_key": None if hidden else key}
        self._sim.trace.note("panel", "hides" if hidden else "shows", key=key)

    def crash_at(self, point: str, down: float) -> None:
        self._sim.crash_next_at(point, down)

    async def until(self, is_so: Callable[[], bool]) -> None:
        began = self._sim.now()
        while not is_so():
            assert self._sim.now() < began + PATIENCE_S, "what the corner waits for does not come"
            await asyncio.sleep(LOOK_S)

    async def at(self, second: float) -> None:
        assert self._sim.now() < second, "the corner is late"
        await asyncio.sleep(second - self._sim.now())

    async def acknowledged(self, key: str) -> None:
        """Wait until the order is acknowledged and nothing is on the wire."""
        order = self._sim.world.orders[key]
        await self.until(lambda: order.acknowledged and all(call.ended for call in self._sim.calls))

    async def rest(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def listed(self, count: int = 1) -> float:
        """Wait for this number of lists. Returns the second of the last one."""

        def lists() -> int:
            return sum(call.operation == "get_current" and bool(call.ended) for call in self._sim.calls)

        for _ in range(count):
            known = lists()
            await self.until(lambda known=known: lists() > known)
        return self._sim.now()

    async def answered(self, operation: str) -> None:
        """Wait until the last request of an operation has ended."""
        await self.until(lambda: any(call.operation == operation for call in self._sim.calls))
        await self.until(lambda: all(call.ended for call in self._sim.calls if call.operation == operation))

    async def ended(self, *rows: int) -> None:
        query = "SELECT finished_utc FROM delivery_actions WHERE id = ?"
        for row in rows:
            await self.until(lambda row=row: self._sim.till.connection.execute(query, (row,)).fetchone()[0] is not None)

    def check(self) -> None:
        left = [operation for operation, faults in self._faults.items() if faults]
        assert not left, f"no request met what was to meet {left}"
        assert self._slow_unit is None, "nobody acted within a transaction"

    def fault(self, call: "Call") -> str:
        faults = self._faults[call.operation]
        return faults.popleft() if faults else ""

    def list_takes(self) -> float:
        seconds, self._slow_list = self._slow_list, 0.0
        return seconds

    def unit_takes(self, name: Callable[[], str]) -> float:
        if self._slow_unit is None or self._slow_unit[0] != name():
            return 0.0
        (_, seconds, act), self._slow_unit = self._slow_unit, None
        self._sim.agenda.after(seconds / 2, act)
        return seconds


Play = Callable[[Script], Awaitable[None]]
CORNERS: dict[str, tuple[Play, dict[str, Any]]] = {}  # by name: the script, and what its plan has beside it


def corner(**changes: Any) -> Callable[[Play], None]:
    def enter(play: Play) -> None:
        CORNERS[play.__name__] = play, changes

    return enter


def corner_of(seed: int) -> str:
    # Each round begins one corner later, because only some seeds of the mix play a corner.
    round_, place = divmod(seed - 1, len(CORNERS))
    return list(CORNERS)[(round_ + place) % len(CORNERS)]


def seed_of(name: str) -> int:
    return list(CORNERS).index(name) + 1


@corner()
async def an_accept_expires_unresolved_while_a_list_is_on_its_way(script: Script) -> None:
    """The accept gets no answer, and its time is over between a poll's request and its answer."""
    key = await script.order()
    listed = await script.listed()
    await script.rest(14.0)
    script.meets("accept", "done_silence")
    script.accept(key, valid_minutes=1)  # until listed + 74
    await script.at(listed + 40.0)
    script.panel(key, 16)
    script.next_list_takes(17.0)  # from listed + 60


@corner()
async def a_cancel_is_refused_beside_a_complete_of_ours(script: Script) -> None:
    """Both ends are in doubt: the order is missing from the list because it is completed."""
    key = await script.accepted(await script.order())
    await script.acknowledged(key)
    script.panel(key, 16)  # unknown to the daemon when complete leaves
    script.meets("complete", "done_silence")
    script.act("complete", payment_key=key)
    script.meets("cancel", "http_500")
    await script.ended(script.act("cancel", payment_key=key, reason_id=3))


@corner()
async def a_row_is_asked_back_between_reading_and_claiming(script: Script) -> None:
    key = await script.order()
    row = 0
    script.within("Executor._write_notes", 0.5, lambda: script.withdraw(row))
    row = script.accept(key)
    await script.ended(row)


@corner(accounts=("kadikoy", "besiktas"), hangs=(Span(100.0, 150.0, "kadikoy"),))
async def the_service_hangs_for_one_of_two_accounts(script: Script) -> None:
    """Two requests may be on the wire: one of each account."""
    await script.at(101.0)
    for food in range(1001, 1005):
        script.act("activate_food", food_id=food, restaurant_id=KADIKOY)
    script.act("deactivate_food", food_id=1004, restaurant_id=KADIKOY)  # in the slot of the row before
    await script.at(105.0)
    script.act("activate_food", food_id=1001, restaurant_id=BESIKTAS)


@corner()
async def the_program_ends_while_a_row_is_on_the_wire(script: Script) -> None:
    key = await script.accepted(await script.order())
    script.next_list_takes(15.0)
    await script.listed()
    script.crash_at("reached on_the_way", 2.0)
    script.act("on_the_way", payment_key=key)


@corner(jumps=((5.0, 54000.0), (100.0, -7200.0)))
async def the_clock_is_set_back_while_a_row_waits(script: Script) -> None:
    """Set back by two hours, to the day before; the row should wait for half a minute."""
    await script.at(6.0)
    key = await script.order()
    await script.at(90.0)
    script.meets("accept", "http_429")
    script.accept(key)


@corner()
async def accepts_are_answered_500_502_and_429(script: Script) -> None:
    """The first is sent again after seconds, the second after a list, and the third expires before it may be sent."""
    first, second, third = [await script.order() for _ in range(3)]
    script.meets("accept", "http_500")
    await script.accepted(first)
    script.meets("accept", "done_502")
    await script.accepted(second)
    script.meets("accept", "http_429", "http_429")
    await script.ended(script.accept(third, valid_minutes=1))


@corner(seconds=5 * MINUTE)
async def a_complete_is_lost_and_no_list_tells_of_it(script: Script) -> None:
    """Its last resend waits for a minute, and the lists of that minute lack the order, as they did before."""
    key = await script.on_its_way()
    await script.acknowledged(key)
    script.meets("complete", "refused", "http_500", "http_500", "lost")
    await script.ended(script.act("complete", payment_key=key))


@corner()
async def rows_are_written_while_an_accept_waits(script: Script) -> None:
    """An on_the_way waits behind one order's accept; a cancel supersedes the other's."""
    first, second = await script.order(), await script.order()
    script.meets("accept", "http_429", "http_429")
    accept = script.accept(first)
    script.accept(second)
    await script.answered("accept")
    await script.rest(14.0)
    on_the_way = script.act("on_the_way", payment_key=first)
    await script.ended(script.act("cancel", payment_key=second, reason_id=3), accept, on_the_way)


@corner(batch=2, seconds=6 * MINUTE)
async def a_list_longer_than_one_question_shows_orders_in_doubt(script: Script) -> None:
    """Their accepts may have succeeded: the list shows that they did not. Another one shows their on_the_ways done."""
    keys = await script.orders(5)
    script.meets("accept", *["lost" for _ in keys])
    rows = [script.accept(key) for key in keys]
    await script.answered("accept")
    for key in keys:
        script.panel(key, 16, 1)  # changed and changed back, so that the list shows it again
    await script.ended(*rows)
    script.meets("on_the_way", *["done_silence" for _ in keys])
    await script.ended(*[script.act("on_the_way", payment_key=key) for key in keys])


@corner()
async def a_row_is_too_old_before_its_turn_comes(script: Script) -> None:
    """It is valid for a minute, and the accept before it waits longer."""
    key = await script.order()
    script.meets("accept", "http_429", "http_429", "http_429")
    accept = script.accept(key)
    await script.ended(script.act("on_the_way", payment_key=key, valid_minutes=1), accept)


@corner(seconds=8 * MINUTE, silence_hours=0.02)
async def an_order_is_shown_again_as_it_was_and_then_never_again(script: Script) -> None:
    """The till does not take over the second order. The third is shown again after it has ended by silence."""
    key, _, third = await script.orders(3)
    for _ in range(2):
        script.panel(key, 99, 1)  # changed and changed back between two lists
        await script.listed()
        await script.rest(5.0)
    await script.at(6 * MINUTE)
    script.panel(third, 99, 1)


@corner(seconds=5 * MINUTE)
async def a_list_shows_an_order_in_doubt_without_its_key(script: Script) -> None:
    """Its accept succeeded unseen: a list without its key must not prove the opposite."""
    key = await script.order()
    script.meets("accept", "done_silence")
    accept = script.accept(key)
    script.hide_key(key, hidden=True)
    await script.answered("accept")
    await script.listed(2)
    script.hide_key(key, hidden=False)
    await script.ended(accept)


@corner(seconds=5 * MINUTE)
async def an_accept_in_doubt_may_be_sent_again_while_a_list_is_on_its_way(script: Script) -> None:
    """The first list after it fails, and the second one, which shows it done, is slow."""
    key = await script.order()
    listed = await script.listed()
    await script.at(listed + 14.0)
    script.meets("accept", "done_reset")
    accept = script.accept(key)
    script.meets("get_current", "http_500")
    await script.listed()
    script.next_list_takes(17.0)
    await script.ended(accept)


@corner(seconds=6 * MINUTE)
async def a_customer_cancels_while_a_complete_is_in_doubt(script: Script) -> None:
    """A list shows the order cancelled before the last resend of the complete leaves."""
    key = await script.on_its_way()
    await script.acknowledged(key)
    script.meets("complete", "http_500", "http_500", "http_500")
    complete = script.act("complete", payment_key=key)
    await script.answered("complete")
    script.panel(key, CANCELED)
    await script.ended(complete)


@corner(seconds=6 * MINUTE)
async def a_list_is_too_large_and_comes_in_parts(script: Script) -> None:
    """A list of one status is no good poll, and proves nothing about a complete."""
    key = await script.on_its_way()
    script.meets("get_current", "too_large")
    await script.listed()
    script.meets("complete", "done_silence")
    await script.ended(script.act("complete", payment_key=key))


@corner(accounts=("kadikoy", "besiktas"), shared=True)
async def an_order_is_listed_for_two_accounts(script: Script) -> None:
    """Its first acknowledgements are lost, so that the second account gets it, too."""
    script.meets("acknowledge", "lost", "lost")
    await script.order()


@corner(accounts=("kadikoy", "besiktas"))
async def a_list_from_before_two_accepts_lacks_one_of_their_orders(script: Script) -> None:
    """It arrives after both are lost, and after the other account's list."""
    absent, shown = await script.orders(2)
    await script.listed()
    script.panel(shown, 16, 1)
    script.next_list_takes(18.0)
    await script.rest(18.0)
    script.meets("accept", "done_reset", "done_reset")
    rows = [script.accept(key) for key in (absent, shown)]
    await script.ended(*rows)


@corner(seconds=6 * MINUTE)
async def two_orders_end_and_both_answers_are_lost(script: Script) -> None:
    """One list, which lacks the completed order, proves both."""
    first, second = await script.orders(2)
    await script.accepted(first)
    await script.ended(script.act("on_the_way", payment_key=first))
    await script.acknowledged(first)
    script.meets("complete", "done_reset")
    script.meets("cancel", "done_reset")
    complete = script.act("complete", payment_key=first)
    await script.ended(script.act("cancel", payment_key=second, reason_id=3), complete)


@corner(seconds=6 * MINUTE)
async def no_list_is_ever_good(script: Script) -> None:
    script.meets("get_current", *["http_500"] * 8)
    await script.listed(8)


@corner()
async def a_row_is_written_before_an_ok_is_noted(script: Script) -> None:
    key = await script.order()
    rows: list[int] = []
    script.within("_mark_free", 2.0, lambda: rows.append(script.accept(key)))
    script.panel(key, 16, 1)
    await script.until(lambda: bool(rows))
    await script.ended(rows[0])


@corner(seconds=9 * MINUTE)
async def a_row_is_retried_while_a_newer_one_is_in_doubt(script: Script) -> None:
    """And one is retried when its order is completed, which is then cancelled."""
    key = await script.accepted(await script.order())
    script.meets("on_the_way", *["http_500"] * 4)
    first = script.act("on_the_way", payment_key=key)
    await script.ended(first)
    script.meets("on_the_way", "http_500", "http_500")
    second = script.act("on_the_way", payment_key=key)
    await script.rest(5.0)  # until it waits for its third request
    script.retry(first)
    await script.ended(second, first)
    script.meets("cancel", *["http_500"] * 4)
    cancel = script.act("cancel", payment_key=key, reason_id=3, valid_minutes=60)
    await script.answered("cancel")
    script.withdraw(cancel)
    await script.ended(cancel)
    for _ in range(2):
        await script.ended(script.act("complete", payment_key=key))
    script.retry(cancel)
    await script.ended(cancel)
    script.panel(key, CANCELED)
    await script.acknowledged(key)


@corner(seconds=9 * MINUTE, jumps=((70.0, -7200.0),), refusing=REFUSING)
async def refused_orders_change_and_are_stored_by_hand(script: Script) -> None:
    """Two of them change after the clock was set back. A stored one is as it was before, and is refused again."""
    await script.at(6.0)
    first, second, third = await script.orders(3)
    script.panel(first, 16)
    await script.acknowledged(first)
    await script.at(75.0)
    script.panel(second, CANCELED)
    script.panel(third, 16)
    await script.acknowledged(second)
    await script.acknowledged(third)
    await script.at(405.0)
    script.panel(first, 1)
    await script.listed(2)


@corner(seconds=6 * MINUTE)
async def nothing_shows_what_became_of_some_requests(script: Script) -> None:
    """A list that lacks an order proves only the status that was acknowledged, and nothing after a refusal."""
    new, other, third = await script.orders(3)
    script.panel(other, 99)
    await script.acknowledged(other)
    for operation in ("accept", "deactivate_food"):
        script.meets(operation, "http_500", "said_no")
    food = script.act("deactivate_food", food_id=1001, restaurant_id=KADIKOY)
    await script.ended(script.accept(third), food)
    script.meets("accept", *["http_502"] * 2, *["http_500"] * 6)
    script.meets("activate_food", "http_502", *["http_500"] * 3)
    script.meets("open_restaurant", *["http_500"] * 4)
    script.meets("get_restaurant_status", "http_500")
    rows = [script.accept(new), script.accept(other), script.act("open_restaurant", restaurant_id=KADIKOY)]
    await script.ended(*rows, script.act("activate_food", food_id=1001, restaurant_id=KADIKOY))


@corner(seconds=6 * MINUTE, options=(("token_seconds", 300.0),))
async def a_row_is_written_just_before_a_token_expires(script: Script) -> None:
    """The token is of before a crash."""
    script.crash_at("reached get_current", 2.0)
    await script.at(294.5)
    await script.ended(script.act("open_restaurant", restaurant_id=KADIKOY))


@corner(seconds=9 * MINUTE, silence_hours=0.05)
async def no_list_comes_for_minutes_while_an_order_is_open(script: Script) -> None:
    """The minutes without a list do not count as its silence."""
    await script.orders(2)
    script.meets("get_current", *["http_500"] * 14)
    await script.listed(15)
    await script.rest(60.0)  # a sweep comes before the order has been silent for its time


@corner(seconds=6 * MINUTE)
async def much_is_refused_given_up_or_late(script: Script) -> None:
    """An OK cannot be noted; its scheduled order is accepted twice. Logins, foods and closures fail."""
    script.meets("login", "http_500", "http_429")
    script.within("_mark_free", 2.0, script.hold_file)
    (key,) = await script.orders(1, scheduled="2026-03-04 20:00:00")
    await script.listed()
    await script.rest(1.0)  # its OK is noted now
    await script.accepted(key)
    script.meets("close_restaurant", "said_no", "http_500", "said_no", "http_502", *["http_500"] * 3)
    script.meets("deactivate_food", *["http_500"] * 4, "http_502", *["http_500"] * 3)
    rows = [script.act("accept", payment_key=key, preparing_time=45)]
    rows.append(script.act("deactivate_food", food_id=1001, restaurant_id=KADIKOY))
    for _ in range(3):
        await script.ended(script.act("close_restaurant", restaurant_id=KADIKOY))
    rows.append(script.act("deactivate_food", food_id=1001, restaurant_id=BESIKTAS))  # another account's menu
    await script.ended(*rows, script.act("deactivate_food", food_id=1002, restaurant_id=KADIKOY))
    script.meets("close_restaurant", "refused", "refused", "refused", "http_429")
    await script.ended(script.act("close_restaurant", restaurant_id=KADIKOY, valid_until_minutes=1))


@corner(seconds=5 * MINUTE, options=(("list_limit", 2), ("list_order", "newest_first")))
async def a_list_is_cut_before_an_order_in_doubt(script: Script) -> None:
    """Its accept succeeded unseen: a list that newer orders fill must not prove the opposite."""
    key, *newer = await script.orders(3)
    script.meets("accept", "done_silence")
    accept = script.accept(key)
    await script.answered("accept")
    for other in newer:
        script.panel(other, 16, 1)
    await script.ended(accept)


@corner(seconds=18 * MINUTE, options=(("list_limit", 2),), reloads=((500.0, "same"),))
async def documents_without_a_key_fill_the_list(script: Script) -> None:
    """The order behind them comes in a list of its status: late, by its own time. The problem lasts beyond a reload."""
    for key in (keys := await script.orders(2)):
        script.hide_key(key, hidden=True)
        script.panel(key, 16)
    script.place(date="2026-03-02 11:20:00")
    await script.listed(2)  # the whole one, and that of the first status
    script.panel(*script.place(), CONFIRMED)
    await script.at(600.0)
    for key in keys:
        script.hide_key(key, hidden=False)
    await script.rest(7 * MINUTE)


@corner(seconds=8 * MINUTE, auto_accept=True, steps=True, retention_days=1, jumps=((100.0, 90000.0),))
async def orders_come_faster_than_a_step_and_are_a_day_old(script: Script) -> None:
    """They are accepted for later, the first one with its second request, and cancelled. A sweep blanks them."""
    script.meets("accept", "http_500")
    keys = await script.orders(4)
    await script.rest(5.0)
    for key in keys:
        script.panel(key, CANCELED)
    await script.rest(7 * MINUTE)


@corner(seconds=8 * MINUTE)
async def acknowledgements_fail_for_minutes(script: Script) -> None:
    script.meets("acknowledge", *["http_500"] * 15)
    script.place()
    await script.rest(8 * MINUTE)
