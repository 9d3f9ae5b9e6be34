"""Takes documents in that no poll has just delivered: from quarantine, when the cause is gone, and from the journal.

decide: `fate_of`, rules.lifecycle
write: store.orders, as a delivery does, each order in a transaction of its own

Of several documents of one order only the newest counts, whichever account delivered it. It is compared with the stored
order:
- While another session holds the order, or an action of it has no verdict, the document waits.
- Whether the stored order is older does not depend on a clock where that can be avoided: if the stored document is one of
  the order's earlier ones (by its digest), this one is newer.
- An order that ended does not come to life again, a status does not go back, newer contents are not overwritten by older
  ones.

It works beside a running daemon: whichever stores an order first has it. Nothing is acknowledged here, nothing is sent, and
nothing is accepted automatically: what was accepted after a copy of the database was made must not be accepted twice. (A
document that only the database had refused was acknowledged when it came; any other one the service delivers again.)
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
from orderbridge.rules.lifecycle import ENDS, Statuses
from orderbridge.store import journal, orders, quarantine, reference
from orderbridge.store.database import Database
from orderbridge.store.failures import is_refusal
from orderbridge.store.journal import Entry
from orderbridge.store.rows import ORDER, alike, batches, lock_naming_held

TRIES = 2  # the daemon may have stored the order just then


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest document of an order, which was first delivered at `first`; this document at `last`.

    `earlier`: the digests of the order's earlier documents. `is_due`: the order is not scheduled for later.
    """

    status_id: int | None
    digest: str | None
    first: datetime
    last: datetime
    earlier: Collection[str | None] = ()
    is_due: bool = True


@dataclass(frozen=True, slots=True)
class Beside:
    """The stored order, read in the transaction that may write it.

    `is_held`: by another session; the rest is then unknown. `stored`: None when there is none. `has_news`: it changed at the
    time of the document or later. `is_unresolved`: an action of it has no verdict yet.
    """

    is_held: bool = False
    stored: Stored | None = None
    has_news: bool = False
    is_unresolved: bool = False


class Fate(StrEnum):
    """What becomes of an order's newest document."""

    TAKEN_IN = "taken_in"  # no such order was stored: the till sees it as new
    TAKEN_IN_ENDED = "taken_in_ended"  # the same, long ago: it is stored as ended, and no till prints it
    UPDATED = "updated"
    KNOWN = "known"
    SUPERSEDED = "superseded"  # what is stored is newer, or the order has ended
    WAITS = "waits"  # an action of this order has no verdict yet, or another session holds the order
    BLANKED = "blanked"  # its documents were blanked, or are damaged
    REFUSED = "refused"  # by the database, or it still cannot become an order


TAKEN_IN = {Fate.TAKEN_IN, Fate.TAKEN_IN_ENDED}
WRITTEN = {*TAKEN_IN, Fate.UPDATED}
UNFINISHED = {Fate.WAITS, Fate.REFUSED}


def fate_of(document: Newest, beside: Beside, *, statuses: Statuses, now: datetime, silence: timedelta) -> Fate:
    """`silence`: after so long without news an order has ended."""
    if beside.is_held:
        return Fate.WAITS
    if beside.stored is None:
        is_over = document.is_due and max(document.first, document.last) <= now - silence
        return Fate.TAKEN_IN_ENDED if is_over else Fate.TAKEN_IN
    fate = _of_known(document, beside.stored, statuses, has_news=beside.has_news)
    return Fate.WAITS if fate == Fate.UPDATED and beside.is_unresolved else fate


def _of_known(document: Newest, stored: Stored, statuses: Statuses, *, has_news: bool) -> Fate:
    if stored.digest is not None and stored.digest == document.digest:
        return Fate.KNOWN
    if stored.ended_by in {EndedBy.COMPLETED, EndedBy.CANCELLED}:
        return Fate.SUPERSEDED
    if _goes_back(document.status_id, stored.status_id, statuses):
        return Fate.SUPERSEDED
    if stored.digest is not None and stored.digest in document.earlier:
        return Fate.UPDATED
    return Fate.SUPERSEDED if has_news else Fate.UPDATED


