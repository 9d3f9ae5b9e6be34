"""Stores documents from quarantine or from the journal as orders.

decide   `decide`, rules.lifecycle
write    store.orders, as for a delivery, one transaction for each order

Of several documents of an order only the newest counts, whichever account delivered it. It is compared with the stored
order:

- While another session locks the order, or one of its actions has no verdict, the document waits.
- If the stored document is one of the earlier ones (by its digest), this one is newer. Only otherwise are times
  compared.
- An ended order stays ended, a status does not go back, and newer contents are not overwritten.

This may run beside a daemon; only the first of the two stores an order. Nothing is acknowledged, sent or accepted here,
since an order that was accepted after the restored copy was made must not be accepted twice. (A document that only the
database refused was acknowledged when it came; the marketplace delivers any other one again.)
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from pathlib import Path
from zoneinfo import ZoneInfo

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from orderbridge import config
from orderbridge.marketplace.documents import differs, read_order, read_raw, read_stored
from orderbridge.model import REPLAYED, Arrival, Document, EndedBy, Order, Stored
from orderbridge.rules import lifecycle
from orderbridge.rules.deliveries import Lateness
from orderbridge.rules.health import is_due
from orderbridge.rules.lifecycle import Statuses
from orderbridge.store import journal, orders, quarantine, reference
from orderbridge.store.database import Database
from orderbridge.store.failures import is_refusal
from orderbridge.store.journal import Entry
from orderbridge.store.rows import ORDER, alike, batches, lock_naming_held

TRIES = 2  # the daemon may store the order at the same moment


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest document of an order. `first`: the order's first delivery; `last`: this document's.

    `earlier`: the digests of the order's earlier documents. `is_due`: the order is not scheduled for later.
    """

    status_id: int | None
    digest: str | None
    first: datetime
    last: datetime
    earlier: Collection[str | None] = ()
    is_due: bool = True


@dataclass(frozen=True, slots=True)
class Current:
    """The stored order, read in the transaction that may write it.

    `is_held`: another session locks it, so the rest is unknown. `stored`: None if there is none. `has_news`: it changed
    at the document's time or later. `is_unresolved`: one of its actions has no verdict yet.
    """

    is_held: bool = False
    stored: Stored | None = None
    has_news: bool = False
    is_unresolved: bool = False


class Decision(StrEnum):
    """The result for an order's newest document."""

    TAKEN_IN = "taken_in"  # the order was not stored: now the till sees it as new
    TAKEN_IN_ENDED = "taken_in_ended"  # likewise, but the order is old: stored as ended, and not printed
    UPDATED = "updated"
    KNOWN = "known"
    SUPERSEDED = "superseded"  # the stored order is newer or ended
    WAITS = "waits"  # an action has no verdict yet, or another session locks the order
    BLANKED = "blanked"  # its documents are blanked or damaged
    REFUSED = "refused"  # by the database, or it is still no valid order


TAKEN_IN = {Decision.TAKEN_IN, Decision.TAKEN_IN_ENDED}
WRITTEN = {*TAKEN_IN, Decision.UPDATED}
UNFINISHED = {Decision.WAITS, Decision.REFUSED}


def decide(document: Newest, current: Current, *, statuses: Statuses, now: datetime, silence: timedelta) -> Decision:
    """Decide about a document. `silence`: an order without news for this long has ended."""
    if current.is_held:
        return Decision.WAITS
    if current.stored is None:
        is_over = document.is_due and max(document.first, document.last) <= now - silence
        return Decision.TAKEN_IN_ENDED if is_over else Decision.TAKEN_IN
    decision = _of_known(document, current.stored, statuses, has_news=current.has_news)
    return Decision.WAITS if decision == Decision.UPDATED and current.is_unresolved else decision


def _of_known(document: Newest, stored: Stored, statuses: Statuses, *, has_news: bool) -> Decision:
    if stored.digest is not None and stored.digest == document.digest:
        return Decision.KNOWN
    if stored.ended_by in {EndedBy.COMPLETED, EndedBy.CANCELLED}:
        return Decision.SUPERSEDED
    if _goes_back(document.status_id, stored.status_id, statuses):
        return Decision.SUPERSEDED
    if stored.digest is not None and stored.digest in document.earlier:
        return Decision.UPDATED
    return Decision.SUPERSEDED if has_news else Decision.UPDATED


