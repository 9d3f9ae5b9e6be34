"""The outbox at work: what the POS has written is sent, and its verdict is written.

One cycle of the outbox:

    recover   when a request may be marked as on the wire and is not: its outcome is unknown
    read      jobs.outbox_reader puts into the queue what is new in the table
    end       what ends unsent (expired, withdrawn, superseded, refused here) is written, in groups
    take      the rows whose turn it is leave the queue, each executed by a coroutine of its own (jobs.executor)
    explain   rows that an account's line or login holds up say so

Which rows go and which end is decided in rules.queue and rules.outbox_rows, what an answer makes of a row in rules.retry.
jobs.outcome_writer writes it.

A row that ends unsent is ENDING from its decision until its end is on disk: it keeps its lane, so that nothing behind it
overtakes an end that may yet fail.
"""

import asyncio
import math
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import structlog
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from orderbridge.errors import Over
from orderbridge.jobs.account import Roster
from orderbridge.jobs.context import Context
from orderbridge.jobs.executor import Executor
from orderbridge.jobs.outbox_reader import FLOOR_S, OutboxReader, view_of
from orderbridge.jobs.outcome_writer import Due, OutcomeWriter, refuse_unreadable, tell
from orderbridge.jobs.postponed import STUCK_S, HeldAccounts, Postponed
from orderbridge.model import ActionState, OutboxRow, Verdict
from orderbridge.observe.metrics import ACTIONS_ENDED, UNREADABLE
from orderbridge.rules.outbox_rows import Lane, order_lane
from orderbridge.rules.queue import Entry, Queue
from orderbridge.rules.retry import may_be_seen
from orderbridge.store import unfinished
from orderbridge.store.failures import remedy
from orderbridge.store.group_commit import write_batch

