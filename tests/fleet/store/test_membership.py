"""Replicas on one database: each has its buckets, the server frees those of a lost one, and the fence holds."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError
from tests import databases
from tests.store.test_database import insert, orders

from orderbridge.errors import Fenced
from orderbridge.store.database import Database
from orderbridge.store.leader import LeaderLock, end_replicas
from orderbridge_fleet import advisory_locks
from orderbridge_fleet.buckets import GRACE_S
from orderbridge_fleet.membership import Beat, Membership

pytestmark = databases.only(databases.SERVERS[0])
ALL = frozenset(range(64))
WITHIN_S = 30.0
COUNT = text("SELECT count(*) FROM delivery_replicas")
REFUSE = "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not here'; END $$"
MAKE = f"{REFUSE}; CREATE TRIGGER refuse BEFORE UPDATE ON delivery_buckets EXECUTE FUNCTION refuse()"
DROP = "DROP TRIGGER refuse ON delivery_buckets; DROP FUNCTION refuse"


class Replica:
    """A replica with its own `Database`, its fence, and a clock that a test sets forward."""

    def __init__(self, url: str) -> None:
        self.database = Database(url, inline=True)
        self.membership = Membership(self.database)
        self.database.fence = self.membership.fence
        self.ahead = 0.0
        real = self.membership._clock.monotonic
        self.membership._clock = self  # type: ignore[assignment]
        self.monotonic: Callable[[], float] = lambda: real() + self.ahead
        self.last: Beat | None = None

    def joined(self) -> "Replica":
        assert self.membership.take()
        self.beat()
        return self

    def beat(self, *give: int) -> frozenset[int]:
        """Our buckets after a beat."""
        self.last = self.membership.beat(give)
        return self.last.held

    @property
    def excess(self) -> frozenset[int]:
        assert self.last is not None
        return self.last.excess

    def write(self, key: str) -> None:
        self.database.write_now(lambda tx: insert(tx, key))

    def close(self) -> None:
        self.membership.close()
        self.database.close()


@pytest.fixture
def replica(url: str) -> Iterator[Callable[[], Replica]]:
    made: list[Replica] = []

    def make() -> Replica:
        made.append(Replica(url))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def alone(url: str) -> Iterator[LeaderLock]:
    lock = LeaderLock(Database(url, inline=True))
    yield lock
    lock.close()
    lock._engine.dispose()


@pytest.fixture
def two(replica: Callable[[], Replica]) -> tuple[Replica, Replica]:
    """Two replicas, each with its share."""
    first, second = replica().joined(), replica().joined()
    settle(first, second)
    return first, second


def settle(*replicas: Replica) -> None:
    """Beat until no bucket moves any more."""
    for _ in range(4):
        for one in replicas:
            one.beat()
            one.beat(*one.excess)


def test_one_alone_has_all_and_those_who_come_later_get_their_share(replica):
    first = replica().joined()
    assert first.beat() == ALL
    second = replica().joined()
    assert second.beat() == frozenset()
    first.beat()
    assert first.excess == frozenset(range(32, 64))
    assert first.beat(*range(32, 64)) == frozenset(range(32))
    assert second.beat() == frozenset(range(32, 64)), "what was given back is taken at once"
    third = replica().joined()
    settle(first, second, third)
    held = [one.beat() for one in (first, second, third)]
    assert (frozenset.union(*held), sorted(map(len, held))) == (ALL, [21, 21, 22])
    assert held[0] <= frozenset(range(32)), "what one keeps it had before"
    assert held[1] <= frozenset(range(32, 64))
    names = frozenset(one.membership.name for one in (first, second, third))
    assert first.last.replicas == second.last.replicas == third.last.replicas == names


def test_a_stopping_replica_hands_over_each_bucket_once(two):
    first, second = two
    given = sorted(first.beat())[:8]
    left = first.membership.beat(given, is_ending=True)
    assert left.held == first.membership.beat(is_ending=True).held == frozenset(range(32)) - frozenset(given)
    assert second.beat() == frozenset(range(32, 64)) | frozenset(given)
    first.write("1")  # of what it still has
    first.close()
    assert second.beat() == ALL


def test_a_daemon_that_works_alone_and_replicas_keep_each_other_out(replica, alone: LeaderLock, database: Database):
    while not alone.take():  # the test before may have sessions that are about to end
        pass
    first, second = replica(), replica()
    assert not first.membership.take()
    alone.close()
    while not first.membership.take():
        pass
    assert (second.membership.take(), alone.take()) == (True, False)
    assert database.read_now(database.dialect.worker) is not None
    first.close()
    assert not alone.take()
    second.close()
    while not alone.take():
        pass


def test_of_many_concurrent_starts_either_replicas_or_one_single_daemon_work(replica, alone: LeaderLock):
    """Each takes its own lock first and then checks the other, so no order of events lets both in."""
    others = [replica() for _ in range(3)]

    with ThreadPoolExecutor(4) as threads:
        for _ in range(40):
            tries = [threads.submit(alone.take), *(threads.submit(one.membership.take) for one in others)]
            got_alone, *got = [one.result() for one in tries]
            assert not (got_alone and any(got))
            for one in others:
                one.membership._drop()
            alone._drop()


def session_of(one: Replica) -> int:
    connection = one.membership._connection
    assert connection is not None
    return int(connection.execute(text("SELECT pg_backend_pid()")).scalar_one())


def kill(database: Database, one: Replica) -> None:
    """End the session that holds the locks. Returns when it and its locks are gone."""
    number = session_of(one)
    with database.engine.connect() as other:
        other.execute(text("SELECT pg_terminate_backend(:it, 60000)"), {"it": number})


def test_an_ended_session_is_replaced_without_a_loss(two, database: Database):
    first, second = two
    held = first.beat()
    kill(database, first)
    first.membership.is_lost()
    assert (first.membership.is_over, second.beat()) == (False, ALL - held)
    kill(database, first)
    assert (second.beat(), first.beat()) == (ALL - held, held)
    second.ahead += 60.0
    assert second.beat() == ALL - held
    first.write("a")


def test_the_old_session_of_a_replica_is_ended_when_it_reconnects(replica, database: Database):
    """As after a cut line: it would hold the locks for seconds."""
    first = replica().joined()
    lost, first.membership._connection, first.membership._ours = first.membership._connection, None, None
    assert first.beat() == ALL
    held = {row.session for row in database.read_now(advisory_locks.survey) if row.what == advisory_locks.BUCKET}
    assert held == {session_of(first)}
    with pytest.raises(DBAPIError):
        lost.exec_driver_sql("SELECT 1")
    lost.invalidate()


def test_a_vanished_replicas_bucket_is_taken_after_the_grace_period(two, database: Database):
    first, second = two
    held = first.beat()
    kill(database, first)
    assert second.beat() == ALL - held
    second.ahead += GRACE_S - 0.5
    assert second.beat() == ALL - held
    second.ahead += 0.6
    assert second.beat() == ALL
    for late in (first.beat, lambda: first.write("a")):
        with pytest.raises(Fenced):
            late()
    assert (first.membership.is_over, second.membership.is_over) == (True, False)
    second.write("b")
    assert database.read_now(orders) == ["b"]
    second.beat()
    assert database.read_now(lambda tx: tx.scalar(COUNT)) == 2
    second.ahead += 61.0
    second.beat()
    assert database.read_now(lambda tx: tx.scalar(COUNT)) == 1
    with pytest.raises(Fenced):  # also without its row
        first.write("a")


def test_a_new_holder_also_has_the_whole_grace_period(replica, database: Database):
    """It took the bucket and lost its session between two beats of another one."""
    first, second, third = replica().joined(), replica().joined(), replica().joined()
    settle(first, second, third)
    theirs = first.beat()
    kill(database, first)
    second.beat()
    third.beat()
    second.ahead += GRACE_S
    taken = second.beat() & theirs
    assert taken
    kill(database, second)
    third.ahead += GRACE_S
    third.beat()
    assert not third.beat() & taken
    third.ahead += GRACE_S
    assert third.beat() >= taken


def test_the_grace_begins_when_the_server_is_back(replica, database: Database):
    """No replica could read the locks while the server was away: a bucket that was free may have its holder again."""
    first, second = replica().joined(), replica().joined()
    first.beat()
    first.beat(*first.excess)
    theirs = second.beat()
    kill(database, second)
    first.beat()
    kill(database, first)
    first.ahead += 60.0
    assert (first.beat(), second.beat()) == (ALL - theirs, theirs)


def test_a_single_daemon_takes_over_from_a_replica_without_a_session(replica, database: Database, alone: LeaderLock):
    first = replica().joined()
    kill(database, first)
    assert alone.take()
    database.write_now(end_replicas)  # as the daemon does that works alone
    with pytest.raises(Fenced):
        first.write("a")
    first.membership.is_lost()
    assert first.membership.is_over
    with pytest.raises(Fenced):
        first.beat()
    with pytest.raises(Fenced):
        first.write("a")


def test_a_refused_transfer_loses_no_held_bucket(two, database: Database):
    first, second = two
    database.write_now(lambda tx: tx.exec_driver_sql(MAKE))
    try:
        held = second.beat()
        kill(database, first)
        second.beat()
        second.ahead += GRACE_S
        session = session_of(second)
        assert (second.beat(), session_of(second)) == (held, session)
        assert second.last.refused is not None
        assert second.beat(min(held)) == held
    finally:
        database.write_now(lambda tx: tx.exec_driver_sql(DROP))
    assert (second.beat(), second.last.refused) == (ALL, None)


def test_a_transaction_that_began_before_the_take_over_ends_before_it(two, database: Database):
    """Or it fails. It is never committed after the takeover."""
    first, second = two
    began, go_on, taken = threading.Event(), threading.Event(), threading.Event()
    seen: list[bool] = []

    def slow(tx: Connection) -> None:
        began.set()
        assert go_on.wait(WITHIN_S)
        insert(tx, "a")
        seen.append(taken.is_set())

    with ThreadPoolExecutor(2) as threads:
        written = threads.submit(first.database.write_now, slow)
        assert began.wait(WITHIN_S)
        kill(database, first)
        second.beat()
        second.ahead += GRACE_S
        assert second.beat() != ALL, "it waits for the transaction, and tries again later"
        go_on.set()
        written.result(WITHIN_S)
        assert second.beat() == ALL
        taken.set()
    assert (seen, database.read_now(orders)) == ([False], ["a"])
    with pytest.raises(Fenced):
        first.write("b")


def test_a_replica_that_vanished_in_a_transaction_ends_no_other_session(replica, database: Database):
    """Waiting for each of them would exceed the time limit of a beat, and the session would be cut."""
    vanished = [replica().joined() for _ in range(4)]
    last = replica().joined()
    settle(*vanished, last)
    held, session, go_on = last.beat(), session_of(last), threading.Event()
    began = threading.Barrier(5)

    def hold(_: Connection) -> None:
        began.wait(WITHIN_S)
        assert go_on.wait(WITHIN_S)

    with ThreadPoolExecutor(4) as threads:
        written = [threads.submit(one.database.write_now, hold) for one in vanished]
        began.wait(WITHIN_S)
        for one in vanished:
            kill(database, one)
        last.beat()
        last.ahead += 3.0
        try:
            for _ in range(3):
                assert last.beat() == held
        finally:
            go_on.set()
        for one in written:
            one.result(WITHIN_S)
    while last.beat() != ALL:  # on a busy machine the server needs a moment to end them
        pass
    assert session_of(last) == session


@pytest.mark.slow
def test_a_stopped_replica_with_an_open_transaction_blocks_no_successor(two, database: Database):
    """The server waits for the rest of a COPY, and does not count this as an idle transaction."""
    first, second = two
    began, over = threading.Event(), threading.Event()
    in_time: list[bool] = []

    def stand_still(tx: Connection) -> None:
        driver = tx.connection.driver_connection
        with driver.cursor().copy("COPY delivery_problems FROM STDIN"):
            began.set()
            in_time.append(over.wait(WITHIN_S))

    with ThreadPoolExecutor(1) as threads:
        stopped = threads.submit(first.database.write_now, stand_still)
        assert began.wait(WITHIN_S)
        kill(database, first)
        second.beat()
        second.ahead += GRACE_S
        while second.beat() != ALL:
            pass
        over.set()
        with pytest.raises(DBAPIError):
            stopped.result(WITHIN_S)
    assert in_time == [True]


@pytest.mark.parametrize("is_killed", [False, True], ids=["with its session", "without its session"])
def test_a_closed_replica_writes_nothing(is_killed: bool, replica, database: Database):
    first = replica().joined()
    if is_killed:
        kill(database, first)
    first.close()
    with pytest.raises(Fenced):
        first.database.write_now(insert)
    assert database.read_now(lambda tx: (orders(tx), tx.scalar(COUNT))) == ([], is_killed)
