"""Handles outbox rows that cannot be written now, and rows of accounts that can send nothing now.

`Postponed` decides when a failed write is repeated. A row that the database refuses is logged by itself. One that stays
locked is reported as the problem `not_written`, like a refused one.

`HeldAccounts` writes into each row of a paused account what it waits for, and logs it once for the account.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import structlog
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from orderbridge.clock import Clock
from orderbridge.jobs.account import Account
from orderbridge.jobs.context import Context
from orderbridge.jobs.outcome_writer import about
from orderbridge.model import ActionState, OutboxRow, Outcome
from orderbridge.rules.queue import Entry, Queue
from orderbridge.store import actions
from orderbridge.store.failures import is_broken, is_busy, is_refusal
from orderbridge.store.group_commit import write_batch
from orderbridge.store.rows import ROW, lock_naming_held
from orderbridge.texts import say, text

STUCK_S = 0.5  # between two tries to write a locked row
AGAIN_S = 2.0  # between two searches for new rows of a paused account
MAX_EXPLAINED = 500  # rows that are explained at once (keys in one IN list)
LOCKED_S = 30.0  # a row that is found locked for so long is reported
REFUSED_S = 60.0  # between two tries to write a row that a trigger or a constraint refuses

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Postponed:
    """Rows that could not be written.

    `refused`: those that a trigger or a constraint refuses, or that need an object which is missing.
    """

    queue: Queue
    clock: Clock
    refused: set[int] = field(default_factory=set)
    _locked: dict[int, tuple[float, float]] = field(default_factory=dict)  # monotonic: first and last found locked

    def put_aside(self, failed: Sequence[tuple[OutboxRow, Exception | None]]) -> None:
        """Postpone rows of the queue that could not be written. Error None: another session has locked them."""
        waits = self.put_off({row.id: error for row, error in failed}, {row.id: row for row, _ in failed})
        for row_id, wait_s in waits.items():
            if row_id in self.queue:
                self.postpone(row_id, wait_s)

    def postpone(self, row_id: int, wait_s: float = STUCK_S) -> None:
        """Postpone a row of the queue."""
        self.queue.put_aside(row_id, self.clock.monotonic() + wait_s)

    def stuck(self) -> set[int]:
        """The rows that the database refuses, or that another session has locked for LOCKED_S."""
        border = self.clock.monotonic() - LOCKED_S
        times = self._locked.items()
        return self.refused | {one for one, (first, last) in times if first <= border < last and one in self.queue}

    def put_off(self, failed: Mapping[int, Exception | None], rows: Mapping[int, OutboxRow]) -> dict[int, float]:
        """Log failed writes, and return in how many seconds each is repeated. Error None: the row is locked.

        `rows`: the known ones, for the log.
        """
        errors = {row_id: error for row_id, error in failed.items() if isinstance(error, DBAPIError)}
        refused = {row_id for row_id, error in errors.items() if is_refusal(error) or is_broken(error)}
        for row_id in sorted(refused - self.refused):
            facts = about(rows[row_id]) if row_id in rows else {}
            name, words = type(errors[row_id].orig).__name__, say("log.actions_trigger")
            _log.error("action.database_refused", id=row_id, error=name, remedy=words, **facts)
        self.refused = refused | (self.refused - failed.keys())
        now = self.clock.monotonic()
        for row_id, error in failed.items():
            if error is None or (row_id in errors and is_busy(errors[row_id])):
                first, last = self._locked.get(row_id, (now, now))
                self._locked[row_id] = first if now < last + LOCKED_S else now, now
        return {row_id: REFUSED_S if row_id in refused else STUCK_S for row_id in failed}

    def forget(self, row_id: int) -> None:
        """Forget a row that was written or is gone."""
        self.refused.discard(row_id)
        self._locked.pop(row_id, None)


@dataclass(slots=True)
class HeldAccounts:
    """The paused accounts with rows."""

    context: Context
    queue: Queue
    accounts: Mapping[str, Account]
    postponed: Postponed
    _paused: dict[str, float] = field(default_factory=dict)  # and when to search each for rows to explain

    async def explain(self) -> None:
        """Write into rows of paused accounts, tried or not, what they wait for."""
        for name in [name for name in self._paused if not self.queue.size(name)]:
            self._end(name)
        now = self.context.clock.monotonic()
        for name, account in self._with_rows():
            if account.paused() <= 0:
                continue
            code = account.session.pause_code()
            self._begin(name, code)
            if self._paused[name] > now:
                continue
            waiting = [entry for entry in self.queue.accounts.rows(name) if entry.row.state == ActionState.PENDING]
            entries = [entry for entry in waiting if entry.row.waits_for is None][:MAX_EXPLAINED]
            self._paused[name] = now if len(entries) == MAX_EXPLAINED else now + AGAIN_S
            written, failed = await write_batch(self.context.database, partial(self._write, code), entries)
            self.postponed.put_aside([(entry.row, error) for entry, error in failed])
            for entry in written:
                entry.row = replace(entry.row, waits_for=code)
                self.postponed.forget(entry.row.id)

    def _write(self, code: str, connection: Connection, entries: Sequence[Entry]) -> Sequence[Entry]:
        held = lock_naming_held(connection, ROW, [entry.row.id for entry in entries])
        free = [entry for entry in entries if entry.row.id not in held]
        words = text(code, self.context.settings.language, state=ActionState.PENDING)
        actions.explain(connection, [entry.row.id for entry in free], code, words)
        return free

    def _with_rows(self) -> list[tuple[str, Account]]:
        """The accounts at work that have rows in the queue."""
        return [(name, self.accounts[name]) for name in self.queue.accounts.names() if name in self.accounts]

    def record_outcome(self, account: str, outcome: Outcome) -> None:
        """Note the outcome of a request of this account."""
        if outcome == Outcome.NOT_SENT and account in self.accounts:
            self._begin(account, self.accounts[account].session.pause_code())
        elif outcome != Outcome.UNAUTHORIZED:
            self._end(account)

    def retry_in(self) -> float | None:
        """Seconds until the first paused account with rows is tried again."""
        waits = (account.paused() for _, account in self._with_rows())
        return min((wait for wait in waits if wait > 0), default=None)

    def _begin(self, name: str, code: str) -> None:
        if name not in self._paused:
            self._paused[name] = 0.0
            _log.warning("account.rows_wait", account=name, rows=self.queue.size(name), code=code)

    def _end(self, name: str) -> None:
        if self._paused.pop(name, None) is not None:
            _log.info("account.rows_go", account=name, rows=self.queue.size(name))
