"""Detects that the database was restored from an older copy, and raises an alarm until a person confirms it.

note       soon after each write, increase the generation in the tables, then in a sidecar file (store.high_water)
compare    the tables with the file's high-water mark: at the start, with each note and with each health check
withhold   what an older copy would repeat: rows that were perhaps sent, accounts and devices that were changed since

Nothing waits for the file. If its disk hangs or is full, the mark falls behind the tables, and that is an alarm; orders
still arrive.
"""

import asyncio
import os
import uuid
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import structlog
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from orderbridge import config
from orderbridge.errors import Over
from orderbridge.jobs.context import Context
from orderbridge.net.connector import exhausted
from orderbridge.rules.problems import Code
from orderbridge.store import high_water, journal
from orderbridge.store.database import BESIDE_S, Database
from orderbridge.store.dialects.sqlite_file import LAST_WORD
from orderbridge.store.high_water import HighWater, Older, SidecarWriter, hold_s, is_older
from orderbridge.store.problem_rows import ProblemsFile
from orderbridge.texts import say, text

RECENT = timedelta(days=1)
MARGIN = timedelta(minutes=1)  # a document is written to the journal after its order is stored
NOTE_EVERY_S = 0.2  # or SHARE times the duration of a note, at most LONGEST_S
SHARE, LONGEST_S = 10, 20.0
MANY_S = 5.0  # between notes with MANY accounts, whose versions are in the file
MANY = 1000
SLOW_S = 10.0  # a longer write counts as hung
CLOSE_S = 2.0  # for the last write at the stop

NAME_LIMIT = 5  # account names in a sentence

T = TypeVar("T")

_log = structlog.get_logger(__name__)


