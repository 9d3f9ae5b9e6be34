"""Runs the outbox: sends the rows that the POS wrote, and writes their verdicts.

One cycle of the outbox:

    recover   find orphaned rows (marked as in flight, but not sent by this run) and note their unknown outcome
    read      put new rows of the table into the queue (jobs.outbox_reader)
    end       write the ends of rows that are not sent (expired, withdrawn, superseded, refused here), in groups
    take      take rows from the queue, and execute each in its own coroutine (jobs.executor)
    explain   note in rows of a paused account what they wait for

rules.queue and rules.outbox_rows decide which rows are sent and which end, rules.retry what follows from an answer, and
jobs.outcome_writer writes it.

A row that ends unsent is ENDING from the decision until its end is on disk. It keeps its lane for that time, because
the write may fail, and no later row may overtake it.
"""

import asyncio
import math
from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial

import structlog
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from orderbridge.clock import wall_ahead
from orderbridge.errors import Over
from orderbridge.jobs.account import Roster
from orderbridge.jobs.context import Context
from orderbridge.jobs.executor import Executor
from orderbridge.jobs.outbox_reader import FLOOR_S, OutboxReader, view_of
from orderbridge.jobs.outcome_writer import Due, OutcomeWriter, refuse_unreadable, report
from orderbridge.jobs.postponed import STUCK_S, HeldAccounts, Postponed
from orderbridge.model import ActionState, OutboxRow, Verdict
from orderbridge.observe.metrics import ACTIONS_ENDED, UNREADABLE
from orderbridge.rules.outbox_rows import Lane, is_ours, order_lane
from orderbridge.rules.queue import Entry, Queue
from orderbridge.rules.retry import may_be_seen
from orderbridge.store import unfinished
from orderbridge.store.failures import remedy
from orderbridge.store.group_commit import write_batch

CLOCK_JUMP_S = 0.5
MAX_ENDS = 200  # rows that end in one transaction, during which a POS on the same file waits

_log = structlog.get_logger(__name__)


