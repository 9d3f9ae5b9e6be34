"""The schema's version: created, migrated, refused, and printed for a DBA."""

import os
import re
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import inspect
from sqlalchemy.exc import DBAPIError, OperationalError
from tests.databases import MARIADB, POSTGRESQL, SERVERS, SQLITE, only, own_database
from tests.store.samples import Pos, opened
from tests.wording import says

from orderbridge.errors import StoreError, Unusable
from orderbridge.store import schema, tables
from orderbridge.store.database import Database
from orderbridge.store.inspection import broken_views
from orderbridge.store.tables import SCHEMA_VERSION_TABLE, metadata

VIEWS = [name for name, table in metadata.tables.items() if table.is_view]
RENAME = {MARIADB: "RENAME TABLE {} TO {}", POSTGRESQL: "ALTER VIEW {} RENAME TO {}"}
RC1 = Path(__file__).parent / "schema_0009"  # what `orderbridge db sql` of 1.0.0rc1 printed, one statement a line
ALTERED = ("delivery_accounts", "delivery_actions")
LATER = """
from alembic import op

revision, down_revision, branch_labels, depends_on = "0099", "{before}", None, None


def upgrade():
    for statement in {statements}:
        op.execute(statement)
"""


def objects(path: Path) -> dict[tuple[str, str], str]:
    """Everything in the file with its SQL, on one line."""
    with opened(path) as pos:
        found = pos.execute("SELECT type, name, sql FROM sqlite_master")
        return {(kind, name): " ".join((sql or "").split()) for kind, name, sql in found}


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Database]:
    with closing(Database(f"sqlite:///{tmp_path / 'empty.db'}", inline=True)) as database:
        yield database


def file_of(database: Database) -> Path:
    return Path(str(database.engine.url.database))


def versions(path: Path) -> list[str]:
    with opened(path) as pos:
        return [row[0] for row in pos.execute("SELECT version_num FROM delivery_schema_version")]


@only(SQLITE)
def test_the_script_for_a_dba_makes_the_same_schema_which_an_old_driver_can_open(tmp_path, path, database):
    own = {name for _, name in objects(path) if not name.startswith("sqlite_")}
    assert all(name.startswith("delivery_") for name in own)
    by_hand = tmp_path / "by-hand.db"
    with opened(by_hand) as pos:
        pos.executescript(schema.offline_sql("sqlite:///pos.db"))
    assert objects(by_hand) == objects(path)
    assert versions(by_hand) == [tables.HEAD] == ScriptDirectory(tables.MIGRATIONS).get_heads()
    newer = re.compile(r"\b(STRICT|GENERATED|NULLS FIRST|NULLS LAST|RETURNING|IIF)\b", re.IGNORECASE)
    assert [name for name, sql in objects(path).items() if newer.search(sql)] == []


def test_an_upgrade_is_carried_out_once_and_leaves_the_tables_of_the_pos_alone(empty):
    with pytest.raises(StoreError, check=says("orderbridge db upgrade")):
        empty.read_now(schema.check)
    assert (objects(file_of(empty)), empty.read_now(schema.current)) == ({}, None)
    with opened(file_of(empty)) as pos:
        pos.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, total NUMERIC)")
        pos.execute("INSERT INTO orders VALUES (1, 9.9)")
        before = objects(file_of(empty))
        assert [empty.write_now(schema.upgrade) for _ in range(2)] == [True, False]
        empty.read_now(schema.check)
        assert before.items() <= objects(file_of(empty)).items()
        assert [tuple(row) for row in pos.execute("SELECT * FROM orders")] == [(1, 9.9)]


@pytest.mark.parametrize("made", ["delivery_tokens", schema.SCHEMA_VERSION_TABLE])
def test_a_half_made_schema_is_left_to_a_person(made, empty):
    with opened(file_of(empty)) as pos:
        pos.execute(f"CREATE TABLE {made} (version_num VARCHAR(32))")
    before = objects(file_of(empty))
    with pytest.raises(Unusable, check=says(f"incomplete: {made} exist without a version")):
        empty.write_now(schema.upgrade)
    assert objects(file_of(empty)) == before


