"""A row is claimed: read again, judged by what is known of its order and its attempts, and noted before it leaves."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import Connection

from orderbridge.actions import ORDER_ACTIONS, key_of
from orderbridge.clock import Clock
from orderbridge.jobs.account import Account
from orderbridge.jobs.send import Claim
from orderbridge.model import ActionState, Attempt, OutboxRow, Stored, Verdict
from orderbridge.rules.lines import Entry
from orderbridge.rules.outbox import order_end
from orderbridge.rules.retry import NextRequest, RetryAt, RetryPolicy, may_be_seen, next_request, resend_at
from orderbridge.store import actions, orders, unfinished
from orderbridge.store.unfinished import ServerClock


@dataclass(frozen=True, slots=True)
class Held:
    """Somebody else holds the row: it is left for a moment."""


@dataclass(frozen=True, slots=True)
class Gone:
    """The row is not unfinished any more."""


@dataclass(frozen=True, slots=True)
class Changed:
    """The row is not as the queue has it."""

    row: OutboxRow


@dataclass(frozen=True, slots=True)
class Incomplete:
    """The queue does not know these rows of the same order yet: which goes first is decided when it does."""

    unknown: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PollInFlight:
    """A poll of its account is under way that may show what became of its last request."""


@dataclass(frozen=True, slots=True)
class Unwritten:
    """The note was not written, or nobody knows whether it was."""

    error: Exception | None = None


Said = Claim | Verdict | Held | Gone | Changed | Incomplete | PollInFlight | Unwritten


def differs(row: OutboxRow, fresh: OutboxRow) -> bool:
    """Whether a row has changed since it was read, in what a decision hangs on."""
    return (row.state, row.withdraw, row.next_attempt_utc, row.expires_utc) != (
        fresh.state,
        fresh.withdraw,
        fresh.next_attempt_utc,
        fresh.expires_utc,
    )


class Claims:
    """Claims rows of all accounts of this process."""

    def __init__(
        self,
        accounts: Mapping[str, Account],
        clock: Clock,
        server: ServerClock,
        policy: Callable[[], RetryPolicy],
        is_known: Callable[[int], bool],
    ) -> None:
        self._accounts = accounts
        self._clock = clock
        self._server = server
        self._policy = policy
        self._is_known = is_known

    def claim(self, connection: Connection, entries: Sequence[Entry]) -> list[tuple[Entry, Said]]:
        """What each row is told. What is a Claim is on the wire from now on, as far as the table is concerned."""
        if not entries:
            return []
        now = self._clock.now()
        found, held = unfinished.claim(connection, [entry.row.id for entry in entries], self._server, now)
        fresh = {row.id: row for row in found.rows}
        keys = sorted({row.payment_key for row in found.rows if row.payment_key})
        known, lanes = orders.stored(connection, keys), unfinished.unfinished_of(connection, keys)
        histories = unfinished.histories(connection, [row.id for row in found.rows if row.tried])
        said: list[tuple[Entry, Said]] = []
        for entry in entries:
            row = fresh.get(entry.row.id)
            if row is None:
                said.append((entry, Held() if entry.row.id in held else Gone()))
            elif unknown := [one for one in lanes.get(key_of(row), ()) if not self._is_known(one)]:
                said.append((entry, Incomplete(tuple(unknown))))
            else:
                order = known.get(key_of(row))
                said.append((entry, self._judge(entry, row, order, tuple(histories.get(row.id, ())), now)))
        claims = [one for _, one in said if isinstance(one, Claim)]
        if not claims:
            return said
        actions.start(connection, [(claim.row, claim.number) for claim in claims], now)
        called = unfinished.as_delivered(connection, [claim.row for claim in claims])
        return [(entry, _called(one, called.get(entry.row.id))) for entry, one in said]

    def _judge(
        self, entry: Entry, row: OutboxRow, order: Stored | None, history: tuple[Attempt, ...], now: datetime
    ) -> Said:
        if differs(entry.row, row):
            return Changed(row)
        account = entry.account or ""
        if row.action in ORDER_ACTIONS:
            # An unresolved row was allowed when it was first sent; only an answer or a look ends it now.
            verdict = order_end(row, order) if row.state == ActionState.PENDING else None
            if verdict is not None:
                return verdict
            if order is None:
                return Held()  # it was sent once: it waits for its order, and expires
            if order.account != account:
                return Changed(replace(row, owner=order.account))
        owner = self._accounts[account]
        if owner.poll_in_flight and may_be_seen(row.action, history):
            return PollInFlight()
        return self._claim(entry, row, owner, history, now)

    def _claim(
        self, entry: Entry, row: OutboxRow, account: Account, history: tuple[Attempt, ...], now: datetime
    ) -> Claim:
        step, again = next_request(row.action, history), None
        if step == NextRequest.ASK_THEN_SEND:
            at = resend_at(history, now=now, policy=self._policy())
            again = RetryAt(at, history[-1].code) if at > now else None
        return Claim(row, entry.lane, account, step, history, number=len(history) + 1, again=again)


def _called(said: Said, service_id: str | None) -> Said:
    """With the id that the service itself uses, where that is another."""
    if service_id is None or not isinstance(said, Claim):
        return said
    return replace(said, row=replace(said.row, service_id=service_id))
