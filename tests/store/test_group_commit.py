"""Many writes in one transaction: what is to blame fails alone, and nobody waits for a server once for each thing."""

from collections.abc import Sequence
from pathlib import Path

from sqlalchemy import Connection, event

from orderbridge.store.database import Database
from orderbridge.store.group_commit import write_batch


def sixths(_: Connection, numbers: Sequence[int]) -> list[int]:
    return [6 // number for number in numbers]


async def test_what_is_to_blame_fails_alone(tmp_path: Path):
    database = Database(f"sqlite:///{tmp_path}/pos.db", inline=True)
    written, failed = await write_batch(database, sixths, [1, 0, 3])
    database.close()
    assert (written, [(number, type(error)) for number, error in failed]) == ([6, 2], [(0, ZeroDivisionError)])


async def test_a_server_that_is_away_is_asked_once():
    database, asked = Database("postgresql+psycopg://pos@127.0.0.1:1/pos", inline=True), []
    event.listen(database.engine, "do_connect", lambda *_: asked.append(1))
    assert await write_batch(database, sixths, [1, 2, 3]) == ([], [])
    assert len(asked) == 1
