"""Acknowledges stored orders at the marketplace and notes each OK in the database (promises 1 and 2).

An acknowledgement is sent once, right after the commit and the journal's line, and only while we hold the order's lane.
Its OK is noted before the lane is freed, because the next action may be judged by it.

The OKs of one list are noted by group commit. They are not urgent, since a thousand may come at once. An OK that cannot
be noted frees its lane and is noted at the account's next poll, unless a newer OK of its order comes first.
"""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import partial

import structlog
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from orderbridge.errors import MarketplaceError
from orderbridge.jobs.account import Account
from orderbridge.jobs.context import Context
from orderbridge.jobs.journal_writer import Journal
from orderbridge.marketplace.client import ACKNOWLEDGE_TIMEOUT_S
from orderbridge.model import Document, Order
from orderbridge.observe.metrics import NOT_TAKEN_IN
from orderbridge.rules.outbox_rows import order_lane
from orderbridge.store import orders
from orderbridge.store.failures import is_refusal
from orderbridge.store.group_commit import Failed, GroupCommit, write_group
from orderbridge.store.rows import ORDER, lock_naming_held

PARALLEL_ACKNOWLEDGEMENTS = 8
# From the end of reading the answer. No acknowledgement is sent later: the next poll delivers the order again. Reading
# and handshake take the rest of the promised 10 s.
ACKNOWLEDGE_WITHIN_S = 8.0
OVER_WITHIN_S = 2.0  # grace after the deadline for a login and the answer
BETWEEN_NOTES_S = 0.2  # between commits of OKs, which would otherwise block a SQLite file half of the time
REPEATED = 2  # consecutive failures of one order that are logged as an error
NAMED = 5  # at most so many orders of one list are logged one by one; one line counts the others

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Polled:
    """The result of one poll. `again_in`: seconds until the next one is allowed. `ok`: a whole list was stored.

    `result`: how the poll ended (observe.metrics). `stuck`: documents that cannot be acknowledged. `is_full`: these
    fill the list and may hide others. `held`: changed orders that another session has locked since the poll before.
    """

    again_in: float = 0.0
    ok: bool = False
    result: str = NOT_TAKEN_IN
    delivered: int = 0
    new: int = 0
    changed: int = 0
    unchanged: int = 0
    withheld: int = 0
    foreign: int = 0
    quarantined: int = 0
    not_stored: int = 0
    held: int = 0
    acknowledged: int = 0
    dropped: int = 0
    stuck: int = 0
    is_full: bool = False


@dataclass(slots=True)
class Answer:
    """One poll's answer while it is stored and acknowledged.

    `good`: its orders by payment_key. `held`: the orders whose lanes we hold. `kept`: those with a document in
    quarantine. `deadline`: for acknowledgements, monotonic. `noting`: OKs that are being noted. `blocked`: the error if
    another session locks the table against new orders.
    """

    good: dict[str, Document]
    began: int
    deadline: float
    counts: Polled
    held: set[str] = field(default_factory=set)
    kept: set[str] = field(default_factory=set)
    acknowledging: list[asyncio.Task[None]] = field(default_factory=list)
    places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(PARALLEL_ACKNOWLEDGEMENTS))
    blocked: DBAPIError | None = None
    repeated: int = 0  # orders that could not be acknowledged again
    noting: "list[asyncio.Future[None]]" = field(default_factory=list)


