"""What one answer of get-current means beside what is stored: whose an order is, what is new, what it proves. Pure.

Each order of an answer is one of four things:
- new: nothing is stored of it. It is written whole, and accepted by itself where that is configured.
- foreign: another account that is configured delivered it first. It is neither merged nor acknowledged, only logged.
- unchanged: the stored hash is that of these very bytes, and the status of them is the stored one, by our own books and
  by the service's. Nothing is written. It is acknowledged all the same: the service asks for that as long as it lists it.
- changed: anything else, also equal bytes where there is a doubt: the order had ended by silence, its status was withheld
  or called doubtful, its contents were refused or blanked (no hash is stored then), its account has left.

That hangs on what the tables say at the moment of the answer, read anew with each poll in one batch. What is kept in
memory between polls (marketplace.documents.Seen) spares only the reading of equal bytes: what they say cannot change. So a file
put back from a backup, a row that a till wrote or a person deleted, another daemon's work: the next answer finds it.

What an answer proves. A list speaks by what it shows and by what it lacks:
- What it shows of an order counts if no action of that order was on the wire or unresolved at any moment between the
  sending of the poll's request and the acknowledgement: the lane tells, which is held that long. Otherwise its contents
  are stored, its status is not, no hash is, and it is not acknowledged.
- What it lacks counts only when the list is known to be whole: asked for without a filter, each of its documents with a
  key (one without could be any order), and not cut by the service.
- Of an order that is in a list twice the furthest status counts (rules.lifecycle).
What such proofs do to rows whose outcome is unknown, rules.retry.after_poll decides.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, timezone, tzinfo

from orderbridge.clock import local_moment
from orderbridge.model import LATE, RECEIVED, TOTAL_MISMATCH, Document, Order, Stored
from orderbridge.rules import lifecycle

MANY_STUCK = 10
HOUR = timedelta(hours=1)
FRESH = (timedelta(minutes=-2), timedelta(minutes=5))  # how old an order is when it comes in, as a rule
ORDERS_OF_A_ZONE = 3  # in a row that are off by the same hours, and not all at one moment: the time zone is wrong
_ANOTHER_ZONE = timezone(HOUR)
USUAL_PAGES = frozenset({50, 100, 200, 250, 500, 1000})


@dataclass(frozen=True, slots=True)
class Sorted:
    """An answer's orders by what is to be done with them, and what was known of them before.

    `foreign`: they belong to another account that is configured.
    """

    known: Mapping[str, Stored]
    new: list[Document] = field(default_factory=list)
    changed: list[Document] = field(default_factory=list)
    unchanged: list[Document] = field(default_factory=list)
    foreign: list[Document] = field(default_factory=list)


def sort(
    good: Mapping[str, Document], known: Mapping[str, Stored], *, account: str, configured: Collection[str]
) -> Sorted:
    """What is to be done with each of an answer's orders. `good`: its documents by payment_key."""
    listed = Sorted(known)
    for key, document in good.items():
        stored = known.get(key)
        if stored is None:
            listed.new.append(document)
        elif not may_take(stored, account, configured):
            listed.foreign.append(document)
        elif stored.account == account and lifecycle.is_unchanged(stored, document):
            listed.unchanged.append(document)
        else:
            listed.changed.append(document)
    return listed


def may_take(stored: Stored, account: str, configured: Collection[str]) -> bool:
    """An order belongs to the account that delivered it first, as long as that one is configured."""
    return stored.account == account or stored.account not in configured


def is_cut(documents: Sequence[Document], list_limit: int | None) -> bool:
    """Whether the service may have more than it lists. `list_limit` is what it lists at most; None: not known. Then a round number of orders looks like the end of a page."""
    number = len(documents)
    return number in USUAL_PAGES if list_limit is None else number >= list_limit


def is_full(documents: Sequence[Document], stuck: int, list_limit: int | None = None) -> bool:
    """Whether orders may be missing because the list is full of documents that cannot be acknowledged, `stuck` of them.

    They stand in each list for ever. Nothing but them is as suspicious as a round number of documents.
    """
    if list_limit is None and stuck == len(documents) >= MANY_STUCK:
        return True
    return is_cut(documents, list_limit) and 2 * stuck >= len(documents)


def is_whole(documents: Sequence[Document], *, asked: int | None = None, list_limit: int | None = None) -> bool:
    """Whether what this list lacks is evidence. `asked`: the status that it was asked for; None: all of them.

    A document without a key could be any order.
    """
    return (
        asked is None
        and not is_cut(documents, list_limit)
        and all(document.payment_key is not None for document in documents)
    )


def accepts_itself(order: Order, *, scheduled_too: bool) -> bool:
    """Whether an order may be accepted without a person: received only now, readable, and wanted soon.

    Amounts that do not add up are for the till to check, and no reason to let a customer wait.
    """
    if order.status_id != RECEIVED or any(not problem.startswith(TOTAL_MISMATCH) for problem in order.problems):
        return False
    return scheduled_too or order.facts.scheduled_for is None


class Lateness:
    """Which new orders of one account are late.

    Where the last ones all came in older, or younger, by the same whole hours, it is the configured time zone that is
    wrong: they are judged without these hours. `limit`: None: none is late.
    """

    def __init__(self, limit: timedelta | None, zone: tzinfo) -> None:
        self._limit = limit
        self._zone = zone
        self._seen: dict[str, tuple[datetime, int]] = {}  # the last orders

    @property
    def hours_off(self) -> int | None:
        """By which the configured time zone is behind the service's; None: it is right, or not known."""
        moments, hours = {at for at, _ in self._seen.values()}, {hours for _, hours in self._seen.values()}
        is_certain = len(self._seen) == ORDERS_OF_A_ZONE and len(moments) > 1 and len(hours) == 1
        return hours.pop() or None if is_certain else None

    def marked(self, order: Order, now: datetime) -> Order:
        """The same order, with `late` among its problems where it is. `now`: by the service's clock, if that is known."""
        ordered, wanted = (
            local_moment(text, self._zone) for text in (order.facts.ordered_at, order.facts.scheduled_for)
        )
        if order.status_id != RECEIVED:
            return order
        if ordered is not None and not _has_offset(order.facts.ordered_at):
            self._seen.setdefault(order.payment_key, (now, _whole_hours(now - ordered)))
            if len(self._seen) > ORDERS_OF_A_ZONE:
                del self._seen[next(iter(self._seen))]
        now -= HOUR * (self.hours_off or 0)
        if self._limit is None:
            return order
        is_late = now > wanted if wanted is not None else ordered is not None and now - ordered > self._limit
        return replace(order, problems=(*order.problems, LATE)) if is_late else order


def _has_offset(text: str | None) -> bool:
    return local_moment(text, UTC) == local_moment(text, _ANOTHER_ZONE)


def _whole_hours(age: timedelta) -> int:
    """The whole hours by which a fresh order would seem as old as this; 0: it does not."""
    hours = round(age / HOUR)
    least, most = FRESH
    return hours if least <= age - hours * HOUR <= most else 0
