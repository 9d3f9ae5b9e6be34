"""A tap makes one row, for the right order, and is never shown as a success if it failed."""

import asyncio
import contextlib
from datetime import datetime, timedelta

import pytest
from tests.board.browser.counter import ALERTS, Counter, NotInTime, Tablet
from tests.test_daemon import UNTIL_CLEARED_S, WITHIN_S, until

from orderbridge_board import cards
from orderbridge_sandbox import Fault, World
from orderbridge_sandbox.scenery import KADIKOY

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

# Taps as quick as they can be, on what is there and on what has been taken away meanwhile.
TAPS = """(what) => {
  const button = document.querySelector(`.card button[data-do=${what}]`);
  for (let tap = 0; tap < 10; tap++) {
    button.click();
    document.querySelector(`.card button[data-do=${what}]`)?.click();
  }
}"""
FREE_AGAIN = """() => [...document.querySelectorAll(".row")].some((row) =>
  row.querySelector(".verdict").textContent.includes("Gönderilemedi") && !row.querySelector("button").disabled)"""
ENABLED = ".card [data-do={}]:enabled:not([aria-disabled])"
ROWS = "SELECT action, state, created_by FROM delivery_actions ORDER BY id"
CANCEL = "INSERT INTO delivery_actions (action, payment_key, reason_id) VALUES ('cancel', ?, 3)"  # as the till does
RUSH = 11
UNTIL_IT_SAYS_SO = """() => new Promise((resolve) => {
  const began = performance.now();
  const isFailed = () => document.querySelector(".card .verdict.failed");
  const wait = () => (isFailed() ? resolve(performance.now() - began) : requestAnimationFrame(wait));
  wait();
})"""
SLOTS = """() => [...document.querySelectorAll(".card")]
  .map((card) => [card.dataset.key, card.querySelector(".slot").textContent])"""
PLACES = """() => [...document.querySelectorAll(".card")].map((card) => {
  const { x, y, width, height } = card.getBoundingClientRect();
  return [card.dataset.key, x, y, width, height];
})"""


async def test_many_new_orders_are_all_shown_by_a_touch_on_the_bar(counter: Counter, world: World):
    """Whatever the screen shows, the bar names what rings and how many, and a touch leads there."""
    tablet = await counter.armed(script=ALERTS)
    await tablet.page.click("#menu")
    orders = [world.place_order(restaurant_id=KADIKOY) for _ in range(RUSH)]
    call = tablet.page.locator(".call.fresh", has_text=f"YENİ {RUSH}")
    await call.wait_for()
    await tablet.hears("new")
    await call.click()
    await tablet.page.locator(f"{tablet.card(orders[-1])} .age").wait_for()
    shown = await tablet.page.evaluate(SLOTS)
    assert sorted(key for key, _ in shown) == sorted(order.key for order in orders)
    assert [slot for _, slot in shown] == [*"123456789", "", ""]
    rows = await counter.rows("SELECT payment_key FROM delivery_orders ORDER BY received_utc, payment_key")
    assert [key for key, _ in shown] == [row["payment_key"] for row in rows]
    assert await tablet.page.evaluate("document.activeElement.dataset.key") == shown[0][0]
    assert sorted(await tablet.page.evaluate("alerts")) == sorted(f"Yeni sipariş {order.number}" for order in orders)
    for order in orders:
        await counter.run(CANCEL, order.key)
    await call.wait_for(state="detached")
    await tablet.is_silent()