class Acknowledger:
    """Acknowledges one account's orders, but none while a commit may be lost."""

    def __init__(self, account: Account, context: Context, journal: Journal | None) -> None:
        self._account, self._journal = account, journal
        self._database, self._lanes, self._clock = context.database, context.lanes, context.clock
        self._statuses = context.statuses
        self._marks: GroupCommit[orders.Mark, None] = GroupCommit(
            partial(write_group, context.database, _mark_free), wait_s=BETWEEN_NOTES_S, put_off=self._not_marked
        )
        self._unmarked: dict[str, orders.Mark] = {}  # an order's last OK that could not be noted
        self._dropped: dict[str, int] = {}  # by order in the list: failures in a row
        self._log = _log.bind(account=account.name)

    def start(self, answer: Answer, written: Sequence[Order | Document]) -> None:
        """Start to acknowledge orders after their commit, in the background.

        Orders whose lane is not ours are skipped.
        """
        ours = [(one.payment_key or "", one.status_id) for one in written if one.payment_key in answer.held]
        if self._database.durability.remedy is not None:
            self.release(answer, {key for key, _ in ours})
            return
        documents = [answer.good[key] for key, _ in ours]
        kept = None if self._journal is None else self._journal.keep(self._account.name, documents)
        answer.acknowledging += [asyncio.create_task(self.acknowledge(answer, *order, kept)) for order in ours]

    async def acknowledge(
        self, answer: Answer, key: str, status_id: int | None, kept: "asyncio.Task[None] | None" = None
    ) -> None:
        """Acknowledge an order once, after its journal entry `kept`.

        If it fails, the next poll delivers the order again.
        """
        noted = None
        try:
            if kept is not None:
                await asyncio.shield(kept)
            async with answer.places:
                left_s = answer.deadline - self._clock.monotonic()
                if left_s < 0:
                    self._drop(answer, key, "no_time")
                    return
                self._database.check_file()  # an order in a removed file is not stored
                timeout_s = min(ACKNOWLEDGE_TIMEOUT_S, left_s + OVER_WITHIN_S)
                await self._account.client.acknowledge(answer.good[key].service_key or key, timeout_s=timeout_s)
            answer.counts.acknowledged += 1
            self._dropped.pop(key, None)
            noted = self._marks.add((key, status_id, self._statuses.name(status_id), self._clock.now()))
            noted.add_done_callback(partial(self._noted, answer, key))
            answer.noting.append(noted)
        except MarketplaceError as error:
            self._drop(answer, key, error.code)
        finally:
            if noted is None:
                self.release(answer, {key})

    def _noted(self, answer: Answer, key: str, noted: "asyncio.Future[None]") -> None:
        if not noted.cancelled() and noted.exception() is None:
            self._unmarked.pop(key, None)  # an older OK must not overwrite this one
        self.release(answer, {key})

    def _drop(self, answer: Answer, key: str, code: str) -> None:
        """Count a failure. The next poll repairs it; the second in a row is logged as an error."""
        answer.counts.dropped += 1
        self._dropped[key] = self._dropped.get(key, 0) + 1
        answer.repeated += self._dropped[key] == REPEATED
        log = self._log.error if self._dropped[key] == REPEATED and answer.repeated <= NAMED else self._log.debug
        log("order.not_acknowledged", payment_key=key, code=code)

    async def finish(self, answer: Answer) -> None:
        """Wait until all are answered or dropped. None is cancelled, because it may still have its effect."""
        await asyncio.gather(*answer.acknowledging, return_exceptions=True)
        if (others := answer.repeated - NAMED) > 0:
            self._log.error("order.not_acknowledged", others=others)
        self._marks.flush()  # no more OKs will come
        await asyncio.gather(*answer.noting, return_exceptions=True)
        self._dropped = {key: times for key, times in self._dropped.items() if key in answer.good}
        self.release(answer, set(answer.held))

    def release(self, answer: Answer, keys: Collection[str]) -> None:
        """Release the lanes of these orders."""
        for key in keys:
            self._lanes.free(order_lane(key))
        answer.held.difference_update(keys)

    async def mark_late(self) -> None:
        """Note the OKs that could not be noted before, ahead of newer ones."""
        late, self._unmarked = self._unmarked, {}
        await asyncio.gather(*(self._marks.add(mark, within_s=0.0) for mark in late.values()), return_exceptions=True)

    def _not_marked(self, failed: Failed[orders.Mark]) -> list[float | None]:
        """Keep these OKs for the next poll: the marketplace does not deliver the orders again."""
        late: dict[str, orders.Mark] = {}
        for mark, error in failed:
            if isinstance(error, DBAPIError) and is_refusal(error):
                self._log.error("order.database_refused", payment_key=mark[0], error=type(error.orig).__name__)
                self._unmarked.pop(mark[0], None)
            else:
                late[mark[0]] = mark
        if late:
            self._log.warning("database.mark_failed", orders=len(late))
        self._unmarked |= late
        return [None] * len(failed)


def _mark_free(connection: Connection, marks: Sequence[orders.Mark]) -> list[tuple[orders.Mark, None]]:
    """Note and return the OKs of orders whose rows are not locked."""
    held = lock_naming_held(connection, ORDER, [key for key, *_ in marks])
    free = [mark for mark in marks if mark[0] not in held]
    orders.mark_acknowledged(connection, free)
    return [(mark, None) for mark in free]
