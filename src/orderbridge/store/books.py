"""How far the tables go, and the last word about it that stands beside them: so that an older copy put back is seen.

The word names the books by an id that was made by chance and goes with every copy, so that a word that was left behind by
another database says nothing.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Row, bindparam, func, insert, select, update

from orderbridge.model import ActionState
from orderbridge.store.among import batches
from orderbridge.store.own_tables import books
from orderbridge.store.sidecar import read_document, write_document
from orderbridge.store.tables import accounts, actions, events, orders, quarantine, unfinished


@dataclass(frozen=True, slots=True)
class Word:
    """How far the books go. `event`: the newest line of a story. `listened`: seconds, which only grow."""

    books: str
    event: int
    listened: int
    order_number: int | None
    at: datetime


@dataclass(frozen=True, slots=True)
class Older:
    """That the tables are an older copy. `missing`: orders that were acknowledged after it; None: nobody knows."""

    since: datetime
    last_known: datetime | None
    missing: int | None = None
    numbers: str | None = None


# Asked every few seconds: what is looked up by an index alone, in one question.
_STANDS = select(
    books,
    select(func.max(events.c.id)).scalar_subquery().label("event"),
    select(func.sum(accounts.c.listened_seconds)).scalar_subquery().label("listened"),
)
_NUMBER = (
    select(orders.c.order_number)
    .join(events, events.c.payment_key == orders.c.payment_key)
    .where(events.c.id == bindparam("event"))
)


def stands(connection: Connection, now: datetime, before: Word | None) -> tuple[Word | None, Older | None]:
    """How far these tables go, and whether it stands there that they are an older copy; no word before `begin`.

    `before`: the last word; what it says of the same event is not asked again.
    """
    row = connection.execute(_STANDS).first()
    if row is None:
        return None, None
    event, listened = int(row.event or 0), int(row.listened or 0)
    if before is not None and (before.books, before.event) == (row.id, event):
        number = before.order_number
    else:
        number = connection.execute(_NUMBER, {"event": event}).scalar()
    return Word(row.id, event, listened, number, now), _older(row)


def begin(connection: Connection, name: str) -> None:
    """Give the books their id, unless they have one."""
    if connection.execute(select(books.c.id)).first() is None:
        connection.execute(insert(books).values(id=name))


def last_known(connection: Connection) -> tuple[datetime | None, int | None]:
    """The time of the newest line of a story, and the highest order number."""
    at = connection.execute(select(events.c.at_utc).order_by(events.c.id.desc()).limit(1)).scalar()
    return at, connection.execute(select(func.max(orders.c.order_number))).scalar()


def unknown(connection: Connection, keys: Iterable[str]) -> set[str]:
    """Of these orders, the ones that neither the tables nor quarantine have."""
    wanted = set(keys)
    for batch in batches(sorted(wanted)):
        for column in (orders.c.payment_key, quarantine.c.payment_key):
            wanted.difference_update(connection.execute(select(column).where(column.in_(batch))).scalars())
    return wanted


def older(connection: Connection) -> Older | None:
    """Whether it stands there that they are an older copy."""
    return _older(connection.execute(select(books)).first())


def _older(row: Row[Any] | None) -> Older | None:
    if row is None or row.older_since_utc is None:
        return None
    return Older(row.older_since_utc, row.last_known_utc, row.missing, row.missing_numbers)


def note_older(connection: Connection, seen: Older) -> None:
    """It stands there until `settle`."""
    values = {"missing": seen.missing, "missing_numbers": seen.numbers, "last_known_utc": seen.last_known}
    connection.execute(update(books).values(older_since_utc=seen.since, **values))


def settle(connection: Connection) -> bool:
    """What was missing was taken in, or a person has looked. Whether there was anything to settle."""
    settled = update(books).where(books.c.older_since_utc.is_not(None)).values(older_since_utc=None)
    return connection.execute(settled).rowcount > 0


def doubt_rows(connection: Connection, written: datetime, now: datetime, said: str) -> int:
    """End the unfinished outbox rows of the copy: they may have been sent after it was made, and are not sent again."""
    # In one statement, not by a verdict for each (jobs.verdicts): some may be unreadable, and nothing is learnt of their
    # orders. The log's `database.older_copy` tells how many they are.
    ended = {"state": ActionState.FAILED, "error_code": "outcome_unknown", "error_text": said, "finished_utc": now}
    return connection.execute(
        update(actions).where(unfinished, actions.c.created_utc <= written).values(**ended)
    ).rowcount


# ---- the word beside them --------------------------------------------------------------------------------------------


def read_word(path: Path) -> Word | None:
    """None where there is none that can be read."""
    said = read_document(path)
    try:
        at = datetime.fromisoformat(said["at"])
        number = said["order_number"]
        return Word(
            str(said["books"]), int(said["event"]), int(said["listened"]), number and int(number), at.astimezone(UTC)
        )
    except (ValueError, TypeError, KeyError):
        return None


def write_word(path: Path, word: Word) -> None:
    """Raises OSError."""
    write_document(path, asdict(word))
