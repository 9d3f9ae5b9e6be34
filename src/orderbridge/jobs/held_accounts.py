"""Rows that wait because nothing of their account can leave: each says so itself, and the log says it once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import structlog
from sqlalchemy import Connection

from orderbridge.clock import Clock
from orderbridge.jobs.account import Account
from orderbridge.jobs.postponed import Postponed
from orderbridge.jobs.verdicts import Verdicts
from orderbridge.model import ActionState, OutboxRow, Outcome
from orderbridge.rules.queue import Queue
from orderbridge.store import locks
from orderbridge.store.database import Database
from orderbridge.store.group_commit import write_batch

LOOK_S = 2.0  # rows that came while an account is paused are looked for this often
MOST = 500  # rows that are told at once: keys in one IN list

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Pause:
    """One account whose rows wait. `told`: the rows that say so; `silent`: the ones that do not yet."""

    next_look: float = 0.0
    told: set[int] = field(default_factory=set)
    silent: list[OutboxRow] = field(default_factory=list)


class HeldAccounts:
    """Which accounts are paused, as far as their rows are concerned."""

    def __init__(
        self,
        queue: Queue,
        accounts: Mapping[str, Account],
        database: Database,
        clock: Clock,
        verdicts: Verdicts,
        postponed: Postponed,
    ) -> None:
        self._queue = queue
        self._accounts = accounts
        self._database = database
        self._clock = clock
        self._verdicts = verdicts
        self._postponed = postponed
        self._paused: dict[str, _Pause] = {}

    async def explain(self) -> None:
        """Rows that an account's line or login holds up say so, also those that were not tried: somebody waits."""
        for code, rows in self._silent_rows():
            told, failed = await write_batch(self._database, partial(self._say, code), rows)
            self._postponed.put_aside(failed)
            for row in told:
                self._postponed.forget(row.id)
            if not told:
                self._forget(rows)

    def _say(self, code: str, connection: Connection, rows: Sequence[OutboxRow]) -> Sequence[OutboxRow]:
        held = locks.lock_rows_naming_held(connection, [row.id for row in rows])
        self._verdicts.explain(connection, [row for row in rows if row.id not in held], code)
        return rows

    def _silent_rows(self) -> list[tuple[str, Sequence[OutboxRow]]]:
        """Some rows that wait for their account and do not say so yet, with the code that they should say."""
        found: list[tuple[str, Sequence[OutboxRow]]] = []
        for name in [name for name in self._queue.accounts.accounts() if name in self._accounts]:
            account = self._accounts[name]
            if account.paused() <= 0:
                continue
            pause = self._begin(name, account.pause_code())
            if not pause.silent and pause.next_look <= self._clock.monotonic():
                waiting = [row for row in self._queue.accounts.rows(name) if row.state == ActionState.PENDING]
                pause.silent = [row for row in waiting if row.id not in pause.told]
                pause.next_look = self._clock.monotonic() + LOOK_S
            rows, pause.silent = pause.silent[:MOST], pause.silent[MOST:]
            pause.told.update(row.id for row in rows)
            if rows:
                found.append((account.pause_code(), rows))
        for name in [name for name in self._paused if not self._queue.size(name)]:
            self._end(name)
        return found

    def _forget(self, rows: Sequence[OutboxRow]) -> None:
        """They could not be told."""
        for pause in self._paused.values():
            pause.told.difference_update(row.id for row in rows)

    def record_outcome(self, account: str, outcome: Outcome) -> None:
        """A request of the account ended so."""
        if outcome == Outcome.NOT_SENT and account in self._accounts:
            self._begin(account, self._accounts[account].pause_code())
        elif outcome != Outcome.UNAUTHORIZED:
            self._end(account)

    def retry_in(self) -> float | None:
        """Seconds until the first paused account with rows is tried again."""
        waits = (self._accounts[name].paused() for name in self._queue.accounts.accounts() if name in self._accounts)
        return min((wait for wait in waits if wait > 0), default=None)

    def _begin(self, name: str, code: str) -> _Pause:
        if name not in self._paused:
            self._paused[name] = _Pause()
            _log.warning("account.rows_wait", account=name, rows=self._queue.size(name), code=code)
        return self._paused[name]

    def _end(self, name: str) -> None:
        if self._paused.pop(name, None) is not None:
            _log.info("account.rows_go", account=name, rows=self._queue.size(name))
