"""What a document of the journal means beside what is stored of its order, when it is taken in again. Pure.

The journal is older than the tables or newer, order by order. Which of them it is hangs on no clock where that can be
helped: the stored document is one of the journal's (by its digest), and what the journal has behind that one is newer.

Never: an order that ended comes to life again, a status goes back, newer contents make room for older ones.
"""

from collections.abc import Collection
from datetime import datetime, timedelta
from enum import StrEnum

from orderbridge.model import CANCELED, COMPLETE_WITH_PAYMENT, CONFIRMED, IN_DELIVERY, RECEIVED, EndedBy, Stored


class Fate(StrEnum):
    """What becomes of an order's newest document."""

    TAKEN_IN = "taken_in"  # the tables did not have the order: the till sees it as new
    TAKEN_IN_ENDED = "taken_in_ended"  # the same, long ago: it stands there as over, and no till prints it
    UPDATED = "updated"
    KNOWN = "known"
    NEWER_HERE = "newer_here"
    ENDED_HERE = "ended_here"
    OTHER_ACCOUNT = "other_account"
    WAITS = "waits"  # an action of this order has no verdict yet, or somebody holds the order
    BLANKED = "blanked"  # its documents were blanked, or are damaged
    REFUSED = "refused"  # by the database, and kept in quarantine if that takes it


UNFINISHED = {Fate.WAITS, Fate.REFUSED}
ON_THE_WAY_THROUGH = {RECEIVED: 1, CONFIRMED: 2, IN_DELIVERY: 3, COMPLETE_WITH_PAYMENT: 5, CANCELED: 6}


def of_unknown(first: datetime, last: datetime, now: datetime, silence: timedelta) -> Fate:
    """An order that the tables do not have, delivered first and last at these times."""
    return Fate.TAKEN_IN if max(first, last) > now - silence else Fate.TAKEN_IN_ENDED


def of_known(
    stored: Stored,
    status_id: int | None,
    digest: str | None,
    *,
    earlier: Collection[str | None],
    changed_since: bool,
    is_ours: bool,
) -> Fate:
    """An order that the tables have. `earlier`: the digests before this one in the journal, of the same order.

    `changed_since`: the stored order changed at the time of this document, or later.
    """
    if stored.digest is not None and stored.digest == digest:
        return Fate.KNOWN
    if not is_ours:
        return Fate.OTHER_ACCOUNT
    if stored.ended_by in {EndedBy.COMPLETED, EndedBy.CANCELLED}:
        return Fate.ENDED_HERE
    if ON_THE_WAY_THROUGH.get(status_id or 0, 4) < ON_THE_WAY_THROUGH.get(stored.status_id or 0, 0):
        return Fate.NEWER_HERE
    if stored.digest is not None and stored.digest in earlier:
        return Fate.UPDATED
    return Fate.NEWER_HERE if changed_since else Fate.UPDATED
