"""Reads what was seen out of the database and the sandbox's ledger, as the judges take it."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import Connection, RowMapping, or_, select

from orderbridge.store.tables import actions, orders
from orderbridge_certify.notes import writes
from orderbridge_certify.seen import Call, Note, Order, Row
from orderbridge_sandbox import World
from orderbridge_sandbox.rules import Operation

SINCE_BEGINNING = datetime(2000, 1, 1, tzinfo=UTC)
ASKED = frozenset(
    {
        Operation.ACCEPT,
        Operation.ON_THE_WAY,
        Operation.COMPLETE,
        Operation.CANCEL,
        Operation.OPEN_RESTAURANT,
        Operation.CLOSE_RESTAURANT,
        Operation.DEACTIVATE_FOOD,
        Operation.ACTIVATE_FOOD,
    }
)


@dataclass(frozen=True, slots=True)
class Window:
    """A scenario's orders, and since when it is looked at: by the database's clock and by the ledger's lines."""

    letters: Mapping[str, str]
    """By payment_key."""
    begun: datetime
    first_note: int
    first_row: int
    first_call: int

    def since(self, moment: datetime | None) -> float | None:
        """Seconds since the scenario began."""
        return None if moment is None else round((moment - self.begun).total_seconds(), 2)


def open_window(connection: Connection, world: World, now: datetime) -> Window:
    """From this moment on, without an order yet."""
    last = [
        connection.execute(select(c).order_by(c.desc()).limit(1)).scalar() or 0 for c in (writes.c.id, actions.c.id)
    ]
    calls = world.calls()
    return Window({}, now, last[0], last[1], calls[-1].number if calls else 0)


def read(connection: Connection, window: Window) -> tuple[tuple[Order, ...], tuple[Note, ...], tuple[Row, ...]]:
    """The orders as they stand, and what was written about them since."""
    notes = _notes(connection, window)
    taken = {note.letter: note.at_s for note in reversed(notes) if note.column == "pos_revision"}
    found = connection.execute(select(orders).where(orders.c.payment_key.in_(window.letters))).mappings()
    known = {window.letters[row["payment_key"]]: row for row in found}
    listed = [_order(letter, known.get(letter), taken, window) for letter in window.letters.values()]
    return tuple(listed), tuple(notes), tuple(_rows(connection, window))


def _order(letter: str, row: RowMapping | None, taken: Mapping[str, float], window: Window) -> Order:
    if row is None:
        return Order(letter=letter)
    return Order(
        letter=letter,
        visible_s=window.since(row["received_utc"]),
        taken_s=taken.get(letter) if row["pos_revision"] else None,
        revision=row["revision"],
        pos_revision=int(row["pos_revision"]),
        reference=bool((row["pos_reference"] or "").strip()),
        pos_total=row["pos_total"],
        total=row["total"],
        amount_due=row["amount_due"],
        status=row["status"],
        problem=row["problem"] is not None,
    )


def _notes(connection: Connection, window: Window) -> list[Note]:
    found = connection.execute(select(writes).where(writes.c.id > window.first_note).order_by(writes.c.id)).mappings()
    return [_note(row, window.letters, window) for row in found if _concerns(row, window.letters)]


def _concerns(row: RowMapping, letters: Collection[str]) -> bool:
    """A till may still have to do with an earlier scenario's orders: that is not this one's."""
    return row["tbl"] != orders.name or row["row_key"] in letters


def _note(row: RowMapping, letters: Mapping[str, str], window: Window) -> Note:
    return Note(
        what=row["what"],
        table=row["tbl"],
        column=row["col"],
        letter=letters.get(row["row_key"], ""),
        value=row["val"],
        revision=row["revision"],
        at_s=window.since(row["at_utc"]) or 0.0,
    )


def all_notes(connection: Connection) -> tuple[Note, ...]:
    """Everything that was noted since these tables were made."""
    window = Window({}, SINCE_BEGINNING, 0, 0, 0)
    found = connection.execute(select(writes).order_by(writes.c.id)).mappings()
    return tuple(_note(row, {}, window) for row in found)


def _rows(connection: Connection, window: Window) -> list[Row]:
    mine = or_(actions.c.payment_key.in_(window.letters), actions.c.payment_key.is_(None))
    wanted = select(actions).where(actions.c.id > window.first_row, mine).order_by(actions.c.id)
    return [_row(row, window) for row in connection.execute(wanted).mappings()]


def _row(row: RowMapping, window: Window) -> Row:
    return Row(
        action=row["action"],
        letter=window.letters.get(row["payment_key"] or "", ""),
        state=row["state"],
        error_code=row["error_code"],
        preparing_time=row["preparing_time"],
        reason_id=row["reason_id"],
        food_id=row["food_id"],
        at_s=window.since(row["created_utc"]) or 0.0,
    )


def calls(world: World, window: Window) -> tuple[Call, ...]:
    """What reached the platform since, of what a till asks for."""
    return tuple(
        Call(
            operation=call.operation,
            letter=window.letters.get(call.argument.lower(), ""),
            http_status=call.http_status,
            at_s=window.since(call.at) or 0.0,
        )
        for call in world.calls()
        if call.number > window.first_call
        and call.operation in ASKED
        and (call.argument.lower() in window.letters or call.operation not in _OF_ORDERS)
    )


_OF_ORDERS = frozenset({Operation.ACCEPT, Operation.ON_THE_WAY, Operation.COMPLETE, Operation.CANCEL})
