"""The only place that asks the machine for the time. Everything else is handed a `Clock`."""

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What the program needs of time."""

    def now(self) -> datetime:
        """The wall clock: aware, UTC. It can jump."""

    def monotonic(self) -> float:
        """Seconds that only grow, from an unknown start."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()
