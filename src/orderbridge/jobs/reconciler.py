"""Resolves rows with an unknown outcome by what a poll's list shows or lacks (promise 4).

Only a qualifying poll counts (docs/design.md, Unknown outcomes): a successful one that began after the attempt had
ended. An order that the list lacks is evidence only if the list is whole (rules.deliveries).

read     the account's unresolved rows and their orders, locked
decide   rules.retry.after_poll
write    the verdict, or when to send again
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import structlog
from sqlalchemy import Connection

from orderbridge.actions import key_of
from orderbridge.jobs.acknowledge import Answer
from orderbridge.jobs.context import Context
from orderbridge.jobs.outcome_writer import Posting, hold, post, report
from orderbridge.model import Document, OutboxRow, Verdict
from orderbridge.rules.outbox_rows import order_lane
from orderbridge.rules.retry import after_poll, other_end, shown_by
from orderbridge.store import actions, orders, unfinished
from orderbridge.store.group_commit import write_batch

Unresolved = Mapping[str, Sequence[OutboxRow]]

_log = structlog.get_logger(__name__)


@dataclass
class Reconciler:
    """Resolves one account's rows by its polls. `unresolved` reads the rows of all accounts (`read_unresolved`)."""

    account: str
    context: Context
    unresolved: Callable[[], Awaitable[Unresolved]]

    async def resolve(self, answer: Answer, *, complete: bool) -> None:
        """Resolve rows by this poll. `complete`: an order that the list lacks is evidence, too."""
        mine: list[OutboxRow] = []
        borrowed: set[str] = set()
        for row in (await self.unresolved()).get(self.account, ()):
            key = key_of(row)
            if key in answer.held:
                mine.append(row)
            elif complete and key not in answer.good and self.context.lanes.hold_for_poll(key, answer.began):
                borrowed.add(key)
                mine.append(row)
        try:
            ended, failed = await write_batch(self.context.database, partial(self.post, answer.good), mine, urgent=True)
        finally:
            for key in borrowed:
                self.context.lanes.free(order_lane(key))
        for row, verdict in ended:
            report(self.context, row, verdict)
        for row, error in failed:  # the next poll tries again
            _log.debug("poll.look_failed", account=self.account, id=row.id, error=type(error).__name__)

    def post(
        self, good: Mapping[str, Document], connection: Connection, rows: Sequence[OutboxRow]
    ) -> list[tuple[OutboxRow, Verdict]]:
        """Decide about the rows that are not locked, and write it. Returns the rows that ended."""
        now = self.context.clock.now()
        # Locked before reading, so that the newest commit of another connection counts.
        free, known = hold(connection, rows)
        histories = unfinished.histories(connection, free)
        ends = actions.ends(connection, [key_of(row) for row in free.values()])
        ended = []
        for row in free.values():
            order, history = known.get(key_of(row)), histories[row.id]
            if order is None or not history:
                continue
            decision = after_poll(
                row.action,
                history,
                order,
                shown_by(good.get(order.payment_key)),
                now=now,
                other_end=other_end(row.action, {action for key, action in ends if key == order.payment_key}),
                active=self.context.statuses.active,
            )
            if decision is None:
                continue
            has_ended = post(self.context, connection, [Posting(row, decision, history)], known, now)
            if has_ended and isinstance(decision, Verdict):
                ended.append((row, decision))
        return ended


def read_unresolved(connection: Connection) -> Unresolved:
    """By account: the rows of orders that were sent and have no verdict."""
    rows, _ = unfinished.read_unfinished(connection, sending_only=True)
    rows = [row for row in rows if row.payment_key is not None]
    found: dict[str, list[OutboxRow]] = {}
    if rows:
        known = orders.stored(connection, [key_of(row) for row in rows])
        for row in rows:
            if (order := known.get(key_of(row))) is not None:
                found.setdefault(order.account, []).append(row)
    return found
