"""Decides which order counts for which sum of a business day.

- `completed`: COMPLETE_WITH_PAYMENT or COMPLETE_NEEDS_PAYMENT. Only these count as money to hand in.
- `cancelled`: CANCELED. No money.
- `unfinished`: all others, including orders that ended by silence, because pickup and platform couriers have no
  documented completion (docs/interface.md). Their money is listed separately, for a person to decide.

A day has the orders received from its cut to the next one. Sums are exact. An order is any object with the columns that
`orderbridge.store.overview.received` reads.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from orderbridge.model import CANCELED, CASH, COMPLETE_WITH_PAYMENT, PREPAID
from orderbridge.rules.lifecycle import NEEDS_PAYMENT, STATUS_NAMES

CENT = Decimal("0.01")
ZERO = Decimal("0.00")
COUNTS = ("orders", "completed", "unfinished", "cancelled", "never_taken_over", "without_amount", "with_pos_total")
AMOUNTS = (
    "cash",  # amount_due of completed orders in CASH, to hand in
    "prepaid",  # total of completed orders that were prepaid by card
    "payment_unknown",  # total of completed orders with an unknown payment method
    "discount",  # of completed orders
    "tips",  # of completed orders
    "cash_unfinished",
    "prepaid_unfinished",
    "difference",  # booked minus expected, of orders with a `pos_total`
)
_PARTS = {
    STATUS_NAMES[COMPLETE_WITH_PAYMENT]: "completed",
    NEEDS_PAYMENT: "completed",
    STATUS_NAMES[CANCELED]: "cancelled",
}

Sums = dict[str, int | Decimal]


def sums_of(orders: Iterable[Any]) -> Sums:
    """All figures of these orders by name."""
    sums: Sums = dict.fromkeys(COUNTS, 0) | dict.fromkeys(AMOUNTS, ZERO)
    for order in orders:
        for name, amount in _adds(order):
            sums[name] += amount or 0
    return sums


def _adds(order: Any) -> Iterator[tuple[str, Decimal | int | None]]:
    """The figures that an order adds to, with the amounts."""
    part = _PARTS.get(order.status, "unfinished")
    paid = {CASH: "cash", **dict.fromkeys(PREPAID, "prepaid")}.get(order.payment_code, "payment_unknown")
    amount = order.amount_due if paid == "cash" else order.total
    yield "orders", 1
    yield part, 1
    yield "never_taken_over", order.pos_revision == 0
    yield "without_amount", part != "cancelled" and order.total is None
    if part == "completed":
        yield from ((paid, amount), ("discount", order.discount), ("tips", order.order_tip))
    elif part == "unfinished" and paid != "payment_unknown":
        yield f"{paid}_unfinished", amount
    if order.pos_total is not None:
        yield from (("with_pos_total", 1), ("difference", difference(order)))


def expected(order: Any) -> Decimal | None:
    """The amount that a till should have booked: 0 for a cancelled order, None if the total is unknown."""
    total: Decimal | None = ZERO if _PARTS.get(order.status) == "cancelled" else order.total
    return total


def difference(order: Any) -> Decimal | None:
    """The booked minus the expected amount; None if one of them is unknown."""
    wanted, booked = expected(order), order.pos_total
    return None if wanted is None or booked is None else Decimal(booked - wanted).quantize(CENT)


def present(now: datetime, zone: ZoneInfo, cut: time) -> date:
    """The current business day; before the cut it is still yesterday's."""
    local = now.astimezone(zone)
    return local.date() if local.time() >= cut else local.date() - timedelta(days=1)


def bounds(day: date, zone: ZoneInfo, cut: time) -> tuple[datetime, datetime]:
    """The day's beginning and end in UTC. With a change of the clocks it has 23 or 25 hours."""
    begin, end = (datetime.combine(one, cut, tzinfo=zone).astimezone(UTC) for one in (day, day + timedelta(days=1)))
    return begin, end