class RestoreCheck:
    """The check of one daemon."""

    def __init__(self, context: Context, accounts: Collection[str]) -> None:
        """`accounts`: the names of all accounts."""
        self._settings, self._database, self._clock = context.settings, context.database, context.clock
        self._accounts, self._kept, self._own_problems = accounts, context.kept, context.own_problems
        path = mark_path(self._settings, self._database)
        self._file = None if path is None else SidecarWriter(path, self._database.in_own_thread)
        self._found: HighWater | None = None  # by the health check under way
        self._was_lost = False  # the previous daemon lost the database file
        self._hangs = False  # reading a file hangs
        self._reading: asyncio.Future[HighWater | None] | None = None  # of the mark
        self._began: HighWater | None = None  # the tables at the start
        self._noted: HighWater | None = None  # the last mark of these tables; None: of an older copy
        self._is_written = False  # the daemon has written since the last note
        self._own = 0  # notes under way
        self._noting: asyncio.Task[None] | None = None

    async def start(self) -> float:
        """Check before anything is sent. Returns the seconds for which no poll may leave."""
        await self._database.run(lambda tx: high_water.begin(tx, uuid.uuid4().hex))
        before, mark = await self._read_mark(), self._kept.high_water
        # The mark of the previous daemon in this process may be newer than the file.
        if before is not None and (mark is None or not high_water.is_behind(before, mark)):
            self._kept.high_water = mark = before
        problems = await self._read_file(ProblemsFile(self._database).read) or ()
        self._was_lost = any(row["code"] == Code.DATABASE_LOST for row in problems)
        found, _ = await self._database.read(lambda tx: high_water.current(tx, self._clock.now(), mark))
        hold, self._began = 0.0, found
        if found is not None and mark is not None:
            if high_water.is_behind(found, mark) or self._is_of_newer(mark, found):
                hold = self._hold_s(mark)
            else:
                self._noted = mark
        self._database.on_written = self.written
        await self.check(at_start=True)
        return hold

    def _is_of_newer(self, mark: HighWater, found: HighWater) -> bool:
        """Whether the mark may be of newer tables: a crash may have lost the mark after an older copy was made safe."""
        file = self._database.file
        return file is not None and found.generation == mark.generation + 1 and file.wal() != mark.wal

    def _hold_s(self, mark: HighWater) -> float:
        market = self._settings.marketplace
        return hold_s(mark.at, self._clock.now(), market.timeout_seconds + market.cooldown_seconds)

    async def _read_mark(self) -> HighWater | None:
        """Read the mark. None also while the disk hangs; `follow` compares the mark when it arrives."""
        if self._file is None:
            return None
        read = partial(high_water.read_mark, self._file.path)
        self._reading = asyncio.ensure_future(self._database.in_own_thread(read))
        await asyncio.wait([self._reading], timeout=BESIDE_S)
        self._hangs = not self._reading.done()
        return self._read()

    def _read(self) -> HighWater | None:
        if self._reading is None or not self._reading.done():
            return None
        reading, self._reading = self._reading, None
        return reading.result()

    async def _read_file(self, read: Callable[[], T]) -> T | None:
        """Read a file beside the database. After one read has hung, no other is tried."""
        if self._hangs:
            return None
        try:
            return await self._database.access_file(read)
        except TimeoutError:
            self._hangs = True
        except OSError:
            pass
        return None

    async def close(self) -> None:
        """Write the last note, and wait briefly for the file."""
        self._database.on_written = lambda: None
        pending = [one for one in (self._noting, self._reading) if one is not None]
        for one in pending:
            one.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        with suppress(DBAPIError, Over):
            await self.check()
        if self._file is not None and self._file.slow_s() < CLOSE_S:
            await self._file.close(CLOSE_S)

    # ---- noting ------------------------------------------------------------------------------------------------------

    def written(self) -> None:
        """Schedule a note after a write of the daemon."""
        if self._own:
            self._own -= 1  # the note's own write, or one that it covers
            return
        self._is_written = True
        if self._noting is None or self._noting.done():
            self._noting = asyncio.create_task(self._note())

    async def _note(self) -> None:
        while self._is_written:
            self._is_written = False
            began = self._clock.monotonic()
            with suppress(DBAPIError, Over):  # reported elsewhere
                await self.check()
            took_s = self._clock.monotonic() - began
            few = self._kept.high_water is None or len(self._kept.high_water.accounts) < MANY
            await asyncio.sleep(max(NOTE_EVERY_S if few else MANY_S, min(SHARE * took_s, LONGEST_S)))

    async def check(self, *, at_start: bool = False) -> None:
        """Increase the generation, compare it with the mark and update the mark. Raises DBAPIError, Over."""
        self._own += 1
        try:
            found, older = await self._database.run(
                lambda tx: high_water.advance(tx, self._clock.now(), self._kept.high_water)
            )
        except BaseException:
            self._own = max(self._own - 1, 0)
            raise
        if found is not None:  # else a copy without this table
            self._report(older)
        await self._compare(found, at_start=at_start)

    def read(self, connection: Connection) -> None:
        """Read within the health check's transaction; `follow` continues with the result."""
        self._found, older = high_water.current(connection, self._clock.now(), self._kept.high_water)
        if self._found is not None:
            self._report(older)

    async def follow(self) -> None:
        """Compare what was read. A command or another replica may have written meanwhile."""
        found, before, self._found = self._found, self._kept.high_water, None
        if (late := self._read()) is not None and self._began is not None and found is not None:
            with suppress(DBAPIError, Over):
                if await self._is_older(self._began, late, at_start=True):
                    self._report(await self._withhold(found, late))
                    before = self._kept.high_water
        if found is None or before is None or replace(found, at=before.at) == before:
            return
        with suppress(DBAPIError, Over):  # others report it
            if found.generation == before.generation and found.database == before.database:
                await self.check()
            else:
                await self._compare(found)

    async def _compare(self, found: HighWater | None, *, at_start: bool = False) -> None:
        before = self._kept.high_water
        if found is None:
            return
        if before is not None and await self._is_older(found, before, at_start=at_start):
            self._report(await self._withhold(found, before))
            if self._kept.holds_rows:
                return
            fresh, _ = await self._database.read(lambda tx: high_water.current(tx, self._clock.now(), before))
            found = fresh or found
        self._kept.holds_rows = False  # also when a command has ended them
        if self._database.file is not None:
            self._noted = found = high_water.with_wal(found, self._noted, self._database.file.wal())
        self._kept.high_water = found
        if self._file is not None and self._reading is None:
            self._file.put(partial(asdict, found))

    # ---- an older copy -----------------------------------------------------------------------------------------------

    async def _is_older(self, found: HighWater, before: HighWater, *, at_start: bool) -> bool:
        if is_older(found, before, was_lost=self._was_lost):
            return True
        # After a power cut the mark may be slightly old. Then the journal shows orders that an older copy lacks. A new
        # database lacks those of the last day: the file was removed while no daemon ran, or the address was changed.
        since = before.at if found.database == before.database else before.at - RECENT
        return at_start and bool(await self._missing(since))

    async def _withhold(self, found: HighWater, before: HighWater) -> Older | None:
        now = self._clock.now()
        at, number = await self._database.read(high_water.last_known)
        missing = await self._missing(None if at is None else at - MARGIN)
        numbers = None
        if number is not None and before.order_number is not None and before.order_number > number:
            numbers = f"{number + 1}-{before.order_number}"
        seen = Older(now, at, missing, numbers)
        error_text = text("outcome_unknown", self._settings.language)
        until = now + timedelta(seconds=self._hold_s(before))
        withheld = await self._database.run(lambda tx: high_water.withhold(tx, found, before, seen, until, error_text))
        if withheld is not None:  # else another check was first; set before the write's own note runs
            self._noted = None
        older = await self._database.read(high_water.older)
        held, self._kept.holds_rows = self._kept.holds_rows, withheld is not None and withheld.rows is None
        if self._kept.holds_rows:  # a higher mark makes the next check repeat this
            self._kept.high_water = replace(before, generation=max(before.generation, found.generation + 1))
        if withheld is not None and not (held and self._kept.holds_rows):
            log = _log.info if older is None else _log.error
            log(
                "database.older_copy",
                last_known=None if at is None else at.isoformat(),
                missing=missing,
                numbers=numbers,
                rows_not_sent=withheld.rows,
                accounts_held=withheld.accounts,
                devices_revoked=withheld.devices,
                last_seen=before.at.isoformat(),
            )
        return older

    async def _missing(self, since: datetime | None) -> int | None:
        """The number of orders that the journal has since then and the tables lack; None without a journal."""
        folder = self._settings.journal
        if folder is None:
            return None
        keys = await self._read_file(partial(_since, folder, since, self._accounts))
        return len(await self._database.read(lambda tx: high_water.unknown(tx, keys))) if keys else None

    # ---- reporting ---------------------------------------------------------------------------------------------------

    def check_file(self) -> None:
        """Report or end the problem that the file cannot be written."""
        if self._file is None:
            return
        failed = self._file.error
        error = failed and (failed.strerror or type(failed).__name__)
        if self._reading is not None or self._file.slow_s() > SLOW_S:
            error = say("log.disk_silent")
        facts: dict[str, Any] = {"file": self._file.path, "error": error, "reason": exhausted(failed) if failed else ""}
        self._own_problems.report(Code.LAST_WORD_NOT_WRITTEN, is_open=error is not None, **facts)

    def _report(self, older: Older | None) -> None:
        if older is None:
            self._own_problems.end(Code.DATABASE_RESTORED)
            return
        at = "?" if older.last_known is None else f"{older.last_known:%Y-%m-%d %H:%M} UTC"
        missing = "?" if older.missing is None else str(older.missing)
        facts = {"last_known": at, "missing": missing, "numbers": older.numbers or "?"}
        facts["accounts"] = ", ".join(older.held[:NAME_LIMIT]) + ("…" if len(older.held) > NAME_LIMIT else "") or "-"
        self._own_problems.begin(Code.DATABASE_RESTORED, since=older.since, count=older.missing or 1, **facts)


def mark_path(settings: config.Settings, database: Database) -> Path | None:
    """The file's path: beside a SQLite file, else in the journal's folder or systemd's state directory, or None."""
    if database.file is not None:
        return Path(f"{database.file.path}{LAST_WORD}")
    folder = settings.journal or os.environ.get("STATE_DIRECTORY", "").partition(":")[0]
    return Path(folder, "last-word.json") if folder else None


def _since(folder: Path, since: datetime | None, accounts: Collection[str]) -> set[str]:
    """The orders of these accounts that the journal has since then."""
    found = journal.entries(journal.files(folder, None if since is None else since.date()))
    ours = (entry for entry in found if entry is not None and entry.account in accounts)
    return {entry.payment_key for entry in ours if since is None or entry.at > since}
