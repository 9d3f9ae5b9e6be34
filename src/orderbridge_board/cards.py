"""What the board shows of an order and when it sounds: decided here, from rows as they stand in the tables.

Rules of this file:
- An order rings as NEW until it was answered (an accept or a cancel that waits, is under way or is done), or a
  till has taken it over. An answer that failed was none: it rings again. Where the board is the till, taking over is a
  part of the answer, so of an order that waits for one only the answer counts.
- A cancellation sounds until a till has read it or a hand has touched it; its card stays until it is touched. One that
  was asked for at this till or board is no news.
- Every button carries the number of tries that are over. Whoever taps the same thing twice, on whichever device, asks
  for the same row.
- What cannot be undone at the service waits for HOLD, and can be taken back until then. Its row is written at the tap
  with the time from which the outbox may send it: a tablet that dies loses no tap. Take back sets `withdraw` where the
  row still waits, and a claim starts only a row that is as it was read: of the two one wins, so nothing is sent twice
  and nothing that was taken back is sent.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from hashlib import sha256
from typing import Protocol

from orderbridge.actions import ANSWERS
from orderbridge.model import (
    ANSWERED,
    BOARD_MARK,
    CONFIRMED,
    IN_DELIVERY,
    RECEIVED,
    UNFINISHED,
    Action,
    ActionState,
    LastChange,
)
from orderbridge.rules.lifecycle import NEEDS_PAYMENT, OTHERS_COURIERS, may_send
from orderbridge.rules.problems import Link, Problem

LONGEST_REQUEST = 64
HOLD = timedelta(seconds=5)
HELD = frozenset({Action.ON_THE_WAY, Action.COMPLETE})
NOTICED = timedelta(seconds=60)  # an order is so late that its customer's time counts: more than a poll and its answer
BELIEVED = timedelta(hours=2)  # a time before that is another time zone's, or of an order that was thought over
FAILED = frozenset({ActionState.REFUSED, ActionState.FAILED, ActionState.EXPIRED})
TILL, BESIDE = "till", "beside"


class Sound(StrEnum):
    """What is heard."""

    NEW = "new"
    CANCELLED = "cancelled"
    LINE = "line"
    START = "start"
    OVERDUE = "overdue"


class Lane(StrEnum):
    """Where a card stands."""

    NEW = "new"
    COOK = "cook"
    WAY = "way"


class Money(StrEnum):
    """The one word for money on a card."""

    COLLECT = "collect"
    PAID = "paid"
    ASK = "ask"


class Answer(StrEnum):
    """How it stands with the answer that a customer waits for."""

    NEEDED = "needed"
    SENDING = "sending"
    FAILED = "failed"
    AT_TILL = "at_till"  # which has taken the order over


class Asked(Protocol):
    """An outbox row."""

    id: int
    action: str
    state: str
    preparing_time: int | None
    finished_utc: datetime | None
    request_id: str
    attempts: int
    next_attempt_utc: datetime | None


@dataclass(frozen=True, slots=True)
class Seen:
    """An order as the board needs it."""

    key: str
    status_id: int | None
    status: str
    service_status_id: int | None
    courier_type: str | None
    revision: int
    pos_revision: int
    ended_by: str | None
    amount_due: Decimal | None
    scheduled: datetime | None = None
    start_utc: datetime | None = None
    last_change: str = LastChange.NEW


# What comes next. No completion is described for an order that others carry: that one is put away (`is_handed_next`).
_STEPS: dict[int | None, tuple[Action, ...]] = {
    RECEIVED: (Action.ACCEPT,),
    CONFIRMED: (Action.ON_THE_WAY,),
    IN_DELIVERY: (Action.COMPLETE,),
}


def link_of(problem: Problem) -> Link | None:
    """Which link of the chain it breaks; None: none of them. Where the board is the till, no till has failed."""
    return None if "by" in problem.facts else problem.code.kind.link


def tries(rows: Iterable[Asked], action: Action) -> int:
    """How many rows of this action are over."""
    return sum(row.action == action and row.state not in UNFINISHED for row in rows)


def request_id(action: Action, subject: str, number: int) -> str:
    """The same for the same button."""
    text = f"{BOARD_MARK}{action}:{subject}:{number}"
    return text if len(text) <= LONGEST_REQUEST else f"{BOARD_MARK}{sha256(text.encode()).hexdigest()[:48]}"


def offered(order: Seen, rows: Collection[Asked]) -> list[Action]:
    """What can be asked for now, the usual thing first. While something is asked, only a cancel may overtake it."""
    if order.ended_by is not None:
        return []
    asked = {Action(row.action) for row in rows if row.state in UNFINISHED}
    if Action.CANCEL in asked or Action.COMPLETE in asked:
        return []
    if order.status == NEEDS_PAYMENT:
        steps: tuple[Action, ...] = (Action.COMPLETE,)
    else:
        steps = () if is_handed_next(order) else _STEPS.get(order.status_id, ())
    usual = [one for one in steps if may_send(one, order) is None][:1]
    cancel = [Action.CANCEL] if may_send(Action.CANCEL, order) is None else []
    return cancel if asked else usual + cancel


def silence_of(kind: str, order: Seen) -> str:
    """What is silenced of an order: `handed`, `cancelled`, `overdue` or `start`."""
    return f"{kind}:{order.key}"


def is_handed_next(order: Seen) -> bool:
    """Whether to put its card away is what comes next: no completion is described for pickup and the service's couriers.

    It stays open until it ends by silence.
    """
    is_others = (order.courier_type or "").strip().lower() in OTHERS_COURIERS
    return is_others and order.status_id in {CONFIRMED, IN_DELIVERY} and order.status != NEEDS_PAYMENT


def may_be_handed(order: Seen, rows: Collection[Asked]) -> bool:
    """Whether its card may be put away: it was answered, and nothing that is asked can still end it.

    Also of the restaurant's own courier, who may have completed it elsewhere.
    """
    if order.ended_by is not None or order.status_id == RECEIVED or any(row.state in UNFINISHED for row in rows):
        return False
    return not any(row.action == Action.COMPLETE and row.state == ActionState.DONE for row in rows)


def was_completed_in_vain(rows: Iterable[Asked]) -> bool:
    """Whether the service took no completion of it."""
    return any(row.action == Action.COMPLETE and row.state in FAILED for row in rows)


def handed_at(order: Seen, rows: Collection[Asked], silenced: Mapping[str, datetime]) -> datetime | None:
    """When its card is put away, or was; until then that can be taken back. A cancellation shows all the same."""
    touched = silenced.get(silence_of("handed", order))
    return None if touched is None or not may_be_handed(order, rows) else touched + HOLD


def may_be_taken_back(row: Asked) -> bool:
    """Whether nothing of it has left: what may have had its effect goes on."""
    return row.state == ActionState.PENDING and row.attempts == 0


def held_until(row: Asked) -> datetime | None:
    """Until when it waits for whoever wants it back."""
    is_held = row.action in HELD and may_be_taken_back(row) and row.request_id.startswith(BOARD_MARK)
    return row.next_attempt_utc if is_held else None


def waits_since(received: datetime, ordered: datetime | None) -> datetime:
    """Since when its customer waits. After an outage that is long before it came in; a strange time is not believed."""
    if ordered is not None and NOTICED < received - ordered < BELIEVED:
        return ordered
    return received


def newest(rows: Sequence[Asked]) -> Asked | None:
    """The row whose state the card shows."""
    chosen = [row for row in rows if row.state in UNFINISHED] or rows
    return chosen[-1] if chosen else None


def rings(order: Seen, rows: Iterable[Asked], mode: str) -> bool:
    """Whether it sounds as new."""
    if order.ended_by is not None or (order.pos_revision > 0 and mode != TILL):
        return False
    if (
        order.status_id != RECEIVED
    ):  # no answer is needed any more: beside a till that is the till's; else it must be seen
        return mode == TILL and order.pos_revision == 0
    return not any(row.action in ANSWERS and row.state in ANSWERED for row in rows)


def answer(order: Seen, rows: Iterable[Asked], mode: str) -> Answer | None:
    """The state of its answer; None: none is needed. A cancel that failed leaves all as it was."""
    answers = [row for row in rows if row.action in ANSWERS]
    if order.ended_by is not None or order.status_id != RECEIVED:
        return None
    if any(row.state in UNFINISHED for row in answers):
        return Answer.SENDING
    if any(row.state == ActionState.DONE for row in answers):
        return None  # the status follows
    accepts = [row for row in answers if row.action == Action.ACCEPT]
    if accepts and accepts[-1].state in FAILED:
        return Answer.FAILED
    return Answer.AT_TILL if order.pos_revision > 0 and mode != TILL else Answer.NEEDED


def lane(order: Seen, rows: Iterable[Asked], mode: str) -> Lane:
    """Where its card stands. A cancellation stays where it was cooked, or where it was new."""
    rows = list(rows)
    if order.ended_by is not None:
        is_accepted = any(row.action == Action.ACCEPT and row.state == ActionState.DONE for row in rows)
        return Lane.COOK if is_accepted else Lane.NEW
    if order.status_id == RECEIVED or rings(order, rows, mode):
        return Lane.NEW
    return Lane.WAY if order.status_id == IN_DELIVERY or order.status == NEEDS_PAYMENT else Lane.COOK


def is_changed(order: Seen, mode: str) -> bool:
    """Whether what is cooked is other than what was taken over here."""
    is_behind = 0 < order.pos_revision < order.revision
    return mode == TILL and order.ended_by is None and is_behind and order.last_change == LastChange.CONTENTS


def is_stopped(order: Seen, rows: Iterable[Asked], silenced: Collection[str]) -> bool:
    """Whether it shows STOP: cancelled by another party, and not touched yet."""
    asked = any(row.action == Action.CANCEL and row.state in ANSWERED for row in rows)
    return order.ended_by == "cancelled" and not asked and silence_of("cancelled", order) not in silenced


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


def is_to_begin(order: Seen, now: datetime, silenced: Collection[str]) -> bool:
    """Whether the kitchen should begin with a scheduled order that was not touched yet."""
    is_open = order.ended_by is None and order.status_id in {RECEIVED, CONFIRMED}
    return (
        is_open
        and order.start_utc is not None
        and order.start_utc <= now
        and silence_of("start", order) not in silenced
    )


def sounds(order: Seen, rows: Collection[Asked], mode: str, now: datetime, silenced: Collection[str]) -> list[Sound]:
    """What is heard of it."""
    late = due(order, rows)
    found = {
        Sound.NEW: rings(order, rows, mode),
        Sound.CANCELLED: is_stopped(order, rows, silenced) and sounds_stop(order),
        Sound.START: is_to_begin(order, now, silenced),
        Sound.OVERDUE: late is not None and now > late and silence_of("overdue", order) not in silenced,
    }
    return [one for one, is_heard in found.items() if is_heard]


def money(order: Seen) -> Money:
    """Who has what."""
    if order.amount_due is None:
        return Money.ASK
    return Money.COLLECT if order.amount_due > 0 else Money.PAID
