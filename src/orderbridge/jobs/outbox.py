"""The outbox at work: what the POS has written is sent, and its verdict is written.

One cycle of the outbox:

    read      jobs.outbox_reader puts into the queue what is new in the table
    end       jobs.outcome_writer writes what ends unsent (expired, withdrawn, superseded, refused here), in groups
    take      the rows whose turn it is leave the queue, each executed by a coroutine of its own
    explain   rows that an account's line or login holds up say so

What becomes of a row from there on is in jobs.executor. Which rows go and which end is decided in rules.queue and rules.outbox_rows, what
an answer makes of a row in rules.retry, in whose hands a row is stands in rules.standing.
"""

import asyncio
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass

import structlog
from sqlalchemy.exc import DBAPIError

from orderbridge.errors import Over
from orderbridge.jobs.context import Context
from orderbridge.jobs.executor import Executor
from orderbridge.jobs.outbox_reader import FLOOR_S, OutboxReader, view_of
from orderbridge.jobs.outcome_writer import Ends, OutcomeWriter, Recovery
from orderbridge.jobs.postponed import HeldAccounts, Postponed
from orderbridge.jobs.roster import Roster
from orderbridge.rules.queue import Entry, Queue
from orderbridge.rules.retry import may_be_seen
from orderbridge.store.failures import remedy

CLOCK_JUMP_S = 0.5
_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class CycleResult:
    """What one cycle did. `again_in`: seconds until the next one is due at the latest."""

    claimed: int = 0
    settled: int = 0
    unsent: int = 0
    again_in: float = FLOOR_S


