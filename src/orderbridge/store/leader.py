"""The right to work on one database: of several daemons one works, the others wait, whatever their accounts are.

Each judges every row of the outbox, and would refuse those of accounts that it does not know.
The system or the server takes the right back the moment its holder dies, so that a crash leaves nothing over: on SQLite
it is a lock on the database's own file, on a server it belongs to a session.
"""

import threading
from typing import Protocol

from sqlalchemy import Connection, delete, text, update
from sqlalchemy.exc import DBAPIError

from orderbridge.errors import Unusable
from orderbridge.store.database import Database
from orderbridge.store.own_tables import buckets, replicas


class RightToWork(Protocol):
    """What a daemon must hold to work on a database."""

    def take(self) -> bool:
        """Whether it is ours now. Raises DBAPIError when the server does not answer."""

    def is_lost(self) -> bool:
        """Whether another process has it."""

    def holder(self) -> str | None:
        """Who has it, as far as that is known: host and process."""

    def close(self) -> None:
        """Give it back."""


class LeaderLock:
    """Asks for the right, holds it, gives it back."""

    def __init__(self, database: Database) -> None:
        self._engine = database.engine
        self._lead = database.dialect.lead
        self._worker = database.dialect.worker
        self._file = database.file
        self._connection: Connection | None = None
        self._has_file = False
        self._given_back = threading.Event()

    def take(self) -> bool:
        """Whether the right is ours now, or still. Raises DBAPIError when the server does not answer."""
        self._given_back.clear()
        return self._holds() or self._take()

    def is_lost(self) -> bool:
        """Whether another process has it. A server that was away is asked for it again, until it is back."""
        if self._given_back.is_set() or self._holds():
            return False
        try:
            taken = self._take()
        except DBAPIError:  # no process can work there now, so no other has it
            return False
        if self._given_back.is_set():  # meanwhile, by another thread
            self._drop()
        return not taken

    def holder(self) -> str | None:
        """Who has it, as far as that is known: host and process."""
        try:
            with self._engine.connect() as connection:
                return self._worker(connection)
        except DBAPIError:
            return None

    def serves(self, database: Database) -> bool:
        """Whether it is the right to work on that database."""
        if self._file is not None and database.file is not None:
            return self._has_file and self._file.identity == database.file.identity
        return self._engine.url == database.engine.url

    def close(self) -> None:
        """Give it back."""
        self._given_back.set()
        self._drop()

    def _drop(self) -> None:
        if self._file is not None and self._has_file:
            self._has_file = False
            self._file.unlock()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.invalidate()  # back in the pool it would still hold the right
            connection.close()

    def _holds(self) -> bool:
        """Whether it is ours still. A session that does not answer has lost it."""
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
    """A daemon works alone from now on. A replica that is still there is fenced by its missing row."""
    connection.execute(update(buckets).values(replica=None).where(buckets.c.replica.is_not(None)))
    connection.execute(delete(replicas))
