"""The faults that are still to come, and which of them meets a call."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from random import Random
from threading import RLock
from typing import Final

from .clock import Clock, system_clock
from .faults import Fault

_ALL: Final = 100.0


@dataclass(slots=True)
class _Line:
    fault: Fault
    added: datetime | None
    """None where its time does not matter: a fault can be added where there is no clock yet."""
    skipped: int = 0
    passed: int = 0
    met: int = 0

    @property
    def is_open(self) -> bool:
        return self.fault.times is None or self.met < self.fault.times

    def is_on(self, clock: Clock) -> bool:
        """Whether its time has come and is not over."""
        if self.added is None:
            return True
        since = (clock() - self.added).total_seconds() - self.fault.after_seconds
        return since >= 0 and (self.fault.for_seconds is None or since < self.fault.for_seconds)

    def meets(self, chance: Callable[[], float]) -> bool:
        """Count a call that it fits, and return whether it meets it."""
        if self.skipped < self.fault.skip:
            self.skipped += 1
            return False
        self.passed += 1
        if self.passed % self.fault.every or (self.fault.percent < _ALL and chance() * _ALL >= self.fault.percent):
            return False
        self.met += 1
        return True


def _is_timed(fault: Fault) -> bool:
    return fault.after_seconds > 0 or fault.for_seconds is not None


class FaultScript:
    """The faults that are still to come; any thread may add some."""

    def __init__(self, clock: Clock = system_clock) -> None:
        """Start without any."""
        self._clock = clock
        self._random = Random("faults")  # noqa: S311 - reproducible on purpose
        self._lock = RLock()
        self._lines: list[_Line] = []
        self._pauses: set[asyncio.Future[None]] = set()

    def add(self, *faults: Fault) -> None:
        """Append faults."""
        with self._lock:
            self._lines += [_Line(fault, self._clock() if _is_timed(fault) else None) for fault in faults]

    def clear(self) -> None:
        """Forget all faults, and let what is being delayed go on."""
        with self._lock:
            self._lines = []
            self._random = Random("faults")  # noqa: S311
            for pause in self._pauses:
                pause.get_loop().call_soon_threadsafe(pause.cancel)

    async def pause(self, fault: Fault) -> None:
        """Wait as long as the fault says, or until the script is cleared, by whichever thread."""
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._lock:
            if not any(line.fault is fault for line in self._lines):
                return  # cleared since the call was taken
            self._pauses.add(over)
        try:
            await asyncio.wait([over], timeout=fault.seconds)
        finally:
            with self._lock:
                self._pauses.discard(over)

    def pending(self) -> list[Fault]:
        """Return the faults that can still meet a call."""
        with self._lock:
            return [line.fault for line in self._lines if line.is_open]

    def take(self, operation: str, account: str, argument: str) -> Fault | None:
        """Return the fault for this call and count it."""
        with self._lock:
            for line in self._lines:
                if not (line.is_open and line.fault.fits(operation, account, argument) and line.is_on(self._clock)):
                    continue
                if line.meets(self._random.random):
                    return line.fault
        return None
