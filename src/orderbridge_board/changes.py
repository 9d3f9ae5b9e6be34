"""Sends server-sent events when the state has changed. The tables are checked only while a stream is open.

Rules of this file:
- An event is "changed" with a number, without the change. The page then reads the whole state, so it misses nothing.
- Changes that happen while an event is sent are sent as one event. A listener that is too slow is dropped.
- A page may read a state that existed only between two checks. Then the next check sends "changed", too.
- Changes by time alone are sent, too: an order becomes overdue. Two pages may have read states before and after such a
  moment, so a moment is expected from the first state that has it until a check after it, whatever is read meanwhile.
- A revoked device gets no more events.
- A database that does not answer is treated as failed. The query is not repeated: its answer is awaited, however late.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from typing import Any

import structlog
from sqlalchemy.exc import DBAPIError
from starlette.types import Receive, Scope, Send

from orderbridge.daemon import RunningDaemon
from orderbridge.errors import OrderbridgeError
from orderbridge.store.database import Database
from orderbridge_board import devices, queries
from orderbridge_board.snapshot import moment

POLL_S = 0.4
WITHIN_S = 3.0  # a check takes milliseconds
BEAT_S = 10.0  # after 25 s without one, the page warns that it may be stale
SLOW_S = 10.0  # a listener that does not accept an event within this time is dropped
HEAD = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"x-accel-buffering", b"no"),
]
MOST = 32
MOST_OF_ONE = 3  # a disconnected tablet connects again before its old stream is known to have ended

_log = structlog.get_logger(__name__)


class Listener:
    """One stream. `gone`: the stream has to end."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.news = asyncio.Event()
        self.gone = False


class Changes:
    """The number of the current state, and the listeners that get each new one."""

    def __init__(self, at_work: Callable[[], RunningDaemon | None], began: int) -> None:
        """`began`: a number above all those of earlier daemons."""
        self.number = began
        self._at_work = at_work
        self._listeners: list[Listener] = []
        self._seen: tuple[Any, Any] | None = None  # what is known, and the tables' version, at the last check
        self._is_passing = False  # a page got a version that no check has found
        self._expected: set[str] = set()  # times at which a state that a page has got changes
        self._watching: asyncio.Task[None] | None = None
        self._asking: tuple[Database, asyncio.Task[Any]] | None = None
        self._soon = asyncio.Event()

    def listen(self, device: str) -> Listener | None:
        """A new listener; None if there are too many."""
        mine = [one for one in self._listeners if one.device == device]
        if len(mine) >= MOST_OF_ONE:
            self._drop(mine[0])
        if len(self._listeners) >= MOST:
            return None
        listener = Listener(device)
        self._listeners.append(listener)
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch())
        return listener

    def leave(self, listener: Listener) -> None:
        """Remove a listener whose stream has ended."""
        with contextlib.suppress(ValueError):
            self._listeners.remove(listener)

    def _drop(self, listener: Listener) -> None:
        listener.gone = True
        listener.news.set()
        self.leave(listener)

    def expect(self, moments: Iterable[str | None], now: str) -> None:
        """Note the times at which the state that was read at `now` changes, although no row is written."""
        self._expected |= {one for one in moments if one is not None and one >= now}

    def shown(self, version: Any) -> None:
        """A page got a state of this version."""
        if self._seen is not None and version != self._seen[1]:
            self._is_passing = True

    def check_soon(self) -> None:
        """Check at once, because the board has written something."""
        self._soon.set()

    def close(self) -> None:
        """End all streams and the checks."""
        if self._watching is not None:
            self._watching.cancel()
        if self._asking is not None:
            self._asking[1].cancel()
        for listener in list(self._listeners):
            self._drop(listener)

    async def _watch(self) -> None:
        while self._listeners:
            try:
                found = await self._check()
            except Exception:  # noqa: BLE001 - the next check may succeed
                _log.exception("web.crashed")
                found = None
            if found != self._seen or self._is_passing:
                self._seen, self._is_passing = found, False
                self.number += 1
                for listener in self._listeners:
                    listener.news.set()
            self._soon.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_S):
                    await self._soon.wait()

    async def _check(self) -> tuple[Any, Any] | None:
        """A value that differs from the last one if the state has changed."""
        at_work = self._at_work()
        if at_work is None:
            return None
        now, web = moment(at_work.clock.now()) or "", at_work.settings.web
        known = (
            web.board,
            web.customers_unencrypted,
            [(one.code, one.subject, one.level, one.count) for one in at_work.problems()],
        )
        passed = {one for one in self._expected if one < now}
        self._expected -= passed
        self._is_passing |= bool(passed)
        try:
            version, revoked = await self._asked(at_work.database)
        except (DBAPIError, OrderbridgeError, TimeoutError):
            return known, None
        for listener in [one for one in self._listeners if one.device in revoked]:
            self._drop(listener)
        return known, version

    async def _asked(self, database: Database) -> tuple[Any, set[str]]:
        """The tables' version, and the revoked devices. After a TimeoutError the next call awaits the same query."""
        if self._asking is None or self._asking[0] is not database:  # a reload changes the database
            listening = {one.device for one in self._listeners}
            check = database.read(lambda tx: (queries.version(tx), listening - devices.paired(tx, listening)))
            self._asking = database, asyncio.create_task(check)
        asking = self._asking[1]
        async with asyncio.timeout(WITHIN_S):
            await asyncio.wait({asking})
        self._asking = None
        found: tuple[Any, set[str]] = asking.result()
        return found


class Stream:
    """An answer that sends "changed" with a number at once and after each change, and "beat" in between.

    It ends when the client disconnects, the listener is dropped, or the server closes.
    """

    def __init__(self, changes: Changes, listener: Listener) -> None:
        self._changes = changes
        self._listener = listener

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer, as an ASGI application."""
        scope["state"]["connection"].keep_open()
        leaving = asyncio.create_task(_left(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": HEAD})
            event = "changed"
            while not (self._listener.gone or leaving.done()):
                self._listener.news.clear()
                text = f"event: {event}\ndata: {self._changes.number}\n\n".encode()
                async with asyncio.timeout(SLOW_S):
                    await send({"type": "http.response.body", "body": text, "more_body": True})
                event = "changed" if await self._news(leaving) else "beat"
        except TimeoutError:
            scope["state"]["connection"].cut()
            await leaving
        else:
            if not leaving.done():
                await send({"type": "http.response.body", "body": b""})
        finally:
            self._changes.leave(self._listener)
            leaving.cancel()

    async def _news(self, leaving: asyncio.Task[None]) -> bool:
        news = asyncio.create_task(self._listener.news.wait())
        try:
            await asyncio.wait({news, leaving}, timeout=BEAT_S, return_when=asyncio.FIRST_COMPLETED)
            return self._listener.news.is_set()  # also true if news came just as the wait ended
        finally:
            news.cancel()


async def _left(receive: Receive) -> None:
    """Wait until the client has disconnected."""
    with contextlib.suppress(asyncio.CancelledError):
        while (await receive())["type"] != "http.disconnect":
            pass
