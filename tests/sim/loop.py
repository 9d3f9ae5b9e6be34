"""The simulation's event loop: virtual time, and no input from outside.

asyncio's own loop asks the system for sockets and threads in each turn; here are none.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context
from heapq import heappop
from typing import Any

from tests.jobs.virtual import VirtualLoop


class SimLoop(VirtualLoop):
    """Runs the same callbacks as a VirtualLoop, in the same order and at the same times."""

    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]
    tasks = 0  # created so far
    stands: Callable[[asyncio.Handle], bool] | None = (
        None  # whether the handle's process is paused; it keeps the handle for later
    )

    def _run_once(self) -> None:
        ready, scheduled = self._ready, self._scheduled
        while scheduled and scheduled[0]._cancelled:
            self._take_due()
        if not ready and not self._stopping:
            if not scheduled:
                raise RuntimeError("every task waits, and nothing is due")
            self._virtual.time += max(scheduled[0]._when - self._virtual.time, 0.0)
        end = self._virtual.time + self._clock_resolution
        while scheduled and scheduled[0]._when < end:
            ready.append(self._take_due())
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled and not (self.stands is not None and self.stands(handle)):
                handle._run()

    def _take_due(self) -> asyncio.TimerHandle:
        handle = heappop(self._scheduled)
        handle._scheduled = False  # type: ignore[attr-defined]
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Leave a cancelled handle in the heap until its time."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """An error in a callback is the simulation's own, and ends it."""
        if "handle" in context:
            raise context["exception"]
        super().call_exception_handler(context)

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Context | None = None) -> asyncio.Handle:
        """There is one thread."""
        return self.call_soon(callback, *args, context=context)
