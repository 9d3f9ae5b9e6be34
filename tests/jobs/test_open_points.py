"""One day of a chain under each setting that docs/interface.md leaves open: only the ends of refused rows differ."""

import asyncio
from dataclasses import dataclass, field, fields
from typing import Any

import pytest
from tests.jobs.shop import Shop

from orderbridge.jobs.lists import Common, read_lists
from orderbridge_sandbox import Options, World
from orderbridge_sandbox.options import Connections, Coverage, Pace, Trouble
from orderbridge_sandbox.rules import ORDER_NOT_FOUND
from orderbridge_sandbox.scenery import ATASEHIR, USKUDAR
from orderbridge_sandbox.state import Order

pytestmark = pytest.mark.plays_daemon

NO_RESTAURANT = "99999999-9999-4999-8999-999999999999"
FOOD = 3005
# Switches that the day does not use: provoked faults, limits of docs/interface.md, what depends on the sandbox's own
# time, the form of ids (test_verdicts.py) and the menu (test_menu.py).
NO_OPEN_POINTS = {
    *(field.name for group in (Pace, Trouble, Connections) for field in fields(group)),
    *"cooldown_seconds pickup_life platform_courier_life life_seconds cancel_unanswered_seconds".split(),
    *"ids_in_capitals menu_shape menu_cooldown_seconds".split(),
}
TARGETS = {"accept": 2, "on_the_way": 16, "complete": 5, "cancel": 6}

