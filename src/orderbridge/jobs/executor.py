"""Executes claimed rows, each in a coroutine of its own.

    claim     its note that it leaves is on disk before it does, many in one COMMIT: after a crash in between its outcome
              is unknown, and it is seen (jobs.row_writer)
    request   one slot on the wire is its own
    decision  what is decided about the answer is on disk, too
    free      the lane of its order is, and the queue knows where the row stands

A row that is not claimed goes back to the queue.

So many requests are on the wire at once, and rows are claimed for the slots that are about to be free: a claim takes a
COMMIT, and a free slot stays empty for so long. As many are claimed ahead as slots became free in as long a time before.
For a service that answers slowly nothing is claimed ahead: a row that is claimed cannot be withdrawn, and what was known
of its order grows old.

This is the bound of actions. Everything that goes on the wire has one, each where it is needed:

    actions            `actions.max_in_flight` at once (here); of one account among several half of them (jobs.outbox)
    polls              64 at once, of more than 512 accounts an eighth (jobs.poll; jobs.poll_state.PollPlaces)
    acknowledgements   8 at once of each answer (jobs.acknowledge)
    logins             8 at once (net.http), `marketplace.logins_per_second`
    lists              of restaurants and menus: the first ones of 25 accounts a second (jobs.accounts_at_work)
    all of them        `marketplace.requests_per_second`, what a customer waits for first (net.pace); polls have a rate
                       of their own below it, so that what is overdue does not leave all at once (net.http)
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from functools import partial

import structlog

from orderbridge.actions import argument_of, key_of
from orderbridge.clock import Clock
from orderbridge.errors import LoginRefused, MarketplaceError
from orderbridge.jobs.lanes import Lanes
from orderbridge.jobs.outbox_reader import OutboxReader
from orderbridge.jobs.outcome_writer import Changed, Claim, Claimed, OutcomeWriter, Result, Unwritten, shows_restaurant
from orderbridge.jobs.postponed import HeldAccounts, Postponed, is_refused
from orderbridge.jobs.row_writer import RowWriter
from orderbridge.model import Attempt, Outcome, Verdict
from orderbridge.rules.queue import Entry, Queue
from orderbridge.rules.retry import Decision, NextRequest, RetryAt, after_status, is_no_attempt, stands_after
from orderbridge.rules.standing import Standing
from orderbridge.store.columns import as_stored
from orderbridge.texts import sentence

QUICK_S = 0.25  # a request that took longer foretells no free slot
AHEAD_S = 0.02  # a claim's way to the disk, where outcomes of others are written before it
WAIT_S = 1.0  # for a slot; then the claim is given back

_log = structlog.get_logger(__name__)


class Executor:
    """Executes the rows that are taken. `moved` is called when one of them has come on."""

    def __init__(
        self,
        queue: Queue,
        reader: OutboxReader,
        lanes: Lanes,
        postponed: Postponed,
        *,
        rows: RowWriter,
        writer: OutcomeWriter,
        held_accounts: HeldAccounts,
        slots: "Slots",
        clock: Clock,
        moved: Callable[[], None],
    ) -> None:
        self._queue, self._reader, self._clock, self._lanes, self._postponed = queue, reader, clock, lanes, postponed
        self._rows, self._writer = rows, writer
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
        claim = await self._rows.claim(entry)
        if not claimed.done():
            claimed.set_result(isinstance(claim, Claim))
        if not isinstance(claim, Claim):
            self.under_way[entry.account or ""] -= 1
            self._lanes.free(entry.lane)
            self.not_claimed(entry, claim)
            self._moved()  # there may be something to write, to read or to wait for
            return
        self._postponed.forget(entry.row.id)
        self._writer.count_wait(claim)
        result = await self._send(claim, entry.account or "")
        decision = await self._rows.write(result)
        self._lanes.free_after_action(entry.lane)
        self._goes_on(result, decision)
        self._writer.log(result, decision)
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

    def not_claimed(self, entry: Entry, why: Claimed | Unwritten) -> None:
        """A row that was taken does not leave."""
        match why:
            case Changed(rows=rows):
                self._postponed.forget(entry.row.id)
                self._reader.replace(entry.row.id, rows)  # it may leave as it is now
            case Unwritten(error=error):
                self.in_doubt = True  # a commit that failed may have come through
                if error is not None and is_refused(error):
                    self._postponed.put_aside([(entry.row, error)])
                else:
                    self._postponed.leave(entry.row.id)  # whatever it is, at once it would be met again
            case _:  # another session has locked it
                self._postponed.leave(entry.row.id)

    def _goes_on(self, result: Result, decision: Decision) -> None:
        """What the queue knows of a row after its verdict."""
        row_id = result.claim.row.id
        if isinstance(decision, Verdict):
            self._queue.drop(row_id)
            return
        attempts = result.history
        at = as_stored(decision.at) if isinstance(decision, RetryAt) else None
        standing = stands_after(decision, attempts)
        last = None
        if standing is Standing.UNRESOLVED:  # as it is read: an attempt that was not sent leaves no trace
            last = next((one.outcome for one in reversed(attempts) if one.outcome != Outcome.NOT_SENT), None)
        state, tried = standing.state, bool(attempts)
        self._queue.give_back(row_id, state=state, next_attempt_utc=at, tried=tried, last_outcome=last)


async def send(claim: Claim) -> Result:
    """Send a claim, or ask first what an earlier request of it did. Never raises."""
    try:
        return await (_send(claim) if claim.request == NextRequest.SEND else _ask(claim))
    except Exception as error:  # noqa: BLE001 - one row must not take the others along; its outcome is unknown
        _log.exception("action.crashed", id=claim.row.id)
        return Result(claim, Attempt(Outcome.UNKNOWN, "internal_error", None, type(error).__name__))


async def _ask(claim: Claim) -> Result:
    """The restaurant's own status tells what an earlier request did."""
    shown = None
    try:
        shown = await claim.account.client.restaurant_status(claim.row.service_id or key_of(claim.row))
    except MarketplaceError as error:
        if is_no_attempt(error.outcome):
            return Result(claim, Attempt(error.outcome, error.code, error.http_status, sentence(error.detail)))
    decision = after_status(claim.row.action, shown, claim.history) or claim.again
    return await _send(claim) if decision is None else Result(claim, None, decision)


async def _send(claim: Claim) -> Result:
    """The one request of a row. Its arguments were checked by rules.outbox."""
    row = claim.row
    try:
        await claim.account.client.act(row.action, row.service_id or key_of(row), argument_of(row))
    except MarketplaceError as error:
        code = "login_refused" if isinstance(error, LoginRefused) else error.code
        return Result(claim, Attempt(error.outcome, code, error.http_status, sentence(error.detail)))
    return Result(claim, Attempt(Outcome.OK, None, 200))


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
