"""The high-water mark in a sidecar file, which detects a restored older copy of the tables, and makes it safe.

After its writes the daemon increases the generation, a counter in the tables, and then notes it in the file. So the
file is never ahead of current tables: a generation below the mark means an older copy. One transaction makes the copy
safe and raises the generation above the mark; after a crash it is repeated.

- An unfinished outbox row may have been sent after the copy was made: it ends as unknown and is not sent again.
- An account in the database that has changed since waits for `db confirm-restore`.
- A poll waits until the cooldown of one that the copy does not know is over.
- A device or pairing code of the board that the mark does not list was revoked since, and is revoked again.
"""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import AwareDatetime, TypeAdapter, ValidationError
from sqlalchemy import (
    Connection,
    Row,
    Select,
    String,
    and_,
    bindparam,
    column,
    delete,
    func,
    insert,
    literal_column,
    or_,
    select,
    table,
    update,
)
from sqlalchemy.exc import DBAPIError

from orderbridge.clock import SystemClock
from orderbridge.model import ActionState
from orderbridge.mounts import give_to_owner_of
from orderbridge.store.accounts import held, hold, versions
from orderbridge.store.failures import is_broken, is_refusal
from orderbridge.store.own_tables import books, devices, fleet, pairing
from orderbridge.store.rows import batches
from orderbridge.store.tables import (
    PLANNED,
    SCHEMA_VERSION_TABLE,
    accounts,
    actions,
    events,
    orders,
    quarantine,
    unfinished,
)

MODE = 0o600
MAX_BYTES = 8_000_000  # of a file: thousands of problems
LAG_S = 60.0  # of the mark behind the tables, on a slow disk


def read_document(path: Path) -> Any:
    """The JSON document in the file; None if it is missing or unreadable."""
    try:
        with path.open("rb") as file:
            return json.loads(file.read(MAX_BYTES))
    except (OSError, ValueError):
        return None


