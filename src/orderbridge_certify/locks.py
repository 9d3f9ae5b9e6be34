"""Measures how long a POS holds database locks, and holds locks on purpose.

On SQLite the single write lock is tested by trying to take it. A server shows when a transaction began.
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

# The transactions that are open. Their age is counted from the first poll that found each.
_OPEN = {
    # Everybody may read pg_locks. pg_stat_activity hides since when another role's transaction is open.
    "postgresql": (
        "SELECT DISTINCT concat(pid, ' ', virtualtransaction) FROM pg_locks WHERE locktype = 'relation'"
        " AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND pid <> pg_backend_pid()"
    ),
    # The right PROCESS is asked for. It knows whole seconds.
    "mysql": (
        "SELECT concat(trx_mysql_thread_id, ' ', trx_started) FROM information_schema.innodb_trx"
        " WHERE trx_mysql_thread_id <> connection_id()"
    ),
}
_OPEN["mariadb"] = _OPEN["mysql"]


class Probe:
    """Measures all the time how long a program holds a lock; `longest_s` is None where it may not be seen."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._clock = SystemClock()
        self._over = threading.Event()
        self._longest_s: float | None = 0.0
        self._asked: float | None = None
        self._first: dict[str, float] = {}

    @property
    def longest_s(self) -> float | None:
        """The longest so far, one that is still held included."""
        asked, longest = self._asked, self._longest_s
        if asked is None or longest is None:
            return longest
        return max(longest, self._clock.monotonic() - asked)

    def work(self) -> None:
        """Until it is over."""
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
        except DBAPIError:  # this user may not see it
            self._longest_s = None
            return
        now = self._clock.monotonic()
        self._first = {who: self._first.get(who, now) for who in map(str, found)}
        if self._longest_s is not None:
            self._longest_s = max([self._longest_s, *(now - since for since in self._first.values())])


def _file(database: Database) -> str | None:
    """SQLite's; None on a server. Not by its address, which writes a colon in another way."""
    url = database.engine.url
    return url.database if url.get_backend_name() == "sqlite" else None


@contextmanager
def probed(database: Database) -> Iterator[Probe]:
    """A probe beside the block."""
    probe = Probe(database)
    threading.Thread(target=probe.work, name="probe", daemon=True).start()
    try:
        yield probe
    finally:
        probe.end()  # one that waits for a lock ends when it has it


@contextmanager
def noise(database: Database) -> Iterator[None]:
    """Another program that writes all the time, in small transactions, into a table of its own."""
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
    """It has begun when the block does."""

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
    """The daemon's part in a race: an order's row, or SQLite's one writer, held while the till waits to write."""

    def __init__(self, database: Database, key: str) -> None:
        self._database, self._key = database, key
        self._is_key = orders.c.payment_key == key

    def bump(self) -> int:
        """A new revision, as the daemon makes one. Returns it."""
        return self._database.write_now(self._bump)

    def hold(self, seconds: float) -> int:
        """Hold the lock, make a new revision just before it is given back; returns it."""

        def work(connection: Connection) -> int:
            connection.execute(select(orders.c.revision).where(self._is_key).with_for_update())
            threading.Event().wait(seconds)
            return self._bump(connection)

        return self._database.write_now(work)

    def _bump(self, connection: Connection) -> int:
        changed = {"revision": orders.c.revision + 1, "last_change": "status"}
        connection.execute(update(orders).where(self._is_key).values(changed))
        return int(connection.execute(select(orders.c.revision).where(self._is_key)).scalar_one())
