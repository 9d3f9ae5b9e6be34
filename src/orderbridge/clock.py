"""The only place that asks the machine for the time. Everything else is handed a `Clock`."""

import time
from datetime import UTC, datetime
from typing import Protocol
from zoneinfo import ZoneInfo


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


def local_moment(text: str | None, zone: ZoneInfo) -> datetime | None:
    """A date of the service as a moment; None: it is none."""
    try:
        return datetime.fromisoformat(text or "").replace(tzinfo=zone).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
