"""`orderbridge status --branches`: a line for each branch that is not well, the worst first, of a fleet of any size.

It reads what the daemons have written, so any process can say it, whichever replica works for a branch.
"""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import click

from orderbridge.cli.common import Context, ago, local
from orderbridge.texts import say, spoken

if TYPE_CHECKING:
    from sqlalchemy import Connection

COLOURS = {"red": "red", "yellow": "yellow", "green": "green", "dark": "red"}


def look(context: Context, *, everything: bool) -> dict[str, Any]:
    """What `--json` shows. `everything`: the well ones, too."""
    from orderbridge.clock import SystemClock
    from orderbridge.rules.account_status import Lamp
    from orderbridge_fleet import account_list
    from orderbridge_fleet.branches import Branch, Told, ranked

    settings = context.settings

    def read(tx: "Connection") -> list[Branch]:
        known: dict[str, Any] = dict(account_list.since(tx)) | dict.fromkeys(one.name for one in settings.accounts)
        lit = (Branch(row[0], Lamp(row[1]), *row[2:]) for row in account_list.lamps(tx))
        return ranked(known, lit, (Told(*row) for row in account_list.told(tx)))

    found = context.read(read)
    well = sum(one.is_well for one in found)
    shown = [one for one in found if everything or not one.is_well]
    return {
        "healthy": well == len(found),
        "accounts": len(found),
        "well": well,
        "at_utc": SystemClock().now(),
        "timezone": settings.marketplace.timezone,
        "branches": [one._asdict() | {"lamp": one.lamp or "dark"} for one in shown],
    }


def lines(facts: dict[str, Any]) -> Iterator[str]:
    """For people: one each, and how many are well."""
    now, zone = facts["at_utc"], ZoneInfo(facts["timezone"])
    width = max((len(one["account"]) for one in facts["branches"]), default=0)
    lamps = {lamp: say(f"lights.{lamp}") for lamp in COLOURS}
    wide = max(map(len, lamps.values()))
    for one in facts["branches"]:
        since = one["since_utc"]
        when = say("status.since_when", time=local(since, zone, now), ago=ago(since, now)) if since else "-"
        why = f"{one['sentence'] or say('status.dark')} {one['remedy'] or ''}".rstrip()
        mark = click.style(lamps[one["lamp"]].ljust(wide), fg=COLOURS[one["lamp"]])
        yield f"{mark}  {one['account'].ljust(width)}  {when}  {why}"
    yield say("status.well", well=_number(facts["well"]), count=_number(facts["accounts"]))


def _choose(context: click.Context, option: click.Parameter, is_given: bool) -> None:
    if is_given:
        everything = option.name == "everything"
        shared = context.ensure_object(Context)
        if everything or shared.view is None:
            shared.view = (partial(look, everything=everything), lines)


OPTIONS = (
    click.Option(
        ["--branches"],
        is_flag=True,
        expose_value=False,
        callback=_choose,
        help="One line for each account that is not well, the worst first.",
    ),
    click.Option(
        ["--all", "everything"],
        is_flag=True,
        expose_value=False,
        callback=_choose,
        help="With --branches: the well ones, too.",
    ),
)


def _number(count: int) -> str:
    return f"{count:,}" if spoken() == "en" else f"{count:,}".replace(",", ".")
