"""The membership of a replica: which buckets of accounts it holds, and the fence of its transactions.

Rules of this file:

- Locks show which replicas live; the table shows the replica of each bucket. A replica that takes a bucket of a failed
  one raises the failed one's epoch in the same transaction. Every writing transaction checks its replica's epoch first,
  so that nothing is written after a takeover.
- A lost session is replaced, and the locks are taken again. If the epoch is unchanged, no other replica has noticed.
- Once the epoch has changed, or all buckets were released, this replica writes nothing any more: `fence` always raises.
- Every call has a time limit, and may come from any thread.
"""

import contextlib
import os
import secrets
import socket
import threading
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Never

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from orderbridge.clock import SystemClock
from orderbridge.errors import Fenced, Unusable
from orderbridge.store import own_tables
from orderbridge.store.database import Database
from orderbridge.store.failures import is_broken, is_busy, is_denied, is_refusal
from orderbridge_fleet import advisory_locks, replicas
from orderbridge_fleet.advisory_locks import BUCKET, COUNT, OURSELVES, REPLICA, SETTINGS, LockSession
from orderbridge_fleet.buckets import Bucket, Seen, share

FORGET_S = 60.0  # after which a failed replica without buckets is removed from the table


@dataclass(frozen=True, slots=True)
class Beat:
    """The buckets that we hold after a beat.

    `excess`: those that other replicas should have. `count`: the number of all buckets. `replicas`: the living ones.
    `refused`: the error, if a trigger or a missing right prevents buckets from being moved.
    """

    held: frozenset[int]
    excess: frozenset[int]
    count: int
    replicas: frozenset[str]
    refused: DBAPIError | None = field(default=None, compare=False)