@only(SQLITE)
def test_a_later_migration_is_atomic_and_runs_once(path, database, tmp_path, monkeypatch):
    folder = tmp_path / "migrations"
    shutil.copytree(tables.MIGRATIONS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name, value in {"MIGRATIONS": folder, "KNOWN": (*tables.KNOWN, "0099"), "HEAD": "0099"}.items():
        monkeypatch.setattr(schema, name, value)
    later, before = folder / "versions" / "0099_later.py", objects(path)
    statements = ["ALTER TABLE delivery_cancel_reasons ADD COLUMN added INTEGER", "DROP TABLE delivery_nonsense"]
    later.write_text(LATER.format(before=tables.HEAD, statements=statements))
    with pytest.raises(OperationalError, match="no such table"):
        database.write_now(schema.upgrade)
    assert (objects(path), versions(path)) == (before, [tables.HEAD])
    later.write_text(LATER.format(before=tables.HEAD, statements=statements[:1]))
    assert [database.write_now(schema.upgrade) for _ in range(2)] == [True, False]
    assert "added" in objects(path)["table", "delivery_cancel_reasons"]


@only(SQLITE)
@pytest.mark.parametrize("ask, version, words", [
    (schema.upgrade, "0099", f"schema 0099, but this program knows only up to {tables.HEAD}.*Install the newer"),
    (schema.check, "0099", f"schema 0099, but this program knows only up to {tables.HEAD}.*Install the newer"),
    (schema.check, "0009", "orderbridge db upgrade"),
])  # fmt: skip
def test_a_schema_of_another_program_is_refused_and_nothing_is_changed(ask, version, words, path, database, pos):
    pos.execute("UPDATE delivery_schema_version SET version_num = ?", (version,))
    pos.execute("DROP TABLE delivery_tokens")  # an older program might recreate it
    before = objects(path)
    with pytest.raises(StoreError, check=says(words)):
        database.write_now(ask)
    assert (objects(path), versions(path)) == (before, [version])


DESCRIPTIONS = {
    POSTGRESQL: [
        # The columns in order, without the gap of a dropped one.
        """SELECT table_name, rank() OVER (PARTITION BY table_name ORDER BY ordinal_position), column_name, data_type,
                  character_maximum_length, numeric_precision, numeric_scale, datetime_precision,
                  is_nullable, column_default, identity_generation
             FROM information_schema.columns WHERE table_schema = 'public'""",
        """SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
            WHERE connamespace = 'public'::regnamespace""",
        "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'",
        "SELECT viewname, definition FROM pg_views WHERE schemaname = 'public'",
        "SELECT tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal",
        "SELECT proname, pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'public'::regnamespace",
    ],
    MARIADB: [
        "SHOW CREATE TABLE {table}",
        (
            "SELECT table_name, view_definition, security_type"
            " FROM information_schema.views WHERE table_schema = database()"
        ),
    ],
}


def described(database: Database, kind: str) -> set[tuple[object, ...]]:
    """Everything that the server reports about our tables, without the name of the database."""
    tables = [name for name, table in metadata.tables.items() if not table.is_view]
    found: set[tuple[object, ...]] = set()
    with database.engine.connect() as connection:
        for question in DESCRIPTIONS[kind]:
            for name in [*tables, SCHEMA_VERSION_TABLE] if "{table}" in question else [""]:
                found |= {tuple(row) for row in connection.exec_driver_sql(question.format(table=name))}
    own = str(database.engine.url.database)
    return {tuple(_lines(cell.replace(own, "")) if isinstance(cell, str) else cell for cell in row) for row in found}


def _lines(text: str) -> str:
    """Sort the lines: MariaDB lists indexes in the order in which they were created, which has no meaning."""
    return "\n".join(sorted(re.sub(r",$| AUTO_INCREMENT=\d+", "", line) for line in text.splitlines()))


def run_script(database: Database, kind: str, script: str) -> None:
    with database.engine.begin() as connection:
        for statement in [script] if kind == POSTGRESQL else script.split(";\n"):
            if statement.strip():
                connection.exec_driver_sql(statement.replace("%", "%%"))


@pytest.fixture
def blank(kind: str, request: pytest.FixtureRequest) -> Iterator[Database]:
    name = f"obs_blank_{os.getpid()}"
    with (
        own_database(request.getfixturevalue(f"{kind}_server"), name) as url,
        closing(Database(url, inline=True)) as one,
    ):
        yield one


@only(*SERVERS)
def test_on_a_server_the_script_makes_the_same_schema(kind, blank, database):
    expected = described(database, kind)
    assert any("delivery_orders_contents_ix" in str(row) for row in expected)
    run_script(blank, kind, schema.offline_sql(blank.engine.url.render_as_string(hide_password=False)))
    assert described(blank, kind) ^ expected == set()
    assert blank.write_now(schema.upgrade) is False
    blank.read_now(schema.check)


def described_names(database: Database) -> list[str]:
    found = inspect(database.engine)
    return [*found.get_table_names(), *found.get_view_names()]


@only(*SERVERS)
def test_two_that_upgrade_at_once_make_the_tables_once_and_leave_those_of_the_pos_alone(blank):
    with blank.engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    url = blank.engine.url.render_as_string(hide_password=False)
    start = threading.Barrier(2, timeout=60)

    def upgrade(rival: Database) -> bool:
        start.wait()
        with closing(rival):
            return rival.write_now(schema.upgrade)

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(upgrade, [Database(url, inline=True) for _ in range(2)])) == [False, True]
    assert [name for name in described_names(blank) if not name.startswith("delivery_")] == ["orders"]


