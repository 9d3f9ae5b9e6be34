"""Whether the daemon does its work, for whoever asks over HTTP: the database answers, and an account is polled in time.

Alive is another matter (observe.liveness): a daemon whose marketplace is down is alive and not ready, and no restart
would help it.
"""

from dataclasses import dataclass

from orderbridge.rules.problems import Problem, Severity


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
