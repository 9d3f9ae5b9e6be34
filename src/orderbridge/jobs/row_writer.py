"""Has the rows of the outbox written: claims and outcomes by group commit, ends in groups, lost requests at a start.

Of one transaction, outcomes are written first, then claims, so that a lane which an outcome frees is judged by what is
known now. A claim that cannot be written says so, and the row does not leave. An outcome is never lost while the program
runs: what a POS holds or a trigger refuses is put off, and written again until it succeeds.

A row that ends unsent (expired, withdrawn, superseded, refused here) is ENDING from its decision until its end is on
disk: it keeps its lane, so that nothing behind it overtakes an end that may yet fail. An unresolved row of an order ends
while its order's lane is ours: a list that is being taken in must not see it end halfway.

A row that is marked as on the wire and is not (the program stopped, or the database lost a COMMIT) has an unknown
outcome (`Recovery`).
"""

import asyncio
import math
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

import structlog
from sqlalchemy import Connection

from orderbridge.clock import Clock
from orderbridge.errors import Over
from orderbridge.jobs.lanes import Lanes
from orderbridge.jobs.outbox_reader import OutboxReader
from orderbridge.jobs.outcome_writer import Changed, Claimed, End, OutcomeWriter, Result, Unwritten
from orderbridge.jobs.postponed import STUCK_S, Postponed
from orderbridge.jobs.verdicts import Verdicts
from orderbridge.model import ActionState, OutboxRow, Verdict
from orderbridge.rules.outbox import Lane, order_lane
from orderbridge.rules.queue import Entry, Queue
from orderbridge.rules.retry import Decision
from orderbridge.store import unfinished
from orderbridge.store.database import Database
from orderbridge.store.group_commit import GroupCommit, LeftOut, write_batch, write_group

MOST_ENDS = 200  # rows that end unsent in one transaction: a POS on the same file waits for it

_log = structlog.get_logger(__name__)

_Note = Entry | Result


