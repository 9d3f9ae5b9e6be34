"""Amounts that do not add up are reported, and correct ones never are, in each reading of the interface."""

from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.marketplace.samples import CODES, food, listing, order, text

from orderbridge.marketplace.documents import read_listing, read_order

CENT = Decimal("0.01")


def problems(document: Any) -> tuple[str, ...]:
    (found,) = read_listing(listing(document if isinstance(document, str) else text(document)))
    return read_order(found, payment_codes=CODES).problems


def option(price: object = 15, operation: str | None = "+") -> dict[str, Any]:
    return {"id": 3, "name": "İçecek", "operation": operation, "options": {"id": 7, "name": "Ayran", "price": price}}


RIGHT: list[dict[str, Any]] = [
    {"total": 225.5}, {"courier_fee": 20, "total": 250.5}, {"discount": "-10.00"}, {"discount": "500", "total": 0},
    {"total": 0, "payment_method": "Kredi Kartı"}, {"total": 230.52}, {"foods": [food(total=235.48)], "total": 230.48},
    {"foods": [food(option_groups=[{"id": 3, "name": "İçecek"}], total=220.5)], "total": 215.5},
    *({name: None} for name in ("total", "discount", "courier_fee", "order_tip", "foods")),
    *({"foods": [food(**{name: None})], "total": 230.5} for name in ("price", "quantity", "total")),
    {"foods": [food(option_groups=[option(None)], total=1)], "total": -4},
    {"foods": [food(option_groups=[option(15, "-")], total=205.5)], "total": 200.5},
    {"foods": [food(), 5], "total": 1000}, {"foods": [food(option_groups=["x"], total=1)], "total": -4},
]  # fmt: skip


@pytest.mark.parametrize("changes", RIGHT, ids=str)
def test_sums_that_can_be_right_are_never_reported(changes: dict[str, Any]) -> None:
    assert not [code for code in problems(order(**changes)) if code.startswith("total_mismatch")]


@pytest.mark.parametrize("changes, code", [
    ({"total": 230.53}, "total_mismatch:total"), ({"total": 1000}, "total_mismatch:total"),
    ({"total": 240.5}, "total_mismatch:total"),  # the discount forgotten
    ({"total": 0}, "total_mismatch:total"),  # in cash
    ({"discount": "0"}, "total_mismatch:total"), ({"foods": [food(quantity=3)]}, "total_mismatch:line_1"),
    ({"foods": [food(), food(price=11)], "total": 466.0}, "total_mismatch:line_2"),
    ({"foods": [food(price=1), food(price=2)], "total": 1}, "total_mismatch:line_1 total_mismatch:total"),
])  # fmt: skip
def test_sums_that_no_reading_explains_are_reported(changes: dict[str, Any], code: str) -> None:
    assert " ".join(problems(order(**changes))) == code


amounts = st.decimals(0, 5000, places=2)
fine_amounts = st.decimals(0, 5000, places=4)


@st.composite
def right_orders(draw: st.DrawFn) -> dict[str, Any]:
    """Orders that add up under one of the open readings, every amount rounded to cents as it is shown."""
    each, with_fee, with_tip, exact = (draw(st.booleans()) for _ in range(4))
    prices = amounts if exact else fine_amounts
    foods, goods = [], Decimal(0)
    for _ in range(draw(st.integers(1, 5))):
        price, quantity = draw(prices), draw(st.integers(1, 9))
        extras = draw(st.lists(amounts, max_size=3))
        total = price * quantity + sum(extras) * (quantity if each else 1)
        goods += total
        groups = [option(str(extra)) for extra in extras]
        foods.append(food(price=cents(price), quantity=quantity, total=cents(total), option_groups=groups))
    fee, tip, discount = draw(amounts), draw(amounts), min(draw(amounts), goods)
    total = goods - discount + (fee if with_fee else 0) + (tip if with_tip else 0)
    paid = {"courier_fee": cents(fee), "order_tip": cents(tip), "discount": cents(discount), "total": cents(total)}
    return order(foods=foods, **paid)


def cents(amount: Decimal) -> str:
    return str(amount.quantize(CENT, rounding=ROUND_HALF_UP))


@given(right_orders())
def test_no_right_order_is_reported_under_any_reading(document: dict[str, Any]) -> None:
    assert problems(document) == ()