class Membership:
    """The right to work beside other replicas. `beat` must be called every second."""

    def __init__(self, database: Database) -> None:
        """Raises Unusable where replicas cannot share such a database."""
        self._url = database.engine.url
        if database.engine.driver != "psycopg":
            raise Unusable("fleet.kind", driver=f"{database.engine.name}+{database.engine.driver}")
        self._session = LockSession(database.engine.url, database.dialect.options(database.engine.url, 0.0))
        self._connection: Connection | None = None
        self._ours: int | None = None  # the number of our session at the server, once known
        self._clock = SystemClock()
        self._one_at_a_time = threading.Lock()
        self._number = secrets.randbits(31)
        self.name = f"{socket.gethostname()[:40]} {os.getpid()} {self._number:08x}"
        self._epoch: int | None = None  # None: not entered in the tables yet
        self._count = 0
        self.is_over = False  # our buckets may belong to another replica
        self._is_absent = False  # our session no longer counts as alive
        self._refused: DBAPIError | None = None  # in this beat
        self._held: frozenset[int] = frozenset()
        # By bucket and the replica in the table, since when the bucket has no holder, by our clock.
        self._unheld: dict[tuple[int, str | None], float] = {}
        self._vanished: dict[str, float] = {}  # by replica, since when it has no session

    def take(self) -> bool:
        """Join the other replicas. False: a single daemon works. Raises DBAPIError if the server does not answer."""
        with self._exclusive():
            self._refuse_over()
            return self._renew() is not None

    def check(self) -> None:
        """Raise Unusable where no replica can work, as far as this can be checked without joining."""
        with self._exclusive():
            self._open()
            self._drop()

    def is_lost(self) -> bool:
        """Use the session, so that it stays alive without beats (a reload). Returns False: a beat reports the loss."""
        with contextlib.suppress(DBAPIError, Fenced), self._exclusive():
            if not self.is_over:
                self._renewed()
        return False

    def serves(self, database: Database) -> bool:
        """Whether this membership is for that database."""
        return self._url == database.engine.url

    def fence(self, connection: Connection) -> None:
        """Check our epoch in a transaction before it writes. Raises Fenced if another replica may have our buckets."""
        self._refuse_over()
        if self._epoch is None:
            return
        if advisory_locks.epoch_of(connection, self.name) != self._epoch:
            self._end()

    def beat(self, give: Collection[int] = (), *, is_ending: bool = False) -> Beat:
        """Release the buckets in `give`, find the living replicas, and take our share of the buckets.

        `is_ending`: take none, and let the other replicas share all of them. The schema must be current. Raises
        DBAPIError if the server does not answer: our buckets stay ours, and the beat can be repeated. Raises Fenced if
        this replica may not write any more.
        """
        with self._exclusive():
            self._refuse_over()
            self._refused = None
            connection = self._renewed()
            if self._epoch is None:
                self._enter(connection)
            if is_ending and not self._is_absent:
                advisory_locks.resign(connection, self._number)
                self._is_absent = True
            with self._keeping_buckets():
                self._give(connection, self._held & frozenset(give))
            seen = self._survey(connection)
            wanted = share(seen, self.name, self._waited(seen))
            if not is_ending:
                self._take(connection, wanted.take)
            with self._keeping_buckets():
                self._forget(connection, seen)
            alive = seen.alive | {self.name}
            return Beat(self._held, wanted.excess & self._held, len(seen.buckets), alive, self._refused)

    def close(self) -> None:
        """Release all buckets at once. After this the replica writes nothing."""
        self.is_over = True
        with contextlib.suppress(DBAPIError, Fenced), self._exclusive():
            if self._connection is not None and self._epoch is not None:
                replicas.leave(self._connection, self.name)
                advisory_locks.unlock(self._connection, sorted(self._held))  # faster than by closing a pooled session
        with self._one_at_a_time:
            self._drop()
            self._session.close()

    # ---- the session -------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[None]:
        """One caller at a time. After an error the session is dropped, because its locks may be another replica's."""
        with self._one_at_a_time:
            try:
                with self._session.limited():
                    yield
            except BaseException:
                self._drop()
                raise

    def _refuse_over(self) -> None:
        if self.is_over:
            raise Fenced("fleet.fenced")

    def _end(self) -> Never:
        self.is_over = True
        raise Fenced("fleet.fenced")

    def _drop(self) -> None:
        connection, self._connection, self._ours = self._connection, None, None
        if connection is not None:
            connection.invalidate()
            connection.close()

    def _holds(self) -> bool:
        """Whether the session answers. If not, it is dropped, because its locks may be another replica's."""
        try:
            if self._connection is not None:
                self._connection.exec_driver_sql("SELECT 1")
        except DBAPIError:
            self._drop()
        return self._connection is not None

    def _renewed(self) -> Connection:
        """The session. Raises Fenced if a single daemon has begun to work since: then this replica is over."""
        connection = self._renew()
        if connection is None:
            self._end()
        return connection

    def _renew(self) -> Connection | None:
        """The session, replaced if it was lost; None if it may not join."""
        if self._holds():
            return self._connection
        connection = self._open()
        for statement in SETTINGS:
            connection.exec_driver_sql(statement)
        if self._epoch is not None:
            advisory_locks.end_session_of(connection, self._number)
        if not advisory_locks.join(connection, self._number):
            self._drop()
            return None
        return connection

    def _open(self) -> Connection:
        """Open a session that only this object uses. Raises Unusable."""
        self._connection = self._session.open()
        self._is_absent = False
        self._unheld = {}  # while the server was away, no replica could hold its buckets: the grace begins again
        return self._connection

    # ---- a beat's parts ----------------------------------------------------------------------------------------------

    def _enter(self, connection: Connection) -> None:
        replicas.enter(connection, self.name, self._number, advisory_locks.node_of(connection))
        self._epoch = 0
        self._count = replicas.count(connection)

    @contextlib.contextmanager
    def _keeping_buckets(self) -> Iterator[None]:
        """If the database refuses a write here, note the refusal and keep our buckets."""
        try:
            yield
        except DBAPIError as error:
            if error.connection_invalidated or not (is_refusal(error) or is_broken(error) or is_denied(error)):
                raise
            self._refused = error

    def _give(self, connection: Connection, buckets: Collection[int]) -> None:
        """Release buckets: first in the table, so that a replica that finds a lock free sees that it was released."""
        if buckets:
            self._held -= frozenset(buckets)  # first, because a failed call may have succeeded at the server
            replicas.give(connection, self.name, buckets)
            advisory_locks.unlock(connection, sorted(buckets))

    def _survey(self, connection: Connection) -> Seen:
        """Read the locks and the tables, and lock our buckets again if a session lost them. Raises Fenced."""
        rows = advisory_locks.survey(connection)
        of_replicas = [row for row in rows if row.what == REPLICA]
        names = {row.session: row.replica for row in of_replicas if row.session is not None}
        ourselves = next(row.number for row in rows if row.what == OURSELVES)
        self._ours = self._ours or ourselves
        if self._ours != ourselves:  # a pooler has given us another session
            raise Unusable("database.pooled")
        names[ourselves] = self.name
        holder = {None: None} | {row.session: names.get(row.session, "?") for row in rows if row.session is not None}
        seen = Seen(
            {
                row.number: Bucket(row.replica, holder[row.session])
                for row in rows
                if row.what == BUCKET and row.number < self._count
            },
            frozenset(str(names[row.session]) for row in of_replicas if row.session is not None),
            {str(row.replica): row.number for row in of_replicas},
        )
        count = next((row.number for row in rows if row.what == COUNT), own_tables.BUCKETS)
        noted = frozenset(number for number, one in seen.buckets.items() if one.noted == self.name)
        if seen.known.get(self.name) != self._epoch or not self._held <= noted or count != self._count:
            self._end()
        missing = [number for number in sorted(noted) if seen.buckets[number].holder is None]
        again = {number: Bucket(self.name, self.name) for number in advisory_locks.lock(connection, missing)}
        self._held = noted
        return Seen({**seen.buckets, **again}, seen.alive, seen.known)

    def _waited(self, seen: Seen) -> dict[int, float]:
        """For each bucket without a holder, the seconds since this was first seen.

        A replica that took the bucket and lost its session between two surveys has the whole grace, too.
        """
        now = self._clock.monotonic()
        free = [(number, one.noted) for number, one in seen.buckets.items() if one.holder is None]
        self._unheld = {one: self._unheld.get(one, now) for one in free}
        return {number: now - since for (number, _), since in self._unheld.items()}

    def _take(self, connection: Connection, take: Mapping[int, str | None]) -> None:
        locked = advisory_locks.lock(connection, sorted(take))
        taken: frozenset[int] = frozenset()
        with self._keeping_buckets():
            for noted in sorted({take[number] for number in locked}, key=lambda name: name or ""):  # released first
                found = self._note(connection, noted, [number for number in locked if take[number] == noted])
                if found is None:  # the others are left to the next beat, because this one has a time limit
                    break
                taken |= found
        self._held |= taken
        advisory_locks.unlock(connection, sorted(set(locked) - taken))

    def _note(self, connection: Connection, noted: str | None, buckets: Collection[int]) -> frozenset[int] | None:
        """Those of the buckets that are ours now. None if their former replica has an open transaction: retry."""
        try:
            return replicas.note(connection, self.name, noted, buckets)
        except DBAPIError as error:
            if not is_busy(error):
                raise
            if noted is not None:
                advisory_locks.end_transactions_of(connection, noted)
            return None

    def _forget(self, connection: Connection, seen: Seen) -> None:
        """Delete the rows of replicas that have been gone for FORGET_S and have no buckets."""
        now = self._clock.monotonic()
        used = {one.noted for one in seen.buckets.values()} | seen.alive | {self.name}
        self._vanished = {name: self._vanished.get(name, now) for name in seen.known if name not in used}
        for name in [name for name, since in self._vanished.items() if now - since >= FORGET_S]:
            replicas.forget(connection, name)