async def test_twenty_taps_on_two_tablets_make_one_row_with_one_verdict(counter: Counter, world: World):
    tablets = [await counter.armed("Tezgâh"), await counter.armed("Mutfak")]
    order = await counter.order()
    for what, words in (("accept", "Kabul (25 dk)"), ("on_the_way", "Yola çıktı")):
        for tablet in tablets:
            await tablet.page.wait_for_selector(ENABLED.format(what))
        world.faults.add(Fault.delay(what, UNTIL_CLEARED_S))
        await asyncio.gather(*(tablet.page.evaluate(TAPS, what) for tablet in tablets))
        for tablet in tablets:
            await tablet.shows(order, f"Gönderiliyor: {words}")
            assert f"{words}: tamam" not in (await tablet.page.locator(tablet.card(order)).text_content() or "")
            assert await tablet.page.locator(f"[data-do={what}]:not([disabled])").count() == 0
        world.faults.clear()
    for tablet in tablets:
        await tablet.page.wait_for_selector(ENABLED.format("complete"))
    rows = await counter.rows(ROWS)
    assert [(row["action"], row["state"]) for row in rows] == [("accept", "done"), ("on_the_way", "done")]
    assert {row["created_by"] for row in rows} <= {"Tezgâh", "Mutfak"}


async def test_a_choice_refers_to_what_the_dialog_showed(counter: Counter, world: World):
    """Another accept ends while the minutes are being chosen: the choice makes no second row."""
    slow, quick = await counter.armed("Tezgâh"), await counter.armed("Mutfak")
    order = await counter.order()
    await slow.tap(order, "minutes")
    world.faults.add(Fault.error("accept", 400, "invalid_status", "Bu sipariş kabul edilemez"))
    await quick.accept(order)
    for tablet in (quick, slow):
        await tablet.page.locator(".card .verdict.refused").wait_for()
    async with slow.page.expect_response("**/board/act*"):
        await slow.choose("25 dk")
    rows = await counter.rows(ROWS)
    assert [(row["action"], row["created_by"]) for row in rows] == [("accept", "Mutfak")]


async def verdict(tablet: Tablet) -> str:
    return await tablet.page.locator(".card .verdict").text_content() or ""


async def test_a_refusal_is_shown_and_can_be_tried_again(counter: Counter, world: World):
    tablet = await counter.armed()
    order = await counter.order()
    world.faults.add(Fault.error("accept", 400, "invalid_status", "Bu sipariş kabul edilemez"))
    await tablet.accept(order)
    await tablet.page.locator(".card .verdict.refused").wait_for()
    assert len(await verdict(tablet)) > len("Kabul (25 dk): kabul edilmedi ")  # and why
    await tablet.hears("new")  # a refused accept answers nobody
    await tablet.accept(order)
    await tablet.shows(order, "Kabul (25 dk): tamam")
    rows = await counter.rows(ROWS)
    assert [row["state"] for row in rows] == ["refused", "done"]


async def test_an_accept_is_taken_back_while_it_waits(counter: Counter, world: World):
    tablet = await counter.armed()
    order = await counter.order()
    world.refuse_account("kadikoy")  # tried again after minutes: nothing is on its way meanwhile
    await tablet.accept(order)
    await tablet.shows(order, "giriş")
    await tablet.tap(order, "back")
    await tablet.shows(order, "geri alındı")
    await tablet.hears("new")
    assert (order.status_id, (await counter.rows(ROWS))[0]["state"]) == (1, "withdrawn")


DISH = {"food_id": 1001, "name": "Lahmacun", "price": 100, "quantity": 1, "total": 100, "note": "", "option_groups": []}
DISH["id"] = "00000000-0000-4000-8000-000000000001"
AT = "([x, y]) => document.elementFromPoint(x, y).closest('.card')?.dataset.key"


