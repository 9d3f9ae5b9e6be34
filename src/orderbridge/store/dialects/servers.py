"""What PostgreSQL and MariaDB share: session setup, replacing lost sessions, and some checks."""

import contextlib
import os
import select
import socket
import threading
from collections.abc import Mapping
from math import inf
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import structlog
from sqlalchemy import URL, Engine, event
from sqlalchemy.exc import InvalidatePoolError

from orderbridge.clock import SystemClock

LOCK_TIMEOUT_S = 2
AGAIN_S = 0.1  # after a lost connection; doubles after each failure
AGAIN_AT_MOST_S = 5.0
LOG_AGAIN_S = 60.0  # between two lines about lost connections

UUID_PARTS = (8, 4, 4, 4, 12)
UUID_PATTERN = "^" + "-".join(f"[0-9a-f]{{{part}}}" for part in UUID_PARTS) + "$"
OPTIONS: Mapping[str, Any] = {"isolation_level": "READ COMMITTED"}
IDLE_S = 1.0  # a session that was idle longer is tested before use

_log = structlog.get_logger("orderbridge.store.watch")


def limits(url: URL, connect_args: Mapping[str, Any]) -> dict[str, Any]:
    """Return these arguments, without those that the URL sets."""
    return {name: value for name, value in connect_args.items() if name not in url.query}


def prepare_sessions(engine: Engine, *statements: str) -> None:
    """Execute these statements in each new session, and replace ended sessions."""
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
    """Replace a session that the server has ended before it is used.

    The end of a session can be read from its socket at once. So it is tested with a round trip only if there is
    something to read, if it was idle (a cut network shows nothing), or if the driver does not expose the socket.
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
            raise InvalidatePoolError from error  # all other sessions are replaced, too

    event.listen(engine, "checkin", rest)
    event.listen(engine, "checkout", ask)


_sessions: WeakKeyDictionary[Engine, WeakSet[Any]] = WeakKeyDictionary()  # the open ones of each engine
_guard = threading.Lock()  # for the sets, since several threads make sessions


def end_silent(engine: Engine, silent: Any) -> None:
    """Close all sessions that wait for the same server as this one.

    Their users get an error, like from a lost connection.
    """
    with _guard:
        ours = list(_sessions[engine])
    ended = [one for one in ours if _waits(one) and _place(one) == _place(silent)]
    for one in ended:
        disconnect(one)
    _log.warning("database.silent", ended=len(ended))


def _waits(session: Any) -> bool:
    """Whether the session waits for the result of a statement."""
    return not session.closed and session.info.transaction_status.name == "ACTIVE"


def _place(session: Any) -> tuple[str, int]:
    return session.info.host, session.info.port


def disconnect(session: Any) -> None:
    """Close a session's connection from any thread. A thread that waits for an answer gets an error at once."""
    with contextlib.suppress(Exception):  # it has ended already
        line = socket.socket(fileno=os.dup(session.fileno()))
        with line:
            line.shutdown(socket.SHUT_RDWR)


def _is_silent(connection: Any) -> bool:
    """Whether nothing can be read from a session; False if unknown."""
    number = getattr(connection, "fileno", None)
    if number is None or connection.closed:
        return False
    poll = select.poll()
    poll.register(number(), select.POLLIN)
    return not poll.poll(0)


def is_whole(column: str) -> str:
    """A CHECK for integers: INTEGER would silently round 25.5, and the range excludes PostgreSQL's NaN and Infinity."""
    return f"{column} IS NULL OR ({column} = floor({column}) AND {column} BETWEEN {-(2**63)} AND {2**63 - 1})"


def quoted(name: str, mark: str) -> str:
    """A quoted name."""
    return f"{mark}{name.replace(mark, mark * 2)}{mark}"


class Losses:
    """Backoff for a session that is replaced when it is lost. Logs the loss and the recovery, at most once a minute."""

    def __init__(self, again: str) -> None:
        self._again = again
        self._clock = SystemClock()
        self._log_at = -inf
        self._is_logged = False
        self.wait = AGAIN_S

    def recovered(self) -> None:
        """Note that the session works again."""
        if self._is_logged:
            _log.info(self._again)
        self._is_logged, self.wait = False, AGAIN_S

    def lost(self, error: Exception) -> float:
        """Note that the session was lost or could not be made. Returns the seconds to wait."""
        if not self._is_logged and self._clock.monotonic() >= self._log_at:
            _log.warning("wake.lost", error=type(error).__name__)
            self._log_at, self._is_logged = self._clock.monotonic() + LOG_AGAIN_S, True
        now, self.wait = self.wait, min(2 * self.wait, AGAIN_AT_MOST_S)
        return now
