"""Server sessions that end from outside: the pool hands out none of them, and nothing is lost."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError
from tests.databases import MARIADB, POSTGRESQL, SERVERS, only, poor_user
from tests.store.samples import SESSION, Pos, end_session, rows

from orderbridge.store.database import Database
from orderbridge.store.dialects import servers


@pytest.fixture
def used(url: str, database: Database) -> Iterator[Database]:
    """A Database on the tables of `database`. It is inline, so that one session does all the work."""
    used = Database(url, inline=True)
    yield used
    used.close()


def note(connection: Connection, number: int = 100) -> None:
    connection.execute(text(f"INSERT INTO delivery_cancel_reasons (id, reason) VALUES ({number}, 'x')"))


def noted(pos: Pos) -> list[int]:
    return [row["id"] for row in rows(pos, "SELECT id FROM delivery_cancel_reasons WHERE id >= 100 ORDER BY id")]


@only(POSTGRESQL)
@pytest.mark.parametrize("limit", ["default_transaction_read_only = on", "statement_timeout = '1s'"])
def test_a_session_that_began_under_a_limit_of_the_server_is_not_used_again(used, pos, limit):
    """As a provider sets it while the disk is full: a session keeps it after it was lifted."""
    used.write_now(lambda tx: tx.execute(text(f"SET SESSION {limit}")))
    slow = text("WITH new AS (INSERT INTO delivery_cancel_reasons VALUES (100, 'x')) SELECT pg_sleep(1.5)")
    with pytest.raises(DBAPIError) as refused:
        used.write_now(lambda tx: tx.execute(slow))
    assert not refused.value.connection_invalidated, "a batch is tried again in parts"
    used.write_now(lambda tx: tx.execute(slow))
    assert noted(pos) == [100]


@only(MARIADB)
def test_a_session_that_lacked_a_right_is_not_used_again(used, url, pos):
    """It keeps its rights on the whole database: what is granted concerns only later sessions."""
    place = f"`{used.engine.url.database}`.*"
    with (
        poor_user(url, f"GRANT SELECT ON {place} TO {{name}}") as poor,
        closing(Database(poor, inline=True)) as without,
    ):
        with pytest.raises(DBAPIError, match="INSERT command denied"):
            without.write_now(note)
        used.write_now(lambda tx: tx.exec_driver_sql(f"GRANT INSERT ON {place} TO {without.engine.url.username}"))
        without.write_now(note)
    assert noted(pos) == [100]


@only(*SERVERS)
def test_an_idle_session_that_ended_is_not_used(used, kind, pos, monkeypatch):
    for idle_s, first in ((servers.IDLE_S, 100), (3600.0, 110)):
        monkeypatch.setattr(servers, "IDLE_S", idle_s)
        for number, work in enumerate([used.write_now, used.read_now] * 2, first):
            end_session(pos, used.read_now(lambda tx: tx.execute(text(SESSION[kind])).scalar_one()))
            work(lambda tx: tx.execute(text("SELECT 1")).scalar_one())
            used.write_now(lambda tx, number=number: note(tx, number))
        assert noted(pos)[-4:] == [first, first + 1, first + 2, first + 3]


@only(*SERVERS)
def test_an_idle_session_is_tested_before_use_and_one_that_was_just_used_is_not(used, kind, monkeypatch):
    asked, ping = [], used.engine.dialect.do_ping
    monkeypatch.setattr(used.engine.dialect, "do_ping", lambda session: asked.append(session) or ping(session))
    for idle_s, pings in ((0.0, 1), (3600.0, int(kind == MARIADB))):  # MariaDB's driver does not expose its socket
        monkeypatch.setattr(servers, "IDLE_S", idle_s)
        for _ in range(2):
            asked.clear()
            used.write_now(lambda tx: tx.exec_driver_sql("SELECT 1"))
        assert len(asked) == pings


@only(*SERVERS)
def test_a_session_that_ends_in_a_transaction_loses_only_that_transaction(used, kind, pos):
    def cut(connection: Connection) -> None:
        note(connection)
        end_session(pos, connection.execute(text(SESSION[kind])).scalar_one())
        note(connection, 101)

    with pytest.raises(DBAPIError) as failed:
        used.write_now(cut)
    assert failed.value.connection_invalidated
    assert noted(pos) == []
    used.write_now(note)
    assert noted(pos) == [100]
