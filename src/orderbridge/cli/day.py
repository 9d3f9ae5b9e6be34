"""The day's figures: `orderbridge day`. What counts for which sum, rules.day decides."""

import csv
import io
from collections.abc import Iterator
from dataclasses import asdict, fields
from datetime import date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import click

from orderbridge.cli.common import Context, as_json, show_json
from orderbridge.clock import YEARS
from orderbridge.texts import say, spoken

if TYPE_CHECKING:
    from orderbridge.rules.day import Day, Sold, Sums

pass_context = click.make_pass_decorator(Context)

MOST_LINES = 20  # of restaurants, and of differences, on the screen; --json and --csv have them all
FORMULAS = (
    "=",
    "+",
    "-",
    "@",
    "\t",
    "\r",
    "\n",
    "\uff1d",
    "\uff0b",
    "\uff0d",
    "\uff20",
)  # a spreadsheet would run a name that begins so


class _Day(click.ParamType["date"]):
    name = "date"

    def convert(self, value: Any, _: click.Parameter | None, __: click.Context | None) -> date:
        for form in ("%Y-%m-%d", "%d.%m.%Y"):
            try:
                day = datetime.strptime(value, form).date()  # noqa: DTZ007 - a day has no zone
            except ValueError:
                continue
            if day.year in YEARS:
                return day
        raise click.BadParameter(say("day.no_date", value=value))


class _Cut(click.ParamType["time"]):
    name = "HH:MM"

    def convert(self, value: Any, _: click.Parameter | None, __: click.Context | None) -> time:
        try:
            return datetime.strptime(value, "%H:%M").time()  # noqa: DTZ007
        except ValueError:
            raise click.BadParameter(say("day.no_time", value=value)) from None


@click.command("day")
@click.argument("day", type=_Day(), required=False, metavar="[DATE]")
@click.option("--cut", type=_Cut(), default="04:00", show_default=True, help="When a business day begins, local time.")
@click.option(
    "--csv", "as_csv", is_flag=True, help="One line for each restaurant, for a spreadsheet of the configured language."
)
@as_json
@pass_context
def day_command(context: Context, day: date | None, cut: time, as_csv: bool, as_json: bool) -> None:
    """The day's orders, cash to hand in, prepaid, discounts, tips, cancelled, differences. DATE: 2026-03-01; else today.

    A business day goes from 04:00 to 04:00. Nothing is written.
    """
    from zoneinfo import ZoneInfo

    from orderbridge.clock import SystemClock
    from orderbridge.rules import day as rules
    from orderbridge.store import day as store

    zone = ZoneInfo(context.settings.marketplace.timezone)
    chosen = day or rules.present(SystemClock().now(), zone, cut)
    begin, end = rules.bounds(chosen, zone, cut)
    found = context.read(lambda tx: rules.counted(rules.Sold(*row) for row in store.received(tx, begin, end)))
    if as_json:
        show_json(_facts(found) | {"date": f"{chosen}", "begin_utc": begin, "end_utc": end})
    elif as_csv:
        click.echo(_csv(found), nl=False)
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


def _csv(found: "Day") -> str:
    from orderbridge.rules.day import Sums

    """As spreadsheets of the language read it: Turkish ones want semicolons, decimal commas and the mark of UTF-8."""
    out = io.StringIO("\ufeff" if spoken() == "tr" else "")
    out.seek(0, io.SEEK_END)
    writer = csv.writer(out, delimiter=";" if spoken() == "tr" else ",")
    names = [one.name for one in fields(Sums)]
    writer.writerow(["account", "restaurant_id", "restaurant_name", *names])
    for (account, place), (name, sums) in found.restaurants.items():
        shown = (_cents(value) if isinstance(value, Decimal) else value for value in asdict(sums).values())
        writer.writerow([_harmless(account), _harmless(place), _harmless(name), *shown])
    return out.getvalue()


def _harmless(text: str) -> str:
    return f"'{text}" if text.lstrip(" \u00a0").startswith(FORMULAS) else text


def _cents(amount: Decimal) -> str:
    text = f"{amount:.2f}" if amount == round(amount, 2) else f"{amount}"
    return text.replace(".", ",") if spoken() == "tr" else text


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
    counts = ("orders", "completed", "unfinished", "cancelled", "never_taken_over")
    amounts = ("cash", "prepaid", "payment_unknown", "discount", "tips", "cash_unfinished", "prepaid_unfinished")
    rows = [(say(f"day.{name}"), str(getattr(total, name))) for name in counts]
    optional = {"payment_unknown", "cash_unfinished", "prepaid_unfinished"}
    rows += [
        (say(f"day.{name}"), money(getattr(total, name)))
        for name in amounts
        if getattr(total, name) or name not in optional
    ]
    if total.without_amount:
        rows.append((say("day.without_amount"), str(total.without_amount)))
    wide = max(len(label) for label, _ in rows)
    right = max(len(value) for _, value in rows)
    for label, value in rows:
        yield f"{label.ljust(wide)}  {value.rjust(right)}"


def _restaurants(found: "Day") -> Iterator[str]:
    """Those that sold most, first; as wide as a screen."""
    heads = [say(f"day.{name}") for name in ("restaurant", "orders", "short_cash", "short_prepaid", "cancelled")]
    by_size = sorted(found.restaurants.items(), key=lambda one: -one[1][1].orders)
    cells = [
        [
            f"{name or place or '-'} ({account})"[:32],
            str(sums.orders),
            money(sums.cash),
            money(sums.prepaid),
            str(sums.cancelled),
        ]
        for (account, place), (name, sums) in by_size[:MOST_LINES]
    ]
    wide = [max(len(line[place]) for line in [heads, *cells]) for place in range(len(heads))]
    for line in [heads, *cells]:
        numbers = (text.rjust(width) for text, width in zip(line[1:], wide[1:], strict=True))
        yield "  ".join([line[0].ljust(wide[0]), *numbers])
    if len(by_size) > MOST_LINES:
        yield say("day.more", count=len(by_size) - MOST_LINES)


COMMANDS = (day_command,)
