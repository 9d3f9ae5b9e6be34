"""The journal beside the database: what is acknowledged is in it first (store.journal has its files).

Each document is handed over once: what is delivered again unchanged is only found in a set. Documents that come while
others are written are written together (store.group_commit). The database is the promise and the journal a help: where it cannot be written,
or not soon, the acknowledgement leaves all the same; that is logged, and what is missing is kept in memory, up to a limit,
and written when it can be.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import partial
from pathlib import Path

import structlog

from orderbridge import config
from orderbridge.clock import Clock
from orderbridge.jobs.daemon_problems import DaemonProblems
from orderbridge.model import Document
from orderbridge.rules.problems import Code
from orderbridge.store import journal
from orderbridge.store.group_commit import Failed, GroupCommit
from orderbridge.store.workers import Workers
from orderbridge.texts import say

WITHIN_S = 3.0  # for so long an acknowledgement, which has 8 s in all, waits for its line
MOMENT_S = 0.5  # at the end, where it hangs already
MOST_WAITING = 8 * 1024 * 1024  # bytes of documents that could not be written
MOST_KNOWN = 10_000  # documents that are not written twice, about 1 MiB

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class _Batch:
    """Documents of one account, delivered together."""

    account: str
    documents: Sequence[Document]
    at: datetime

    def size(self) -> int:
        return sum(len(document.raw) for document in self.documents)


class Journal:
    """Of one daemon, for all its accounts. `inline`: written on the spot, as a database may be."""

    def __init__(self, folder: Path, *, clock: Clock, inline: bool = False) -> None:
        self._folder = folder
        self._clock = clock
        self._inline = inline
        self._workers: Workers | None = None  # from the first write on: one that is made ready may never work
        self._group: GroupCommit[None, None] = GroupCommit(self._write)  # a note: write all that waits
        self._waiting: deque[_Batch] = deque()
        self._known: dict[str, None] = {}
        self._tidying: asyncio.Task[None] | None = None
        self._lost = 0
        self.since: datetime | None = None  # when it could not be written for the first time; None: it can be
        self.error = ""

    def keep(self, account: str, documents: Sequence[Document]) -> "asyncio.Task[bool] | None":
        """When that is done, these may be acknowledged; None: at once. Never raises."""
        new = [document for document in documents if document.digest not in self._known]
        if not new:
            return None
        self._know(new)
        self._waiting.append(_Batch(account, new, self._clock.now()))
        self._drop()
        return None if self._hangs() else asyncio.create_task(self._write_within(WITHIN_S))

    def _know(self, documents: Sequence[Document]) -> None:
        self._known.update(dict.fromkeys(document.digest for document in documents))
        while len(self._known) > MOST_KNOWN:
            del self._known[next(iter(self._known))]

    def _hangs(self) -> bool:
        return self.since is not None and self._group.is_writing

    def _drop(self) -> None:
        """The oldest of what waits, when it is too much while nothing can be written."""
        size = sum(batch.size() for batch in self._waiting) if self.since is not None else 0
        while size > MOST_WAITING:
            batch = self._waiting.popleft()
            size -= batch.size()
            self._lost += len(batch.documents)

    async def _write_within(self, seconds: float) -> bool:
        """Whether what waits was written in time, or could not be. A disk that hangs is left to it."""
        written = self._group.add(None)
        await asyncio.wait([written], timeout=seconds)
        if not written.done():
            self._failed(say("log.journal_slow"))
        return written.done()

    async def _write(self, notes: Sequence[None]) -> tuple[list[tuple[None, None]], Failed[None]]:
        """Documents that cannot be written wait for the next ones. Never raises."""
        while self._waiting:
            batches, self._waiting = list(self._waiting), deque()
            try:
                await self._run(partial(_append, self._folder, batches, self._clock.now()))
            except OSError as error:
                self._waiting.extendleft(reversed(batches))
                self._failed(error.strerror or type(error).__name__)
                break
            except Exception:  # noqa: BLE001 - a fault of ours must hold no order up
                _log.exception("journal.crashed")
                self._lost += sum(len(batch.documents) for batch in batches)
                self._failed(say("log.fault"))
                break
            self._worked()
        return [(note, None) for note in notes], []

    async def _run(self, call: Callable[[], object]) -> None:
        if self._inline:
            call()
            return
        self._workers = self._workers or Workers(1, "journal")
        await self._workers.submit(call, urgent=False)

    # ---- how it goes -------------------------------------------------------------------------------------------------

    def _failed(self, error: str) -> None:
        self.error = error
        if self.since is None:
            self.since = self._clock.now()
            _log.error("journal.failed", folder=str(self._folder), error=error)
        self._drop()

    def _worked(self) -> None:
        if self.since is not None:
            self.since, lost, self._lost = None, self._lost, 0
            log = _log.error if lost else _log.info
            log("journal.written_again", folder=str(self._folder), documents_missing=lost)

    def report(self, known: DaemonProblems) -> None:
        """Whether it can be written."""
        if self.since is None:
            known.end(Code.JOURNAL_NOT_WRITTEN)
        else:
            known.begin(Code.JOURNAL_NOT_WRITTEN, since=self.since, folder=self._folder, error=self.error)

    # ---- now and then ------------------------------------------------------------------------------------------------

    async def tidy(self, retention_days: int, late: datetime) -> None:
        """Write what could not be written, and forget what has been kept for long enough (0: never) when it is so late.

        A disk that hangs is left to it after `WITHIN_S`, and that is logged.
        """
        if self._waiting and not self._group.is_writing:
            self._group.add(None)
        if retention_days and (self._tidying is None or self._tidying.done()):
            border = (late - timedelta(days=retention_days)).date()
            self._tidying = asyncio.create_task(self._remove_old(border))
        if self._tidying is not None:
            await asyncio.wait([self._tidying], timeout=WITHIN_S)
            if not self._tidying.done():
                self._failed(say("log.journal_slow"))

    async def _remove_old(self, border: date) -> None:
        try:
            await self._run(partial(journal.remove_old, self._folder, border))
        except OSError as error:
            _log.warning("journal.not_tidied", folder=str(self._folder), error=error.strerror)
        else:
            if not self._waiting and not self._group.is_writing:
                self._worked()

    async def close(self) -> None:
        """Write what waits, once more. What hangs is left to the process."""
        is_hung = False
        if self._waiting or self._group.is_writing:
            is_hung = not await self._write_within(MOMENT_S if self._hangs() else WITHIN_S)
        if self._workers is not None:
            self._workers.close(wait=not is_hung)


def _append(folder: Path, batches: Sequence[_Batch], now: datetime) -> None:
    lines = [journal.line(batch.account, document, batch.at) for batch in batches for document in batch.documents]
    journal.append(folder, lines, now)


def journal_of(settings: config.Settings, clock: Clock, *, inline: bool) -> Journal | None:
    """The configured one, if any."""
    return None if settings.journal is None else Journal(settings.journal, clock=clock, inline=inline)
