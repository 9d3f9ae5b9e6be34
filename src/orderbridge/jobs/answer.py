"""One answer of get-current while it is taken in: what it holds, and what was done with it."""

import asyncio
from dataclasses import dataclass, field

from orderbridge.model import Document
from orderbridge.observe.metrics import NOT_TAKEN_IN
from orderbridge.store.orders import Mark

PARALLEL_ACKNOWLEDGEMENTS = 8


@dataclass(slots=True)
class Polled:
    """What one tick did. `again_in`: seconds until the next one may be made. `ok`: a whole list was taken in.

    `result`: how the poll ended (observe.metrics). `stuck`: documents that cannot be acknowledged; `is_full`: they may hide
    others.
    """

    again_in: float = 0.0
    ok: bool = False
    result: str = NOT_TAKEN_IN
    delivered: int = 0
    new: int = 0
    changed: int = 0
    unchanged: int = 0
    withheld: int = 0
    foreign: int = 0
    quarantined: int = 0
    not_stored: int = 0
    acknowledged: int = 0
    dropped: int = 0
    stuck: int = 0
    is_full: bool = False


@dataclass(slots=True)
class Answer:
    """`good`: its orders by payment_key. `held`: whose lanes are ours. `deadline`: of acknowledgements, monotonic.

    `unanswered`: acknowledgements under way; `is_stored`: none will follow; `all_answered`: both are over.
    """

    good: dict[str, Document]
    began: int
    deadline: float
    counts: Polled
    held: set[str] = field(default_factory=set)
    acknowledging: list[asyncio.Task[None]] = field(default_factory=list)
    places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(PARALLEL_ACKNOWLEDGEMENTS))
    marking: asyncio.Lock = field(default_factory=asyncio.Lock)
    marks: list[Mark] = field(default_factory=list)
    note_at: float = 0.0
    unanswered: int = 0
    is_stored: bool = False
    all_answered: asyncio.Event = field(default_factory=asyncio.Event)

    def see_answered(self) -> None:
        """Whether all are, now that one is, or that all is stored."""
        if self.is_stored and not self.unanswered:
            self.all_answered.set()
