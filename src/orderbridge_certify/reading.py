"""Reads what was seen out of the database and the sandbox's ledger, as the judges take it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import Connection, RowMapping, or_, select

from orderbridge.store.tables import actions, orders
from orderbridge_certify import notes
from orderbridge_certify.notes import writes
from orderbridge_certify.seen import Call, Note, Order, Row
from orderbridge_sandbox import World
from orderbridge_sandbox.rules import Operation

SINCE_BEGINNING = datetime(2000, 1, 1, tzinfo=UTC)
ORDER = ("revision", "pos_total", "total", "status")  # columns of the same name
ROW = ("action", "state", "error_code", "preparing_time", "reason_id", "food_id")
OF_ORDERS = frozenset({Operation.ACCEPT, Operation.ON_THE_WAY, Operation.COMPLETE, Operation.CANCEL})
OF_RESTAURANTS = frozenset({Operation.OPEN_RESTAURANT, Operation.CLOSE_RESTAURANT})
OF_FOODS = frozenset({Operation.DEACTIVATE_FOOD, Operation.ACTIVATE_FOOD})


@dataclass(frozen=True, slots=True)
class Window:
    """A scenario's orders, and since when it is looked at: by the database's clock and by the ledger's lines."""

    letters: Mapping[str, str]  # by payment_key
    begun: datetime
    first_note: int
    first_row: int
    first_call: int

    def since(self, moment: datetime | None) -> float | None:
        """Seconds since the scenario began."""
        return None if moment is None else round((moment - self.begun).total_seconds(), 2)


def open_window(connection: Connection, world: World) -> Window:
    """From this moment on, without an order yet."""
    last = [
        connection.execute(select(c).order_by(c.desc()).limit(1)).scalar() or 0 for c in (writes.c.id, actions.c.id)
    ]
    calls = world.calls()
    return Window({}, notes.now_of(connection), last[0], last[1], calls[-1].number if calls else 0)


def read(connection: Connection, window: Window) -> tuple[tuple[Order, ...], tuple[Note, ...], tuple[Row, ...]]:
    """The orders as they stand, and what was written about them since."""
    written = _notes(connection, window)
    taken = {note.letter: note.at_s for note in reversed(written) if note.column == "pos_revision"}
    found = connection.execute(select(orders).where(orders.c.payment_key.in_(window.letters))).mappings()
    known = {window.letters[row["payment_key"]]: row for row in found}
    listed = [_order(letter, known.get(letter), taken, window) for letter in window.letters.values()]
    return tuple(listed), tuple(written), tuple(_rows(connection, window))


def _order(letter: str, row: RowMapping | None, taken: Mapping[str, float], window: Window) -> Order:
    if row is None:
        return Order(letter=letter)
    return Order(
        letter=letter,
        visible_s=window.since(row["received_utc"]),
        taken_s=taken.get(letter) if row["pos_revision"] else None,
        pos_revision=int(row["pos_revision"]),
        reference=bool((row["pos_reference"] or "").strip()),
        **{name: row[name] for name in ORDER},
    )


def _notes(connection: Connection, window: Window) -> list[Note]:
    found = connection.execute(select(writes).where(writes.c.id > window.first_note).order_by(writes.c.id)).mappings()
    # A till may still have to do with an earlier scenario's orders: that is not this one's.
    return [_note(row, window) for row in found if row["tbl"] != orders.name or row["row_key"] in window.letters]


def _note(row: RowMapping, window: Window) -> Note:
    return Note(
        what=row["what"],
        table=row["tbl"],
        column=row["col"],
        letter=window.letters.get(row["row_key"], ""),
        value=row["val"],
        revision=row["revision"],
        at_s=window.since(row["at_utc"]) or 0.0,
    )


def all_notes(connection: Connection) -> tuple[Note, ...]:
    """Everything that was noted since these tables were made."""
    window = Window({}, SINCE_BEGINNING, 0, 0, 0)
    found = connection.execute(select(writes).order_by(writes.c.id)).mappings()
    return tuple(_note(row, window) for row in found)


def _rows(connection: Connection, window: Window) -> list[Row]:
    mine = or_(actions.c.payment_key.in_(window.letters), actions.c.payment_key.is_(None))
    wanted = select(actions).where(actions.c.id > window.first_row, mine).order_by(actions.c.id)
    return [
        Row(
            **{name: row[name] for name in ROW},
            letter=window.letters.get(row["payment_key"] or "", ""),
            at_s=window.since(row["created_utc"]) or 0.0,
        )
        for row in connection.execute(wanted).mappings()
    ]


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
        and call.operation in OF_ORDERS | OF_RESTAURANTS | OF_FOODS
        and (call.argument.lower() in window.letters or call.operation not in OF_ORDERS)
    )
