"""`orderbridge status --branches` shows one line for each branch with a problem, the worst first.

It reads what the daemons wrote to the database. An account has a lamp once a daemon works for it. Without a lamp it
is shown as dark: usually it is new, or no daemon works.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from zoneinfo import ZoneInfo

import click

from orderbridge.cli.common import Context, ago, local
from orderbridge.rules.problems import Lamp, Severity
from orderbridge.texts import say, spoken

if TYPE_CHECKING:
    from sqlalchemy import Connection

COLOURS = {"red": "red", "yellow": "yellow", "green": "green", "dark": "red"}


class Branch(NamedTuple):
    """A line of the list. `lamp`: None if it has none. `code`: the worst open problem; None if none is stored."""

    account: str
    lamp: Lamp | None
    since_utc: datetime | None
    code: str | None = None
    sentence: str | None = None
    remedy: str | None = None

    @property
    def is_well(self) -> bool:
        """Whether it needs no attention."""
        return self.lamp == Lamp.GREEN


class OpenProblem(NamedTuple):
    """An open problem of one account."""

    account: str
    severity: str
    level: int
    since_utc: datetime | None
    code: str
    sentence: str
    remedy: str


_WORST_FIRST = (Lamp.RED, None, Lamp.YELLOW, Lamp.GREEN)


def ranked(
    known: Mapping[str, datetime | None], lit: Iterable[Branch], problems: Iterable[OpenProblem]
) -> list[Branch]:
    """Sort the accounts, the worst first, and the oldest first among equals.

    `known`: when each account was last changed. `problems`: an account that no daemon could start has a problem, but no
    lamp.
    """
    lamps = {one.account: one for one in lit}
    for one in sorted(problems, key=lambda one: (one.severity == Severity.SEVERE, one.level), reverse=True):
        colour = Lamp.RED if one.severity == Severity.SEVERE else Lamp.YELLOW
        lamps.setdefault(one.account, Branch(one.account, colour, one.since_utc, one.code, one.sentence, one.remedy))
    return sorted((lamps.get(name, Branch(name, None, since)) for name, since in known.items()), key=_badness)


def _badness(one: Branch) -> tuple[int, float, str]:
    since = 0.0 if one.since_utc is None else one.since_utc.timestamp()
    return _WORST_FIRST.index(one.lamp), since, one.account


def facts_of(context: Context, *, everything: bool) -> dict[str, Any]:
    """The values that `--json` prints. `everything`: include the branches without a problem."""
    from orderbridge.clock import SystemClock
    from orderbridge_fleet import account_settings

    settings = context.settings

    def read(tx: "Connection") -> list[Branch]:
        known: dict[str, Any] = dict(account_settings.since(tx)) | dict.fromkeys(one.name for one in settings.accounts)
        lit = (Branch(row[0], Lamp(row[1]), *row[2:]) for row in account_settings.lamps(tx))
        return ranked(known, lit, (OpenProblem(*row) for row in account_settings.problems(tx)))

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
    """The printed lines: one for each branch, and the number without a problem."""
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
            shared.view = (partial(facts_of, everything=everything), lines)


OPTIONS = (
    click.Option(
        ["--branches"],
        is_flag=True,
        expose_value=False,
        callback=_choose,
        help="One line for each account with a problem, the worst first.",
    ),
    click.Option(
        ["--all", "everything"],
        is_flag=True,
        expose_value=False,
        callback=_choose,
        help="With --branches: accounts without a problem, too.",
    ),
)


def _number(count: int) -> str:
    return f"{count:,}" if spoken() == "en" else f"{count:,}".replace(",", ".")
