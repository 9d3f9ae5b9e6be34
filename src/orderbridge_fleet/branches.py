"""How each branch of a fleet stands, by what the daemons have written: the worst first.

An account has a lamp once a daemon works for it. One without is dark: as a rule it is new, or nobody works at all.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

from orderbridge.rules.account_status import Lamp
from orderbridge.rules.problems import Severity


class Branch(NamedTuple):
    """`lamp`: None of a dark one. `code`: the worst open problem; None: there is none, or nobody has said one."""

    account: str
    lamp: Lamp | None
    since_utc: datetime | None
    code: str | None = None
    sentence: str | None = None
    remedy: str | None = None

    @property
    def is_well(self) -> bool:
        """Whether nobody has to look at it."""
        return self.lamp == Lamp.GREEN


class Told(NamedTuple):
    """An open problem of one account."""

    account: str
    severity: str
    level: int
    since_utc: datetime | None
    code: str
    sentence: str
    remedy: str


_WORST_FIRST = (Lamp.RED, None, Lamp.YELLOW, Lamp.GREEN)


def ranked(known: Mapping[str, datetime | None], lit: Iterable[Branch], told: Iterable[Told]) -> list[Branch]:
    """These accounts, since when they are known by name; of equally bad ones the oldest first.

    `told`: of an account that no daemon could begin to work for there is a problem and no lamp.
    """
    lamps = {one.account: one for one in lit}
    for one in sorted(told, key=lambda one: (one.severity == Severity.SEVERE, one.level), reverse=True):
        colour = Lamp.RED if one.severity == Severity.SEVERE else Lamp.YELLOW
        lamps.setdefault(one.account, Branch(one.account, colour, one.since_utc, one.code, one.sentence, one.remedy))
    return sorted((lamps.get(name, Branch(name, None, since)) for name, since in known.items()), key=_badness)


def _badness(one: Branch) -> tuple[int, float, str]:
    since = 0.0 if one.since_utc is None else one.since_utc.timestamp()
    return _WORST_FIRST.index(one.lamp), since, one.account
