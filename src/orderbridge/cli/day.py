"""The day's figures: `orderbridge day`. What counts for which sum, rules.day decides."""

from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import click

from orderbridge.cli.common import Context, as_json, show_json, table
from orderbridge.clock import YEARS
from orderbridge.texts import say, spoken

if TYPE_CHECKING:
    from orderbridge.rules.day import Day, Sold, Sums

pass_context = click.make_pass_decorator(Context)

MOST_LINES = 20  # of restaurants, and of differences, on the screen; --json has them all
IF_ANY = ("payment_unknown", "cash_unfinished", "prepaid_unfinished", "without_amount")
_COUNTS = ("orders", "completed", "unfinished", "cancelled", "never_taken_over")
SHOWN = (*_COUNTS, "cash", "prepaid", "payment_unknown", "discount", "tips", *IF_ANY[1:])


@click.command("day")
@click.argument("day", type=click.DateTime(["%Y-%m-%d", "%d.%m.%Y"]), required=False, metavar="[DATE]")
@click.option(
    "--cut",
    type=click.DateTime(["%H:%M"]),
    default="04:00",
    show_default=True,
    metavar="HH:MM",
    help="When a business day begins, local time.",
)
@as_json
@pass_context
def day_command(context: Context, day: datetime | None, cut: datetime, as_json: bool) -> None:
    """The day's orders, cash to hand in, prepaid, discounts, tips, cancelled, differences. DATE: 2026-03-01; else today.

    A business day goes from 04:00 to 04:00. Nothing is written.
    """
    from zoneinfo import ZoneInfo

    from orderbridge.clock import SystemClock
    from orderbridge.rules import day as rules
    from orderbridge.store import day as store

    zone = ZoneInfo(context.settings.marketplace.timezone)
    chosen = rules.present(SystemClock().now(), zone, cut.time()) if day is None else day.date()
    if chosen.year not in YEARS:
        raise click.BadParameter(say("day.no_year", date=chosen))
    begin, end = rules.bounds(chosen, zone, cut.time())
    found = context.read(lambda tx: rules.counted(rules.Sold(*row) for row in store.received(tx, begin, end)))
    if as_json:
        show_json(_facts(found) | {"date": f"{chosen}", "begin_utc": begin, "end_utc": end})
    else:
        title = say("day.title", date=f"{chosen}", cut=f"{cut:%H:%M}", zone=zone.key)
        click.echo("\n".join([title, "", *_lines(found)]))


def _facts(found: "Day") -> dict[str, Any]:
    return {
        "total": asdict(found.total),
        "restaurants": [
            {"account": account, "restaurant_id": place, "restaurant_name": name, **asdict(sums)}
            for (account, place), (name, sums) in found.restaurants.items()
        ],
        "differences": [_difference(order) for order in found.differing],
    }


def _difference(order: "Sold") -> dict[str, Any]:
    from orderbridge.rules.day import difference, expected

    return {
        "order_number": order.order_number,
        "pos_reference": order.pos_reference,
        "account": order.account,
        "status": order.status,
        "expected": expected(order),
        "pos_total": order.pos_total,
        "difference": difference(order),
    }


def money(amount: Decimal | None) -> str:
    """An amount for people: 1.234,50 in Turkish, 1,234.50 in English."""
    if amount is None:
        return "-"
    text = f"{amount:,.2f}"
    return text.translate(str.maketrans(",.", ".,")) if spoken() == "tr" else text


def _lines(found: "Day") -> Iterator[str]:
    yield from _sums(found.total)
    if len(found.restaurants) > 1:
        yield ""
        yield from _restaurants(found)
    if found.differing:
        yield ""
        yield say("day.differences", count=len(found.differing), amount=money(found.total.difference))
        for order in found.differing[:MOST_LINES]:
            one = _difference(order)
            amounts = {name: money(one[name]) for name in ("expected", "pos_total", "difference")}
            yield "  " + say("day.difference", number=_named(order), **amounts)
        if len(found.differing) > MOST_LINES:
            yield "  " + say("day.more", count=len(found.differing) - MOST_LINES)
    yield ""
    yield say("day.counted")


def _named(order: "Sold") -> str:
    return " ".join(str(part) for part in (order.order_number, order.pos_reference) if part is not None) or "?"


def _sums(total: "Sums") -> Iterator[str]:
    shown = {name: cell for name in SHOWN if (cell := getattr(total, name)) or name not in IF_ANY}
    rows = [(say(f"day.{name}"), f"{cell}" if isinstance(cell, int) else money(cell)) for name, cell in shown.items()]
    wide, right = (max(map(len, column)) for column in zip(*rows, strict=True))
    for label, value in rows:
        yield f"{label.ljust(wide)}  {value.rjust(right)}"


def _restaurants(found: "Day") -> Iterator[str]:
    """Those that sold most, first."""
    by_size = sorted(found.restaurants.items(), key=lambda one: -one[1][1].orders)
    yield from table(
        [
            {
                say("day.restaurant"): f"{name or place or '-'} ({account})"[:32],
                say("day.orders"): sums.orders,
                say("day.short_cash"): money(sums.cash),
                say("day.short_prepaid"): money(sums.prepaid),
                say("day.cancelled"): sums.cancelled,
            }
            for (account, place), (name, sums) in by_size[:MOST_LINES]
        ]
    )
    if len(by_size) > MOST_LINES:
        yield say("day.more", count=len(by_size) - MOST_LINES)


COMMANDS = (day_command,)
