"""A row's way, once its turn has come; each in a coroutine of its own.

    claim     its note that it leaves is on disk before it does, many in one COMMIT: after a crash in between its outcome
              is unknown, and it is seen (jobs.row_writer)
    request   one place on the wire is its own (jobs.slots, jobs.send)
    decision  what is decided about the answer is on disk, too
    free      the lane of its order is, and the queue knows where the row stands

A row whose claim says something else does not leave (`stays`).
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection
from functools import partial

from orderbridge.clock import Clock
from orderbridge.jobs.claims import Claims, Unwritten
from orderbridge.jobs.ends import Ends
from orderbridge.jobs.held_accounts import HeldAccounts
from orderbridge.jobs.lanes import Lanes
from orderbridge.jobs.outbox_reader import OutboxReader
from orderbridge.jobs.outcome_writer import OutcomeWriter, shows_restaurant
from orderbridge.jobs.postponed import Postponed, is_refused
from orderbridge.jobs.row_writer import RowWriter
from orderbridge.jobs.send import Claim, Result, send
from orderbridge.jobs.slots import Slots
from orderbridge.model import Verdict
from orderbridge.rules.account_queues import Entry
from orderbridge.rules.claims import Changed, Gone, Held, Incomplete, NotOurs, PollInFlight, Stays
from orderbridge.rules.queue import Queue
from orderbridge.rules.retry import Decision, RetryAt, stands_after
from orderbridge.rules.standing import Standing
from orderbridge.store.columns import as_stored


class Executor:
    """The ways of all rows that are taken. `moved` is called when one of them has come on."""

    def __init__(
        self,
        queue: Queue,
        reader: OutboxReader,
        clock: Clock,
        lanes: Lanes,
        postponed: Postponed,
        *,
        row_writer: RowWriter,
        claims: Claims,
        outcomes: OutcomeWriter,
        ends: Ends,
        held_accounts: HeldAccounts,
        slots: Slots,
        moved: Callable[[], None],
    ) -> None:
        self._queue, self._reader, self._clock, self._lanes, self._postponed = queue, reader, clock, lanes, postponed
        self._row_writer, self._claims, self._outcomes, self._ends = row_writer, claims, outcomes, ends
        self._held_accounts, self._slots, self._moved = held_accounts, slots, moved
        self.on_restaurant: Callable[[str, str], None] = lambda _account, _restaurant: None  # opened or closed
        self.under_way: Counter[str] = Counter()  # rows of each account that are claimed, or asked for on the wire
        self.is_stopping = False  # what has not left does not leave any more
        self.in_doubt = False  # a claim was not written, as far as is known: a commit that failed may have come through
        self._tasks: dict[asyncio.Task[None], str] = {}  # with their accounts
        self._settled = 0

    def begin(self, entry: Entry) -> "asyncio.Future[bool]":
        """Set a row on its way. Returns whether it was claimed, once that is known."""
        claimed: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        way = asyncio.create_task(self._go(entry, claimed))
        self._tasks[way] = entry.account or ""
        way.add_done_callback(partial(self._over, entry, claimed))
        return claimed

    def take_settled(self) -> int:
        """How many rows have come to the end of their way since this was asked."""
        settled, self._settled = self._settled, 0
        return settled

    def has_in_hand(self, account: str) -> bool:
        """Whether a row of the account is on its way: claimed, on the wire, or its outcome not yet on disk."""
        return account in self._tasks.values()

    def let_go(self, accounts: Collection[str]) -> None:
        """Another process answers for these accounts: their rows' ways end where they are."""
        for way, account in list(self._tasks.items()):
            if account in accounts:
                way.cancel()

    def abandon(self) -> "set[asyncio.Task[None]]":
        """End every row's way where it is: the next start finds its note. Returns what is ending."""
        for way in self._tasks:
            way.cancel()
        return set(self._tasks)

    def _over(self, entry: Entry, claimed: "asyncio.Future[bool]", way: asyncio.Task[None]) -> None:
        """Of one that was ended where it was, too, the lane is free, and who waits for its claim goes on."""
        del self._tasks[way]
        if not claimed.done():
            claimed.set_result(False)
            self.under_way[entry.account or ""] -= 1
        if way.cancelled():  # what it has done, no poll that began before knows
            self._lanes.free_after_action(entry.lane)
            self._moved()

    async def _go(self, entry: Entry, claimed: "asyncio.Future[bool]") -> None:
        claim = await self._row_writer.claim(entry)
        if not claimed.done():
            claimed.set_result(isinstance(claim, Claim))
        if not isinstance(claim, Claim):
            self.under_way[entry.account or ""] -= 1
            self._lanes.free(entry.lane)
            self.stays(entry, claim)
            self._moved()  # there may be something to write, to read or to wait for
            return
        self._postponed.forget(entry.row.id)
        self._claims.tell_wait(claim)
        result = await self._send(claim, entry.account or "")
        decision = await self._row_writer.write(result)
        self._lanes.free_after_action(entry.lane)
        self._goes_on(result, decision)
        self._outcomes.tell(result, decision)
        if claim.row.restaurant_id and shows_restaurant(claim.row, decision):
            self.on_restaurant(claim.account.name, claim.row.restaurant_id)
        self._settled += 1
        self._moved()

    async def _send(self, claim: Claim, account: str) -> Result:
        try:
            async with self._slots.one() as place:
                result = await send(claim) if place and not self.is_stopping else None
        finally:
            self.under_way[account] -= 1
            self._moved()
        result = result or Result(claim, None, RetryAt(self._clock.now()))  # it has not left
        if result.attempt is not None:
            self._held_accounts.record_outcome(account, result.attempt.outcome)
        return result

    def stays(self, entry: Entry, why: Stays | Unwritten) -> None:
        """A row that was taken does not leave."""
        row_id = entry.row.id
        match why:
            case Verdict():
                entry.standing = Standing.ENDING
                self._ends.due.append((entry.row, why))
            case Changed(row=row):
                self._queue.give_back(row_id)
                self._queue.put(row)  # it may leave as it is now
            case Incomplete(unknown=unknown):
                self._queue.give_back(row_id)
                self._reader.wanted.update(unknown)
            case PollInFlight():
                self._queue.await_poll(row_id)
            case Held():
                self._postponed.leave(row_id)
            case Unwritten(error=error):
                self.in_doubt = True  # a commit that failed may have come through
                if error is not None and is_refused(error):
                    self._postponed.put_aside([(entry.row, error)])
                else:
                    self._postponed.leave(row_id)  # whatever it is, at once it would be met again
            case Gone() | NotOurs():
                self._postponed.forget(row_id)
                self._queue.drop(row_id)

    def _goes_on(self, result: Result, decision: Decision) -> None:
        """What the queue knows of a row after its verdict."""
        row_id = result.claim.row.id
        if isinstance(decision, Verdict):
            self._queue.drop(row_id)
            return
        attempts = [*result.claim.history, *([] if result.attempt is None else [result.attempt])]
        at = as_stored(decision.at) if isinstance(decision, RetryAt) else None
        standing = stands_after(decision, attempts)
        self._queue.give_back(row_id, state=standing.state, next_attempt_utc=at, tried=bool(attempts))
