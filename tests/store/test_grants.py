"""Under the grants that are printed, a POS can do its whole job and nothing else: a till with a user of its own."""

import os
import re
from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, make_url
from tests.databases import MARIADB, POSTGRESQL, SERVERS, SQLITE, only
from tests.store.samples import Pos, Refused

from orderbridge.store import write_guards
from orderbridge.store.database import Database

USER, ROLE = f"obs_till_{os.getpid()}", f"obs_role_{os.getpid()}"
DENIED = "permission denied|must be owner|denied to user"
MAKE = {
    POSTGRESQL: [f"CREATE ROLE {USER} LOGIN PASSWORD 'till'", f"CREATE ROLE {ROLE}", f"GRANT {ROLE} TO {USER}"],
    MARIADB: [
        f"CREATE USER {USER}@'%%' IDENTIFIED BY 'till'",
        f"CREATE ROLE {ROLE}",
        f"GRANT {ROLE} TO {USER}@'%%'",
        f"SET DEFAULT ROLE {ROLE} FOR {USER}@'%%'",
    ],
}
REMOVE = {
    POSTGRESQL: [f"DROP OWNED BY {USER}, {ROLE}", f"DROP ROLE {USER}, {ROLE}"],
    MARIADB: [f"DROP USER {USER}@'%%'", f"DROP ROLE {ROLE}"],
}


def run(engine: Engine, statements: list[str] | tuple[str, ...]) -> None:
    with engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


@pytest.fixture(params=["user", "role"])
def till(kind: str, database: Database, url: str, request: pytest.FixtureRequest) -> Iterator[Pos]:
    """A POS with a user that was given what the command prints, to itself or to a role that it has.

    On SQLite anybody who opens the file, with the guard closed as the daemon leaves it.
    """
    if kind == SQLITE:
        with Pos.at(url) as till:
            till.execute("UPDATE delivery_guard SET open = 0")
            yield till
        return
    run(database.engine, MAKE[kind])
    try:
        to = ROLE if request.param == "role" else f"{USER}@%" if kind == MARIADB else USER
        place = "public" if kind == POSTGRESQL else make_url(url).database
        run(database.engine, [line.replace("%", "%%") for line in write_guards.grant_statements(kind, to, place)])
        with Pos.at(make_url(url).set(username=USER, password="till").render_as_string(hide_password=False)) as till:
            yield till
    finally:
        run(database.engine, REMOVE[kind])


FORBIDDEN = [  # test_write_guards.py has all that writes
    "SELECT * FROM delivery_tokens",
    "SELECT sealed FROM delivery_account_settings",
    "SELECT name FROM delivery_account_settings",
    "SELECT * FROM delivery_board_devices",
    "SELECT id FROM delivery_board_pairing",
    "DROP TABLE delivery_tokens",
]


@only(*SERVERS)
def test_a_till_reads_no_secret_and_drops_no_table(till):
    allowed = []
    for statement in FORBIDDEN:
        try:
            till.execute(statement)
        except Refused as refused:
            assert re.search(DENIED, str(refused))
        else:
            allowed.append(statement)
    assert allowed == []


def test_a_name_cannot_leave_its_quotes():
    assert 'TO "pos"";x";' in write_guards.grant_statements("postgresql", 'pos";x', "public")[0]
    assert "TO `pos``;x`@`10.0.0.%`;" in write_guards.grant_statements("mysql", "pos`;x@10.0.0.%", "shop")[0]


def test_every_table_but_the_tokens_may_be_read():
    for dialect in ("postgresql", "mysql"):
        text = "\n".join(write_guards.grant_statements(dialect, "pos", "shop"))
        assert "delivery_tokens" not in text
        assert "delivery_account_settings" not in text
        assert all(f"delivery_{name} " in text for name in ("orders", "actions", "new_orders", "accounts"))


def test_on_sqlite_there_is_nothing_to_grant():
    lines = write_guards.grant_statements("sqlite", "pos", None)
    assert "INSERT delivery_actions" in lines[0]
    assert all(line.startswith("--") for line in lines)
