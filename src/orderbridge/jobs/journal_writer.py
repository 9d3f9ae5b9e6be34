"""Writes each document to the journal before its order is acknowledged (store.journal has the files).

A document that is delivered again is not written again, unless another one of its order came in between: an order's
last line is its last document. Documents that arrive during a write are written together (store.group_commit). The
promises rest on the database alone. So if the journal cannot be written in time, this is logged and the order is
acknowledged anyway. The missing documents are kept in memory, up to a limit, and written later.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from orderbridge.clock import Clock
from orderbridge.jobs.daemon_problems import DaemonProblems
from orderbridge.model import Document
from orderbridge.net.connector import exhausted
from orderbridge.rules.problems import Code
from orderbridge.store import journal
from orderbridge.store.group_commit import Failed, GroupCommit
from orderbridge.texts import say

WITHIN_S = 3.0  # an acknowledgement waits this long for its line, out of 8 s in all
MOMENT_S = 0.5  # at the stop, if the journal hangs already
MAX_WAITING = 8 * 1024 * 1024  # bytes of documents that could not be written
MAX_KNOWN = 10_000  # digests of orders' last documents, about 2 MiB

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
    """The journal of one daemon. `run` runs a call in a thread, because the disk may hang."""

    def __init__(self, folder: Path, *, clock: Clock, run: Callable[[Callable[[], object]], Awaitable[object]]) -> None:
        self._folder = folder
        self._clock = clock
        self._run = run
        self._group: GroupCommit[None, None] = GroupCommit(self._write)  # each note asks to write all waiting documents
        self._waiting: deque[_Batch] = deque()
        self._known: dict[str | None, str] = {}  # by order: the digest of its last document
        self._tidying: asyncio.Task[None] | None = None
        self._lost = 0
        self.since: datetime | None = None  # the first failed write; None: it works
        self.error = self._reason = ""

    def keep(self, account: str, documents: Sequence[Document]) -> "asyncio.Task[None] | None":
        """Write these documents. They may be acknowledged when the task is done; None: at once. Never raises."""
        new = [document for document in documents if self._known.get(document.payment_key) != document.digest]
        if not new:
            return None
        self._know(new)
        self._waiting.append(_Batch(account, new, self._clock.now()))
        self._drop()
        return None if self._hangs() else asyncio.create_task(self._write_within(WITHIN_S))

    def _know(self, documents: Sequence[Document]) -> None:
        for document in documents:
            self._known.pop(document.payment_key, None)  # it becomes the newest
            self._known[document.payment_key] = document.digest
        while len(self._known) > MAX_KNOWN:
            del self._known[next(iter(self._known))]

    def _hangs(self) -> bool:
        return self.since is not None and self._group.is_writing

    def _drop(self) -> None:
        """Drop the oldest waiting documents if they take too much memory."""
        size = sum(batch.size() for batch in self._waiting) if self.since is not None else 0
        while size > MAX_WAITING:
            batch = self._waiting.popleft()
            size -= batch.size()
            self._lost += len(batch.documents)

    async def _write_within(self, seconds: float) -> None:
        """Write the waiting documents, or give up while the disk hangs."""
        written = self._group.add(None)
        await asyncio.wait([written], timeout=seconds)
        if not written.done():
            self._failed(say("log.journal_slow"))

    async def _write(self, notes: Sequence[None]) -> tuple[list[tuple[None, None]], Failed[None]]:
        """Write all waiting documents; on failure they wait for the next call. Never raises."""
        while self._waiting:
            batches, self._waiting = list(self._waiting), deque()
            try:
                await self._run(partial(_append, self._folder, batches, self._clock.now()))
            except OSError as error:
                self._waiting.extendleft(reversed(batches))
                self._failed(error.strerror or type(error).__name__, exhausted(error))
                break
            except Exception:  # noqa: BLE001 - a bug here must not delay orders
                _log.exception("journal.crashed")
                self._lost += sum(len(batch.documents) for batch in batches)
                self._failed(say("log.fault"))
                break
            self._worked()
        return [(note, None) for note in notes], []

    # ---- its state ---------------------------------------------------------------------------------------------------

    def _failed(self, error: str, reason: str = "") -> None:
        """`reason`: a key of sentences/line.toml with a more exact remedy, if any."""
        self.error, self._reason = error, reason
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
        """Report or end the problem that it cannot be written."""
        facts: dict[str, Any] = {"folder": self._folder, "error": self.error, "reason": self._reason}
        known.report(Code.JOURNAL_NOT_WRITTEN, is_open=self.since is not None, since=self.since, **facts)

    # ---- upkeep ------------------------------------------------------------------------------------------------------

    async def tidy(self, retention_days: int, late: datetime) -> None:
        """Write what could not be written before, and remove files older than `retention_days` (0: never) at `late`.

        Waits at most `WITHIN_S`, and logs a disk that hangs.
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
        """Try once more to write what waits. A write that hangs ends with the process."""
        if self._waiting or self._group.is_writing:
            await self._write_within(MOMENT_S if self._hangs() else WITHIN_S)


def _append(folder: Path, batches: Sequence[_Batch], now: datetime) -> None:
    lines = [journal.line(batch.account, document, batch.at) for batch in batches for document in batch.documents]
    journal.append(folder, lines, now)
