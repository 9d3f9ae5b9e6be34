"""Stores the orders of one poll's answer and has them acknowledged (promises 1, 2, 7).

decide   rules.deliveries sorts the orders into new, changed and unchanged; rules.lifecycle decides what changes
write    short transactions, new orders first; after each commit its orders are acknowledged (jobs.acknowledge)

An order's lane is held from the arrival of the answer until its acknowledgement is answered or dropped, so that none of
our actions can change the order meanwhile. If an action was in flight during the poll, the lane cannot be taken, and
the delivered status is ignored.

If the database refuses an order, by a type, a constraint or a trigger of the POS, less of it is written:

- A new order is stored without its automatic accept. Otherwise its whole document is quarantined, and counts as stored.
- Of a known order only the status is stored. It is not acknowledged, so the marketplace delivers it again, and the next
  poll tries all of it.

An order that cannot even be quarantined is not acknowledged. Each case is logged once when it begins and when it ends.
"""

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache, partial

import structlog
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from orderbridge.jobs.account import Account
from orderbridge.jobs.acknowledge import ACKNOWLEDGE_WITHIN_S, Acknowledger, Answer, Polled
from orderbridge.jobs.context import Context
from orderbridge.jobs.journal_writer import Journal
from orderbridge.jobs.reconciler import Reconciler, Unresolved
from orderbridge.marketplace.documents import differs, read_order
from orderbridge.model import AUTO_MARK, Action, Document, Order, Stored
from orderbridge.rules import deliveries as rules
from orderbridge.rules import lifecycle
from orderbridge.rules.deliveries import Sorted
from orderbridge.rules.problems import Code
from orderbridge.store import actions, orders, quarantine, reference
from orderbridge.store.dialects.face import TroubleKind
from orderbridge.store.failures import is_busy, is_refusal, remedy
from orderbridge.store.group_commit import write_batch, write_group
from orderbridge.store.order_times import start_of
from orderbridge.store.rows import ORDER, lock
from orderbridge.texts import say

CHUNK = 100  # orders in one transaction on SQLite, where it blocks a POS that writes
SERVER_CHUNK = 250  # on a server, where it locks only rows
CHUNK_BYTES = 1024 * 1024  # of the documents; parsed, they take many times that
HELD = "order.held_by_a_till"

_Work = Callable[[Connection, Sequence[Order]], Sequence[Order]]  # returns the written orders
_Bad = tuple[Document, str]  # with the reason why it is not an order
_Otherwise = Callable[[Answer, Order, DBAPIError], Awaitable[bool]]  # returns whether to acknowledge the order

_log = structlog.get_logger(__name__)


