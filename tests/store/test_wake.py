"""How soon a commit of the POS is noticed, and what does not count as one."""

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.databases import MARIADB, POSTGRESQL, SERVERS, SQLITE, only
from tests.jobs.shop import raising
from tests.store.samples import KEY, NOW, Pos, end_session, opened, put_action, put_order

from orderbridge.model import ActionState, Verdict
from orderbridge.store import actions, unfinished
from orderbridge.store.database import Database
from orderbridge.store.dialects import postgresql, sqlite

SOON_S = 60.0  # a bound for a busy machine; the watch asks every 50 ms
QUIET_S = 4 * sqlite.WATCH_S
NEVER_S = 3600.0
SESSIONS = {
    POSTGRESQL: (  # except the server's own background processes
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'"
    ),
    MARIADB: "SELECT id FROM information_schema.processlist WHERE db = database()",
}


class Bell:
    def __init__(self) -> None:
        self._rung = asyncio.Event()
        self.times = 0

    def ring(self) -> None:
        self.times += 1
        self._rung.set()

    async def rings(self, within: float = SOON_S) -> bool:
        try:
            async with asyncio.timeout(within):
                await self._rung.wait()
        except TimeoutError:
            return False
        self._rung.clear()
        return True


@contextlib.asynccontextmanager
async def watching(database: Database) -> AsyncIterator[Bell]:
    """A watch that has read the counter once."""
    bell = Bell()
    watch = asyncio.create_task(database.watch(bell.ring))
    assert await bell.rings()
    yield bell
    watch.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watch


@pytest.fixture
async def bell(database: Database) -> AsyncIterator[Bell]:
    async with watching(database) as bell:
        yield bell


async def test_each_commit_of_a_pos_wakes_and_is_visible_then_and_a_rollback_does_not_wake(bell, pos, database):
    put_action(pos)
    assert await bell.rings()
    assert database.read_now(lambda tx: tx.exec_driver_sql("SELECT count(*) FROM delivery_actions").scalar()) == 1
    pos.execute("BEGIN IMMEDIATE")
    put_action(pos, "complete")
    pos.execute("COMMIT")
    assert await bell.rings()
    pos.execute("UPDATE delivery_actions SET withdraw = 1")
    assert await bell.rings()
    assert not await bell.rings(QUIET_S)
    pos.execute("SELECT * FROM delivery_new_orders").fetchall()
    pos.execute("BEGIN IMMEDIATE")
    put_action(pos)
    assert not await bell.rings(QUIET_S)
    pos.execute("ROLLBACK")
    assert not await bell.rings(QUIET_S)


