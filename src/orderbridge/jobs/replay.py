"""The journal taken in again, after an older copy of the database was put back (jobs.reimport writes).

Nothing is acknowledged here, nothing is sent, and nothing is accepted automatically: what was accepted after the copy was
made must not be accepted twice.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from sqlalchemy.exc import DBAPIError

from orderbridge.jobs.reimport import Reimport
from orderbridge.marketplace.schema import read_order, read_raw
from orderbridge.model import Document
from orderbridge.rules.reimport import Fate, Newest
from orderbridge.store import journal, orders, quarantine
from orderbridge.store.failures import is_refusal
from orderbridge.store.journal import Entry
from orderbridge.store.rows import batches


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


def replay(reimport: Reimport, found: Found) -> Iterator[Replayed]:
    """What becomes of each order. Raises OSError, and what the database raises when it is not the order's fault."""
    for keys in batches(found.orders):
        stored = reimport.database.read_now(lambda tx, keys=keys: orders.stored(tx, keys))  # type: ignore[misc]
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
    order = replace(read_order(document, payment_codes=reimport.codes, zone=reimport.zone), status_id=newest.status_id)
    digests, is_due = {one.digest for one in earlier}, reimport.is_due(order)
    counts = Newest(order.status_id, newest.digest, kept[0].at, at, digests, is_due=is_due)
    fate = reimport.store(order, account, counts)
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
