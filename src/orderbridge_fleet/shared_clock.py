"""The machine's clock, set by the database server's: replicas on several machines go by one time."""

from datetime import datetime, timedelta

from sqlalchemy import Connection, select

from orderbridge.clock import Clock
from orderbridge.store.columns import utc_now

PLAY_S = 0.02  # by which two measurements of the server's clock may differ
_NOW = select(utc_now())


class SharedClock:
    """Jumps when `follow` finds the server's clock elsewhere."""

    def __init__(self, machine: Clock) -> None:
        self._machine = machine
        self._behind = timedelta()  # of the server's

    def follow(self, connection: Connection) -> None:
        """Ask the server for its time."""
        began = self.monotonic()
        there = connection.execute(_NOW).scalar_one()
        self.set(there, self.monotonic() - began)

    def set(self, there: datetime, took_s: float) -> None:
        """So late it was at the server during a question that has just taken so many seconds."""
        behind = there - self._machine.now() + timedelta(seconds=took_s / 2)
        if abs(behind - self._behind) > timedelta(seconds=took_s / 2 + PLAY_S):
            self._behind = behind

    def now(self) -> datetime:
        """By the server."""
        return self._machine.now() + self._behind

    def monotonic(self) -> float:
        """By the machine."""
        return self._machine.monotonic()
