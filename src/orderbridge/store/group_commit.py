"""Group commit: writes the notes of many coroutines in one transaction.

Rules of this file:

- `add` returns when the note is on disk, or raises its error.
- One group is written at a time, in the order in which its notes were added. Notes added meanwhile are the next group.
- If a group fails, each note is written alone, so that a refused note fails alone (promise 7). An error of the whole
  database is not tried again for each note.
- Notes are compared by identity.
- The note of a cancelled caller is still written.
- `put_off` decides which failed notes are written again later, while their callers wait.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

import structlog
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, OperationalError

from orderbridge.errors import Over
from orderbridge.store.database import Database
from orderbridge.store.failures import is_busy, is_refusal

GROUP_SIZE = 200  # notes in one transaction: a POS waits for it on a SQLite file

_log = structlog.get_logger(__name__)

Note = TypeVar("Note")
Answer = TypeVar("Answer")
Written = TypeVar("Written")
Failed = list[tuple[Note, Exception]]
# Returns what was written, each note with its answer, and what failed. The row of a note in neither is locked.
Write = Callable[[Sequence[Note]], Awaitable[tuple[Sequence[tuple[Note, Answer]], Failed[Note]]]]
Work = Callable[[Connection, Sequence[Note]], Sequence[Written]]  # of one transaction
# For each failed note the seconds until it is written again; None: its caller gets the error.
PutOff = Callable[[Failed[Note]], Sequence[float | None]]


class RowLocked(Exception):
    """The transaction was committed without this note, because another session locks its row."""


class GroupCommit(Generic[Note, Answer]):
    """Collects notes and writes them in groups. `wait_s`: how long a note waits for others by default."""

    def __init__(
        self,
        write: Write[Note, Answer],
        *,
        wait_s: float = 0.0,
        put_off: PutOff[Note] = lambda failed: [None] * len(failed),
        on_idle: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_idle` is called whenever all notes are written."""
        self._write = write
        self._wait_s = wait_s
        self._put_off = put_off
        self._on_idle = on_idle
        self._waiting: list[tuple[Note, asyncio.Future[Answer]]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._writer: asyncio.Task[None] | None = None

    @property
    def is_writing(self) -> bool:
        """Whether a group is being written or scheduled."""
        return self._writer is not None

    def add(self, note: Note, *, within_s: float | None = None) -> "asyncio.Future[Answer]":
        """Write the note within `within_s`, or with the next group if one is being written."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((note, answer))
        self._start_within(self._wait_s if within_s is None else within_s)
        return answer

    def flush(self) -> None:
        """Write at once, without waiting for further notes."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting and self._writer is None:
            self._writer = asyncio.get_running_loop().create_task(self._write_all())

    def _start_within(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        if seconds <= 0:
            self.flush()
        elif self._timer is None or self._timer.when() > loop.time() + seconds:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = loop.call_later(seconds, self.flush)

    async def _write_all(self) -> None:
        try:
            while self._waiting and self._timer is None:
                due, self._waiting = self._waiting, []
                for begin in range(0, len(due), GROUP_SIZE):
                    await self._write_group(due[begin : begin + GROUP_SIZE])
        finally:
            self._writer = None
            self._on_idle()

    async def _write_group(self, group: Sequence[tuple[Note, "asyncio.Future[Answer]"]]) -> None:
        notes = [note for note, _ in group]
        written: Sequence[tuple[Note, Answer]] = ()
        try:
            written, failed = await self._write(notes)
        except Exception as error:  # noqa: BLE001 - the callers get it
            failed = [(note, error) for note in notes]
        answers = {id(note): answer for note, answer in written}
        errors = {id(note): error for note, error in failed}
        unwritten = []
        for note, caller in group:
            if caller.done():  # cancelled
                continue
            if id(note) in answers:
                caller.set_result(answers[id(note)])
            else:
                unwritten.append((note, errors.get(id(note), RowLocked()), caller))
        if unwritten:
            self._fail(unwritten)

    def _fail(self, unwritten: Sequence[tuple[Note, Exception, "asyncio.Future[Answer]"]]) -> None:
        waits = self._put_off([(note, error) for note, error, _ in unwritten])
        for (note, error, caller), wait_s in zip(unwritten, waits, strict=True):
            if wait_s is None:
                caller.set_exception(error)
            else:
                asyncio.get_running_loop().call_later(wait_s, self._add_again, note, caller)

    def _add_again(self, note: Note, caller: "asyncio.Future[Answer]") -> None:
        if not caller.done():
            self._waiting.append((note, caller))
            self._start_within(0.0)


async def write_group(
    database: Database, work: Work[Note, Written], notes: Sequence[Note], *, urgent: bool = False
) -> tuple[list[Written], Failed[Note]]:
    """Write notes together or, if that fails, alone.

    Returns the written ones, and the failed ones with their errors.
    """
    try:
        return list(await database.run(lambda tx: work(tx, notes), urgent=urgent)), []
    except Over:  # ends the daemon
        raise
    except Exception as error:  # noqa: BLE001 - each note is tried alone
        if len(notes) == 1 or concerns_all(database, error):
            _log_fault(error)
            return [], [(note, error) for note in notes]
    written: list[Written] = []
    failed: Failed[Note] = []
    for place, note in enumerate(notes):
        try:
            written += await database.run(lambda tx, note=note: work(tx, [note]), urgent=urgent)  # type: ignore[misc]
        except Over:
            raise
        except Exception as error:  # noqa: BLE001 - must not affect other notes
            if concerns_all(database, error):
                return written, [*failed, *((rest, error) for rest in notes[place:])]
            _log_fault(error)
            failed.append((note, error))
    return written, failed


def _log_fault(error: Exception) -> None:
    if not isinstance(error, DBAPIError):  # a bug
        _log.error("batch.crashed", exc_info=error)


async def write_batch(
    database: Database, work: Work[Note, Written], notes: Sequence[Note], *, urgent: bool = False
) -> tuple[list[Written], Failed[Note]]:
    """Like `write_group`, for a repeated job: only errors of single notes are returned."""
    if not notes:
        return [], []
    written, failed = await write_group(database, work, notes, urgent=urgent)
    return written, [(note, error) for note, error in failed if not concerns_all(database, error)]


def concerns_all(database: Database, error: Exception) -> bool:
    """Whether the error concerns the whole database: an unreachable server, or a locked SQLite file."""
    if not isinstance(error, DBAPIError) or is_refusal(error):
        return False
    connecting = isinstance(error, OperationalError) and error.statement is None
    return connecting or error.connection_invalidated or (database.dialect.one_writer and is_busy(error))
