"""A Galera cluster: its servers know nothing of each other's locks, so that all replicas have to be with one of them."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from tests import databases
from tests.store.test_membership import ALL, Replica

from orderbridge.errors import Fenced, Unusable
from orderbridge.store import schema
from orderbridge.store.database import Database

PROVIDER = Path("/usr/lib/galera/libgalera_smm.so")
ANOTHER = (
    "INSERT INTO delivery_replicas (replica, number, node, started_utc, seen_utc)"
    " VALUES ('other 1 0', 1, 'two', utc_timestamp(3), utc_timestamp(3) - INTERVAL {} SECOND)"
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cluster of one: a second server would need rsync, and its locks are its own anyway."""
    if not PROVIDER.exists():
        pytest.skip("galera-4 is not installed (tests/debian-packages)")
    port = 20000 + os.getpid() % 10000
    options = (
        "--wsrep-on=ON",
        f"--wsrep-provider={PROVIDER}",
        "--wsrep-cluster-address=gcomm://",
        "--wsrep-node-name=one",
        "--wsrep-node-address=127.0.0.1",
        f"--wsrep-provider-options=gmcast.listen_addr=tcp://127.0.0.1:{port};gcache.size=8M",
        "--binlog-format=ROW",
        "--innodb-autoinc-lock-mode=2",
        "--innodb-flush-log-at-trx-commit=0",
    )
    with databases.own_mariadb_server(*options) as server, databases.own_database(server.url, "shared") as url:
        yield url


@pytest.fixture
def database(cluster: str) -> Iterator[Database]:
    database = Database(cluster, inline=True)
    database.write_now(schema.upgrade)
    databases.empty(database)
    yield database
    database.close()


def another(database: Database, seconds_ago: int) -> None:
    database.write_now(lambda tx: tx.execute(text(ANOTHER.format(seconds_ago))))


class Patient(Replica):
    """One whose session is cut, because a write waited seconds for the disk, asks again, as a daemon does."""

    def beat(self, *give: int) -> frozenset[int]:
        while True:
            try:
                return super().beat(*give)
            except DBAPIError as error:
                if not error.connection_invalidated:
                    raise


def replica(cluster: str) -> Replica:
    return Patient(cluster)


def test_replicas_that_are_with_one_server_share_the_work(cluster: str, database: Database):
    first, second = replica(cluster).joined(), replica(cluster).joined()
    first.beat()
    first.beat(*first.excess)
    assert first.beat() | second.beat() == ALL
    assert database.read_now(lambda tx: set(tx.scalars(text("SELECT node FROM delivery_replicas")))) == {"one"}
    first.close()
    second.close()


def test_one_that_is_with_another_server_is_refused(cluster: str, database: Database):
    another(database, 5)
    first = replica(cluster)
    assert first.membership.take()
    with pytest.raises(Unusable, match=r"cluster's server one.*with two"):
        first.beat()
    first.close()
    names = database.read_now(lambda tx: list(tx.scalars(text("SELECT replica FROM delivery_replicas"))))
    assert names == ["other 1 0"]


def test_one_that_was_there_once_hinders_nobody(cluster: str, database: Database):
    another(database, 60)
    first = replica(cluster).joined()
    assert first.beat() == ALL
    first.close()


def test_one_that_finds_itself_with_another_server_is_over(cluster: str, database: Database):
    """Whose locks it had, nobody there knows."""
    first = replica(cluster).joined()
    first.membership._node = first.membership._node._replace(name="two")
    first.membership._drop()
    with pytest.raises(Fenced):
        first.beat()
    first.close()
