"""Records the POS's writes with triggers, and reads them with orders and calls as plain values.

The triggers recognize the daemon's own writes: on a server by its session, on SQLite by the open guard. They record all
other writes without refusing them, so that the report can show what would be refused. Of the values only pos_revision
is kept, and no customers' data.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    Identity,
    Integer,
    MetaData,
    RowMapping,
    Table,
    event,
    insert,
    inspect,
    or_,
    select,
)

from orderbridge.store.ddl import big, code, long_text, utc, utc_now
from orderbridge.store.dialects import of
from orderbridge.store.tables import actions, metadata, orders
from orderbridge_certify.noise import TABLE as NOISE
from orderbridge_certify.seen import Call, Note, Order, Row
from orderbridge_sandbox import World
from orderbridge_sandbox.rules import Operation

_own = MetaData()
writes = Table(
    "certify_writes",
    _own,
    Column("id", big(), Identity(), primary_key=True),
    Column("what", code(), nullable=False),
    Column("tbl", code(), nullable=False),
    Column("row_key", long_text()),
    Column("col", code(), nullable=False),
    Column("val", Integer),
    Column("revision", Integer),
    Column("at_utc", utc(), nullable=False, server_default=utc_now()),
)
_noise = Table(NOISE, _own, Column("times", Integer, nullable=False))
VALUES = ("pos_revision", "withdraw")
INTO = "INSERT INTO certify_writes (what, tbl, row_key, col, val, revision)"


@dataclass(frozen=True, slots=True)
class Way:
    """How one kind of database recognizes the daemon, and how its triggers record other writers."""

    mark: str  # statement on each connection of the daemon; empty: its transactions identify it
    triggers: Callable[[Table], Iterator[str]]
    before: tuple[str, ...] = ()


def _key(table: Table, row: str) -> str:
    return f"{row}.{next(iter(table.primary_key.columns)).name}"


def _note(table: Table, row: str, what: str, column: str = "") -> str:
    """The SQL of the values of one note."""
    value = f"NEW.{column}" if column in VALUES else "NULL"
    revision = f"{row}.revision" if "revision" in table.c else "NULL"
    return f"'{what}', '{table.name}', {_key(table, row)}, '{column}', {value}, {revision}"


# Certify keeps the guard open (1), so that nothing is refused. A transaction of the daemon opens it once more (2).
_IS_TILL = f"(SELECT open FROM {of('sqlite').guard}) = 1"  # noqa: S608 - a name of ours


def _three(table: Table, begin: str, changed: str, end: str) -> Iterator[str]:
    """One trigger each for insert, delete and update. `changed` notes the changed columns."""
    name = f"CREATE TRIGGER certify_{table.name}"
    for what, row in (("insert", "NEW"), ("delete", "OLD")):
        body = f"{INTO} VALUES ({_note(table, row, what)});"
        yield f"{name}_{what} AFTER {what.upper()} ON {table.name} {begin} {body} {end}"
    columns = [column.name for column in table.c if column.computed is None]
    body = " ".join(changed.format(column=one, note=_note(table, "NEW", "update", one)) for one in columns)
    yield f"{name}_update AFTER UPDATE ON {table.name} {begin} {body} {end}"


def _on_sqlite(table: Table) -> Iterator[str]:
    changed = f"{INTO} SELECT {{note}} WHERE NEW.{{column}} IS NOT OLD.{{column}};"
    yield from _three(table, f"WHEN {_IS_TILL} BEGIN", changed, "END")


def _on_mariadb(table: Table) -> Iterator[str]:
    begin = "FOR EACH ROW BEGIN IF @orderbridge_writer IS NULL THEN"
    changed = f"IF NOT (NEW.{{column}} <=> OLD.{{column}}) THEN {INTO} VALUES ({{note}}); END IF;"
    yield from _three(table, begin, changed, "END IF; END")


_FUNCTION = f"""CREATE FUNCTION certify_note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
  one text; now_row jsonb; old_row jsonb; shown jsonb;
BEGIN
  IF coalesce(current_setting('orderbridge.writer', true), '') = 'daemon' THEN RETURN NULL; END IF;
  IF TG_OP <> 'DELETE' THEN now_row := to_jsonb(NEW); END IF;
  IF TG_OP <> 'INSERT' THEN old_row := to_jsonb(OLD); END IF;
  shown := coalesce(now_row, old_row);
  IF TG_OP = 'UPDATE' THEN
    FOR one IN SELECT jsonb_object_keys(now_row) LOOP
      IF now_row -> one IS DISTINCT FROM old_row -> one THEN
        {INTO} VALUES ('update', TG_TABLE_NAME, shown ->> TG_ARGV[0], one,
          CASE WHEN one IN ('pos_revision', 'withdraw') THEN (now_row ->> one)::int END, (shown ->> 'revision')::int);
      END IF;
    END LOOP;
  ELSE
    {INTO} VALUES (lower(TG_OP), TG_TABLE_NAME, shown ->> TG_ARGV[0], '', NULL, (shown ->> 'revision')::int);
  END IF;
  RETURN NULL;