def _goes_back(status_id: int | None, stored_id: int | None, statuses: Statuses) -> bool:
    """Whether a document's status comes before the stored one. One without a name comes before an end alone."""
    ranks = statuses.ranks
    return ranks.get(status_id or 0, len(statuses.active)) < ranks.get(stored_id or 0, 0)


class Reimport:
    """Of one run of a command. `now`: of its beginning."""

    def __init__(self, database: Database, settings: config.Settings, now: datetime) -> None:
        self.database = database
        self.now = now
        self.statuses = Statuses(settings.marketplace.needs_payment_status_id)
        self.codes = database.read_now(reference.payment_codes)
        self._silence = timedelta(hours=settings.orders.silence_hours)
        self.zone = ZoneInfo(settings.marketplace.timezone)
        minutes = settings.orders.late_minutes
        self._late = timedelta(minutes=minutes) if minutes else None

    def read(self, document: Document) -> Order:
        return read_order(document, payment_codes=self.codes, zone=self.zone)

    def store(
        self,
        order: Order,
        account: str,
        digest: str | None,
        *,
        first: datetime,
        last: datetime,
        earlier: Collection[str | None],
    ) -> Fate:
        """By its newest document (see `Newest`). Raises what the database raises when it is not the order's fault."""
        is_due_now = is_due(order.facts.scheduled_for, self.now, self.zone)
        document = Newest(order.status_id, digest, first, last, earlier, is_due=is_due_now)
        for _ in range(TRIES):
            try:
                return self.database.write_now(lambda tx: self._write(tx, order, account, document))
            except DBAPIError as error:
                if not is_refusal(error):
                    raise
        return Fate.REFUSED

    def _write(self, connection: Connection, order: Order, account: str, document: Newest) -> Fate:
        key = order.payment_key
        beside = _beside(connection, key, document.last)
        fate = fate_of(document, beside, statuses=self.statuses, now=self.now, silence=self._silence)
        if fate == Fate.TAKEN_IN:  # judged alone: that several are as old says nothing about the time zone here
            order = Lateness(self._late, self.zone).marked(order, self.now)
        arrival = self.statuses.arrival(order)
        if fate == Fate.UPDATED and beside.stored is not None:
            self._update(connection, beside.stored, arrival)
        elif fate in TAKEN_IN:
            if fate == Fate.TAKEN_IN_ENDED and arrival.ended_by is None:
                arrival = Arrival(order, arrival.status, EndedBy.SILENCE)
            # As it was then: the order was received when its first document came.
            orders.insert_new(connection, account, [arrival], min(document.first, self.now))
        if fate in WRITTEN:
            orders.append_events(connection, self.now, [(key, REPLAYED, order.status_id, arrival.status, None)])
        if fate not in UNFINISHED:
            quarantine.resolve(connection, [key], self.now, until=document.last)
        return fate

    def _update(self, connection: Connection, stored: Stored, arrival: Arrival) -> None:
        order = arrival.order
        before = orders.payloads(connection, [order.payment_key])[order.payment_key]
        news = differs(order, before, payment_codes=self.codes, zone=self.zone)
        change = lifecycle.merge(stored, order.status_id, differs=news, status_counts=True, problems=order.problems)
        orders.update_delivered(connection, stored, arrival, change, self.now)


def _beside(connection: Connection, key: str, at: datetime) -> Beside:
    """The stored order, held for this transaction. `at`: the document's time."""
    if lock_naming_held(connection, ORDER, [key]):
        return Beside(is_held=True)
    stored = orders.stored(connection, [key]).get(key)
    if stored is None:
        return Beside()
    return Beside(
        stored=stored,
        has_news=orders.has_news_since(connection, key, at),
        is_unresolved=key in orders.with_unresolved_rows(connection, [key]),
    )


# ---- from quarantine ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Released:
    """One document that was tried. `reason` says why it stays."""

    id: int
    payment_key: str | None
    outcome: Fate
    reason: str | None = None


