"""An event loop whose time advances only while all tasks wait, so that a day takes only its processor time."""

import asyncio
import selectors
import threading
from typing import Any
from weakref import WeakSet

from orderbridge.store.workers import DETACHED

STUCK_S = 60.0  # of real time: nothing is due and nothing comes from outside
THREAD_S = 2.0  # of real time for each thread: one that takes longer hangs, as the test wants it


class _Selector(selectors.DefaultSelector):
    """Does not wait for the next timer: it moves the loop's time there."""

    def __init__(self) -> None:
        super().__init__()
        self.time = 0.0
        self._hanging: WeakSet[threading.Thread] = WeakSet()

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            ready = super().select(STUCK_S)
            if not ready:
                raise RuntimeError("every task waits, and nothing is due")
            return ready
        ready = super().select(0)
        while not ready and timeout > 0 and (thread := self._working()):
            ready = super().select(THREAD_S)
            if not ready:
                self._hanging.add(thread)
        if not ready and timeout > 0:
            self.time += timeout
        return ready

    def _working(self) -> threading.Thread | None:
        """A running thread for which the time must wait; None: none, or only hanging ones."""
        return next((one for one in threading.enumerate() if one.name == DETACHED and one not in self._hanging), None)


class VirtualLoop(asyncio.SelectorEventLoop):
    """`time()` begins at 0 and jumps from one timer to the next."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)
        self._clock_resolution = 1e-6  # after ten years a float knows nothing finer

    def time(self) -> float:
        return self._virtual.time
