"""A business day in figures: which orders count for which sum is decided here, and only here.

- `completed`: COMPLETE_WITH_PAYMENT or COMPLETE_NEEDS_PAYMENT. Only their money is to hand in.
- `cancelled`: CANCELED. No money.
- `unfinished`: everything else, also what ended by silence: pickup and platform couriers have no documented completion
  (docs/interface.md). Their money is shown apart, and a person decides.

A day's orders are those received here from its cut to the next one. Sums are exact.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import StrEnum
from zoneinfo import ZoneInfo

from orderbridge.model import CANCELED, CASH, COMPLETE_WITH_PAYMENT, PREPAID
from orderbridge.rules.statuses import NEEDS_PAYMENT, STATUS_NAMES

CENT = Decimal("0.01")
ZERO = Decimal("0.00")
COMPLETED = frozenset({STATUS_NAMES[COMPLETE_WITH_PAYMENT], NEEDS_PAYMENT})


class Part(StrEnum):
    """What became of an order."""

    COMPLETED = "completed"
    UNFINISHED = "unfinished"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Sold:
    """One order of the day, as delivery_orders has it."""

    order_number: int | None
    pos_reference: str | None
    account: str
    restaurant_id: str | None
    restaurant_name: str | None
    status: str
    payment_code: str | None
    amount_due: Decimal | None
    total: Decimal | None
    discount: Decimal | None
    order_tip: Decimal | None
    pos_revision: int
    pos_total: Decimal | None


@dataclass(slots=True)
class Sums:
    """Counts and amounts of a day, in the order in which `orderbridge day` shows them."""

    orders: int = 0
    completed: int = 0
    unfinished: int = 0
    cancelled: int = 0
    never_taken_over: int = 0
    cash: Decimal = ZERO  # amount_due of completed orders in CASH: to hand in
    prepaid: Decimal = ZERO  # total of completed orders that were paid by card in advance
    payment_unknown: Decimal = ZERO  # total of completed orders whose payment method is in no list
    discount: Decimal = ZERO  # of completed orders
    tips: Decimal = ZERO  # of completed orders
    cash_unfinished: Decimal = ZERO  # amount_due of unfinished orders in CASH
    prepaid_unfinished: Decimal = ZERO
    without_amount: int = 0  # orders, not cancelled, whose total could not be read: in no sum
    pos_told: int = 0  # orders of which the POS has said what it booked
    difference: Decimal = ZERO  # what the POS booked beyond it; of those orders

    def add(self, order: Sold) -> None:
        """Count one order."""
        part = part_of(order.status)
        self.orders += 1
        setattr(self, part, getattr(self, part) + 1)
        self.never_taken_over += order.pos_revision == 0
        self.without_amount += part is not Part.CANCELLED and order.total is None
        match part:
            case Part.COMPLETED:
                self._take(order)
            case Part.UNFINISHED if order.payment_code == CASH:
                self.cash_unfinished += order.amount_due or ZERO
            case Part.UNFINISHED if order.payment_code in PREPAID:
                self.prepaid_unfinished += order.total or ZERO
            case _:
                pass
        if order.pos_total is not None:
            self.pos_told += 1
            self.difference += difference(order) or ZERO

    def _take(self, order: Sold) -> None:
        self.discount += order.discount or ZERO
        self.tips += order.order_tip or ZERO
        if order.payment_code == CASH:
            self.cash += order.amount_due or ZERO
        elif order.payment_code in PREPAID:
            self.prepaid += order.total or ZERO
        else:
            self.payment_unknown += order.total or ZERO


def part_of(status: str) -> Part:
    """Which part of the day's orders this one is in."""
    if status in COMPLETED:
        return Part.COMPLETED
    return Part.CANCELLED if status == STATUS_NAMES[CANCELED] else Part.UNFINISHED


def expected(order: Sold) -> Decimal | None:
    """What a till should have booked: nothing for a cancelled order. None: the total could not be read."""
    return ZERO if part_of(order.status) is Part.CANCELLED else order.total


def difference(order: Sold) -> Decimal | None:
    """What the POS booked beyond what it should, in cents; None when it said nothing, or nothing can be said."""
    wanted = expected(order)
    if order.pos_total is None or wanted is None:
        return None
    return (order.pos_total - wanted).quantize(CENT)


@dataclass(slots=True)
class Day:
    """All of it: in total, for each account and restaurant, and the orders that the POS booked otherwise."""

    total: Sums
    restaurants: dict[tuple[str, str], tuple[str, Sums]]  # by account and restaurant id: its name, its sums
    differing: list[Sold]


def counted(orders: Iterable[Sold]) -> Day:
    """A day's orders in figures."""
    day = Day(Sums(), {}, [])
    for order in orders:
        day.total.add(order)
        place = (order.account, order.restaurant_id or "")
        name, sums = day.restaurants.setdefault(place, (order.restaurant_name or "", Sums()))
        sums.add(order)
        if name == "" and order.restaurant_name:
            day.restaurants[place] = order.restaurant_name, sums
        if difference(order):
            day.differing.append(order)
    return day


def present(now: datetime, zone: ZoneInfo, cut: time) -> date:
    """The business day that it is now: before the cut it is still yesterday's."""
    local = now.astimezone(zone)
    return local.date() if local.time() >= cut else local.date() - timedelta(days=1)


def bounds(day: date, zone: ZoneInfo, cut: time) -> tuple[datetime, datetime]:
    """From its cut to the next one, in UTC: 23 or 25 hours where the clocks are changed."""
    begin, end = (datetime.combine(one, cut, tzinfo=zone).astimezone(UTC) for one in (day, day + timedelta(days=1)))
    return begin, end
