"""An event loop whose time passes only while everybody waits, and then at once: a day takes no longer than its work."""

import asyncio
import selectors
from typing import Any

STUCK_S = 60.0  # of real time: nothing is due and nothing comes from outside


class _Selector(selectors.DefaultSelector):
    """Does not wait for the next timer: it moves the loop's time there."""

    def __init__(self) -> None:
        super().__init__()
        self.time = 0.0

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            ready = super().select(STUCK_S)
            if not ready:
                raise RuntimeError("every task waits, and nothing is due")
            return ready
        ready = super().select(0)
        if not ready and timeout > 0:
            self.time += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """`time()` begins at 0 and jumps from one timer to the next."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)
        self._clock_resolution = 1e-6  # after ten years a float knows nothing finer

    def time(self) -> float:
        return self._virtual.time
