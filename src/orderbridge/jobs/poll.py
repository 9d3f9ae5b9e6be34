"""The poll: when it may leave, what its answer or its failure means for the next one (promise 3).

One get-current, its note in the database before it leaves and again when the answer is in. A restart or a crash finds
the note; within one run the monotonic clock decides, which nobody can set. What was delivered goes to jobs.intake.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import structlog
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from orderbridge.clock import Clock
from orderbridge.errors import LoginRefused, MarketplaceError, NotSent, Unauthorized
from orderbridge.jobs.account import Account
from orderbridge.jobs.intake import Intake, Polled
from orderbridge.jobs.lanes import Lanes
from orderbridge.jobs.verdicts import Verdicts
from orderbridge.store import accounts
from orderbridge.store.database import Database

MARGIN_S = 0.05  # two clocks never run alike

_log = structlog.get_logger(__name__)


class Poller:
    """The polls of one account, one after another."""

    def __init__(
        self,
        account: Account,
        *,
        database: Database,
        lanes: Lanes,
        clock: Clock,
        verdicts: Verdicts,
        configured: Sequence[str],
        cooldown_s: float,
        timeout_s: float,
        needs_payment_id: int | None = None,
        may_acknowledge: bool = True,
    ) -> None:
        self._account = account
        self._database = database
        self._lanes = lanes
        self._clock = clock
        self._intake = Intake(
            account,
            database=database,
            lanes=lanes,
            clock=clock,
            verdicts=verdicts,
            configured=configured,
            needs_payment_id=needs_payment_id,
            may_acknowledge=may_acknowledge,
        )
        self._cooldown = timedelta(seconds=cooldown_s + MARGIN_S)
        self._timeout = timedelta(seconds=timeout_s)
        self._next = 0.0  # by the monotonic clock, which no one can set
        self._state = "new"
        self._unauthorized = False  # how the last poll was answered
        self._log = _log.bind(account=account.name)

    async def tick(self) -> Polled:
        """One poll, if it may leave now. Never raises for what the service or the line does."""
        counts = Polled()
        counts.again_in = await self._wait()
        if counts.again_in > 0:
            return counts
        began = self._lanes.begin_poll()
        self._account.is_looking = True
        try:
            await self._poll(began, counts)
        finally:
            self._account.is_looking = False
            self._lanes.end_poll(began)
        return counts

    async def _poll(self, began: int, counts: Polled) -> None:
        try:
            documents = await self._account.client.current_orders()
        except MarketplaceError as error:
            counts.again_in = await self._failed(error, noted=True)
            return
        answered = self._clock.monotonic()
        self._account.heard(None)
        counts.delivered = len(documents)
        next_poll = self._cool_down()
        if documents:  # taking them in takes its time
            await self._note_cooldown(next_poll)
        await self._intake.take_in(documents, began, answered, counts)
        counts.ok = True
        await self._note_success(next_poll)
        counts.again_in = max(self._next - self._clock.monotonic(), 0.0)
        self._tell(counts, answered)

    async def _wait(self) -> float:
        """Seconds to wait; 0: the poll is noted and may leave. A login comes first: it must not use up the slot."""
        wait = max(self._next - self._clock.monotonic(), self._account.paused())
        if wait > 0:
            if self._account.is_refused() and self._state != "login_refused":
                await self._note_state("login_refused", "login_refused", "login_refused")
            return wait
        self._account.drop_expired_token()
        try:
            await self._account.session.token()
        except MarketplaceError as error:
            failure = error if isinstance(error, NotSent) else NotSent("login_failed", error.code)
            return await self._failed(failure, noted=False)
        noted = await self._database.run(self._reserve)
        return 0.0 if noted is None else max((noted - self._clock.now()).total_seconds(), MARGIN_S)

    def _reserve(self, connection: Connection) -> datetime | None:
        now, longest = self._clock.now(), self._timeout + self._cooldown
        return accounts.reserve_poll(
            connection, self._account.fingerprint, now=now, until=now + longest, longest=longest
        )

    async def _failed(self, error: MarketplaceError, *, noted: bool) -> float:
        """A failed poll: its slot is used up, unless the request certainly never left. `noted`: it was in the books."""
        self._account.heard(error)
        if isinstance(error, Unauthorized):
            if self._unauthorized:  # the token of a fresh login, too: the poll has its second 401
                self._account.refuse_token(error.code)
            self._unauthorized = True
        state = "failing"
        if isinstance(error, NotSent):
            state = "login_refused" if isinstance(error, LoginRefused) else "unreachable"
        said = f"{error.code}: {error.detail}" if error.detail else error.code
        # An answer's own words may hold a customer's name: they are for the table, not for the log.
        logged = said if error.http_status is None else f"{error.code}: HTTP {error.http_status}"
        if not isinstance(error, NotSent):
            await self._note_state(state, said, logged, next_poll=self._cool_down())
            return max(self._next - self._clock.monotonic(), 0.0)
        await self._note_state(state, said, logged, next_poll=self._clock.now() if noted else None)
        return max(self._account.paused(), 1.0)

    def _cool_down(self) -> datetime:
        """The cooldown runs from here, by the monotonic clock. Returns the end of it, for the next start's database."""
        self._next = self._clock.monotonic() + self._cooldown.total_seconds()
        return self._clock.now() + self._cooldown

    async def _note_cooldown(self, next_poll: datetime) -> None:
        try:
            await self._database.run(
                lambda tx: accounts.note_poll(tx, self._account.fingerprint, next_poll_utc=next_poll), urgent=True
            )
        except DBAPIError as error:  # the note from before the request stands, and is the longer one
            self._log.debug("poll.note_failed", error=type(error.orig).__name__)

    async def _note_success(self, next_poll: datetime) -> None:
        """Only now: what was delivered is on disk."""
        if self._state not in {"new", "ok"}:
            self._log.info("poll.recovered", after=self._state)
        self._state = "ok"
        self._unauthorized = False
        values = {
            "state": "ok",
            "last_error": None,
            "last_poll_ok_utc": self._clock.now(),
            "next_poll_utc": next_poll,
        }
        await self._database.run(lambda tx: accounts.note_poll(tx, self._account.fingerprint, **values))

    async def _note_state(self, state: str, said: str, logged: str, *, next_poll: datetime | None = None) -> None:
        """How the account stands. `next_poll`: when the next one may leave; None: that was not noted, and is not."""
        if state != self._state:
            self._log.warning("poll.failed", state=state, error=logged)
        self._state = state
        values: dict[str, Any] = {"state": state, "last_error": said}
        if next_poll is not None:
            values["next_poll_utc"] = next_poll
        await self._database.run(lambda tx: accounts.note_poll(tx, self._account.fingerprint, **values))

    def _tell(self, counts: Polled, answered: float) -> None:
        took = round((self._clock.monotonic() - answered) * 1000)
        told = self._log.info if counts.delivered else self._log.debug
        told(
            "orders.polled",
            delivered=counts.delivered,
            new=counts.new,
            changed=counts.changed,
            acknowledged=counts.acknowledged,
            dropped=counts.dropped,
            ms=took,
        )
