"""Stores open problems and account statuses for the views delivery_alarms and delivery_lamp, which a till reads.

The daemon writes changes and a sign of life (delivery_daemon). Once this is overdue, by the database's clock, the views
show only that no daemon polls.

If the SQLite file is lost or the database cannot be written, a small file (`ProblemsFile`) keeps the problems that were
reported to the alarm command, until their end is reported. It is in systemd's state directory or, for SQLite without
one, beside the database.
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
    """A subject, cut to the length of the column."""
    return text if len(text) <= NAME_LENGTH else f"{text[: NAME_LENGTH - 1]}…"


def rewrite(connection: Connection, table: Table, rows: Mapping[RowKey, Row | None]) -> None:
    """Replace or delete (None) the rows with these keys."""
    names = [f"old_{column.name}" for column in table.primary_key]
    if rows:  # also for new keys: a cancelled write may have succeeded
        connection.execute(_DELETE[table], [dict(zip(names, key, strict=True)) for key in rows])
    if fresh := [row for row in rows.values() if row is not None]:
        connection.execute(_INSERT[table], fresh)


def written(connection: Connection) -> tuple[list[Row], list[Row]]:
    """All rows of delivery_problems and delivery_lamps. Statuses of a silent daemon have no time."""
    is_alive = connection.execute(select(_is_alive)).scalar_one()
    statuses = [dict(row) for row in connection.execute(select(lamps)).mappings()]
    return (
        [dict(row) for row in connection.execute(_PROBLEMS).mappings()],
        statuses if is_alive else [row | {"since_utc": None} for row in statuses],
    )


def of_codes(connection: Connection, codes: Collection[str]) -> list[Row]:
    """The problems with these codes, unless the daemon is silent."""
    found = _PROBLEMS.where(problems.c.code.in_(codes), _is_alive)
    return [dict(row) for row in connection.execute(found).mappings()]


def note_alive(
    connection: Connection, silent_after: timedelta, cause: str, remedy: str, default_account: str | None = None
) -> None:
    """Write a sign of life. `cause` and `remedy` are shown if no other follows within `silent_after`."""
    now = connection.execute(select(utc_now())).scalar_one()
    values = {"seen_utc": now, "silent_from_utc": now + silent_after, "cause": cause, "remedy": remedy}
    values["default_account"] = default_account
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
    """A write that changes nothing, but fails if nothing can be written."""
    connection.execute(update(daemon).where(false()).values(id=ONLY))


class ProblemsFile:
    """The file of one database. Its rows are those of delivery_problems."""

    def __init__(self, database: Database) -> None:
        file, url = database.file, database.engine.url
        self._database = url.render_as_string() if file is None else file.path  # without its password
        state = os.environ.get("STATE_DIRECTORY", "").partition(":")[0]
        beside = None if file is None else Path(f"{file.path}.lost")
        name = "server.lost" if beside is None else beside.name
        self._path = Path(state, name) if state else beside

    def read(self) -> list[Row] | None:
        """The reported problems; None without a file."""
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
        """Remove the file. Raises OSError."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def _row(row: Row) -> Row:
    since = row["since_utc"]
    return {**row, "since_utc": since and datetime.fromisoformat(since)}
