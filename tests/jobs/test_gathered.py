"""Writing together what many accounts write at one moment (jobs.gathered)."""

import asyncio
from pathlib import Path

import pytest
from sqlalchemy import Connection, event, text
from sqlalchemy.exc import IntegrityError

from orderbridge.jobs.gathered import MOST, Gathered
from orderbridge.store.database import Database


@pytest.fixture
def database(tmp_path: Path):
    database = Database(f"sqlite:///{tmp_path}/pos.db", inline=True)
    database.write_now(lambda tx: tx.execute(text("CREATE TABLE kept (number INTEGER PRIMARY KEY)")))
    yield database
    database.close()


def keep(number: int):
    def write(connection: Connection) -> None:
        connection.execute(text("INSERT INTO kept VALUES (:number)"), {"number": number})

    return write


def kept(database: Database) -> list[int]:
    return database.read_now(lambda tx: list(tx.execute(text("SELECT number FROM kept ORDER BY 1")).scalars()))


async def test_what_comes_within_a_moment_is_one_commit(database: Database) -> None:
    commits: list[object] = []
    event.listen(database.engine, "commit", commits.append)
    gathered = Gathered(database, 0.1)
    async with asyncio.TaskGroup() as tasks:
        for number in range(MOST + 20):
            tasks.create_task(gathered.run(keep(number)))
    assert len(commits) == 2
    assert kept(database) == list(range(MOST + 20))


async def test_one_that_is_refused_takes_no_other_along(database: Database) -> None:
    gathered = Gathered(database, 0.1)
    ended = await asyncio.gather(*(gathered.run(keep(number)) for number in (1, 2, 2, 3)), return_exceptions=True)
    assert [type(one) for one in ended] == [type(None), type(None), IntegrityError, type(None)]
    assert kept(database) == [1, 2, 3]


async def test_who_has_gone_is_written_all_the_same_and_who_comes_later_is_not_forgotten(database: Database) -> None:
    gathered = Gathered(database, 0.1)
    gone = asyncio.create_task(gathered.run(keep(1)))
    await asyncio.sleep(0.05)
    gone.cancel()
    await gathered.run(keep(2))
    await gathered.run(keep(3))
    assert kept(database) == [1, 2, 3]


async def test_of_few_accounts_nothing_waits(database: Database) -> None:
    before = asyncio.get_running_loop().time()
    await Gathered(database, 0.0).run(keep(1))
    assert (asyncio.get_running_loop().time(), kept(database)) == (before, [1])
