"""The journal taken in again, after an older copy of the database was put back.

decide: rules.late_documents
write: store.orders, as a delivery does, each order in a transaction of its own

Nothing is acknowledged here, nothing is sent, and nothing is accepted by itself: what was accepted after the copy was made
must not be accepted twice. It works beside a running daemon; who brings an order in first has it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from orderbridge import config
from orderbridge.jobs.findings import all_names
from orderbridge.jobs.late_documents import read_beside, update
from orderbridge.marketplace.schema import read_order, read_raw
from orderbridge.model import Arrival, Document, EndedBy, Order
from orderbridge.rules import late_documents as rules
from orderbridge.rules.late_documents import Fate, Journalled
from orderbridge.rules.statuses import Statuses
from orderbridge.store import journal, orders, quarantine, reference
from orderbridge.store.among import batches
from orderbridge.store.database import Database
from orderbridge.store.failures import is_refusal
from orderbridge.store.journal import Entry

EVENT = "replayed"
TRIES = 2  # the daemon may have brought an order in just then


@dataclass(frozen=True, slots=True)
class Replayed:
    """One order of the journal. `at`: when its newest document was delivered."""

    payment_key: str
    account: str
    at: datetime
    fate: Fate
    order_number: int | None = None
    status: str | None = None


@dataclass(slots=True)
class Found:
    """What the journal's files hold. `torn`: lines that cannot be read."""

    orders: dict[str, list[Entry]] = field(default_factory=dict)
    torn: int = 0


def find(paths: Iterable[Path], since: datetime | None = None) -> Found:
    """The orders with a document of that time or later, in the order of their first. Raises OSError."""
    found = Found()
    for entry in journal.entries(paths):
        if entry is None:
            found.torn += 1
        else:
            found.orders.setdefault(entry.payment_key, []).append(entry)
    if since is not None:
        found.orders = {key: kept for key, kept in found.orders.items() if any(one.at >= since for one in kept)}
    return found


class Replay:
    """Of one run of the command. `now`: of its beginning."""

    def __init__(self, database: Database, settings: config.Settings, now: datetime) -> None:
        self._database = database
        self._now = now
        self._configured = frozenset(database.read_now(lambda tx: all_names(tx, settings)).values())
        self._statuses = Statuses(settings.marketplace.needs_payment_status_id)
        self._silence = timedelta(hours=settings.orders.silence_hours)
        self._codes = database.read_now(reference.payment_codes)

    def run(self, found: Found) -> Iterator[Replayed]:
        """What becomes of each order. Raises OSError, and what the database raises when it is not the order's fault."""
        for keys in batches(found.orders):
            stored = self._database.read_now(lambda tx, keys=keys: orders.stored(tx, keys))  # type: ignore[misc]
            for key in keys:
                kept = found.orders[key]
                newest = kept[-1]
                if key in stored and stored[key].digest is not None and stored[key].digest == newest.digest:
                    yield Replayed(key, newest.account, newest.at, Fate.KNOWN)
                else:
                    yield self._take(kept)

    def _take(self, kept: Sequence[Entry]) -> Replayed:
        for place in range(len(kept) - 1, -1, -1):
            entry = kept[place]
            raw = None if entry.digest is None else journal.document(entry)
            document = None if raw is None else read_raw(raw)
            if document is not None and document.reason is None:
                order = read_order(document, payment_codes=self._codes)
                fate = self._store(document, order, kept[: place + 1])
                status = self._statuses.name(order.status_id)
                return Replayed(order.payment_key, entry.account, entry.at, fate, order.facts.order_number, status)
        return Replayed(kept[-1].payment_key, kept[-1].account, kept[-1].at, Fate.BLANKED)

    def _store(self, document: Document, order: Order, kept: Sequence[Entry]) -> Fate:
        for _ in range(TRIES):
            try:
                return self._database.write_now(lambda tx: self._write(tx, order, kept))
            except DBAPIError as error:
                if not is_refusal(error):
                    raise
        account = kept[-1].account
        try:
            self._database.write_now(lambda tx: quarantine.keep(tx, account, document, "database_refused", self._now))
        except DBAPIError as error:
            if not is_refusal(error):
                raise
        return Fate.REFUSED

    def _write(self, connection: Connection, order: Order, kept: Sequence[Entry]) -> Fate:
        entry, first = kept[-1], min(kept[0].at, self._now)
        beside = read_beside(connection, order.payment_key, entry.at)
        earlier = {one.digest for one in kept[:-1]}
        fate = rules.of_journalled(
            Journalled(entry.account, order.status_id, order.digest, earlier),
            beside,
            self._configured,
            statuses=self._statuses,
            if_unknown=rules.of_unknown(first, entry.at, self._now, self._silence),
        )
        if fate == Fate.UPDATED and beside.stored is not None:
            self._tell(
                connection,
                update(connection, beside.stored, order, self._codes, self._statuses, self._now),
            )
        elif fate in rules.TAKEN_IN:
            self._insert(connection, order, entry.account, first, ended=fate == Fate.TAKEN_IN_ENDED)
        return fate

    def _insert(self, connection: Connection, order: Order, account: str, first: datetime, *, ended: bool) -> None:
        """As it was then: `received_utc` is the time of the first document, `pos_revision` 0."""
        arrival = self._statuses.arrival(order)
        if ended and arrival.ended_by is None:
            arrival = Arrival(order, arrival.status, EndedBy.SILENCE)
        orders.insert_new(connection, account, [arrival], first)
        self._tell(connection, arrival)

    def _tell(self, connection: Connection, arrival: Arrival) -> None:
        order = arrival.order
        orders.append_events(connection, self._now, [(order.payment_key, EVENT, order.status_id, arrival.status, None)])
