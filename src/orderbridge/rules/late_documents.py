"""What a document means that no poll has just brought: out of quarantine, or of the journal, beside what is stored. Pure.

Of both kinds: as long as somebody holds the order, or an action of it has no verdict, its status says nothing, and it
waits. What is taken in is not acknowledged and not accepted by itself.

A document in quarantine was set aside while its order went on: it is taken in only where nothing newer is stored.

The journal is older than the tables or newer, order by order. Which of them it is hangs on no clock where that can be
helped: the stored document is one of the journal's (by its digest), and what the journal has behind that one is newer.

Never: an order that ended comes to life again, a status goes back, newer contents make room for older ones.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from orderbridge.model import EndedBy, Stored
from orderbridge.rules.intake import may_take
from orderbridge.rules.statuses import Statuses


@dataclass(frozen=True, slots=True)
class Beside:
    """What the tables say of the document's order, read in the transaction that may write it.

    `is_held`: by somebody else; nothing more is known then. `stored`: None where they do not have it. `has_news`: it
    changed at the time of the document, or later. `is_unresolved`: an action of it has no verdict yet.
    """

    is_held: bool = False
    stored: Stored | None = None
    has_news: bool = False
    is_unresolved: bool = False


# ---- quarantine ------------------------------------------------------------------------------------------------------


class Release(StrEnum):
    """What becomes of a document in quarantine."""

    TAKEN_IN = "taken_in"
    SUPERSEDED = "superseded"  # newer news of this order is in the tables already
    FOREIGN = "foreign"  # the order belongs to another account by now
    WAITS = "waits"  # an action of this order has no verdict yet, or somebody holds the order
    KEPT = "kept"  # the cause is still there


STAY = {Release.KEPT, Release.WAITS, Release.FOREIGN}  # in quarantine


def of_quarantined(beside: Beside, account: str) -> Release:
    """A document that reads as an order now. `account`: which one delivered it."""
    if beside.is_held:
        return Release.WAITS
    if beside.stored is None:
        return Release.TAKEN_IN
    if beside.stored.account != account:
        return Release.FOREIGN
    if beside.has_news:
        return Release.SUPERSEDED
    return Release.WAITS if beside.is_unresolved else Release.TAKEN_IN


# ---- the journal -----------------------------------------------------------------------------------------------------


class Fate(StrEnum):
    """What becomes of an order's newest document in the journal."""

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


TAKEN_IN = {Fate.TAKEN_IN, Fate.TAKEN_IN_ENDED}
UNFINISHED = {Fate.WAITS, Fate.REFUSED}


def of_unknown(first: datetime, last: datetime, now: datetime, silence: timedelta) -> Fate:
    """An order that the tables do not have, delivered first and last at these times."""
    return Fate.TAKEN_IN if max(first, last) > now - silence else Fate.TAKEN_IN_ENDED


@dataclass(frozen=True, slots=True)
class Journalled:
    """A document of the journal. `earlier`: the digests before this one, of the same order."""

    account: str
    status_id: int | None
    digest: str | None
    earlier: Collection[str | None]


def of_journalled(
    document: Journalled,
    beside: Beside,
    configured: Collection[str],
    *,
    statuses: Statuses,
    if_unknown: Fate = Fate.TAKEN_IN,
) -> Fate:
    """`configured`: the names of all accounts. `if_unknown`: what `of_unknown` says."""
    if beside.is_held:
        return Fate.WAITS
    if beside.stored is None:
        return if_unknown
    fate = _of_known(document, beside.stored, configured, statuses, has_news=beside.has_news)
    return Fate.WAITS if fate == Fate.UPDATED and beside.is_unresolved else fate


def _of_known(
    document: Journalled, stored: Stored, configured: Collection[str], statuses: Statuses, *, has_news: bool
) -> Fate:
    digest = document.digest
    if stored.digest is not None and stored.digest == digest:
        return Fate.KNOWN
    if not may_take(stored, document.account, configured):
        return Fate.OTHER_ACCOUNT
    if stored.ended_by in {EndedBy.COMPLETED, EndedBy.CANCELLED}:
        return Fate.ENDED_HERE
    if _goes_back(document.status_id, stored.status_id, statuses):
        return Fate.NEWER_HERE
    if stored.digest is not None and stored.digest in document.earlier:
        return Fate.UPDATED
    return Fate.NEWER_HERE if has_news else Fate.UPDATED


def _goes_back(status_id: int | None, stored_id: int | None, statuses: Statuses) -> bool:
    """Whether a document's status comes before the stored one. One without a name comes before an end alone."""
    ranks = statuses.ranks
    return ranks.get(status_id or 0, len(statuses.active)) < ranks.get(stored_id or 0, 0)