@pytest.mark.parametrize("hand", ["mouse", "finger"])
async def test_a_card_that_just_moved_takes_no_touch(counter: Counter, hand: str):
    """If a gap closes between aim and touch, nothing is accepted, nor by a finger that touches early and stays."""
    tablet = await counter.tablet(has_touch=hand == "finger", viewport={"width": 360, "height": 1900})
    page = tablet.page
    await page.clock.install()
    await tablet.arm()
    orders = [await counter.order(foods=[DISH], total=100) for _ in range(4)]  # all of one height
    await page.wait_for_selector(tablet.card(orders[3]))
    await page.clock.pause_at(datetime.now().astimezone() + timedelta(seconds=5))
    touch = page.touchscreen.tap if hand == "finger" else page.mouse.click
    await touch(180, 1890)  # hands are at work
    await counter.run(CANCEL, orders[0].key)
    await page.locator(".card.gone").wait_for(state="attached")
    at = await tablet.middle_of(f"{tablet.card(orders[1])} [data-do=accept]")
    while await page.locator(".card.gone").count():
        await page.clock.run_for(1_000)
    while await page.evaluate("document.getAnimations().length"):  # it slides by the browser's own clock
        pass
    assert await page.evaluate(AT, at) == str(orders[2].key)
    await touch(*at)
    if hand == "mouse":
        await page.mouse.down()
        await page.clock.run_for(700)
        await page.mouse.up()
    await page.clock.run_for(700)
    assert await counter.rows("SELECT 1 FROM delivery_actions WHERE action = 'accept'") == []
    await touch(*at)
    await until(lambda: orders[2].status_id == 2)
    assert orders[1].status_id == 1


@pytest.mark.parametrize("courier", ["come_get", "platform_courier"])
async def test_an_order_handed_to_a_foreign_courier_disappears_on_every_tablet(counter, world, courier: str):
    tablet, other = await counter.armed(), await counter.armed("Mutfak")
    order = await counter.order(courier_type=courier)
    await tablet.accept(order)
    await tablet.shows(order, "Kabul (25 dk): tamam")
    card, of_other = (one.page.locator(one.card(order)) for one in (tablet, other))
    async with asyncio.timeout(WITHIN_S):
        while await card.count() or await of_other.count():  # a touch while the card has just changed is not taken
            with contextlib.suppress(NotInTime):
                await card.locator("[data-do=handed]").click(timeout=5000)
                await of_other.wait_for(state="detached", timeout=5000)
    assert not world.calls("complete")
    await other.page.click("#recall")
    await other.page.click("[data-do=bring_back]")
    await tablet.page.wait_for_selector(tablet.card(order))


@pytest.mark.parametrize("what", ["on_the_way", "complete"])
async def test_a_final_action_is_taken_back_before_it_is_sent(counter, world, monkeypatch, what):
    """On another tablet, too; and when the moment is over it is sent once."""
    tablet, other = await counter.armed(), await counter.armed("Mutfak")
    order = await counter.order()
    await tablet.accept(order)
    if what == "complete":
        await tablet.tap(order, "on_the_way")
    await tablet.page.wait_for_selector(ENABLED.format(what))
    monkeypatch.setattr(cards, "HOLD", timedelta(minutes=1))
    await tablet.tap(order, what)
    await tablet.shows(order, "Geri al (")
    assert not world.calls(what)
    await other.tap(order, "back")
    await tablet.shows(order, "geri alındı")
    await tablet.page.wait_for_selector(ENABLED.format(what))
    monkeypatch.setattr(cards, "HOLD", timedelta(milliseconds=200))
    await tablet.tap(order, what)
    await until(lambda: len(world.calls(what)) == 1)
    rows = await counter.rows(ROWS)
    states = [row["state"] for row in rows if row["action"] == what]
    assert (states[0], len(states)) == ("withdrawn", 2)


@pytest.mark.parametrize("how", ["nothing listens", "nothing answers"])
async def test_a_tap_without_a_daemon_is_reported_within_a_second_and_can_be_repeated(counter: Counter, how: str):
    tablet = await counter.armed()
    orders = [await counter.order(), await counter.order()]
    button = tablet.page.locator(f"{tablet.card(orders[0])} [data-do=accept]")
    await tablet.page.route("**/board/act*", lambda route: route.abort() if how == "nothing listens" else None)
    await button.click()
    assert await tablet.page.evaluate(UNTIL_IT_SAYS_SO) < 1000
    assert await button.is_enabled()
    bar = tablet.page.locator("#bar.red", has_text=f"1 siparişte dokunuş kaydedilemedi: #{orders[0].number}")
    await bar.wait_for()
    await tablet.page.unroute_all(behavior="ignoreErrors")
    if how == "nothing listens":
        await button.click()
        await tablet.shows(orders[0], "Kabul (25 dk): tamam")
        await bar.wait_for(state="hidden")


