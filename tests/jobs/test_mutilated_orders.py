"""One field of an order is invalid: from the answer to what the till sees.

Each list has the mutilated order between two good ones, which come in as ever. What is read of each field,
tests/marketplace/test_order.py has.
"""

import copy
from decimal import Decimal
from typing import Any

import pytest
from tests.jobs.conftest import OpenShop
from tests.jobs.shop import Shop, listing
from tests.marketplace.samples import food

from orderbridge_sandbox import wire
from orderbridge_sandbox.state import Document, Order

MISSING = object()
VALUES: dict[str, object] = {
    "missing": MISSING,
    "null": None,
    "number": 7,
    "text": "metin",
    "true": True,
    "list": ["x"],
    "object": {"x": 1},
    "huge text": "ş" * 100_000,
}


def mutilated(document: Document, path: str, value: object) -> Document:
    """The document with one value in place of another; the path names the members and elements that lead to it."""
    result = copy.deepcopy(document)
    *way, last = path.split(".")
    inner: Any = result
    for step in way:
        inner = inner[int(step)] if step.isdigit() else inner[step]
    if value is MISSING:
        del inner[last]
    else:
        inner[last] = value
    return result


def usual(shop: Shop) -> Order:
    paid = {"total": Decimal("230.50"), "discount": "10.00", "courier_fee": 0, "order_tip": 5}
    return shop.place(foods=[food(price=Decimal("110.25"), total=Decimal("235.50"))], **paid)


async def delivered_between_good_ones(shop: Shop, *documents: Document) -> None:
    """One poll; the good ones before and behind are as ever."""
    good = [usual(shop), usual(shop)]
    shop.world.faults.add(listing(good[0].document, *map(wire.encode, documents), good[1].document))
    assert (await shop.poll()).ok
    for neighbour in good:
        stored = shop.order(neighbour)
        assert (stored["acknowledged_status_id"], stored["problem"]) == (1, None)
        assert shop.one("SELECT count(*) AS n FROM delivery_order_items WHERE payment_key = ?", neighbour.key)["n"] == 1


@pytest.mark.interface("Order")
@pytest.mark.parametrize("served", [*VALUES, "empty text", "no uuid"])
async def test_an_order_without_a_usable_key_is_set_aside_whole_and_comes_in_when_it_has_one(shop: Shop, served: str):
    order = usual(shop)
    value = (VALUES | {"empty text": "", "no uuid": order.key.replace("-", "")})[served]
    document = mutilated(order.document, "payment_key", value)
    await delivered_between_good_ones(shop, document)
    kept = shop.one("SELECT * FROM delivery_quarantine")
    assert kept["payload"] == wire.encode(document).decode()
    nothing = served in {"missing", "null", "empty text"}
    assert kept["reason"] == ("payment_key_missing" if nothing else "payment_key_invalid")
    assert (kept["account"], kept["payment_key"], kept["resolved_utc"]) == ("kadikoy", None, None)
    assert order.key not in {call.argument for call in shop.calls("acknowledge")}
    assert shop.count("delivery_orders") == 2
    await shop.poll()
    assert shop.order(order)["acknowledged_status_id"] == 1


async def test_what_reads_as_an_order_is_accepted_by_itself_and_what_was_guessed_is_not(open_shop: OpenShop):
    """The whole way: lists by number are lines, and what is empty in another type stops nothing."""
    shop = await open_shop(auto_accept_minutes=20)
    one = food(option_groups=[], price=120, quantity=1, total=120)
    plain = {"total": 240, "discount": "0.00", "courier_fee": 0, "order_tip": 0, "foods": [one, one]}
    accepted = {
        "by number": {"foods": {"0": one, "2": one}},
        "no time": {"scheduled_date": "0000-00-00 00:00:00"},
        "empty": {"address": [], "customer": [], "note": False, "foods": [one, one | {"option_groups": {}}]},
        "half": {"foods": [one | {"quantity": Decimal("1.5"), "total": 180}], "total": 180},
    }
    looked_at = {
        "unknown shape": {"foods": {"urun": "Adana"}},
        "nameless": {"foods": [one, one | {"name": ""}]},
        "two amounts": {"total": "1.250"},
        "unreadable time": {"scheduled_date": "yarın 19:30"},
    }
    placed = {name: shop.place(**plain | changes) for name, changes in (accepted | looked_at).items()}
    await shop.poll()
    rows = shop.rows("SELECT payment_key FROM delivery_actions WHERE action = 'accept'")
    assert {row["payment_key"] for row in rows} == {placed[name].key for name in accepted}
    assert {name for name, order in placed.items() if shop.order(order)["problem"]} == set(looked_at)
    lines = "SELECT quantity FROM delivery_order_items WHERE payment_key = ?"
    assert [row["quantity"] for row in shop.rows(lines, placed["half"].key)] == [1.5]
    assert len(shop.rows(lines, placed["by number"].key)) == 2
