"""The journal beside the database: what is acknowledged is in it first (store.journal has its files).

Each document is handed over once: what is delivered again unchanged costs a look into a set. What comes while a line is
written goes together with the next one. The database is the promise and the journal a help: where it cannot be written,
or not soon, the acknowledgement leaves all the same; that is told, and what is missing is kept in memory, so much of it,
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
from orderbridge.store.workers import Workers
from orderbridge.texts import say

WITHIN_S = 3.0  # for so long an acknowledgement, which has 8 s in all, waits for its line
MOMENT_S = 0.5  # at the end, where it hangs already
MOST_WAITING = 8 * 1024 * 1024  # bytes of documents that could not be written
MOST_KNOWN = 10_000  # documents that are not written twice, about 1 MiB

_log = structlog.get_logger(__name__)


@dataclass(slots=True, eq=False)
class _Batch:
    """Documents of one account, delivered together. `done`: written, or not to be waited for any longer."""

    account: str
    documents: Sequence[Document]
    at: datetime
    done: asyncio.Future[None]

    def size(self) -> int:
        return sum(len(document.raw) for document in self.documents)


class Journal:
    """Of one daemon, for all its accounts. `inline`: written on the spot, as a database may be."""

    def __init__(self, folder: Path, *, clock: Clock, inline: bool = False) -> None:
        self._folder = folder
        self._clock = clock
        self._inline = inline
        self._workers: Workers | None = None  # from the first write on: one that is made ready may never work
        self._waiting: deque[_Batch] = deque()
        self._known: dict[str, None] = {}
        self._writing: asyncio.Task[None] | None = None
        self._tidying: asyncio.Task[None] | None = None
        self._lost = 0
        self.since: datetime | None = None  # when it could not be written for the first time; None: it can be
        self.error = ""

    def keep(self, account: str, documents: Sequence[Document]) -> asyncio.Future[None] | None:
        """When that is done, these may be acknowledged; None: at once, nothing of it is new. Never raises."""
        new = [document for document in documents if document.digest not in self._known]
        if not new:
            return None
        loop = asyncio.get_running_loop()
        batch = _Batch(account, new, self._clock.now(), loop.create_future())
        self._know(new)
        self._waiting.append(batch)
        if self.since is not None and self._writing is not None:  # what hangs is not waited for by everybody
            batch.done.set_result(None)
        else:
            loop.call_later(WITHIN_S, self._give_up, batch)
        self._drop()
        self._go_on()
        return batch.done

    def _know(self, documents: Sequence[Document]) -> None:
        self._known.update(dict.fromkeys(document.digest for document in documents))
        while len(self._known) > MOST_KNOWN:
            del self._known[next(iter(self._known))]

    def _drop(self) -> None:
        """The oldest of what waits, when it is too much while nothing can be written."""
        size = sum(batch.size() for batch in self._waiting) if self.since is not None else 0
        while size > MOST_WAITING:
            batch = self._waiting.popleft()
            size -= batch.size()
            self._lost += len(batch.documents)
            self._set_done(batch)

    def _go_on(self) -> None:
        if self._waiting and self._writing is None:
            self._writing = asyncio.create_task(self._write())

    async def _write(self) -> None:
        try:
            while self._waiting:
                batches, self._waiting = list(self._waiting), deque()
                try:
                    await self._run(partial(_append, self._folder, batches, self._clock.now()))
                except OSError as error:
                    self._waiting.extendleft(reversed(batches))
                    self._failed(error.strerror or type(error).__name__)
                    return
                except Exception:  # noqa: BLE001 - a fault of ours must hold no order up
                    _log.exception("journal.crashed")
                    self._failed(say("log.fault"))
                    return
                finally:
                    for batch in batches:
                        self._set_done(batch)
                self._worked()
        finally:
            self._writing = None

    async def _run(self, call: Callable[[], object]) -> None:
        if self._inline:
            call()
            return
        self._workers = self._workers or Workers(1, "journal")
        await self._workers.submit(call, urgent=False)

    def _give_up(self, batch: _Batch) -> None:
        if not batch.done.done():
            self._failed(say("log.journal_slow"))
            self._set_done(batch)

    @staticmethod
    def _set_done(batch: _Batch) -> None:
        if not batch.done.done():
            batch.done.set_result(None)

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
            told = _log.error if lost else _log.info
            told("journal.written_again", folder=str(self._folder), documents_missing=lost)

    def tell(self, known: DaemonProblems) -> None:
        """To who says what is wrong."""
        if self.since is None:
            known.end(Code.JOURNAL_NOT_WRITTEN)
        else:
            known.begin(Code.JOURNAL_NOT_WRITTEN, since=self.since, folder=self._folder, error=self.error)

    # ---- now and then ------------------------------------------------------------------------------------------------

    async def tidy(self, retention_days: int, late: datetime) -> None:
        """Write what could not be written, and forget what has been kept for long enough (0: never) when it is so late.

        A disk that hangs is left to it after `WITHIN_S`, and that is told.
        """
        self._go_on()
        if retention_days and (self._tidying is None or self._tidying.done()):
            border = (late - timedelta(days=retention_days)).date()
            self._tidying = asyncio.create_task(self._remove_old(border))
        if self._tidying is not None and not await self._ends(self._tidying):
            self._failed(say("log.journal_slow"))

    async def _remove_old(self, border: date) -> None:
        try:
            await self._run(partial(journal.remove_old, self._folder, border))
        except OSError as error:
            _log.warning("journal.not_tidied", folder=str(self._folder), error=error.strerror)
        else:
            if not self._waiting and self._writing is None:
                self._worked()

    @staticmethod
    async def _ends(task: "asyncio.Task[None]", within_s: float = WITHIN_S) -> bool:
        await asyncio.wait([task], timeout=within_s)
        return task.done()

    async def close(self) -> None:
        """Write what waits, once more. What hangs is left to the process."""
        is_late = self.since is not None and self._writing is not None
        self._go_on()
        is_hung = self._writing is not None and not await self._ends(self._writing, MOMENT_S if is_late else WITHIN_S)
        if self._workers is not None:
            self._workers.close(wait=not is_hung)


def _append(folder: Path, batches: Sequence[_Batch], now: datetime) -> None:
    lines = [journal.line(batch.account, document, batch.at) for batch in batches for document in batch.documents]
    journal.append(folder, lines, now)


def journal_of(settings: config.Settings, clock: Clock, *, inline: bool) -> Journal | None:
    """The configured one, if any."""
    return None if settings.journal is None else Journal(settings.journal, clock=clock, inline=inline)