CLOCK_JUMP_S = 0.5
MOST_ENDS = 200  # rows that end unsent in one transaction: a POS on the same file waits for it

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
        self._context, self._roster, self._accounts = context, roster, roster.at_work
        self._database, self._lanes, self._clock = context.database, context.lanes, context.clock
        self.queue = Queue(view_of(context.settings))
        self.reader = OutboxReader(self.queue, roster, context)
        self._postponed = Postponed(self.queue, context.clock)
        self.writer = OutcomeWriter(context, self._accounts, self.reader)
        self._held_accounts = HeldAccounts(context, self.queue, self._accounts, self._postponed)
        self.executor = Executor(self.writer, self._held_accounts, self._go_on)
        self.due: list[Due] = []  # ends that are decided, and not written yet
        self._woken, self._moved = asyncio.Event(), asyncio.Event()
        self._recover_at = math.inf  # of the monotonic clock: when lost requests are written that could not be
        self._ahead: float | None = None  # of the monotonic clock

    def wake(self) -> None:
        """Something may have changed in the table: read it at once."""
        self.reader.has_news = True
        self._go_on()

    def _go_on(self) -> None:
        self._woken.set()
        self._moved.set()

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
        """Whether a request is under way, or an outcome is to be written that the database does not refuse."""
        executor = self.executor
        if executor.under_way.total():
            return True
        return executor.failed is None and (executor.is_writing or not executor.late <= self._postponed.refused)

    def is_moving(self) -> bool:
        """Whether a request is under way, or anything is being written. What was put off is not."""
        return bool(self.executor.under_way.total() or self.executor.is_writing)

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
            if self._must_recover():
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
        self.executor.in_doubt = self.reader.has_news = True
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
        done.again_in = 0.0 if self.due else min(done.again_in, self.reader.again_in())
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
        for row_id in self.queue.come_back(self._clock.monotonic()):
            if row_id not in self.queue:
                self._postponed.forget(row_id)
        done.unsent = await self.write_ends()
        self.due += self.queue.ends()  # what has ended frees its lane
        done.claimed = await self._take()
        if self.due:
            done.unsent += await self.write_ends()
        if self.reader.unreadable:
            done.unsent += await self._refuse_unreadable()
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
        if executor.failed is not None:
            raise executor.failed
        return sum(claimed)

    def _is_open(self, account: str) -> bool:
        """Whether a row of an account can leave."""
        return account in self._accounts and self._accounts[account].paused() <= 0

    def _may_leave(self, entry: Entry) -> bool:
        """Take the row's lane, unless it is taken or a poll is under way that may show what its last request did."""
        is_polling = self._accounts[entry.account or ""].poll_in_flight
        waits = is_polling and may_be_seen(entry.row.action, entry.row.last_outcome)
        return not waits and self._lanes.take(entry.lane)

    def _until(self) -> float:
        """Seconds until the next cycle is due at the latest."""
        now, moment = self._clock.now(), self._clock.monotonic()
        waits = [self.reader.floor, max(self._recover_at - moment, 0.0)]
        if (due := self.queue.due()) is not None:
            waits.append(max((due - now).total_seconds(), 0.01))
        if (back_at := self.queue.back_at()) is not None:
            waits.append(max(back_at - moment, 0.0))
        if (retry_in := self._held_accounts.retry_in()) is not None:
            waits.append(max(retry_in, 0.01))
        return min(waits)

    # ---- what ends unsent --------------------------------------------------------------------------------------------

    async def write_ends(self) -> int:
        """Write the ends of rows that are not sent, so many at a time. Returns how many rows have ended."""
        self.due += self.queue.ends()
        if not self.due:
            return 0
        some, self.due = self.due[:MOST_ENDS], self.due[MOST_ENDS:]
        ours = [(row, verdict) for row, verdict in some if row.id in self.queue]  # the others were let go meanwhile
        ends, lanes = self._with_lanes(ours)
        ended, settled = 0, set[int]()
        try:
            answers, failed = await write_batch(self._database, self.writer.end, ends, urgent=True)
            aside: list[tuple[OutboxRow, Exception | None]] = [(row, error) for (row, _), error in failed]
            aside += [(row, None) for (row, _), answer in answers if answer is None]
            self._postponed.put_aside(aside)
            settled = {row.id for row, _ in aside}
            for (row, _), answer in answers:
                if answer is not None:
                    settled.add(row.id)
                    ended += self._not_sent(row, answer)
        finally:
            for lane in lanes:
                self._lanes.free_after_action(lane)
            # A row that stayed ENDING would hold its lane for ever.
            for row, _ in ends:
                if row.id not in settled:
                    self.queue.give_back(row.id)
        return ended

    def _with_lanes(self, ends: Sequence[Due]) -> tuple[list[Due], list[Lane]]:
        """Those that can be written now, and the lanes that were taken for it.

        An unresolved row of an order ends while its lane is ours: a list that is being taken in must not see it end.
        """
        free: list[Due] = []
        lanes: list[Lane] = []
        for row, verdict in ends:
            if row.state == ActionState.SENDING and row.payment_key is not None:
                lane = order_lane(row.payment_key)
                if not self._lanes.take(lane):
                    self._postponed.leave(row.id)
                    continue
                lanes.append(lane)
            free.append((row, verdict))
        return free, lanes

    def _not_sent(self, row: OutboxRow, answer: Verdict | tuple[OutboxRow, ...]) -> bool:
        """Whether it ended."""
        self._postponed.forget(row.id)
        if not isinstance(answer, Verdict):
            self.reader.replace(row.id, answer)
            return False
        self.queue.drop(row.id)
        tell(self._context, row, answer)
        return True

    async def _refuse_unreadable(self) -> int:
        """Rows that slipped past the constraints and cannot even be read."""
        unreadable, now = self.reader.unreadable, self._clock.monotonic()
        due = [row_id for row_id, at in unreadable.items() if at <= now][:MOST_ENDS]
        refused, failed = await write_batch(self._database, partial(refuse_unreadable, self._context), due, urgent=True)
        for row_id, wait_s in self._postponed.put_off(dict(failed), {}).items():
            unreadable[row_id] = now + wait_s
        for row_id, _ in refused:
            self._postponed.forget(row_id)
            unreadable.pop(row_id, None)
        ended = sum(ended for _, ended in refused)
        self._context.metrics.count(ACTIONS_ENDED, UNREADABLE, ActionState.REFUSED, by=ended)
        return ended

    # ---- what was lost -----------------------------------------------------------------------------------------------

    def _must_recover(self) -> bool:
        is_due = self._recover_at <= self._clock.monotonic()
        return self.executor.in_doubt or is_due or self.queue.stray or self.reader.is_behind

    async def recover(self) -> None:
        """What is marked as on the wire and is not: the program stopped, or the database lost our word, in between.

        Its outcome is unknown, and that is written.
        """
        self.reader.follow_roster()
        self.executor.in_doubt = self.queue.stray = False
        mine = self.queue.on_wire()  # asked before the reading: an outcome may be written during it
        lost = await self._database.read(lambda tx: self._lost(tx, mine))
        recovered, failed = await write_batch(self._database, self.writer.lose, lost)
        errors, rows = {row.id: error for (row, _), error in failed}, {row.id: row for row, _ in lost}
        waits = list(self._postponed.put_off(errors, rows).values())
        for row_id in recovered:
            self._postponed.forget(row_id)
        if recovered:
            _log.warning("outbox.recovered", rows=len(recovered))
        if len(recovered) + len(failed) < len(lost):  # what a till holds, or where the database is away
            waits.append(STUCK_S)
        self._recover_at = self._clock.monotonic() + min(waits, default=math.inf)
        self.reader.look_at_all()

    def _lost(self, connection: Connection, mine: Collection[int]) -> list[tuple[OutboxRow, int]]:
        """The rows that are marked as on the wire and are not (`mine` are), each with the attempt that was lost."""
        lost = unfinished.unfinished_attempts(connection)
        sending = unfinished.read_unfinished(connection, sending_only=True)[0] if lost else []
        # A row that another replica has on the wire is none of those.
        rows = {row.id: row for row in sending if row.id not in mine and self.reader.is_ours(row)}
        return [(rows[row_id], number) for row_id, number in lost if row_id in rows]
