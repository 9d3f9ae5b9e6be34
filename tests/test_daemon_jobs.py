"""The end of the daemon: no unimportant job delays it, and no failure is hidden."""

import asyncio
import contextlib
import gc
import json
import threading
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import insert, select
from structlog.testing import capture_logs
from tests.test_daemon import Till, certificates, configuration, hold_up, sandbox, till, until, world

from orderbridge import config
from orderbridge.daemon import Daemon
from orderbridge.errors import FileLost
from orderbridge.jobs import accounts_at_work, closures, upkeep
from orderbridge.jobs.account import Account
from orderbridge.jobs.open_problems import open_problems
from orderbridge.marketplace import client
from orderbridge.marketplace.menu import read_menu
from orderbridge.model import Menu
from orderbridge.rules.problems import Code
from orderbridge.store import accounts, own_tables, schema, tables
from orderbridge.store.accounts import Entry, Success
from orderbridge_sandbox import Fault, World
from orderbridge_sandbox.scenery import KADIKOY

__all__ = ["certificates", "configuration", "sandbox", "till", "world"]  # fixtures
WITHIN_S = 60.0  # half of what a request that hangs takes


@pytest.fixture
def settings(configuration: Path) -> config.Settings:
    hold_up(configuration)
    return config.load(configuration, environ={})


@contextlib.asynccontextmanager
async def at_work(daemon: Daemon, world: World, operation: str = "get_current") -> AsyncIterator[None]:
    """From the first request of this kind on; it ends in order."""
    running = asyncio.create_task(daemon.run())
    assert await asyncio.to_thread(world.wait_for, lambda: world.calls(operation), timeout=WITHIN_S)
    yield
    daemon.stop()
    async with asyncio.timeout(WITHIN_S):
        await running


async def test_a_stop_does_not_wait_for_lists_that_hang_and_is_no_crash(settings: config.Settings, world: World):
    world.faults.add(Fault.hang("get_restaurants"))
    daemon = Daemon(settings)
    with capture_logs() as lines:
        async with at_work(daemon, world, "get_restaurants"):
            pass
    events = [line["event"] for line in lines]
    assert (events[-1], "job.crashed" in events) == ("daemon.stopped", False)


async def test_a_refused_end_of_a_closure_is_a_problem(settings, world: World, till: Till, monkeypatch):
    monkeypatch.setattr(upkeep, "CLOSURES_S", 0.1)
    for name in ("CLOSURES_S", "IDLE_S"):
        monkeypatch.setattr(closures, name, 0.1)
    async with at_work(Daemon(settings), world):
        till.run(
            "CREATE TRIGGER no BEFORE INSERT ON delivery_actions WHEN NEW.action = 'activate_food'"
            " BEGIN SELECT RAISE(ABORT, 'no'); END"
        )
        row = till.run(
            "INSERT INTO delivery_actions (action, food_id, valid_until_minutes) VALUES ('deactivate_food', 1001, 1)"
        )
        await until(lambda: till.state(row) == "done")
        till.plant("UPDATE delivery_actions SET until_utc = created_utc WHERE id = ?", row)
        await until(lambda: till.one("SELECT not_written FROM delivery_accounts")["not_written"] == 1)


async def test_a_large_menu_delays_neither_a_poll_nor_a_large_list(settings, world: World, monkeypatch):
    begun, goes_on = threading.Event(), threading.Event()

    def slow(http_status: int, body: bytes) -> Menu:
        begun.set()
        assert goes_on.wait(2 * WITHIN_S)
        return read_menu(http_status, body)

    monkeypatch.setattr(client, "read_menu", slow)
    foods = [{"food_id": number, "name": "Çorba", "about": "x" * 100} for number in range(1, 1000)]
    body = json.dumps({"status": True, "data": foods}).encode()
    world.faults.add(Fault(operation="get_foods", status=200, body=body))
    daemon = Daemon(settings)
    async with at_work(daemon, world, "get_foods"):
        assert await asyncio.to_thread(begun.wait, WITHIN_S)
        placed = [world.place_order(restaurant_id=KADIKOY, document={"note": "x" * client.SMALL_BODY}) for _ in "12"]
        there = lambda: all(order.acknowledged for order in placed)  # noqa: E731
        assert await asyncio.to_thread(world.wait_for, there, timeout=WITHIN_S)
        goes_on.set()


