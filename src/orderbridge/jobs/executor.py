"""Executes outbox rows, each in its own coroutine.

    claim     commit the row's claim before its request is sent, so that a crash in between is found (jobs.outbox)
    request   wait for a slot, then send the request
    outcome   commit the decision about the answer
    release   free the lane, and inform the queue of the row's new state

A row that cannot be claimed goes back to the queue.

Claims and outcomes are written by group commit. Within one transaction outcomes come first, so that claims see the
newest state of their lanes. A claim that cannot be written fails, and the row is not sent. An outcome is never lost
while the program runs: if a row is locked or a trigger refuses the write, it is written again until it succeeds.

The number of requests in flight is limited by slots. Because a claim costs a COMMIT, rows are claimed ahead for slots
that are about to be free: as many as became free within the last AHEAD_S. If the marketplace answers slowly, none is
claimed ahead, because a claimed row cannot be withdrawn and its order may change meanwhile.

All requests are limited, each kind in its own module:

    actions            `actions.max_in_flight` at once (here); at most half for one account of several (jobs.outbox)
    polls              64 at once, or an eighth of the accounts if there are more than 512 (jobs.poll)
    acknowledgements   8 at once for each answer (jobs.acknowledge)
    logins             8 at once, and `marketplace.logins_per_second` (net.http)
    lists              the first lists of 25 accounts a second (jobs.accounts_at_work)
    all requests       `marketplace.requests_per_second`, those for waiting customers first (net.http); polls also have
                       a lower rate, so that overdue ones are not sent all at once (net.http)
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import structlog
from sqlalchemy import Connection

from orderbridge.actions import argument_of, key_of
from orderbridge.clock import Clock
from orderbridge.errors import LoginRefused, MarketplaceError, Over
from orderbridge.jobs.outcome_writer import Claim, Fresh, OutcomeWriter, Result, about, report, shows_status
from orderbridge.jobs.postponed import HeldAccounts
from orderbridge.model import Attempt, Outcome, Verdict
from orderbridge.observe.metrics import ACTION_WAIT_SECONDS
from orderbridge.rules.outbox_rows import Standing, stands_after
from orderbridge.rules.queue import Entry
from orderbridge.rules.retry import NO_ATTEMPTS, Decision, NextRequest, RetryAt, after_status
from orderbridge.store.ddl import as_stored
from orderbridge.store.group_commit import GroupCommit, RowLocked, write_group
from orderbridge.texts import sentence

QUICK_S = 0.25  # slower requests do not count as soon-free slots
AHEAD_S = 0.02  # a claim's COMMIT takes about this long
WAIT_S = 1.0  # for a slot; then the claim is given back

_log = structlog.get_logger(__name__)

_Note = Entry | Result


class Executor:
    """Executes rows. `moved` is called when the state of one has changed."""

    def __init__(self, writer: OutcomeWriter, held_accounts: HeldAccounts, moved: Callable[[], None]) -> None:
        self._context = context = writer.context
        self._writer, self._held_accounts, self._moved = writer, held_accounts, moved
        self._queue, self._postponed = held_accounts.queue, held_accounts.postponed
        write = partial(write_group, context.database, self._write_notes, urgent=True)
        self._group: GroupCommit[_Note, Any] = GroupCommit(write, put_off=self._put_off, on_idle=moved)
        self.late: set[int] = set()  # rows whose outcomes could not be written yet
        self._is_closed = False  # the coroutines are being cancelled; the next start recovers their rows
        self.failed: Over | None = None  # ends the daemon
        self.slots = Slots(context.settings.actions.max_in_flight, context.clock)
        self.on_restaurant: Callable[[str, str], None] = lambda _account, _restaurant: None  # opened or closed
        self.under_way: Counter[str] = Counter()  # by account: rows that are claimed or in flight
        self.is_stopping = False  # no request is sent any more
        self.in_doubt = False  # a cycle or a claim failed, but its commit may have succeeded
        self._tasks: dict[asyncio.Task[None], str] = {}  # with their accounts

    @property
    def is_writing(self) -> bool:
        """Whether a write is under way or scheduled."""
        return self._group.is_writing

    def begin(self, entry: Entry) -> "asyncio.Future[None]":
        """Start to execute a row. The future is done when it is claimed, or cannot be."""
        claimed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._execute(entry, claimed))
        self._tasks[task] = entry.account or ""
        task.add_done_callback(partial(self._over, entry, claimed))
        return claimed

    def is_executing(self, account: str) -> bool:
        """Whether a row of the account is being executed, from its claim until its outcome is on disk."""
        return account in self._tasks.values()

    def cancel(self, accounts: Collection[str]) -> None:
        """Stop executing rows of these accounts, which another process takes over. Their rows keep their states."""
        for task, account in list(self._tasks.items()):
            if account in accounts:
                task.cancel()

    def abandon(self) -> "set[asyncio.Task[None]]":
        """Cancel all coroutines and return them. The next start recovers their rows."""
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        return set(self._tasks)

    def _over(self, entry: Entry, claimed: "asyncio.Future[None]", task: asyncio.Task[None]) -> None:
        """Clean up after a coroutine; after a cancelled one, also answer its future and free its lane."""
        del self._tasks[task]
        if not claimed.done():
            claimed.set_result(None)
            self.under_way[entry.account or ""] -= 1
        if task.cancelled():  # its request may have taken effect after a running poll's list was made
            self._context.lanes.free_after_action(entry.lane)
            self._moved()

    async def _execute(self, entry: Entry, claimed: "asyncio.Future[None]") -> None:
        try:
            claim: Claim | Fresh | Exception = await self._group.add(entry)
        except Exception as error:  # noqa: BLE001 - for any reason the row keeps its state
            self.failed = error if isinstance(error, Over) else self.failed
            claim = error
        if not claimed.done():
            claimed.set_result(None)
        if not isinstance(claim, Claim):
            self.under_way[entry.account or ""] -= 1
            self._context.lanes.free(entry.lane)
            self.not_claimed(entry, claim)
            self._moved()  # there may be something to write, to read or to wait for
            return
        self._postponed.forget(entry.row.id)
        if claim.number == 1 and claim.row.created_utc is not None:  # from the insert to the first request
            waited = (self._context.clock.now() - claim.row.created_utc).total_seconds()
            self._context.metrics.observe(ACTION_WAIT_SECONDS, max(waited, 0.0))
        result = await self._send(claim, entry.account or "")
        decision = await self.write(result)
        if claim.number == 1 and result.attempt is not None:
            self._context.kept.learned.answered(claim.row, result.attempt)
        self._context.lanes.free_after_action(entry.lane)
        self._update_queue(result, decision)
        if claim.row.restaurant_id and claim.row.food_id is None and shows_status(claim.row, decision):
            self.on_restaurant(claim.account.name, claim.row.restaurant_id)
        self._moved()

    async def write(self, result: Result) -> Decision:
        """Decide about the row's outcome, and return when the decision is on disk."""
        row_id = result.claim.row.id
        try:
            decision: Decision = await self._group.add(result)
        except Over as error:  # the next start finds the row's claim
            self.failed = error
            raise asyncio.CancelledError from error
        finally:
            self.late.discard(row_id)
            if not self._is_closed:
                self._postponed.forget(row_id)
        return decision

    def _write_notes(self, connection: Connection, notes: Sequence[_Note]) -> list[tuple[_Note, object]]:
        outcomes = self._writer.post(connection, [note for note in notes if isinstance(note, Result)])
        return [*outcomes, *self._writer.claim(connection, [note for note in notes if isinstance(note, Entry)])]

    def _put_off(self, failed: Sequence[tuple[_Note, Exception]]) -> list[float | None]:
        """How long each failed note waits to be written again: outcomes are repeated for ever, claims never."""
        late = {
            note.claim.row: None if isinstance(error, RowLocked) else error
            for note, error in failed
            if isinstance(note, Result) and not isinstance(error, Over)
        }
        waits: dict[int, float] = {}
        if late:
            waits = self._postponed.put_off({row.id: late[row] for row in late}, {row.id: row for row in late})
            self.late |= waits.keys()
        return [waits.get(note.claim.row.id) if isinstance(note, Result) else None for note, _ in failed]

    async def _send(self, claim: Claim, account: str) -> Result:
        try:
            async with self.slots.one() as has_slot:
                result = await send(claim) if has_slot and not self.is_stopping else None
        finally:
            self.under_way[account] -= 1
            self._moved()
        result = result or Result(claim, None, RetryAt(self._context.clock.now()))  # nothing was sent
        if result.attempt is not None:
            self._held_accounts.record_outcome(account, result.attempt.outcome)
        return result

    def not_claimed(self, entry: Entry, why: Fresh | Exception) -> None:
        """Give back a row that could not be claimed."""
        row = entry.row
        if isinstance(why, tuple):
            self._postponed.forget(row.id)
            self._writer.reader.replace(row.id, why)  # its new state may be sent
        else:
            self.in_doubt |= why is not None  # a failed commit may have succeeded
            self._postponed.put_aside([(row, why)])

    def _update_queue(self, result: Result, decision: Decision) -> None:
        """Update the queue after a row's outcome was written, and log it."""
        row, attempts = result.claim.row, result.history
        if isinstance(decision, Verdict):
            self._queue.drop(row.id)
            report(self._context, row, decision)
            return
        at = as_stored(decision.at) if isinstance(decision, RetryAt) else None
        standing = stands_after(decision, attempts)
        last = None
        if standing is Standing.UNRESOLVED:  # the same as a read of the table gives: it has no unsent attempts
            last = next((one.outcome for one in reversed(attempts) if one.outcome != Outcome.NOT_SENT), None)
        state, tried = standing.state, bool(attempts)
        self._queue.give_back(row.id, state=state, next_attempt_utc=at, tried=tried, last_outcome=last)
        _log_wait(result, decision)


