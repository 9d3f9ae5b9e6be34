"""Under the grants that are printed, a POS can do its whole job and nothing else: a till with a user of its own."""

import os
import re
from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, make_url
from tests.databases import MARIADB, POSTGRESQL, SERVERS, SQLITE, only
from tests.store.samples import NEEDED, NOW_TEXT, Pos, Refused, one, put_action, put_order, rows

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


@only(*SERVERS)
def test_a_till_can_do_its_whole_job(till, pos):
    put_order(pos, revision=3)
    for name in write_guards.READ:
        rows(till, f"SELECT * FROM {name}")
    (order,) = rows(till, "SELECT * FROM delivery_new_orders ORDER BY received_utc")
    till.execute(
        "UPDATE delivery_orders SET pos_revision = 2, pos_reference = 'A-1042', pos_total = 235.50 WHERE payment_key = ?",
        (order["payment_key"],),
    )
    assert len(rows(till, "SELECT * FROM delivery_changed_orders")) == 1
    for action in NEEDED:
        put_action(till, action, request_id=f"till {action}", created_by="kasa 2", valid_minutes=5)
    row_id = put_action(till, "activate_food", account="kadikoy", withdraw=0)
    till.execute("UPDATE delivery_actions SET withdraw = 1 WHERE id = ?", (row_id,))
    query = "SELECT state, error_code, error_text FROM delivery_actions WHERE id = ?"
    assert one(till, query, row_id)["state"] == "pending"


FORBIDDEN = [
    "SELECT * FROM delivery_tokens",
    "DELETE FROM delivery_tokens",
    "SELECT sealed FROM delivery_account_settings",
    "SELECT name FROM delivery_account_settings",
    "UPDATE delivery_account_settings SET enabled = 0",
    "DELETE FROM delivery_account_settings",
    "UPDATE delivery_fleet SET accounts_version = 9",
    "SELECT * FROM delivery_board_devices",
    "SELECT id FROM delivery_board_pairing",
    "UPDATE delivery_board_pairing SET tries_left = 5",
    "DELETE FROM delivery_board_silenced",
    "UPDATE delivery_orders SET total = 0",
    "UPDATE delivery_orders SET status_id = 5",
    "UPDATE delivery_orders SET revision = 9",
    "UPDATE delivery_orders SET payload = NULL",
    "DELETE FROM delivery_orders",
    "INSERT INTO delivery_orders SELECT * FROM delivery_orders",
    "UPDATE delivery_order_items SET price = 0",
    "UPDATE delivery_actions SET state = 'done'",
    "UPDATE delivery_actions SET preparing_time = 5",
    "DELETE FROM delivery_actions",
    "INSERT INTO delivery_actions (action, food_id, state) VALUES ('activate_food', 5, 'done')",
    f"INSERT INTO delivery_actions (action, food_id, created_utc) VALUES ('activate_food', 5, '{NOW_TEXT}')",
    "UPDATE delivery_accounts SET next_poll_utc = NULL",
    "INSERT INTO delivery_restaurants (account, id) VALUES ('k', 'r')",
    "DELETE FROM delivery_quarantine",
    "UPDATE delivery_schema_version SET version_num = '0000'",
    "DROP TABLE delivery_tokens",
]


@only(*SERVERS)
def test_a_till_can_do_nothing_else(till, pos):
    put_order(pos)
    put_action(pos)
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
