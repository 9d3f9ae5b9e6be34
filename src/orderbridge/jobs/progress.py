"""How far a start of many accounts is: a sentence for who looks, and now and then a line of the log."""

import structlog

from orderbridge.clock import Clock
from orderbridge.texts import say

TOLD_FROM = 100  # accounts: whoever starts fewer does not wait for long
TOLD_S = 30.0  # between two lines of the log

_log = structlog.get_logger(__name__)


def progress(begun: tuple[int, int], language: str) -> str:
    """`begun`: how many of how many accounts. Empty when all have, or there are few."""
    done, count = begun
    return say("status.starting", language, done=done, count=count) if done < count >= TOLD_FROM else ""


class Progress:
    """Of one daemon."""

    def __init__(self, clock: Clock, language: str) -> None:
        self._clock = clock
        self._language = language
        self._told: float | None = None  # when the log heard of it last; None: nothing is starting

    def look(self, begun: tuple[int, int]) -> str:
        """The sentence of this moment."""
        said, now = progress(begun, self._language), self._clock.monotonic()
        if (said and (self._told is None or now >= self._told + TOLD_S)) or (not said and self._told is not None):
            _log.info("accounts.started", done=begun[0], of=begun[1])
            self._told = now if said else None
        return said
