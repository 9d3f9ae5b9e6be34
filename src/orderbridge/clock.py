"""The only place that asks the machine for the time. Everything else is handed a `Clock`."""

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol
from zoneinfo import ZoneInfo

CLOCK_PLAY_S = 0.02  # by which two measurements of another clock may differ
YEARS = range(2000, 3000)  # a date beyond is nobody's, and near the ends of the calendar no day is before or after it
DATE = "____-__-__"  # how the service's local times begin, any character at each _; as a LIKE has it, too


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


class SharedClock:
    """The machine's clock, set by a database server's: replicas on several machines go by one time."""

    def __init__(self, machine: Clock) -> None:
        self.machine = machine
        self._behind = timedelta()  # of the server's

    def follow(self, there: datetime, took_s: float) -> None:
        """So late it was at the server during a question that has just taken so many seconds."""
        behind = there - self.machine.now() + timedelta(seconds=took_s / 2)
        if abs(behind - self._behind) > timedelta(seconds=took_s / 2 + CLOCK_PLAY_S):
            self._behind = behind

    def now(self) -> datetime:
        return self.machine.now() + self._behind

    def monotonic(self) -> float:
        return self.machine.monotonic()


def local_moment(text: str | None, zone: ZoneInfo) -> datetime | None:
    """A date of the service as a moment; None: it is none."""
    try:
        return datetime.fromisoformat(text or "").replace(tzinfo=zone).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def local_text(moment: datetime, zone: ZoneInfo) -> str:
    """A moment as the service writes it."""
    return f"{moment.astimezone(zone):%Y-%m-%d %H:%M:%S}"


def is_date(text: str) -> bool:
    """Whether it can be compared with `local_text`."""
    return len(text) >= len(DATE) and all(form in {"_", one} for form, one in zip(DATE, text, strict=False))
