"""One list for all databases says what a POS may write: grants enforce it on servers, triggers on SQLite."""

import os
import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Column, Engine, Integer, Table, make_url
from sqlalchemy.exc import IntegrityError
from tests.databases import KINDS, MARIADB, POSTGRESQL, SERVERS, SQLITE, only
from tests.jobs.test_wrong_rows import ROWS

from tests.store.samples import (  # isort: skip
    KEY, NEEDED, NOW_TEXT, Pos, Refused, action_row, in_its_place, key, one, opened, order_row, put, put_action,
    put_order, rows,
)  # fmt: skip
from orderbridge.store import schema, tables, write_guards
from orderbridge.store.database import Database
from orderbridge.store.tables import SCHEMA_VERSION_TABLE, metadata

TABLES = [table for table in metadata.sorted_tables if not table.is_view]
GUARD = "delivery_guard"
SECRET = {f"delivery_{name}" for name in ("tokens", "account_settings", "board_devices", "board_pairing")}
COLUMNS = "payment_key, account, status, received_utc, changed_utc"
AN_ORDER = f"INSERT INTO delivery_orders ({COLUMNS}) VALUES ('{KEY}', 'k', 'RECEIVED', '{NOW_TEXT}', '{NOW_TEXT}')"
OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"
as_a_user = pytest.mark.parametrize("till", ["user"], indirect=True)

