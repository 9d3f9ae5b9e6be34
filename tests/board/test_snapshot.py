"""The state that a page gets, from the tables alone."""

from datetime import timedelta

import pytest
from tests.board.tablets import CLOCK, Shop, Tablet
from tests.store.samples import KEY, RESTAURANT, put, put_action, put_order

from orderbridge.rules.problems import Code, Problem, Severity
from orderbridge.store.ddl import time_text
from orderbridge.texts import text
from orderbridge_board import cards
from orderbridge_board.devices import ACT, LOOK


@pytest.mark.parametrize("language", ["tr", "en"])
async def test_a_verdict_is_in_the_language_of_the_reader(shop: Shop, tablet: Tablet, language: str):
    """The language configured at the write does not matter. A verdict stored without facts is shown as written."""
    put_order(shop.pos)
    put_action(shop.pos, state="refused", error_text="yazılmış")
    known = "courier_not_restaurant"
    for code, shown in ((known, text(known, language)), ("bad_arguments", "yazılmış")):
        shop.pos.execute("UPDATE delivery_actions SET error_code = ?", (code,))
        (order,) = (await tablet.get(f"/board/state?language={language}")).data["orders"]
        assert order["row"]["text"] == shown


@pytest.mark.parametrize("read", [0, 2], ids=["unread", "read by a till"])
async def test_a_cancelled_card_is_on_the_page_for_hours_or_until_it_is_touched(shop: Shop, tablet: Tablet, read: int):
    since = time_text(CLOCK.now() - timedelta(hours=11))
    gone = {"status": "CANCELED", "status_id": 6, "ended_by": "cancelled", "ended_utc": since, "changed_utc": since}
    put_order(shop.pos, **gone, payload="{}", revision=2, pos_revision=read)
    (card,) = (await tablet.get("/board/state")).data["orders"]
    assert (card["key"], card["stop"]) == (KEY, True)
    await tablet.post("seen", {"subjects": [cards.silence_of("cancelled", KEY)]})
    assert (await tablet.get("/board/state")).data["orders"] == []


async def test_restaurants_that_are_closed_are_named_on_every_page(shop: Shop, tablet: Tablet):
    for number, status in enumerate(("Closed", "Open", None)):
        values = {"account": "k", "name": f"Şube {number}"} | ({"status": status} if status else {})
        values |= {"status_since_utc": "2026-03-01 18:05:00.000", "status_by": "Ayşe"}
        put(shop.pos, "delivery_restaurants", id=str(number), **values)
    for page in ("state", "technician"):
        assert (await tablet.get(f"/board/{page}")).data["closed"] == ["Şube 0 (01.03. 21:05, Ayşe)"]


async def test_a_tap_whose_row_a_trigger_drops_is_an_error(shop: Shop, tablet: Tablet):
    put_order(shop.pos)
    shop.pos.execute("CREATE TRIGGER theirs BEFORE INSERT ON delivery_actions BEGIN SELECT RAISE(IGNORE); END")
    tap = {"action": "accept", "payment_key": KEY, "preparing_time": 20, "tries": 0, "revision": 1}
    answer = await tablet.post("act", tap)
    assert (answer.status, answer.data["error"]) == (503, "left_out")


async def test_the_technicians_page_names_orders_by_number_and_lists_the_tablets(shop: Shop, tablet: Tablet):
    put_order(shop.pos, order_number="100014")
    closed = {"name": "Şube", "since": "", "who": ""}
    shop.problems = [
        Problem(Code.UNANSWERED, KEY, CLOCK.now(), Severity.SEVERE, facts={"minutes": "7"}),
        Problem(Code.RESTAURANT_CLOSED, RESTAURANT, CLOCK.now(), Severity.WARNING, facts=closed),
        Problem(Code.POLL_FAILING, "kadikoy", CLOCK.now(), Severity.SEVERE),
    ]
    kitchen = Tablet(tablet.address, shop.pair(LOOK, "Mutfak"))
    assert (await tablet.post("here", {"audible": True})).status == 200
    shown = (await kitchen.get("/board/technician")).data
    assert [one["who"] for one in shown["problems"]] == ["#100014", "Şube", "kadikoy"]
    listed = [(one["name"], one["role"], one["audible"], bool(one["seen_utc"])) for one in shown["tablets"]]
    assert sorted(listed) == [("Kasa", ACT, True, True), ("Mutfak", LOOK, False, True)]
