"""Claims and outcomes of rows are written together: what waits is one transaction, and each note is answered."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from sqlalchemy.exc import IntegrityError
from tests.rules.builders import row

from orderbridge.errors import FileLost, Over
from orderbridge.jobs.executor import RowWriter
from orderbridge.jobs.outcome_writer import Claim, Result
from orderbridge.model import Action, Attempt, Outcome
from orderbridge.rules.queue import Entry
from orderbridge.rules.retry import NextRequest
from orderbridge.store.database import Database


class Slow:
    """A database whose transactions end when they are told to. What each wrote is in `written`."""

    is_sqlite = True

    def __init__(self) -> None:
        self.done = asyncio.Event()
        self.begun = asyncio.Event()
        self.written: list[list[str]] = []
        self.error: Exception | None = None

    async def run(self, work: Callable[[Any], Any], *, urgent: bool) -> Any:
        self.begun.set()
        await self.done.wait()
        if self.error is not None:
            raise self.error
        self.written.append([])
        return work(self.written[-1])


def answered(name: str) -> Callable[..., Any]:
    """Each note is answered by its kind."""

    def write(transaction: list[str], notes: Sequence[Any]) -> list[tuple[Any, str]]:
        transaction += [name] * len(notes)
        return [(note, name) for note in notes]

    return write


def a_row_writer(database: Slow | Database, notes: Any = None) -> RowWriter:
    deferred: Any = SimpleNamespace(forget=lambda _: None)
    clock: Any = SimpleNamespace(monotonic=lambda: 0.0)
    slow: Any = database
    writer: Any = notes or SimpleNamespace(claim=answered("claim"), post=answered("outcome"))
    return RowWriter(slow, clock, deferred, writer, lambda: None)


def an_entry(number: int) -> Entry:
    return Entry(row(Action.ACCEPT, number), "kadikoy", ("order", str(number)), None, 0.0)


def a_result(number: int) -> Result:
    account: Any = None
    claim = Claim(row(Action.ACCEPT, number), ("order", ""), account, NextRequest.SEND, (), 1)
    return Result(claim, Attempt(Outcome.OK, None, 200))


async def test_what_waits_while_a_transaction_is_under_way_is_written_by_the_next_one():
    database = Slow()
    row_writer = a_row_writer(database)
    first = asyncio.ensure_future(row_writer.claim(an_entry(1)))
    await database.begun.wait()
    others = [asyncio.ensure_future(row_writer.claim(an_entry(number))) for number in (2, 3)]
    others += [asyncio.ensure_future(row_writer.write(a_result(4)))]
    await asyncio.sleep(0)
    database.done.set()
    assert await asyncio.gather(first, *others) == ["claim", "claim", "claim", "outcome"]
    assert database.written == [["claim"], ["outcome", "claim", "claim"]]
    assert not row_writer.is_writing


async def test_a_claim_is_told_that_the_file_is_lost():
    database = Slow()
    database.error = FileLost("gone")
    database.done.set()
    row_writer = a_row_writer(database)
    assert await row_writer.claim(an_entry(1)) is database.error
    assert (row_writer.failed, row_writer.is_busy()) == (database.error, False)


async def test_a_row_writer_whose_database_is_closed_meanwhile_comes_to_its_end(tmp_path: Path):
    """A group that failed is written one by one, and nobody is there any more who would do it."""
    database = Database(f"sqlite:///{tmp_path / 'pos.db'}")
    begun, closing = threading.Event(), threading.Event()

    def refuse(*_: Any) -> Any:
        begun.set()
        closing.wait()
        raise IntegrityError("", {}, Exception())

    row_writer = a_row_writer(database, SimpleNamespace(claim=refuse, post=refuse))
    claims = [asyncio.ensure_future(row_writer.claim(an_entry(number))) for number in (1, 2)]
    assert await asyncio.to_thread(begun.wait, 30.0)
    closing.set()
    database.close()
    assert [type(answer) for answer in await asyncio.gather(*claims)] == [Over, Over]
    assert isinstance(row_writer.failed, Over)
    assert not row_writer.is_writing
