"""Sorts the orders of one answer by what is stored, and decides what the answer proves.

Each order of an answer is one of:

- new: it is not stored. It is written, and accepted automatically if that is configured.
- foreign: another configured account delivered it first. It is only logged, neither stored nor acknowledged.
- unchanged: the stored hash is that of these bytes, and both stored status ids are the delivered status. Nothing is
  written, but it is acknowledged, because the marketplace lists it until then.
- changed: all others. This includes equal bytes if the order ended by silence, its status was withheld or doubtful, its
  contents were refused or blanked (then no hash is stored), or its account was removed.

This compares with the tables as read for each answer. The cache between polls (marketplace.documents.Seen) only saves
parsing equal bytes. So a restored backup, or a row that a till, a person or another daemon changed, is noticed with the
next answer.

A list proves something by what it shows and what it lacks:

- The shown status of an order counts if no action of the order was in flight or unresolved from the sending of the
  poll to the acknowledgement. The lane, which is held that long, ensures this. Otherwise only the contents are stored,
  without a hash, and the order is not acknowledged.
- A missing order counts only if the list is whole: requested without a filter, not cut, and each document has a key.
- If a list has an order twice, the furthest status counts (rules.lifecycle).

rules.retry.after_poll decides what this means for rows with an unknown outcome.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, timezone, tzinfo

from orderbridge.clock import local_moment
from orderbridge.model import LATE, RECEIVED, TOTAL_MISMATCH, Document, Order, Stored
from orderbridge.rules import lifecycle

MANY_STUCK = 10
HOUR = timedelta(hours=1)
FRESH = (timedelta(minutes=-2), timedelta(minutes=5))  # the usual age of an order at its arrival
ORDERS_OF_A_ZONE = 3  # consecutive orders, not all at one moment, that are off by the same hours: the zone is wrong
_ANOTHER_ZONE = timezone(HOUR)
USUAL_PAGES = frozenset({50, 100, 200, 250, 500, 1000})


@dataclass(frozen=True, slots=True)
class Sorted:
    """The orders of an answer by kind (see above)."""

    new: list[Document] = field(default_factory=list)
    changed: list[Document] = field(default_factory=list)
    unchanged: list[Document] = field(default_factory=list)
    foreign: list[Document] = field(default_factory=list)


def sort(
    good: Mapping[str, Document], known: Mapping[str, Stored], *, account: str, configured: Collection[str]
) -> Sorted:
    """Sort an answer's orders. `good`: the documents by payment_key."""
    listed = Sorted()
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
    """Whether the order may belong to this account: it delivered it first, or that account is no longer configured."""
    return stored.account == account or stored.account not in configured


def is_cut(documents: Sequence[Document], list_limit: int | None) -> bool:
    """Whether the marketplace may have more orders than it lists.

    `list_limit` is the known maximum of a list. If it is None, a round number of orders suggests the end of a page.
    """
    number = len(documents)
    return number in USUAL_PAGES if list_limit is None else number >= list_limit


def is_full(documents: Sequence[Document], stuck: int, list_limit: int | None = None) -> bool:
    """Whether documents that cannot be acknowledged (`stuck` of them) may fill the list and hide orders.

    They remain in every list. A list of nothing else is as suspicious as a round number of documents.
    """
    if list_limit is None and stuck == len(documents) >= MANY_STUCK:
        return True
    return is_cut(documents, list_limit) and 2 * stuck >= len(documents)


def is_whole(documents: Sequence[Document], *, asked: int | None = None, list_limit: int | None = None) -> bool:
    """Whether orders that the list lacks are evidence. `asked`: the requested status; None: all.

    A document without a key could be any order.
    """
    return (
        asked is None
        and not is_cut(documents, list_limit)
        and all(document.payment_key is not None for document in documents)
    )


def accepts_itself(order: Order, *, scheduled_too: bool) -> bool:
    """Whether an order may be accepted automatically: newly received, readable, and not scheduled.

    Amounts that do not add up do not prevent it, since the till can check them later.
    """
    if order.status_id != RECEIVED or any(not problem.startswith(TOTAL_MISMATCH) for problem in order.problems):
        return False
    return scheduled_too or order.facts.scheduled_for is None


class Lateness:
    """Finds late orders of one account.

    If the last orders are all off by the same whole hours, the configured time zone is wrong, and these hours are
    ignored. With 0 `minutes` no order is late.
    """

    def __init__(self, minutes: int, zone: tzinfo) -> None:
        self._limit = timedelta(minutes=minutes)
        self._zone = zone
        self._seen: dict[str, tuple[datetime, int]] = {}  # the last orders

    @property
    def hours_off(self) -> int | None:
        """The hours by which the configured time zone is wrong; None if it is right or not known."""
        moments, hours = {at for at, _ in self._seen.values()}, {hours for _, hours in self._seen.values()}
        is_certain = len(self._seen) == ORDERS_OF_A_ZONE and len(moments) > 1 and len(hours) == 1
        return hours.pop() or None if is_certain else None

    def marked(self, order: Order, now: datetime) -> Order:
        """The order, with the problem `late` if it is. `now`: by the marketplace's clock, if known."""
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
        if not self._limit:
            return order
        is_late = now > wanted if wanted is not None else ordered is not None and now - ordered > self._limit
        return replace(order, problems=(*order.problems, LATE)) if is_late else order


def _has_offset(text: str | None) -> bool:
    return local_moment(text, UTC) == local_moment(text, _ANOTHER_ZONE)


def _whole_hours(age: timedelta) -> int:
    """The whole hours that would explain this age of a new order; 0: none."""
    hours = round(age / HOUR)
    least, most = FRESH
    return hours if least <= age - hours * HOUR <= most else 0
