"""Writes into the tables that are not the daemon's, noted by triggers, on three databases side by side.

On a server the daemon's connections say who they are, each in its session; on SQLite its transactions open the guard.
The triggers look at that and note everybody else. They note and let pass: a report shows what a till would have been
refused. Only pos_revision's value is kept, no customer's.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from sqlalchemy import Column, Connection, Engine, Identity, Integer, MetaData, Table, event, insert, inspect, select

from orderbridge.store.ddl import big, code, long_text, utc, utc_now
from orderbridge.store.dialects import of
from orderbridge.store.tables import metadata
from orderbridge_certify.noise import TABLE as NOISE

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
    """How one kind of database knows the daemon, and how it notes other writers."""

    mark: str  # what the daemon says on each of its connections; empty: its transactions make it known
    triggers: Callable[[Table], Iterator[str]]
    before: tuple[str, ...] = ()


def _key(table: Table, row: str) -> str:
    return f"{row}.{next(iter(table.primary_key.columns)).name}"


def _note(table: Table, row: str, what: str, column: str = "") -> str:
    """The values of one note."""
    value = f"NEW.{column}" if column in VALUES else "NULL"
    revision = f"{row}.revision" if "revision" in table.c else "NULL"
    return f"'{what}', '{table.name}', {_key(table, row)}, '{column}', {value}, {revision}"


# Certify holds the guard open, so that nothing is refused; a transaction of the daemon's opens it once more.
_IS_TILL = f"(SELECT open FROM {of('sqlite').guard}) = 1"  # noqa: S608 - a name of ours


def _three(table: Table, begin: str, changed: str, end: str) -> Iterator[str]:
    """A trigger each for insert, delete and update; `changed` notes a column that is another one."""
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
    """Whatever this engine writes is the daemon's: from the first connection on."""
    if statement := WAYS[engine.dialect.name].mark:
        event.listen(engine, "connect", partial(_mark, statement))


def _mark(statement: str, connection: Any, _: Any) -> None:
    cursor = connection.cursor()
    cursor.execute(statement)
    cursor.close()
    connection.commit()


def are_kept(connection: Connection) -> bool:
    """Whether this database has been made by certify."""
    return inspect(connection).has_table(writes.name)


def keep(connection: Connection) -> None:
    """Note from now on what other programs write, and refuse it no more. The tables must be there."""
    way = WAYS[connection.dialect.name]
    _own.create_all(connection)
    connection.execute(insert(_noise).values(times=0))
    # On SQLite triggers refuse what grants refuse elsewhere; here it is to be seen. Dropped ones a start makes anew.
    guard = of(connection.dialect.name).guard
    held_open = [f"UPDATE {guard} SET open = open + 1"] if guard is not None else []  # noqa: S608 - a name of ours
    triggers = [one for table in metadata.sorted_tables if not table.is_view for one in way.triggers(table)]
    for statement in (*way.before, *held_open, *triggers):
        connection.exec_driver_sql(statement)


def now_of(connection: Connection) -> datetime:
    """The database's own clock: notes, rows and orders go by it."""
    return connection.execute(select(utc_now())).scalar_one()
