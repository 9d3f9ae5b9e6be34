"""One lamp for each account: green, yellow or red, by the open problems. The till shows it in a corner."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter

from orderbridge.rules.problems import BY_TIME_ALONE, Problem, Severity


class Lamp(StrEnum):
    """GREEN: orders arrive. YELLOW: a person has to look. RED: orders are lost, late or cooked in vain."""

    GREEN = "green"
    YELLOW = "yellow"
    RED = "red"


@dataclass(frozen=True, slots=True)
class Shown:
    """A lamp and why. `problem`: None of a green one, and of an account that has not been polled yet."""

    lamp: Lamp
    problem: Problem | None = None


WELL, STARTING = Shown(Lamp.GREEN), Shown(Lamp.YELLOW)
_badness = attrgetter("rank")


def lamps(accounts: Iterable[str], found: Iterable[Problem]) -> dict[str, Shown]:
    """The lamp of each account. A problem that is nobody's in particular is everybody's.

    `found`: with what stands behind another problem. That a daemon has just started is behind nothing but itself.
    """
    worst: dict[str | None, Problem] = {}
    starting: set[str | None] = set()
    for one in found:
        if one.behind is None:
            before = worst.get(one.account)
            worst[one.account] = one if before is None else max(before, one, key=_badness)
        elif one.behind == one.code and one.code in BY_TIME_ALONE:
            starting.add(one.account)
    everybodys = worst.get(None)
    shown = {}
    for account in accounts:
        own = max(filter(None, (worst.get(account), everybodys)), key=_badness, default=None)
        shown[account] = Shown(lamp_of(own), own) if own is not None else STARTING if account in starting else WELL
    return shown


def lamp_of(one: Problem) -> Lamp:
    """The colour of one problem."""
    return Lamp.RED if one.severity == Severity.SEVERE else Lamp.YELLOW