# The end of a row that the service does not allow depends only on the answer.
A_PLAIN_NO = ("refused", "refused")
NOT_FOUND = ("refused", "order_not_found")
ALLOWED = ("done", None)
PLAIN_SWITCHES: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("new_login_ends_old_token", "cancelled_are_delivered", "cooldown_restarts_on_429"), (True, False)),
    "list_covers": ("all", "first"), "list_order": ("oldest_first", "newest_first", "shuffled"),
    "list_limit": (1, 2, 5), "token_seconds": (300.0, 3600.0),
    "token_message": ("Token expired or invalid", "Invalid or expired access token"),
    "expiration_timezone": ("Pacific/Kiritimati", "Pacific/Pago_Pago"), "timezone": ("UTC",),
    "prepaid_suffix": (True, False), "cooldown_scope": ("application", "address", "restaurant"),
    "retry_after": ("none", "seconds", "date"), "retry_after_seconds": (None, 5.0), "login_limit": (None, 3),
    "login_window_seconds": (60.0,), "tokens_at_once": (None, 1, 2), "changed_are_listed_again": (True, False),
    "complete_from_confirmed": ("none", "without_own_courier", "all"),
    "error_order": ("limit status exists body url token", "exists url token limit status body"),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The options of the service, the configuration, and the ends of two rows that docs/interface.md leaves open."""

    options: dict[str, Any] = field(default_factory=dict)
    ours: dict[str, Any] = field(default_factory=dict)
    out_of_turn: tuple[str, str | None] = A_PLAIN_NO
    in_a_day: tuple[str, str | None] = ALLOWED


def end_under(status: int) -> tuple[str, str | None]:
    """The end of a row that is refused with an unknown text, which may also mean a bad token, a limit or an error."""
    ends = {401: ("expired", "not_permitted"), 429: ("expired", "expired")}
    return ends.get(status, ("failed", "outcome_unknown") if status >= 500 else A_PLAIN_NO)


def needs_payment(theirs: int, ours: int | None) -> Setting:
    return Setting(options={"needs_payment_status_id": theirs}, ours={"needs_payment_status_id": ours})


def errors_under(status: int, **more: Any) -> Setting:
    """The same status for the errors of all operations."""
    options: dict[str, Any] = {f"{name}_error_status": status for name in ("complete", "restaurant", "food")}
    return Setting(options=options | more, out_of_turn=end_under(status))


def out_of_turn(end: tuple[str, str | None], **options: Any) -> Setting:
    return Setting(options=options, out_of_turn=end)


def plain_switches(turn: int) -> Setting:
    """A value for each switch. The first three turns use all values, later turns combine them in other ways."""
    switches = enumerate(PLAIN_SWITCHES.items())
    return Setting(options={name: values[(turn + turn // 3 * n) % len(values)] for n, (name, values) in switches})


SETTINGS = {
    "as the sandbox is": Setting(),
    **{f"needs payment is {number}": needs_payment(number, number) for number in (0, 3, 7, 17)},
    "needs payment is not configured": needs_payment(8, None),
    "needs payment is configured wrongly": needs_payment(8, 9),
    **{f"errors come under {status}": errors_under(status) for status in (200, 400, 401, 403, 404, 422, 429, 500, 502)},
    **{f"a bad token comes under {code}": errors_under(code, token_errors_stay_401=False) for code in (200, 403, 500)},
    **{
        f"out of turn comes under {status}": out_of_turn(end_under(status), disallowed_status=status)
        for status in (200, 400, 401, 403, 404, 409, 422, 429, 500, 502, 503)
    },
    "out of turn is not found": out_of_turn(NOT_FOUND, disallowed="not_found"),
    "it is not found, under 200": out_of_turn(NOT_FOUND, disallowed_status=200, disallowed_error=ORDER_NOT_FOUND),
    "out of turn is OK without effect": out_of_turn(ALLOWED, disallowed="ok"),
    **{f"plain switches, turn {turn}": plain_switches(turn) for turn in range(6)},
    "no longer than an hour": Setting(options={"longest_preparing_time": 60}, in_a_day=("refused", "missing_field")),
}


class Day:
    """The day's orders and rows, each row with the end that it must come to."""

    def __init__(self, shop: Shop, setting: Setting) -> None:
        self.shop = shop
        self.setting = setting
        self.ends: dict[int, tuple[str, str | None]] = {}
        self.placed: list[Order] = []

    def place(self, **changes: Any) -> Order:
        self.placed.append(self.shop.place(**{"restaurant_id": USKUDAR} | changes))
        return self.placed[-1]

    def act(self, action: str, order: Order | None = None, end: tuple[str, str | None] = ALLOWED, **more: Any) -> int:
        row = self.shop.act(action, order, **more)
        self.ends[row] = end
        return row

    async def quiet(self) -> None:
        """Run the daemon until the service has no news: send what waits, then poll again."""
        for _ in range(60):  # a list of one order at a time
            await self.shop.drain()
            polled = await self.shop.poll()
            if polled.ok and not polled.delivered:
                break
        else:
            raise AssertionError("the list is never empty")
        await self.shop.drain()

    async def play(self) -> None:
        await read_lists(self.shop.account, tuple(self.shop.accounts), Common())
        await self.quiet()
        await self.morning()
        await self.noon()
        await self.evening()
        for row in self.ends:
            await self.shop.verdict(row)
        await self.quiet()

    async def morning(self) -> None:
        """Place orders of each kind, and take some through to their end."""
        cash = self.place(payment_method="Nakit")
        prepaid = self.place(payment_method=self.shop.world.payment_names()["CREDIT_CARD"])
        pickup = self.place(courier_type="come_get", shipping_method="pickup")
        platform = self.place(courier_type="platform_courier", scheduled_date="2026-03-02 21:00:00")
        for _ in range(3):
            self.place(restaurant_id=ATASEHIR)
        await self.quiet()
        for order in (cash, prepaid, platform):
            self.act("accept", order)
        self.act("accept", pickup, ("superseded", "superseded"))
        for order in (cash, prepaid):
            self.act("on_the_way", order)
            self.act("complete", order)
        self.act("on_the_way", platform, ("refused", "courier_not_restaurant"))
        self.act("cancel", pickup, reason_id=8)
        await self.quiet()

    async def noon(self) -> None:
        """Other clients change orders, partly in ways that docs/interface.md lacks; some rows are out of turn."""
        world = self.shop.world
        strange, owing, gone, cancelled, early, late = (self.place(note=str(number)) for number in range(6))
        await self.quiet()
        world.change_status(strange.key, 42, "Hazırlanıyor")
        world.change_status(owing.key, world.options.needs_payment_status_id)
        world.cancel_by_customer(cancelled.key)
        self.act("accept", late, self.setting.in_a_day, preparing_time=1440)
        out_of_turn = self.act("complete", early, self.setting.out_of_turn, valid_minutes=5)
        await self.quiet()
        del world.orders[gone.key]
        self.act("complete", gone, NOT_FOUND)
        await self.quiet()
        self.act("cancel", owing)
        await self.quiet()
        await self.shop.verdict(out_of_turn)

    async def evening(self) -> None:
        """Foods and restaurants, and a token that ends."""
        world, shop = self.shop.world, self.shop
        shop.till.execute("INSERT INTO delivery_restaurants (account, id) VALUES ('chain', ?)", (NO_RESTAURANT,))
        order = self.place()
        await self.quiet()
        for action in ("accept", "on_the_way"):
            self.act(action, order)
        await self.quiet()
        if "login_limit" in self.setting.options:
            await asyncio.sleep(60)  # three more logins are within it
        for action, about in (
            ("complete", {"order": order}),
            ("close_restaurant", {"restaurant_id": USKUDAR}),
            ("deactivate_food", {"food_id": FOOD}),
        ):
            world.end_tokens()
            self.act(action, **about)
            await shop.drain()
        assert USKUDAR not in world.open_restaurants
        assert ("chain", FOOD) in world.inactive_foods
        self.act("open_restaurant", restaurant_id=USKUDAR)
        self.act("activate_food", food_id=FOOD)
        self.act("open_restaurant", restaurant_id=NO_RESTAURANT, end=("refused", "restaurant_not_found"))
        self.act("deactivate_food", food_id=999_999, end=("refused", "food_not_found"))
        await self.quiet()
        await shop.account.renew()
        self.place()


