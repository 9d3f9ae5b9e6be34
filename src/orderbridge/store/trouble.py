"""Whether the database takes our work, told on the edges: the first failure, the first success after it.

What the database is asked for every second would otherwise fill the log for as long as somebody holds it.
"""

import structlog

TELL_WAIT_S = 1.0  # a unit of work takes milliseconds; this one has waited for somebody
TELL_AGAIN_S = 60.0  # a POS that makes us wait all day is told once a minute

_log = structlog.get_logger(__name__)


class Trouble:
    """Hears how each unit of work ended. `doing`: whether it was reading or writing; one may fail and not the other."""

    def __init__(self) -> None:
        self._failing: dict[str, str] = {}  # what is failing, and what was said about it
        self._failures = 0
        self._waited_until = 0.0

    def __bool__(self) -> bool:
        """Whether something fails now; the log says so."""
        return bool(self._failing)

    def failed(self, doing: str, error: str, remedy: str) -> None:
        """A unit of work failed, and it was not to blame."""
        self._failures += 1
        if remedy not in self._failing.values():
            _log.error("database.failed", doing=doing, error=error, remedy=remedy)
        self._failing[doing] = remedy

    def worked(self, doing: str) -> None:
        """A unit of work was done."""
        if self._failing.pop(doing, None) is not None and not self._failing:
            _log.info("database.recovered", failures=self._failures)
            self._failures = 0

    def waited(self, seconds: float, now: float) -> None:
        """How long a unit of work took, by the loop's clock."""
        if seconds >= TELL_WAIT_S and now >= self._waited_until:
            self._waited_until = now + TELL_AGAIN_S
            _log.warning("database.waited", seconds=round(seconds, 1), remedy="POS transactions should be short.")
