"""The tables of replicas, buckets and problems, and the clock that replicas share.

Each function that changes a table runs on the session that holds the locks. That session is in autocommit mode, so
changes that belong together are between BEGIN and COMMIT.
"""

import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy import Connection, delete, func, insert, literal_column, select, update
from sqlalchemy.exc import DBAPIError, IntegrityError

from orderbridge.clock import Clock
from orderbridge.rules.problems import Code, Problem, Severity
from orderbridge.store.database import Database
from orderbridge.store.ddl import utc_now
from orderbridge.store.own_tables import BUCKETS, buckets, replicas

TOLERANCE_S = 0.02  # a smaller difference between two measurements of the server's clock is ignored
_NOW = select(utc_now())
WRITTEN = ("code", "subject", "severity", "count", "account")  # fields of a problem, beside its time and facts
UNKNOWN = ""  # before the first write: after a reload, the row of this name may have older problems


def count(connection: Connection) -> int:
    """The number of buckets."""
    return connection.exec_driver_sql("SELECT buckets FROM delivery_fleet WHERE id = 1").scalar() or BUCKETS


def shares(connection: Connection) -> dict[str, int]:
    """The number of buckets of each replica. A failed replica has its buckets until another one takes them."""
    query = select(buckets.c.replica, func.count()).where(buckets.c.replica.is_not(None)).group_by(buckets.c.replica)
    return {str(name): held for name, held in connection.execute(query.order_by(buckets.c.replica))}


def enter(connection: Connection, replica: str, number: int, node: str) -> None:
    """Insert a row for the replica, and the missing rows of buckets."""
    there = set(connection.scalars(select(buckets.c.bucket)))
    missing = [{"bucket": number} for number in range(count(connection)) if number not in there]
    if missing:
        with suppress(IntegrityError), _transaction(connection):  # another replica inserts all of them at the same time
            connection.execute(insert(buckets), missing)
    row = insert(replicas).values(replica=replica, number=number, node=node, started_utc=utc_now())
    connection.execute(row)


def give(connection: Connection, replica: str, given: Collection[int]) -> None:
    """Remove the replica as the owner of these buckets."""
    ours = (buckets.c.replica == replica, buckets.c.bucket.in_(given))
    connection.execute(update(buckets).values(replica=None).where(*ours))


def note(connection: Connection, replica: str, noted: str | None, wanted: Collection[int]) -> frozenset[int]:
    """Take those of the buckets that still belong to `noted`, and raise its epoch. Returns them."""
    theirs = (buckets.c.replica.is_not_distinct_from(noted), buckets.c.bucket.in_(wanted))
    ours = (buckets.c.replica == replica, buckets.c.bucket.in_(wanted))
    with _transaction(connection):
        connection.execute(update(buckets).values(replica=replica, taken_utc=utc_now()).where(*theirs))
        taken = frozenset(connection.scalars(select(buckets.c.bucket).where(*ours)))
        if taken and noted is not None:  # waits for that replica's open transactions
            connection.execute(update(replicas).values(epoch=replicas.c.epoch + 1).where(replicas.c.replica == noted))
    return taken


def note_problems(connection: Connection, replica: str, problems: str | None) -> None:
    """Store the problems of the replica as text; None if it has none."""
    connection.execute(update(replicas).values(problems=problems).where(replicas.c.replica == replica))


def noted_problems(connection: Connection, me: str) -> list[tuple[str, str]]:
    """The stored problems by replica, except those of `me`."""
    query = select(replicas.c.replica, replicas.c.problems)
    rows = connection.execute(query.where(replicas.c.problems.is_not(None), replicas.c.replica != me))
    return [(row.replica, row.problems) for row in rows]


def leave(connection: Connection, replica: str) -> None:
    """Release all buckets of the replica, and delete its row."""
    with _transaction(connection):
        connection.execute(update(buckets).values(replica=None).where(buckets.c.replica == replica))
        connection.execute(delete(replicas).where(replicas.c.replica == replica))


def forget(connection: Connection, replica: str) -> None:
    """Delete the row of a failed replica whose buckets have all been taken."""
    has_some = select(literal_column("1")).where(buckets.c.replica == replica).exists()
    connection.execute(delete(replicas).where(replicas.c.replica == replica, ~has_some))


@contextmanager
def _transaction(connection: Connection) -> Iterator[None]:
    connection.exec_driver_sql("BEGIN")
    try:
        yield
    except DBAPIError as error:
        if not error.connection_invalidated:
            connection.exec_driver_sql("ROLLBACK")
        raise
    connection.exec_driver_sql("COMMIT")


class ReplicaProblems:
    """The problems of single replicas: each stores those that only it can find, and the lead reports all.

    A problem of one replica without an account is stored with the replica's name as its subject.
    """

    def __init__(self, database: Database, name: str | None) -> None:
        """`name`: the name of this replica; None if there are no others."""
        self._name = name
        self._database = database
        self._noted: str | None = UNKNOWN

    async def note(self, found: Sequence[Problem]) -> None:
        """Store our problems if they have changed. A failed write is repeated at the next call."""
        text = json.dumps([_plain(one) for one in found], ensure_ascii=False) if found else None
        if self._name is None or text == self._noted:
            return
        try:
            await self._database.run(partial(note_problems, replica=self._name, problems=text))
        except DBAPIError:
            return
        self._noted = text

    def others(self, connection: Connection) -> Iterator[Problem]:
        """The problems that the other replicas have stored."""
        if self._name is None:
            return
        for replica, text in noted_problems(connection, self._name):
            for row in json.loads(text):
                if row["code"] in set(Code):
                    one = _problem(row)
                    yield one if one.subject else replace(one, subject=replica)


def _plain(one: Problem) -> dict[str, Any]:
    since = None if one.since is None else one.since.isoformat()
    return {name: getattr(one, name) for name in WRITTEN} | {"since": since, "facts": dict(one.facts)}


def _problem(row: dict[str, Any]) -> Problem:
    since = None if row["since"] is None else datetime.fromisoformat(row["since"])
    made = {"code": Code(row["code"]), "since": since, "severity": Severity(row["severity"]), "facts": row["facts"]}
    return Problem(**{name: row[name] for name in WRITTEN} | made)


class SharedClock:
    """The machine's clock, corrected by the database server's, so that replicas on several machines have the same time.

    It jumps when `follow` measures another difference.
    """

    def __init__(self, machine: Clock) -> None:
        self._machine = machine
        self._behind = timedelta()  # by which the machine's clock is behind the server's

    def follow(self, connection: Connection) -> None:
        """Read the server's time, and correct ours."""
        began = self.monotonic()
        there = connection.execute(_NOW).scalar_one()
        self.set(there, self.monotonic() - began)

    def set(self, there: datetime, took_s: float) -> None:
        """Correct by the server's time `there`, from a query that has just ended and took `took_s`."""
        behind = there - self._machine.now() + timedelta(seconds=took_s / 2)
        if abs(behind - self._behind) > timedelta(seconds=took_s / 2 + TOLERANCE_S):
            self._behind = behind

    def now(self) -> datetime:
        """The server's time."""
        return self._machine.now() + self._behind

    def monotonic(self) -> float:
        """The machine's monotonic time."""
        return self._machine.monotonic()
