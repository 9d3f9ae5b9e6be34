"""How long another user's transaction is open, as certify's database user can see it."""

import os
import threading
import time
from collections.abc import Iterator

import pytest
from sqlalchemy import NullPool, create_engine, text
from tests import databases
from tests.databases import POSTGRESQL

from orderbridge.store.database import Database
from orderbridge_certify.locks import POLL_S, probed


@pytest.fixture
def url(kind: str, request: pytest.FixtureRequest) -> Iterator[str]:
    server = request.getfixturevalue(f"{kind}_server")
    with databases.own_database(server, f"certify_locks_{os.getpid()}") as made:
        engine = create_engine(made, isolation_level="AUTOCOMMIT", poolclass=NullPool)
        with engine.connect() as connection:
            connection.execute(text("CREATE TABLE theirs (number INTEGER)"))
            connection.execute(text("INSERT INTO theirs VALUES (1)"))
        yield made


def longest_seen(url: str) -> float | None:
    """The longest time seen while another user holds a lock for four checks; None if it cannot be seen."""
    theirs, over = create_engine(url, poolclass=NullPool), time.monotonic() + 30
    rights = [f"GRANT SELECT ON {theirs.url.database}.* TO {{name}}"] if theirs.dialect.name != POSTGRESQL else []
    with databases.poor_user(url, *rights) as mine:
        database = Database(mine, accept_unsafe_durability=True, inline=True)
        with theirs.begin() as connection, probed(database) as probe:
            connection.execute(text("UPDATE theirs SET number = 2"))
            while probe.longest_s is not None and probe.longest_s < 4 * POLL_S and time.monotonic() < over:
                threading.Event().wait(POLL_S)
            found = probe.longest_s
        database.close()
    return found


@pytest.mark.parametrize("kind", databases.SERVERS)
def test_another_roles_lock_is_seen_on_postgresql_alone_without_any_right(kind: str, url: str) -> None:
    found = longest_seen(url)
    # MariaDB requires the privilege PROCESS
    assert (found or 0) >= 4 * POLL_S if kind == POSTGRESQL else found is None
