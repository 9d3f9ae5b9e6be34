"""An older copy of the tables is detected, and nothing else is taken for one."""

from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import insert, select
from tests import databases

from orderbridge.store.database import Database
from orderbridge.store.high_water import begin, hold_s, is_older
from orderbridge.store.own_tables import books

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)


@dataclass(frozen=True)
class Reach:
    database: str = "ours"
    generation: int = 100
    event: int = 50


MARK = Reach()
ANOTHER = Reach(database="another", generation=1, event=1)


def test_tables_are_an_older_copy_when_their_generation_is_below_the_mark() -> None:
    for found, older in (
        (MARK, False),
        (replace(MARK, generation=101), False),
        (replace(MARK, generation=99), True),  # older, although no event is missing
        (replace(MARK, generation=99, event=40), True),
        (replace(MARK, event=0), False),  # old events were deleted
        (ANOTHER, False),
    ):
        assert is_older(found, MARK, was_lost=False) is older
    assert is_older(ANOTHER, MARK, was_lost=True), "the one before was taken away, and had events"
    assert not is_older(ANOTHER, replace(MARK, event=0), was_lost=True)
    assert not is_older(MARK, MARK, was_lost=True)


@pytest.mark.parametrize("ago_s, held_s", [(86400, 0), (110, 0), (98, 12), (60, 50), (0, 50), (-86400, 50)])
def test_the_mark_delays_a_poll_but_never_longer_than_a_poll_can_take(ago_s: int, held_s: float) -> None:
    assert hold_s(NOW - timedelta(seconds=ago_s), NOW, longest_s=50.0) == held_s


@databases.only(*databases.SERVERS)
def test_two_first_daemons_on_a_new_database_agree_on_one_id(url: str, database: Database) -> None:
    ids = select(books.c.id)
    first, second = Database(url, inline=True), Database(url, inline=True)
    with ThreadPoolExecutor(1) as pool:
        with first.engine.begin() as connection:
            begin(connection, "first")
            other = pool.submit(second.write_now, lambda tx: begin(tx, "second"))
            wait([other], timeout=0.3)  # it has seen no id, and waits for the first
        other.result()
    assert database.read_now(lambda tx: tx.execute(ids).scalars().all()) == ["first"]
    database.write_now(lambda tx: tx.execute(insert(books).values(id="further", generation=7)))
    database.write_now(lambda tx: begin(tx, "new"))
    assert database.read_now(lambda tx: tx.execute(ids).scalars().all()) == ["further"]
    first.close()
    second.close()
