"""The open problems as a till reads them: delivery_problems, and the view delivery_alarms over it.

The daemon writes only what changes, and now and then a sign of life (delivery_daemon). What it wrote is true as long as
it works: once the sign is overdue, by the database's own clock, the view says that nobody polls, and nothing else.
"""

from collections.abc import Collection, Iterable, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection, bindparam, delete, false, insert, select, update

from orderbridge.store import own_tables
from orderbridge.store.columns import NAME_LENGTH, utc_now
from orderbridge.store.own_tables import alarms, daemon, problems

Key = tuple[str, str]  # code, subject
ONLY = 1  # the row of delivery_daemon

_lives = select(daemon.c.id).where(daemon.c.silent_from_utc >= utc_now()).exists()
_UNLIT = delete(own_tables.lamps).where(own_tables.lamps.c.account == bindparam("whose"))
_GONE = delete(problems).where(problems.c.code == bindparam("gone"), problems.c.subject == bindparam("whose"))


def as_subject(text: str) -> str:
    """A subject as the column takes it: many accounts' names are longer."""
    return text if len(text) <= NAME_LENGTH else f"{text[: NAME_LENGTH - 1]}…"


def rewrite(connection: Connection, gone: Iterable[Key], rows: Sequence[dict[str, Any]]) -> None:
    """What is over goes, and what has changed goes and comes anew: each row has a value for each column."""
    changed = [{"gone": code, "whose": subject} for code, subject in gone]
    if changed:
        connection.execute(_GONE, changed)
    if rows:
        connection.execute(insert(problems), rows)


def written(connection: Connection) -> list[dict[str, Any]]:
    """All rows as they stand."""
    return [dict(row) for row in connection.execute(select(problems)).mappings()]


def of_codes(connection: Connection, codes: Collection[str]) -> list[dict[str, Any]]:
    """The rows with these codes, as long as the daemon that wrote them shows signs of life."""
    found = select(problems).where(problems.c.code.in_(codes), _lives)
    return [dict(row) for row in connection.execute(found).mappings()]


def sign(connection: Connection, silent_after: timedelta, cause: str, remedy: str) -> None:
    """A sign of life. Without another one within `silent_after` nobody polls, and these are the words for it."""
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


def lamps(connection: Connection) -> dict[str, dict[str, Any]]:
    """The rows of delivery_lamps as they stand; none of a daemon that is silent: what it said is over."""
    found = select(own_tables.lamps).where(_lives)
    return {row["account"]: dict(row) for row in connection.execute(found).mappings()}


def light(connection: Connection, changed: Sequence[str] | None, rows: Sequence[dict[str, Any]]) -> None:
    """Lamps that have changed go, all of them with None, and come anew: each row has a value for each column."""
    if changed is None:
        connection.execute(delete(own_tables.lamps))
    elif changed:
        connection.execute(_UNLIT, [{"whose": account} for account in changed])
    if rows:
        connection.execute(insert(own_tables.lamps), rows)


def try_to_write(connection: Connection) -> None:
    """What fails where nothing can be written, and changes nothing."""
    connection.execute(update(daemon).where(false()).values(id=ONLY))


def shown(connection: Connection) -> list[dict[str, Any]]:
    """What the view shows."""
    return [dict(row) for row in connection.execute(select(alarms)).mappings()]
