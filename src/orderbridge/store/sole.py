"""The right to work on one database: of several daemons one works, the others wait, whatever their accounts are.

Each judges every row of the outbox, and would refuse those of accounts that it does not know.
The system or the server takes the right back the moment its holder dies, so nothing is left over by a crash: SQLite's
is a lock on a file beside the database, a server's hangs on a connection. Another kind of server grants it to all.
"""

import fcntl
import os
import threading

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from orderbridge.errors import StoreError

# PostgreSQL's keys are numbers, each database has its own. MariaDB's are names of 64 characters for the whole server.
TAKE_POSTGRESQL = f"SELECT pg_try_advisory_lock({int.from_bytes(b'orderbrg', 'big')})"
TAKE_MARIADB = "SELECT GET_LOCK(CONCAT('orderbridge ', SHA1(IFNULL(DATABASE(), ''))), 0) = 1"


class Sole:
    """Asks for the right, holds it, gives it back."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._connection: Connection | None = None
        self._file: int | None = None
        self._given_back = threading.Event()

    def take(self) -> bool:
        """Whether the right is ours now, or still. Raises DBAPIError when the server does not answer."""
        self._given_back.clear()
        return self._holds() or self._take()

    def is_lost(self) -> bool:
        """Whether somebody else has it. A server that was away is asked for it again, until it is back."""
        if self._given_back.is_set() or self._holds():
            return False
        try:
            taken = self._take()
        except DBAPIError:  # nobody can work there now, so nobody else has it
            return False
        if self._given_back.is_set():  # meanwhile, by another thread
            self._drop()
        return not taken

    def serves(self, engine: Engine) -> bool:
        """Whether it is the right to work on that database."""
        return self._engine.url == engine.url

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

    def _holds(self) -> bool:
        """Whether it is ours still. A session that does not answer has lost it."""
        connection = self._connection
        try:
            if connection is not None:
                connection.execute(text("SELECT 1"))
        except DBAPIError:
            self._drop()
        return self._file is not None or self._connection is not None

    def _take(self) -> bool:
        if self._engine.dialect.name == "sqlite":
            return self._take_file(f"{os.path.realpath(self._engine.url.database or '')}-lock")
        self._connection = connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        try:
            taken = _is_granted(connection)
        except DBAPIError:
            self._drop()
            raise
        if not taken:
            self._drop()
        return taken

    def _take_file(self, path: str) -> bool:
        try:
            self._file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o666)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._drop()
            return False
        except OSError as error:
            raise StoreError(
                f"{path} cannot be made ({error.strerror}). Let this user write to that folder."
            ) from error
        return True


def _is_granted(connection: Connection) -> bool:
    match connection.dialect.name:
        case "postgresql":
            return bool(connection.execute(text(TAKE_POSTGRESQL)).scalar())
        case "mysql" | "mariadb":
            return bool(connection.execute(text(TAKE_MARIADB)).scalar())
        case _:
            return True