def _log_wait(result: Result, decision: Decision) -> None:
    """Log a row's wait once for each cause. Causes that concern the whole account are logged elsewhere."""
    row, attempt = result.claim.row, result.attempt
    before = {one.code for one in result.claim.history}
    again = attempt is None or attempt.outcome == Outcome.NOT_SENT or attempt.code in before
    log = _log.debug if again else _log.info
    at = decision.at.isoformat() if isinstance(decision, RetryAt) else "next_poll"
    log("action.waits", id=row.id, action=row.action, code=decision.code, again=at, **about(row))


async def send(claim: Claim) -> Result:
    """Send the request of a claim, or first ask for the effect of an earlier one. Never raises."""
    if claim.known is not None:
        return Result(claim, None, claim.known)
    try:
        return await (_send(claim) if claim.request == NextRequest.SEND else _ask(claim))
    except Exception as error:  # noqa: BLE001 - a bug must not stop other rows; the outcome is unknown
        _log.exception("action.crashed", id=claim.row.id)
        return Result(claim, Attempt(Outcome.UNKNOWN, "internal_error", None, type(error).__name__))


async def _ask(claim: Claim) -> Result:
    """Ask for the restaurant's status, which shows the effect of an earlier request."""
    shown = None
    try:
        shown = await claim.account.client.restaurant_status(claim.row.service_id or key_of(claim.row))
    except MarketplaceError as error:
        if error.outcome in NO_ATTEMPTS:
            return Result(claim, Attempt(error.outcome, error.code, error.http_status, sentence(error.detail)))
    decision = after_status(claim.row.action, shown, claim.history) or claim.again
    return await _send(claim) if decision is None else Result(claim, None, decision)


