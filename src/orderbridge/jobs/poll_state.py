"""What polls note in the database, in groups: one COMMIT for all accounts whose polls are due together.

before a request   it is noted that no other may leave until it is answered and cooled down. `reserve` returns when that
                   is on disk, and not before: whatever stops this program then, the next one finds the note.
after an answer    how it went, and from when on the next poll may leave.

A group is what was asked for until its transaction begins, so while one is under way the next one gathers. With many
accounts there is more to gather, and it is worth a wait: before a request as long as a few of them take to be called,
after an answer until the next group goes anyway. With few accounts nothing waits.

One account's trouble stays its own: when the group's transaction fails, each note is written alone.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import structlog
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from orderbridge.clock import Clock
from orderbridge.store import accounts
from orderbridge.store.accounts import Success
from orderbridge.store.database import Database
from orderbridge.store.group_commit import concerns_all

BEFORE_S = 0.02  # many accounts: a note before a request waits so long for others
AFTER_S = 0.4  # many accounts: a note after an answer does
LATE_S = 1.0  # a note before a request that takes longer to be on disk is made anew

Failure = dict[str, Any]  # columns of the account

_log = structlog.get_logger(__name__)


class _NotAllDue(Exception):
    """Of a group, some may not leave yet: whose turn it is has to be asked one by one."""


@dataclass(slots=True, eq=False)
class _Note:
    """`what`: None before a request, else how it went. `done`: of one before a request, when to come again, if at all."""

    who: str
    what: Success | Failure | None
    done: asyncio.Future[datetime | None]


class PollState:
    """The notes of all accounts' polls. `longest`: what a poll can take, with the cooldown after it."""

    def __init__(self, database: Database, clock: Clock, *, longest: timedelta, many: bool = False) -> None:
        self._database = database
        self._clock = clock
        self._longest = longest
        self.are_many = many
        self._waiting: list[_Note] = []
        self._made = 0.0  # when the notes before requests were, by the monotonic clock
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None

    async def reserve(self, who: str) -> datetime | None:
        """Note a poll before its request leaves. None: it may leave now; else the time to wait for."""
        return await self._put(who, None, BEFORE_S)

    async def succeeded(self, poll: Success) -> None:
        """Note a good poll."""
        await self._put(poll.fingerprint, poll, AFTER_S)

    async def failed(self, who: str, **columns: Any) -> None:
        """Note what a failed poll says: state, last_error, next_poll_utc."""
        await self._put(who, columns, AFTER_S)

    async def cooled(self, who: str, next_poll: datetime) -> None:
        """Note at once that the cooldown runs: what was delivered takes its time until the poll is a good one."""
        await self._best_effort(lambda tx: accounts.note_poll(tx, who, next_poll_utc=next_poll))

    async def in_turn(self, fingerprints: Sequence[str], names: str | None) -> None:
        """Note who is polled in turn, for people to see; the log has told them."""
        await self._best_effort(lambda tx: accounts.note_group(tx, fingerprints, names))

    async def _best_effort(self, work: Callable[[Connection], None]) -> None:
        try:
            await self._database.run(work, urgent=True)
        except DBAPIError as error:  # the note from before the request stands, and is the longer one
            _log.debug("poll.note_failed", error=type(error.orig).__name__)

    # ---- groups ------------------------------------------------------------------------------------------------------

    async def _put(self, who: str, what: Success | Failure | None, within_s: float) -> datetime | None:
        loop = asyncio.get_running_loop()
        note = _Note(who, what, loop.create_future())
        self._waiting.append(note)
        due = loop.time() + (within_s if self.are_many else 0.0)
        if self._timer is None or self._timer.when() > due:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = loop.call_at(due, self._due)
        return await note.done

    def _due(self) -> None:
        self._timer = None
        if self._writing is None:
            self._writing = asyncio.ensure_future(self._write_group())

    async def _write_group(self) -> None:
        group, self._waiting = self._waiting, []
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        try:
            await self._write(group)
        finally:
            self._writing = None
            if self._waiting and self._timer is None:
                self._due()

    async def _write(self, group: Sequence[_Note]) -> None:
        try:
            try:
                found = await self._database.run(partial(self._note, group))
            except _NotAllDue:
                found = await self._database.run(partial(self._note, group, singly=True))
            await self._make_anew([note.who for note in group if note.what is None and found.get(note.who) is None])
        except Exception as error:  # noqa: BLE001 - it belongs to who asked
            if len(group) > 1 and not concerns_all(self._database, error):
                for note in group:
                    await self._write([note])
                return
            for note in group:
                if not note.done.done():
                    note.done.set_exception(error)
        else:
            for note in group:
                if not note.done.done():  # else who asked has gone
                    note.done.set_result(found.get(note.who) if note.what is None else None)

    async def _make_anew(self, leaving: Sequence[str]) -> None:
        """Until one takes no longer than it leaves room for: each leaves room for as much as the one before it took."""
        late_s = LATE_S
        while leaving and (took_s := self._clock.monotonic() - self._made) > late_s:
            late_s = took_s + LATE_S
            await self._database.run(partial(self._note_anew, leaving, timedelta(seconds=late_s)))

    def _note_anew(self, leaving: Sequence[str], late: timedelta, connection: Connection) -> None:
        self._made = self._clock.monotonic()
        until = self._clock.now() + self._longest + late
        for who in leaving:
            accounts.note_poll(connection, who, next_poll_utc=until)

    def _note(
        self, group: Sequence[_Note], connection: Connection, *, singly: bool = False
    ) -> dict[str, datetime | None]:
        """The group's unit of work. Returns for accounts whose poll may not leave when to come again."""
        leaving = [note.who for note in group if note.what is None]
        if good := [note.what for note in group if isinstance(note.what, Success)]:
            accounts.note_successes(connection, good)
        for note in group:
            if isinstance(note.what, dict):
                accounts.note_poll(connection, note.who, **note.what)
        if not leaving:
            return {}
        self._database.durability.ask(connection)
        now, self._made = self._clock.now(), self._clock.monotonic()
        until = now + self._longest
        if len(leaving) > 1 and not singly:
            if not accounts.reserve_polls(connection, leaving, now=now, until=until):
                raise _NotAllDue
            return {}
        reserve = partial(accounts.reserve_poll, connection, now=now, until=until, longest=self._longest)
        return {who: reserve(who) for who in leaving}
