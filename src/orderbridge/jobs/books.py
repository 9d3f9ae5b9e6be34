"""Whether the tables are what they were: an older copy that was put back is seen, and says so until somebody has looked.

decide: rules.books, by what the tables say and by the last word beside them
write: store.books; what the copy had still to send is not sent, because it may have been
Nothing is held up by it: orders come in meanwhile.
"""

import os
import uuid
from collections.abc import Collection
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import structlog
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from orderbridge import config
from orderbridge.clock import Clock
from orderbridge.jobs.daemon_problems import DaemonProblems
from orderbridge.rules.books import Copy, judge
from orderbridge.rules.problems import Code
from orderbridge.store import books, journal
from orderbridge.store.books import Older, Word
from orderbridge.store.database import Database
from orderbridge.store.lost import Loss
from orderbridge.texts import text

MARGIN = timedelta(minutes=1)  # a document is in the journal a moment after its order is in the tables

_log = structlog.get_logger(__name__)


class Books:
    """Of one daemon."""

    def __init__(
        self,
        settings: config.Settings,
        database: Database,
        clock: Clock,
        known: DaemonProblems,
        accounts: Collection[str] | None = None,
    ) -> None:
        """`accounts`: the names of all there are; without it, of those that are configured."""
        self._accounts = {account.name for account in settings.accounts} if accounts is None else accounts
        self._settings = settings
        self._database = database
        self._clock = clock
        self._known = known
        self._path = word_path(settings, database)
        self.last: Word | None = None  # the last word; in the same process the next daemon begins with it
        self._found: Word | None = None  # at the look that is under way
        self._was_lost = False  # the file was taken away under the daemon before this one
        self._told = False  # that the word cannot be written

    async def start(self) -> None:
        """Before anything is sent."""
        await self._database.run(lambda tx: books.begin(tx, uuid.uuid4().hex))
        if self._path is not None:
            self.last = await self._database.apart(partial(books.read_word, self._path))
        told = await self._database.apart(Loss(self._database).read) or ()
        self._was_lost = any(row["code"] == Code.DATABASE_LOST for row in told)
        await self._look(strictly=False)

    async def look(self) -> None:
        """At the end."""
        with suppress(DBAPIError):  # others tell it
            await self._look(strictly=True)

    async def _look(self, *, strictly: bool) -> None:
        await self._database.read(self.read)
        await self._follow(strictly=strictly)

    def read(self, connection: Connection) -> None:
        """Within a transaction of whoever looks at more; `follow` goes on from there."""
        self._found, older = books.stands(connection, self._clock.now(), self.last)
        if self._found is not None:  # else a copy from before there was this table, or none of ours
            self._tell(older)

    async def follow(self) -> None:
        """What was read is compared with the last word, and is the next one."""
        with suppress(DBAPIError):  # others tell it
            await self._follow(strictly=True)

    async def _follow(self, *, strictly: bool) -> None:
        word, before, self._found = self._found, self.last, None
        if word is None:
            return
        if before is not None and await self._is_older(word, before, strictly=strictly):
            self._tell(await self._note(before))
        if before is None or (before.books, before.event) != (word.books, word.event):
            await self._write(_with_highest(word, before))

    async def _is_older(self, word: Word, before: Word, *, strictly: bool) -> bool:
        copy = judge(word, before, strictly=strictly, was_lost=self._was_lost)
        return copy is Copy.OLDER or (copy is Copy.IF_MISSING and bool(await self._missing(before.at)))

    async def _note(self, before: Word) -> Older:
        now = self._clock.now()
        at, number = await self._database.read(books.last_known)
        missing = await self._missing(None if at is None else at - MARGIN)
        numbers = None
        if number is not None and before.order_number is not None and before.order_number > number:
            numbers = f"{number + 1}-{before.order_number}"
        seen = Older(now, at, missing, numbers)
        said = text("outcome_unknown", self._settings.language)
        doubted = await self._database.run(lambda tx: _note(tx, seen, before.at, said))
        facts = {"last_known": None if at is None else at.isoformat(), "missing": missing, "numbers": numbers}
        _log.error("database.older_copy", **facts, last_seen=before.at.isoformat(), rows_not_sent=doubted)
        return seen

    async def _missing(self, since: datetime | None) -> int | None:
        """How many orders the journal has since then and the tables do not; None: there is no journal."""
        folder = self._settings.journal
        if folder is None:
            return None
        try:
            keys = await self._database.apart(partial(_since, folder, since, self._accounts))
        except OSError:
            return None
        return len(await self._database.read(lambda tx: books.unknown(tx, keys))) if keys else None

    async def _write(self, word: Word) -> None:
        self.last = word
        if self._path is not None:
            try:
                await self._database.apart(partial(books.write_word, self._path, word))
            except OSError as error:
                if not self._told:
                    _log.warning("database.last_word_not_written", file=str(self._path), error=error.strerror)
                self._told = True
            else:
                self._told = False

    def _tell(self, older: Older | None) -> None:
        if older is None:
            self._known.end(Code.DATABASE_RESTORED)
            return
        at = "?" if older.last_known is None else f"{older.last_known:%Y-%m-%d %H:%M} UTC"
        missing = "?" if older.missing is None else str(older.missing)
        facts = {"last_known": at, "missing": missing, "numbers": older.numbers or "?"}
        self._known.begin(Code.DATABASE_RESTORED, since=older.since, count=older.missing or 1, **facts)


def word_path(settings: config.Settings, database: Database) -> Path | None:
    """Beside a SQLite file; of a server in the journal's folder, or in systemd's state directory; None: nowhere."""
    if database.file is not None:
        return Path(f"{database.file.path}.last-word")
    folder = settings.journal or os.environ.get("STATE_DIRECTORY", "").partition(":")[0]
    return Path(folder, "last-word.json") if folder else None


def _note(connection: Connection, seen: Older, written: datetime, said: str) -> int:
    books.note_older(connection, seen)
    return books.doubt_rows(connection, written, seen.since, said)


def _since(folder: Path, since: datetime | None, accounts: Collection[str]) -> set[str]:
    """The orders of these accounts that were delivered after that, by the journal."""
    found = journal.entries(journal.files(folder, None if since is None else since.date()))
    ours = (entry for entry in found if entry is not None and entry.account in accounts)
    return {entry.payment_key for entry in ours if since is None or entry.at > since}


def _with_highest(word: Word, before: Word | None) -> Word:
    """With the highest order number of all that were the newest."""
    if before is None or before.books != word.books or before.order_number is None:
        return word
    highest = max(word.order_number or 0, before.order_number)
    return Word(word.books, word.event, word.listened, highest, word.at)