async def test_without_reasons_a_cancel_says_why_it_must_wait(counter: Counter):
    """In the first seconds of a new installation. They are shown as soon as they are read."""
    tablet = await counter.tablet()
    order = await counter.order()
    reasons = await counter.rows("SELECT id, reason FROM delivery_cancel_reasons")
    await counter.plant("DELETE FROM delivery_cancel_reasons")
    await tablet.arm()
    await tablet.tap(order, "cancel")
    await tablet.page.locator("dialog", has_text="henüz alınmadı").wait_for()
    await tablet.choose("Vazgeç")
    for one in reasons:
        await counter.plant("INSERT INTO delivery_cancel_reasons (id, reason) VALUES (?, ?)", *one.values())
    await tablet.page.wait_for_function("() => !document.body.classList.contains('resting')")
    await tablet.tap(order, "cancel")
    await tablet.page.locator("dialog [data-do=choose]").first.wait_for()


async def test_nothing_moves_during_a_touch_and_shortly_after(counter: Counter):
    """Cards come and go only after the finger is lifted, and a gap stays for a while."""
    tablet = await counter.armed(has_clock=True)
    orders = [await counter.order(note="Zil bozuk") for _ in range(4)]
    await tablet.page.wait_for_selector(tablet.card(orders[-1]))
    await tablet.page.wait_for_function("() => document.getAnimations().length === 0")
    before = await tablet.page.evaluate(PLACES)
    await tablet.page.mouse.move(600, 300)
    await tablet.page.mouse.down()  # and stays down
    newest = await counter.order()
    await counter.run(CANCEL, orders[0].key)
    await tablet.hears("new")
    await until(lambda: orders[0].status_id == 6)
    await tablet.page.clock.run_for(4_000)
    assert await tablet.page.evaluate(PLACES) == before
    await tablet.page.mouse.up()
    await tablet.page.wait_for_selector(tablet.card(newest))
    assert (await tablet.page.evaluate(PLACES))[1 : len(before)] == before[1:]
    await tablet.page.locator(".card.gone").wait_for(state="attached")
    assert (await tablet.page.evaluate(PLACES))[1 : len(before)] == before[1:]
    await tablet.page.mouse.up()
    await tablet.page.clock.run_for(2_000)
    assert await tablet.page.locator(".gone").count() == 1
    await tablet.page.clock.run_for(4_000)
    assert await tablet.page.locator(".gone").count() == 0


async def test_a_keyboard_can_do_everything(counter: Counter, monkeypatch: pytest.MonkeyPatch):
    """1 to 9 choose a card, Enter does the usual thing, Backspace takes it back."""
    tablet = await counter.armed()
    orders = [await counter.order() for _ in range(2)]
    keys = tablet.page.keyboard
    await tablet.page.wait_for_selector(f"{tablet.card(orders[1])} [data-do=accept]:not([aria-disabled])")
    await keys.press("2")
    await keys.press("Enter")
    await tablet.shows(orders[1], "tamam")
    await tablet.page.wait_for_selector(ENABLED.format("on_the_way"))
    monkeypatch.setattr(cards, "HOLD", timedelta(minutes=1))
    await keys.press("Enter")
    await tablet.page.wait_for_selector(ENABLED.format("back"))
    await keys.press("Enter")  # does nothing
    await keys.press("Backspace")
    await tablet.shows(orders[1], "geri alındı")
    await tablet.page.wait_for_selector(ENABLED.format("on_the_way"))
    monkeypatch.setattr(cards, "HOLD", timedelta(milliseconds=200))
    await keys.press("2")
    await keys.press("Enter")
    await tablet.page.wait_for_selector(ENABLED.format("complete"))
    await keys.press("Enter")
    await tablet.page.locator(tablet.card(orders[1])).wait_for(state="detached")
    assert (orders[0].status_id, orders[1].status_id) == (1, 5)


