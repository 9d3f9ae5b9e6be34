"""Whether the tables are an older copy that was put back: the tables beside the high-water mark in a file. Pure.

The generation is a counter in the tables. The daemon raises it after its own writes and then notes it in the file, so the
file is never ahead of tables that are whole: a generation below the mark is an older copy, whatever else was deleted.
Another database id is a new database on purpose, unless the one before was taken away under a daemon.
"""

from datetime import datetime
from enum import Enum, auto
from typing import Protocol


class Reach(Protocol):
    """How far a database has come."""

    @property
    def database(self) -> str:
        """Its random id, which goes with every copy."""

    @property
    def generation(self) -> int:
        """How often the daemon has noted that it wrote."""

    @property
    def event(self) -> int:
        """The newest row of delivery_order_events."""


class Copy(Enum):
    """What the tables are."""

    CURRENT = auto()
    OLDER = auto()
    # Older, if the journal has orders that they lack: the mark is a moment old when a machine dies.
    IF_MISSING = auto()


def judge(found: Reach, mark: Reach, *, at_start: bool, was_lost: bool) -> Copy:
    """`was_lost`: the file was taken away under the daemon that wrote the mark."""
    if found.database != mark.database:
        return Copy.OLDER if was_lost and mark.event > 0 else Copy.CURRENT
    if found.generation < mark.generation:
        return Copy.OLDER
    return Copy.IF_MISSING if at_start else Copy.CURRENT


def hold_s(next_poll: datetime | None, now: datetime, longest_s: float) -> float:
    """Seconds until a poll may leave by the mark; a time beyond `longest_s` comes from a clock that was set."""
    return 0.0 if next_poll is None else min(max((next_poll - now).total_seconds(), 0.0), longest_s)