async def _send(claim: Claim) -> Result:
    """Send the row's request. rules.outbox_rows has checked its arguments."""
    row = claim.row
    try:
        await claim.account.client.act(row.action, row.service_id or key_of(row), argument_of(row))
    except MarketplaceError as error:
        code = "login_refused" if isinstance(error, LoginRefused) else error.code
        return Result(claim, Attempt(error.outcome, code, error.http_status, sentence(error.detail)))
    return Result(claim, Attempt(Outcome.OK, None, 200))


class Slots:
    """Limits the requests in flight to `most`."""

    def __init__(self, most: int, clock: Clock) -> None:
        self.most = most
        self._clock = clock
        self._free = asyncio.Semaphore(most)
        self._freed = deque[float](maxlen=most)  # times of the last releases

    def room(self, under_way: int) -> int:
        """How many more rows may be claimed. `under_way`: rows that are claimed and not answered."""
        recently = self._clock.monotonic() - AHEAD_S
        return self.most + sum(at > recently for at in self._freed) - under_way

    @asynccontextmanager
    async def one(self) -> AsyncIterator[bool]:
        """Wait for a slot and hold it during the block. Yields False if none was free in time."""
        try:  # a timer only if the slot is not free
            async with asyncio.timeout(WAIT_S if self._free.locked() else None):
                await self._free.acquire()
        except TimeoutError:
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