class Outbox:
    """Executes the outbox rows of all accounts of this process."""

    def __init__(self, context: Context, roster: Roster) -> None:
        self._context, self._roster, self._accounts = context, roster, roster.at_work
        self._database, self._lanes, self._clock = context.database, context.lanes, context.clock
        self.queue = Queue(view_of(context.settings))
        self.reader = OutboxReader(self.queue, roster, context)
        self._postponed = Postponed(self.queue, context.clock)
        self.writer = OutcomeWriter(context, self._accounts, self.reader)
        self._held_accounts = HeldAccounts(context, self.queue, self._accounts, self._postponed)
        self.executor = Executor(self.writer, self._held_accounts, self._go_on)
        self.due: list[Due] = []  # ends that are decided but not written yet
        self._woken = asyncio.Event()
        self._recover_at = math.inf  # monotonic: when to repeat a recovery that could not be written
        self._elsewhere: set[int] = set()  # rows that another replica may have on the wire
        self._ahead: float | None = None  # the wall clock minus the monotonic one

    def wake(self) -> None:
        """Read the table at once, because it may have changed."""
        self.reader.has_news = True
        self._go_on()

    def _go_on(self) -> None:
        self._woken.set()

    # ---- the loop ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run a cycle at each wake and at each due time, until `stop`."""
        try:
            while not self.executor.is_stopping or self.is_busy():
                self._woken.clear()
                wait_s = await self.safe_cycle()
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await self._woken.wait()
        finally:
            self.executor.abandon()

    def not_written(self) -> int:
        """The number of rows that the database refuses, or that another session keeps locked."""
        return len(self._postponed.stuck())

    def release(self, accounts: Collection[str]) -> None:
        """Drop the rows of these accounts, which another process takes over and recovers."""
        self.executor.cancel(accounts)
        for entry in [entry for entry in self.queue if entry.account in accounts]:
            self.queue.drop(entry.row.id)

    def is_busy(self) -> bool:
        """Whether a request is in flight or an outcome waits to be written, except one that the database refuses."""
        executor = self.executor
        if executor.under_way.total():
            return True
        return executor.failed is None and (executor.is_writing or not executor.late <= self._postponed.refused)

    def stop(self) -> None:
        """Take no more rows; `run` ends when all requests in flight are answered and written."""
        self.executor.is_stopping = True
        self._go_on()

    # ---- a cycle: it returns the seconds until the next one is due at the latest -------------------------------------

    async def safe_cycle(self) -> float:
        """Run a cycle; if it fails, by the database or a bug, the next one repeats its work."""
        try:
            if self._must_recover():
                await self.recover()
            return await self.cycle()
        except DBAPIError as error:
            # Logged once; trouble of the whole database is logged elsewhere.
            log = _log.debug if self._must_recover() or self._database.trouble else _log.warning
            log("outbox.database_failed", error=type(error.orig).__name__, remedy=remedy(error))
        except Over:  # it ends the daemon
            raise
        except Exception:  # noqa: BLE001 - see above
            _log.exception("outbox.crashed")
        self.executor.in_doubt = self.reader.has_news = True
        return FLOOR_S

    async def cycle(self) -> float:
        """Read new rows, and a page of all rows when it is due, then act."""
        if self.executor.is_stopping:
            return FLOOR_S
        if self.set_now():
            await self.reader.everything()
        await self.reader.news()
        await self.reader.step(busy=self.is_busy())
        if self.queue.has_orphan:  # it is recovered first
            return 0.0
        wait_s = await self.act()
        return 0.0 if self.due else min(wait_s, self.reader.again_in())

    def set_now(self) -> bool:
        """Update the queue's time. Returns whether the clock was set: then all rows are judged again."""
        self.queue.view.now = self._clock.now()
        before, self._ahead = self._ahead, wall_ahead(self._clock)
        jumped = before is not None and abs(self._ahead - before) > CLOCK_JUMP_S
        if jumped:
            self.queue.review_all()
        return jumped

    async def act(self) -> float:
        """Write the ends of rows that are not sent, and send the rows that may be sent."""
        if self.executor.is_stopping or self._context.kept.holds_rows:
            return FLOOR_S
        self.set_now()
        for row_id in self.queue.release_due(self._clock.monotonic()):
            if row_id not in self.queue:
                self._postponed.forget(row_id)
        ended = await self.write_ends()
        self.due += self.queue.ends()  # a written end may have freed a lane
        await self._take()
        if self.due:
            ended += await self.write_ends()
        if self.reader.unreadable:
            ended += await self._refuse_unreadable()
        await self._held_accounts.explain()
        if ended:
            self._go_on()  # a written end may have freed a lane
        return self._until()

    async def _take(self) -> None:
        """Start to execute the next rows, and wait until they are claimed."""
        executor = self.executor
        room, most = executor.slots.room(executor.under_way.total()), executor.slots.most
        # One account with hanging requests must not take all slots.
        of_one = 2 * most if len(self._roster.known) == 1 else max(1, most // 2)
        entries = self.queue.accounts.take(room, executor.under_way, of_one, self._is_open, self._may_leave)
        for claimed in [executor.begin(entry) for entry in entries]:
            await claimed
        if executor.failed is not None:
            raise executor.failed

    def _is_open(self, account: str) -> bool:
        """Whether rows of this account can be sent now."""
        return account in self._accounts and self._accounts[account].paused() <= 0

    def _may_leave(self, entry: Entry) -> bool:
        """Take the row's lane, unless it is held or a running poll may show the effect of its last request."""
        is_polling = self._accounts[entry.account or ""].poll_in_flight
        waits = is_polling and may_be_seen(entry.row.action, entry.row.last_outcome)
        return not waits and self._lanes.take(entry.lane)

    def _until(self) -> float:
        """Seconds until the next cycle is due at the latest."""
        now, moment = self._clock.now(), self._clock.monotonic()
        waits = [self.reader.floor, max(self._recover_at - moment, 0.0)]
        if (due := self.queue.due()) is not None:
            waits.append(max((due - now).total_seconds(), 0.01))
        if (next_release := self.queue.next_release()) is not None:
            waits.append(max(next_release - moment, 0.0))
        if (retry_in := self._held_accounts.retry_in()) is not None:
            waits.append(max(retry_in, 0.01))
        return min(waits)

    # ---- rows that end unsent ----------------------------------------------------------------------------------------

    async def write_ends(self) -> int:
        """Write up to MAX_ENDS ends of rows that are not sent. Returns how many rows have ended."""
        self.due += self.queue.ends()
        if not self.due:
            return 0
        some, self.due = self.due[:MAX_ENDS], self.due[MAX_ENDS:]
        ours = [(row, verdict) for row, verdict in some if row.id in self.queue]  # the others were dropped meanwhile
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
        """The ends that can be written now, and the lanes that were taken for them.

        The lane of an unresolved row is held while its end is written, so that no list is stored meanwhile.
        """
        free: list[Due] = []
        lanes: list[Lane] = []
        for row, verdict in ends:
            if row.id in self._elsewhere:
                self._postponed.postpone(row.id)
                continue
            if row.state == ActionState.SENDING and row.payment_key is not None:
                lane = order_lane(row.payment_key)
                if not self._lanes.take(lane):
                    self._postponed.postpone(row.id)
                    continue
                lanes.append(lane)
            free.append((row, verdict))
        return free, lanes

    def _not_sent(self, row: OutboxRow, answer: Verdict | tuple[OutboxRow, ...]) -> bool:
        """Take the result of writing a row's end. Returns whether it ended."""
        self._postponed.forget(row.id)
        if not isinstance(answer, Verdict):
            self.reader.replace(row.id, answer)
            return False
        self.queue.drop(row.id)
        report(self._context, row, answer)
        return True

    async def _refuse_unreadable(self) -> int:
        """Refuse rows that passed the constraints but cannot be parsed."""
        unreadable, now = self.reader.unreadable, self._clock.monotonic()
        due = [row_id for row_id, at in unreadable.items() if at <= now][:MAX_ENDS]
        refused, failed = await write_batch(self._database, partial(refuse_unreadable, self._context), due, urgent=True)
        for row_id, wait_s in self._postponed.put_off(dict(failed), {}).items():
            unreadable[row_id] = now + wait_s
        for row_id, _ in refused:
            self._postponed.forget(row_id)
            unreadable.pop(row_id, None)
        ended = sum(ended for _, ended in refused)
        self._context.metrics.count(ACTIONS_ENDED, UNREADABLE, ActionState.REFUSED, by=ended)
        return ended

    # ---- recovery ----------------------------------------------------------------------------------------------------

    def _must_recover(self) -> bool:
        is_due = self._recover_at <= self._clock.monotonic()
        return self.executor.in_doubt or is_due or self.queue.has_orphan or self.reader.is_behind

    async def recover(self) -> None:
        """Write the unknown outcome of orphaned rows: the program or the database stopped before theirs was written."""
        self.reader.follow_roster()
        self.executor.in_doubt = self.queue.has_orphan = False
        mine = self.queue.in_flight()  # before reading, during which outcomes may be written
        found = await self._database.read(lambda tx: self._orphans(tx, mine))
        lost = [(row, number) for row, number, began in found if not self._may_be_on_the_wire(row, began)]
        rows = {row.id: row for row, _ in lost}
        self._elsewhere = {row.id for row, _, _ in found} - rows.keys()
        recovered, failed = await write_batch(self._database, self.writer.lose, lost)
        errors = {row.id: error for (row, _), error in failed}
        waits = list(self._postponed.put_off(errors, rows).values())
        for row_id in recovered:
            self._postponed.forget(row_id)
        if recovered:
            _log.warning("outbox.recovered", rows=len(recovered))
        if len(recovered) + len(failed) < len(lost):  # locked rows, or an unreachable database
            waits.append(STUCK_S)
        if self._elsewhere:
            waits.append(FLOOR_S)
        self._recover_at = self._clock.monotonic() + min(waits, default=math.inf)
        self.reader.read_all_soon()

    def _may_be_on_the_wire(self, row: OutboxRow, began: datetime) -> bool:
        """Whether another replica may wait for the answer: it may work for another account of the restaurant."""
        if row.payment_key is not None or not self._roster.has_others():
            return False
        return self._clock.now() - began < timedelta(seconds=self._context.settings.marketplace.timeout_seconds)

    def _orphans(self, connection: Connection, mine: Collection[int]) -> list[tuple[OutboxRow, int, datetime]]:
        """The rows that are marked as in flight but not in `mine`, each with its attempt and when that began."""
        lost = unfinished.unfinished_attempts(connection)
        sending = unfinished.read_unfinished(connection, sending_only=True)[0] if lost else []
        # Without rows that another replica has in flight.
        rows = {row.id: row for row in sending if row.id not in mine and is_ours(row, self.queue.view.directory)}
        return [(rows[row_id], number, began) for row_id, number, began in lost if row_id in rows]
