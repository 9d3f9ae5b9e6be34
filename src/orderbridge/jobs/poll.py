"""The poll: when it may leave, what its answer or its failure means for the next one (promise 3).

One get-current after the other, for one account. A tick goes through these steps, and their order is what keeps the
promise:

    wait      nothing happens while the cooldown runs or the account is paused; the tick says for how long
    login     at the slot, before the poll: one that fails uses none up. After a 401 the next slot's
    place     on the wire, among all polls (`Polls.places`), then its turn at the pace (net.http). Who waits here is not
              noted yet: what is noted leaves at once
    note      that no other poll may leave before this one is answered and has cooled down. On disk before the request
              leaves: a program that is killed in between finds it at its next start (`Polls.reserve`)
    request   once, whatever its answer: a repetition would come inside the cooldown
    cooldown  from the answer on, within one run by the monotonic clock, which cannot be set (rules.cooldown;
              it knows the accounts that are polled in turn, too). It is noted at once where taking in takes its time
    take in   jobs.intake stores what was delivered and acknowledges it
    success   is noted last: health and the silence of orders go by it, so all that was delivered is on disk by then

A failed poll has used up its slot, unless its request certainly never left (rules.poll_ends). An error of ours uses it
up, too: without an end of its cooldown the accounts that are polled in turn with this one would wait for ever.

How each account stands is written by group commit, one COMMIT for all accounts whose polls are due together. With many
accounts it is worth a wait to write more of them together: before a request as long as a few of them take to be called,
after an answer until the next group goes anyway. With few accounts nothing waits.
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
from orderbridge.rules.poll_ends import ListRequest, came_in_part, failure_of, listened, longest_listening
from orderbridge.store import accounts
from orderbridge.store.accounts import Success
from orderbridge.store.group_commit import GroupCommit, write_group
from orderbridge.texts import line_remedy, say, sentence

# Requests for orders that may be under way at a time; of many accounts a share, so that no round of all of them takes
# longer than so many timeouts. Beyond it each would only open one more connection of TLS, and make all the others late.
MOST_POLLS = 64
ROUND_TIMEOUTS = 8
READ_S = 0.01  # many accounts: a reading for all of them waits so long for the answers of the same moment
BEFORE_S = 0.02  # many accounts: a reservation waits so long for others
AFTER_S = 0.4  # many accounts: a result does
LATE_S = 1.0  # a reservation that takes longer to be on disk is made anew
LOGGED = ("delivered", "new", "changed", "acknowledged", "dropped")

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

    def grow(self, count: int) -> None:
        """So many are at work: the requests under way are at least their share."""
        most = max(self._most, count // ROUND_TIMEOUTS)
        for _ in range(most - self._most):
            self.places.release()
        self._most = most
        self._are_many |= together_s(count, self._cooldown_s) > 0

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

    async def note_at_once(self, work: Callable[[Connection], None]) -> None:
        """Write a note that may fail: what was delivered takes its time until the poll is a good one."""
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
        self._listened_until: float | None = None  # by the monotonic clock: since then nothing was counted
        self._list_request = ListRequest()
        self._not_in: set[int] = set()  # statuses that did not come in either, and were logged
        self._state = AccountState.NEW
        self._was_refused = False  # since the last good poll, by a 401

    async def tick(self) -> Polled:
        """One poll, if it may leave now. Never raises for what the service or the line does."""
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
            if self._cooldowns.is_on_the_wire(self._who):  # an error of ours: the others of its group must not wait
                await self._cool_down(Ended.FAILED)
            counted = {name: getattr(counts, name) for name in COUNTED}
            self._metrics.polled(self._account.name, counts.result, self._clock.monotonic() - leaves, counted)
        if good is not None:  # only now: what was delivered is on disk
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
        if documents or asked is not None:  # taking them in takes its time
            await self._polls.note_at_once(lambda tx: accounts.note_poll(tx, self._who, next_poll_utc=next_poll))
        await self.intake.take_in(documents, began, answered, counts, asked=asked)
        before, self._list_request = self._list_request, self._list_request.answered()
        good: Success | None = None
        if asked is None:
            counts.ok, counts.result = True, Outcome.OK
            self._metrics.polled_well(self._account.name, self._clock.now(), answered)
            seconds, not_written = self._listened(answered), self._polls.not_written()
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
        """Seconds to wait; 0: the poll has a place, is noted and may leave. A login comes first: it uses up no slot."""
        wait = max(self._slot(), self._account.paused(polls=True))
        if wait > 0:
            if self._account.session.is_refused(polls=True) and self._state != AccountState.LOGIN_REFUSED:
                await self._note_state(AccountState.LOGIN_REFUSED, "login_refused", "login_refused")
            return wait
        self._account.drop_expired_token()
        try:
            await self._account.client.be_ready()
        except MarketplaceError as error:
            return await self._failed(error if isinstance(error, NotSent) else _no_login(error), noted=False)
        await self._polls.places.acquire()  # given back with the answer
        wait = 1.0
        try:
            wait = await self._reserve()
        finally:
            if wait > 0:
                self._polls.places.release()
        return wait

    async def _reserve(self) -> float:
        """Seconds to wait; 0: the poll is noted and may leave. Its turn comes first: what is noted begins when it leaves."""
        if not self._polls.is_closed:
            await self._account.wire.poll_turn()
        if self._polls.is_closed:
            return MARGIN_S
        if (wait := self._slot()) > 0:  # meanwhile it is the turn of another one
            return wait
        self._cooldowns.leaves(self._who, self._clock.monotonic())
        noted: datetime | None = self._clock.now()
        try:
            noted = await self._polls.reserve(self._who)
        finally:
            if noted is not None:
                self._cooldowns.unsent(self._who)
        return 0.0 if noted is None else max((noted - self._clock.now()).total_seconds(), MARGIN_S)

    def _slot(self) -> float:
        """Seconds until the cooldown, its own or that of its group, is over."""
        return self._cooldowns.wait(self._who, self._clock.monotonic())

    async def _failed(self, error: MarketplaceError, *, noted: bool) -> float:
        """A failed poll: its slot is used up, unless the request certainly never left. `noted`: it was in the books."""
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
        """A list that does not come in whole is asked for in parts. Told when that begins, and of each part once."""
        asked = self._list_request.status_id
        before, self._list_request = self._list_request, self._list_request.failed(error, self._statuses)
        if asked is None and self._list_request != before and self._list_request.rounds == 1:
            self._not_in.clear()
            self._log.warning("poll.list_too_large", error=error.code, remedy=say("poll.in_parts"))
        elif asked is not None and came_in_part(error) and asked not in self._not_in:
            self._not_in.add(asked)
            self._log.error("poll.part_too_large", status_id=asked, error=error.code, remedy=say("poll.part_missing"))

    async def _cool_down(self, how: Ended) -> datetime:
        """The cooldown runs from here, by the monotonic clock. Returns the end of it, for the next start's database."""
        next_poll = self._clock.now() + timedelta(seconds=self._cooldowns.cooldown_s)
        if self._cooldowns.ended(self._who, how, self._clock.monotonic()):
            members = self._cooldowns.in_turn(self._who)
            self._log.error("cooldown.shared", in_turn=names_of(members), remedy=say("poll.cooldown_scope"))
            who, names = [member.fingerprint for member in members], names_of(members)
            await self._polls.note_at_once(lambda tx: accounts.note_group(tx, who, names))
        return next_poll

    def _listened(self, answered: float) -> int:
        """Whole seconds of listening up to this good poll, from the one before it in this run."""
        in_turn, cooldown_s = len(self._cooldowns.in_turn(self._who)), self._cooldowns.cooldown_s
        longest = longest_listening(in_turn, cooldown_s=cooldown_s, timeout_s=self._timeout_s)
        self._listened_until, seconds = listened(self._listened_until, answered, longest)
        return seconds

    async def _note_state(
        self, state: AccountState, text: str, logged: str | Message, next_poll: datetime | None = None, remedy: str = ""
    ) -> None:
        """How the account stands. `next_poll`: when the next one may leave; None: that was not noted, and is not."""
        if state != self._state:
            self._log.warning("poll.failed", state=state, error=logged, **({"remedy": remedy} if remedy else {}))
        self._state = state
        values: dict[str, Any] = {} if next_poll is None else {"next_poll_utc": next_poll}
        await self._polls.failed(self._who, state=state, last_error=text, **values)


def _no_login(error: MarketplaceError) -> NotSent:
    """Without the answer's own words, which are not for the log."""
    detail = error.code if error.http_status is None else f"{error.code}, HTTP {error.http_status}"
    return NotSent("login_failed", detail, http_status=error.http_status, reason=error.reason)
