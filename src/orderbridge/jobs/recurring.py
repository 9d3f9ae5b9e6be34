"""What is done for an account again and again: its polls, its lists, its restaurants' status, its token's renewal.

It comes onto the timetable with the account, and goes with it. Only a poll has to be finished when the daemon stops: the
rest is read again at the next start.
"""

from collections.abc import Collection
from functools import partial
from typing import Protocol

from orderbridge.jobs.account import Account
from orderbridge.jobs.answer import Polled
from orderbridge.jobs.context import Context
from orderbridge.jobs.poll import Poller
from orderbridge.jobs.reference import Common, read_lists, read_statuses
from orderbridge.jobs.timetable import Timetable
from orderbridge.model import Token
from orderbridge.rules.tokens import RENEW_AGAIN_S

LISTS_S = 24 * 3600.0
LISTS_AGAIN_S = 60.0  # after a failure
STATUSES_S = 300.0
STATUS_AGAIN_S = 1.0  # after a restaurant was opened or closed
LISTS_LATER_S, STATUSES_LATER_S = 0.5, 2.0  # than the first poll: the orders come first
RENEW_LEAST_S = 1.0
JOBS = ("poll", "lists", "statuses", "renew")


class Heard(Protocol):
    """Who hears of each poll."""

    def __call__(self, account: str, delivered: int, /, *, ok: bool) -> None: ...


class Recurring:
    """The jobs of one account."""

    def __init__(
        self,
        account: Account,
        poller: Poller,
        context: Context,
        timetable: Timetable,
        *,
        configured: Collection[str],
        common: Common,
        polled: "Heard",
    ) -> None:
        """`polled` is called after each poll, with the account's name, how many orders came, and whether it was good."""
        self._account = account
        self._poller = poller
        self._timetable = timetable
        self._database = context.database
        self._clock = context.clock
        self._configured = configured
        self._common = common
        self._polled = polled
        self.has_begun = False  # its first poll was made, or tried
        self._asked: set[str] = set()  # jobs about one restaurant

    def begin(self, late_s: float, lists_late_s: float) -> None:
        """The first poll leaves in so many seconds, everything else after it: when the lists' turn has come."""
        self._account.on_token = self._has_token
        if (token := self._account.session.current) is not None:
            self._has_token(token)
        self._timetable.plan(self._name("poll"), late_s, self._poll, vital=True)
        self._timetable.plan(self._name("lists"), lists_late_s + LISTS_LATER_S, self._lists)
        self._timetable.plan(self._name("statuses"), lists_late_s + STATUSES_LATER_S, self._statuses)

    def end(self) -> None:
        """It leaves: nothing more is called. What runs goes on to its end, a login too, and that is the last one."""
        self._account.on_token = lambda _: None
        for name in self._jobs():
            self._timetable.leave(name)

    def is_busy(self) -> bool:
        """Whether a job of it still runs."""
        return any(self._timetable.runs(name) for name in self._jobs())

    def cut(self) -> None:
        """What still runs is ended where it is."""
        for name in self._jobs():
            self._timetable.cut(name)

    def read_status(self, restaurant: str) -> None:
        """Soon, and once: what the service itself says after it was told to open or close."""
        name = f"{self._name('status')} {restaurant}"
        self._asked.add(name)
        self._timetable.plan(name, STATUS_AGAIN_S, partial(self._status, restaurant))

    def _jobs(self) -> list[str]:
        """The names of all that is called for it."""
        return [*map(self._name, JOBS), *self._asked]

    def _name(self, what: str) -> str:
        return f"{what} {self._account.name}"

    def _has_token(self, _: Token) -> None:
        wait = max(self._account.renew_in() or 0.0, RENEW_LEAST_S)
        self._timetable.plan(self._name("renew"), wait, self._renew)

    async def _poll(self) -> float:
        counts = Polled()
        try:
            counts = await self._poller.tick()
            return counts.again_in
        finally:
            self.has_begun = True
            orders = counts.delivered - counts.quarantined
            self._polled(self._account.name, orders, ok=counts.ok)

    async def _lists(self) -> float:
        came = await read_lists(self._account, self._database, self._configured, self._common)
        return LISTS_S if came else LISTS_AGAIN_S

    async def _statuses(self) -> float:
        await read_statuses(self._account, self._database, self._clock)
        return STATUSES_S

    async def _status(self, restaurant: str) -> None:
        await read_statuses(self._account, self._database, self._clock, only=restaurant)

    async def _renew(self) -> float | None:
        if (wait := self._account.renew_in()) is not None and wait <= 0:
            await self._account.renew()
            wait = self._account.renew_in()
        return None if wait is None else max(wait, RENEW_AGAIN_S if wait <= 0 else 0.0)
