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
    """Our buckets. `excess`: those that others should have; `count`: all buckets; `replicas`: the living ones.

    `refused`: a trigger or a missing right prevents buckets from being moved.
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
        self._engine = database.engine
        self._worker = database.dialect.worker
        if database.engine.driver != "psycopg":
            raise Unusable("fleet.kind", driver=f"{database.engine.name}+{database.engine.driver}")
        self._session = LockSession(database.engine.url, database.dialect.options(database.engine.url, 0.0))
        self._connection: Connection | None = None
        self._ours: int | None = None  # the session's number at the server, once it was looked at
        self._clock = SystemClock()
        self._one_at_a_time = threading.Lock()
        self._number = secrets.randbits(31)
        self.name = f"{socket.gethostname()[:40]} {os.getpid()} {self._number:08x}"
        self._epoch: int | None = None  # None: nothing is ours yet, not even a row
        self._count = 0
        self.is_over = False  # another replica may have what was ours
        self._is_absent = False  # its session no longer counts as alive
        self._refused: DBAPIError | None = None  # in this beat
        self._held: frozenset[int] = frozenset()
        self._unheld: dict[int, float] = {}  # since when a bucket is seen without a holder, by our clock
        self._vanished: dict[str, float] = {}  # and a replica without a session

    def take(self) -> bool:
        """Join the other replicas. False: a single daemon works. Raises DBAPIError if the server does not answer."""
        with self._asking():
            self._refuse_over()
            return self._renew() is not None

    def check(self) -> None:
        """Raise Unusable where no replica can work, as far as that is seen without joining."""
        with self._asking():
            self._open()
            self._drop()

    def is_lost(self) -> bool:
        """Never here: the next beat raises Fenced. Keeps the session while no beat comes, as over a reload."""
        with contextlib.suppress(DBAPIError, Fenced), self._asking():
            if not self.is_over:
                self._renewed()
        return False

    def holder(self) -> str | None:
        """Who works there, as far as that is known: host and process."""
        try:
            with self._engine.connect() as connection:
                return self._worker(connection)
        except DBAPIError:
            return None

    def serves(self, database: Database) -> bool:
        """Whether it is the right to work on that database."""
        return self._engine.url == database.engine.url

    def fence(self, connection: Connection) -> None:
        """In a transaction, before it writes. Raises Fenced when what was ours may be another's."""
        self._refuse_over()
        if self._epoch is None:
            return
        if advisory_locks.epoch_of(connection, self.name) != self._epoch:
            self._end()

    def beat(self, give: Collection[int] = (), *, is_ending: bool = False) -> Beat:
        """Give these back, find who is there, take what is ours to take. The schema is this program's by now.

        `is_ending`: take nothing any more, and let the others divide everything among themselves.
        Raises DBAPIError when the server does not answer: what was ours is so still, ask again. Raises Fenced when this
        replica is over.
        """
        with self._asking():
            self._refuse_over()
            self._refused = None
            connection = self._renewed()
            if self._epoch is None:
                self._enter(connection)
            if is_ending and not self._is_absent:
                advisory_locks.resign(connection, self._number)
                self._is_absent = True
            with self._own_alone():
                self._give(connection, self._held & frozenset(give))
            seen = self._look(connection)
            wanted = share(seen, self.name, self._waited(seen))
            if not is_ending:
                self._take(connection, wanted.take)
            with self._own_alone():
                self._forget(connection, seen)
            alive = seen.alive | {self.name}
            return Beat(self._held, wanted.excess & self._held, len(seen.buckets), alive, self._refused)

    def close(self) -> None:
        """Give everything back, at once; nothing is written any more."""
        self.is_over = True
        with contextlib.suppress(DBAPIError, Fenced), self._asking():
            if self._connection is not None and self._epoch is not None:
                replicas.leave(self._connection, self.name)
                advisory_locks.unlock(self._connection, sorted(self._held))  # a pooler would be slower about it
        with self._one_at_a_time:
            self._drop()
            self._session.close()

    # ---- the session -------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        """One at a time. A session that failed is not asked again: what it held may be another's."""
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
        """Whether the session answers. One that does not is gone, and its locks may be another's."""
        try:
            if self._connection is not None:
                self._connection.exec_driver_sql("SELECT 1")
        except DBAPIError:
            self._drop()
        return self._connection is not None

    def _renewed(self) -> Connection:
        """The session. A daemon that works alone by now has been let in after us, and we are over."""
        connection = self._renew()
        if connection is None:
            self._end()
        return connection

    def _renew(self) -> Connection | None:
        """The session, made anew where it was lost; None: it may not join."""
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
        """A session that is ours alone. Raises Unusable."""
        self._connection = self._session.open()
        self._is_absent = False
        self._unheld = {}  # no replica could check meanwhile: a grace begins when the server is back
        return self._connection

    # ---- a beat's parts ----------------------------------------------------------------------------------------------

    def _enter(self, connection: Connection) -> None:
        replicas.enter(connection, self.name, self._number, advisory_locks.node_of(connection))
        self._epoch = 0
        self._count = replicas.count(connection)

    @contextlib.contextmanager
    def _own_alone(self) -> Iterator[None]:
        """What the database does not take here, costs us nothing of what is ours already."""
        try:
            yield
        except DBAPIError as error:
            if error.connection_invalidated or not (is_refusal(error) or is_broken(error) or is_denied(error)):
                raise
            self._refused = error

    def _give(self, connection: Connection, buckets: Collection[int]) -> None:
        """The table first: who finds a lock free knows then that it was given."""
        if buckets:
            self._held -= frozenset(buckets)  # before: whether it was done shows when the server answers again
            replicas.give(connection, self.name, buckets)
            advisory_locks.unlock(connection, sorted(buckets))

    def _look(self, connection: Connection) -> Seen:
        """What is so, and our own locks taken again where a session lost them."""
        rows = advisory_locks.survey(connection)
        of_replicas = [row for row in rows if row.what == REPLICA]
        names = {row.session: row.replica for row in of_replicas if row.session is not None}
        ourselves = next(row.number for row in rows if row.what == OURSELVES)
        self._ours = self._ours or ourselves
        if self._ours != ourselves:  # a busy pooler has deceived us
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
        """For how many seconds each bucket that has no holder was seen so."""
        now = self._clock.monotonic()
        free = [number for number, one in seen.buckets.items() if one.holder is None]
        self._unheld = {number: self._unheld.get(number, now) for number in free}
        return {number: now - since for number, since in self._unheld.items()}

    def _take(self, connection: Connection, take: Mapping[int, str | None]) -> None:
        locked = advisory_locks.lock(connection, sorted(take))
        taken: frozenset[int] = frozenset()
        with self._own_alone():
            for noted in sorted({take[number] for number in locked}, key=lambda name: name or ""):  # given ones first
                found = self._note(connection, noted, [number for number in locked if take[number] == noted])
                if found is None:  # the others, too, with the next beat: this one has to be over in time
                    break
                taken |= found
        self._held |= taken
        advisory_locks.unlock(connection, sorted(set(locked) - taken))

    def _note(self, connection: Connection, noted: str | None, buckets: Collection[int]) -> frozenset[int] | None:
        """Which of them are ours now; None: a transaction of theirs is under way, and this is tried again."""
        try:
            return replicas.note(connection, self.name, noted, buckets)
        except DBAPIError as error:
            if not is_busy(error):
                raise
            if noted is not None:
                advisory_locks.end_transactions_of(connection, noted)
            return None

    def _forget(self, connection: Connection, seen: Seen) -> None:
        """Rows of those that will not come back."""
        now = self._clock.monotonic()
        used = {one.noted for one in seen.buckets.values()} | seen.alive | {self.name}
        self._vanished = {name: self._vanished.get(name, now) for name in seen.known if name not in used}
        for name in [name for name, since in self._vanished.items() if now - since >= FORGET_S]:
            replicas.forget(connection, name)
