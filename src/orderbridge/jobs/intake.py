"""Taking one answer in: what was delivered goes to disk, and then the service is told (promises 1, 2, 7).

decide: rules.lifecycle, for each delivered order
write: short transactions, new orders first; after each commit its acknowledgements leave

An order's lane is held from the moment the answer is in until its acknowledgement is answered or dropped, so nothing of
ours can change the order in between. Where an action was on the wire meanwhile, the lane is not to be had, and the
poll's word about that order's status does not count.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import structlog
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from orderbridge.clock import Clock
from orderbridge.errors import MarketplaceError
from orderbridge.jobs import writing
from orderbridge.jobs.account import Account
from orderbridge.jobs.batch import write_batch
from orderbridge.jobs.lanes import Lanes
from orderbridge.jobs.verdicts import Verdicts, tell_verdict
from orderbridge.marketplace.schema import read_order
from orderbridge.model import RECEIVED, Action, Document, Order, OutboxRow, Stored, Verdict
from orderbridge.rules import lifecycle
from orderbridge.rules.outbox import order_lane
from orderbridge.rules.retry import OTHER_END, UNREADABLE, Again, after_look, counted
from orderbridge.store import actions, locks, orders, quarantine, reference
from orderbridge.store.database import Database, is_refusal, remedy

CHUNK = 100  # orders in one transaction: a POS on the same SQLite file waits for it
# Of having read the answer; later ones are dropped, the next poll delivers the order again. With the reading before and
# the handshake after it stays below the 10 s that are promised.
ACKNOWLEDGE_WITHIN_S = 8.0
PARALLEL_ACKNOWLEDGEMENTS = 8
BETWEEN_NOTES_S = 0.2  # of OKs: a commit for each of a thousand would hold a SQLite file half of the time

_Work = Callable[[Connection, Sequence[Order]], Sequence[Order]]  # what was written of what was given

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Polled:
    """What one tick did. `again_in`: seconds until the next one may be made. `left`: it was noted, and made."""

    again_in: float = 0.0
    ok: bool = False
    delivered: int = 0
    new: int = 0
    changed: int = 0
    unchanged: int = 0
    withheld: int = 0
    foreign: int = 0
    quarantined: int = 0
    acknowledged: int = 0
    dropped: int = 0


@dataclass(slots=True)
class _Answer:
    """One answer being taken in."""

    good: dict[str, Document]
    began: int
    deadline: float
    counts: Polled
    held: set[str] = field(default_factory=set)
    acknowledging: list[asyncio.Task[None]] = field(default_factory=list)
    places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(PARALLEL_ACKNOWLEDGEMENTS))
    marking: asyncio.Lock = field(default_factory=asyncio.Lock)
    marks: list[orders.Mark] = field(default_factory=list)
    note_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Sorted:
    """An answer's orders by what is to be done with them, and what was known of them before."""

    known: dict[str, Stored]
    new: list[Document]
    changed: list[Document]
    unchanged: list[Document]


