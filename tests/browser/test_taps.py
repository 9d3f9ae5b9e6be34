"""What a tap brings about, and what it never does: two rows, a wrong order, a success that is none."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.browser.counter import Browser, Counter, Tablet, opened
from tests.test_daemon import UNTIL_CLEARED_S, Till, certificates, sandbox, till, until, world

from orderbridge.sandbox import Fault, Sandbox, World

__all__ = ["certificates", "sandbox", "till", "world"]

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

# Taps as quick as they can be, on what is there and on what has been taken away meanwhile.
TAPS = """(what) => {
  const button = document.querySelector(`.card button[data-do=${what}]`);
  for (let tap = 0; tap < 10; tap++) {
    button.click();
    document.querySelector(`.card button[data-do=${what}]`)?.click();
  }
}"""
# The same without a page that holds back: what any two tablets can send.
SENDS = """(values) => Promise.all(Array.from({ length: 10 }, () => fetch("/board/act", {
  method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(values),
}).then((answer) => answer.status)))"""
ROWS = "SELECT action, state, created_by FROM delivery_actions ORDER BY id"
CANCEL = "INSERT INTO delivery_actions (action, payment_key, reason_id) VALUES ('cancel', ?, 3)"  # as the till does
PLACES = """() => [...document.querySelectorAll(".card")].map((card) => {
  const { x, y, width, height } = card.getBoundingClientRect();
  return [card.dataset.key, x, y, width, height];
})"""


@pytest_asyncio.fixture(loop_scope="session")
async def counter(sandbox: Sandbox, till: Till, chromium: Browser) -> AsyncIterator[Counter]:
    async with opened(sandbox, till, chromium) as counter:
        yield counter


async def test_twenty_taps_on_two_tablets_are_one_row_and_show_the_verdict_when_it_is_known(
    counter: Counter, till: Till, world: World
):
    tablets = [await counter.tablet("Tezgâh"), await counter.tablet("Mutfak")]
    for tablet in tablets:
        await tablet.arm()
    order = await counter.order()
    for tablet in tablets:
        await tablet.page.wait_for_selector(tablet.card(order))
    world.faults.add(Fault.delay("accept", UNTIL_CLEARED_S))
    accept = {"action": "accept", "payment_key": order.key, "preparing_time": 25, "revision": 1, "tries": 0}
    answers = await asyncio.gather(*(tablet.page.evaluate(SENDS, accept) for tablet in tablets))
    assert {status for found in answers for status in found} == {200}
    await until(lambda: world.calls("accept"))
    for tablet in tablets:
        await tablet.shows(order, "Gönderiliyor: Kabul (25 dk)")
        assert "tamam" not in await verdict(tablet)
    world.faults.clear()
    for tablet in tablets:
        await tablet.shows(order, "Kabul (25 dk): tamam")
    world.faults.add(Fault.delay("on_the_way", UNTIL_CLEARED_S))
    await asyncio.gather(*(tablet.page.evaluate(TAPS, "on_the_way") for tablet in tablets))
    for tablet in tablets:
        await tablet.shows(order, "Gönderiliyor: Yola çıktı")
        assert await tablet.page.locator("[data-do=on_the_way]:not([disabled])").count() == 0
    world.faults.clear()
    for tablet in tablets:
        await tablet.shows(order, "Yola çıktı: tamam")
    rows = await asyncio.to_thread(till.rows, ROWS)
    assert [(row["action"], row["state"]) for row in rows] == [("accept", "done"), ("on_the_way", "done")]
    assert {row["created_by"] for row in rows} <= {"Tezgâh", "Mutfak"}


async def test_a_choice_is_about_what_was_seen_when_the_question_came(counter: Counter, till: Till, world: World):
    """Somebody else's accept ends while the minutes are being chosen: the choice asks for no second one."""
    slow, quick = [await counter.tablet("Tezgâh"), await counter.tablet("Mutfak")]
    for tablet in (slow, quick):
        await tablet.arm()
    order = await counter.order()
    await slow.tap(order, "accept")
    world.faults.add(Fault.error("accept", 400, "invalid_status", "Bu sipariş kabul edilemez"))
    await quick.accept(order)
    for tablet in (quick, slow):
        await tablet.page.locator(".card .verdict.refused").wait_for()
    async with slow.page.expect_response("**/board/act*"):
        await slow.choose("25 dk")
    rows = await asyncio.to_thread(till.rows, ROWS)
    assert [(row["action"], row["created_by"]) for row in rows] == [("accept", "Mutfak")]


async def verdict(tablet: Tablet) -> str:
    return await tablet.page.locator(".card .verdict").text_content() or ""


