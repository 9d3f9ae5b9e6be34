"""What the polls of all accounts have in common: their notes, their cooldowns, their lanes, what is unresolved."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from datetime import timedelta
from typing import Generic, TypeVar

from orderbridge.jobs.account import Account
from orderbridge.jobs.acknowledge import Acknowledger
from orderbridge.jobs.context import Context
from orderbridge.jobs.daemon_problems import DaemonProblems
from orderbridge.jobs.intake import Intake
from orderbridge.jobs.journal import Journal
from orderbridge.jobs.poll import Poller, PollPlaces
from orderbridge.jobs.poll_state import PollState
from orderbridge.jobs.reconciler import read_unresolved
from orderbridge.rules.cooldown import MARGIN_S, Cooldowns, together_s

# Requests for orders that may be under way at a time; of many accounts a share, so that no round of all of them takes
# longer than so many timeouts. Beyond it each would only open one more connection of TLS, and make all the others late.
MOST_POLLS = 64
ROUND_TIMEOUTS = 8
READ_S = 0.01  # many accounts: a reading for all of them waits so long for the answers of the same moment

T = TypeVar("T")


class Pollers:
    """Makes the pollers of one daemon's accounts."""

    def __init__(
        self,
        context: Context,
        configured: Collection[str],
        cooldowns: Cooldowns,
        *,
        not_written: Callable[[], int],
        journal: Journal | None = None,
        known: DaemonProblems | None = None,
    ) -> None:
        """`configured`: the names of all accounts, looked at when it matters. `not_written`: outbox rows that the database refuses."""
        market = context.settings.marketplace
        self._context = context
        self._configured = configured
        self.cooldowns = cooldowns
        self._not_written = not_written
        self._journal = journal
        self._known = known
        self._cooldown_s = market.cooldown_seconds
        many = together_s(len(configured), self._cooldown_s) > 0
        longest = timedelta(seconds=market.timeout_seconds + self._cooldown_s + MARGIN_S)
        self._notes = PollState(context.database, context.clock, longest=longest, many=many)
        self._acknowledgers: dict[str, Acknowledger] = {}
        self._places = PollPlaces(max(MOST_POLLS, len(configured) // ROUND_TIMEOUTS))
        self._unresolved = Shared(lambda: context.database.read(read_unresolved), READ_S if many else 0.0)

    def grow(self, accounts: int) -> None:
        """So many are at work: the requests under way are at least their share."""
        self._places.widen(max(MOST_POLLS, accounts // ROUND_TIMEOUTS))
        if together_s(accounts, self._cooldown_s) > 0:
            self._notes.are_many, self._unresolved.wait_s = True, READ_S

    def close(self) -> None:
        """What is under way goes on to its end, and nothing else leaves."""
        self._places.close()

    async def note_rest(self) -> None:
        """OKs that a till has kept from being noted; the service does not deliver these orders again. Nothing else runs."""
        for acknowledger in self._acknowledgers.values():
            await acknowledger.mark_late()

    async def forget(self, account: str) -> None:
        """It has left."""
        if (acknowledger := self._acknowledgers.pop(account, None)) is not None:
            await acknowledger.mark_late()

    def poller(self, account: Account) -> Poller:
        """One for each account."""
        intake = Intake(
            account,
            self._context,
            self._configured,
            known=self._known,
            unresolved=self._unresolved,
            journal=self._journal,
        )
        self._acknowledgers[account.name] = intake.acknowledger
        return Poller(
            account,
            self._context,
            intake=intake,
            notes=self._notes,
            cooldowns=self.cooldowns,
            places=self._places,
            not_written=self._not_written,
        )


class Shared(Generic[T]):
    """One reading for everybody who asks before it begins; who asks later gets the next one."""

    def __init__(self, read: Callable[[], Awaitable[T]], wait_s: float) -> None:
        self._read = read
        self.wait_s = wait_s
        self._next: asyncio.Task[T] | None = None

    async def __call__(self) -> T:
        if self._next is None:
            self._next = asyncio.create_task(self._run())
        return await asyncio.shield(self._next)

    async def _run(self) -> T:
        await asyncio.sleep(self.wait_s)
        self._next = None
        return await self._read()
