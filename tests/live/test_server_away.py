"""The database server restarts, is away, is silent, or accepts no writes: the daemon survives it."""

import asyncio
import contextlib
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from tests import databases
from tests.databases import Server
from tests.test_daemon import UNTIL_CLEARED_S, WITHIN_S, begun, ended, hold_up, log_of, logged, process, set_url, until

from orderbridge import config, daemon, service
from orderbridge.daemon import Daemon
from orderbridge.store import workers
from orderbridge_sandbox import Fault, World
from orderbridge_sandbox.scenery import KADIKOY
from orderbridge_sandbox.state import Order

AWAY_S = 6.5  # of real time: longer than any job waits after a failure
POSTGRESQL, MARIADB = databases.SERVERS


class Pos:
    """A POS on the server. Its connection is tested before each statement, so it survives a restart of the server."""

    def __init__(self, url: str) -> None:
        self.engine = create_engine(url, pool_pre_ping=True, isolation_level="AUTOCOMMIT")

    def close(self) -> None:
        self.engine.dispose()

    def run(self, sql: str, **values: object) -> None:
        with self.engine.connect() as connection:
            connection.execute(text(sql), values)

    def rows(self, sql: str, **values: object) -> list[dict[str, Any]]:
        with self.engine.connect() as connection:
            return [dict(row) for row in connection.execute(text(sql), values).mappings()]

    def accept(self, order: Order) -> None:
        insert = "INSERT INTO delivery_actions (action, payment_key, preparing_time) VALUES ('accept', :key, 25)"
        self.run(insert, key=order.key)

    def state(self, order: Order) -> str | None:
        rows = self.rows("SELECT state FROM delivery_actions WHERE payment_key = :key", key=order.key)
        return str(rows[0]["state"]) if rows else None

    def stored(self) -> dict[str, int]:
        return {row["payment_key"]: row["status_id"] for row in self.rows("SELECT * FROM delivery_orders")}


@pytest.fixture(scope="module", params=[POSTGRESQL, MARIADB])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    make = databases.own_mariadb_server if request.param == databases.MARIADB else databases.own_postgresql_server
    with make() as server:
        yield server


@pytest.fixture
def pos(server: Server) -> Iterator[Pos]:
    with databases.own_database(server.url, "pos") as url, contextlib.closing(Pos(url)) as pos:
        yield pos


@pytest.fixture
def settled(configuration: Path, pos: Pos, server: Server) -> Path:
    set_url(configuration, pos.engine.url.render_as_string(hide_password=False))
    return configuration


async def test_an_absent_server_is_reported_twice(settled: Path, server: Server, pos: Pos, world: World):
    """Once when it goes, once when it is back. An answer of the service in between is not lost."""
    hold_up(settled, 30.0)  # so that no poll leaves while the server stops
    first = world.place_order(restaurant_id=KADIKOY)
    async with process(settled) as daemon:
        await until(lambda: first.acknowledged and not pos.rows("SELECT 1 FROM delivery_accounts WHERE state <> 'ok'"))
        world.faults.add(Fault.delay("accept", UNTIL_CLEARED_S))
        pos.accept(first)
        await until(lambda: world.calls("accept"))
        server.stop(signal.SIGINT if server.url.startswith("postgresql") else signal.SIGTERM)
        polls = len(world.calls("get_current"))
        late = world.place_order(restaurant_id=KADIKOY)
        await until(lambda: logged(settled, "database.failed"))
        world.faults.clear()
        await asyncio.sleep(AWAY_S)
        assert len(world.calls("get_current")) <= polls + 1
        assert not late.acknowledged
        server.start()
        await until(lambda: late.acknowledged)
        await until(lambda: pos.state(first) == "done")
        await until(lambda: logged(settled, "database.recovered"))
        assert await ended(daemon, signal.SIGTERM) == 0
    assert (pos.stored(), len(world.calls("accept"))) == ({first.key: 2, late.key: 1}, 1)
    assert 429 not in {call.http_status for call in world.calls()}
    (line,) = logged(settled, "database.failed")
    assert "that the server runs" in line["remedy"]
    assert [len(logged(settled, event)) for event in ("wake.lost", "database.recovered")] == [1, 1]
    assert [line for line in log_of(settled).splitlines() if "Traceback" in line] == []


async def test_a_silent_server_does_not_delay_the_end(settled, server, pos, world, monkeypatch):
    monkeypatch.setattr(daemon, "STOP_S", 0.5)
    monkeypatch.setattr(workers, "CLOSE_WITHIN_S", 0.5)
    first = world.place_order(restaurant_id=KADIKOY)
    running = Daemon(config.load(settled, environ={}))
    task = begun(running.run())
    await until(lambda: first.acknowledged)
    threads = [*running.database._writers._threads]  # type: ignore[union-attr]
    with server.frozen():
        running.outbox.wake()
        running.stop()
        async with asyncio.timeout(WITHIN_S):
            await task
    for thread in threads:  # they end with the silence
        await asyncio.to_thread(thread.join, WITHIN_S)
    assert pos.stored() == {first.key: 1}


@pytest.mark.parametrize("within", [60.0, 0.3], ids=["it speaks again", "it stays silent"])
async def test_a_reload_with_a_silent_server_changes_nothing(within, settled, server, pos, world, monkeypatch):
    monkeypatch.setattr(service, "OPEN_WITHIN_S", within)
    settings = config.load(settled, environ={})
    running = service.Service(settings, lambda: settings)
    task = begun(running.run())
    await until(lambda: running._daemon is not None and world.calls("get_current"))
    first = running._daemon
    with server.frozen():
        running.reload()
        for _ in range(50):
            await asyncio.sleep(0.01)  # the loop runs meanwhile
        assert running._daemon is first
        assert running._reloading is not None
        if within < 1:
            await until(running._reloading.done)
        assert running._reloading.done() is (within < 1)
    await running._reloading
    await left_behind()
    late = world.place_order(restaurant_id=KADIKOY)
    await until(lambda: late.acknowledged)  # perhaps by the first daemon, while it stops
    await until(lambda: running._daemon is not None and (running._daemon is first) is (within < 1))
    running.end()
    await task
    await left_behind()
    assert pos.stored() == {late.key: 1}


async def left_behind() -> None:
    """The threads that waited for a silent server have ended, and their connections are closed."""
    for thread in threading.enumerate():
        if thread.name == "db-detached":
            await asyncio.to_thread(thread.join, WITHIN_S)


LOCKS = {
    POSTGRESQL.values[0]: "SELECT pg_advisory_lock(hashtext('delivery_schema_version'))",
    MARIADB.values[0]: "SELECT GET_LOCK(CONCAT('orderbridge schema ', SHA1(DATABASE())), 0)",
}


async def test_a_stop_does_not_wait_for_the_lock_on_the_schema(settled: Path, server: Server, pos: Pos):
    with pos.engine.connect() as other:
        other.detach()  # its lock goes with it
        other.execute(text(LOCKS[other.dialect.name.replace("mysql", databases.MARIADB)]))
        async with process(settled) as daemon:
            await until(lambda: logged(settled, "schema.waiting"))
            assert await ended(daemon, signal.SIGTERM) == 0
        assert len(logged(settled, "schema.waiting")) == 1
    async with process(settled) as daemon:
        await until(lambda: logged(settled, "daemon.started"))
        assert await ended(daemon, signal.SIGTERM) == 0
