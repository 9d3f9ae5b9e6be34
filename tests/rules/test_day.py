"""A business day: where it begins and ends, and which order counts for which sum."""

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from orderbridge.rules.business_day import bounds, difference, present, sums_of

ISTANBUL, BERLIN = ZoneInfo("Europe/Istanbul"), ZoneInfo("Europe/Berlin")
FOUR = time(4)


def sold(**changes: Any) -> SimpleNamespace:
    values: dict[str, Any] = {
        "order_number": 1, "pos_reference": None, "account": "kadikoy", "restaurant_id": "r",
        "restaurant_name": "Kadıköy", "status": "COMPLETE_WITH_PAYMENT", "payment_code": "CASH",
        "amount_due": Decimal("10.10"), "total": Decimal("10.10"), "discount": Decimal("1.05"),
        "order_tip": Decimal("0.10"), "pos_revision": 1, "pos_total": None,
    }  # fmt: skip
    return SimpleNamespace(**values | changes)


def card(**changes: Any) -> SimpleNamespace:
    return sold(**{"payment_code": "CREDIT_CARD", "amount_due": Decimal(0)} | changes)


@pytest.mark.parametrize("order, filled", [
    *((one, {"completed", "cash", "discount", "tips"}) for one in (sold(), sold(status="COMPLETE_NEEDS_PAYMENT"))),
    (card(), {"completed", "prepaid", "discount", "tips"}),
    (sold(payment_code=None, amount_due=None), {"completed", "payment_unknown", "discount", "tips"}),
    (sold(status="CANCELED"), {"cancelled"}), (sold(status="CANCELED", total=None, amount_due=None), {"cancelled"}),
    (sold(status="CANCELED", pos_revision=0), {"cancelled", "never_taken_over"}),
    (sold(status="IN_DELIVERY"), {"unfinished", "cash_unfinished"}),
    (card(status="CONFIRMED"), {"unfinished", "prepaid_unfinished"}),
    (sold(status="UNKNOWN", payment_code=None, amount_due=None), {"unfinished"}),
    (sold(total=None, amount_due=None, discount=None, order_tip=None), {"completed", "without_amount"}),
    (sold(pos_total=Decimal("10.10")), {"completed", "cash", "discount", "tips", "with_pos_total"}),
    (sold(status="CANCELED", pos_total=Decimal("10.10")), {"cancelled", "with_pos_total", "difference"}),
])  # fmt: skip
def test_how_an_order_counts_in_the_sums(order: SimpleNamespace, filled: set[str]):
    sums = sums_of([order])
    assert (sums["orders"], {name for name, figure in sums.items() if figure}) == (1, filled | {"orders"})


def test_sums_are_exact():
    assert sums_of(sold(amount_due=Decimal("0.10")) for _ in range(30_000))["cash"] == Decimal("3000.00")


@pytest.mark.parametrize("booked, beyond", [
    (None, None), ("10.10", "0.00"), ("10.1000", "0.00"), ("10.1001", "0.00"), ("10.11", "0.01"), ("0", "-10.10"),
])  # fmt: skip
def test_the_poss_total_is_compared_in_cents(booked: str | None, beyond: str | None):
    order = sold(pos_total=None if booked is None else Decimal(booked))
    assert difference(order) == (None if beyond is None else Decimal(beyond))
    assert sums_of([order])["difference"] == Decimal(beyond or 0)


@pytest.mark.parametrize("now, day", [
    ("2026-03-01T00:59:59", "2026-02-28"), ("2026-03-01T01:00:00", "2026-03-01"), ("2026-03-01T22:30", "2026-03-01"),
])  # fmt: skip
def test_a_time_before_the_cut_belongs_to_the_previous_day(now: str, day: str):
    assert present(datetime.fromisoformat(now).replace(tzinfo=UTC), ISTANBUL, FOUR) == date.fromisoformat(day)


@pytest.mark.parametrize("zone, day, cut, hours", [
    (ISTANBUL, date(2026, 3, 29), FOUR, 24), (BERLIN, date(2026, 3, 28), FOUR, 23),
    (BERLIN, date(2026, 3, 29), FOUR, 24), (BERLIN, date(2026, 10, 24), FOUR, 25),
    (BERLIN, date(2026, 3, 29), time(2, 30), 23),  # an hour that is not there
])  # fmt: skip
def test_the_days_follow_each_other_without_a_gap(zone: ZoneInfo, day: date, cut: time, hours: int):
    begin, end = bounds(day, zone, cut)
    assert ((end - begin) / timedelta(hours=1), bounds(day + timedelta(days=1), zone, cut)[0]) == (hours, end)
