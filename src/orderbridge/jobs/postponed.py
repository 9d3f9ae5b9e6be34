"""Rows that wait: those that cannot be written now, and those of accounts of which nothing can leave.

`Postponed` knows when a write is tried again. What the database refuses is logged for each row. Rows that wait for it
(it is away, or a till holds them) are logged together: that it begins, and how many there were when the last is written.

`HeldAccounts` writes into each row of a paused account for what it waits, and logs it once for the account.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import structlog
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from orderbridge.clock import Clock
from orderbridge.jobs.account import Account
from orderbridge.jobs.context import Context
from orderbridge.jobs.verdicts import about
from orderbridge.model import ActionState, OutboxRow, Outcome
from orderbridge.rules.queue import Queue
from orderbridge.store.failures import is_broken, is_refusal
from orderbridge.store.group_commit import write_batch
from orderbridge.store.rows import ROW, lock_naming_held
from orderbridge.texts import say

STUCK_S = 0.5  # between two tries to write a row that a till holds
AGAIN_S = 2.0  # between two searches for rows that came while their account is paused
MOST = 500  # rows that are explained at once: keys in one IN list
REFUSED_S = 60.0  # between two tries to write a row that a trigger or a constraint refuses, or a broken trigger

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Postponed:
    """What is put off, each row with its time. `refused`: the rows that the database itself did not take."""

    queue: Queue
    clock: Clock
    refused: set[int] = field(default_factory=set)
    _times: dict[int, float] = field(default_factory=dict)
    _waiting: set[int] = field(default_factory=set)
    _waited: set[int] = field(default_factory=set)  # since that was logged

    def put_aside(self, failed: Sequence[tuple[OutboxRow, Exception | None]]) -> None:
        """Rows of the queue that could not be written are left alone until then. No error: another session holds them."""
        times = self.put_off({row.id: error for row, error in failed}, {row.id: row for row, _ in failed})
        for row_id, at in times.items():
            if row_id in self.queue:
                self.queue.put_aside(row_id, at)

    def leave(self, row_id: int) -> None:
        """A row of the queue is left alone for a moment."""
        self.queue.put_aside(row_id, self.clock.monotonic() + STUCK_S)

    def come_back(self) -> None:
        """Those whose time has come are given back."""
        for row_id in self.queue.come_back(self.clock.monotonic()):
            if row_id not in self.queue:
                self.forget(row_id)

    def put_off(self, failed: Mapping[int, Exception | None], rows: Mapping[int, OutboxRow]) -> dict[int, float]:
        """Returns when each is tried again, by the monotonic clock. No error: the database is away, or a till holds it.

        `rows`: what is known of them, for the log.
        """
        refused = {row_id for row_id, error in failed.items() if is_refused(error)}
        waiting = failed.keys() - refused
        for row_id in sorted(refused - self.refused):
            facts = about(rows[row_id]) if row_id in rows else {}
            name, words = _name(failed[row_id]), say("log.actions_trigger")
            _log.error("action.database_refused", id=row_id, error=name, remedy=words, **facts)
        if waiting and not self._waiting:
            causes = sorted({_name(error) for row_id, error in failed.items() if row_id in waiting and error})
            _log.warning("action.verdicts_wait", rows=len(waiting), first=min(waiting), errors=causes)
        self.refused = (self.refused | refused) - waiting
        self._waiting |= waiting
        self._waited |= waiting
        for row_id in refused:
            self._waits_no_more(row_id)
        now = self.clock.monotonic()
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
        return self._times.get(row_id, -math.inf) > self.clock.monotonic()


def is_refused(error: Exception | None) -> bool:
    """Whether the database does not take what was written, and will not before it is mended."""
    return isinstance(error, DBAPIError) and (is_refusal(error) or is_broken(error))


def _name(error: Exception | None) -> str:
    return type(getattr(error, "orig", error)).__name__


@dataclass(slots=True)
class _Pause:
    """One account whose rows wait. `explained`: the rows that say so; `left`: those that do not yet."""

    search_at: float = 0.0
    explained: set[int] = field(default_factory=set)
    left: list[OutboxRow] = field(default_factory=list)


@dataclass(slots=True)
class HeldAccounts:
    """Which accounts are paused, as far as their rows are concerned."""

    context: Context
    queue: Queue
    accounts: Mapping[str, Account]
    postponed: Postponed
    _paused: dict[str, _Pause] = field(default_factory=dict)

    async def explain(self) -> None:
        """Rows that an account's line or login holds up say so, also those that were not tried: a person waits."""
        for code, pause, rows in self._unexplained():
            written, failed = await write_batch(self.context.database, partial(self._write, code), rows)
            self.postponed.put_aside(failed)
            for row in written:
                self.postponed.forget(row.id)
            if not written:
                pause.explained.difference_update(row.id for row in rows)

    def _write(self, code: str, connection: Connection, rows: Sequence[OutboxRow]) -> Sequence[OutboxRow]:
        held = lock_naming_held(connection, ROW, [row.id for row in rows])
        self.context.verdicts.explain(connection, [row.id for row in rows if row.id not in held], code)
        return rows

    def _unexplained(self) -> list[tuple[str, _Pause, Sequence[OutboxRow]]]:
        """Some rows that wait for their account and do not say so yet, with the code that they should say."""
        found: list[tuple[str, _Pause, Sequence[OutboxRow]]] = []
        now = self.context.clock.monotonic()
        for name, account in self._with_rows():
            if account.paused() <= 0:
                continue
            pause = self._begin(name, account.session.pause_code())
            if not pause.left and pause.search_at <= now:
                waiting = [row for row in self.queue.accounts.rows(name) if row.state == ActionState.PENDING]
                pause.left = [row for row in waiting if row.id not in pause.explained]
                pause.search_at = now + AGAIN_S
            rows, pause.left = pause.left[:MOST], pause.left[MOST:]
            pause.explained.update(row.id for row in rows)
            if rows:
                found.append((account.session.pause_code(), pause, rows))
        for name in [name for name in self._paused if not self.queue.size(name)]:
            self._end(name)
        return found

    def _with_rows(self) -> list[tuple[str, Account]]:
        """The accounts at work of which a row may leave."""
        return [(name, self.accounts[name]) for name in self.queue.accounts.names() if name in self.accounts]

    def record_outcome(self, account: str, outcome: Outcome) -> None:
        """A request of the account ended so."""
        if outcome == Outcome.NOT_SENT and account in self.accounts:
            self._begin(account, self.accounts[account].session.pause_code())
        elif outcome != Outcome.UNAUTHORIZED:
            self._end(account)

    def retry_in(self) -> float | None:
        """Seconds until the first paused account with rows is tried again."""
        waits = (account.paused() for _, account in self._with_rows())
        return min((wait for wait in waits if wait > 0), default=None)

    def _begin(self, name: str, code: str) -> _Pause:
        if name not in self._paused:
            self._paused[name] = _Pause()
            _log.warning("account.rows_wait", account=name, rows=self.queue.size(name), code=code)
        return self._paused[name]

    def _end(self, name: str) -> None:
        if self._paused.pop(name, None) is not None:
            _log.info("account.rows_go", account=name, rows=self.queue.size(name))
