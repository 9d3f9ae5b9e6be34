"""Whether the database takes our work. Logged are the first failure and the first success after it.

The database is asked every second: a line each time would fill the log while another program holds it.
"""

from collections import deque
from enum import StrEnum

import structlog

from orderbridge.errors import Message

LOG_WAIT_S = 1.0  # a unit of work takes milliseconds; this one has waited for another program
LOG_AGAIN_S = 60.0  # a POS that makes us wait all day is logged once a minute
SLOW_S = 2.0  # no transaction takes so long
KEPT_SLOW = 10  # the last ones; jobs.daemon_problems decides how many of them are too many

_log = structlog.get_logger(__name__)


class TroubleKind(StrEnum):
    """What keeps the database from taking our work."""

    FULL = "full"
    READ_ONLY = "read_only"
    BUSY = "busy"
    FAILING = "failing"  # anything else


class Trouble:
    """Hears how work ended. `doing`: reading, writing, or what of it; one may fail and not the other."""

    def __init__(self) -> None:
        self._failing: dict[str, Message] = {}  # what is failing, and the message about it
        self._kinds: dict[str, TroubleKind] = {}
        self._failures = 0
        self._waited_until = 0.0
        self.slow: deque[tuple[float, float]] = deque(maxlen=KEPT_SLOW)  # when by the loop's clock, how many seconds

    def __bool__(self) -> bool:
        """Whether something fails now; the log says so."""
        return bool(self._failing)

    @property
    def kind(self) -> TroubleKind | None:
        """What fails now; None: nothing does."""
        return self._kinds.get("write") or self._kinds.get("read") or next(iter(self._kinds.values()), None)

    def failed(self, doing: str, error: str, remedy: Message, kind: TroubleKind = TroubleKind.FAILING) -> None:
        """A unit of work failed, and it was not to blame."""
        self._failures += 1
        if remedy not in self._failing.values():
            _log.error("database.failed", doing=doing, error=error, remedy=remedy)
        self._failing[doing] = remedy
        self._kinds[doing] = kind

    def worked(self, doing: str) -> None:
        """A unit of work was done."""
        self._kinds.pop(doing, None)
        if doing not in {"read", "write"} and doing in self._failing:
            self.slow.clear()  # what was slow meanwhile had the same reason
        if self._failing.pop(doing, None) is not None and not self._failing:
            _log.info("database.recovered", failures=self._failures)
            self._failures = 0

    def waited(self, seconds: float, now: float) -> None:
        """How long a unit of work took, by the loop's clock."""
        if seconds >= SLOW_S:
            self.slow.append((now, seconds))
        if seconds >= LOG_WAIT_S and now >= self._waited_until:
            self._waited_until = now + LOG_AGAIN_S
            _log.warning("database.waited", seconds=round(seconds, 1), remedy=Message("log.short_transactions"))
