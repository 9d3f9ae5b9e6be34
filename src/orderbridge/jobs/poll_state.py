"""What the polls of all accounts share: their places on the wire, a reading for all, and the notes of how each stands.

A poll state is written by group commit, one COMMIT for all accounts whose polls are due together:

before a request   no other poll may leave until this one is answered and cooled down. `reserve` returns when that is on
                   disk, and not before: whatever stops this program then, the next one finds it.
after an answer    how it went, and from when on the next poll may leave.

With many accounts it is worth a wait to write more of them together: before a request as long as a few of them take to
be called, after an answer until the next group goes anyway. With few accounts nothing waits.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import structlog
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from orderbridge.jobs.context import Context
from orderbridge.jobs.journal_writer import Journal
from orderbridge.jobs.reconciler import Unresolved, read_unresolved
from orderbridge.rules.cooldown import MARGIN_S, together_s
from orderbridge.store import accounts
from orderbridge.store.accounts import Success
from orderbridge.store.group_commit import GroupCommit, write_group

# Requests for orders that may be under way at a time; of many accounts a share, so that no round of all of them takes
# longer than so many timeouts. Beyond it each would only open one more connection of TLS, and make all the others late.
MOST_POLLS = 64
ROUND_TIMEOUTS = 8
READ_S = 0.01  # many accounts: a reading for all of them waits so long for the answers of the same moment
BEFORE_S = 0.02  # many accounts: a reservation waits so long for others
AFTER_S = 0.4  # many accounts: a result does
LATE_S = 1.0  # a reservation that takes longer to be on disk is made anew

_log = structlog.get_logger(__name__)


class _NotAllDue(Exception):
    """Of several reservations some polls may not leave yet: each is asked alone."""


@dataclass(slots=True, eq=False)
class _Reservation:
    """`made`: when its time was read, by the monotonic clock."""

    who: str
    made: float = 0.0


_Note = _Reservation | Success | Callable[[Connection], None]


class Polls:
    """What the polls of one daemon's accounts share."""

    def __init__(
        self,
        context: Context,
        configured: Collection[str],
        *,
        not_written: Callable[[], int],
        journal: Journal | None = None,
    ) -> None:
        """`configured`: the names of all accounts, as of now. `not_written`: outbox rows that the database refuses."""
        market = context.settings.marketplace
        self.context, self.cooldowns = context, context.kept.cooldowns
        self.configured, self.not_written, self.journal = configured, not_written, journal
        self.places = asyncio.Semaphore(MOST_POLLS)  # on the wire, for all accounts; who waits for one stands in line
        self.is_closed = False
        self._most = MOST_POLLS
        self._are_many = False
        self._cooldown_s = market.cooldown_seconds
        self._longest = timedelta(seconds=market.timeout_seconds + market.cooldown_seconds + MARGIN_S)  # of a poll
        self._database, self._clock = context.database, context.clock
        self._reading: asyncio.Task[Unresolved] | None = None
        self._group: GroupCommit[_Note, datetime | None] = GroupCommit(
            partial(write_group, context.database, self._write)
        )
        self.grow(len(configured))

    def grow(self, accounts: int) -> None:
        """So many are at work: the requests under way are at least their share."""
        most = max(self._most, accounts // ROUND_TIMEOUTS)
        for _ in range(most - self._most):
            self.places.release()
        self._most = most
        self._are_many |= together_s(accounts, self._cooldown_s) > 0

    def close(self) -> None:
        """What is under way goes on to its end, and nothing else leaves: each that waits gets a place, and sees that."""
        self.is_closed = True
        self.places.release()

    async def unresolved(self) -> Unresolved:
        """The unresolved rows, read once for all who ask before a reading begins; who asks later gets the next one."""
        if self._reading is None:
            self._reading = asyncio.create_task(self._read())
        return await asyncio.shield(self._reading)

    async def _read(self) -> Unresolved:
        await asyncio.sleep(READ_S if self._are_many else 0.0)
        self._reading = None
        return await self._database.read(read_unresolved)

    # ---- how each account stands -------------------------------------------------------------------------------------

    async def reserve(self, who: str) -> datetime | None:
        """Reserve a poll before its request leaves. None: it may leave now; else the time to wait for."""
        reservation, late_s = _Reservation(who), LATE_S
        again = await self._add(reservation, BEFORE_S)
        while again is None and (took_s := self._clock.monotonic() - reservation.made) > late_s:
            # Until one takes no longer than it leaves room for: each leaves room for as much as the one before it took.
            late_s = took_s + LATE_S
            reservation.made = self._clock.monotonic()
            until = self._clock.now() + self._longest + timedelta(seconds=late_s)
            await self._add(partial(_note_poll, who, {"next_poll_utc": until}), 0.0)
        return again

    async def succeeded(self, poll: Success) -> None:
        """Write a good poll."""
        await self._add(poll, AFTER_S)

    async def failed(self, who: str, **columns: Any) -> None:
        """Write what a failed poll says: state, last_error, next_poll_utc."""
        await self._add(partial(_note_poll, who, columns), AFTER_S)

    async def cooled(self, who: str, next_poll: datetime) -> None:
        """Note at once that the cooldown runs: what was delivered takes its time until the poll is a good one."""
        await self._best_effort(lambda tx: accounts.note_poll(tx, who, next_poll_utc=next_poll))

    async def in_turn(self, fingerprints: Sequence[str], names: str | None) -> None:
        """Note who is polled in turn, for people to see; the log has it, too."""
        await self._best_effort(lambda tx: accounts.note_group(tx, fingerprints, names))

    async def _best_effort(self, work: Callable[[Connection], None]) -> None:
        try:
            await self._database.run(work, urgent=True)
        except DBAPIError as error:  # the note from before the request stands, and is the longer one
            _log.debug("poll.note_failed", error=type(error.orig).__name__)

    async def _add(self, note: _Note, within_s: float) -> datetime | None:
        return await self._group.add(note, within_s=within_s if self._are_many else 0.0)

    def _write(self, connection: Connection, notes: Sequence[_Note]) -> list[tuple[_Note, datetime | None]]:
        """The group's unit of work. Answers a reservation whose poll may not leave with the time to come again."""
        if good := [note for note in notes if isinstance(note, Success)]:
            accounts.note_successes(connection, good)
        for note in notes:
            if callable(note):
                note(connection)
        again = self._reserve(connection, [note for note in notes if isinstance(note, _Reservation)])
        return [(note, again.get(note.who) if isinstance(note, _Reservation) else None) for note in notes]

    def _reserve(self, connection: Connection, leaving: Sequence[_Reservation]) -> dict[str, datetime | None]:
        if not leaving:
            return {}
        self._database.durability.ask(connection)
        now = self._clock.now()
        until = now + self._longest
        for one in leaving:
            one.made = self._clock.monotonic()
        if len(leaving) > 1:
            if not accounts.reserve_polls(connection, [one.who for one in leaving], now=now, until=until):
                raise _NotAllDue
            return {}
        (one,) = leaving
        return {one.who: accounts.reserve_poll(connection, one.who, now=now, until=until, longest=self._longest)}


def _note_poll(who: str, columns: dict[str, Any], connection: Connection) -> None:
    accounts.note_poll(connection, who, **columns)