def write_document(path: Path, document: object) -> None:
    """Write the document atomically. Raises OSError."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    beside = path.with_name(f"{path.name}.new")
    beside.unlink(missing_ok=True)
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, MODE)
    try:
        os.write(descriptor, json.dumps(document, default=lambda moment: moment.isoformat()).encode())
        os.fsync(descriptor)
        give_to_owner_of(path.parent, descriptor)
    finally:
        os.close(descriptor)
    beside.replace(path)


class SidecarWriter:
    """Writes one file in a thread. Of several waiting documents only the newest is written.

    Nothing waits for it; `slow_s` shows a disk that hangs.
    """

    def __init__(self, path: Path, run: Callable[[Callable[[], None]], Awaitable[None]]) -> None:
        """`run` runs a call in a thread."""
        self.path = path
        self.error: OSError | None = None  # of the last try
        self._run = run
        self._clock = SystemClock()
        self._make: Callable[[], object] | None = None
        self._since: float | None = None  # begin of the write under way
        self._writing: asyncio.Task[None] | None = None

    def put(self, make: Callable[[], object]) -> None:
        """Write the document that `make` returns (called in the thread) after the current write."""
        self._make = make
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_all())

    def slow_s(self) -> float:
        """Seconds since the current write began."""
        since = self._since
        return 0.0 if since is None else self._clock.monotonic() - since

    async def close(self, within_s: float) -> None:
        """Wait for the last write, at most this long."""
        if self._writing is not None:
            await asyncio.wait([self._writing], timeout=within_s)

    async def _write_all(self) -> None:
        while (make := self._make) is not None:
            self._make, self._since = None, self._clock.monotonic()
            try:
                await self._run(lambda make=make: write_document(self.path, make()))  # type: ignore[misc]
                self.error = None
            except OSError as error:  # also for lack of a thread
                self.error = error
            self._since = None


@dataclass(frozen=True, slots=True)
class HighWater:
    """The high-water mark. `accounts`: versions by name.

    `devices`: the ids of the board's devices. `paired` and `revoked`: how many there were in all. `wal`: the salts of
    SQLite's -wal. `in_file`: the generation that the file without that -wal has at least. `is_older`: the tables are an
    unconfirmed older copy.
    """

    database: str
    generation: int
    event: int
    order_number: int | None
    accounts_version: int
    accounts: Mapping[str, int] = field(hash=False)
    paired: int
    revoked: int
    devices: tuple[str, ...]
    at: AwareDatetime
    wal: str | None = None
    in_file: int = 0
    is_older: bool = False


@dataclass(frozen=True, slots=True)
class Older:
    """The tables are an older copy.

    `missing`: orders that were acknowledged after it; None: unknown. `held`: accounts.
    """

    since: datetime
    last_known: datetime | None
    missing: int | None = None
    numbers: str | None = None
    held: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Withheld:
    """What was withheld from an older copy: unsent rows, held accounts, revoked devices.

    `rows`: None if the database refuses to end them.
    """

    rows: int | None
    accounts: tuple[str, ...]
    devices: int


# One query every few seconds, answered by indexes alone.
_MARK = select(
    books,
    select(func.max(events.c.id)).scalar_subquery().label("event"),
    select(fleet.c.accounts_version).scalar_subquery().label("accounts_version"),
    select(func.count(devices.c.id)).scalar_subquery().label("paired"),
    select(func.count(devices.c.revoked_utc)).scalar_subquery().label("revoked"),
)
_NUMBER = (
    select(orders.c.order_number)
    .join(events, events.c.payment_key == orders.c.payment_key)
    .where(events.c.id == bindparam("event"))
)
_DEVICES = select(devices.c.id).where(devices.c.revoked_utc.is_(None)).order_by(devices.c.id)
_ONE_AT_A_TIME: Select[Any] = (
    select(column("version_num", String)).select_from(table(SCHEMA_VERSION_TABLE)).with_for_update()
)
_ADVANCE = update(books).values(generation=books.c.generation + 1)


def begin(connection: Connection, name: str) -> None:
    """Give the database an id, unless it has one. If two replicas start at once, one of them does."""
    ids = select(books.c.id).order_by(books.c.generation.desc(), books.c.id)
    if len(connection.execute(ids).all()) == 1:
        return
    connection.execute(_ONE_AT_A_TIME)
    found = connection.execute(ids).scalars().all()
    if found:
        connection.execute(delete(books).where(books.c.id.not_in(found[:1])))
    else:
        connection.execute(insert(books).values(id=name))


def current(connection: Connection, now: datetime, before: HighWater | None) -> tuple[HighWater | None, Older | None]:
    """The tables' high-water mark (None before `begin`), and whether they are noted as an older copy.

    `before`: the last mark; its values are reused where they cannot have changed.
    """
    row = connection.execute(_MARK).first()
    if row is None:
        return None, None
    last = before if before is not None and before.database == row.id else None
    event, version = int(row.event or 0), int(row.accounts_version or 0)
    has_devices = last is not None and (last.paired, last.revoked) == (row.paired, row.revoked)
    mark = HighWater(
        database=row.id,
        generation=row.generation,
        event=event,
        order_number=_order_number(connection, event, last),
        accounts_version=version,
        accounts=last.accounts if last and last.accounts_version == version else versions(connection),
        paired=row.paired,
        revoked=row.revoked,
        devices=last.devices if last and has_devices else tuple(connection.execute(_DEVICES).scalars()),
        at=now,
        wal=last.wal if last else None,
        in_file=last.in_file if last else 0,
        is_older=row.older_since_utc is not None,
    )
    return mark, _older(connection, row)


def _order_number(connection: Connection, event: int, last: HighWater | None) -> int | None:
    """The highest order number among those that were the newest."""
    if last is not None and last.event == event:
        return last.order_number
    found: int | None = connection.execute(_NUMBER, {"event": event}).scalar()
    if last is None or last.order_number is None:
        return found
    return max(found or 0, last.order_number)


def advance(connection: Connection, now: datetime, before: HighWater | None) -> tuple[HighWater | None, Older | None]:
    """Increase the generation, and return the result of `current`. An older copy is not changed."""
    found, older_copy = current(connection, now, before)
    if found is None or (before is not None and is_behind(found, before)):
        return found, older_copy
    connection.execute(_ADVANCE)
    return replace(found, generation=connection.execute(select(books.c.generation)).scalar_one()), older_copy


def is_behind(found: HighWater, before: HighWater) -> bool:
    """Whether the tables are behind the mark, or another database."""
    return found.database != before.database or found.generation < before.generation


def with_wal(found: HighWater, before: HighWater | None, wal: str | None) -> HighWater:
    """The mark beside this -wal. When a -wal begins, all that was noted `before` is in the file itself."""
    if before is None:
        return replace(found, wal=wal, in_file=0)
    return replace(found, wal=wal, in_file=before.in_file if before.wal == wal else before.generation)


def is_older(found: HighWater, mark: HighWater, *, was_lost: bool) -> bool:
    """Whether the tables are certainly an older copy. `was_lost`: the daemon of the mark lost its database file.

    Another database id means a new database on purpose, unless `was_lost`.
    """
    if found.database != mark.database:
        return was_lost and mark.event > 0
    return found.generation < mark.generation


def hold_s(at: datetime, now: datetime, longest_s: float) -> float:
    """Seconds for which no poll may be sent. `at`: the mark's time; the last poll may be up to LAG_S later.

    A poll and its cooldown take `longest_s` at most. A mark from the future is due to a clock change.
    """
    return min(max(LAG_S + longest_s - (now - at).total_seconds(), 0.0), longest_s)


def last_known(connection: Connection) -> tuple[datetime | None, int | None]:
    """The time of the newest event, and the highest order number."""
    at = connection.execute(select(events.c.at_utc).order_by(events.c.id.desc()).limit(1)).scalar()
    return at, connection.execute(select(func.max(orders.c.order_number))).scalar()


def unknown(connection: Connection, keys: Iterable[str]) -> set[str]:
    """The orders that neither the tables nor quarantine have."""
    wanted = set(keys)
    for batch in batches(sorted(wanted)):
        for key in (orders.c.payment_key, quarantine.c.payment_key):
            wanted.difference_update(connection.execute(select(key).where(key.in_(batch))).scalars())
    return wanted


def older(connection: Connection) -> Older | None:
    """Whether the tables are noted as an older copy."""
    row = connection.execute(select(books)).first()
    return None if row is None else _older(connection, row)


def _older(connection: Connection, row: Row[Any]) -> Older | None:
    if row.older_since_utc is None:
        return None
    return Older(row.older_since_utc, row.last_known_utc, row.missing, row.missing_numbers, held(connection))


# ---- an older copy ---------------------------------------------------------------------------------------------------


def withhold(
    connection: Connection, found: HighWater, mark: HighWater, seen: Older, poll_from: datetime, error_text: str
) -> Withheld | None:
    """Make an older copy safe. None: another process has done so. `poll_from`: no poll may be sent before.

    The tables are noted as an older copy if they lack anything besides polls, if a closure's end is planned, or if the
    tables before them were noted. If the rows cannot be ended, the generation stays, and the next check repeats this.
    """
    above = max(found.generation, mark.generation) + 1
    ours = update(books).where(books.c.id == found.database)
    if not connection.execute(ours.where(books.c.generation == found.generation).values(generation=above)).rowcount:
        return None
    if poll_from > seen.since:  # a command may have found the copy, and the daemon starts after it
        too_early = or_(accounts.c.next_poll_utc.is_(None), accounts.c.next_poll_utc < poll_from)
        connection.execute(update(accounts).where(too_early).values(next_poll_utc=poll_from))
    rows = _end_rows(connection, mark.at, seen.since, error_text)
    if rows is None:
        connection.execute(ours.values(generation=found.generation))
    closed = connection.execute(select(actions.c.id).where(literal_column(PLANNED)).limit(1)).first()
    names: tuple[str, ...] = ()
    revoked = 0
    if found.database == mark.database:
        if found.accounts_version < mark.accounts_version:
            names = hold(connection, mark.accounts, mark.accounts_version, seen.since)
        revoked = _revoke_others(connection, mark.devices, seen.since)
    lacks_events = found.event < mark.event or found.database != mark.database
    if lacks_events or mark.is_older or seen.missing or rows != 0 or names or revoked or closed:
        values = {"missing": seen.missing, "missing_numbers": seen.numbers, "last_known_utc": seen.last_known}
        connection.execute(update(books).values(older_since_utc=seen.since, **values))
    return Withheld(rows, names, revoked)


def _end_rows(connection: Connection, written: datetime, now: datetime, error_text: str) -> int | None:
    """End rows older than the mark; newer rows of a till are sent. Impossible times are ignored.

    None: a trigger or a constraint of the POS refuses it.
    """
    # In one statement instead of verdicts (jobs.outcome_writer), because some rows may be unreadable. The log's
    # `database.older_copy` has their number.
    is_new = and_(actions.c.created_utc > written, actions.c.created_utc <= now)
    ended = {"state": ActionState.FAILED, "error_code": "outcome_unknown", "error_text": error_text}
    in_copy = or_(actions.c.created_utc.is_(None), ~is_new)
    statement = update(actions).where(unfinished, in_copy).values(finished_utc=now, **ended)
    try:
        with connection.begin_nested():
            return connection.execute(statement).rowcount
    except DBAPIError as error:
        if not is_refusal(error) and not is_broken(error):
            raise
        return None


def _revoke_others(connection: Connection, ids: tuple[str, ...], now: datetime) -> int:
    connection.execute(delete(pairing))
    gone = update(devices).where(devices.c.revoked_utc.is_(None), devices.c.id.not_in(ids))
    return connection.execute(gone.values(revoked_utc=now)).rowcount


def settle(connection: Connection) -> bool:
    """Remove the note about an older copy. Returns whether there was one."""
    settled = update(books).where(books.c.older_since_utc.is_not(None)).values(older_since_utc=None)
    return connection.execute(settled).rowcount > 0


# ---- the file --------------------------------------------------------------------------------------------------------


def read_mark(path: Path) -> HighWater | None:
    """The mark in the file; None if it is missing or unreadable."""
    with suppress(ValidationError):
        return TypeAdapter(HighWater).validate_python(read_document(path))
    return None