USER, ROLE = f"obs_till_{os.getpid()}", f"obs_role_{os.getpid()}"
DENIED = "permission denied|must be owner|denied to user"
MAKE = {
    POSTGRESQL: [f"CREATE ROLE {USER} LOGIN PASSWORD 'till'", f"CREATE ROLE {ROLE}", f"GRANT {ROLE} TO {USER}"],
    MARIADB: [
        *(f"CREATE USER {USER}@'%%' IDENTIFIED BY 'till'", f"CREATE ROLE {ROLE}", f"GRANT {ROLE} TO {USER}@'%%'"),
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
    """A POS whose user or role has the printed grants; on SQLite any session, while the guard is closed."""
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


def value_of(column: Column[object]) -> object:
    if column.name.endswith("_utc"):
        return NOW_TEXT
    return 1 if isinstance(column.type, Integer) or column.name in {"action_id", "attempt"} else KEY


def put_a_row(pos: Pos, table: Table) -> None:
    if table.name == "delivery_orders":
        put_order(pos)
    elif table.name == "delivery_actions":
        put_action(pos)
    elif table.name != "delivery_fleet":  # its one row exists from the start
        needed = [c for c in table.c if (c.primary_key or not c.nullable) and not c.server_default and not c.identity]
        put(pos, table.name, **{column.name: value_of(column) for column in needed})


def writes(name: str, columns: list[str]) -> Iterator[str]:
    """Each statement that writes this table and that a POS may not execute."""
    inserted = write_guards.INSERTED if name == "delivery_actions" else ()
    updated = write_guards.UPDATED.get(name, ())
    yield from (f"UPDATE {name} SET {column} = {column}" for column in columns if column not in updated)
    yield f"DELETE FROM {name}"
    if not inserted:
        yield f"INSERT INTO {name} SELECT * FROM {name}"
    yield from (
        f"INSERT INTO {name} (action, food_id, {column}) SELECT 'activate_food', 5, {column} FROM {name}"
        for column in columns
        if inserted and column not in inserted
    )


def is_refused(till: Pos, statement: str) -> bool:
    try:
        till.execute(statement)
    except Refused as refused:
        (table, *_) = re.findall(r"delivery_\w+", statement)
        return re.search(DENIED if till.kind != SQLITE else f"^{table}: ", str(refused)) is not None
    return False


@as_a_user
@only(*KINDS)
def test_triggers_on_sqlite_refuse_what_grants_refuse_on_servers(till, pos):
    with in_its_place(pos):
        for table in TABLES:
            put_a_row(pos, table)
        pos.execute(  # each column gets a value, because a POS may insert the defaults
            f"UPDATE delivery_actions SET attempts = 1, next_attempt_utc = '{NOW_TEXT}', expires_utc = '{NOW_TEXT}',"
            f" http_status = 200, error_code = 'x', error_text = 'x', known_by = 'x', finished_utc = '{NOW_TEXT}',"
            f" until_utc = '{NOW_TEXT}', state = 'done'"
        )
    listed = [(table.name, [column.name for column in table.c]) for table in TABLES]
    listed.append((SCHEMA_VERSION_TABLE, ["version_num"]))
    before = {name: rows(pos, f"SELECT * FROM {name}") for name, _ in listed}
    statements = [statement for name, columns in listed for statement in writes(name, columns)]
    assert len(statements) > 200
    assert [statement for statement in statements if not is_refused(till, statement)] == []
    assert {name: rows(pos, f"SELECT * FROM {name}") for name, _ in listed} == before


@only(*KINDS)
def test_the_guards_never_refuse_what_a_pos_may_do(till, pos):
    with in_its_place(pos):
        put_order(pos, revision=3, status_id=6)
    for name in metadata.tables.keys() - SECRET:
        rows(till, f"SELECT * FROM {name}")
    till.execute("UPDATE delivery_orders SET pos_revision = 2, pos_reference = 'A-1', pos_total = 235.50")
    assert order_row(pos)["pos_revision"] == 2
    for action, values in NEEDED.items():
        row_id = put(till, "delivery_actions", action=action, **values, created_by="kasa 2", valid_minutes=5)
        till.execute("UPDATE delivery_actions SET withdraw = 1 WHERE id = ?", (row_id,))
        assert action_row(pos, row_id)["withdraw"] == 1
    put(till, "delivery_actions", action="activate_food", food_id=5, account="k", request_id="once", withdraw=0)
    with pytest.raises(Refused, match=r"(?i)unique|duplicate"):
        put(till, "delivery_actions", action="activate_food", food_id=5, request_id="once")
    assert len(rows(pos, "SELECT * FROM delivery_actions")) == len(NEEDED) + 1
    written = [row for listed in ROWS.values() for row in listed]  # wrong rows that the database accepts
    for row in written:
        put(till, "delivery_actions", **{name: value or KEY for name, value in row.items()})
    assert len(rows(pos, "SELECT * FROM delivery_actions")) == len(NEEDED) + 1 + len(written)


@only(*SERVERS)
def test_a_till_reads_no_secret_and_drops_no_table(till):
    forbidden = [f"SELECT * FROM {name}" for name in SECRET]
    forbidden += ["SELECT name FROM delivery_account_settings", "DROP TABLE delivery_tokens"]
    assert [statement for statement in forbidden if not is_refused(till, statement)] == []


def test_the_grants_quote_a_name():
    assert 'TO "pos"";x";' in write_guards.grant_statements("postgresql", 'pos";x', "public")[0]
    assert "TO `pos``;x`@`10.0.0.%`;" in write_guards.grant_statements("mysql", "pos`;x@10.0.0.%", "shop")[0]
    lines = write_guards.grant_statements("sqlite", "pos", None)
    assert "INSERT delivery_actions" in lines[0]
    assert all(line.startswith("--") for line in lines)


@pytest.fixture
def file(template: Path, path: Path) -> Path:
    """A file of ours as the daemon leaves it."""
    shutil.copy(template, path)
    with opened(path) as pos:
        pos.execute(f"UPDATE {GUARD} SET open = 0")
    return path


@pytest.fixture
def shop(file: Path) -> Iterator[sqlite3.Connection]:
    with opened(file) as connection:
        yield connection


@pytest.fixture
def daemons(file: Path) -> Iterator[Database]:
    with closing(Database(f"sqlite:///{file}", inline=True)) as database:
        yield database


def version(pos: sqlite3.Connection) -> int:
    return int(pos.execute("PRAGMA data_version").fetchone()[0])


def is_open(pos: sqlite3.Connection) -> bool:
    return bool(one(pos, f"SELECT open FROM {GUARD}")["open"])


def test_a_refusal_says_what_to_do(shop):
    with in_its_place(shop):
        put_order(shop)
        put_action(shop)
    for statement, message in {
        "UPDATE delivery_orders SET total = 0": (
            "a POS changes pos_revision, pos_reference and pos_total, and orderbridge all else"
        ),
        "DELETE FROM delivery_orders": "DELETE is for orderbridge alone; read this table",
        "UPDATE delivery_actions SET state = 'done'": "a POS changes withdraw, and orderbridge all else",
        "UPDATE delivery_actions SET payment_key = NULL": "set withdraw = 1 and insert another row",
        "DELETE FROM delivery_actions": "set withdraw = 1 to take a row back",
        "INSERT INTO delivery_restaurants (account, id) VALUES ('k', 'r')": "INSERT is for orderbridge alone",
        f"DELETE FROM {GUARD}": "leave its one row",
    }.items():
        with pytest.raises(sqlite3.IntegrityError, match=message):
            shop.execute(statement)


@pytest.mark.parametrize("recursive", ["ON", "OFF"])
def test_an_existing_row_cannot_be_replaced(recursive, shop):
    shop.execute(f"PRAGMA recursive_triggers = {recursive}")
    row_id = put(shop, "delivery_actions", action="activate_food", food_id=5, request_id="once")
    again = "INTO delivery_actions (action, food_id, request_id) VALUES ('activate_food', 6, 'once')"
    for words in ("INSERT OR REPLACE", "REPLACE"):
        with pytest.raises(sqlite3.IntegrityError, match=r"REPLACE would take away|DELETE is for orderbridge"):
            shop.execute(f"{words} {again}")
    shop.execute(f"INSERT OR IGNORE {again}")
    shop.execute(f"INSERT {again} ON CONFLICT DO NOTHING")
    assert [row["id"] for row in rows(shop, "SELECT * FROM delivery_actions")] == [row_id]
    for words in ("INSERT OR REPLACE", "REPLACE"):  # without a row that it would replace
        shop.execute(f"{words} INTO delivery_actions (action, food_id) VALUES ('activate_food', 6)")


def test_no_other_session_sees_the_guard_open_and_it_always_closes(shop, daemons):
    seen = []

    def work(connection):
        connection.exec_driver_sql(AN_ORDER)
        seen.append(is_open(shop))
        if len(seen) == 1:
            raise ValueError

    with pytest.raises(ValueError):
        daemons.write_now(work)
    daemons.write_now(work)
    assert (seen, is_open(shop)) == ([False, False], False)
    with pytest.raises(IntegrityError, match="orderbridge alone"):
        daemons.read_now(lambda tx: tx.exec_driver_sql("INSERT INTO delivery_restaurants (account, id) VALUES (1, 2)"))
    assert order_row(shop)["account"] == "k"


def test_work_that_changes_nothing_commits_nothing_and_a_change_of_the_schema_alone_is_committed(shop, daemons):
    before = version(shop)
    for statement in ("UPDATE delivery_orders SET total = 0", "DELETE FROM delivery_orders", "SELECT 1"):
        daemons.write_now(lambda tx, statement=statement: tx.exec_driver_sql(statement))
    assert version(shop) == before
    daemons.write_now(lambda tx: tx.exec_driver_sql("CREATE TABLE more (id INTEGER)"))
    assert rows(shop, "SELECT * FROM more") == []


def test_a_row_is_corrected_by_hand_as_documented_and_a_guard_held_open_stays_open(shop, daemons):
    with in_its_place(shop):
        put_order(shop)
    (message,) = set(re.findall(r"`(BEGIN IMMEDIATE; UPDATE delivery_guard[^`]*)`", OPERATIONS.read_text("utf-8")))
    shop.executescript(message.replace("…", "UPDATE delivery_orders SET note = 'mended'"))
    assert (order_row(shop)["note"], is_open(shop)) == ("mended", False)
    shop.execute(f"UPDATE {GUARD} SET open = open + 1")
    daemons.write_now(lambda tx: tx.exec_driver_sql("DELETE FROM delivery_problems"))
    put_order(shop, key(1))
    daemons.write_now(lambda tx: tx.exec_driver_sql("DELETE FROM delivery_orders"))
    assert is_open(shop)
    with pytest.raises(sqlite3.IntegrityError, match="open_0_or_more"):
        shop.execute(f"UPDATE {GUARD} SET open = open - 2")


def test_a_removed_guard_is_restored_and_no_order_waits(shop, daemons):
    row = "INSERT INTO delivery_restaurants (account, id) VALUES ('k', '{}')"
    for away in (f"DELETE FROM {GUARD}", f"DROP TABLE {GUARD}"):
        shop.execute(f"UPDATE {GUARD} SET open = 1")
        shop.execute(away)
        daemons.write_now(lambda tx, away=away: tx.exec_driver_sql(row.format(away)))
        assert one(shop, f"SELECT * FROM {GUARD}") == {"id": 1, "open": 0, "again_id": None}
        with pytest.raises(sqlite3.IntegrityError, match="orderbridge alone"):
            put_order(shop)


def test_other_programs_tables_triggers_and_views_keep_working(shop, daemons):
    shop.executescript(
        "ALTER TABLE delivery_orders ADD COLUMN table_no INTEGER;"
        "CREATE TABLE tickets (payment_key TEXT, printed INTEGER);"
        "ALTER TABLE tickets RENAME TO receipts;"
        "CREATE TRIGGER ring AFTER INSERT ON delivery_orders BEGIN"
        " INSERT INTO receipts (payment_key) VALUES (NEW.payment_key);"
        " UPDATE delivery_orders SET pos_reference = 'new' WHERE payment_key = NEW.payment_key; END;"
        "CREATE VIEW todays AS SELECT payment_key, table_no FROM delivery_orders;"
    )
    daemons.write_now(lambda tx: tx.exec_driver_sql(AN_ORDER))
    shop.execute("UPDATE delivery_orders SET table_no = 4, pos_revision = 1")
    assert rows(shop, "SELECT * FROM todays") == [{"payment_key": KEY, "table_no": 4}]
    assert rows(shop, "SELECT payment_key FROM receipts") == [{"payment_key": KEY}]
    shop.execute("VACUUM")
    shop.execute("DROP TABLE receipts")


def test_a_dump_can_be_read_back(shop, tmp_path):
    with in_its_place(shop):
        put_order(shop)
        put_action(shop)
    again = tmp_path / "again.db"
    with opened(again) as pos:
        pos.executescript("".join(shop.iterdump()))
    with opened(again) as pos:
        assert order_row(pos) == order_row(shop)
        with pytest.raises(sqlite3.IntegrityError, match="orderbridge alone"):
            pos.execute("DELETE FROM delivery_orders")
        put_action(pos, "complete")
    database = Database(f"sqlite:///{again}", inline=True)
    assert database.read_now(schema.inspected) == tables.HEAD
    database.write_now(lambda tx: tx.exec_driver_sql("DELETE FROM delivery_orders"))
    database.close()


def test_a_deleted_order_is_deleted_with_its_lines(shop, daemons):
    with in_its_place(shop):
        put_order(shop)
        put(shop, "delivery_order_items", payment_key=KEY, line_no=1)
    daemons.write_now(lambda tx: tx.exec_driver_sql("DELETE FROM delivery_orders"))
    assert rows(shop, "SELECT * FROM delivery_order_items") == []
    row = "INTO delivery_actions (action, food_id, request_id) VALUES ('activate_food', 6, 'once')"
    shop.execute(f"INSERT {row}")
    shop.execute(f"INSERT OR IGNORE {row}")
    daemons.write_now(lambda tx: tx.exec_driver_sql("DELETE FROM delivery_actions"))
    shop.execute(f"INSERT {row}")
    put_action(shop)
