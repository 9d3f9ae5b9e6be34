"""Decides from the rows of the tables what the board shows of an order, and when it sounds.

Rules of this file:
- An order rings as NEW until it is answered (by an accept or a cancel that waits, is sent or is done) or a till has
  taken it over. If the answer fails, the order rings again. If the board is the till, it takes an order over with the
  answer, so only the answer stops the ringing.
- A cancellation sounds until a till has read it or its card is touched. The card stays until it is touched. A
  cancellation that this till or board requested does not sound.
- The request_id of a button has the number of finished tries. So two taps on the same button, on any devices, ask for
  the same row.
- An action that cannot be undone at the marketplace waits for HOLD, and can be undone here until then. Its row is
  written at the tap, with the time from which the outbox may send it, so that a tap survives a failed tablet. Undo sets
  `withdraw` while the row waits. A claim starts only unchanged rows, so a row is either withdrawn or sent, never both.
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
from orderbridge.rules.lifecycle import NEEDS_PAYMENT, is_others_courier, may_send
from orderbridge.rules.problems import Link, Problem

LONGEST_REQUEST = 64
HOLD = timedelta(seconds=5)
HELD = frozenset({Action.ON_THE_WAY, Action.COMPLETE})
NOTICED = timedelta(seconds=60)  # a longer delay is not due to polling, so the order's own time counts
BELIEVED = timedelta(hours=2)  # an order's older time is ignored: its time zone may be wrong
FAILED = frozenset({ActionState.REFUSED, ActionState.FAILED, ActionState.EXPIRED})
TILL, BESIDE = "till", "beside"


class Sound(StrEnum):
    """The sounds of the board."""

    NEW = "new"
    CANCELLED = "cancelled"
    LINE = "line"
    START = "start"
    OVERDUE = "overdue"


class Lane(StrEnum):
    """The column in which a card is shown."""

    NEW = "new"
    COOK = "cook"
    WAY = "way"


class Money(StrEnum):
    """The word about payment on a card."""

    COLLECT = "collect"
    PAID = "paid"
    ASK = "ask"


class Answer(StrEnum):
    """The state of the answer that a customer waits for."""

    NEEDED = "needed"
    SENDING = "sending"
    FAILED = "failed"
    AT_TILL = "at_till"  # the till has taken the order over and has to answer


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
    """The values of an order that the board needs."""

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


# The next step. The interface has no completion of orders that others deliver: their cards are removed
# (`is_handed_next`).
_STEPS: dict[int | None, tuple[Action, ...]] = {
    RECEIVED: (Action.ACCEPT,),
    CONFIRMED: (Action.ON_THE_WAY,),
    IN_DELIVERY: (Action.COMPLETE,),
}


def link_of(problem: Problem) -> Link | None:
    """The link of the chain that the problem breaks, or None. If the board is the till, no till can have failed."""
    return None if "by" in problem.facts else problem.code.kind.link


def tries(rows: Iterable[Asked], action: Action) -> int:
    """The number of finished rows of this action."""
    return sum(row.action == action and row.state not in UNFINISHED for row in rows)


def request_id(action: Action, subject: str, number: int) -> str:
    """The request_id of a button: equal for equal arguments."""
    text = f"{BOARD_MARK}{action}:{subject}:{number}"
    return text if len(text) <= LONGEST_REQUEST else f"{BOARD_MARK}{sha256(text.encode()).hexdigest()[:48]}"


def offered(order: Seen, rows: Collection[Asked]) -> list[Action]:
    """The actions that can be requested now, the usual one first. While one is unfinished, only a cancel is offered."""
    if order.ended_by is not None:
        return []
    asked = {row.action for row in rows if row.state in UNFINISHED}
    if Action.CANCEL in asked or Action.COMPLETE in asked:
        return []
    if order.status == NEEDS_PAYMENT:
        steps: tuple[Action, ...] = (Action.COMPLETE,)
    else:
        steps = () if is_handed_next(order) else _STEPS.get(order.status_id, ())
    usual = [one for one in steps if may_send(one, order) is None][:1]
    cancel = [Action.CANCEL] if may_send(Action.CANCEL, order) is None else []
    return cancel if asked else usual + cancel


def silence_of(kind: str, key: str) -> str:
    """The subject to silence for an order and a kind: `handed`, `cancelled`, `overdue` or `start`."""
    return f"{kind}:{key}"


def put_away(silenced: Mapping[str, datetime]) -> dict[str, datetime]:
    """The keys of the orders that were removed from the board, and when."""
    kind = silence_of("handed", "")
    return {subject.removeprefix(kind): at for subject, at in silenced.items() if subject.startswith(kind)}


def is_handed_next(order: Seen) -> bool:
    """Whether the next step is to remove the card, because the interface has no completion for such an order.

    The order stays open until it ends by silence.
    """
    is_others = is_others_courier(order.courier_type)
    return is_others and order.status_id in {CONFIRMED, IN_DELIVERY} and order.status != NEEDS_PAYMENT


def may_be_handed(order: Seen, rows: Collection[Asked]) -> bool:
    """Whether the card may be removed: the order was answered, and no unfinished action can still end it.

    This includes orders of the restaurant's own courier, which may have been completed elsewhere.
    """
    if order.ended_by is not None or order.status_id == RECEIVED or any(row.state in UNFINISHED for row in rows):
        return False
    return not any(row.action == Action.COMPLETE and row.state == ActionState.DONE for row in rows)


def is_completion_refused(rows: Iterable[Asked]) -> bool:
    """Whether the marketplace refused to complete the order."""
    return any(row.action == Action.COMPLETE and row.state in FAILED for row in rows)


def handed_at(order: Seen, rows: Collection[Asked], silenced: Mapping[str, datetime]) -> datetime | None:
    """When the card is or was removed; until then this can be undone. A cancellation is shown nevertheless."""
    touched = silenced.get(silence_of("handed", order.key))
    return None if touched is None or not may_be_handed(order, rows) else touched + HOLD


def may_be_taken_back(row: Asked) -> bool:
    """Whether the row was never sent. A request that may have had its effect cannot be undone."""
    return row.state == ActionState.PENDING and row.attempts == 0


def held_until(row: Asked) -> datetime | None:
    """Until when the row waits, and can be undone; None if it does not wait."""
    is_held = row.action in HELD and may_be_taken_back(row) and row.request_id.startswith(BOARD_MARK)
    return row.next_attempt_utc if is_held else None


def waits_since(received: datetime, ordered: datetime | None) -> datetime:
    """Since when the customer waits. After an outage this is long before the order was received.

    Implausible times are ignored.
    """
    if ordered is not None and NOTICED < received - ordered < BELIEVED:
        return ordered
    return received


def newest(rows: Sequence[Asked]) -> Asked | None:
    """The row whose state the card shows."""
    chosen = [row for row in rows if row.state in UNFINISHED] or rows
    return chosen[-1] if chosen else None


def rings(order: Seen, rows: Iterable[Asked], mode: str) -> bool:
    """Whether the order rings as new."""
    if order.ended_by is not None or (order.pos_revision > 0 and mode != TILL):
        return False
    if order.status_id != RECEIVED:  # it needs no answer, but if the board is the till, it must be taken over
        return mode == TILL and order.pos_revision == 0
    return not any(row.action in ANSWERS and row.state in ANSWERED for row in rows)


def answer(order: Seen, rows: Iterable[Asked], mode: str) -> Answer | None:
    """The state of the order's answer; None if it needs none. A failed cancel changes nothing."""
    answers = [row for row in rows if row.action in ANSWERS]
    if order.ended_by is not None or order.status_id != RECEIVED:
        return None
    if any(row.state in UNFINISHED for row in answers):
        return Answer.SENDING
    if any(row.state == ActionState.DONE for row in answers):
        return None  # the order's status changes soon
    accepts = [row for row in answers if row.action == Action.ACCEPT]
    if accepts and accepts[-1].state in FAILED:
        return Answer.FAILED
    return Answer.AT_TILL if order.pos_revision > 0 and mode != TILL else Answer.NEEDED


