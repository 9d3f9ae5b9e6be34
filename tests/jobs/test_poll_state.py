"""Notes of polls in groups: on disk before a request leaves, one COMMIT for many, errors for one account only."""

import asyncio
import sqlite3
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event
from tests.jobs.shop import COOLDOWN_S, START, TIMEOUT_S, FakeClock, settings_for, text_of

from orderbridge.jobs.context import Context
from orderbridge.jobs.poll import AFTER_S, BEFORE_S, Polls
from orderbridge.rules.cooldown import MARGIN_S
from orderbridge.store import accounts
from orderbridge.store.accounts import Entry, Success
from orderbridge.store.database import Database

LONGEST = timedelta(seconds=TIMEOUT_S + COOLDOWN_S + MARGIN_S)
NAMES = ("besiktas", "kadikoy", "moda")


class Book:
    """The table of accounts as another program reads it, and how often it was written to."""

    def __init__(self, database: Database, path: Path) -> None:
        self.database = database
        self._reader = sqlite3.connect(path, isolation_level=None)
        self.commits = 0
        event.listen(database.engine, "commit", self._count)

    def _count(self, connection: Any) -> None:
        self.commits += not connection.get_execution_options().get("orderbridge_read", False)

    def column(self, name: str) -> dict[str, Any]:
        return dict(self._reader.execute(f"SELECT fingerprint, {name} FROM delivery_accounts"))

    def close(self) -> None:
        self._reader.close()


@pytest.fixture
def book(tmp_path: Path, empty_file: Path) -> Iterator[Book]:
    path = tmp_path / "notes.db"
    path.write_bytes(empty_file.read_bytes())
    database = Database(f"sqlite:///{path}", inline=True, accept_unsafe_durability=True)
    database.write_now(lambda tx: accounts.register(tx, [Entry(name, name) for name in NAMES]))
    book = Book(database, path)
    yield book
    book.close()
    database.close()


@pytest.fixture
def notes(book: Book, clock: FakeClock) -> Polls:
    return Polls(Context.of(settings_for(Path("notes.db"), *NAMES), book.database, clock), NAMES, not_written=lambda: 0)


def good(name: str, at: datetime = START) -> Success:
    return Success(name, at, at + timedelta(seconds=30), 30)


@pytest.mark.parametrize("seconds", [[25.0], [25.0, 40.0], [25.0, 40.0, 40.0], [1.5, 0.0]])
async def test_a_slowly_written_note_still_covers_the_whole_poll(notes, book, clock, seconds):
    real, slow = book.database.run, iter(seconds)

    async def run(work: Any, **options: Any) -> Any:
        done = await real(work, **options)
        await asyncio.sleep(next(slow, 0.0))  # a commit may be slow on a disk or with a standby
        return done

    book.database.run = run  # type: ignore[method-assign]
    assert await asyncio.gather(*map(notes.reserve, NAMES)) == [None] * 3
    assert min(book.column("next_poll_utc").values()) >= text_of(clock.now() + LONGEST)


async def test_a_note_from_a_clock_that_was_ahead_is_cut(notes: Polls, book: Book):
    book.database.write_now(lambda tx: accounts.note_poll(tx, "kadikoy", next_poll_utc=START + timedelta(days=2)))
    assert await asyncio.gather(*map(notes.reserve, NAMES)) == [None, START + LONGEST, None]


async def test_with_many_accounts_a_note_waits_for_others_and_not_for_long(notes: Polls, book: Book, clock: FakeClock):
    notes.add_places(1000)
    began = clock.monotonic()
    after = asyncio.create_task(notes.succeeded(good("kadikoy")))
    await asyncio.sleep(AFTER_S / 2)
    assert book.commits == 0
    await notes.reserve("moda")  # also writes the waiting notes
    await after
    assert (book.commits, clock.monotonic() - began) == (1, pytest.approx(AFTER_S / 2 + BEFORE_S))
    await notes.succeeded(good("moda"))
    assert clock.monotonic() - began == pytest.approx(AFTER_S / 2 + BEFORE_S + AFTER_S)
    assert book.column("state") == {"besiktas": "new", "kadikoy": "ok", "moda": "ok"}