async def test_of_many_menus_a_few_are_read_at_once(settings, world: World, monkeypatch):
    file = settings.source.file
    branch = '[[accounts]]\nname = "besiktas"\napp_secret_key = "sandbox-app-secret"\n'
    file.write_text(f'{file.read_text()}{branch}rest_secret_key = "sandbox-besiktas-secret"\n')
    begun: list[str] = []
    goes_on = asyncio.Event()

    async def read(account: Account, *_: object) -> float:
        begun.append(account.name)
        await goes_on.wait()
        return 60.0

    monkeypatch.setattr(accounts_at_work, "MENUS_AT_ONCE", 1)
    monkeypatch.setattr(accounts_at_work, "read_menu", read)
    daemon = Daemon(config.load(file, environ={}))
    async with at_work(daemon, world):
        async with asyncio.timeout(WITHIN_S):
            while len(daemon.timetable.runs_of({"menu kadikoy", "menu besiktas"})) < 2:  # noqa: ASYNC110 - has no event
                await asyncio.sleep(0.01)
        await asyncio.sleep(0)  # both jobs have run as far as they can
        assert len(begun) == 1
        goes_on.set()


async def test_two_failures_by_one_cause_leave_no_unretrieved_error(settings, monkeypatch):
    """A file that is taken away is met by the watch over it, and by what the outbox still has to write."""
    unheard: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
    daemon = Daemon(settings)

    stopped = asyncio.Event()

    async def lost() -> None:
        raise FileLost("it is not there any more")

    async def lost_in_the_end() -> None:
        await stopped.wait()
        await lost()

    monkeypatch.setattr(daemon, "_watch", lost)
    monkeypatch.setattr(daemon.outbox, "run", lost_in_the_end)
    monkeypatch.setattr(daemon.outbox, "stop", stopped.set)
    async with asyncio.timeout(WITHIN_S):
        with pytest.raises(FileLost):
            await daemon.run()
    gc.collect()  # a task whose error was not retrieved reports it when it is collected
    await asyncio.sleep(0)
    assert unheard == []


async def test_who_works_alone_fences_every_replica_before_it(settings: config.Settings, world: World):
    daemon = Daemon(settings)
    daemon.database.write_now(schema.upgrade)
    row = insert(own_tables.replicas).values(replica="a 1 0", number=1, started_utc=datetime(2026, 3, 1, tzinfo=UTC))
    daemon.database.write_now(lambda tx: tx.execute(row))
    daemon.database.write_now(lambda tx: tx.execute(insert(own_tables.buckets).values(bucket=0, replica="a 1 0")))
    async with at_work(daemon, world):
        assert daemon.database.read_now(lambda tx: tx.execute(select(own_tables.replicas)).all()) == []
        assert daemon.database.read_now(lambda tx: tx.scalars(select(own_tables.buckets.c.replica)).all()) == [None]


async def test_after_a_restart_an_account_that_waits_for_its_first_poll_is_no_problem_to_others(settings, world):
    file = settings.source.file
    branch = '[[accounts]]\nname = "besiktas"\napp_secret_key = "sandbox-app-secret"\n'
    written = f'{file.read_text()}{branch}rest_secret_key = "sandbox-besiktas-secret"\n'
    file.write_text(written.replace("cooldown_seconds = 0.2", "cooldown_seconds = 30"))
    settings = config.load(file, environ={})
    daemon, left = Daemon(settings), datetime.now(UTC) - timedelta(hours=1)
    daemon.database.write_now(schema.upgrade)
    entries = [Entry(one.fingerprint, one.name) for one in settings.accounts]
    polls = [Success(one.fingerprint, left, left, 0) for one in settings.accounts]
    daemon.database.write_now(lambda tx: accounts.register(tx, entries))
    daemon.database.write_now(lambda tx: accounts.note_successes(tx, polls))
    async with at_work(daemon, world):
        found = daemon.database.read_now(lambda tx: open_problems(tx, settings, datetime.now(UTC)))
    assert [one.subject for one in found if one.code == Code.NOT_POLLING] == []


async def test_a_background_task_that_fails_ends_the_daemon_with_its_error(settings, monkeypatch):
    async def broken(*_: object) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr("orderbridge.store.database.Database.watch", broken)
    async with asyncio.timeout(WITHIN_S):
        with pytest.raises(RuntimeError, match="a fault of ours"):
            await Daemon(settings).run()


async def test_one_transaction_reads_all_for_the_frequent_check(settings: config.Settings):
    daemon, units = Daemon(settings), []
    daemon.database.write_now(schema.upgrade)
    await daemon.restore_check.start()
    await daemon.upkeep.check()  # signs of life are written with the first
    assert daemon.restore_check._noting is not None
    await daemon.restore_check._noting
    with daemon.database.engine.begin() as connection:
        connection.execute(insert(tables.events).values(payment_key="k", at_utc=datetime.now(UTC), event="received"))
    daemon.database.on_work = lambda doing, *_: units.append(doing)
    await daemon.upkeep.check()
    assert units == ["read", "write"], "what another program has written makes the next generation"
    await daemon.upkeep.check()
    assert units == ["read", "write", "read"]
    await daemon.restore_check._file.close(within_s=WITHIN_S)
    assert json.loads(settings.source.file.with_name("pos.db.last-word").read_text())["event"] == 1
    await daemon._finish([], [])
