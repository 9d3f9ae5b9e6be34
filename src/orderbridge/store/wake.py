"""How the daemon learns that the POS has written: a fraction of a second after its COMMIT.

SQLite: `PRAGMA data_version` on a connection of our own changes when anybody else commits. It reads a few bytes of
shared memory, so it runs on the event loop itself.
PostgreSQL: a trigger of ours notifies, once for each statement, and a connection of our own listens.
MariaDB, MySQL: a short indexed query in a thread of its own, often after recent work and seldom when all is quiet.
The rest: the clock.

Whatever fails here, the outbox looks by itself every two seconds.
"""

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Callable
from typing import Any

import structlog
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from orderbridge.store.database import limits
from orderbridge.store.tables import WAKE_CHANNEL

SQLITE_WATCH_S = 0.05  # 25 ms on average, 0.5 % of a core
SERVER_WATCH_S = 0.25
LISTEN_CHECK_S = 30.0  # a line that is silently cut is noticed then, and one that sleeps is kept open
ANSWER_WITHIN_S = 5.0
AGAIN_S = 0.1  # after a lost connection; twice as long after each failure
AGAIN_AT_MOST_S = 5.0
BUSY_LOOK_S = 0.02
IDLE_LOOK_S = 0.055
BUSY_LOOKS = 100  # after a change: two seconds
LEAVE_WITHIN_S = 2.0

# What a POS changes: rows, and `withdraw`. Sums, because ids are committed out of order; the newest, because a long
# queue keeps the outbox awake by itself.
LOOK = (
    "SELECT COUNT(*), SUM(id), SUM(withdraw) FROM"
    " (SELECT id, withdraw FROM delivery_actions WHERE state = 'pending' ORDER BY id DESC LIMIT 100) AS newest"
)

_log = structlog.get_logger(__name__)


async def watch(engine: Engine, wake: Callable[[], None]) -> None:
    """Call `wake` soon after each commit of somebody else; runs until it is cancelled."""
    match engine.dialect.name:
        case "sqlite":
            await _watch_sqlite(str(engine.url.database), wake)
        case "postgresql":
            await _listen(engine, wake)
        case "mysql" | "mariadb":
            await _look(engine, wake)
    while True:
        await asyncio.sleep(SERVER_WATCH_S)
        wake()


async def _watch_sqlite(path: str, wake: Callable[[], None]) -> None:
    connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    seen: int | None = None
    try:
        while True:
            try:
                version = connection.execute("PRAGMA data_version").fetchone()[0]
            except sqlite3.Error:  # somebody holds the file whole, or worse: the writer will say what it is
                version = seen
            if version != seen:
                seen = version
                wake()
            await asyncio.sleep(SQLITE_WATCH_S)
    finally:
        connection.close()


async def _listen(engine: Engine, wake: Callable[[], None]) -> None:
    import psycopg  # noqa: PLC0415 - only where this database is used

    wait = AGAIN_S
    while True:
        try:
            arguments, options = engine.dialect.create_connect_args(engine.url)
            options = {**limits(engine.url), **options, "autocommit": True}
            async with await psycopg.AsyncConnection.connect(*arguments, **options) as connection:
                await connection.execute(f"LISTEN {WAKE_CHANNEL}")
                if wait > AGAIN_S:
                    _log.info("wake.listening_again")
                wait = AGAIN_S
                while True:
                    wake()  # for what was written while nobody listened
                    async for _ in connection.notifies(timeout=LISTEN_CHECK_S):
                        wake()
                    async with asyncio.timeout(ANSWER_WITHIN_S):
                        await connection.execute("SELECT 1")
        except (psycopg.Error, OSError) as error:
            if wait == AGAIN_S:
                _log.warning("wake.lost", error=type(error).__name__)
        await asyncio.sleep(wait)
        wait = min(2 * wait, AGAIN_AT_MOST_S)


async def _look(engine: Engine, wake: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()
    leave = threading.Event()
    thread = threading.Thread(
        target=_look_again, args=(engine, lambda: loop.call_soon_threadsafe(wake), leave), name="db-watch", daemon=True
    )
    thread.start()
    try:
        await asyncio.Event().wait()
    finally:
        leave.set()
        thread.join(LEAVE_WITHIN_S)


def _look_again(engine: Engine, ring: Callable[[], object], leave: threading.Event) -> None:
    wait = AGAIN_S
    while not leave.is_set():
        try:
            with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                if wait > AGAIN_S:
                    _log.info("wake.looking_again")
                wait = AGAIN_S
                try:
                    _look_on(connection.connection.cursor(), ring, leave)
                except engine.dialect.loaded_dbapi.Error:
                    connection.invalidate()  # the pool would try to tidy it up, and log that it cannot
                    raise
        except (DBAPIError, engine.dialect.loaded_dbapi.Error) as error:
            if wait == AGAIN_S:
                _log.warning("wake.lost", error=type(error).__name__)
            leave.wait(wait)
            wait = min(2 * wait, AGAIN_AT_MOST_S)


def _look_on(cursor: Any, ring: Callable[[], object], leave: threading.Event) -> None:
    seen: object = None
    busy = 0
    while not leave.is_set():
        cursor.execute(LOOK)
        found = cursor.fetchone()
        if found != seen:
            seen, busy = found, BUSY_LOOKS
            with contextlib.suppress(RuntimeError):  # the loop is closed: the program ends
                ring()
        busy = max(busy - 1, 0)
        leave.wait(BUSY_LOOK_S if busy else IDLE_LOOK_S)
