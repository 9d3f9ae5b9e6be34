"""The command `day`: the sums of a business day (rules.business_day)."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import click

from orderbridge.cli.common import Context, as_json, pass_context, show_json, table
from orderbridge.clock import YEARS, SystemClock
from orderbridge.rules import business_day as rules
from orderbridge.rules.business_day import difference, expected, sums_of
from orderbridge.store import overview
from orderbridge.texts import say, spoken

IF_ANY = ("payment_unknown", "cash_unfinished", "prepaid_unfinished", "without_amount")
COUNTS = ("orders", "completed", "unfinished", "cancelled", "never_taken_over")
SHOWN = (*COUNTS, "cash", "prepaid", "payment_unknown", "discount", "tips", *IF_ANY[1:])
DIFFERENCE = ("order_number", "pos_reference", "account", "status", "pos_total")


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
    """Show the sums of a business day: cash, prepaid, differences."""
    zone = ZoneInfo(context.settings.marketplace.timezone)
    chosen = rules.present(SystemClock().now(), zone, cut.time()) if day is None else day.date()
    if chosen.year not in YEARS:
        raise click.BadParameter(say("day.no_year", date=chosen))
    begin, end = rules.bounds(chosen, zone, cut.time())
    facts = _day_facts(context.read(lambda tx: overview.received(tx, begin, end)))
    if as_json:
        show_json(facts | {"date": f"{chosen}", "begin_utc": begin, "end_utc": end})
    else:
        title = say("day.title", date=f"{chosen}", cut=f"{cut:%H:%M}", zone=zone.key)
        click.echo("\n".join([title, "", *_day_lines(**facts)]))


def _day_facts(orders: list[Any]) -> dict[str, Any]:
    places: dict[tuple[str, str], list[Any]] = {}
    for one in orders:
        places.setdefault((one.account, one.restaurant_id or ""), []).append(one)
    return {
        "total": sums_of(orders),
        "restaurants": [
            {"account": account, "restaurant_id": place, "restaurant_name": _name(theirs), **sums_of(theirs)}
            for (account, place), theirs in places.items()
        ],
        "differences": [
            {name: getattr(one, name) for name in DIFFERENCE} | {"expected": expected(one), "difference": excess}
            for one in orders
            if (excess := difference(one))
        ],
    }


def _name(orders: list[Any]) -> str:
    return next((one.restaurant_name for one in orders if one.restaurant_name), "")


def _day_lines(
    total: Mapping[str, Any], restaurants: list[dict[str, Any]], differences: list[dict[str, Any]]
) -> Iterator[str]:
    rows = [(say(f"day.{name}"), _shown(total[name])) for name in SHOWN if total[name] or name not in IF_ANY]
    wide, right = (max(map(len, column)) for column in zip(*rows, strict=True))
    yield from (f"{label.ljust(wide)}  {value.rjust(right)}" for label, value in rows)
    if len(restaurants) > 1:
        yield from ("", *table([_restaurant(one) for one in sorted(restaurants, key=lambda one: -one["orders"])]))
    if differences:
        yield from ("", say("day.differences", count=len(differences), amount=_shown(total["difference"])))
    for one in differences:
        number = " ".join(str(part) for part in (one["order_number"], one["pos_reference"]) if part is not None)
        amounts = {name: _shown(one[name]) for name in ("expected", "pos_total", "difference")}
        yield "  " + say("day.difference", number=number or "?", **amounts)
    yield from ("", say("day.counted"))


def _restaurant(one: Mapping[str, Any]) -> dict[str, Any]:
    return {
        say("day.restaurant"): f"{one['restaurant_name'] or one['restaurant_id'] or '-'} ({one['account']})"[:32],
        say("day.orders"): one["orders"],
        say("day.short_cash"): _shown(one["cash"]),
        say("day.short_prepaid"): _shown(one["prepaid"]),
        say("day.cancelled"): one["cancelled"],
    }


def _shown(figure: Decimal | int) -> str:
    """Format a count as it is, an amount as 1.234,50 in Turkish and 1,234.50 in English."""
    if isinstance(figure, int):
        return str(figure)
    text = f"{figure:,.2f}"
    return text.translate(str.maketrans(",.", ".,")) if spoken() == "tr" else text


COMMANDS = (day_command,)
