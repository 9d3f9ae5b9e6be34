"""The primary is lost under load, its synchronous standby promoted: nothing is lost, sent twice or started by hand."""

import asyncio
import contextlib
import json
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest
from sqlalchemy import Connection, NullPool, create_engine, text
from sqlalchemy.exc import DBAPIError, InvalidRequestError
from tests import databases
from tests.databases import Pair, Server
from tests.test_daemon import COMMAND, ended, logged, process, set_url, until

from orderbridge.config.addresses import database_address
from orderbridge.store import schema
from orderbridge.store.database import Database
from orderbridge.store.dialects import servers
from orderbridge.store.failures import remedy
from orderbridge.texts import say, sentence
from orderbridge_fleet.membership import Membership
from orderbridge_sandbox import World
from orderbridge_sandbox.scenery import APP_SECRET, BESIKTAS, KADIKOY
from orderbridge_sandbox.state import Order

RESUMED_WITHIN_S = 60.0  # of the promotion; 20 on a machine that is not busy
PATIENCE_S = 2.0
ACCEPT = """INSERT INTO delivery_actions (action, payment_key, preparing_time, request_id)
    VALUES ('accept', :key, 25, :key) ON CONFLICT DO NOTHING"""
TAKEN_OVER = "UPDATE delivery_orders SET pos_revision = revision WHERE payment_key = :key"
UNCLEAR = """SELECT a.action, a.payment_key, count(*) AS n FROM delivery_action_attempts t
    JOIN delivery_actions a ON a.id = t.action_id
    WHERE t.outcome IS NULL OR t.outcome NOT IN ('ok', 'refused') GROUP BY a.action, a.payment_key"""
ACTIONS = {"accept", "on_the_way", "complete", "cancel"}

pytestmark = [pytest.mark.slow, pytest.mark.postgresql]
LOSSES = {"killed": Server.kill, "immediate": lambda server: server.stop(signal.SIGQUIT)}


@pytest.fixture
def pair() -> Iterator[Pair]:
    with databases.own_postgresql_pair() as pair:
        yield pair


@pytest.fixture
def settled(configuration: Path, pair: Pair) -> Path:
    (configuration.parent / "second").write_text("sandbox-besiktas-secret")
    (configuration.parent / "second").chmod(0o600)
    set_url(configuration, pair.url)
    second = f"""
    [[accounts]]
    name = "besiktas"
    app_secret_key = "{APP_SECRET}"
    rest_secret_key_file = {json.dumps(str(configuration.parent / "second"))}
    """
    configuration.write_text(configuration.read_text() + second)
    return configuration


class Till:
    """A POS of both restaurants: accepts each new order, and tries again when the server was away."""

    def __init__(self, pair: Pair) -> None:
        self.written: set[str] = set()  # orders whose accept is committed
        options = {"poolclass": NullPool, "isolation_level": "AUTOCOMMIT", "connect_args": {"connect_timeout": 2}}
        self._engine = create_engine(database_address(pair.url), **options)
        self._connection: Connection | None = None
        self._since = time.monotonic()

    def rows(self, sql: str) -> list[dict[str, Any]]:
        with self._engine.connect() as connection:
            return [dict(row) for row in connection.execute(text(sql)).mappings()]

    def accept_all(self) -> None:
        """Each statement is a transaction."""
        self._since = time.monotonic()
        try:
            self._connection = connection = self._connection or self._engine.connect()
            for key in connection.execute(text("SELECT payment_key FROM delivery_new_orders")).scalars().all():
                self._since = time.monotonic()
                connection.execute(text(ACCEPT), {"key": key})
                self.written.add(key)
                connection.execute(text(TAKEN_OVER), {"key": key})
        except DBAPIError:
            self.close()

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.invalidate()
            connection.close()

    def check_clock(self) -> None:
        """Cut the connection after PATIENCE_S: this test is not about a POS that waits for a silent server."""
        if time.monotonic() > self._since + PATIENCE_S and (connection := self._connection) is not None:
            with contextlib.suppress(InvalidRequestError):
                servers.disconnect(connection.connection.driver_connection)