def _goes_back(status_id: int | None, stored_id: int | None, statuses: Statuses) -> bool:
    """Whether the document's status precedes the stored one. An unknown status precedes only an end."""
    ranks = statuses.ranks
    return ranks.get(status_id or 0, len(statuses.active)) < ranks.get(stored_id or 0, 0)


class Reimport:
    """One run of a command, which began at `now`."""

    def __init__(self, database: Database, settings: config.Settings, now: datetime) -> None:
        self.database = database
        self.now = now
        self.statuses = Statuses(settings.marketplace.needs_payment_status_id)
        self.codes = database.read_now(reference.payment_codes)
        self._silence = timedelta(hours=settings.orders.silence_hours)
        self.zone = ZoneInfo(settings.marketplace.timezone)
        self._late_minutes = settings.orders.late_minutes

    def read(self, document: Document) -> Order:
        return read_order(document, payment_codes=self.codes, zone=self.zone)

    def store(self, order: Order, account: str, document: Newest) -> Decision:
        """Store an order by its newest document. Database errors that the order did not cause are raised."""
        document = replace(document, is_due=is_due(order.facts.scheduled_for, self.now, self.zone))
        for _ in range(TRIES):
            try:
                return self.database.write_now(lambda tx: self._write(tx, order, account, document))
            except DBAPIError as error:
                if not is_refusal(error):
                    raise
        return Decision.REFUSED

    def _write(self, connection: Connection, order: Order, account: str, document: Newest) -> Decision:
        key = order.payment_key
        current = _read_current(connection, key, document.last)
        decision = decide(document, current, statuses=self.statuses, now=self.now, silence=self._silence)
        if decision == Decision.TAKEN_IN:  # unlike in a poll, several late orders do not mean a wrong time zone
            order = Lateness(self._late_minutes, self.zone).marked(order, self.now)
        arrival = self.statuses.arrival(order)
        if decision == Decision.UPDATED and current.stored is not None:
            self._update(connection, current.stored, arrival)
        elif decision in TAKEN_IN:
            if decision == Decision.TAKEN_IN_ENDED and arrival.ended_by is None:
                arrival = Arrival(order, arrival.status, EndedBy.SILENCE)
            # The order counts as received at its first delivery.
            orders.insert_new(connection, account, [arrival], min(document.first, self.now))
        if decision in WRITTEN:
            orders.append_events(connection, self.now, [(key, REPLAYED, order.status_id, arrival.status, None)])
        if decision not in UNFINISHED:
            quarantine.resolve(connection, [key], self.now, until=document.last)
        return decision

    def _update(self, connection: Connection, stored: Stored, arrival: Arrival) -> None:
        order = arrival.order
        before = orders.payloads(connection, [order.payment_key])[order.payment_key]
        news = differs(order, before, payment_codes=self.codes, zone=self.zone)
        change = lifecycle.merge(stored, order.status_id, differs=news, status_counts=True, problems=order.problems)
        orders.update_delivered(connection, stored, arrival, change, self.now)


def _read_current(connection: Connection, key: str, at: datetime) -> Current:
    """Lock and read the stored order. `at`: the document's time."""
    if lock_naming_held(connection, ORDER, [key]):
        return Current(is_held=True)
    stored = orders.stored(connection, [key]).get(key)
    if stored is None:
        return Current()
    return Current(
        stored=stored,
        has_news=orders.has_news_since(connection, key, at),
        is_unresolved=key in orders.with_unresolved_rows(connection, [key]),
    )


# ---- from quarantine -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Released:
    """The result for one quarantined document. `reason`: why it stays."""

    id: int
    payment_key: str | None
    outcome: Decision
    reason: str | None = None


