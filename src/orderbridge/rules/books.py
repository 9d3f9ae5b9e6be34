"""Whether the tables are an older copy that was put back: how far they go, beside the last word about it. Pure.

Lines of stories are deleted, too, when they have been kept for long enough; but meanwhile polls were made, and what they
listened to only grows. Other books are a new database on purpose, unless the ones before were taken away under a daemon.
"""

from enum import Enum, auto
from typing import Protocol


class Reach(Protocol):
    """How far books go."""

    @property
    def books(self) -> str:
        """Their id, made by chance: it goes with every copy."""

    @property
    def event(self) -> int:
        """The newest line of a story."""

    @property
    def listened(self) -> int:
        """Seconds in which polls succeeded."""


class Copy(Enum):
    """What the books are by their reach."""

    NONE = auto()
    OLDER = auto()
    # Older, if the journal has what they lack: the last word is some seconds old when a machine dies.
    IF_MISSING = auto()


def judge(now: Reach, before: Reach, *, strictly: bool, was_lost: bool) -> Copy:
    """Of books that went so far `before`. `strictly`: both are of one run, in which no poll may have been made meanwhile.

    `was_lost`: the ones before were taken away under a daemon.
    """
    if now.books != before.books:
        return Copy.OLDER if was_lost and before.event > 0 else Copy.NONE
    listened = now.listened < before.listened if strictly else now.listened <= before.listened
    if now.event < before.event and listened:
        return Copy.OLDER
    return Copy.NONE if strictly else Copy.IF_MISSING
