"""What the board shows of an order and when it sounds: decided here, from rows as they stand in the tables.

Rules of this file:
- An order rings as NEW until somebody has answered it (an accept or a cancel that waits, is under way or is done), or a
  till has taken it over. An answer that failed was none: it rings again. Where the board is the till, taking over is a
  part of the answer, so of an order that waits for one only the answer counts.
- A cancellation sounds until a till has read it or a hand has touched it; its card stays until it is touched. One that
  was asked for at this till or board is no news.
- Every button carries the number of tries that are over. Whoever taps the same thing twice, on whichever device, asks
  for the same row.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from hashlib import sha256
from typing import Protocol

from orderbridge.actions import ACTIONS
from orderbridge.model import CONFIRMED, IN_DELIVERY, RECEIVED, Action, ActionState, LastChange
from orderbridge.rules.lifecycle import NEEDS_PAYMENT
from orderbridge.rules.problems import CUT_OFF, NO_DATABASE, Code

LONGEST_REQUEST = 64
UNFINISHED = frozenset({ActionState.PENDING, ActionState.SENDING})
ANSWERED = UNFINISHED | {ActionState.DONE}
OWN_COURIER = "restaurant"
TILL, BESIDE = "till", "beside"


class Sound(StrEnum):
    """What is heard."""

    NEW = "new"
    CANCELLED = "cancelled"
    LINE = "line"
    OVERDUE = "overdue"


class Money(StrEnum):
    """The one word for money on a card."""

    COLLECT = "collect"
    PAID = "paid"
    ASK = "ask"


class Asked(Protocol):
    """An outbox row."""

    id: int
    action: str
    state: str
    preparing_time: int | None
    finished_utc: datetime | None
    request_id: str


@dataclass(frozen=True, slots=True)
class Seen:
    """An order as the board needs it."""

    key: str
    status_id: int | None
    status: str
    courier_type: str | None
    revision: int
    pos_revision: int
    ended_by: str | None
    amount_due: Decimal | None
    scheduled: datetime | None = None
    last_change: str = LastChange.NEW


# Where the chain from the tablet to the orders is broken.
LINKS: dict[str, Collection[Code]] = {
    "database": NO_DATABASE | {Code.NOT_DURABLE, Code.DATABASE_RESTORED},
    "daemon": {Code.NOT_POLLING, Code.NO_GOOD_POLL},
    "login": {Code.LOGIN_REFUSED},
    "internet": CUT_OFF - {Code.LOGIN_REFUSED, Code.NOT_POLLING},
    "marketplace": {Code.POLL_FAILING, Code.COOLDOWN_TAKEN},
    "pos": {Code.NOT_TAKEN_OVER, Code.CANCELLATION_UNSEEN},
}


def link_of(code: str) -> str | None:
    """Which link of the chain a problem breaks; None: none of them."""
    return next((link for link, codes in LINKS.items() if code in codes), None)


def tries(rows: Iterable[Asked], action: Action) -> int:
    """How many rows of this action are over."""
    return sum(row.action == action and row.state not in UNFINISHED for row in rows)


def request_id(action: Action, subject: str, number: int) -> str:
    """The same for the same button."""
    text = f"board:{action}:{subject}:{number}"
    return text if len(text) <= LONGEST_REQUEST else f"board:{sha256(text.encode()).hexdigest()[:48]}"


def offered(order: Seen, rows: Collection[Asked]) -> list[Action]:
    """What can be asked for now, the usual thing first. While something is asked, only a cancel may overtake it."""
    if order.ended_by is not None:
        return []
    asked = {Action(row.action) for row in rows if row.state in UNFINISHED}
    if Action.CANCEL in asked or Action.COMPLETE in asked:
        return []
    return [action for action in _usual(order) if not asked or action is Action.CANCEL]


def _usual(order: Seen) -> tuple[Action, ...]:
    if order.status_id == RECEIVED:
        return Action.ACCEPT, Action.CANCEL
    if order.status_id == CONFIRMED and order.courier_type == OWN_COURIER:
        return Action.ON_THE_WAY, Action.CANCEL
    if order.status_id in {CONFIRMED, IN_DELIVERY} or order.status == NEEDS_PAYMENT:
        return Action.COMPLETE, Action.CANCEL
    return (Action.CANCEL,)


def newest(rows: Sequence[Asked]) -> Asked | None:
    """The row whose state the card shows."""
    chosen = [row for row in rows if row.state in UNFINISHED] or rows
    return chosen[-1] if chosen else None


def rings(order: Seen, rows: Iterable[Asked], mode: str) -> bool:
    """Whether it sounds as new."""
    if order.ended_by is not None or (order.pos_revision > 0 and mode != TILL):
        return False
    if order.status_id != RECEIVED:  # nobody is asked any more: beside a till that is the till's; else it must be seen
        return mode == TILL and order.pos_revision == 0
    return not any(row.action in _ANSWERS and row.state in ANSWERED for row in rows)


def is_changed(order: Seen, mode: str) -> bool:
    """Whether what is cooked is other than what was taken over here."""
    is_behind = 0 < order.pos_revision < order.revision
    return mode == TILL and order.ended_by is None and is_behind and order.last_change == LastChange.CONTENTS


_ANSWERS = frozenset({action for action, kind in ACTIONS.items() if kind.answers_customer} | {Action.CANCEL})


def stop_of(order: Seen) -> str:
    """What is silenced when somebody touches a cancelled order."""
    return f"cancelled:{order.key}"


def is_stopped(order: Seen, rows: Iterable[Asked], silenced: Collection[str]) -> bool:
    """Whether it shows STOP: cancelled by somebody else, and no hand has touched it."""
    asked = any(row.action == Action.CANCEL and row.state in ANSWERED for row in rows)
    return order.ended_by == "cancelled" and not asked and stop_of(order) not in silenced


def sounds_stop(order: Seen) -> bool:
    """Of a card that shows STOP: until a till has read it."""
    return order.pos_revision < order.revision


def due(order: Seen, rows: Iterable[Asked]) -> datetime | None:
    """When it should leave the kitchen, by the newest accept that got through; not before the time it was ordered for."""
    if order.status_id != CONFIRMED or order.ended_by is not None:
        return None
    moments = [
        row.finished_utc + timedelta(minutes=int(row.preparing_time))
        for row in rows
        if row.action == Action.ACCEPT
        and row.state == ActionState.DONE
        and row.finished_utc is not None
        and row.preparing_time is not None
    ]
    if not moments:
        return None
    return moments[-1] if order.scheduled is None else max(moments[-1], order.scheduled)


def overdue_of(order: Seen) -> str:
    """What is silenced of an order that is late."""
    return f"overdue:{order.key}"


def sounds(order: Seen, rows: Collection[Asked], mode: str, now: datetime, silenced: Collection[str]) -> list[Sound]:
    """What is heard of it."""
    late = due(order, rows)
    found = {
        Sound.NEW: rings(order, rows, mode),
        Sound.CANCELLED: is_stopped(order, rows, silenced) and sounds_stop(order),
        Sound.OVERDUE: late is not None and now > late and overdue_of(order) not in silenced,
    }
    return [one for one, is_heard in found.items() if is_heard]


def money(order: Seen) -> Money:
    """Who has what."""
    if order.amount_due is None:
        return Money.ASK
    return Money.COLLECT if order.amount_due > 0 else Money.PAID
