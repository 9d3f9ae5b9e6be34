"""The right to work for accounts on one database: of several daemons one works, the others wait.

The system or the server takes it back the moment its holder dies, so nothing is left over by a crash: SQLite's right
is a lock on a file beside the database, a server's hangs on a connection. Another kind of server grants it to all.
"""

import fcntl
import hashlib
import os
import threading
from collections.abc import Sequence

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from orderbridge.errors import StoreError


class Sole:
    """Asks for the right, holds it, gives it back: for all these accounts or for none."""

    def __init__(self, engine: Engine, fingerprints: Sequence[str]) -> None:
        self._engine = engine
        self._keys = [hashlib.sha256(f"orderbridge {one}".encode()).digest()[:8] for one in sorted(fingerprints)]
        self._connection: Connection | None = None
        self._file: int | None = None
        self._given_back = threading.Event()

    def take(self) -> bool:
        """Whether the right is ours now. Raises DBAPIError when the server does not answer."""
        self._given_back.clear()
        return self._take()

    def is_lost(self) -> bool:
        """Whether somebody else has it. A server that was away is asked for it again, until it is back."""
        if self._file is not None or self._given_back.is_set():
            return False
        try:
            if self._connection is not None:
                self._connection.execute(text("SELECT 1"))
                return False
        except DBAPIError:
            self._drop()
        try:
            taken = self._take()
        except DBAPIError:  # nobody can work there now, so nobody else has it
            return False
        if self._given_back.is_set():  # meanwhile, by another thread
            self._drop()
        return not taken

    def close(self) -> None:
        """Give it back."""
        self._given_back.set()
        self._drop()

    def _drop(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.invalidate()  # back in the pool it would still hold the right
            connection.close()

    def _take(self) -> bool:
        if self._engine.dialect.name == "sqlite":
            return self._take_file(f"{os.path.realpath(self._engine.url.database or '')}-lock")
        connection = self._connection or self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        self._connection = connection
        try:
            taken = all(_take_key(connection, key) for key in self._keys)
        except DBAPIError:
            self._drop()
            raise
        if not taken:
            self._drop()
        return taken

    def _take_file(self, path: str) -> bool:
        try:
            self._file = self._file or os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o666)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._drop()
            return False
        except OSError as error:
            raise StoreError(
                f"{path} cannot be made ({error.strerror}). Let this user write to that folder."
            ) from error
        return True


def _take_key(connection: Connection, key: bytes) -> bool:
    match connection.dialect.name:
        case "postgresql":
            number = int.from_bytes(key, "big", signed=True)
            return bool(connection.execute(text("SELECT pg_try_advisory_lock(:key)"), {"key": number}).scalar())
        case "mysql" | "mariadb":
            return (
                connection.execute(text("SELECT GET_LOCK(:key, 0)"), {"key": f"orderbridge {key.hex()}"}).scalar() == 1
            )
        case _:
            return True
