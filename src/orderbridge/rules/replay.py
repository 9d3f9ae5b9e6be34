"""What becomes of a document that no poll has just delivered: one from quarantine, or one from the journal. Pure.

Of several documents of one order only the newest counts, whichever account delivered it. It is compared with the stored
order:
- While another session holds the order, or an action of it has no verdict, the document waits.
- Whether the stored order is older does not depend on a clock where that can be avoided: if the stored document is one of
  the order's earlier ones (by its digest), this one is newer.
- An order that ended does not come to life again, a status does not go back, newer contents are not overwritten by older
  ones.

What is taken in is not acknowledged and not accepted automatically.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from orderbridge.model import EndedBy, Stored
from orderbridge.rules.lifecycle import Statuses


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
