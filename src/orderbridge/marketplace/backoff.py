"""How long nothing of an account leaves, after what did not reach the service or was refused there."""

from collections.abc import Callable
from dataclasses import dataclass

from orderbridge.clock import Clock

HELD_BACK_S = 2.0


@dataclass(frozen=True, slots=True)
class Waits:
    """Seconds to wait; each but the last from the number of failures in a row, from 1 on."""

    refused: Callable[[int], float]  # a login with these credentials
    failed: Callable[[int, bool], float]  # a login otherwise; True: the service answered
    unsent: Callable[[int], float]  # a request that never left
    limited_s: float  # a login was answered 429


class Backoff:
    """Whether requests of an account leave at all. Failures in a row wait longer; the first answer ends it."""

    def __init__(self, clock: Clock, wait_s: Callable[[int], float]) -> None:
        self._clock = clock
        self._wait_s = wait_s
        self._failures = 0
        self._until = 0.0
        self.is_ours = False  # the reason lies with us

    def failed(self) -> None:
        """A request never left."""
        if self.wait() <= 0:  # the others of the same moment are no further failures
            self._failures += 1
            self.is_ours = False
            self._until = self._clock.monotonic() + self._wait_s(self._failures)

    def held_back(self) -> None:
        """We did not let a request leave: no failure, and no reason to try again at once."""
        self.is_ours = self.is_ours or self.wait() <= 0
        self._until = max(self._until, self._clock.monotonic() + HELD_BACK_S)

    def worked(self) -> bool:
        """A request was answered, or left at least. True when that ends a failure."""
        recovered, self._failures, self._until, self.is_ours = self._failures > 0, 0, 0.0, False
        return recovered

    def wait(self) -> float:
        """Seconds until the next try; 0 or less: now."""
        return self._until - self._clock.monotonic()
