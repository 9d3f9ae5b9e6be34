"""A row is claimed: read again, judged by what is known of its order and its attempts, and noted before it leaves."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import Connection

from orderbridge.actions import key_of
from orderbridge.clock import Clock
from orderbridge.jobs.account import Account
from orderbridge.jobs.send import Claim
from orderbridge.observe.metrics import ACTION_WAIT_SECONDS, Metrics
from orderbridge.rules.account_queues import Entry
from orderbridge.rules.claims import InTable, Leaves, Stays, judge
from orderbridge.rules.retry import RetryPolicy
from orderbridge.store import actions, orders, unfinished
from orderbridge.store.unfinished import ServerClock


@dataclass(frozen=True, slots=True)
class Unwritten:
    """The note was not written, or nobody knows whether it was."""

    error: Exception | None = None


Said = Claim | Stays | Unwritten


class Claims:
    """Claims rows of all accounts of this process."""

    def __init__(
        self,
        accounts: Mapping[str, Account],
        clock: Clock,
        server: ServerClock,
        policy: Callable[[], RetryPolicy],
        is_known: Callable[[int], bool],
        metrics: Metrics,
    ) -> None:
        self._accounts = accounts
        self._clock = clock
        self._server = server
        self._policy = policy
        self._is_known = is_known
        self._metrics = metrics

    def tell_wait(self, claim: Claim) -> None:
        """From the till's insert to now, when its first request leaves."""
        if claim.number == 1 and claim.row.created_utc is not None:
            waited = (self._clock.now() - claim.row.created_utc).total_seconds()
            self._metrics.observe(ACTION_WAIT_SECONDS, max(waited, 0.0))

    def claim(self, connection: Connection, entries: Sequence[Entry]) -> list[tuple[Entry, Said]]:
        """What each row is told. What is a Claim is on the wire from now on, as far as the table is concerned."""
        if not entries:
            return []
        now = self._clock.now()
        found = self._read(connection, [entry.row.id for entry in entries], now)
        said = [(entry, self._judge(entry, found.get(entry.row.id, InTable()), now)) for entry in entries]
        claims = [one for _, one in said if isinstance(one, Claim)]
        if not claims:
            return said
        actions.start(connection, [(claim.row, claim.number) for claim in claims], now)
        called = unfinished.as_delivered(connection, [claim.row for claim in claims])
        return [(entry, _called(one, called.get(entry.row.id))) for entry, one in said]

    def _read(self, connection: Connection, ids: Sequence[int], now: datetime) -> dict[int, InTable]:
        """What the table says of these rows. Of one that is not unfinished any more it says nothing."""
        found, held = unfinished.claim(connection, ids, self._server, now)
        keys = sorted({row.payment_key for row in found.rows if row.payment_key})
        known, lanes = orders.stored(connection, keys), unfinished.unfinished_of(connection, keys)
        histories = unfinished.histories(connection, [row.id for row in found.rows if row.tried])
        said = {row_id: InTable(is_held=True) for row_id in held}
        for row in found.rows:
            key = key_of(row)
            unknown = tuple(one for one in lanes.get(key, ()) if not self._is_known(one))
            history = tuple(histories.get(row.id, ()))
            said[row.id] = InTable(row, unknown=unknown, order=known.get(key), history=history)
        return said

    def _judge(self, entry: Entry, found: InTable, now: datetime) -> Said:
        account = entry.account or ""
        owner = self._accounts.get(account)
        said = judge(
            entry.row,
            found,
            account=account,
            has_left=owner is None,
            poll_in_flight=owner is not None and owner.poll_in_flight,
            now=now,
            policy=self._policy,
        )
        if not isinstance(said, Leaves):
            return said
        row, history = found.row, found.history
        assert row is not None and owner is not None  # noqa: S101, PT018 - what leaves is there, and so is its account
        return Claim(row, entry.lane, owner, said.request, history, len(history) + 1, said.again)


def _called(said: Said, service_id: str | None) -> Said:
    """With the id that the service itself uses, where that is another."""
    if service_id is None or not isinstance(said, Claim):
        return said
    return replace(said, row=replace(said.row, service_id=service_id))
