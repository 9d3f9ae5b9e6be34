"""Where replicas cannot share: a SQLite file has one daemon, which has everything; what is not known is refused."""

import pytest
from tests import databases
from tests.store.test_database import insert
from tests.wording import says

from orderbridge.errors import Unusable
from orderbridge.store.database import Database
from orderbridge_fleet.buckets import share
from orderbridge_fleet.single_node import Alone, membership


@databases.only(databases.SQLITE)
def test_a_file_has_one_who_has_everything(database: Database, url: str):
    mine = membership(database, share)
    assert isinstance(mine, Alone)
    assert mine.take()
    beat = mine.beat()
    assert (beat.held, beat.excess, beat.count) == (frozenset(range(64)), frozenset(), 64)
    other = Database(url, inline=True)
    assert not membership(other, share).take()
    other.fence = mine.fence
    other.write_now(insert)
    mine.close()
    other.close()


@databases.only(databases.SERVERS[0])
def test_a_driver_that_is_not_known_is_refused(database: Database, monkeypatch):
    monkeypatch.setattr(database.engine.dialect, "driver", "other")
    with pytest.raises(Unusable, check=says("other")):
        membership(database, share)
