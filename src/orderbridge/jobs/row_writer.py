"""Writes what happens to outbox rows before and after their requests, by group commit (store.group_commit).

Of one transaction, outcomes are written first, then claims, so that a lane which an outcome frees is judged by what is
known now. A claim that cannot be written says so, and the row does not leave. An outcome is never lost while the program
runs: what a POS holds or a trigger refuses is put off, and written again until it succeeds.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from sqlalchemy import Connection

from orderbridge.clock import Clock
from orderbridge.errors import Over
from orderbridge.jobs.outcome_writer import Claimed, OutcomeWriter, Result, Unwritten
from orderbridge.jobs.postponed import Postponed
from orderbridge.rules.account_queues import Entry
from orderbridge.rules.retry import Decision
from orderbridge.store.database import Database
from orderbridge.store.group_commit import GroupCommit, LeftOut, write_group

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
