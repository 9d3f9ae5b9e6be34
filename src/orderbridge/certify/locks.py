"""Locks: how long somebody holds one, and certify's own, held on purpose.

On SQLite there is one writer's lock, found by asking for it. A server tells since when a transaction is open.
"""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial

from sqlalchemy import Connection, select, update
from sqlalchemy.exc import DBAPIError

from orderbridge.certify.notes import NOISE
from orderbridge.clock import SystemClock
from orderbridge.store.database import Database
from orderbridge.store.tables import orders

LOOK_S = 0.1
NOISE_S = 0.004  # between two writes of a program that writes all the time
PATIENT_S = 120.0

_OPEN_SINCE = {
    "postgresql": (
        "SELECT CASE WHEN count(CASE WHEN query = '<insufficient privilege>' THEN 1 END) > 0 THEN NULL"
        " ELSE coalesce(max(extract(epoch FROM clock_timestamp() - xact_start)), 0) END FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    ),
    # Whole seconds there: up to one too many, which is taken off.
    "mysql": (
        "SELECT coalesce(max(timestampdiff(SECOND, trx_started, now())), 0) - 1 FROM information_schema.innodb_trx"
        " WHERE trx_mysql_thread_id <> connection_id()"
    ),
}
_OPEN_SINCE["mariadb"] = _OPEN_SINCE["mysql"]


class Probe:
    """Looks all the time how long somebody holds a lock; `longest_s` is None where it may not be seen."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._clock = SystemClock()
        self._over = threading.Event()
        self._longest_s: float | None = 0.0
        self._asked: float | None = None

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
        while not self._over.wait(LOOK_S):
            if file is None:
                self._look_at_server()
            else:
                self._ask_for_lock(file)

    def end(self) -> None:
        """No more looks."""
        self._over.set()

    def _ask_for_lock(self, file: str) -> None:
        with closing(sqlite3.connect(file, isolation_level=None, timeout=PATIENT_S)) as connection:
            self._asked = self._clock.monotonic()
            connection.execute("BEGIN IMMEDIATE")
            self._longest_s, self._asked = self.longest_s, None
            connection.execute("ROLLBACK")

    def _look_at_server(self) -> None:
        statement = _OPEN_SINCE[self._database.engine.dialect.name]
        try:
            found = self._database.read_now(lambda connection: connection.exec_driver_sql(statement).scalar())
        except DBAPIError:  # this user may not see it
            found = None
        longest = self._longest_s
        self._longest_s = None if found is None or longest is None else max(longest, float(found))


def _file(database: Database) -> str | None:
    """SQLite's; None on a server. Not by its address, which writes a colon in another way."""
    url = database.engine.url
    return url.database if url.get_backend_name() == "sqlite" else None


@contextmanager
def probed(database: Database) -> Iterator[Probe]:
    """A probe beside the block."""
    probe = Probe(database)
    thread = threading.Thread(target=probe.work, name="probe", daemon=True)
    thread.start()
    try:
        yield probe
    finally:
        probe.end()  # one that waits for a lock ends when it has it


@contextmanager
def noise(database: Database) -> Iterator[None]:
    """Another program that writes all the time, in small transactions, into a table of its own."""
    over = threading.Event()
    thread = threading.Thread(target=partial(_write, database, over), name="noise", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _write(database: Database, over: threading.Event) -> None:
    statement = f"UPDATE {NOISE} SET times = times + 1"  # noqa: S608 - a name of ours
    file = _file(database)
    if file is None:
        while not over.wait(NOISE_S):
            database.write_now(lambda connection: connection.exec_driver_sql(statement))
        return
    with closing(sqlite3.connect(file, isolation_level=None, timeout=PATIENT_S)) as connection:
        connection.execute("PRAGMA synchronous = OFF")  # as many commits as there can be
        while not over.wait(NOISE_S):
            connection.execute(statement)


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