END $$"""  # noqa: S608 - names of ours


def _on_postgresql(table: Table) -> Iterator[str]:
    key = next(iter(table.primary_key.columns)).name
    yield (
        f"CREATE TRIGGER certify_{table.name} AFTER INSERT OR UPDATE OR DELETE ON {table.name}"
        f" FOR EACH ROW EXECUTE FUNCTION certify_note('{key}')"
    )


_MARIADB = Way("SET @orderbridge_writer = 'daemon'", _on_mariadb)
WAYS: Mapping[str, Way] = {
    "sqlite": Way("", _on_sqlite),
    "postgresql": Way("SET orderbridge.writer = 'daemon'", _on_postgresql, (_FUNCTION,)),
    "mysql": _MARIADB,
    "mariadb": _MARIADB,
}


def mark(engine: Engine) -> None:
    """Mark all connections of this engine as the daemon's."""
    if statement := WAYS[engine.dialect.name].mark:
        event.listen(engine, "connect", partial(_mark, statement))


def _mark(statement: str, connection: Any, _: Any) -> None:
    cursor = connection.cursor()
    cursor.execute(statement)
    cursor.close()
    connection.commit()


def are_kept(connection: Connection) -> bool:
    """Whether certify has prepared this database."""
    return inspect(connection).has_table(writes.name)


def keep(connection: Connection) -> None:
    """Record the writes of other programs from now on, and stop refusing them. The tables must exist."""
    way = WAYS[connection.dialect.name]
    _own.create_all(connection)
    connection.execute(insert(_noise).values(times=0))
    # On SQLite triggers refuse such writes. They are kept and opened, because a start would create dropped ones again.
    guard = of(connection.dialect.name).guard
    held_open = [f"UPDATE {guard} SET open = open + 1"] if guard is not None else []  # noqa: S608 - a name of ours
    triggers = [one for table in metadata.sorted_tables if not table.is_view for one in way.triggers(table)]
    for statement in (*way.before, *held_open, *triggers):
        connection.exec_driver_sql(statement)


def now_of(connection: Connection) -> datetime:
    """The time of the database's clock, which notes, rows and orders use."""
    return connection.execute(select(utc_now())).scalar_one()


SINCE_BEGINNING = datetime(2000, 1, 1, tzinfo=UTC)
ORDER = ("revision", "pos_total", "total", "status")  # fields whose columns have the same names
ROW = ("action", "state", "error_code", "preparing_time", "reason_id", "food_id")
OF_ORDERS = frozenset({Operation.ACCEPT, Operation.ON_THE_WAY, Operation.COMPLETE, Operation.CANCEL})
OF_RESTAURANTS = frozenset({Operation.OPEN_RESTAURANT, Operation.CLOSE_RESTAURANT})
OF_FOODS = frozenset({Operation.DEACTIVATE_FOOD, Operation.ACTIVATE_FOOD})


@dataclass(frozen=True, slots=True)
class Window:
    """A scenario's orders, and its beginning: by the database's clock, and as a position in the ledger of calls."""

    letters: Mapping[str, str]  # by payment_key
    begun: datetime
    first_note: int
    first_row: int
    first_call: int

    def since(self, moment: datetime | None) -> float | None:
        """Seconds since the scenario began."""
        return None if moment is None else round((moment - self.begun).total_seconds(), 2)


def open_window(connection: Connection, world: World) -> Window:
    """A window that begins now, without orders."""
    last = [
        connection.execute(select(c).order_by(c.desc()).limit(1)).scalar() or 0 for c in (writes.c.id, actions.c.id)
    ]
    calls = world.calls()
    return Window({}, now_of(connection), last[0], last[1], calls[-1].number if calls else 0)


def read(connection: Connection, window: Window) -> tuple[tuple[Order, ...], tuple[Note, ...], tuple[Row, ...]]:
    """The orders at this moment, the notes since the window began, and the outbox rows."""
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
    # The till may still write to orders of earlier scenarios. Such notes do not belong to this one.
    return [_as_seen(row, window) for row in found if row["tbl"] != orders.name or row["row_key"] in window.letters]


def _as_seen(row: RowMapping, window: Window) -> Note:
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
    """All notes since the tables were created."""
    window = Window({}, SINCE_BEGINNING, 0, 0, 0)
    found = connection.execute(select(writes).order_by(writes.c.id)).mappings()
    return tuple(_as_seen(row, window) for row in found)


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
    """The calls since the window began that carry out a till's actions."""
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