@only(*SERVERS)
def test_an_upgrade_that_never_gets_its_lock_says_so_and_changes_nothing(blank, monkeypatch):
    monkeypatch.setattr(schema, "LOCK_WAIT_S", 0.0)
    with blank.engine.connect() as other, blank.dialect.schema_lock(other, SCHEMA_VERSION_TABLE) as taken:
        assert (taken, blank.write_now(schema.try_upgrade)) == (True, None)
        with pytest.raises(StoreError, check=says("Another program has been changing the schema")):
            blank.write_now(schema.upgrade)
    assert (described_names(blank), blank.write_now(schema.try_upgrade)) == ([], True)


@only(SQLITE, SERVERS[0])
def test_the_first_migration_is_atomic(kind, request):
    new: Database = request.getfixturevalue("empty" if kind == SQLITE else "blank")
    with new.engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE mine (id INTEGER)")
        connection.exec_driver_sql("CREATE INDEX delivery_order_events_order_ix ON mine (id)")
    with pytest.raises(DBAPIError, match="already exists"):
        new.write_now(schema.upgrade)
    assert described_names(new) == ["mine"]


@only(POSTGRESQL)
@pytest.mark.parametrize("path, schema_name", [
    ("'pos, public'", '"pos, public"'), ("'$user', pos, missing", "pos"), ("'a \"b\", c'", '"a ""b"", c"'),
])  # fmt: skip
def test_the_schema_is_the_first_of_the_search_path(path: str, schema_name: str, blank):
    with blank.engine.connect() as connection:
        connection.exec_driver_sql(f"SET search_path = {path}")
        lacking = blank.dialect.lacks(connection)
    assert lacking is not None
    assert f"ON SCHEMA {schema_name} TO " in lacking[1]


@only(*SERVERS)
def test_a_broken_view_is_found(database, pos):
    assert database.read_now(broken_views) == ()
    pos.execute(RENAME[pos.kind].format(VIEWS[0], "pos_view"))
    try:
        assert database.read_now(broken_views) == (VIEWS[0],)
    finally:
        pos.execute(RENAME[pos.kind].format("pos_view", VIEWS[0]))


def test_views_outlive_the_user_who_made_them(mariadb_server: str):
    with own_database(mariadb_server, "obs_maker") as url, Pos.at(url) as root:
        root.execute("CREATE USER obs_maker@'%' IDENTIFIED BY 'x'")
        root.execute("GRANT ALL ON obs_maker.* TO obs_maker@'%'")
        try:
            maker = Database(url.replace("//root@", "//obs_maker:x@"), inline=True)
            maker.write_now(schema.upgrade)
            maker.close()
        finally:
            root.execute("DROP USER obs_maker@'%'")
        for view in VIEWS:
            root.execute(f"SELECT * FROM {view}")


@only(*SERVERS)
def test_on_a_server_an_upgraded_schema_is_the_same_as_a_new_one(kind, blank, database):
    run_script(blank, kind, (RC1 / f"{kind}.sql").read_text("utf-8"))
    assert (blank.read_now(schema.current), blank.write_now(schema.upgrade)) == ("0009", True)
    assert described(blank, kind) ^ described(database, kind) == set()


@only(SQLITE)
def test_on_sqlite_an_upgraded_schema_is_the_same_as_a_new_one(empty, database):
    with opened(file_of(empty)) as pos:
        pos.executescript((RC1 / "sqlite.sql").read_text("utf-8"))
    assert empty.write_now(schema.upgrade) is True
    expected, found = (objects(file_of(one)) for one in (database, empty))
    for name in ALTERED:  # the text of ALTER TABLE follows the constraints
        del found["table", name], expected["table", name]
    assert found == expected
    columns = [inspect(one.engine).get_columns(name) for one in (database, empty) for name in ALTERED]
    assert str(columns[: len(ALTERED)]) == str(columns[len(ALTERED) :])
