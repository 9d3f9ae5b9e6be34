"""What is marked as on the wire and is not: the program stopped, or the database lost our word, in between."""

import math
from collections.abc import Callable, Collection, Sequence
from datetime import datetime

import structlog
from sqlalchemy import Connection

from orderbridge.clock import Clock
from orderbridge.jobs.postponed import STUCK_S, Postponed
from orderbridge.jobs.verdicts import Posting, Verdicts
from orderbridge.model import Attempt, OutboxRow, Outcome
from orderbridge.rules.retry import Decision
from orderbridge.store import unfinished
from orderbridge.store.database import Database
from orderbridge.store.group_commit import write_batch

_log = structlog.get_logger(__name__)


class Recovery:
    """Says of such rows that their outcome is unknown, and decides what follows."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        verdicts: Verdicts,
        postponed: Postponed,
        decide: Callable[[OutboxRow, Sequence[Attempt], datetime, datetime], Decision],
        is_ours: Callable[[OutboxRow], bool],
    ) -> None:
        """`is_ours`: a row that another replica has on the wire is none of those."""
        self._database = database
        self._clock = clock
        self._verdicts = verdicts
        self._postponed = postponed
        self._decide = decide
        self._is_ours = is_ours
        self.again_at = math.inf  # by the monotonic clock: when those that could not be written are tried again

    async def run(self, mine: Collection[int]) -> None:
        """`mine`: rows that are on the wire indeed."""
        lost = await self._database.read(lambda tx: self._lost(tx, mine))
        recovered, failed = await write_batch(self._database, self._recover, lost)
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

    def _recover(self, connection: Connection, lost: Sequence[tuple[OutboxRow, int]]) -> list[int]:
        """What another session has locked is left out."""
        now = self._clock.now()
        histories = unfinished.histories(connection, [row.id for row, _ in lost])
        attempt = Attempt(Outcome.UNKNOWN, "stopped_while_sending")
        postings = []
        for row, number in lost:
            history = [*histories[row.id], attempt]
            postings.append(Posting.after(row, history, self._decide(row, history, now, now), number, attempt))
        return [one.row.id for one in self._verdicts.post_free(connection, postings, now)]
