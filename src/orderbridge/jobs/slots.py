"""The places on the wire: so many requests at once, and claims for the places that are about to be free.

To claim a row takes a COMMIT, and a place that is free stays empty for so long. So rows are claimed ahead, as many as
places became free in as long a time before: about as many will be free when the claims are on disk. A service that
answers slowly is not claimed ahead for: a row that is claimed cannot be withdrawn, and what was known of its order grows
old.

This is the bound of actions. Everything that goes on the wire has one, each where it is needed:

    actions            `actions.max_in_flight` at once (here); of one account among several half of them (jobs.outbox)
    polls              64 at once, of more than 512 accounts an eighth (jobs.pollers; jobs.poll.PollPlaces)
    acknowledgements   8 at once of each answer (jobs.answer)
    logins             8 at once (net.http), `marketplace.logins_per_second`
    lists              of restaurants and menus: the first ones of 25 accounts a second (jobs.working)
    all of them        `marketplace.requests_per_second`, what a customer waits for first (net.pace); polls have a rate
                       of their own below it, so that what is overdue does not leave all at once (net.http)
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from orderbridge.clock import Clock

QUICK_S = 0.25  # a request that took longer foretells no free place
AHEAD_S = 0.02  # a claim's way to the disk, where outcomes of others are written before it
WAIT_S = 1.0  # for a place; then the claim is given back


class Slots:
    """`most` requests at once."""

    def __init__(self, most: int, clock: Clock) -> None:
        self.most = most
        self._clock = clock
        self._free = asyncio.Semaphore(most)
        self._freed = deque[float](maxlen=most)  # when, the last ones

    def room(self, under_way: int) -> int:
        """For how many rows more there is a place, or will be. `under_way`: that are claimed and not answered."""
        recently = self._clock.monotonic() - AHEAD_S
        return self.most + sum(at > recently for at in self._freed) - under_way

    @asynccontextmanager
    async def one(self) -> AsyncIterator[bool]:
        """Whether there was a place in time; it is kept to the end of the block."""
        if not await self._take():
            yield False
            return
        taken = self._clock.monotonic()
        try:
            yield True
        finally:
            self._free.release()
            now = self._clock.monotonic()
            if now - taken < QUICK_S:
                self._freed.append(now)

    async def _take(self) -> bool:
        if not self._free.locked():  # no timer for what need not wait
            return await self._free.acquire()
        try:
            async with asyncio.timeout(WAIT_S):
                return await self._free.acquire()
        except TimeoutError:
            return False