@pytest.fixture
def by_notices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a notification the counter is not read again for half an hour."""
    monkeypatch.setattr(sqlite, "FALLBACK_S", NEVER_S)
    monkeypatch.setattr(sqlite, "LONGER", NEVER_S / sqlite.ASK_S / 2)


@only(SQLITE)
@pytest.mark.usefixtures("by_notices")
async def test_a_notification_alone_wakes(database, pos):
    async with watching(database) as bell:
        for _ in range(3):
            assert not await bell.rings(QUIET_S)
            put_action(pos)
            assert await bell.rings()


@only(SQLITE)
async def test_a_notification_before_the_commit_wakes_without_a_query(monkeypatch, database, pos):
    """Most commits are our own. Reading the counter after each would keep a small machine awake."""
    asked, version = [], sqlite._version

    def four_questions_late(connection: sqlite3.Connection) -> int | None:
        asked.append(version(connection))
        return asked[max(len(asked) - 4, 0)]

    monkeypatch.setattr(sqlite, "_version", four_questions_late)
    monkeypatch.setattr(sqlite, "FALLBACK_S", NEVER_S)
    async with watching(database) as bell:
        assert not await bell.rings(QUIET_S)
        put_action(pos)
        assert await bell.rings()
        before = len(asked)
        assert not await bell.rings(QUIET_S)
        assert len(asked) <= before + 2


@only(SQLITE)
async def test_a_notification_read_with_another_commit_is_followed_until_its_own_commit(monkeypatch, database, pos):
    put_action(pos)  # creates the -wal to watch
    monkeypatch.setattr(sqlite, "FALLBACK_S", NEVER_S)
    versions, taken = iter([1, 2, 2, 2, 2, 2]), iter([False, True])
    monkeypatch.setattr(sqlite, "_version", lambda _: next(versions, 3))
    monkeypatch.setattr(sqlite.Notices, "take", lambda _: next(taken, False))
    async with watching(database) as bell:
        while bell.times < 3:
            assert await bell.rings()


@only(SQLITE)
@pytest.mark.parametrize("missing", [None, AttributeError, OSError, TypeError])
async def test_lost_notifications_are_replaced_by_a_timer(monkeypatch, database, pos, missing):
    if missing is None:
        monkeypatch.setattr(sqlite, "IN_MODIFY", 0x400)  # IN_DELETE_SELF: notifications that never come
    else:
        monkeypatch.setattr("ctypes.CDLL", raising(missing))
    monkeypatch.setattr(sqlite, "FALLBACK_S", NEVER_S if missing else 0.001)
    async with watching(database) as bell:
        put_action(pos)
        assert await bell.rings()


@only(SQLITE)
@pytest.mark.usefixtures("by_notices")
async def test_a_wal_that_appears_later_is_watched_from_then_on(path: Path, database):
    database.close()
    bell = Bell()
    with opened(path) as pos:  # a POS holds the file exclusively, so there is no -wal to watch
        pos.execute("PRAGMA locking_mode = EXCLUSIVE")
        put_order(pos, KEY)
        watch = asyncio.create_task(database.watch(bell.ring))
        assert not await bell.rings(QUIET_S)
        assert not watch.done()
    assert await bell.rings()
    assert not await bell.rings(QUIET_S)
    with opened(path) as pos:
        put_action(pos)
    assert await bell.rings()
    watch.cancel()


@only(SQLITE)
@pytest.mark.parametrize("commits", [True, False])
async def test_a_till_that_writes_without_a_pause_wakes_and_the_counter_is_read_seldom(
    commits, monkeypatch, database, pos
):
    asked, version = [], sqlite._version
    monkeypatch.setattr(sqlite, "_version", lambda connection: asked.append(1) or version(connection))
    monkeypatch.setattr(sqlite, "REST_S", 0.5)  # a hundred times as long, for a busy machine
    async with watching(database) as bell:
        assert not await bell.rings(2 * sqlite.REST_S)
        pos.execute("PRAGMA cache_size = 1")  # so that uncommitted pages also go to the -wal at once
        pos.execute("SELECT 1" if commits else "BEGIN IMMEDIATE")
        began, bell.times = time.monotonic(), 0
        asked.clear()
        for _ in range(300):
            put_action(pos, "activate_food")
            await asyncio.sleep(0)
        took = time.monotonic() - began
        assert bell.times <= took / sqlite.REST_S + 2
        assert commits or len(asked) <= took / sqlite.ASK_S + 2


@only(SQLITE)
async def test_the_watch_leaves_no_descriptor_behind(database):
    def notices() -> int:
        return sum(one.resolve().name == "anon_inode:inotify" for one in Path("/proc/self/fd").iterdir())

    before = notices()
    async with watching(database):
        assert notices() == before + 1
    assert notices() == before


@only(SERVERS[0])
async def test_many_rows_of_a_statement_wake_once_and_what_the_daemon_itself_writes_does_not(bell, pos, database):
    bell.times = 0
    many = "SELECT 'activate_food', n FROM generate_series(1, 500) AS n"
    pos.execute(f"INSERT INTO delivery_actions (action, food_id) {many}")
    assert await bell.rings()
    (row, *_), _ = database.read_now(unfinished.read_unfinished)
    database.write_now(lambda tx: actions.start(tx, [(row, 1)], NOW))
    end = actions.End(Verdict(ActionState.DONE), None, 1)
    assert database.write_now(lambda tx: actions.finish(tx, [(row.id, end)], NOW))
    assert not await bell.rings(QUIET_S)
    assert bell.times == 1


@only(*SERVERS)
async def test_a_watch_that_lost_its_session_reconnects_and_reads_at_once(database, kind, pos):
    database.close()  # so that the watch needs a new session
    before = set(pos.execute(SESSIONS[kind]).fetchall())
    async with watching(database) as bell:
        ((session,),) = set(pos.execute(SESSIONS[kind]).fetchall()) - before
        end_session(pos, session)
        assert await bell.rings()
        put_action(pos)
        assert await bell.rings()


@only(POSTGRESQL)
async def test_a_notification_that_arrives_with_a_result_wakes(database, monkeypatch, pos):
    """The driver has read the notification already, so nothing is left at the socket to wait for."""
    answer, asked = postgresql._answer, asyncio.Event()

    async def answers_late(connection, question):
        put_action(pos)
        told = await answer(connection, question)
        monkeypatch.setattr(postgresql, "LISTEN_CHECK_S", SOON_S)  # no second query
        asked.set()
        return told

    monkeypatch.setattr(postgresql, "LISTEN_CHECK_S", 0.001)
    monkeypatch.setattr(postgresql, "_answer", answers_late)
    async with watching(database) as bell:
        await asked.wait()
        assert await bell.rings(SOON_S / 2)


@only(POSTGRESQL)
async def test_without_the_trigger_for_two_phase_commits_the_watch_polls(database, monkeypatch, pos):
    monkeypatch.setattr(postgresql, "LISTEN_CHECK_S", 0.01)
    pos.execute("ALTER TABLE delivery_actions DISABLE TRIGGER delivery_actions_wake")
    try:
        async with watching(database) as bell:
            assert await bell.rings()  # its first query without the trigger
            put_action(pos)
            assert await bell.rings()
    finally:
        pos.execute("ALTER TABLE delivery_actions ENABLE TRIGGER delivery_actions_wake")


@only(SERVERS[1])
async def test_a_row_that_was_committed_late_or_takes_the_place_of_another_wakes(bell, pos, url):
    with Pos.at(url) as slow:
        slow.execute("BEGIN")
        late = put_action(slow)
        put_action(pos)
        assert await bell.rings()
        slow.execute("COMMIT")
    assert await bell.rings()
    pos.execute("BEGIN")
    pos.execute("UPDATE delivery_actions SET state = 'done' WHERE id = ?", (late,))
    put_action(pos)
    pos.execute("COMMIT")
    assert await bell.rings()
