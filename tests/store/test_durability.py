"""Whether a commit is on disk when it returns: the settings, the remedies, and sessions that are corrected."""

from types import SimpleNamespace

import pytest
from sqlalchemy import Connection, event, make_url, text
from tests.databases import POSTGRESQL, SQLITE, only

from orderbridge.errors import Message
from orderbridge.store import inspection as module
from orderbridge.store.database import Database
from orderbridge.store.dialects import of
from orderbridge.store.inspection import Durability
from orderbridge.texts import sentence


def answering(dialect: str, *answers: object) -> SimpleNamespace:
    """A connection to a simulated server with these settings. Those of a real server would affect all its databases."""
    named, rows = SimpleNamespace(name=dialect), iter(answers)
    return SimpleNamespace(dialect=named, exec_driver_sql=lambda _: SimpleNamespace(one=lambda: next(rows)))


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    events: list[str] = []
    levels = dict.fromkeys(("error", "warning", "info"), lambda event, **_: events.append(event))
    monkeypatch.setattr(module, "_log", SimpleNamespace(**levels))
    return events


def test_each_database_of_the_tests_is_safe(database: Database, logged: list[str]):
    database.write_now(database.durability.ask)
    assert (database.durability.remedy, logged) == (None, [])
    assert database.read_now(database.dialect.failover) is None, "a server alone loses nothing in a failover"


def test_unsafe_durability_can_be_accepted_on_mariadb_and_not_on_postgresql():
    binlog, flush = Message("database.binlog"), Message("database.flush")
    accepting = Durability(accept_unsafe=True)
    for settings, remedy in {  # innodb_flush_log_at_trx_commit, log_bin, sync_binlog
        (1, 0, 0): None, (1, 1, 1): None, (3, 1, 0): None, (1, 1, 0): binlog, (1, 1, 100): binlog,
        (0, 0, 1): flush, (2, 1, 1): flush,
    }.items():  # fmt: skip
        assert Durability().judge(answering("mysql", settings)) == remedy
        assert accepting.judge(answering("mariadb", settings)) is None
    assert accepting.judge(answering("postgresql", ("off", "on", "on"))) == Message("database.fsync")


def test_the_beginning_and_the_end_are_logged_once_each(logged: list[str]):
    server = answering("mysql", *((value, 0, 0) for value in (1, 2, 2, 0, 1, 1, 2, 1)))
    durability, found = Durability(), []
    for _ in range(8):
        durability.ask(server)
        found.append(durability.remedy is None)
    assert found == [True, False, False, False, True, True, False, True]
    assert logged == ["database.unsafe_durability", "database.safe_durability"] * 2


@only(SQLITE)
@pytest.mark.parametrize("pragma", ["synchronous = NORMAL", "synchronous = OFF"])
def test_a_sqlite_connection_that_does_not_wait_for_the_disk_is_found(pragma: str, database: Database):
    database.engine.dispose()
    event.listen(database.engine, "connect", lambda connection, _: connection.execute(f"PRAGMA {pragma}"))
    assert database.read_now(database.durability.judge) == Message("database.wal_off")


@only(pytest.param(POSTGRESQL, marks=pytest.mark.postgresql))
def test_a_setting_that_a_trigger_changes_in_our_session_is_restored_before_the_commit(
    database: Database, logged: list[str]
):
    def work(connection: Connection) -> str:
        connection.execute(text("SELECT set_config('synchronous_commit', 'off', false)"))
        database.durability.ask(connection)
        return str(connection.execute(text("SHOW synchronous_commit")).scalar())

    for _ in range(2):
        assert database.write_now(work) == "on"
    assert database.durability.remedy is None
    assert logged == ["database.session_changed"]


def test_standbys_of_a_postgresql():
    for states, names, words in (
        ([], "", None), (["async"], "", "asynchronous standby"), (["async", "async"], "", "2 asynchronous standby"),
        ([None], "", "GRANT pg_monitor TO pos"), ([None], "ANY 1 (*)", "GRANT pg_monitor TO pos"),
        (["sync", "async"], "ANY 1 (*)", "is on a standby when it is acknowledged"),
        (["quorum"], "ANY 1 (*)", "is on a standby"), ([], "one", "No standby of"),
    ):  # fmt: skip

        def ask(statement: str, states=states, names=names):
            answer = "pos" if "current_user" in statement else names
            return SimpleNamespace(scalars=lambda: SimpleNamespace(all=lambda: states), scalar=lambda: answer)

        dialect = SimpleNamespace(name="postgresql", identifier_preparer=SimpleNamespace(quote=str))
        engine = SimpleNamespace(url=make_url("postgresql+psycopg://u@h/d"))
        found = of("postgresql").failover(SimpleNamespace(dialect=dialect, engine=engine, exec_driver_sql=ask))
        assert found is None if words is None else words in sentence(found.message)
        assert found is None or found.is_safe is ("is acknowledged" in sentence(found.message))


def test_replicas_of_a_mariadb():
    off, on = ({"Slaves_connected": "2", "Rpl_semi_sync_master_status": word} for word in ("OFF", "ON"))
    for settings, words in (
        (off | {"wsrep_on": "OFF", "Slaves_connected": "0"}, None),
        ({"wsrep_on": "ON"}, "Galera"),
        (off, "2 asynchronous replica"),
        (on, "semi-synchronous"),
        ({"Slaves_connected": "1", "Rpl_semi_sync_source_status": "ON"}, "semi-synchronous"),
    ):
        answer = [*settings.items()]
        found = of("mariadb").failover(SimpleNamespace(exec_driver_sql=lambda _, answer=answer: answer))
        assert found is None if words is None else words in sentence(found.message)