class Outbox:
    """Carries out what the POS writes, for all accounts of this process."""

    def __init__(self, context: Context, roster: Roster) -> None:
        self._roster, self._accounts = roster, roster.at_work
        self._database, self._lanes, self._clock = context.database, context.lanes, context.clock
        self.queue = Queue(view_of(context.settings))
        self.reader = OutboxReader(self.queue, roster, context)
        self._postponed = Postponed(self.queue, context.clock)
        self.writer = OutcomeWriter(context, self._accounts, self.reader)
        self.ends = Ends(context, self.queue, self.reader, self.writer, self._postponed)
        self._recovery = Recovery(context, self.reader, self.writer, self._postponed)
        self._held_accounts = HeldAccounts(context, self.queue, self._accounts, self._postponed)
        self.executor = Executor(self.writer, self._held_accounts, self._go_on)
        self._woken, self._moved = asyncio.Event(), asyncio.Event()
        self._needs_recovery = False  # the last cycle failed: what was begun may be half done
        self._ahead: float | None = None  # of the monotonic clock

    def wake(self) -> None:
        """Something may have changed in the table: read it at once."""
        self.reader.has_news = True
        self._go_on()

    def _go_on(self) -> None:
        self._woken.set()
        self._moved.set()

    async def recover(self) -> None:
        """What is marked as on the wire and is not: the program stopped, or the database lost our word, in between.

        Its outcome is unknown.
        """
        self.reader.follow_roster()
        self.executor.in_doubt = False
        # Asked before the reading: an outcome may be written during it.
        await self._recovery.run(self.queue.on_wire())
        self._needs_recovery = False
        self.reader.look_at_all()

    # ---- the loop ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until `stop`: a cycle at each wake and at each due time."""
        try:
            while not self.executor.is_stopping or self.is_busy():
                self._woken.clear()
                done = await self.safe_cycle()
                with suppress(TimeoutError):
                    async with asyncio.timeout(done.again_in):
                        await self._woken.wait()
        finally:
            self.executor.abandon()

    def refused(self) -> int:
        """How many rows the database itself does not let us write."""
        return len(self._postponed.refused)

    def let_go(self, accounts: Collection[str]) -> None:
        """Another process answers for these accounts: what was not written of their rows, it finds as their notes say."""
        self.executor.let_go(accounts)
        for entry in [entry for entry in self.queue if entry.account in accounts]:
            self.queue.drop(entry.row.id)

    def is_busy(self) -> bool:
        """Whether a request is under way, or an outcome is to be written."""
        return bool(self.executor.under_way.total() or self.executor.rows.is_busy())

    def is_moving(self) -> bool:
        """Whether a request is under way, or anything is being written. What was put off is not."""
        return bool(self.executor.under_way.total() or self.executor.rows.is_writing)

    async def quiet(self) -> None:
        """Until no request is under way, and what is known is written or put off."""
        while self.is_moving():
            self._moved.clear()
            await self._moved.wait()

    def stop(self) -> None:
        """Take nothing more; `run` ends when what is on the wire is answered and written."""
        self.executor.is_stopping = True
        self._go_on()

    # ---- a cycle -----------------------------------------------------------------------------------------------------

    async def safe_cycle(self) -> CycleResult:
        """A cycle that fails is made again: the outbox outlives whatever the database, or a fault of ours, does."""
        try:
            if self._must_recover() or self.queue.stray or self.reader.is_behind:
                self.queue.stray = False
                await self.recover()
            return await self.cycle()
        except DBAPIError as error:
            # Logged once; trouble of the whole database is logged by itself.
            log = _log.debug if self._must_recover() or self._database.trouble else _log.warning
            log("outbox.database_failed", error=type(error.orig).__name__, remedy=remedy(error))
        except Over:  # it ends the daemon
            raise
        except Exception:  # noqa: BLE001 - see above
            _log.exception("outbox.crashed")
        self._needs_recovery = self.reader.has_news = True
        return CycleResult()

    async def cycle(self) -> CycleResult:
        """Read what is new, and some of the rest when it is time, then act."""
        if self.executor.is_stopping:
            return CycleResult()
        if self.set_now():
            await self.reader.everything()
        await self.reader.news()
        await self.reader.step(busy=self.is_busy())
        done = await self.act()
        done.again_in = 0.0 if self.ends.due else min(done.again_in, self.reader.again_in())
        return done

    def set_now(self) -> bool:
        """True when the clock was set since the last time: then no time that was compared before is worth anything."""
        now = self.queue.view.now = self._clock.now()
        ahead = now.timestamp() - self._clock.monotonic()
        jumped = self._ahead is not None and abs(ahead - self._ahead) > CLOCK_JUMP_S
        self._ahead = ahead
        if jumped:
            self.queue.look_at_all()
        return jumped

    async def act(self) -> CycleResult:
        """End what ends unsent, and send what may leave."""
        done = CycleResult(settled=self.executor.settled)
        self.executor.settled = 0
        if self.executor.is_stopping:
            return done
        self.set_now()
        self._postponed.come_back()
        done.unsent = await self.ends.write_some()
        self.ends.due += self.queue.ends()  # what has ended frees its lane
        done.claimed = await self._take()
        if self.ends.due:
            done.unsent += await self.ends.write_some()
        done.unsent += await self.ends.refuse_unreadable()
        await self._held_accounts.explain()
        if done.unsent:
            self._go_on()  # what ended unsent may have freed its lane
        done.again_in = self._until()
        return done

    async def _take(self) -> int:
        """Have the rows executed whose turn it is. Returns how many of them are claimed, once that is known."""
        executor = self.executor
        room, most = executor.slots.room(executor.under_way.total()), executor.slots.most
        # One account whose service hangs must not take all slots.
        of_one = 2 * most if len(self._roster.known) == 1 else max(1, most // 2)
        entries = self.queue.accounts.take(room, executor.under_way, of_one, self._is_open, self._may_leave)
        claims = [executor.begin(entry) for entry in entries]
        claimed = [await claim for claim in claims]
        if executor.rows.failed is not None:
            raise executor.rows.failed
        return sum(claimed)

    def _is_open(self, account: str) -> bool:
        """Whether a row of an account can leave."""
        return account in self._accounts and self._accounts[account].paused() <= 0

    def _may_leave(self, entry: Entry) -> bool:
        """Take the row's lane, unless it is taken or a poll is under way that may show what its last request did."""
        is_polling = self._accounts[entry.account or ""].poll_in_flight
        waits = is_polling and may_be_seen(entry.row.action, entry.row.last_outcome)
        return not waits and self._lanes.take(entry.lane)

    def _must_recover(self) -> bool:
        is_due = self._recovery.again_at <= self._clock.monotonic()
        return self._needs_recovery or self.executor.in_doubt or is_due

    def _until(self) -> float:
        """Seconds until the next cycle is due at the latest."""
        waits = [self.reader.floor, max(self._recovery.again_at - self._clock.monotonic(), 0.0)]
        if (due := self.queue.due()) is not None:
            waits.append(max((due - self._clock.now()).total_seconds(), 0.01))
        if (back_at := self.queue.back_at()) is not None:
            waits.append(max(back_at - self._clock.monotonic(), 0.0))
        if (retry_in := self._held_accounts.retry_in()) is not None:
            waits.append(max(retry_in, 0.01))
        return min(waits)
