"""The ends of rows that are not sent, written in groups: expired, withdrawn, superseded, refused here.

    decided   by the queue (rules.queue.ends), or by a claim that found that it must not leave (jobs.executor). Such a row
              is ENDING: it keeps its lane, so that nothing behind it overtakes an end that may yet fail. `due` has what
              waits its turn
    lane      an unresolved row of an order needs its order's lane, which an acknowledgement may have: a list that is
              being taken in must not see the row end halfway. Where it is not to be had, the row is left for a moment
    read      the rows again, held in the transaction that ends them. Held by a till: later. Gone: forgotten. Changed:
              put back as it is now, and decided anew. Without this a row would end by what it was a moment ago, though
              a look, a till or a person has changed it since
    write     the end and what it means for the order (jobs.verdicts)
    after     the row leaves the queue, its lane is free for the next one, the log hears of it

Whatever stops this halfway, the rows that were not written are given back and decided about once more: a row that
stayed ENDING would hold its lane for ever.
"""

from collections.abc import Sequence

from orderbridge.jobs.lanes import Lanes
from orderbridge.jobs.outbox_reader import OutboxReader
from orderbridge.jobs.outcome_writer import Changed, End, OutcomeWriter
from orderbridge.jobs.postponed import Postponed
from orderbridge.jobs.verdicts import Verdicts
from orderbridge.model import ActionState, OutboxRow, Verdict
from orderbridge.rules.outbox import Lane, order_lane
from orderbridge.rules.queue import Queue
from orderbridge.store.database import Database
from orderbridge.store.group_commit import write_batch

MOST_ENDS = 200  # rows that end unsent in one transaction: a till on the same file waits for it


class Ends:
    """Writes them. The rows are read again: what has changed since it was decided is decided anew."""

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
        some, self.due = self.due[:MOST_ENDS], self.due[MOST_ENDS:]
        ours = [(row, verdict) for row, verdict in some if row.id in self._queue]  # the others were let go meanwhile
        ends, lanes = self._with_lanes(ours)
        left = {row.id: row for row, _ in ends}
        ended = 0
        try:
            said, failed = await write_batch(self._database, self._writer.end, ends, urgent=True)
            held: list[tuple[OutboxRow, Exception | None]] = [(row, None) for (row, _), what in said if what is None]
            self._postponed.put_aside(held + [(row, error) for (row, _), error in failed])
            for row, _ in held:
                del left[row.id]
            for (row, _), _ in failed:
                del left[row.id]
            for (row, _), what in said:
                if row.id in left:
                    del left[row.id]
                    ended += self._not_sent(row, what)
        finally:
            for lane in lanes:
                self._lanes.free_after_action(lane)
            for row_id in left:
                self._queue.give_back(row_id)
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
        refused, broken = await write_batch(self._database, self._writer.refuse_unreadable, unreadable, urgent=True)
        self._postponed.put_off(dict(broken), {})
        for row_id, _ in refused:
            self._postponed.forget(row_id)
            self._reader.unreadable.discard(row_id)
        ended = sum(ended for _, ended in refused)
        self._verdicts.tell_unreadable(ended)
        return ended
