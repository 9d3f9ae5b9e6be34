"""The loop of a simulation: a virtual one on which nothing can come from outside, so that nobody is asked whether it has.

There are no sockets and no threads here. Each turn of asyncio's own loop asks the system for both.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context
from heapq import heappop
from typing import Any

from tests.jobs.virtual import VirtualLoop


class SimLoop(VirtualLoop):
    """Calls what a VirtualLoop calls, in the same order and at the same times."""

    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]
    stands: Callable[[asyncio.Handle], bool] | None = None  # whether what would do this is paused, and does it later

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
        """It stays in the heap until its time, which comes soon enough."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """An error in a callback is the simulation's own, and ends it."""
        if "handle" in context:
            raise context["exception"]
        super().call_exception_handler(context)

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Context | None = None) -> asyncio.Handle:
        """There is one thread."""
        return self.call_soon(callback, *args, context=context)