def test_each_switch_of_the_sandbox_is_turned() -> None:
    """Each new switch of the sandbox is an open point, which the daemon must survive."""
    turned = {name for setting in SETTINGS.values() for name in setting.options}
    assert {field.name for field in fields(Options)} - turned == NO_OPEN_POINTS


@pytest.mark.interface("Order transitions", "Errors", "Limits", "Authentication 4")
@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
async def test_a_learned_day_can_be_repeated(open_shop, world: World, setting: Setting):
    world.set_options(**setting.options)
    shop = await open_shop("chain", **setting.ours)
    day = Day(shop, setting)
    await day.play()
    assert {row: shop.end(row)[:2] for row in day.ends} == day.ends
    assert_each_order_is_stored_as_the_service_showed_it(day)
    assert_each_status_is_acknowledged_after_it_was_delivered(day)
    assert {call.http_status for call in shop.calls("get_current")} <= {200, 401}, "never within its cooldown"


def covered(day: Day) -> list[Order]:
    """The orders that the list is about."""
    first_only = day.shop.world.options.list_covers is Coverage.FIRST
    return [order for order in day.placed if order.restaurant_id == USKUDAR or not first_only]


def last_shown(day: Day) -> dict[str, int]:
    """The last status of each order that the service showed in a list, or set by its OK to an action."""
    words: dict[str, int] = {}
    for call in day.shop.world.calls():
        words.update(call.delivered)
        if call.operation in TARGETS and call.http_status == 200 and not call.error:
            words[call.argument] = TARGETS[call.operation]
    return words


def assert_each_order_is_stored_as_the_service_showed_it(day: Day) -> None:
    words = last_shown(day)
    # With another time zone than the configured one its orders look hours old, until that is noticed (timezone_wrong).
    doubts = {"status_doubtful", *(["late"] if "timezone" in day.setting.options else [])}
    assert day.shop.count("delivery_orders") == len(covered(day)) == len(words)
    for order in covered(day):
        stored = day.shop.order(order)
        assert (stored["status_id"], stored["service_status_id"]) == (words[order.key], words[order.key])
        assert stored["payment_code"] in {"CASH", "CREDIT_CARD", "DEBIT_CARD"}
        assert set(filter(None, (stored["problem"] or "").split(","))) <= doubts
    assert day.shop.count("delivery_quarantine") == 0


def assert_each_status_is_acknowledged_after_it_was_delivered(day: Day) -> None:
    world = day.shop.world
    listed: dict[str, int] = {}
    for call in world.calls():
        if call.operation == "get_current":
            listed = dict(call.delivered)
        if call.operation == "acknowledge" and call.http_status == 200:
            assert call.status_before == listed[call.argument]
    assert len(world.calls("acknowledge")) >= len(covered(day)) > 0
    hidden = {5} if world.options.cancelled_are_delivered else {5, 6}
    still_there = [order for order in covered(day) if order.key in world.orders]
    assert all(order.acknowledged for order in still_there if order.status_id not in hidden)
