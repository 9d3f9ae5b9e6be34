"""Polls the orders of each account, never inside the cooldown (promise 3).

One `tick` makes one poll. Promise 3 depends on the order of its steps:

    wait      return the remaining seconds while the cooldown runs or the account is paused
    login     if there is no token; a failed login does not use up the slot
    place     wait for a place among all polls (`Polls.places`), then for the rate limit (net.http). This comes before
              the note, since a noted request must leave at once
    note      commit the time before which no other poll may leave: the end of this one and its cooldown. After a crash
              the next start finds it (`Polls.reserve`)
    request   once, whatever the answer: a repetition would fall inside the cooldown
    cooldown  starts with the answer and runs by the monotonic clock, which cannot be set (rules.cooldown, which also
              knows the accounts that are polled in turn). It is committed at once if storing the answer takes time
    intake    store and acknowledge the delivered orders (jobs.intake)
    success   is noted last, because health and the end by silence rely on it: all orders must be on disk by then

A failed poll uses up its slot, unless its request certainly never left (rules.poll_ends). A poll that ends by a bug
uses it up, too: without an end of its cooldown, the accounts polled in turn with this one would wait for ever.

The states of accounts are written by group commit, with one COMMIT for all polls that are due together. With many
accounts, a note waits briefly for others before a request (BEFORE_S) and after an answer (AFTER_S).
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

from orderbridge.errors import MarketplaceError, Message, NotSent, Unauthorized
from orderbridge.jobs.account import Account
from orderbridge.jobs.acknowledge import Polled
from orderbridge.jobs.context import Context
from orderbridge.jobs.intake import Intake
from orderbridge.jobs.journal_writer import Journal
from orderbridge.jobs.reconciler import Unresolved, read_unresolved
from orderbridge.model import AccountState, Document, Outcome
from orderbridge.observe.metrics import COUNTED, PART
from orderbridge.rules.cooldown import MARGIN_S, Ended, names_of, together_s
from orderbridge.rules.poll_ends import ListRequest, arrived_in_part, failure_of, listened, longest_listening
from orderbridge.store import accounts
from orderbridge.store.accounts import Success
from orderbridge.store.group_commit import GroupCommit, write_group
from orderbridge.texts import line_remedy, say, sentence

# Polls in flight at a time; with many accounts a share of them, so that a round takes at most ROUND_TIMEOUTS
# timeouts. More would only open more TLS connections and delay all others.
MAX_POLLS = 64
ROUND_TIMEOUTS = 8
READ_S = 0.01  # with many accounts: unresolved rows are read once for all answers of this interval
BEFORE_S = 0.02  # with many accounts: a reservation waits this long for others
AFTER_S = 0.4  # with many accounts: a result waits this long for others
LATE_S = 1.0  # a reservation whose commit takes longer is repeated with a later time
LOGGED = ("delivered", "new", "changed", "acknowledged", "dropped")

_log = structlog.get_logger(__name__)


class _NotAllDue(Exception):
    """Some of several reservations are not due yet, so each is tried alone."""


@dataclass(slots=True, eq=False)
class _Reservation:
    """The note of a poll that is about to leave. `made`: the monotonic time of its clock reading."""

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
        """`configured`: the current names of all accounts.

        `not_written`: counts outbox rows that the database refuses or that another session keeps locked.
        """
        market = context.settings.marketplace
        self.context, self.cooldowns = context, context.kept.cooldowns
        self.configured, self.not_written, self.journal = configured, not_written, journal
        self.places = asyncio.Semaphore(MAX_POLLS)  # in flight, for all accounts; first come, first served
        self.is_closed = False
        self._most = MAX_POLLS
        self._are_many = False
        self._cooldown_s = market.cooldown_seconds
        longest_s = market.timeout_seconds + market.cooldown_seconds + MARGIN_S  # of a poll and its cooldown
        self._longest = timedelta(seconds=longest_s)
        self._database, self._clock = context.database, context.clock
        self._reading: asyncio.Task[Unresolved] | None = None
        write = partial(write_group, context.database, self._write)
        self._group: GroupCommit[_Note, datetime | None] = GroupCommit(write)
        self.add_places(len(configured))

    def add_places(self, count: int) -> None:
        """Raise the number of places for `count` accounts."""
        most = max(self._most, count // ROUND_TIMEOUTS)
        for _ in range(most - self._most):
            self.places.release()
        self._most = most
        self._are_many |= together_s(count, self._cooldown_s) > 0

    def close(self) -> None:
        """Let no further poll leave. Polls that wait for a place are woken, see `is_closed` and return."""
        self.is_closed = True
        self.places.release()

    async def unresolved(self) -> Unresolved:
        """The unresolved rows. One read serves all callers that ask before it begins."""
        if self._reading is None:
            self._reading = asyncio.create_task(self._read())
        return await asyncio.shield(self._reading)

    async def _read(self) -> Unresolved:
        await asyncio.sleep(READ_S if self._are_many else 0.0)
        self._reading = None
        return await self._database.read(read_unresolved)

    # ---- the accounts' states ----------------------------------------------------------------------------------------

    async def reserve(self, who: str) -> datetime | None:
        """Commit that a poll is about to leave. Returns None if it may leave, else the time to wait for."""
        reservation, late_s = _Reservation(who), LATE_S
        again = await self._add(reservation, BEFORE_S)
        while again is None and (took_s := self._clock.monotonic() - reservation.made) > late_s:
            # The commit was slow, so the reserved time may end too early. Each try allows for the duration of the last.
            late_s = took_s + LATE_S
            reservation.made = self._clock.monotonic()
            until = self._clock.now() + self._longest + timedelta(seconds=late_s)
            await self._add(partial(_note_poll, who, {"next_poll_utc": until}), 0.0)
        return again

    async def succeeded(self, poll: Success) -> None:
        """Write a successful poll."""
        await self._add(poll, AFTER_S)

    async def failed(self, who: str, **columns: Any) -> None:
        """Write a failed poll: state, last_error, next_poll_utc."""
        await self._add(partial(_note_poll, who, columns), AFTER_S)

    async def note_at_once(self, work: Callable[[Connection], None]) -> None:
        """Write the end of the cooldown before the answer is stored; this may fail."""
        try:
            await self._database.run(work, urgent=True)
        except DBAPIError as error:  # the longer reservation stays in force
            _log.debug("poll.note_failed", error=type(error.orig).__name__)

    async def _add(self, note: _Note, within_s: float) -> datetime | None:
        return await self._group.add(note, within_s=within_s if self._are_many else 0.0)

    def _write(self, connection: Connection, notes: Sequence[_Note]) -> list[tuple[_Note, datetime | None]]:
        """Write a group of notes. A reservation that is refused gets the time to wait for."""
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


class Poller:
    """The polls of one account, one after another."""

    def __init__(self, account: Account, polls: Polls) -> None:
        context = polls.context
        self._account, self._who, self._log = account, account.fingerprint, _log.bind(account=account.name)
        self._polls, self._cooldowns = polls, polls.cooldowns
        self.intake = Intake(account, context, polls.configured, unresolved=polls.unresolved, journal=polls.journal)
        self._clock, self._lanes, self._metrics = context.clock, context.lanes, context.metrics
        self._timeout_s = context.settings.marketplace.timeout_seconds
        self._statuses = context.statuses
        self._listened_until: float | None = None  # monotonic: the listening seconds are counted up to here
        self._list_request = ListRequest()
        self._failed_parts: set[int] = set()  # statuses whose lists failed, too; each was logged once
        self._state = AccountState.NEW
        self._was_refused = False  # by a 401, since the last good poll

    async def tick(self) -> Polled:
        """Make one poll if it may leave now. Never raises for an error of the marketplace or the network."""
        counts = Polled(again_in=await self._wait())
        if counts.again_in > 0:
            return counts
        leaves, began = self._clock.monotonic(), self._lanes.begin_poll()
        self._account.poll_in_flight = True
        good: Success | None = None
        try:
            good = await self._poll(began, counts)
        finally:
            self._account.poll_in_flight = False
            self._lanes.end_poll(began)
            if self._cooldowns.is_in_flight(self._who):  # after a bug: accounts polled in turn must not wait for ever
                await self._cool_down(Ended.FAILED)
            counted = {name: getattr(counts, name) for name in COUNTED}
            self._metrics.polled(self._account.name, counts.result, self._clock.monotonic() - leaves, counted)
        if good is not None:  # noted last: all orders are on disk
            if self._state not in {AccountState.NEW, AccountState.OK}:
                self._log.info("poll.recovered", after=self._state)
            self._state, self._was_refused = AccountState.OK, False
            await self._polls.succeeded(good)
            counts.again_in = max(self._slot(), 0.0)
        return counts

    async def _poll(self, began: int, counts: Polled) -> Success | None:
        asked = self._list_request.status_id
        try:
            documents = await self._request(asked)
        except MarketplaceError as error:
            counts.result = error.outcome
            counts.again_in = await self._failed(error, noted=True)
            return None
        answered = self._clock.monotonic()
        counts.delivered = len(documents)
        next_poll = await self._cool_down(Ended.OK)
        if documents or asked is not None:  # storing them takes time
            await self._polls.note_at_once(lambda tx: accounts.note_poll(tx, self._who, next_poll_utc=next_poll))
        await self.intake.take(documents, began, answered, counts, asked=asked)
        before, self._list_request = self._list_request, self._list_request.answered()
        good: Success | None = None
        if asked is None:
            counts.ok, counts.result = True, Outcome.OK
            self._metrics.polled_well(self._account.name, self._clock.now(), answered)
            seconds, not_written = self._listened(answered), self._polls.not_written() + counts.held
            good = Success(self._who, self._clock.now(), next_poll, seconds, counts.not_stored, not_written)
            self._account.full_list = counts.stuck if counts.is_full else 0
            if counts.is_full:
                self._list_request = before.full(self._statuses)
        else:
            counts.result = PART
            if before.rounds:
                text = f"list_too_large: {say('log.by_status')}"
                await self._note_state(AccountState.FAILING, text, "list_too_large")
        counts.again_in = max(self._slot(), 0.0)
        log = self._log.info if counts.delivered else self._log.debug
        took = round((self._clock.monotonic() - answered) * 1000)
        log("orders.polled", **{name: getattr(counts, name) for name in LOGGED}, ms=took)
        return good

    async def _request(self, asked: int | None) -> tuple[Document, ...]:
        try:
            return await self._account.client.current_orders(asked)
        finally:
            self._polls.places.release()

    async def _wait(self) -> float:
        """Log in, take a place and reserve the poll. Returns the seconds to wait; 0: it may leave now."""
        wait = max(self._slot(), self._account.paused(polls=True))
        if wait > 0:
            if self._account.session.is_refused(polls=True) and self._state != AccountState.LOGIN_REFUSED:
                await self._note_state(AccountState.LOGIN_REFUSED, "login_refused", "login_refused")
            return wait
        self._account.drop_expired_token()
        try:
            await self._account.session.token_for_poll()
        except MarketplaceError as error:
            return await self._failed(error if isinstance(error, NotSent) else _no_login(error), noted=False)
        await self._polls.places.acquire()  # released with the answer
        wait = 1.0
        try:
            wait = await self._reserve()
        finally:
            if wait > 0:
                self._polls.places.release()
        return wait

    async def _reserve(self) -> float:
        """Wait for the rate limit, then commit the reservation. Returns the seconds to wait; 0: it may leave now."""
        if not self._polls.is_closed:
            await self._account.wire.wait_for_poll()
        if self._polls.is_closed:
            return MARGIN_S
        if (wait := self._slot()) > 0:  # another account of its group was polled meanwhile
            return wait
        self._cooldowns.sent(self._who, self._clock.monotonic())
        noted: datetime | None = self._clock.now()
        try:
            noted = await self._polls.reserve(self._who)
        finally:
            if noted is not None:
                self._cooldowns.unsent(self._who)
        return 0.0 if noted is None else max((noted - self._clock.now()).total_seconds(), MARGIN_S)

    def _slot(self) -> float:
        """Seconds until the cooldown of the account and of its group is over."""
        return self._cooldowns.wait(self._who, self._clock.monotonic())

    async def _failed(self, error: MarketplaceError, *, noted: bool) -> float:
        """Write a failed poll. Its slot is used up, unless the request never left. `noted`: it was reserved."""
        self._ask_otherwise(error)
        is_refused = isinstance(error, Unauthorized)
        failure = failure_of(error, is_token_over=is_refused and not self._was_refused)
        self._was_refused |= is_refused
        if failure.ended is None:
            self._cooldowns.unsent(self._who)
            next_poll = self._clock.now() if noted else None
        else:
            next_poll = await self._cool_down(failure.ended)
        if failure.is_news:
            text = sentence(failure.text)
            await self._note_state(failure.state, text, failure.logged, next_poll, line_remedy(error))
        elif next_poll is not None and failure.ended is None:
            await self._polls.failed(self._who, next_poll_utc=next_poll)
        elif next_poll is not None:
            await self._polls.note_at_once(lambda tx: accounts.note_poll(tx, self._who, next_poll_utc=next_poll))
        return max(self._account.paused(polls=True), 1.0) if failure.ended is None else max(self._slot(), 0.0)

    def _ask_otherwise(self, error: MarketplaceError) -> None:
        """Request a list that is too large or too slow by status from now on.

        This and each failed part is logged once.
        """
        asked = self._list_request.status_id
        before, self._list_request = self._list_request, self._list_request.failed(error, self._statuses)
        if asked is None and self._list_request != before and self._list_request.rounds == 1:
            self._failed_parts.clear()
            self._log.warning("poll.list_too_large", error=error.code, remedy=say("poll.in_parts"))
        elif asked is not None and arrived_in_part(error) and asked not in self._failed_parts:
            self._failed_parts.add(asked)
            self._log.error("poll.part_too_large", status_id=asked, error=error.code, remedy=say("poll.part_missing"))

    async def _cool_down(self, how: Ended) -> datetime:
        """Start the cooldown. Returns its end by the wall clock, to be stored for the next start."""
        next_poll = self._clock.now() + timedelta(seconds=self._cooldowns.cooldown_s)
        if self._cooldowns.ended(self._who, how, self._clock.monotonic()):
            members = self._cooldowns.in_turn(self._who)
            self._log.error("cooldown.shared", in_turn=names_of(members), remedy=say("poll.cooldown_scope"))
            who, names = [member.fingerprint for member in members], names_of(members)
            await self._polls.note_at_once(lambda tx: accounts.note_group(tx, who, names))
        return next_poll

    def _listened(self, answered: float) -> int:
        """Whole seconds since the last good poll of this run that count as listening."""
        in_turn, cooldown_s = len(self._cooldowns.in_turn(self._who)), self._cooldowns.cooldown_s
        longest = longest_listening(in_turn, cooldown_s=cooldown_s, timeout_s=self._timeout_s)
        self._listened_until, seconds = listened(self._listened_until, answered, longest)
        return seconds

    async def _note_state(
        self, state: AccountState, text: str, logged: str | Message, next_poll: datetime | None = None, remedy: str = ""
    ) -> None:
        """Write the account's state and, unless None, the time of its next poll."""
        if state != self._state:
            self._log.warning("poll.failed", state=state, error=logged, **({"remedy": remedy} if remedy else {}))
        self._state = state
        values: dict[str, Any] = {} if next_poll is None else {"next_poll_utc": next_poll}
        await self._polls.failed(self._who, state=state, last_error=text, **values)


def _no_login(error: MarketplaceError) -> NotSent:
    """The error for a failed login, without the answer's text, which must not be logged."""
    detail = error.code if error.http_status is None else f"{error.code}, HTTP {error.http_status}"
    return NotSent("login_failed", detail, http_status=error.http_status, reason=error.reason)
