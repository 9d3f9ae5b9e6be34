"""Rows that no database refuses at the INSERT end with the code that the POS reference lists.

tests/store/test_write_guards.py writes the same rows on each database.
"""

import re
from typing import Any

import pytest
from docs import build
from tests.jobs.conftest import OpenShop
from tests.jobs.shop import Shop, listing

from orderbridge_sandbox.state import Order

NOBODY = "00000000-0000-4000-8000-000000000000"
OURS, OTHERS = 1005, 2005  # foods of Kadıköy and of Beşiktaş
ORDER: dict[str, Any] = {"payment_key": None}  # of the order that is there

ROWS: dict[str, list[dict[str, Any]]] = {
    "order_unknown": [{"action": "complete", "payment_key": NOBODY}],
    "account_needed": [
        {"action": "deactivate_food", "food_id": OURS, "account": "Kadıköy"},
        {"action": "deactivate_food", "food_id": OURS},
    ],
    "food_not_found": [
        {"action": "deactivate_food", "food_id": 999_999, "account": "kadikoy"},
        {"action": "deactivate_food", "food_id": OTHERS, "account": "kadikoy"},
    ],
    "restaurant_unknown": [
        {"action": "close_restaurant", "restaurant_id": NOBODY},
        {"action": "deactivate_food", "food_id": OURS, "restaurant_id": NOBODY},
    ],
    "courier_not_restaurant": [{"action": "on_the_way"} | ORDER],
    "order_completed": [{"action": "cancel", "reason_id": 1} | ORDER],
    "order_cancelled": [{"action": "complete"} | ORDER],
}
DOCUMENTS: dict[str, dict[str, Any]] = {
    "courier_not_restaurant": {"status_id": 2, "courier_type": "platform_courier"},
    "order_completed": {"status_id": 5},
    "order_cancelled": {"status_id": 6},
}


@pytest.mark.parametrize("code", build.REFERENCES)
def test_each_that_the_reference_lists_is_tried(code: str):
    (line,) = re.findall("(?:ends|satır) `refused`[^:]*: (.*)", build.REFERENCES[code].read_text("utf-8"))
    assert re.findall(r"`(\w+)`", re.sub(r"\(.*?\)", "", line)) == list(ROWS)


async def order_for(shop: Shop, code: str) -> Order | None:
    if code not in DOCUMENTS:
        return None
    order = shop.place(**DOCUMENTS[code])
    shop.world.faults.add(listing(order.document))
    await shop.poll()
    return order


@pytest.mark.parametrize("code", ROWS)
async def test_it_ends_with_its_code(code: str, open_shop: OpenShop):
    shop = await open_shop("kadikoy", "besiktas")
    for account in shop.accounts.values():
        account.restaurants_known = True
    order = await order_for(shop, code)
    written = [
        shop.act(
            order=order if "payment_key" in row and order else None, **{k: v for k, v in row.items() if v is not None}
        )
        for row in ROWS[code]
    ]
    await shop.drain()
    assert {shop.end(row)[:2] for row in written} == {("refused", code)}
    if code != "food_not_found":  # which only the service knows
        assert {call.operation for call in shop.world.calls()} <= {"login", "get_current", "acknowledge"}