class Intake:
    """Takes the answers of one account in."""

    def __init__(
        self,
        account: Account,
        *,
        database: Database,
        lanes: Lanes,
        clock: Clock,
        verdicts: Verdicts,
        configured: Sequence[str],
        needs_payment_id: int | None = None,
        may_acknowledge: bool = True,
    ) -> None:
        self._account = account
        self._database = database
        self._lanes = lanes
        self._clock = clock
        self._verdicts = verdicts
        self._configured = configured
        self._needs_payment_id = needs_payment_id
        self._may_acknowledge = may_acknowledge
        self._strangers: set[str] = set()
        self._unmarked: list[orders.Mark] = []  # an OK that could not be noted: a till held the database
        self._log = _log.bind(account=account.name)

    async def take_in(self, documents: Sequence[Document], began: int, answered: float, counts: Polled) -> None:
        bad = [(document, document.reason) for document in documents if document.reason is not None]
        good = lifecycle.latest((document for document in documents if document.reason is None), self._needs_payment_id)
        answer = _Answer(good, began, answered + ACKNOWLEDGE_WITHIN_S, counts)
        answer.held = {key for key in good if self._lanes.hold_for_poll(key, began)}
        try:
            await self._mark_late()
            await self._resolve(answer, complete=all(document.payment_key for document, _ in bad))
            await self._store(answer, await self._sort(answer))
            for document, reason in bad:
                await self._quarantine(answer, document, reason)
        finally:
            # Never cancelled: an acknowledgement that has left may still have its effect. 15 s bound it.
            await asyncio.gather(*answer.acknowledging, return_exceptions=True)
            self._release(answer.held)

    async def _quarantine(self, answer: _Answer, document: Document, reason: str) -> bool:
        """Keep a document that is no order, alone: what even quarantine cannot hold harms only itself."""
        now = self._clock.now()
        try:
            new = await self._database.run(lambda tx: quarantine.keep(tx, self._account.name, document, reason, now))
        except DBAPIError as error:
            self._log.error("order.lost_sight_of", reason=reason, error=type(error.orig).__name__)
            return False
        answer.counts.quarantined += 1
        if new:
            self._log.error("order.quarantined", reason=reason, payment_key=document.payment_key)
        return True

    async def _resolve(self, answer: _Answer, *, complete: bool) -> None:
        """This poll is a look: it may end rows whose outcome is unknown. Of orders that it lacks, too.

        Not `complete`: a document without a key could be any order, so that absence says nothing.
        """
        rows = await self._database.read(lambda tx: _unresolved(tx, self._account.name))
        mine: list[OutboxRow] = []
        borrowed: set[str] = set()
        for row in rows:
            key = row.payment_key or ""
            if key in answer.held:
                mine.append(row)
            elif complete and key not in answer.good and self._lanes.hold_for_poll(key, answer.began):
                borrowed.add(key)
                mine.append(row)
        try:
            ended, failed = await write_batch(self._database, partial(self._judge, answer.good), mine, urgent=True)
        finally:
            self._release(borrowed)
        for row, verdict in ended:
            tell_verdict(row, verdict)
        for row, error in failed:  # the next poll is a look, too
            self._log.debug("poll.look_failed", id=row.id, error=type(error).__name__)

    def _judge(
        self, good: Mapping[str, Document], connection: Connection, rows: Sequence[OutboxRow]
    ) -> list[tuple[OutboxRow, Verdict]]:
        """Write what this look makes of the rows that nobody holds. Returns those that it ended."""
        now = self._clock.now()
        # Held first, read then: what another connection has just committed counts.
        held_rows = locks.held_rows(connection, [row.id for row in rows])
        held_orders = locks.held_orders(connection, [row.payment_key for row in rows])
        rows = [row for row in rows if row.id not in held_rows and row.payment_key not in held_orders]
        keys = [row.payment_key or "" for row in rows]
        histories = actions.histories(connection, [row.id for row in rows])
        ends = actions.ends(connection, keys)
        known = orders.stored(connection, keys)
        ended = []
        for row in rows:
            document, order, history = (
                good.get(row.payment_key or ""),
                known.get(row.payment_key or ""),
                histories[row.id],
            )
            if order is None or not history:
                continue
            shown = None if document is None else UNREADABLE if document.status_id is None else document.status_id
            decision = after_look(
                row.action,
                history,
                order,
                shown,
                now=now,
                other_end=(order.payment_key, OTHER_END.get(row.action)) in ends,
                needs_payment=self._needs_payment_id,
            )
            match decision:
                case Verdict():
                    if self._verdicts.finish(connection, row, decision, counted(history), now):
                        ended.append((row, decision))
                case Again():
                    self._verdicts.carry_out(connection, row, history, decision, now)
        return ended

    async def _sort(self, answer: _Answer) -> Sorted:
        """What is new, what changed and what did not. The lanes of orders with unresolved rows are given back."""
        if not answer.good:  # as it is most of the time: nothing has to be asked
            return Sorted({}, [], [], [])
        known = await self._database.read(lambda tx: orders.stored(tx, answer.good))
        doubtful = await self._database.read(lambda tx: orders.with_unresolved_rows(tx, answer.good))
        self._release(answer.held & doubtful)
        answer.held -= doubtful
        new = [document for key, document in answer.good.items() if key not in known]
        old = [document for key, document in answer.good.items() if key in known]
        old = [document for document in old if self._is_ours(known[document.payment_key or ""], answer)]
        unchanged = [d for d in old if self._is_unchanged(known[d.payment_key or ""], d)]
        same = {document.payment_key for document in unchanged}
        changed = [document for document in old if document.payment_key not in same]
        answer.counts.withheld += sum(document.payment_key not in answer.held for document in old)
        return Sorted(known, new, changed, unchanged)

    async def _store(self, answer: _Answer, listed: Sorted) -> None:
        """New orders first, then the ones that changed; the rest are only acknowledged."""
        codes = await self._database.read(reference.payment_codes) if listed.new or listed.changed else {}
        for chunk in _chunks(listed.new):
            fresh = [read_order(document, payment_codes=codes) for document in chunk]
            answer.counts.new += await self._write(answer, fresh, self._insert)
        answer.counts.unchanged += len(listed.unchanged)
        for chunk in _chunks(listed.unchanged):
            self._acknowledge_later(answer, [(d.payment_key or "", d.status_id) for d in chunk])
        for chunk in _chunks(listed.changed):
            fresh = [read_order(document, payment_codes=codes) for document in chunk]
            update = partial(self._update, answer, codes)
            answer.counts.changed += await self._write(answer, fresh, update)

    def _is_unchanged(self, known: Stored, document: Document) -> bool:
        return known.account == self._account.name and lifecycle.is_unchanged(known, document)

    def _may_take(self, known: Stored) -> bool:
        """An order belongs to the account that delivered it first, as long as that one is configured."""
        return known.account == self._account.name or known.account not in self._configured

    def _is_ours(self, known: Stored, answer: _Answer) -> bool:
        if self._may_take(known):
            return True
        answer.counts.foreign += 1
        if known.account not in self._strangers:
            self._strangers.add(known.account)
            self._log.error("order.foreign_delivery", owner=known.account, payment_key=known.payment_key)
        self._release({known.payment_key} & answer.held)
        answer.held.discard(known.payment_key)
        return False

    async def _write(self, answer: _Answer, fresh: Sequence[Order], work: _Work) -> int:
        """One chunk in one transaction; when that fails, order by order. What is written is acknowledged."""
        written, failed = await write_batch(self._database, work, fresh)
        self._acknowledge_later(answer, [(order.payment_key, order.status_id) for order in written])
        kept = [order for order, error in failed if await self._is_kept(answer, order, work, error)]
        self._acknowledge_later(answer, [(order.payment_key, order.status_id) for order in kept])
        return len(written) + len(kept)

    async def _is_kept(self, answer: _Answer, order: Order, work: _Work, error: Exception) -> bool:
        """True when the raw document of what could not be written is on disk and may be acknowledged."""
        if not isinstance(error, DBAPIError):
            raise error
        key, name = order.payment_key, type(error.orig).__name__
        if not is_refusal(error):  # the database's trouble, not the order's: the next poll delivers it again
            self._log.warning("order.not_stored", payment_key=key, error=name, remedy=remedy(error))
            return False
        known = await self._database.read(lambda tx: orders.stored(tx, [key]))
        if key in known and work == self._insert:  # another account brought it in meanwhile
            return False  # the next poll sees whose it is
        self._log.error("order.database_refused", payment_key=key, error=name)
        return await self._quarantine(answer, answer.good[key], "database_refused")

    def _insert(self, connection: Connection, fresh: Sequence[Order]) -> Sequence[Order]:
        now = self._clock.now()
        arrivals = [writing.arrival(order, self._needs_payment_id) for order in fresh]
        orders.insert_new(connection, self._account.name, arrivals, now)
        for order in fresh:
            minutes = self._auto_accept(order)
            if minutes is not None:
                actions.add_once(
                    connection,
                    f"auto:{order.payment_key}",
                    action=Action.ACCEPT,
                    payment_key=order.payment_key,
                    preparing_time=minutes,
                    created_by="orderbridge",
                )
        quarantine.resolve(connection, self._account.name, [order.payment_key for order in fresh], now)
        return fresh

    def _auto_accept(self, order: Order) -> int | None:
        settings = self._account.settings
        scheduled = order.facts.scheduled_for is not None and not settings.auto_accept_scheduled
        if order.status_id != RECEIVED or order.problems or scheduled:
            return None
        return settings.auto_accept(order.facts.restaurant_id)

    def _update(
        self,
        answer: _Answer,
        codes: dict[str, str],
        connection: Connection,
        fresh: Sequence[Order],
    ) -> Sequence[Order]:
        now = self._clock.now()
        free = locks.free_orders(connection, [order.payment_key for order in fresh])
        if len(free) < len(fresh):  # they wait, unacknowledged, for the next poll
            self._log.info("orders.held_by_a_till", orders=len(fresh) - len(free))
        # Read once they are ours: a sweep, or another account, may have written since they were sorted.
        known = {key: order for key, order in orders.stored(connection, free).items() if self._may_take(order)}
        fresh = [order for order in fresh if order.payment_key in known]
        before = orders.payloads(connection, [order.payment_key for order in fresh])
        for order in fresh:
            stored = known[order.payment_key]
            if stored.account != self._account.name:
                orders.adopt(connection, order.payment_key, self._account.name)
            writing.update(
                connection,
                stored,
                order,
                payload=before.get(order.payment_key),
                payment_codes=codes,
                needs_payment_id=self._needs_payment_id,
                status_counts=order.payment_key in answer.held,
                now=now,
            )
        quarantine.resolve(connection, self._account.name, [order.payment_key for order in fresh], now)
        return fresh

    # ---- acknowledging -----------------------------------------------------------------------------------------------

    def _acknowledge_later(self, answer: _Answer, written: Sequence[tuple[str, int | None]]) -> None:
        """Straight after the commit, beside the writing of what follows. Only where the lane is ours."""
        ours = [(key, status_id) for key, status_id in written if key in answer.held]
        if not self._may_acknowledge:
            self._release({key for key, _ in ours})
            answer.held -= {key for key, _ in ours}
            return
        answer.acknowledging += [asyncio.create_task(self._acknowledge(answer, *order)) for order in ours]

    async def _acknowledge(self, answer: _Answer, key: str, status_id: int | None) -> None:
        """Sent once. Whatever it ends in but OK, the next poll delivers the order again.

        The lane is free when the OK is in the database: what goes next may be judged by it.
        """
        try:
            async with answer.places:
                if self._clock.monotonic() > answer.deadline:
                    answer.counts.dropped += 1
                    return
                await self._account.client.acknowledge(key)
            answer.counts.acknowledged += 1
            word = lifecycle.status_name(status_id, self._needs_payment_id)
            await self._mark(answer, (key, status_id, word, self._clock.now()))
        except MarketplaceError as error:
            answer.counts.dropped += 1
            if error.code != "login_timeout":  # our 5 s were over; the line may be well
                self._account.heard(error)
            self._log.debug("order.not_acknowledged", payment_key=key, code=error.code)
        finally:
            answer.held.discard(key)
            self._lanes.free(order_lane(key))

    async def _mark(self, answer: _Answer, mark: orders.Mark) -> None:
        """Note one OK. While one note is written, and a moment longer, the others gather, and go together."""
        answer.marks.append(mark)
        async with answer.marking:
            if mark in answer.marks:
                await asyncio.sleep(answer.note_at - self._clock.monotonic())
                batch, answer.marks = answer.marks, []
                await self._note(batch)
                answer.note_at = self._clock.monotonic() + BETWEEN_NOTES_S

    async def _mark_late(self) -> None:
        """Before anything newer of these orders is noted."""
        if self._unmarked:
            batch, self._unmarked = self._unmarked, []
            await self._note(batch)

    async def _note(self, batch: list[orders.Mark]) -> None:
        noted, failed = await write_batch(self._database, _mark_free, batch)
        for mark, error in failed:
            if isinstance(error, DBAPIError) and is_refusal(error):
                self._log.error("order.database_refused", payment_key=mark[0], error=type(error.orig).__name__)
                noted.append(mark)
        # The service does not deliver these orders again: the next poll notes it.
        done = set(noted)
        late = [mark for mark in batch if mark not in done]
        if late:
            self._log.warning("database.mark_failed", orders=len(late))
        self._unmarked += late

    def _release(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._lanes.free(order_lane(key))


def _unresolved(connection: Connection, account: str) -> list[OutboxRow]:
    """The account's order rows that are marked as sent and have no verdict."""
    rows, _ = actions.read_unfinished(connection, sending_only=True)
    rows = [row for row in rows if row.payment_key is not None]
    known = orders.stored(connection, [row.payment_key or "" for row in rows])
    return [row for row in rows if row.payment_key in known and known[row.payment_key].account == account]


def _mark_free(connection: Connection, marks: Sequence[orders.Mark]) -> list[orders.Mark]:
    """Note the OKs of the orders that nobody holds. Returns them."""
    held = locks.held_orders(connection, [key for key, *_ in marks])
    free = [mark for mark in marks if mark[0] not in held]
    orders.mark_acknowledged(connection, free)
    return free


def _chunks(documents: Sequence[Document]) -> Iterable[Sequence[Document]]:
    for start in range(0, len(documents), CHUNK):
        yield documents[start : start + CHUNK]
