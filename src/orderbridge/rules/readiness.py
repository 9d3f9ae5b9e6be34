"""Whether the daemon does its work, for whoever asks over HTTP: the database answers, and an account is polled in time.

Alive is another matter (observe.liveness): a daemon whose marketplace is down is alive and not ready, and no restart
would help it.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from orderbridge.rules.problems import NO_DATABASE, Problem, Severity

LOOK_S = 15.0  # and the busy timeout: a look that is older has not ended


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


def database_answers(look_age_s: float, busy_timeout_s: float, found: Iterable[Problem]) -> bool:
    """Whether the last look at health ended in time, and could write. `found`: what was wrong then."""
    return look_age_s <= LOOK_S + busy_timeout_s and not NO_DATABASE & {one.code for one in found}


def in_time(now: float, polled: Iterable[tuple[float, float]]) -> bool:
    """Whether one account at least had a good poll in time. `polled`: when the last one was, and how old it may be."""
    return any(now - at <= late for at, late in polled)
