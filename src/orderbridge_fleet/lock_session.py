"""The database session in which a replica holds its locks, on PostgreSQL.

The server frees the locks when the session ends, and it ends a session that is silent for SILENT_S: a replica that was
killed, stopped or cut off has lost its locks by then. A call that takes longer than CALL_S is cut from our side.
"""

import contextlib
import os
import socket
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy import URL, Connection, event

from orderbridge.errors import Unusable
from orderbridge.store.dialects.postgresql_sessions import changes_process, lasting_sessions

SILENT_S = 6  # the replica asks every second
CALL_S = 4.0  # for all that is asked at a time
LOCK_S = 1  # of that for one lock: a beat gives buckets, and waits for the transaction of a replica that vanished
LIMITS = {
    "connect_timeout": 3,
    "keepalives_idle": 2,
    "keepalives_interval": 1,
    "keepalives_count": 3,
    "tcp_user_timeout": 4000,
}
SETTINGS = (
    f"SET idle_session_timeout = '{SILENT_S}s'",
    f"SET idle_in_transaction_session_timeout = '{SILENT_S}s'",
    f"SET lock_timeout = '{LOCK_S}s'",
    f"SET statement_timeout = '{LOCK_S + 1}s'",
    "SET synchronous_commit = on",
)
OLDEST = 140000  # idle_session_timeout came with it


class LockSession:
    """A connection that is cut when a call takes too long: a server that was stopped, or a cut line, says nothing."""

    def __init__(self, url: URL, options: Mapping[str, Any]) -> None:
        """`options`: for create_engine, as for any session of ours."""
        self._engine = lasting_sessions(url, options, **LIMITS)
        self._sockets: dict[int, socket.socket] = {}
        self._is_late = False
        self._guard = threading.Lock()
        event.listen(self._engine, "connect", self._know, insert=True)
        event.listen(self._engine, "close", self._forget)

    def open(self) -> Connection:
        """A session that is ours alone. Raises Unusable where there is none."""
        connection = self._engine.connect()
        try:
            self._check(connection)
        except BaseException:
            connection.invalidate()
            connection.close()
            raise
        return connection

    def _check(self, connection: Connection) -> None:
        if int(connection.exec_driver_sql("SELECT current_setting('server_version_num')").scalar_one()) < OLDEST:
            raise Unusable("fleet.old_server", oldest=OLDEST // 10000)
        if changes_process(connection, self._engine):
            raise Unusable("database.pooled")

    def close(self) -> None:
        """No session is opened any more."""
        self._engine.dispose()

    @contextlib.contextmanager
    def limited(self) -> Iterator[None]:
        """What is asked within is over in `CALL_S`, or fails."""
        self._is_late = False
        timer = threading.Timer(CALL_S, self._cut)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _know(self, connection: Any, _: Any) -> None:
        """Copy the descriptor: the driver may close its own, and the number be another's, while we cut."""
        with self._guard:
            self._sockets[id(connection)] = socket.socket(fileno=os.dup(connection.fileno()))
        if self._is_late:
            self._cut()

    def _cut(self) -> None:
        with self._guard:
            self._is_late = True
            for line in self._sockets.values():
                with contextlib.suppress(OSError):
                    line.shutdown(socket.SHUT_RDWR)

    def _forget(self, connection: Any, _: Any) -> None:
        with self._guard:
            line = self._sockets.pop(id(connection), None)
        if line is not None:
            line.close()
