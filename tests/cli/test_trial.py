"""db try: passes on good databases and leaves them empty; each planted fault fails its own check and no other."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import create_engine, event, inspect
from tests import databases
from tests.databases import KINDS, MARIADB, POSTGRESQL, SERVERS, SQLITE, own_database, poor_user

from orderbridge.cli import trial
from orderbridge.cli.check import FAILED, WARNING
from orderbridge.store.database import Database
from orderbridge.store.leader import LeaderLock

DATABASE = f"obs_try_{os.getpid()}"
QUICK = {"text", "money", "constraints", "grants", "durability", "session_lock"}
ON_CONNECTING = "connect: "  # what the session is made to execute; else the database

each_kind = pytest.mark.parametrize("kind", KINDS)


IN_PLPGSQL = "RETURNS trigger LANGUAGE plpgsql"


def postgresql_trigger(when: str, table: str, body: str) -> list[str]:
    function = f"CREATE FUNCTION planted() {IN_PLPGSQL} AS $$BEGIN {body} END$$"
    return [function, f"CREATE TRIGGER planted {when} ON {table} FOR EACH ROW EXECUTE FUNCTION planted()"]


ITEMS, ACTIONS, REASONS = "delivery_order_items", "delivery_actions", "delivery_cancel_reasons"
COMMITTED = "UPDATE delivery_orders SET pos_reference = NULL WHERE payment_key = NEW.payment_key"
FAULTS = {
    "text": {
        SQLITE: [f"CREATE UNIQUE INDEX planted ON {ACTIONS} (request_id COLLATE NOCASE)"],
        POSTGRESQL: [f"CREATE UNIQUE INDEX planted ON {ACTIONS} (lower(request_id))"],
        MARIADB: [f"ALTER TABLE {ACTIONS} MODIFY request_id VARCHAR(255) COLLATE utf8mb4_general_ci DEFAULT uuid()"],
    },
    "money": {
        SQLITE: [f"CREATE TRIGGER planted AFTER INSERT ON {ITEMS} BEGIN UPDATE {ITEMS} SET price = round(price); END"],
        POSTGRESQL: postgresql_trigger("BEFORE INSERT", ITEMS, "NEW.price = round(NEW.price); RETURN NEW;"),
        MARIADB: [f"ALTER TABLE {ITEMS} MODIFY price FLOAT"],
    },
    "constraints": {
        SQLITE: [f"{ON_CONNECTING}PRAGMA foreign_keys = OFF"],
        POSTGRESQL: [f"ALTER TABLE {ITEMS} DROP CONSTRAINT {{foreign_key}}"],
        MARIADB: [f"ALTER TABLE {ITEMS} DROP FOREIGN KEY {{foreign_key}}"],
    },
    "grants": {
        SQLITE: ["DROP TRIGGER delivery_orders_guard_update"],
        POSTGRESQL: ["GRANT UPDATE ON delivery_orders TO PUBLIC"],
        MARIADB: ["GRANT UPDATE ON delivery_orders TO PUBLIC"],
    },
    "lock": {
        SQLITE: [f"CREATE TRIGGER planted AFTER UPDATE OF status ON delivery_orders BEGIN {COMMITTED}; END"],
        POSTGRESQL: [f"ALTER DATABASE {DATABASE} SET statement_timeout = '500ms'"],
        MARIADB: [f"{ON_CONNECTING}SET max_statement_time = 0.5"],
    },
    "wake": {
        POSTGRESQL: [f"CREATE OR REPLACE FUNCTION delivery_wake() {IN_PLPGSQL} AS $$BEGIN RETURN NULL; END$$"],
        MARIADB: [f"CREATE TRIGGER planted BEFORE INSERT ON {ACTIONS} FOR EACH ROW SET NEW.state = 'done'"],
    },
    "crash": {
        SQLITE: [f"CREATE TRIGGER planted BEFORE INSERT ON {REASONS} BEGIN SELECT RAISE(IGNORE); END"],
        POSTGRESQL: postgresql_trigger("BEFORE INSERT", REASONS, "RETURN NULL;"),
        MARIADB: [f"ALTER TABLE {REASONS} ENGINE = MyISAM"],
    },
    "durability": {SQLITE: [f"{ON_CONNECTING}PRAGMA synchronous = OFF"]},
}
WITH_MARKS = {str(getattr(kind, "values", [kind])[0]): getattr(kind, "marks", ()) for kind in KINDS}
BOTH = [(check, kind) for check, kinds in FAULTS.items() for kind in kinds]
PLANTED = [pytest.param(check, kind, marks=WITH_MARKS[kind], id=f"{check}-{kind}") for check, kind in BOTH]


@contextmanager
def empty(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if kind == SQLITE:
        yield f"sqlite:///{tmp_path / 'try.db'}"
    else:
        with own_database(request.getfixturevalue(f"{kind}_server"), DATABASE) as url:
            yield url


def plant(tried: trial.Trial, statements: list[str]) -> None:
    engine = tried.database.engine
    foreign_key = next(one["name"] for one in inspect(engine).get_foreign_keys(ITEMS))
    engine.dispose()
    for statement in statements:
        if statement.startswith(ON_CONNECTING):
            said = statement.removeprefix(ON_CONNECTING)
            event.listen(engine, "connect", lambda connection, _, said=said: connection.cursor().execute(said))
        else:
            with tried.till() as owner:
                owner.exec_driver_sql(statement.replace("{foreign_key}", str(foreign_key)))


def only(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Leave the other checks out: three of them take seconds."""
    monkeypatch.setattr(trial, "CHECKS", tuple(check for check in trial.CHECKS if check.__name__ in names))


