"""The leader lock on a database: one process has it, and it is free as soon as that process is gone."""

import os
from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import Connection, event, text
from sqlalchemy.exc import OperationalError
from tests import databases
from tests.jobs.shop import raising
from tests.store.samples import SESSION, Pos, end_session

from orderbridge.store.database import Database
from orderbridge.store.leader import LeaderLock

Daemon = Callable[..., LeaderLock]
refused = raising(OperationalError("SELECT 1", {}, ConnectionError("refused")))


@pytest.fixture
def daemon(url: str) -> Iterator[Daemon]:
    """Another daemon, with an engine of its own."""
    opened: list[tuple[Database, LeaderLock]] = []

    def daemon() -> LeaderLock:
        database = Database(url, inline=True)
        opened.append((database, LeaderLock(database)))
        return opened[-1][1]

    yield daemon
    for database, lock in opened:
        lock.close()
        database.close()


def test_one_daemon_holds_the_lock_and_the_other_waits(daemon: Daemon, database: Database):
    first, second = daemon(), daemon()
    assert [first.take(), first.take(), second.take(), first.is_lost()] == [True, True, False, False]
    assert not database.is_unattended(), "a server is never known to have no daemon"
    first.close()
    while not second.take():  # MariaDB releases it once it notices the end of the session
        pass
    assert not first.take()


@databases.only(*databases.SERVERS)
def test_daemons_on_other_databases_of_a_server_do_not_wait_for_each_other(kind: str, daemon: Daemon, request):
    name = f"obs_leader_{os.getpid()}_{'x' * 40}"  # too long for a lock's name in MariaDB
    with databases.own_database(request.getfixturevalue(f"{kind}_server"), name) as url:
        other = Database(url, inline=True)
        lock = LeaderLock(other)
        assert [daemon().take(), lock.take(), daemon().take()] == [True, True, False]
        lock.close()
        other.close()


@databases.only(*databases.SERVERS)
def test_after_a_broken_connection_the_lock_is_taken_again_unless_another_has_it(daemon: Daemon, pos: Pos, monkeypatch):
    first, second = daemon(), daemon()
    assert first.take()
    kill(pos, first)
    assert first.take(), "a reload asks while the server is back"
    kill(pos, first)
    with monkeypatch.context() as away:
        away.setattr(first._engine, "connect", refused)
        for _ in range(3):
            assert not first.is_lost(), "the server is away"
    assert (first.is_lost(), second.take()) == (False, False)
    kill(pos, first)
    assert [second.take(), first.take(), first.is_lost()] == [True, False, True]


@databases.only(*databases.SERVERS)
def test_a_lock_is_not_held_if_its_request_failed(daemon: Daemon, database: Database):
    lock = LeaderLock(database)
    assert daemon().take()
    event.listen(database.engine, "before_cursor_execute", refused)
    with pytest.raises(OperationalError):
        lock.take()
    event.remove(database.engine, "before_cursor_execute", refused)
    assert not lock.take()


@databases.only(*databases.SERVERS)
def test_a_lock_released_while_it_is_requested_is_free(daemon: Daemon, pos: Pos, monkeypatch):
    """The daemon stops while its guard takes the lock again in its own thread."""
    first, second = daemon(), daemon()
    assert first.take()
    kill(pos, first)
    connect = first._engine.connect

    def stopped() -> Connection:
        first.close()
        return connect()

    monkeypatch.setattr(first._engine, "connect", stopped)
    assert (first.is_lost(), second.take()) == (False, True)


def kill(pos: Pos, lock: LeaderLock) -> None:
    """End the session that holds the lock. Returns when the lock is free."""
    assert lock._connection is not None
    end_session(pos, lock._connection.execute(text(SESSION[pos.kind])).scalar_one())


@databases.only(databases.SQLITE)
def test_a_file_with_two_names_has_one_lock(path, daemon: Daemon, tmp_path):
    (tmp_path / "other.db").symlink_to(path)
    other = Database(f"sqlite:///{tmp_path}/other.db", inline=True)
    assert [daemon().take(), LeaderLock(other).take()] == [True, False]
    other.close()
