"""Documents in quarantine, tried again when the cause is gone (docs/design.md, Documents).

A document that reads as an order now is written as a delivery would be. It is not acknowledged here: what only the
database had refused was acknowledged when it came, and anything else the service delivers again.
"""

from dataclasses import dataclass, replace

from orderbridge.jobs.reimport import Reimport
from orderbridge.marketplace.schema import read_order, read_stored
from orderbridge.rules.reimport import UNFINISHED, Fate, Newest
from orderbridge.rules.statuses import ENDS
from orderbridge.store import quarantine


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
        order = read_order(document, payment_codes=reimport.codes, zone=reimport.zone)
        first = min(one.first_seen_utc for one in (newest, *kept))
        digests = {one.payload_hash for one in kept}
        is_due = reimport.is_due(order)
        counts = Newest(order.status_id, newest.payload_hash, first, last, digests, is_due=is_due)
        fate = reimport.store(order, newest.account, counts)
        tried = Released(newest.id, order.payment_key, fate, "database_refused" if fate == Fate.REFUSED else None)
    rest = tried if tried.outcome in UNFINISHED else replace(tried, outcome=Fate.SUPERSEDED)
    return [*(replace(rest, id=one.id) for one in kept), tried]