def lane(order: Seen, rows: Iterable[Asked], mode: str) -> Lane:
    """The column of the card. A cancelled order stays where it was cooked, or where it was new."""
    rows = list(rows)
    if order.ended_by is not None:
        is_accepted = any(row.action == Action.ACCEPT and row.state == ActionState.DONE for row in rows)
        return Lane.COOK if is_accepted else Lane.NEW
    if order.status_id == RECEIVED or rings(order, rows, mode):
        return Lane.NEW
    return Lane.WAY if order.status_id == IN_DELIVERY or order.status == NEEDS_PAYMENT else Lane.COOK


def is_changed(order: Seen, mode: str) -> bool:
    """Whether the contents changed after the order was taken over on the board."""
    is_behind = 0 < order.pos_revision < order.revision
    return mode == TILL and order.ended_by is None and is_behind and order.last_change == LastChange.CONTENTS


def is_stopped(order: Seen, rows: Iterable[Asked], silenced: Collection[str]) -> bool:
    """Whether the card shows STOP: cancelled by another party, and not touched yet."""
    asked = any(row.action == Action.CANCEL and row.state in ANSWERED for row in rows)
    return order.ended_by == "cancelled" and not asked and silence_of("cancelled", order.key) not in silenced


def sounds_stop(order: Seen) -> bool:
    """Whether a card that shows STOP sounds: until a till has read the cancellation."""
    return order.pos_revision < order.revision


def due(order: Seen, rows: Iterable[Asked]) -> datetime | None:
    """When the order should leave the kitchen, by the newest accept that is done; not before its scheduled time."""
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
    """Whether the kitchen should start a scheduled order whose card was not touched yet."""
    is_open = order.ended_by is None and order.status_id in {RECEIVED, CONFIRMED}
    return (
        is_open
        and order.start_utc is not None
        and order.start_utc <= now
        and silence_of("start", order.key) not in silenced
    )


def sounds(order: Seen, rows: Collection[Asked], mode: str, now: datetime, silenced: Collection[str]) -> list[Sound]:
    """The sounds of the order."""
    late = due(order, rows)
    found = {
        Sound.NEW: rings(order, rows, mode),
        Sound.CANCELLED: is_stopped(order, rows, silenced) and sounds_stop(order),
        Sound.START: is_to_begin(order, now, silenced),
        Sound.OVERDUE: late is not None and now > late and silence_of("overdue", order.key) not in silenced,
    }
    return [one for one, is_heard in found.items() if is_heard]


def money(order: Seen) -> Money:
    """Whether the customer has paid, has to pay, or must be asked."""
    if order.amount_due is None:
        return Money.ASK
    return Money.COLLECT if order.amount_due > 0 else Money.PAID
