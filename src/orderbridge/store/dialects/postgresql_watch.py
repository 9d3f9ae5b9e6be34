"""The session that listens for a POS's commits, and what it notices besides: a server that says nothing any more.

A server whose processes hang, or behind a line that was cut without a word, ends no session and refuses none: whoever has
a statement under way there waits for ever, or as long as TCP does. The session that listens asks every few seconds. When
it gets no answer, all of ours that wait for that server are ended from here. Their work fails as if the server had died,
and new sessions go to whichever server of the address takes writes by then.

Who has sent a NOTIFY cannot PREPARE TRANSACTION. So a POS that uses two-phase commit may disable our trigger; then the same
session asks for what is new, by a short indexed query.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import Engine

from orderbridge.store.dialects import postgresql_sessions, servers
from orderbridge.store.dialects.face import readable

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from psycopg.pq.abc import PGconn

CHANNEL = "delivery_actions"
LISTEN_CHECK_S = 3.0  # between two questions
ANSWER_WITHIN_S = 5.0
POLL_S = 0.1  # without the trigger
LISTENS = (
    "SELECT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = to_regclass('delivery_actions')"
    " AND tgname = 'delivery_actions_wake' AND tgenabled <> 'D')"
)
LOOK = (
    f"{LISTENS}, count(*), sum(id), sum(withdraw) FROM"  # noqa: S608 - constants
    " (SELECT id, withdraw FROM delivery_actions WHERE state IN ('pending', 'sending') ORDER BY id DESC LIMIT 100) AS newest"
)
QUESTIONS = 2  # a loop of ours that stood still for as long is not taken for the server's silence


async def watch(engine: Engine, wake: Callable[[], None], limits: Mapping[str, Any]) -> None:
    """Call `wake` after each commit that notified. `limits`: of the driver, for a session's connection."""
    import psycopg  # noqa: PLC0415 - only where this database is used

    losses = servers.Losses("wake.listening_again")
    while True:
        try:
            arguments, options = engine.dialect.create_connect_args(engine.url)
            options = postgresql_sessions.arranged({**limits, **options, "autocommit": True})
            async with await _connected(psycopg, arguments, options) as connection:
                connection.add_notify_handler(lambda _: wake())  # of what comes with the answer to a question
                await connection.execute(f"SET lock_timeout = '{servers.LOCK_TIMEOUT_S}s'")
                await connection.execute(f"LISTEN {CHANNEL}")
                losses.mended()
                wake()  # for what was written while nobody listened
                if not await _hear(connection, wake):
                    postgresql_sessions.took(options, None)
                    servers.end_silent(engine, connection)
                    raise TimeoutError
        except (psycopg.Error, OSError) as error:
            wait = losses.lost(error)
        await asyncio.sleep(wait)


async def _hear(connection: "AsyncConnection[Any]", wake: Callable[[], None]) -> bool:
    """Call `wake` until the server says nothing any more. Raises psycopg.Error when the session is over."""
    listens, seen = True, None
    while True:
        # The driver's own waiting ticks ten times a second.
        if await readable(connection.fileno(), LISTEN_CHECK_S if listens else POLL_S):
            _take_in(connection.pgconn, wake)
            continue
        answer = await _answer(connection, LISTENS if listens else LOOK)
        if answer is None:
            return False
        listens, *found = answer
        if found and found != seen:
            seen = found
            wake()


async def _connected(driver: Any, arguments: Any, options: Mapping[str, Any]) -> "AsyncConnection[Any]":
    try:
        connection: AsyncConnection[Any] = await driver.AsyncConnection.connect(*arguments, **options)
    except driver.Error:
        postgresql_sessions.took(options, None)
        raise
    postgresql_sessions.took(options, connection)
    return connection


def _take_in(session: "PGconn", wake: Callable[[], None]) -> None:
    """What has come. Raises psycopg.Error when the session is over."""
    session.consume_input()
    while session.notifies() is not None:
        wake()


async def _answer(connection: "AsyncConnection[Any]", question: str) -> Sequence[Any] | None:
    """A row; None when the server does not answer in time. Raises psycopg.Error when the session is over."""
    asked = asyncio.create_task(connection.execute(question))
    try:
        for _ in range(QUESTIONS):
            await asyncio.wait([asked], timeout=ANSWER_WITHIN_S / QUESTIONS)
            if asked.done():
                return await asked.result().fetchone()
    finally:
        if not asked.done():  # to cancel the statement would take the driver as long again
            servers.hang_up(connection)
            with contextlib.suppress(Exception):
                await asked
    return None
