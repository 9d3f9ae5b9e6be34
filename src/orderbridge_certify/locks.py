"""Measures how long a POS holds database locks, and holds locks on purpose.

On SQLite the single write lock is tested by trying to take it. A server shows its open transactions.
"""

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial

from sqlalchemy import Connection, select, update
from sqlalchemy.exc import DBAPIError

from orderbridge.clock import SystemClock
from orderbridge.store.database import Database
from orderbridge.store.tables import orders
from orderbridge_certify.noise import PATIENT_S, PAUSE_S, STATEMENT, TABLE

POLL_S = 0.1

# Queries for open transactions. Their age is counted from the first poll that found them.
_OPEN = {
    # Every role may read pg_locks. pg_stat_activity hides the start of other roles' transactions.
    "postgresql": (
        "SELECT DISTINCT concat(pid, ' ', virtualtransaction) FROM pg_locks WHERE locktype = 'relation'"
        " AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND pid <> pg_backend_pid()"
    ),
    # Needs the privilege PROCESS. The times are whole seconds.
    "mysql": (
        "SELECT concat(trx_mysql_thread_id, ' ', trx_started) FROM information_schema.innodb_trx"
        " WHERE trx_mysql_thread_id <> connection_id()"
    ),
}
_OPEN["mariadb"] = _OPEN["mysql"]


class Probe:
    """Measures continuously how long a program holds a lock. `longest_s` is None without the right to see it."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._clock = SystemClock()
        self._over = threading.Event()
        self._longest_s: float | None = 0.0
        self._asked: float | None = None
        self._first: dict[str, float] = {}

    @property
    def longest_s(self) -> float | None:
        """The longest time so far, including a lock that is still held."""
        asked, longest = self._asked, self._longest_s
        if asked is None or longest is None:
            return longest
        return max(longest, self._clock.monotonic() - asked)

    def work(self) -> None:
        """Measure until `end` is called."""
        file = _file(self._database)
        while not self._over.wait(POLL_S):
            if file is None:
                self._check_server()
            else:
                self._ask_for_lock(file)

    def end(self) -> None:
        """Stop measuring."""
        self._over.set()

    def _ask_for_lock(self, file: str) -> None:
        with closing(sqlite3.connect(file, isolation_level=None, timeout=PATIENT_S)) as connection:
            self._asked = self._clock.monotonic()
            connection.execute("BEGIN IMMEDIATE")
            self._longest_s, self._asked = self.longest_s, None
            connection.execute("ROLLBACK")

    def _check_server(self) -> None:
        statement = _OPEN[self._database.engine.dialect.name]
        try:
            found = self._database.read_now(lambda connection: connection.exec_driver_sql(statement).scalars().all())
        except DBAPIError:  # this user has no right to see it
            self._longest_s = None
            return
        now = self._clock.monotonic()
        self._first = {who: self._first.get(who, now) for who in map(str, found)}
        if self._longest_s is not None:
            self._longest_s = max([self._longest_s, *(now - since for since in self._first.values())])


def _file(database: Database) -> str | None:
    """The path of SQLite's file; None on a server. The URL is not used, because it encodes a colon differently."""
    url = database.engine.url
    return url.database if url.get_backend_name() == "sqlite" else None


@contextmanager
def probed(database: Database) -> Iterator[Probe]:
    """A probe that measures during the block."""
    probe = Probe(database)
    threading.Thread(target=probe.work, name="probe", daemon=True).start()
    try:
        yield probe
    finally:
        probe.end()  # a probe that waits for a lock ends when it gets it


@contextmanager
def noise(database: Database) -> Iterator[None]:
    """Run another program that constantly writes small transactions to its own table."""
    file = _file(database)
    if file is not None:
        with _process(file):
            yield
        return
    over = threading.Event()
    thread = threading.Thread(target=partial(_write, database, over), name="noise", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def _process(file: str) -> Iterator[None]:
    """Run the program as a process, which has begun to write when the block starts."""

    def times(connection: sqlite3.Connection) -> int:
        return int(connection.execute(f"SELECT times FROM {TABLE}").fetchone()[0])  # noqa: S608 - a name of ours

    with (
        closing(sqlite3.connect(file, isolation_level=None, timeout=PATIENT_S)) as connection,
        subprocess.Popen([sys.executable, "-m", "orderbridge_certify.noise", file]) as running,  # noqa: S603 - our own
    ):
        try:
            before = times(connection)
            while times(connection) == before and running.poll() is None:
                threading.Event().wait(POLL_S)
            yield
        finally:
            running.kill()


def _write(database: Database, over: threading.Event) -> None:
    while not over.wait(PAUSE_S):
        database.write_now(lambda connection: connection.exec_driver_sql(STATEMENT))


class Held:
    """A lock of the daemon that makes the till wait: on an order's row, or SQLite's write lock."""

    def __init__(self, database: Database, key: str) -> None:
        self._database, self._key = database, key
        self._is_key = orders.c.payment_key == key

    def bump(self) -> int:
        """Write a new revision as the daemon does, and return it."""
        return self._database.write_now(self._bump)

    def hold(self, seconds: float) -> int:
        """Hold the lock, write a new revision just before the release, and return it."""

        def work(connection: Connection) -> int:
            connection.execute(select(orders.c.revision).where(self._is_key).with_for_update())
            threading.Event().wait(seconds)
            return self._bump(connection)

        return self._database.write_now(work)

    def _bump(self, connection: Connection) -> int:
        changed = {"revision": orders.c.revision + 1, "last_change": "status"}
        connection.execute(update(orders).where(self._is_key).values(changed))
        return int(connection.execute(select(orders.c.revision).where(self._is_key)).scalar_one())