def in_order(kept: Sequence[quarantine.Kept]) -> list[quarantine.Kept]:
    """Sort an order's documents by their last deliveries, although the clock may have been set back between them.

    One whose last delivery precedes the first of an earlier document was delivered after that.
    """
    came = {one.id: max(other.first_seen_utc for other in kept if other.id <= one.id) for one in kept}
    return sorted(kept, key=lambda one: (one.last_seen_utc < came[one.id], one.last_seen_utc, one.id))


def release(reimport: Reimport, row_id: int) -> list[Released]:
    """Store the order of this document by its newest quarantined document. Returns a result for each of them.

    Returns an empty list if the document is no longer in quarantine.
    """
    kept = in_order(reimport.database.read_now(lambda tx: quarantine.of_order(tx, row_id)))
    if not kept:
        return []
    last = max(one.last_seen_utc for one in kept)
    newest = kept.pop()
    document = read_stored(newest.payload)
    if document.reason is not None:
        tried = Released(newest.id, newest.payment_key, Decision.REFUSED, document.reason)
    else:
        order = reimport.read(document)
        first, earlier = min(one.first_seen_utc for one in (newest, *kept)), {one.payload_hash for one in kept}
        whole = Newest(order.status_id, newest.payload_hash, first, last, earlier)
        decision = reimport.store(order, newest.account, whole)
        reason = "database_refused" if decision == Decision.REFUSED else None
        tried = Released(newest.id, order.payment_key, decision, reason)
    rest = tried if tried.outcome in UNFINISHED else replace(tried, outcome=Decision.SUPERSEDED)
    return [*(replace(rest, id=one.id) for one in kept), tried]


# ---- from the journal ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result for one order of the journal. `at`: the delivery of its newest document."""

    payment_key: str
    account: str
    at: datetime
    fate: Decision
    order_number: int | None = None
    status: str | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """The contents of journal files. `torn`: the number of unreadable lines."""

    orders: dict[str, list[Entry]]
    torn: int


def find(paths: Iterable[Path], since: datetime | None = None) -> Found:
    """The orders with a document from `since` or later, sorted by their first document. Raises OSError."""
    entries = list(journal.entries(paths))
    found = alike((entry.payment_key, entry) for entry in entries if entry is not None)
    if since is not None:
        found = {key: kept for key, kept in found.items() if any(one.at >= since for one in kept)}
    return Found(found, torn=entries.count(None))


def replay(reimport: Reimport, found: Found) -> Iterator[Replayed]:
    """Store the orders found. Raises OSError and database errors that no order caused."""
    for keys in batches(found.orders):
        stored = reimport.database.read_now(partial(orders.stored, keys=keys))
        for key in keys:
            kept = found.orders[key]
            newest = kept[-1]
            if key in stored and stored[key].digest is not None and stored[key].digest == newest.digest:
                yield Replayed(key, newest.account, newest.at, Decision.KNOWN)
            else:
                yield _take(reimport, kept)


def _take(reimport: Reimport, kept: Sequence[Entry]) -> Replayed:
    """Store an order by its newest readable document, with the status from the last line."""
    *earlier, newest = kept
    key, account, at = newest.payment_key, newest.account, newest.at
    document = next(filter(None, map(_read, reversed(kept))), None)
    if document is None:
        return Replayed(key, account, at, Decision.BLANKED)
    order = replace(reimport.read(document), status_id=newest.status_id)
    whole = Newest(order.status_id, newest.digest, kept[0].at, at, {one.digest for one in earlier})
    decision = reimport.store(order, account, whole)
    if decision == Decision.REFUSED and document.digest == newest.digest:
        _keep(reimport, account, document, at)
    return Replayed(key, account, at, decision, order.facts.order_number, reimport.statuses.name(order.status_id))


def _keep(reimport: Reimport, account: str, document: Document, at: datetime) -> None:
    """Quarantine the document under its delivery time, if the database accepts it."""
    try:
        reimport.database.write_now(lambda tx: quarantine.keep(tx, account, document, "database_refused", at, times=0))
    except DBAPIError as error:
        if not is_refusal(error):
            raise


def _read(entry: Entry) -> Document | None:
    raw = None if entry.digest is None else journal.document(entry)
    document = None if raw is None else read_raw(raw)
    return None if document is None or document.reason is not None else document
