"""Group commit: many notes in one transaction; each caller gets its result, and only the faulty one fails."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import Connection, event, text
from sqlalchemy.exc import IntegrityError, OperationalError

from orderbridge.store.database import Database
from orderbridge.store.group_commit import GROUP_SIZE, GroupCommit, RowLocked, write_batch, write_group


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database(f"sqlite:///{tmp_path}/pos.db", inline=True)
    database.write_now(lambda tx: tx.execute(text("CREATE TABLE kept (number INTEGER PRIMARY KEY)")))
    yield database
    database.close()


def insert(connection: Connection, numbers: Sequence[int]) -> list[tuple[int, str]]:
    """Insert the numbers, except negative ones."""
    taken = [number for number in numbers if number >= 0]
    for number in taken:
        connection.execute(text("INSERT INTO kept VALUES (:number)"), {"number": number})
    return [(number, f"kept {number}") for number in taken]


def group_of(database: Database, **options: object) -> GroupCommit[int, str]:
    return GroupCommit(partial(write_group, database, insert), **options)


def kept(database: Database) -> list[int]:
    return database.read_now(lambda tx: list(tx.execute(text("SELECT number FROM kept ORDER BY 1")).scalars()))


async def test_notes_added_within_the_wait_are_one_group(database: Database) -> None:
    commits, group = [], group_of(database, wait_s=0.1)
    event.listen(database.engine, "commit", commits.append)
    answers = await asyncio.gather(*(group.add(number) for number in range(GROUP_SIZE + 20)))
    assert (answers[-1], len(commits)) == (f"kept {GROUP_SIZE + 19}", 2)
    assert kept(database) == list(range(GROUP_SIZE + 20))
    assert not group.is_writing


async def test_notes_added_during_a_write_are_the_next_group(database: Database) -> None:
    begun, go, groups = asyncio.Event(), asyncio.Event(), []

    async def write(notes: Sequence[int]) -> tuple[list[tuple[int, str]], list[tuple[int, Exception]]]:
        groups.append(list(notes))
        begun.set()
        await go.wait()
        return [(note, "") for note in notes], []

    group: GroupCommit[int, str] = GroupCommit(write)
    first = group.add(1)
    await begun.wait()
    others = [group.add(2), group.add(3, within_s=5.0), group.add(4)]
    await asyncio.sleep(0.1)
    assert groups == [[1]], "one transaction at a time"
    go.set()
    await asyncio.gather(first, *others)
    assert groups == [[1], [2, 3, 4]]


async def test_a_note_waits_no_longer_than_it_may(database: Database) -> None:
    loop, group = asyncio.get_running_loop(), group_of(database, wait_s=0.4)
    began = loop.time()
    patient, hasty = group.add(1), group.add(2, within_s=0.1)
    await hasty
    assert patient.done()
    assert 0.1 <= loop.time() - began < 0.3
    flushed = group.add(3)
    group.flush()
    await flushed
    assert loop.time() - began < 0.3


async def test_a_note_that_is_refused_or_left_out_fails_alone(database: Database) -> None:
    group = group_of(database, wait_s=0.1)
    database.write_now(lambda tx: insert(tx, [2]))
    ended = await asyncio.gather(*(group.add(number) for number in (1, 2, 3, -1)), return_exceptions=True)
    assert ([type(one) for one in ended], kept(database)) == ([str, IntegrityError, str, RowLocked], [1, 2, 3])


async def test_a_postponed_note_is_written_later_while_its_caller_waits(database: Database) -> None:
    asked: list[list[int]] = []

    def put_off(failed: Sequence[tuple[int, Exception]]) -> list[float | None]:
        asked.append([number for number, _ in failed])
        database.write_now(lambda tx: tx.execute(text("DELETE FROM kept WHERE number = 7")))
        return [0.1 if number == 7 else None for number, _ in failed]

    group = group_of(database, wait_s=0.01, put_off=put_off)
    await group.add(7)
    await group.add(8)
    ended = await asyncio.gather(*(group.add(number) for number in (7, 8, 9)), return_exceptions=True)
    assert ([type(one) for one in ended], asked) == ([str, IntegrityError, str], [[7, 8]])
    group.add(9).cancel()
    await group.add(10)
    assert asked == [[7, 8]], "nobody waits for it any more"


def sixths(_: Connection, numbers: Sequence[int]) -> list[int]:
    return [6 // number for number in numbers]


async def test_an_unreachable_server_is_tried_once_per_group() -> None:
    asked: list[object] = []
    with closing(Database("postgresql+psycopg://pos@127.0.0.1:1/pos", inline=True)) as away:
        event.listen(away.engine, "do_connect", lambda *_: asked.append(1))
        group = group_of(away, wait_s=0.01)
        ended = await asyncio.gather(*(group.add(number) for number in (1, 2, 3)), return_exceptions=True)
        assert ([type(one) for one in ended], len(asked)) == ([OperationalError] * 3, 1)
        assert (await write_batch(away, sixths, [1, 2, 3]), len(asked)) == (([], []), 2)


async def test_only_the_faulty_note_of_a_batch_fails(database: Database) -> None:
    written, failed = await write_batch(database, sixths, [1, 0, 3])
    assert (written, [(number, type(error)) for number, error in failed]) == ([6, 2], [(0, ZeroDivisionError)])
