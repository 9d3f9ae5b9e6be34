"""The status of each account, green, yellow or red, by the open problems; and of the daemon, ready or not.

A till shows the first as a lamp. A daemon whose marketplace is down is alive and not ready, and no restart would help it
(observe.liveness is about the other thing).
"""

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
class AccountStatus:
    """`problem`: why; None of a green account, and of one that has not been polled yet."""

    lamp: Lamp
    problem: Problem | None = None


WELL, STARTING = AccountStatus(Lamp.GREEN), AccountStatus(Lamp.YELLOW)
_badness = attrgetter("rank")


def account_statuses(accounts: Iterable[str], found: Iterable[Problem]) -> dict[str, AccountStatus]:
    """By account. A problem without an account applies to all of them.

    `found`: with what is behind another problem. An account of a daemon that has just started is behind itself.
    """
    worst: dict[str | None, Problem] = {}
    starting: set[str | None] = set()
    for one in found:
        if one.behind is None:
            before = worst.get(one.account)
            worst[one.account] = one if before is None else max(before, one, key=_badness)
        elif one.behind == one.code and one.code in BY_TIME_ALONE:
            starting.add(one.account)
    statuses = {}
    for account in accounts:
        own = max(filter(None, (worst.get(account), worst.get(None))), key=_badness, default=None)
        unpolled = STARTING if account in starting else WELL
        statuses[account] = unpolled if own is None else AccountStatus(lamp_of(own), own)
    return statuses


def lamp_of(one: Problem) -> Lamp:
    """The colour of one problem."""
    return Lamp.RED if one.severity == Severity.SEVERE else Lamp.YELLOW


@dataclass(frozen=True, slots=True)
class Readiness:
    """`is_working`: False while it starts, or while another process works on the database."""

    is_working: bool = False
    database_answers: bool = False
    is_polled: bool = False
    problems: tuple[Problem, ...] = ()

    @property
    def is_ready(self) -> bool:
        """The one word."""
        return self.is_working and self.database_answers and self.is_polled

    @property
    def severe(self) -> dict[str, int]:
        """The codes of severe problems, and how many of each there are."""
        found: dict[str, int] = {}
        for one in self.problems:
            if one.severity == Severity.SEVERE:
                found[one.code] = found.get(one.code, 0) + one.count
        return found
