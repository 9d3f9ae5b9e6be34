"""One answer of get-current while it is taken in: what it holds, and what was done with it."""

import asyncio
from dataclasses import dataclass, field

from orderbridge.model import Document
from orderbridge.observe.metrics import NOT_TAKEN_IN

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

    `unanswered`: acknowledgements under way; `is_stored`: none will follow.
    """

    good: dict[str, Document]
    began: int
    deadline: float
    counts: Polled
    held: set[str] = field(default_factory=set)
    acknowledging: list[asyncio.Task[None]] = field(default_factory=list)
    places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(PARALLEL_ACKNOWLEDGEMENTS))
    unanswered: int = 0
    is_stored: bool = False
