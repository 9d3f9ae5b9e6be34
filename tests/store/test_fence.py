"""A daemon that was replaced writes nothing any more, and ends."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Connection, select
from tests.store.test_database import insert

from orderbridge.errors import Fenced
from orderbridge.store import tables
from orderbridge.store.database import Database


@pytest.fixture
def own(database: Database, url: str) -> Iterator[Database]:
    own = Database(url, inline=True)
    yield own
    own.close()


def orders(connection: Connection) -> list[str]:
    return list(connection.scalars(select(tables.orders.c.payment_key)))


def closed(_: Connection) -> None:
    raise Fenced("fleet.fenced")


async def test_the_fence_is_asked_in_the_transaction_before_anything_is_written(own: Database):
    asked: list[list[str]] = []
    own.fence = lambda connection: asked.append(orders(connection))
    await own.run(insert)
    assert asked == [[]]
    await own.read(orders)
    assert len(asked) == 1


async def test_what_is_fenced_is_not_written(own: Database, database: Database):
    own.fence = closed
    with pytest.raises(Fenced, match=r"fleet\.fenced"):
        await own.run(insert)
    assert database.read_now(orders) == []
