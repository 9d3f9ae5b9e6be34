"""The notes about rows, many in one COMMIT: that they leave, before they do, and what became of them.

Whoever has a note to write waits for the moment at which it is on disk. While one transaction is under way, the notes
of others gather, and the next one writes them all: outcomes first, then claims, so that a lane which an outcome frees
is judged by what is known now. Where such a transaction fails, each note is tried alone (store.group_commit).

A claim that cannot be written is told so, and the row does not leave. An outcome is never lost while the program runs:
what a till holds or a trigger refuses is put off, and tried again until it is written.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import structlog
from sqlalchemy import Connection

from orderbridge.clock import Clock
from orderbridge.errors import Over
from orderbridge.jobs.claims import Claims, Said, Unwritten
from orderbridge.jobs.outcome_writer import OutcomeWriter
from orderbridge.jobs.postponed import Postponed
from orderbridge.jobs.send import Result
from orderbridge.rules.account_queues import Entry
from orderbridge.rules.retry import Decision
from orderbridge.store.database import Database
from orderbridge.store.group_commit import write_batch

MOST = 200  # notes in one transaction

_log = structlog.get_logger(__name__)

_Note = Entry | Result
_Item = tuple[_Note, "asyncio.Future[Any]"]


class RowWriter:
    """Writes notes. `moved` is called after each time that it had something to write."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        postponed: Postponed,
        claims: Claims,
        outcomes: OutcomeWriter,
        *,
        moved: Callable[[], None],
    ) -> None:
        self._database = database
        self._clock = clock
        self._postponed = postponed
        self._claims = claims
        self._outcomes = outcomes
        self._moved = moved
        self._waiting: list[_Item] = []
        self._put_off: dict[int, _Item] = {}
        self._writer: asyncio.Task[None] | None = None
        self.failed: Over | None = None  # it ends the daemon: nothing can be written any more

    async def claim(self, entry: Entry) -> Said:
        """A Claim: the row is ours to send, and that is on disk. Anything else: it does not leave now."""
        said: Said = await self._add(entry)
        return said

    async def write(self, result: Result) -> Decision:
        """Decide what becomes of the row, and return when that is on disk."""
        decision: Decision = await self._add(result)
        return decision

    @property
    def is_writing(self) -> bool:
        """Whether anything is being written, or is about to be."""
        return self._writer is not None

    def is_busy(self) -> bool:
        """Whether it is worth waiting: what the database refuses is not waited for at the end."""
        if self.failed is not None:
            return False
        return self.is_writing or not self._put_off.keys() <= self._postponed.refused

    def close(self) -> None:
        """Try nothing again: the database is about to be closed. The next start finds these rows as they are."""
        self._put_off.clear()

    def _add(self, note: _Note) -> "asyncio.Future[Any]":
        written = asyncio.get_running_loop().create_future()
        self._begin((note, written))
        return written

    def _begin(self, item: _Item) -> None:
        self._waiting.append(item)
        if self._writer is None:
            self._writer = asyncio.get_running_loop().create_task(self._write_on())

    async def _write_on(self) -> None:
        try:
            while self._waiting:
                items, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
                await self._write_some(items)
        finally:
            self._writer = None
            self._moved()

    async def _write_some(self, items: Sequence[_Item]) -> None:
        written: list[tuple[_Note, object]] = []
        failed: list[tuple[_Note, Exception]] = []
        try:
            written, failed = await write_batch(self._database, self._write, [note for note, _ in items], urgent=True)
        except Over as error:
            self.failed = error
        except Exception:  # noqa: BLE001 - whatever it is, outcomes are known, and are written
            _log.exception("row_writer.crashed")
        answers = {id(note): answer for note, answer in written}
        errors = {id(note): error for note, error in failed}
        later: dict[int, _Item] = {}
        causes: dict[int, Exception | None] = {}
        for note, waiter in items:
            if isinstance(note, Entry):
                _tell(waiter, answers.get(id(note), Unwritten(errors.get(id(note)))))
            elif id(note) in answers:
                self._postponed.forget(note.claim.row.id)
                _tell(waiter, answers[id(note)])
            else:
                later[note.claim.row.id] = note, waiter
                causes[note.claim.row.id] = errors.get(id(note))
        if later and self.failed is None:
            self._try_later(later, causes)

    def _write(self, connection: Connection, notes: Sequence[_Note]) -> list[tuple[_Note, object]]:
        results = [note for note in notes if isinstance(note, Result)]
        entries = [note for note in notes if isinstance(note, Entry)]
        return [*self._outcomes.post(connection, results), *self._claims.claim(connection, entries)]

    def _try_later(self, items: Mapping[int, _Item], causes: Mapping[int, Exception | None]) -> None:
        self._put_off |= items
        rows = {row_id: note.claim.row for row_id, (note, _) in items.items() if isinstance(note, Result)}
        for row_id, at in self._postponed.put_off(causes, rows).items():
            delay = max(at - self._clock.monotonic(), 0.0)
            asyncio.get_running_loop().call_later(delay, self._try_again, row_id)

    def _try_again(self, row_id: int) -> None:
        item = self._put_off.pop(row_id, None)
        if item is not None and item[1].cancelled():  # its account is another process's by now, which tells of it
            self._postponed.forget(row_id)
        elif item is not None:
            self._begin(item)


def _tell(waiter: "asyncio.Future[Any]", answer: object) -> None:
    if not waiter.done():  # nobody waits any more when the program ends
        waiter.set_result(answer)
