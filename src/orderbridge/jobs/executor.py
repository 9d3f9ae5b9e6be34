"""Executes claimed rows, each in a coroutine of its own.

    claim     its note that it leaves is on disk before it does, many in one COMMIT: after a crash in between its outcome
              is unknown, and it is seen (jobs.outbox)
    request   one slot on the wire is its own
    decision  what is decided about the answer is on disk, too
    free      the lane of its order is, and the queue knows where the row stands

A row that is not claimed goes back to the queue.

Claims and outcomes are written by group commit. Of one transaction, outcomes are written first, then
claims, so that a lane which an outcome frees is judged by what is known now. A claim that cannot be written says so, and
the row does not leave. An outcome is never lost while the program runs: what a POS holds or a trigger refuses is put
off, and written again until it succeeds.

So many requests are on the wire at once, and rows are claimed for the slots that are about to be free: a claim takes a
COMMIT, and a free slot stays empty for so long. As many are claimed ahead as slots became free in as long a time before.
For a service that answers slowly nothing is claimed ahead: a row that is claimed cannot be withdrawn, and what was known
of its order grows old.

This is the bound of actions. Everything that goes on the wire has one, each where it is needed:

    actions            `actions.max_in_flight` at once (here); of one account among several half of them (jobs.outbox)
    polls              64 at once, of more than 512 accounts an eighth (jobs.poll; jobs.poll.Polls)
    acknowledgements   8 at once of each answer (jobs.acknowledge)
    logins             8 at once (net.http), `marketplace.logins_per_second`
    lists              of restaurants and menus: the first ones of 25 accounts a second (jobs.accounts_at_work)
    all of them        `marketplace.requests_per_second`, what a customer waits for first (net.http); polls have a rate
                       of their own below it, so that what is overdue does not leave all at once (net.http)
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
from orderbridge.jobs.outcome_writer import Claim, Fresh, OutcomeWriter, Result, about, shows_restaurant, tell
from orderbridge.jobs.postponed import HeldAccounts, is_refused
from orderbridge.model import Attempt, Outcome, Verdict
from orderbridge.observe.metrics import ACTION_WAIT_SECONDS
from orderbridge.rules.outbox_rows import Standing, stands_after
from orderbridge.rules.queue import Entry
from orderbridge.rules.retry import Decision, NextRequest, RetryAt, after_status, is_no_attempt
from orderbridge.store.ddl import as_stored
from orderbridge.store.group_commit import GroupCommit, LeftOut, write_group
from orderbridge.texts import sentence

QUICK_S = 0.25  # a request that took longer foretells no free slot
AHEAD_S = 0.02  # a claim's way to the disk, where outcomes of others are written before it
WAIT_S = 1.0  # for a slot; then the claim is given back

_log = structlog.get_logger(__name__)

_Note = Entry | Result


class Executor:
    """Executes the rows that are taken. `moved` is called when one of them has come on."""

    def __init__(self, writer: OutcomeWriter, held_accounts: HeldAccounts, moved: Callable[[], None]) -> None:
        self._context = context = writer.context
        self._writer, self._held_accounts, self._moved = writer, held_accounts, moved
        self._queue, self._postponed = held_accounts.queue, held_accounts.postponed
        write = partial(write_group, context.database, self._write_notes, urgent=True)
        self._group: GroupCommit[_Note, Any] = GroupCommit(write, put_off=self._put_off, on_idle=moved)
        self.late: set[int] = set()  # rows whose outcomes are put off
        self._is_closed = False  # the coroutines are being cancelled: the next start finds these rows as they are
        self.failed: Over | None = None  # it ends the daemon: nothing can be written any more
        self.slots = Slots(context.settings.actions.max_in_flight, context.clock)
        self.on_restaurant: Callable[[str, str], None] = lambda _account, _restaurant: None  # opened or closed
        self.under_way: Counter[str] = Counter()  # rows of each account that are claimed, or asked for on the wire
        self.is_stopping = False  # what has not left does not leave any more
        self.in_doubt = False  # a cycle or a claim failed: a commit that failed may have come through
        self.settled = 0  # rows whose outcome was written since this was set to 0
        self._tasks: dict[asyncio.Task[None], str] = {}  # with their accounts

    @property
    def is_writing(self) -> bool:
        """Whether anything is being written, or is about to be."""
        return self._group.is_writing

    def begin(self, entry: Entry) -> "asyncio.Future[bool]":
        """Start to execute a row. Returns whether it was claimed, once that is known."""
        claimed: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._go(entry, claimed))
        self._tasks[task] = entry.account or ""
        task.add_done_callback(partial(self._over, entry, claimed))
        return claimed

    def has_in_hand(self, account: str) -> bool:
        """Whether a row of the account is being executed: claimed, on the wire, or its outcome not yet on disk."""
        return account in self._tasks.values()

    def let_go(self, accounts: Collection[str]) -> None:
        """Another process answers for these accounts: their rows are left where they are."""
        for task, account in list(self._tasks.items()):
            if account in accounts:
                task.cancel()

    def abandon(self) -> "set[asyncio.Task[None]]":
        """Leave every row where it is: the next start finds its note. Returns what is ending."""
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        return set(self._tasks)

    def _over(self, entry: Entry, claimed: "asyncio.Future[bool]", task: asyncio.Task[None]) -> None:
        """Of a cancelled one, too, the lane is free, and who waits for its claim goes on."""
        del self._tasks[task]
        if not claimed.done():
            claimed.set_result(False)
            self.under_way[entry.account or ""] -= 1
        if task.cancelled():  # what it has done, no poll that began before knows
            self._context.lanes.free_after_action(entry.lane)
            self._moved()

    async def _go(self, entry: Entry, claimed: "asyncio.Future[bool]") -> None:
        try:
            claim: Claim | Fresh | Exception = await self._group.add(entry)
        except Exception as error:  # noqa: BLE001 - the row stays where it is, whatever the reason
            self.failed = error if isinstance(error, Over) else self.failed
            claim = error
        if not claimed.done():
            claimed.set_result(isinstance(claim, Claim))
        if not isinstance(claim, Claim):
            self.under_way[entry.account or ""] -= 1
            self._context.lanes.free(entry.lane)
            self.not_claimed(entry, claim)
            self._moved()  # there may be something to write, to read or to wait for
            return
        self._postponed.forget(entry.row.id)
        if claim.number == 1 and claim.row.created_utc is not None:  # from the insert until its first request leaves
            waited = (self._context.clock.now() - claim.row.created_utc).total_seconds()
            self._context.metrics.observe(ACTION_WAIT_SECONDS, max(waited, 0.0))
        result = await self._send(claim, entry.account or "")
        decision = await self.write(result)
        self._context.lanes.free_after_action(entry.lane)
        self._goes_on(result, decision)
        if claim.row.restaurant_id and shows_restaurant(claim.row, decision):
            self.on_restaurant(claim.account.name, claim.row.restaurant_id)
        self.settled += 1
        self._moved()

    async def write(self, result: Result) -> Decision:
        """Decide what becomes of the row, and return when that is on disk."""
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
        """Outcomes are written again, for ever; a claim is not."""
        late = {
            note.claim.row: None if isinstance(error, LeftOut) else error
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
            async with self.slots.one() as place:
                result = await send(claim) if place and not self.is_stopping else None
        finally:
            self.under_way[account] -= 1
            self._moved()
        result = result or Result(claim, None, RetryAt(self._context.clock.now()))  # it has not left
        if result.attempt is not None:
            self._held_accounts.record_outcome(account, result.attempt.outcome)
        return result

    def not_claimed(self, entry: Entry, why: Fresh | Exception) -> None:
        """A row that was taken does not leave."""
        row = entry.row
        if isinstance(why, tuple):
            self._postponed.forget(row.id)
            self._writer.reader.replace(row.id, why)  # it may leave as it is now
            return
        self.in_doubt |= why is not None  # a commit that failed may have come through
        if is_refused(why):
            self._postponed.put_aside([(row, why)])
        else:  # whatever it is, another session's lock too: at once it would be met again
            self._postponed.leave(row.id)

    def _goes_on(self, result: Result, decision: Decision) -> None:
        """What the queue knows of a row after its outcome is written, and the log."""
        row, attempts = result.claim.row, result.history
        if isinstance(decision, Verdict):
            self._queue.drop(row.id)
            tell(self._context, row, decision)
            return
        at = as_stored(decision.at) if isinstance(decision, RetryAt) else None
        standing = stands_after(decision, attempts)
        last = None
        if standing is Standing.UNRESOLVED:  # as it is read: an attempt that was not sent leaves no trace
            last = next((one.outcome for one in reversed(attempts) if one.outcome != Outcome.NOT_SENT), None)
        state, tried = standing.state, bool(attempts)
        self._queue.give_back(row.id, state=state, next_attempt_utc=at, tried=tried, last_outcome=last)
        _log_wait(result, decision)


def _log_wait(result: Result, decision: Decision) -> None:
    """What keeps a whole account waiting is logged once for the account, and a wait once for each cause."""
    row, attempt = result.claim.row, result.attempt
    before = {one.code for one in result.claim.history}
    again = attempt is None or attempt.outcome == Outcome.NOT_SENT or attempt.code in before
    log = _log.debug if again else _log.info
    at = decision.at.isoformat() if isinstance(decision, RetryAt) else "next_poll"
    log("action.waits", id=row.id, action=row.action, code=decision.code, again=at, **about(row))


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
    """The one request of a row. Its arguments were checked by rules.outbox_rows."""
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
        try:  # no timer for what need not wait
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