def failed(tried: trial.Trial) -> list[str]:
    return [finding.what for finding in trial.findings(tried) if finding.level == FAILED]


@each_kind
def test_a_good_database_passes_and_is_left_as_it_was(kind, request, tmp_path, run, monkeypatch):
    with empty(kind, request, tmp_path) as url:
        ended = run("db", "try", url, "--json")
        assert (ended.code, ended.err) == (0, "")
        assert [(one["check"], one["level"]) for one in ended.json] == [
            (check.__name__, "ok") for check in trial.CHECKS
        ]
        assert not (tmp_path / "try.db").exists()
        only(monkeypatch, *QUICK)
        assert run("db", "try", url, "--json").code == 0, "it is empty again, and the role is gone"


@pytest.mark.parametrize("check, kind", PLANTED)
def test_a_planted_fault_fails_its_own_check_alone(check, kind, request, tmp_path, monkeypatch):
    only(monkeypatch, *QUICK, check)
    monkeypatch.setattr(trial, "WAKE_WITHIN_S", 2.5)
    monkeypatch.setattr(trial, "BUSY_TIMEOUT_S", 0.5)
    with empty(kind, request, tmp_path) as url, trial.tried(url) as tried:
        plant(tried, FAULTS[check][kind])
        try:
            assert failed(tried) == [check]
        finally:
            if check == "grants" and kind == MARIADB:  # rights outlive a table
                with tried.till() as owner:
                    owner.exec_driver_sql("REVOKE UPDATE ON delivery_orders FROM PUBLIC")


@each_kind
def test_a_lock_that_another_session_holds_is_found(kind, request, tmp_path, monkeypatch):
    only(monkeypatch, *QUICK)
    with empty(kind, request, tmp_path) as url, trial.tried(url) as tried:
        holder = LeaderLock(other := Database(url, inline=True))
        assert holder.take()
        assert failed(tried) == ["session_lock"]
        holder.close()
        other.close()


@pytest.mark.parametrize("kind", SERVERS)
def test_a_server_that_does_not_flush_is_found(kind, monkeypatch):
    only(monkeypatch, *QUICK)
    with ExitStack() as stack:
        if kind == POSTGRESQL:
            server = stack.enter_context(databases.own_postgresql("fsync=off"))
        else:
            server = stack.enter_context(databases.own_mariadb_server("--innodb-flush-log-at-trx-commit=2")).url
        url = stack.enter_context(own_database(server, DATABASE))
        assert failed(stack.enter_context(trial.tried(url))) == ["durability"]


@pytest.mark.parametrize("kind", SERVERS)
def test_a_user_who_may_not_make_roles_skips_the_rights(kind, request, tmp_path, monkeypatch):
    only(monkeypatch, "grants")
    may = {POSTGRESQL: "GRANT ALL ON SCHEMA public TO {name}", MARIADB: f"GRANT ALL ON {DATABASE}.* TO {{name}}"}
    with empty(kind, request, tmp_path) as url, poor_user(url, may[kind]) as poor, trial.tried(poor) as tried:
        assert [finding.level for finding in trial.findings(tried)] == [WARNING]


@each_kind
def test_a_database_that_holds_anything_is_refused_and_not_changed(kind, request, tmp_path, run):
    function = "FUNCTION planted() RETURNS integer "
    objects = ["TABLE orders (id INTEGER)", "VIEW planted AS SELECT 1 AS one", "TABLE delivery_orders (id INTEGER)"]
    objects += {POSTGRESQL: [f"{function} LANGUAGE sql AS 'SELECT 1'"], MARIADB: [f"{function} RETURN 1"]}.get(kind, [])
    for made in objects:
        what, name = made.partition("(")[0].split()[:2]
        with empty(kind, request, tmp_path) as url:
            engine = create_engine(url)
            with engine.begin() as owner:
                owner.exec_driver_sql(f"CREATE {made}")
            ended = run("db", "try", url)
            assert ended.code == 1 and ended.out == "" and f"not empty ({name} …)" in ended.err
            found = inspect(engine)
            assert [*found.get_table_names(), *found.get_view_names()] == ([name] if what != "FUNCTION" else [])
            with engine.begin() as owner:
                owner.exec_driver_sql(f"DROP {what} {name}")
            engine.dispose()


def test_the_address_may_come_from_the_standard_input(run, tmp_path, monkeypatch):
    """A password among the arguments of a program is seen by every user of the machine."""
    only(monkeypatch, "money")
    with (tmp_path / "in").open("w+") as file:
        file.write(f"sqlite:///{tmp_path / 'try.db'}\n")
        file.seek(0)
        monkeypatch.setattr("sys.stdin", file)
        ended = run("db", "try", "-")
    assert ended.code == 0 and ended.err == "" and "are returned exactly" in ended.out
