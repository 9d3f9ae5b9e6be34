"""What databases that are servers have in common: sessions that can be cut, locks that concern rows."""

import contextlib
import os
import select
import socket
import threading
from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import structlog
from sqlalchemy import URL, Engine, event
from sqlalchemy.exc import InvalidatePoolError

from orderbridge.clock import SystemClock

LOCK_TIMEOUT_S = 2
AGAIN_S = 0.1  # after a lost connection; twice as long after each failure
AGAIN_AT_MOST_S = 5.0

UUID_PARTS = (8, 4, 4, 4, 12)
UUID_PATTERN = "^" + "-".join(f"[0-9a-f]{{{part}}}" for part in UUID_PARTS) + "$"
OPTIONS: Mapping[str, Any] = {"isolation_level": "READ COMMITTED"}
IDLE_S = 1.0  # of a session: then it is asked before it is used

_log = structlog.get_logger("orderbridge.store.watch")


def limits(url: URL, connect_args: Mapping[str, Any]) -> dict[str, Any]:
    """Those of these arguments that the URL does not name."""
    return {name: value for name, value in connect_args.items() if name not in url.query}


def prepare_sessions(engine: Engine, *statements: str) -> None:
    """Say these to each new session, and take none that has ended."""
    _replace_ended(engine)
    _sessions[engine] = ours = WeakSet[Any]()

    def prepare(connection: Any, _: Any) -> None:
        with _guard:
            ours.add(connection)
        cursor = connection.cursor()
        for statement in statements:
            cursor.execute(statement)
        cursor.close()
        connection.commit()

    event.listen(engine, "connect", prepare)


def _replace_ended(engine: Engine) -> None:
    """A session that the server has ended is replaced before anything is lost in it.

    What a server says to a session that it ends, and the end itself, are there to be read at once. So a round trip to ask
    whether it is alive is made only when there is something to read, when it has lain idle (a line that was cut says
    nothing), or when the driver does not say where to read.
    """
    clock = SystemClock()

    def rest(_: Any, record: Any) -> None:
        record.info["idle_since"] = clock.monotonic()

    def ask(connection: Any, record: Any, _: Any) -> None:
        since = record.info.get("idle_since")
        if since is None or (clock.monotonic() - since < IDLE_S and _is_silent(connection)):
            return
        try:
            engine.dialect.do_ping(connection)
        except engine.dialect.loaded_dbapi.Error as error:
            raise InvalidatePoolError from error  # the others are asked no more: they are made anew, too

    event.listen(engine, "checkin", rest)
    event.listen(engine, "checkout", ask)


_sessions: WeakKeyDictionary[Engine, WeakSet[Any]] = WeakKeyDictionary()  # that are open, of each engine
_guard = threading.Lock()  # over the sets: sessions are made in several threads


def end_silent(engine: Engine, silent: Any) -> None:
    """End what waits for the same server as this session. Whoever it belongs to gets an error, as from a lost line."""
    with _guard:
        ours = list(_sessions[engine])
    ended = [one for one in ours if _waits(one) and _place(one) == _place(silent)]
    for one in ended:
        hang_up(one)
    _log.warning("database.silent", ended=len(ended))


def _waits(session: Any) -> bool:
    """Whether a statement is under way."""
    return not session.closed and session.info.transaction_status.name == "ACTIVE"


def _place(session: Any) -> tuple[str, int]:
    return session.info.host, session.info.port


def hang_up(session: Any) -> None:
    """End its connection from any thread. Who waits for an answer there hears at once that there will be none."""
    with contextlib.suppress(Exception):  # it has ended by itself
        line = socket.socket(fileno=os.dup(session.fileno()))
        with line:
            line.shutdown(socket.SHUT_RDWR)


def _is_silent(connection: Any) -> bool:
    """Whether nothing can be read from a session; False where that is unknown."""
    number = getattr(connection, "fileno", None)
    if number is None or connection.closed:
        return False
    poll = select.poll()
    poll.register(number(), select.POLLIN)
    return not poll.poll(0)


def is_whole(column: str) -> str:
    """A server's INTEGER would round 25.5 without a word; the range keeps PostgreSQL's NaN and Infinity out."""
    return f"{column} IS NULL OR ({column} = floor({column}) AND {column} BETWEEN {-(2**63)} AND {2**63 - 1})"


def quoted(name: str, mark: str) -> str:
    """A name between these marks."""
    return f"{mark}{name.replace(mark, mark * 2)}{mark}"


class Losses:
    """A session that is made anew when it is lost; both edges are logged. `wait`: seconds until the next attempt."""

    def __init__(self, again: str) -> None:
        self._again = again
        self.wait = AGAIN_S

    def mended(self) -> None:
        """It is there."""
        if self.wait > AGAIN_S:
            _log.info(self._again)
        self.wait = AGAIN_S

    def lost(self, error: Exception) -> float:
        """It is gone, or was not to be had. How long to wait."""
        if self.wait == AGAIN_S:
            _log.warning("wake.lost", error=type(error).__name__)
        now, self.wait = self.wait, min(2 * self.wait, AGAIN_AT_MOST_S)
        return now
