"""What several replicas on one database need of a server, and the session of a replica's own in which it asks.

The server frees all that a session holds the moment it ends, and it ends one that says nothing for `SILENT_S`. So a
replica that was killed, stopped or cut off has lost its locks by then.
"""

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import URL, Connection, Engine, NullPool, create_engine, event

SILENT_S = 6  # a session that says nothing for so long is ended by the server; we speak every second
CALL_S = 4.0  # for all that is asked at a time; then the line is cut from our side
LOCK_S = 1  # of that for one lock: a beat gives, and waits for the transaction of one that vanished
CONNECT_S = 3


class Row(NamedTuple):
    """A row of a survey: of a bucket its noted replica and the session that has its lock, of a replica its epoch."""

    what: int
    number: int
    replica: str | None
    session: int | None


BUCKET, REPLICA, OURSELVES, COUNT = range(4)  # `what`


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetDialect:
    """One server's part. Numbers: of a replica, that of its presence; of a bucket, its own."""

    driver: str
    limits: Mapping[str, Any]  # for the driver, of the session's own connection
    line: Callable[[Any], int]  # the descriptor of the driver's connection
    refuse: Callable[[Connection, Engine], None]  # raises Unusable where a session is not ours alone
    refuse_pooler: Callable[[Connection, Engine], None]  # the same of a pooler alone, for a daemon without replicas
    reach: Callable[[Engine], None]  # how a session comes to one of several servers of the address
    settle: tuple[str, ...]  # what the session says first
    join: Callable[[Connection, int], bool]  # False: a daemon that works alone is there
    absent: Callable[[Connection, int], None]  # it no longer counts among those that live; what it holds it keeps
    end: Callable[[Connection, int], None]  # a session of this replica that the server has not missed yet
    survey: str  # one query, of Rows
    lock: Callable[[Connection, Sequence[int]], list[int]]  # these buckets; which were got
    unlock: Callable[[Connection, Sequence[int]], None]
    node: Callable[[Connection], str]  # the server that a session is with
    end_stuck: Callable[[Connection, str], None]  # transactions in which a replica that vanished was stopped
    fence: str  # the epoch of a replica by its name, so that nobody changes it before this transaction ends


class LockSession:
    """A connection that is cut when a call takes too long: a server that was stopped, or a cut line, says nothing."""

    def __init__(self, url: URL, options: Mapping[str, Any], fleet: FleetDialect) -> None:
        """`options`: for create_engine, as for any session of ours."""
        named = {**options["connect_args"], **fleet.limits}
        more = {**options, "isolation_level": "AUTOCOMMIT", "connect_args": named}
        self.engine = create_engine(url, hide_parameters=True, poolclass=NullPool, **more)
        fleet.reach(self.engine)
        self._number = fleet.line
        self._lines: dict[int, socket.socket] = {}
        self._is_late = False
        self._guard = threading.Lock()
        event.listen(self.engine, "connect", self._know, insert=True)
        event.listen(self.engine, "close", self._forget)

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
        """A copy of the descriptor: the driver may close its own, and the number be another's, while we cut."""
        with self._guard:
            self._lines[id(connection)] = socket.socket(fileno=os.dup(self._number(connection)))
        if self._is_late:
            self._cut()

    def _cut(self) -> None:
        with self._guard:
            self._is_late = True
            for line in self._lines.values():
                with contextlib.suppress(OSError):
                    line.shutdown(socket.SHUT_RDWR)

    def _forget(self, connection: Any, _: Any) -> None:
        with self._guard:
            line = self._lines.pop(id(connection), None)
        if line is not None:
            line.close()