def release(reimport: Reimport, row_id: int) -> list[Released]:
    """Take the order of this document in, by the newest document that is kept of it. Returns what became of each.

    Empty when the document is not in quarantine any more.
    """
    kept = reimport.database.read_now(lambda tx: quarantine.of_order(tx, row_id))
    if not kept:
        return []
    documents = [read_stored(one.payload) for one in kept]
    # Times are not enough: a clock may have been set back since an earlier one came, and an order that ended stays ended.
    place = max(range(len(kept)), key=lambda at: (documents[at].status_id in ENDS, at))
    last = kept[-1].last_seen_utc
    newest, document = kept.pop(place), documents[place]
    if document.reason is not None:
        tried = Released(newest.id, newest.payment_key, Fate.REFUSED, document.reason)
    else:
        order = reimport.read(document)
        first, earlier = min(one.first_seen_utc for one in (newest, *kept)), {one.payload_hash for one in kept}
        fate = reimport.store(order, newest.account, newest.payload_hash, first=first, last=last, earlier=earlier)
        tried = Released(newest.id, order.payment_key, fate, "database_refused" if fate == Fate.REFUSED else None)
    rest = tried if tried.outcome in UNFINISHED else replace(tried, outcome=Fate.SUPERSEDED)
    return [*(replace(rest, id=one.id) for one in kept), tried]


# ---- from the journal ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Replayed:
    """One order of the journal. `at`: when its newest document was delivered."""

    payment_key: str
    account: str
    at: datetime
    fate: Fate
    order_number: int | None = None
    status: str | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """What the journal's files hold. `torn`: lines that cannot be read."""

    orders: dict[str, list[Entry]]
    torn: int


def find(paths: Iterable[Path], since: datetime | None = None) -> Found:
    """The orders with a document of that time or later, in the order of their first. Raises OSError."""
    entries = list(journal.entries(paths))
    found = alike((entry.payment_key, entry) for entry in entries if entry is not None)
    if since is not None:
        found = {key: kept for key, kept in found.items() if any(one.at >= since for one in kept)}
    return Found(found, torn=entries.count(None))


def replay(reimport: Reimport, found: Found) -> Iterator[Replayed]:
    """What becomes of each order. Raises OSError, and what the database raises when it is not the order's fault."""
    for keys in batches(found.orders):
        stored = reimport.database.read_now(partial(orders.stored, keys=keys))
        for key in keys:
            kept = found.orders[key]
            newest = kept[-1]
            if key in stored and stored[key].digest is not None and stored[key].digest == newest.digest:
                yield Replayed(key, newest.account, newest.at, Fate.KNOWN)
            else:
                yield _take(reimport, kept)


def _take(reimport: Reimport, kept: Sequence[Entry]) -> Replayed:
    """By the newest document that can be read. Where that is not the last one, the last one's line still has its status."""
    *earlier, newest = kept
    key, account, at = newest.payment_key, newest.account, newest.at
    document = next(filter(None, map(_read, reversed(kept))), None)
    if document is None:
        return Replayed(key, account, at, Fate.BLANKED)
    order = replace(reimport.read(document), status_id=newest.status_id)
    digests = {one.digest for one in earlier}
    fate = reimport.store(order, account, newest.digest, first=kept[0].at, last=at, earlier=digests)
    if fate == Fate.REFUSED and document.digest == newest.digest:
        _keep(reimport, account, document, at)
    return Replayed(key, account, at, fate, order.facts.order_number, reimport.statuses.name(order.status_id))


def _keep(reimport: Reimport, account: str, document: Document, at: datetime) -> None:
    """In quarantine, if that takes it, at the time at which it was delivered: it is not newer than what is kept there."""
    try:
        reimport.database.write_now(lambda tx: quarantine.keep(tx, account, document, "database_refused", at))
    except DBAPIError as error:
        if not is_refusal(error):
            raise


def _read(entry: Entry) -> Document | None:
    raw = None if entry.digest is None else journal.document(entry)
    document = None if raw is None else read_raw(raw)
    return None if document is None or document.reason is not None else document