class Intake:
    """Stores the answers for one account."""

    def __init__(
        self,
        account: Account,
        context: Context,
        configured: Collection[str],
        *,
        unresolved: Callable[[], Awaitable[Unresolved]],
        journal: Journal | None,
    ) -> None:
        self._account, self._configured, self._own_problems = account, configured, context.own_problems
        self._database, self._lanes, self._clock = context.database, context.lanes, context.clock
        self._zone, self._statuses = context.zone, context.statuses
        self._orders, self._list_limit = context.settings.orders, context.settings.marketplace.list_limit
        self._lateness = rules.Lateness(self._orders.late_minutes, self._zone)
        self._is_cut = False  # whether a cut list was logged
        self.reconciler = Reconciler(account.name, context, unresolved)
        self.acknowledger = Acknowledger(account, context, journal)
        self._learned = context.kept.learned
        self._strangers: set[str] = set()
        self._logged: dict[str, str] = {}  # events by payment_key or by a document's digest
        self._log = _log.bind(account=account.name)

    async def take(
        self, documents: Sequence[Document], began: int, answered: float, counts: Polled, *, asked: int | None = None
    ) -> None:
        """Store and acknowledge the delivered documents. `asked`: the requested status; None: all statuses."""
        bad = [document for document in documents if document.reason is not None]
        good = self._statuses.latest(document for document in documents if document.reason is None)
        answer = Answer(good, began, answered + ACKNOWLEDGE_WITHIN_S, counts)
        self._learned.listed(documents, self._list_limit)
        answer.held = {key for key in good if self._lanes.hold_for_poll(key, began)}
        if rules.is_cut(documents, self._list_limit) and not self._is_cut:
            self._is_cut = True
            self._log.warning("poll.list_may_be_cut", orders=len(documents), remedy=say("log.list_cut"))
        try:
            await self.acknowledger.mark_late()
            whole = rules.is_whole(documents, asked=asked, list_limit=self._list_limit)
            await self.reconciler.resolve(answer, complete=whole)
            await self._store(answer, await self._sort(answer))
            await self._note_overloads()
            for chunk in self._chunks(bad):
                await self._quarantine(answer, [(document, document.reason or "") for document in chunk])
            counts.stuck += len(bad) + counts.foreign
            counts.is_full = rules.is_full(documents, counts.stuck, self._list_limit)
            if asked is None and self._logged:  # forget what is no longer delivered
                there = {document.payment_key for document in documents} | {document.digest for document in documents}
                self._logged = {subject: event for subject, event in self._logged.items() if subject in there}
        finally:
            await self.acknowledger.finish(answer)  # takes at most 15 s

    async def _sort(self, answer: Answer) -> Sorted:
        """Sort the orders, and release the lanes of those with unresolved rows."""
        if not answer.good:  # the usual case needs no query
            return Sorted()
        known, doubtful, answer.kept = await self._database.read(
            lambda tx: (
                orders.stored(tx, answer.good),
                orders.with_unresolved_rows(tx, answer.good),
                quarantine.waiting(tx, answer.good),
            )
        )
        self.acknowledger.release(answer, answer.held & doubtful)
        listed = rules.sort(answer.good, known, account=self._account.name, configured=self._configured)
        for document in listed.foreign:  # these are neither stored nor acknowledged
            owner, key = known[document.payment_key or ""].account, document.payment_key
            if owner not in self._strangers:
                self._strangers.add(owner)
                self._log.error("order.foreign_delivery", owner=owner, payment_key=key)
        answer.counts.foreign += len(listed.foreign)
        self.acknowledger.release(answer, answer.held & {document.payment_key for document in listed.foreign})
        old = [*listed.changed, *listed.unchanged]
        answer.counts.withheld += sum(document.payment_key not in answer.held for document in old)
        return listed

    async def _store(self, answer: Answer, listed: Sorted) -> None:
        """Store new orders, then changed ones. Unchanged ones are acknowledged; their older documents are resolved."""
        needs_codes = listed.new or listed.changed or answer.kept
        codes = await self._database.read(reference.payment_codes) if needs_codes else {}
        for chunk in self._chunks(listed.new):
            answer.counts.new += await self._write(answer, chunk, codes, self._insert, self._keep_new)
        doing, error = f"new_orders {self._account.name}", answer.blocked
        if error is None:
            self._database.trouble.worked(doing)
        else:  # a new order has no row, so the whole table is locked
            self._database.trouble.failed(doing, type(error.orig).__name__, remedy(error), TroubleKind.BUSY)
        answer.counts.unchanged += len(listed.unchanged)
        for chunk in self._chunks([one for one in listed.unchanged if one.payment_key not in answer.kept]):
            self.acknowledger.start(answer, chunk)
        for chunk in self._chunks([one for one in listed.unchanged if one.payment_key in answer.kept]):
            await self._write(answer, chunk, codes, self._resolve, self._write_least)
        update = partial(self._update, answer.held, codes)
        for chunk in self._chunks(listed.changed):
            answer.counts.changed += await self._write(answer, chunk, codes, update, self._write_least)

    def _chunks(self, documents: Sequence[Document]) -> Iterator[Sequence[Document]]:
        """Split the documents by count and by `CHUNK_BYTES`; a chunk has at least one."""
        most = CHUNK if self._database.dialect.one_writer else SERVER_CHUNK
        begin = size = 0
        for number, document in enumerate(documents):
            size += len(document.raw)
            if number > begin and (number - begin == most or size > CHUNK_BYTES):
                yield documents[begin:number]
                begin, size = number, len(document.raw)
        if documents:
            yield documents[begin:]

    async def _write(
        self, answer: Answer, chunk: Sequence[Document], codes: Mapping[str, str], work: _Work, otherwise: _Otherwise
    ) -> int:
        """Write a chunk in one transaction or, if that fails, order by order. Written orders are acknowledged."""
        fresh = await self._database.in_thread(
            lambda: [read_order(document, payment_codes=codes, zone=self._zone) for document in chunk]
        )
        written, failed = await write_batch(self._database, work, fresh)
        self.acknowledger.start(answer, written)
        self._learned.received(fresh)
        for order in written:
            if self._logged.pop(order.payment_key, None):
                self._log.info("order.written_after_all", payment_key=order.payment_key)
        ended = {order.payment_key for order in [*written, *(order for order, _ in failed)]}
        for key in [order.payment_key for order in fresh if order.payment_key not in ended]:
            self._wait_for(key, answer)
        kept = []
        for order, error in failed:
            if not isinstance(error, DBAPIError):
                raise error
            if await otherwise(answer, order, error):
                kept.append(order)
            elif is_refusal(error):
                answer.counts.stuck += 1
        self.acknowledger.start(answer, kept)
        return len(written) + len(kept)

    def _wait_for(self, key: str, answer: Answer) -> None:
        """Leave an order that another session has locked unacknowledged until the next poll."""
        if self._logged.get(key) == HELD:
            answer.counts.held += 1
        else:
            self._logged[key] = HELD
            self._log.info(HELD, payment_key=key)

    # ---- new orders --------------------------------------------------------------------------------------------------

    def _insert(self, connection: Connection, fresh: Sequence[Order], *, accepting: bool = True) -> Sequence[Order]:
        """Insert new orders and their automatic accepts."""
        now = self._clock.now()
        fresh = self._judged(fresh, now)
        arrivals = [self._statuses.arrival(order) for order in fresh]
        auto_accept, prepares = self._account.settings.auto_accept, self._orders.preparing_minutes
        starts = [
            start_of(facts.scheduled_for, self._zone, auto_accept(facts.restaurant_id) or prepares)
            for facts in (order.facts for order in fresh)
        ]
        orders.insert_new(connection, self._account.name, arrivals, now, starts)
        received = cache(lambda key: orders.received_lately(connection, self._account.name, now, key))
        for order in fresh if accepting else ():
            if (minutes := self._accept_in(order, received)) is not None:
                asked = {"action": Action.ACCEPT, "payment_key": order.payment_key, "preparing_time": minutes}
                actions.add_once(connection, f"{AUTO_MARK}{order.payment_key}", **asked, created_by="orderbridge")
        quarantine.resolve(connection, [order.payment_key for order in fresh], now)
        self._database.durability.ask(connection)
        return fresh

    def _judged(self, fresh: Sequence[Order], now: datetime) -> list[Order]:
        """Mark late orders, and report a wrong time zone if the orders' times show it."""
        judged = [self._lateness.marked(order, self._own_problems.service_now() or now) for order in fresh]
        hours, name = self._lateness.hours_off, self._account.name
        facts = {"account": name, "hours": f"{hours or 0:+}", "zone": self._zone}
        self._own_problems.report(Code.TIMEZONE_WRONG, name, is_open=hours is not None, **facts)
        return judged

    def _accept_in(self, order: Order, *received: Callable[[str | None], int]) -> int | None:
        """The minutes for an automatic accept; None if a person must accept the order.

        `received` counts the orders of the last hour; by default there were none.
        """
        settings = self._account.settings
        accepts = rules.accepts_itself(order, scheduled_too=settings.auto_accept_scheduled)
        return settings.auto_accept(order.facts.restaurant_id, *received) if accepts else None

    async def _note_overloads(self) -> None:
        """Note which limits of `auto_accept_steps` are reached, for the health check."""
        account, limits = self._account, self._account.settings.limits
        if not limits:
            return
        now = self._clock.now()

        def read(connection: Connection) -> Iterator[tuple[str, str, int]]:
            for key, limit in limits.items():
                if orders.received_lately(connection, account.name, now, key) >= limit:
                    name = None if key is None else reference.restaurant_name(connection, account.name, key)
                    yield key or "", name or key or "", limit

        account.overloads = await self._database.read(lambda tx: tuple(read(tx)))

    async def _keep_new(self, answer: Answer, order: Order, error: DBAPIError) -> bool:
        """Store a refused new order in another form. Returns whether it may be acknowledged."""
        key = order.payment_key
        accepts = not is_busy(error) and self._accept_in(order) is not None
        if accepts and await self._insert_alone(order, accepting=True):  # the cause was temporary
            return True
        if accepts and await self._insert_alone(order, accepting=False):
            name = type(error.orig).__name__
            self._log.error("order.auto_accept_refused", payment_key=key, error=name, remedy=say("log.not_accepted"))
            return True
        if not is_refusal(error):  # the cause is the database, not the order; the next poll repeats it
            self._log_once(key, "order.not_stored", error)
            answer.counts.not_stored += not is_busy(error)
            answer.blocked = error if is_busy(error) else answer.blocked
            return False
        if await self._database.read(lambda tx: orders.stored(tx, [key])):
            return False  # another account stored it meanwhile; the next poll decides
        self._log_once(key, "order.database_refused", error)
        return await self._quarantine(answer, [(answer.good[key], "database_refused")])

    async def _insert_alone(self, order: Order, *, accepting: bool) -> bool:
        """Try to store the order, with or without its automatic accept."""
        try:
            await self._database.run(lambda tx: self._insert(tx, [order], accepting=accepting))
        except DBAPIError:
            return False
        return True

    # ---- known orders ------------------------------------------------------------------------------------------------

    def _update(
        self, held: Collection[str], codes: Mapping[str, str], connection: Connection, fresh: Sequence[Order]
    ) -> Sequence[Order]:
        """Update known orders that no other session has locked, and return them. `held`: orders whose status counts."""
        now = self._clock.now()
        known = self._ours(connection, fresh)
        fresh = [order for order in fresh if order.payment_key in known]
        before = orders.payloads(connection, [order.payment_key for order in fresh])
        for order in fresh:
            stored = known[order.payment_key]
            if stored.account != self._account.name:
                orders.adopt(connection, order.payment_key, self._account.name)
            change = lifecycle.merge(
                stored,
                order.status_id,
                differs=differs(order, before.get(order.payment_key), payment_codes=codes, zone=self._zone),
                status_counts=order.payment_key in held,
                problems=order.problems,
            )
            arrival = self._statuses.arrival(order)
            orders.update_delivered(connection, stored, arrival, change, now)
        quarantine.resolve(connection, [order.payment_key for order in fresh], now)
        self._database.durability.ask(connection)
        return fresh

    def _resolve(self, connection: Connection, fresh: Sequence[Order]) -> Sequence[Order]:
        """Resolve older documents of orders that are stored as delivered, so that no retry stores those."""
        quarantine.resolve(connection, [order.payment_key for order in fresh], self._clock.now())
        return fresh

    def _update_least(self, held: Collection[str], connection: Connection, order: Order) -> None:
        """Update only the status of an order whose contents the database refuses."""
        for stored in self._ours(connection, [order]).values():
            change = lifecycle.merge_status(stored, order.status_id, status_counts=order.payment_key in held)
            if change is not None:
                orders.update_least(connection, stored, self._statuses.arrival(order), change, self._clock.now())

    def _ours(self, connection: Connection, fresh: Sequence[Order]) -> dict[str, Stored]:
        """Lock the orders that are free, and read them again.

        Another account or a sweep may have changed them since they were sorted.
        """
        stored = orders.stored(connection, lock(connection, ORDER, [order.payment_key for order in fresh]))
        name = self._account.name
        return {key: known for key, known in stored.items() if rules.may_take(known, name, self._configured)}

    async def _write_least(self, answer: Answer, order: Order, error: DBAPIError) -> bool:
        """Write the status without the refused contents. Returns False: the order must not be acknowledged."""
        self._log_once(order.payment_key, "order.update_refused" if is_refusal(error) else "order.not_stored", error)
        if not is_busy(error):
            try:
                await self._database.run(lambda tx: self._update_least(answer.held, tx, order))
            except DBAPIError as again:
                if is_refusal(again):  # not even the status: show it in quarantine
                    await self._quarantine(answer, [(answer.good[order.payment_key], "database_refused")])
                else:
                    answer.counts.not_stored += not is_busy(again)
        return False

    # ---- quarantine --------------------------------------------------------------------------------------------------

    async def _quarantine(self, answer: Answer, bad: Sequence[_Bad]) -> bool:
        """Quarantine documents, one by one if they fail together. Returns whether all were kept."""
        kept, failed = await write_group(self._database, self._keep, bad)
        answer.counts.quarantined += len(kept)
        for (document, reason), is_new in kept:
            if is_new:
                self._log.error("order.quarantined", reason=reason, payment_key=document.payment_key)
        for (document, _), error in failed:
            if not isinstance(error, DBAPIError):
                raise error
            self._log_once(document.digest, "order.lost_sight_of", error, payment_key=document.payment_key)
            answer.counts.not_stored += not is_busy(error)
        return not failed

    def _keep(self, connection: Connection, bad: Sequence[_Bad]) -> list[tuple[_Bad, bool]]:
        """Quarantine documents in one transaction, and return whether each is new there."""
        account, now = self._account.name, self._clock.now()
        kept = [(one, quarantine.keep(connection, account, *one, now)) for one in bad]
        self._database.durability.ask(connection)
        return kept

    def _log_once(self, subject: str, event: str, error: DBAPIError, **facts: str | None) -> None:
        """Log an event of an order once, not with each poll."""
        if self._logged.get(subject) != event:
            self._logged[subject] = event
            named = facts or {"payment_key": subject}
            self._log.error(event, **named, error=type(error.orig).__name__, remedy=remedy(error))