async def test_a_card_keeps_its_number_and_a_free_number_is_not_reused_at_once(counter: Counter):
    """A person who has read 2 and presses it acts on that card, whichever cards came and went meanwhile."""
    tablet = await counter.armed(has_clock=True)
    orders = [await counter.order() for _ in range(3)]
    await tablet.page.wait_for_selector(tablet.card(orders[2]))
    await tablet.page.clock.pause_at(datetime.now().astimezone() + timedelta(seconds=5))
    await tablet.page.mouse.click(2, 2)  # hands are at work
    await counter.run(CANCEL, orders[0].key)
    await tablet.page.locator(".card.gone").wait_for(state="attached")
    orders.append(await counter.order())
    await tablet.page.wait_for_selector(tablet.card(orders[3]))
    await tablet.page.clock.run_for(4_500)  # gaps close
    assert await tablet.page.locator(".card.gone").count() == 0
    shown = dict(await tablet.page.evaluate(SLOTS))
    assert [shown[str(order.key)] for order in orders[1:]] == ["2", "3", "4"]
    await tablet.page.keyboard.press("2")
    await tablet.page.keyboard.press("Enter")
    await tablet.page.clock.run_for(1_000)
    await until(lambda: orders[1].status_id == 2)
    await tablet.page.clock.run_for(6_000)
    orders.append(await counter.order())
    await tablet.page.locator(f"{tablet.card(orders[4])} .slot", has_text="1").wait_for()


async def test_a_failed_tap_stays_visible_until_the_next_and_blocks_no_button(counter: Counter):
    """The person may have turned away; and a customer that cannot be shown locks no card."""
    tablet = await counter.armed(has_clock=True)
    order = await counter.order()
    await counter.run("CREATE TRIGGER t BEFORE INSERT ON delivery_actions BEGIN SELECT RAISE(ABORT, 'no'); END")
    await tablet.accept(order)
    await tablet.shows(order, "İstek anlaşılmadı")
    await tablet.page.clock.run_for(10_000)
    await tablet.shows(order, "İstek anlaşılmadı")
    await counter.run("DROP TRIGGER t")
    await tablet.accept(order)
    await tablet.shows(order, "Kabul (25 dk): tamam")
    await tablet.page.route("**/board/customer*", lambda route: route.abort())
    await tablet.tap(order, "more")
    await tablet.page.locator("dialog", has_text="Gösterilemedi").wait_for()
    await tablet.choose("Kapat")
    await tablet.tap(order, "on_the_way")
    await tablet.page.wait_for_selector(ENABLED.format("complete"))


async def test_a_read_only_tablet_has_no_buttons_and_a_revoked_one_is_silent(counter, world):
    tablet = await counter.tablet()
    await counter.plant("UPDATE delivery_board_devices SET role = 'look'")
    await tablet.arm()
    order = await counter.order()
    await asyncio.to_thread(world.cancel_by_customer, order.key)
    await tablet.page.wait_for_selector(f"{tablet.card(order)}.stop")
    assert await tablet.page.locator(f"{tablet.card(order)} button").count() == 0
    await tablet.hears("cancelled")
    await counter.plant("UPDATE delivery_board_devices SET revoked_utc = paired_utc")
    await tablet.page.wait_for_selector(".pairing")
    await tablet.is_silent()


async def test_a_switch_that_failed_can_be_tapped_again(counter: Counter):
    tablet = await counter.armed()
    await tablet.page.click("#menu")
    switch = tablet.page.locator("button[data-do=close_restaurant]").first
    await tablet.page.route("**/board/act*", lambda route: route.abort())
    for fails in (True, False):
        await switch.click()
        await tablet.choose("Bugün")
        await tablet.page.click("dialog [data-do=confirm]")
        if fails:
            await tablet.page.wait_for_function(FREE_AGAIN)
            await tablet.page.unroute("**/board/act*")
    await tablet.page.locator("button[data-do=open_restaurant]").first.wait_for()