class RowWriter:
    """Writes claims and outcomes. `moved` is called after each time that it had something to write."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        postponed: Postponed,
        writer: OutcomeWriter,
        *,
        moved: Callable[[], None],
    ) -> None:
        self._clock = clock
        self._postponed = postponed
        self._writer = writer
        self._group: GroupCommit[_Note, Any] = GroupCommit(
            partial(write_group, database, self._write, urgent=True), put_off=self._put_off, on_idle=moved
        )
        self._late: set[int] = set()  # rows whose outcomes are put off
        self._is_closed = False
        self.failed: Over | None = None  # it ends the daemon: nothing can be written any more

    async def claim(self, entry: Entry) -> Claimed | Unwritten:
        """A Claim: the row is ours to send, and that is on disk. Anything else: it does not leave now."""
        try:
            said: Claimed | Unwritten = await self._group.add(entry)
        except Over as error:
            self.failed = error
            return Unwritten()
        except Exception as error:  # noqa: BLE001 - the row stays where it is, whatever the reason
            return Unwritten(error)
        return said

    async def write(self, result: Result) -> Decision:
        """Decide what becomes of the row, and return when that is on disk."""
        row_id = result.claim.row.id
        try:
            decision: Decision = await self._group.add(result)
        except Over as error:  # the next start finds the row's claim
            self.failed = error
            raise asyncio.CancelledError from error
        finally:
            self._late.discard(row_id)
            if not self._is_closed:
                self._postponed.forget(row_id)
        return decision

    @property
    def is_writing(self) -> bool:
        """Whether anything is being written, or is about to be."""
        return self._group.is_writing

    def is_busy(self) -> bool:
        """Whether it is worth waiting: what the database refuses is not waited for at the end."""
        if self.failed is not None:
            return False
        return self.is_writing or not self._late <= self._postponed.refused

    def close(self) -> None:
        """The callers are about to be cancelled. The next start finds these rows as they are."""
        self._is_closed = True

    def _write(self, connection: Connection, notes: Sequence[_Note]) -> list[tuple[_Note, object]]:
        results = [note for note in notes if isinstance(note, Result)]
        entries = [note for note in notes if isinstance(note, Entry)]
        return [*self._writer.post(connection, results), *self._writer.claim(connection, entries)]

    def _put_off(self, failed: Sequence[tuple[_Note, Exception]]) -> list[float | None]:
        """Outcomes are written again, for ever; a claim is not."""
        late = {note: error for note, error in failed if isinstance(note, Result) and not isinstance(error, Over)}
        causes = {note.claim.row.id: None if isinstance(error, LeftOut) else error for note, error in late.items()}
        self._late |= causes.keys()
        rows = {note.claim.row.id: note.claim.row for note in late}
        times = self._postponed.put_off(causes, rows) if late else {}
        now = self._clock.monotonic()
        return [max(times[note.claim.row.id] - now, 0.0) if note in late else None for note, _ in failed]


class Ends:
    """Writes the ends of rows that are not sent, in groups, while the lanes of those that were sent once are ours."""

    def __init__(
        self,
        queue: Queue,
        reader: OutboxReader,
        writer: OutcomeWriter,
        *,
        database: Database,
        lanes: Lanes,
        verdicts: Verdicts,
        postponed: Postponed,
    ) -> None:
        self._queue = queue
        self._reader = reader
        self._writer = writer
        self._database = database
        self._lanes = lanes
        self._verdicts = verdicts
        self._postponed = postponed
        self.due: list[End] = []  # decided, and not written yet

    async def write_some(self) -> int:
        """Write the ends of rows that are not sent, so many at a time."""
        self.due += self._queue.ends()
        if not self.due:
            return 0
        some, self.due = self.due[:MOST_ENDS], self.due[MOST_ENDS:]
        ours = [(row, verdict) for row, verdict in some if row.id in self._queue]  # the others were let go meanwhile
        ends, lanes = self._with_lanes(ours)
        ended, settled = 0, set[int]()
        try:
            answers, failed = await write_batch(self._database, self._writer.end, ends, urgent=True)
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
                    self._queue.give_back(row.id)
        return ended

    def _with_lanes(self, ends: Sequence[End]) -> tuple[list[End], list[Lane]]:
        """Those that can be written now, and the lanes that were taken for it.

        An unresolved row of an order ends while its lane is ours: a list that is being taken in must not see it end.
        """
        free: list[End] = []
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

    def _not_sent(self, row: OutboxRow, what: object) -> bool:
        """Whether it ended."""
        self._postponed.forget(row.id)
        if isinstance(what, Changed):
            self._reader.replace(row.id, what.rows)
        if not isinstance(what, Verdict):
            return False
        self._queue.drop(row.id)
        self._verdicts.tell(row, what)
        return True

    async def refuse_unreadable(self) -> int:
        """Rows that slipped past the constraints and cannot even be read."""
        unreadable = [row_id for row_id in self._reader.unreadable if not self._postponed.waits(row_id)][:MOST_ENDS]
        if not unreadable:
            return 0
        refused, broken = await write_batch(self._database, self._writer.refuse_unreadable, unreadable, urgent=True)
        self._postponed.put_off(dict(broken), {})
        for row_id, _ in refused:
            self._postponed.forget(row_id)
            self._reader.unreadable.discard(row_id)
        ended = sum(ended for _, ended in refused)
        self._verdicts.tell_unreadable(ended)
        return ended


class Recovery:
    """Finds lost requests and has it written that their outcome is unknown."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        writer: OutcomeWriter,
        postponed: Postponed,
        is_ours: Callable[[OutboxRow], bool],
    ) -> None:
        """`is_ours`: a row that another replica has on the wire is none of those."""
        self._database = database
        self._clock = clock
        self._writer = writer
        self._postponed = postponed
        self._is_ours = is_ours
        self.again_at = math.inf  # by the monotonic clock: when those that could not be written are tried again

    async def run(self, mine: Collection[int]) -> None:
        """`mine`: rows that are on the wire indeed."""
        lost = await self._database.read(lambda tx: self._lost(tx, mine))
        recovered, failed = await write_batch(self._database, self._writer.lose, lost)
        errors, rows = {row.id: error for (row, _), error in failed}, {row.id: row for row, _ in lost}
        times = self._postponed.put_off(errors, rows)
        for row_id in recovered:
            self._postponed.forget(row_id)
        if recovered:
            _log.warning("outbox.recovered", rows=len(recovered))
        soon = self._clock.monotonic() + STUCK_S  # what a till holds, or where the database is away
        held = [] if len(recovered) + len(failed) == len(lost) else [soon]
        self.again_at = min([*times.values(), *held], default=math.inf)

    def _lost(self, connection: Connection, mine: Collection[int]) -> list[tuple[OutboxRow, int]]:
        """The rows that are marked as on the wire and are not, each with the attempt that was lost."""
        lost = unfinished.unfinished_attempts(connection)
        sending = unfinished.read_unfinished(connection, sending_only=True)[0] if lost else []
        rows = {row.id: row for row in sending if row.id not in mine and self._is_ours(row)}
        return [(rows[row_id], number) for row_id, number in lost if row_id in rows]
