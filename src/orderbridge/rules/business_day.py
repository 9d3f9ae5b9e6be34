"""A business day in figures: which order counts for which sum is decided here, and only here.

- `completed`: COMPLETE_WITH_PAYMENT or COMPLETE_NEEDS_PAYMENT. Only their money is to hand in.
- `cancelled`: CANCELED. No money.
- `unfinished`: everything else, also what ended by silence: pickup and platform couriers have no documented completion
  (docs/interface.md). Their money is shown apart, and a person decides.

A day's orders are those received here from its cut to the next one. Sums are exact. An order is any object with the
columns of delivery_orders that `orderbridge.store.overview.received` reads.
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
COUNTS = ("orders", "completed", "unfinished", "cancelled", "never_taken_over", "without_amount", "pos_told")
AMOUNTS = (
    "cash",  # amount_due of completed orders in CASH: to hand in
    "prepaid",  # total of completed orders that were paid by card in advance
    "payment_unknown",  # total of completed orders whose payment method is in no list
    "discount",  # of completed orders
    "tips",  # of completed orders
    "cash_unfinished",
    "prepaid_unfinished",
    "difference",  # what the POS booked beyond what it should; of the orders whose `pos_total` it wrote
)
_PARTS = {
    STATUS_NAMES[COMPLETE_WITH_PAYMENT]: "completed",
    NEEDS_PAYMENT: "completed",
    STATUS_NAMES[CANCELED]: "cancelled",
}

Sums = dict[str, int | Decimal]


def sums_of(orders: Iterable[Any]) -> Sums:
    """Every figure of these orders, by its name."""
    sums: Sums = dict.fromkeys(COUNTS, 0) | dict.fromkeys(AMOUNTS, ZERO)
    for order in orders:
        for name, amount in _adds(order):
            sums[name] += amount or 0
    return sums


def _adds(order: Any) -> Iterator[tuple[str, Decimal | int | None]]:
    """To which figures it adds how much."""
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
        yield from (("pos_told", 1), ("difference", difference(order)))


def expected(order: Any) -> Decimal | None:
    """What a till should have booked: nothing for a cancelled order. None: the total could not be read."""
    total: Decimal | None = ZERO if _PARTS.get(order.status) == "cancelled" else order.total
    return total


def difference(order: Any) -> Decimal | None:
    """What the POS booked beyond what it should, in cents; None when one of the two is not known."""
    wanted, booked = expected(order), order.pos_total
    return None if wanted is None or booked is None else Decimal(booked - wanted).quantize(CENT)


def present(now: datetime, zone: ZoneInfo, cut: time) -> date:
    """The business day that it is now: before the cut it is still yesterday's."""
    local = now.astimezone(zone)
    return local.date() if local.time() >= cut else local.date() - timedelta(days=1)


def bounds(day: date, zone: ZoneInfo, cut: time) -> tuple[datetime, datetime]:
    """From its cut to the next one, in UTC: 23 or 25 hours where the clocks are changed."""
    begin, end = (datetime.combine(one, cut, tzinfo=zone).astimezone(UTC) for one in (day, day + timedelta(days=1)))
    return begin, end
