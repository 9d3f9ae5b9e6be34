"""The open problems and the account statuses as a till reads them: the rows under the views delivery_alarms and delivery_lamp.

The daemon writes what changes, and a sign of life (delivery_daemon). What it wrote is true while it works: once the sign
is overdue, by the database's own clock, the views say that no daemon polls, and nothing else.

When the SQLite file is lost, or the database takes nothing, a small file (`HeardFile`) keeps what the alarm command has
heard, until it has heard of the end. It lies in systemd's state directory, if there is one, since a disk that goes away
takes along what lies beside the database's file; for a server it lies nowhere else.
"""

import os
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Table, bindparam, delete, false, insert, select, update

from orderbridge.store.database import Database
from orderbridge.store.ddl import NAME_LENGTH, utc_now
from orderbridge.store.high_water import read_document, write_document
from orderbridge.store.own_tables import daemon, lamps, problems

RowKey = tuple[str, ...]  # code and subject, or the account
Row = dict[str, Any]
ONLY = 1  # the row of delivery_daemon

_is_alive = select(daemon.c.id).where(daemon.c.silent_from_utc >= utc_now()).exists()
_DELETE = {
    table: delete(table).where(*(column == bindparam(f"old_{column.name}") for column in table.primary_key))
    for table in (problems, lamps)
}
_INSERT = {problems: insert(problems).values(noted_utc=utc_now()), lamps: insert(lamps)}
_PROBLEMS = select(*(column for column in problems.c if column.name != "noted_utc"))


def as_subject(text: str) -> str:
    """A subject as the column takes it: many accounts' names are longer."""
    return text if len(text) <= NAME_LENGTH else f"{text[: NAME_LENGTH - 1]}…"


def rewrite(connection: Connection, table: Table, rows: Mapping[RowKey, Row | None]) -> None:
    """Put these rows in the place of those with their keys, or nothing. Each has a value for each column."""
    names = [f"old_{column.name}" for column in table.primary_key]
    if rows:  # also a key that is new: a write may have been cancelled, and done all the same
        connection.execute(_DELETE[table], [dict(zip(names, key, strict=True)) for key in rows])
    if fresh := [row for row in rows.values() if row is not None]:
        connection.execute(_INSERT[table], fresh)


def written(connection: Connection) -> tuple[list[Row], list[Row]]:
    """All rows of delivery_problems and delivery_lamps. Of a daemon that is silent no status has a time: it is over."""
    is_alive = connection.execute(select(_is_alive)).scalar_one()
    statuses = [dict(row) for row in connection.execute(select(lamps)).mappings()]
    return (
        [dict(row) for row in connection.execute(_PROBLEMS).mappings()],
        statuses if is_alive else [row | {"since_utc": None} for row in statuses],
    )


def of_codes(connection: Connection, codes: Collection[str]) -> list[Row]:
    """The problems with these codes, as long as the daemon that wrote them shows signs of life."""
    found = _PROBLEMS.where(problems.c.code.in_(codes), _is_alive)
    return [dict(row) for row in connection.execute(found).mappings()]


def sign(connection: Connection, silent_after: timedelta, cause: str, remedy: str) -> None:
    """A sign of life. Without another one within `silent_after` no daemon polls; `cause` and `remedy` say so then."""
    now = connection.execute(select(utc_now())).scalar_one()
    values = {"seen_utc": now, "silent_from_utc": now + silent_after, "cause": cause, "remedy": remedy}
    if not connection.execute(update(daemon).where(daemon.c.id == ONLY).values(**values)).rowcount:
        connection.execute(insert(daemon).values(id=ONLY, **values))


def is_silent(connection: Connection) -> bool:
    """Whether a daemon has worked, and its sign of life is overdue."""
    overdue = select(daemon.c.id).where(daemon.c.silent_from_utc < utc_now())
    return connection.execute(overdue).first() is not None


def has_worked(connection: Connection) -> bool:
    """Whether a daemon has ever given a sign of life."""
    return connection.execute(select(daemon.c.id)).first() is not None


def try_to_write(connection: Connection) -> None:
    """What fails where nothing can be written, and changes nothing."""
    connection.execute(update(daemon).where(false()).values(id=ONLY))


class HeardFile:
    """The file of one database. Its rows are those of delivery_problems."""

    def __init__(self, database: Database) -> None:
        file, url = database.file, database.engine.url
        self._database = url.render_as_string() if file is None else file.path  # without its password
        state = os.environ.get("STATE_DIRECTORY", "").partition(":")[0]
        beside = None if file is None else Path(f"{file.path}.lost")
        name = "server.lost" if beside is None else beside.name
        self._path = Path(state, name) if state else beside

    def read(self) -> list[Row] | None:
        """What the command had heard; None: nothing was lost, or that is over."""
        document: Any = None if self._path is None else read_document(self._path)
        try:
            return [_row(one) for one in document["told"]] if document["database"] == self._database else None
        except (ValueError, TypeError, KeyError):
            return None

    def write(self, rows: Sequence[Row]) -> None:
        """Raises OSError."""
        if self._path is not None:
            write_document(self._path, {"database": self._database, "told": rows})

    def end(self) -> None:
        """The command has heard of the end. Raises OSError."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def _row(row: Row) -> Row:
    since = row["since_utc"]
    return {**row, "since_utc": since and datetime.fromisoformat(since)}