class Load:
    """Orders that arrive, and a till that accepts them, each in a thread, until the block ends."""

    def __init__(self, world: World, till: Till) -> None:
        self.placed: list[Order] = []
        self._world, self._till = world, till
        self._over = threading.Event()

    def __enter__(self) -> Self:
        self._threads = [threading.Thread(target=work) for work in (self._place, self._accept)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            while thread.is_alive():
                thread.join(0.1)
                self._till.check_clock()
        self._till.close()

    def _place(self) -> None:
        while not self._over.wait(0.03):
            self.placed.append(self._world.place_order(restaurant_id=(KADIKOY, BESIKTAS)[len(self.placed) % 2]))
            self._till.check_clock()

    def _accept(self) -> None:
        while not self._over.wait(0.02):
            self._till.accept_all()


def done(till: Till) -> int:
    with contextlib.suppress(DBAPIError):
        return int(till.rows("SELECT count(*) AS n FROM delivery_actions WHERE state = 'done'")[0]["n"])
    return 0


async def resumed(load: Load) -> float:
    """Seconds until orders of both accounts that come later are stored, acknowledged and accepted."""
    since, first = time.monotonic(), len(load.placed)
    await until(lambda: [order.status_id for order in load.placed[first : first + 2]] == [2, 2])
    return time.monotonic() - since


def assert_nothing_is_lost_or_sent_twice(load: Load, till: Till, world: World) -> None:
    stored = {row["payment_key"]: row["status_id"] for row in till.rows("SELECT * FROM delivery_orders")}
    assert {order.key for order in load.placed if order.acknowledgements} <= stored.keys()
    rows = {row["payment_key"]: row["state"] for row in till.rows("SELECT * FROM delivery_actions")}
    assert till.written <= rows.keys()
    assert set(rows.values()) == {"done"}
    sent = Counter((call.operation, call.argument) for call in world.calls() if call.operation in ACTIONS)
    unclear = Counter({(row["action"], row["payment_key"]): row["n"] for row in till.rows(UNCLEAR)})
    assert sent
    assert [what for what, times in sent.items() if times > 1 + unclear[what]] == []
    assert 429 not in {call.http_status for call in world.calls()}


@pytest.mark.parametrize("how", [*LOSSES, "silent"])
async def test_a_primary_is_lost_and_its_standby_takes_over(how: str, settled: Path, pair: Pair, world: World):
    till = Till(pair)
    async with process(settled) as daemon:
        with Load(world, till) as load:
            await until(lambda: logged(settled, "daemon.started"))
            await until(lambda: done(till) >= 20)
            assert (standby_of(settled) or {})["is_safe"]
            with contextlib.ExitStack() as stack:
                if how == "silent":  # its processes exist and do not answer, as behind a line that was cut
                    stack.enter_context(pair.primary.frozen())
                else:
                    LOSSES[how](pair.primary)
                await asyncio.to_thread(pair.promote)
                took = await resumed(load)
                if how == "silent":
                    pair.primary.kill()
        await until(lambda: all(order.acknowledgements for order in load.placed))
        await until(lambda: len(till.written) == len(load.placed) or till.accept_all())
        await until(lambda: done(till) == len(load.placed))
        till.close()
        assert standby_of(settled) == {"is_safe": False, "message": say("failover.alone", "en")}
        assert daemon.returncode is None
        assert await ended(daemon, signal.SIGTERM) == 0
    assert_nothing_is_lost_or_sent_twice(load, till, world)
    assert took < RESUMED_WITHIN_S


def standby_of(settled: Path) -> dict[str, Any] | None:
    printed = subprocess.run([COMMAND, "--config", settled, "status", "--json"], check=False, capture_output=True)
    return json.loads(printed.stdout)["failover"]  # type: ignore[no-any-return]


def test_a_replica_holds_its_locks_on_the_promoted_server_while_the_first_is_silent(pair: Pair):
    """Its session and all queries there have four seconds. Three of them pass in waiting for the silent server."""
    with contextlib.closing(Database(database_address(pair.url), inline=True)) as database:
        database.write_now(schema.upgrade)
        membership = Membership(database)
        held = membership.beat().held
        with pair.primary.frozen():
            pair.promote()
            found = []
            for _ in range(5):
                with contextlib.suppress(DBAPIError):
                    found.append(membership.beat().held)
            pair.primary.kill()
        membership.close()
    assert found[-1] == held != frozenset()


def test_a_commit_whose_wait_for_the_standby_was_cancelled_has_failed(pair: Pair):
    """The server says that it is done and warns that no standby has it: such an order must not be acknowledged."""
    with contextlib.closing(Database(database_address(pair.url), inline=True)) as database:
        database.write_now(lambda tx: tx.exec_driver_sql("CREATE TABLE t (a INTEGER)"))
        pair.standby.kill()
        watching = threading.Thread(target=cancel_what_waits, args=(pair,))
        watching.start()
        with pytest.raises(DBAPIError) as caught:
            database.write_now(lambda tx: tx.exec_driver_sql("INSERT INTO t VALUES (1)"))
        watching.join()
        assert sentence(remedy(caught.value)) == say("database.unconfirmed")
        assert database.read_now(lambda tx: tx.exec_driver_sql("SELECT a FROM t").scalar()) == 1


def cancel_what_waits(pair: Pair) -> None:
    """As an operator does, or a statement_timeout."""
    cancel = "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    with create_engine(pair.primary.url, poolclass=NullPool, isolation_level="AUTOCOMMIT").connect() as connection:
        while not connection.exec_driver_sql(cancel).scalar():
            pass
