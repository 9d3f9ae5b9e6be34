"""Rows that cannot be written now: when it is tried again, and why.

What the database refuses is told for each row. Rows that wait for it (it is away, or a till holds them) are told
together: that it begins, and how many there were when the last of them is written.
"""

import math
from collections.abc import Mapping, Sequence

import structlog
from sqlalchemy.exc import DBAPIError

from orderbridge.clock import Clock
from orderbridge.jobs.verdicts import about
from orderbridge.model import OutboxRow
from orderbridge.rules.queue import Queue
from orderbridge.store.failures import is_broken, is_refusal
from orderbridge.texts import say

STUCK_S = 0.5  # between two tries to write a row that a till holds
REFUSED_S = 60.0  # between two tries to write a row that a trigger or a constraint refuses, or a broken trigger

_log = structlog.get_logger(__name__)


class Postponed:
    """What is put off, each row with its time. `refused`: the rows that the database itself did not take."""

    def __init__(self, queue: Queue, clock: Clock) -> None:
        self._queue = queue
        self._clock = clock
        self._times: dict[int, float] = {}
        self.refused: set[int] = set()
        self._waiting: set[int] = set()
        self._waited: set[int] = set()  # since that was told

    def put_aside(self, failed: Sequence[tuple[OutboxRow, Exception | None]]) -> None:
        """Rows of the queue that could not be written are left alone until then. No error: somebody holds them."""
        times = self.put_off({row.id: error for row, error in failed}, {row.id: row for row, _ in failed})
        for row_id, at in times.items():
            if row_id in self._queue:
                self._queue.put_aside(row_id, at)

    def leave(self, row_id: int) -> None:
        """A row of the queue is left alone for a moment."""
        self._queue.put_aside(row_id, self._clock.monotonic() + STUCK_S)

    def come_back(self) -> None:
        """Those whose time has come are given back."""
        for row_id in self._queue.come_back(self._clock.monotonic()):
            if row_id not in self._queue:
                self.forget(row_id)

    def put_off(self, failed: Mapping[int, Exception | None], rows: Mapping[int, OutboxRow]) -> dict[int, float]:
        """Returns when each is tried again, by the monotonic clock. No error: the database is away, or a till holds it.

        `rows`: what is known of them, for the log.
        """
        refused = {row_id for row_id, error in failed.items() if error is not None and is_refused(error)}
        waiting = failed.keys() - refused
        for row_id in sorted(refused - self.refused):
            _tell_refused(row_id, failed[row_id], rows.get(row_id))
        if waiting and not self._waiting:
            causes = sorted({_name(error) for row_id, error in failed.items() if row_id in waiting and error})
            _log.warning("action.verdicts_wait", rows=len(waiting), first=min(waiting), errors=causes)
        self.refused = (self.refused | refused) - waiting
        self._waiting |= waiting
        self._waited |= waiting
        for row_id in refused:
            self._waits_no_more(row_id)
        now = self._clock.monotonic()
        times = {row_id: now + (REFUSED_S if row_id in refused else STUCK_S) for row_id in failed}
        self._times |= times
        return times

    def forget(self, row_id: int) -> None:
        """It was written, or is gone."""
        self._times.pop(row_id, None)
        self.refused.discard(row_id)
        self._waits_no_more(row_id)

    def _waits_no_more(self, row_id: int) -> None:
        if row_id in self._waiting:
            self._waiting.remove(row_id)
            if not self._waiting:
                _log.info("action.verdicts_written", rows=len(self._waited))
                self._waited.clear()

    def waits(self, row_id: int) -> bool:
        """Whether its time has not come."""
        return self._times.get(row_id, -math.inf) > self._clock.monotonic()


def is_refused(error: Exception) -> bool:
    """Whether the database does not take what was written, and will not before somebody mends it."""
    return isinstance(error, DBAPIError) and (is_refusal(error) or is_broken(error))


def _name(error: Exception | None) -> str:
    return type(getattr(error, "orig", error)).__name__


def _tell_refused(row_id: int, error: Exception | None, row: OutboxRow | None) -> None:
    facts = {} if row is None else about(row)
    _log.error("action.database_refused", id=row_id, error=_name(error), remedy=say("log.actions_trigger"), **facts)
