"""The leader lock: only one daemon works on a database, and others wait.

Two daemons with different accounts would refuse each other's outbox rows. The lock is a file lock on SQLite, and
belongs to a session on a server. So it is released when its holder dies.
"""

import threading
from typing import Protocol

from sqlalchemy import Connection, delete, text, update
from sqlalchemy.exc import DBAPIError

from orderbridge.errors import Unusable
from orderbridge.store.database import Database
from orderbridge.store.own_tables import buckets, replicas


class RightToWork(Protocol):
    """The lock that a daemon must hold to work on a database."""

    def take(self) -> bool:
        """Try to take it. Raises DBAPIError if the server does not answer."""

    def is_lost(self) -> bool:
        """Whether another process has it."""

    def close(self) -> None:
        """Release it."""


class LeaderLock:
    """Takes, holds and releases the lock."""

    def __init__(self, database: Database) -> None:
        self._engine = database.engine
        self._lead = database.dialect.lead
        self._file = database.file
        self._connection: Connection | None = None
        self._has_file = False
        self._given_back = threading.Event()

    def take(self) -> bool:
        """Try to take the lock, or check that we hold it. Raises DBAPIError if the server does not answer."""
        self._given_back.clear()
        return self._holds() or self._take()

    def is_lost(self) -> bool:
        """Whether another process took it. After an outage of the server, this tries to take it again."""
        if self._given_back.is_set() or self._holds():
            return False
        try:
            taken = self._take()
        except DBAPIError:  # the server is unreachable, for other processes, too
            return False
        if self._given_back.is_set():  # by another thread meanwhile
            self._drop()
        return not taken

    def serves(self, database: Database) -> bool:
        """Whether it is the lock of this database."""
        if self._file is not None and database.file is not None:
            return self._has_file and self._file.identity == database.file.identity
        return self._engine.url == database.engine.url

    def close(self) -> None:
        """Release it."""
        self._given_back.set()
        self._drop()

    def _drop(self) -> None:
        if self._file is not None and self._has_file:
            self._has_file = False
            self._file.unlock()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.invalidate()  # in the pool it would still hold the lock
            connection.close()

    def _holds(self) -> bool:
        """Whether our session still holds it."""
        connection = self._connection
        try:
            if connection is not None:
                connection.execute(text("SELECT 1"))
        except DBAPIError:
            self._drop()
        return self._has_file or self._connection is not None

    def _take(self) -> bool:
        if self._lead is None:
            if self._file is None:
                raise Unusable("database.not_opened", path=self._engine.url.database or "")
            self._has_file = self._file.lock()
            return self._has_file
        self._connection = connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        try:
            taken = self._lead(connection)
        except DBAPIError:
            self._drop()
            raise
        if not taken:
            self._drop()
        return taken


def end_replicas(connection: Connection) -> None:
    """Remove all replicas, because a single daemon works now. A remaining replica is fenced by its missing row."""
    connection.execute(update(buckets).values(replica=None).where(buckets.c.replica.is_not(None)))
    connection.execute(delete(replicas))
