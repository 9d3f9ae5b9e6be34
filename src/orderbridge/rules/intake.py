"""What one answer of get-current means beside what is stored: whose an order is, what is new, what it proves. Pure.

Each order of an answer is one of four things:
- new: nothing is stored of it. It is written whole, and accepted by itself where that is configured.
- foreign: another account that is configured delivered it first. It is neither merged nor acknowledged, only told.
- unchanged: the stored hash is that of these very bytes, and the status of them is the stored one, by our own books and
  by the service's. Nothing is written. It is acknowledged all the same: the service asks for that as long as it lists it.
- changed: anything else, also equal bytes where there is a doubt: the order had ended by silence, its status was withheld
  or called doubtful, its contents were refused or blanked (no hash is stored then), its account has left.

That hangs on what the tables say at the moment of the answer, read anew with each poll in one batch. What is kept in
memory between polls (marketplace.seen) spares only the reading of equal bytes: what they say cannot change. So a file
put back from a backup, a row that a till wrote or somebody deleted, another daemon's work: the next answer finds it.

What an answer proves. A list speaks by what it shows and by what it lacks:
- What it shows of an order counts if no action of that order was on the wire or unresolved at any moment between the
  sending of the poll's request and the acknowledgement: the lane tells, which is held that long. Otherwise its contents
  are stored, its status is not, no hash is, and it is not acknowledged.
- What it lacks counts only when the list is known to be whole: asked for without a filter, each of its documents with a
  key (one without could be any order), and not cut by the service.
- Of an order that is in a list twice the furthest status counts (rules.statuses).
What such proofs do to rows whose outcome is unknown, rules.retry.after_poll decides.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from orderbridge.doubts import TOTAL_MISMATCH
from orderbridge.model import RECEIVED, Document, Order, Stored
from orderbridge.rules import lifecycle

MANY_STUCK = 20
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
    """Whether the service may have more than it lists. `list_limit` is what it lists at most; None: nobody knows.

    Nobody knows: a round number of orders looks like the end of a page.
    """
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

    Amounts that do not add up are for the till to look at, and no reason to let a customer wait.
    """
    if order.status_id != RECEIVED or any(not problem.startswith(TOTAL_MISMATCH) for problem in order.problems):
        return False
    return scheduled_too or order.facts.scheduled_for is None
