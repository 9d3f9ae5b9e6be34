"""How fast one process asks: so many requests a second, and who goes first when more would like to.

Rules of this file:
- In no second leave more than are allowed, wherever the second begins. A tenth of them may leave at one moment.
- What a customer waits for goes first, then the polls, then what can wait. Within a class: first come, first served.
- A request that may not wait any longer has not left, and says so.
- Polls go in small groups, so that they are noted in one transaction; what a customer waits for goes one by one.
"""

import asyncio
from enum import IntEnum
from heapq import heappop, heappush
from typing import Final

from orderbridge.errors import Message, NotSent

PACED: Final = "paced"  # the code of a request that has waited for its turn in vain
AT_ONCE: Final = 0.1  # of a second's requests
PLAY: Final = 1e-6  # of a request, by which sums of floats may be off


class Importance(IntEnum):
    """Who goes first. A login goes with what a customer waits for: without it nothing leaves."""

    ACTION = 0  # and acknowledgements
    POLL = 1
    LIST = 2


class Allowance:
    """So many in any second. Times are seconds of one clock that never goes back."""

    def __init__(self, per_second: int) -> None:
        self.at_once = max(int(per_second * AT_ONCE), 1)
        self._again = per_second - (self.at_once - 1)  # come back in a second: these and a full store are all of them
        self._left = float(self.at_once)
        self._at = float("-inf")

    def take(self, now: float) -> bool:
        """Whether one more may leave now; then it is counted."""
        self._refill(now)
        if self._left < 1 - PLAY:
            return False
        self._left -= 1
        return True

    def wait(self, now: float, count: int) -> float:
        """Seconds until so many may leave at once, or as many as ever do."""
        self._refill(now)
        return max(min(count, self.at_once) - self._left, 0.0) / self._again

    def _refill(self, now: float) -> None:
        if now > self._at:
            self._left = min(self._left + (now - self._at) * self._again, self.at_once)
            self._at = now


class Pace:
    """The line before the wire. With no request in it, and something left of the second, a request leaves at once."""

    def __init__(self, per_second: int | None) -> None:
        """None: a request leaves when it comes."""
        self._per_second: int | None = None
        self._allowance: Allowance | None = None
        self._line: list[tuple[Importance, int, asyncio.Future[None]]] = []  # a heap
        self._came = 0
        self._timer: asyncio.TimerHandle | None = None
        self.change(per_second)

    def change(self, per_second: int | None) -> None:
        """From now on it is so many."""
        if per_second != self._per_second:  # a new allowance is full
            self._per_second, self._allowance = per_second, Allowance(per_second) if per_second else None

    async def admit(self, importance: Importance, until: float | None = None) -> None:
        """Returns when one more request may leave. NotSent at `until`, the event loop's time: it waited in vain."""
        loop = asyncio.get_running_loop()
        if self._allowance is None or (not self._line and self._allowance.take(loop.time())):
            return
        turn: asyncio.Future[None] = loop.create_future()
        self._came += 1
        heappush(self._line, (importance, self._came, turn))
        self._arm(loop, self._allowance)
        try:
            async with asyncio.timeout_at(until):
                await turn
        except TimeoutError:
            raise NotSent(PACED, Message("net.paced")) from None

    def let_go(self, importance: Importance) -> None:
        """Who waits with this importance goes now; it is for them to see that they are not wanted any more."""
        for one, _, turn in self._line:
            if one == importance and not turn.done():
                turn.set_result(None)

    def _arm(self, loop: asyncio.AbstractEventLoop, allowance: Allowance) -> None:
        count = 1 if self._line[0][0] == Importance.ACTION else len(self._line)
        due = loop.time() + allowance.wait(loop.time(), count)
        if self._timer is not None:
            if self._timer.when() <= due:
                return
            self._timer.cancel()
        self._timer = loop.call_at(due, self._go, loop)

    def _go(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        while self._line:
            turn = self._line[0][2]
            if not turn.done():  # else it has given up
                if self._allowance is not None and not self._allowance.take(loop.time()):
                    self._arm(loop, self._allowance)
                    return
                turn.set_result(None)
            heappop(self._line)