async def test_what_the_service_refuses_is_said_and_can_be_tried_again(counter: Counter, till: Till, world: World):
    """The next tap is another row."""
    tablet = await counter.tablet()
    await tablet.arm()
    order = await counter.order()
    world.faults.add(Fault.error("accept", 400, "invalid_status", "Bu sipariş kabul edilemez"))
    await tablet.accept(order)
    await tablet.page.locator(".card .verdict.refused").wait_for()
    assert len(await verdict(tablet)) > len("Kabul (25 dk): kabul edilmedi ")  # and why
    await tablet.hears("new")  # it was no answer
    await tablet.accept(order)
    await tablet.shows(order, "Kabul (25 dk): tamam")
    rows = await asyncio.to_thread(till.rows, ROWS)
    assert [row["state"] for row in rows] == ["refused", "done"]


async def test_an_accept_is_taken_back_while_it_waits(counter: Counter, till: Till, world: World):
    tablet = await counter.tablet()
    await tablet.arm()
    order = await counter.order()
    world.faults.add(Fault.too_many("accept", times=None))
    await tablet.accept(order)
    await tablet.tap(order, "back")
    await tablet.shows(order, "geri alındı")
    await tablet.hears("new")
    world.faults.clear()
    assert order.status_id == 1
    assert (await asyncio.to_thread(till.rows, ROWS))[0]["state"] == "withdrawn"


async def test_a_cancel_takes_two_steps_and_the_services_reasons(counter: Counter, till: Till):
    tablet = await counter.tablet()
    await tablet.arm()
    order = await counter.order()
    await tablet.tap(order, "cancel")
    reasons = await asyncio.to_thread(till.rows, "SELECT reason FROM delivery_cancel_reasons ORDER BY id")
    choices = await tablet.page.locator("dialog [data-do=choose]").all_text_contents()
    assert choices == [row["reason"] for row in reasons]
    await tablet.choose("Vazgeç")
    assert await asyncio.to_thread(till.rows, ROWS) == []
    await tablet.tap(order, "cancel")
    await tablet.choose(choices[2])
    await tablet.page.locator(tablet.card(order)).wait_for(state="detached")
    assert (order.status_id, order.reason_id) == (6, 3)
    await tablet.is_silent()


async def test_nothing_moves_under_a_finger(counter: Counter, till: Till):
    """A new card comes last. One that ends leaves its place empty until no hand has been near for a while."""
    tablet = await counter.tablet()
    await tablet.page.clock.install()
    await tablet.arm()
    orders = [await counter.order(note="Zil bozuk") for _ in range(4)]
    await tablet.page.wait_for_selector(tablet.card(orders[-1]))
    before = await tablet.page.evaluate(PLACES)
    await tablet.page.mouse.move(600, 300)
    await tablet.page.mouse.down()  # and stays down
    newest = await counter.order()
    await tablet.page.wait_for_selector(tablet.card(newest))
    assert (await tablet.page.evaluate(PLACES))[: len(before)] == before
    await asyncio.to_thread(till.run, CANCEL, orders[0].key)
    await tablet.page.locator(f"{tablet.card(orders[0])}.gone").wait_for(state="attached")
    after = await tablet.page.evaluate(PLACES)
    assert after[1 : len(before)] == before[1:]
    await tablet.page.clock.run_for(10_000)
    assert (await tablet.page.evaluate(PLACES))[1 : len(before)] == before[1:]
    await tablet.page.mouse.up()
    await tablet.page.clock.run_for(2_000)
    assert await tablet.page.locator(".gone").count() == 1
    await tablet.page.clock.run_for(4_000)
    assert await tablet.page.locator(".gone").count() == 0


async def test_a_bump_bar_does_all_of_it(counter: Counter, till: Till):
    """1 to 9 choose a card, Enter does the usual thing."""
    tablet = await counter.tablet()
    await tablet.arm()
    orders = [await counter.order() for _ in range(2)]
    await tablet.page.wait_for_selector(tablet.card(orders[1]))
    keys = tablet.page.keyboard
    await keys.press("2")
    await keys.press("Enter")
    await tablet.page.wait_for_selector("dialog")
    assert await asyncio.to_thread(till.rows, ROWS) == []
    await keys.press("Enter")  # the usual minutes
    await tablet.shows(orders[1], "tamam")
    await keys.press("2")
    await keys.press("Enter")
    await tablet.shows(orders[1], "Yola çıktı: tamam")
    await keys.press("Enter")
    await tablet.page.locator(tablet.card(orders[1])).wait_for(state="detached")
    assert (orders[0].status_id, orders[1].status_id) == (1, 5)
