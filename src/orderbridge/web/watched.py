"""What is shown, as whoever shows it sees it. Nothing of it asks the database or waits."""

from typing import Protocol

from orderbridge.observe.metrics import Metrics
from orderbridge.rules.readiness import Readiness


class Watched(Protocol):
    """The process as a whole: the daemon at work, or one that waits for another."""

    def hung(self) -> str | None:
        """What hangs, so that a restart would help; None: nothing does."""

    def readiness(self) -> Readiness:
        """Whether it does its work."""

    def measured(self) -> Metrics:
        """All numbers, those that are read included."""
