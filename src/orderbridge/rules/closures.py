"""Decides when a closure ends: a done row of close_restaurant or deactivate_food with `valid_until_minutes`.

- The minutes count from the INSERT, so that a row that was sent late still ends at the promised time. Those of a
  retried row count from its outcome.
- A row that still waits at its end expires, because it would close and open at once.
- A newer row of the lane that is done takes the place of the planned end; while one is unfinished, the end waits. Other
  newer rows changed nothing.
- The wall clock decides. After it was set back, a closure lasts at most its own minutes more.
"""

from collections.abc import Collection
from datetime import MAXYEAR, datetime, timedelta
from enum import Enum, auto
from typing import Protocol

from orderbridge.actions import CLOSURE_MINUTES
from orderbridge.model import UNFINISHED, ActionState, OutboxRow, Verdict


class Step(Enum):
    """What happens to a planned end."""

    WAIT = auto()
    END = auto()  # the opposite action is written
    FORGET = auto()
    SHORTEN = auto()  # to the closure's minutes from now


class Plan(Protocol):
    """The columns of a row with a planned end."""

    withdraw: int
    until_utc: datetime
    valid_until_minutes: int


def waiting_end(row: OutboxRow) -> datetime | None:
    """When a row that waits for its first outcome expires by its own closure; None: never."""
    is_first = row.state == ActionState.PENDING and row.expires_utc is None
    return _after(row.created_utc, row) if is_first and row.created_utc is not None else None


def planned_end(row: OutboxRow, verdict: Verdict, now: datetime) -> datetime | None:
    """When the closure of a row ends that gets this verdict now; None: never."""
    if verdict.state != ActionState.DONE:
        return None
    return _after(now if row.expires_utc is not None or row.created_utc is None else row.created_utc, row)


def _after(since: datetime, row: OutboxRow) -> datetime | None:
    minutes = row.valid_until_minutes
    if minutes is None or minutes not in CLOSURE_MINUTES or since.year == MAXYEAR:
        return None
    return since + timedelta(minutes=minutes)


def step(plan: Plan, newer: Collection[str], now: datetime) -> Step:
    """The next step. `newer`: the states of the newer rows of its lane."""
    if plan.withdraw or ActionState.DONE in newer:
        return Step.FORGET
    if not UNFINISHED.isdisjoint(newer):
        return Step.WAIT
    if now >= plan.until_utc:
        return Step.END
    return Step.SHORTEN if plan.until_utc > shortened(plan, now) else Step.WAIT


def shortened(plan: Plan, now: datetime) -> datetime:
    """The latest end that the closure may have."""
    return now + timedelta(minutes=plan.valid_until_minutes)
