"""The daemon with the sandbox over real HTTPS, in real time, as a task and as a process."""

import asyncio
import contextlib
import json
import os
import re
import signal
import sqlite3
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, WeakSet

import pytest
from sqlalchemy.exc import OperationalError
from structlog.testing import capture_logs
from tests.jobs.shop import raising
from tests.jobs.shop import settings_for as offline
from tests.store.samples import KEY, in_its_place

from orderbridge import config
from orderbridge.daemon import Daemon
from orderbridge.errors import ConfigError
from orderbridge.jobs.audit import audit
from orderbridge.marketplace.client import Client
from orderbridge.observe import systemd
from orderbridge.service import Service
from orderbridge.store import workers
from orderbridge.store.database import Database
from orderbridge.store.leader import LeaderLock
from orderbridge_sandbox import Fault, Options, Sandbox, World
from orderbridge_sandbox.scenery import APP_SECRET, KADIKOY
from orderbridge_sandbox.state import Order

COOLDOWN_S = 0.2
TIMEOUT_S = 5  # of a request; long, so that a machine that stalls for a second causes no timeout
UNTIL_CLEARED_S = 3600.0  # a delay that ends when the test clears the faults
PATIENT_S = 120.0  # the same where a test delays an answer; after a kill the next poll would wait as long
WITHIN_S = 150.0  # on a busy machine a process alone takes seconds to start
MOST_SHOWN = 4000  # letters of a log
COMMAND = Path(sys.executable).with_name("orderbridge")
NO_AUTHORITIES = dict.fromkeys(("SSL_CERT_FILE", "SSL_CERT_DIR"), os.devnull)  # the machine's take 30 ms to read
T = TypeVar("T")

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(tmp_path_factory.mktemp("sandbox"))


@pytest.fixture
def world() -> World:
    return World.default(options=Options(cooldown_seconds=COOLDOWN_S), report=lambda line: None)


@pytest.fixture
def sandbox(world: World, certificates: Path) -> Iterator[Sandbox]:
    with Sandbox(world, directory=certificates) as sandbox:
        yield sandbox


class Till:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.has_planted = False

    @contextlib.contextmanager
    def connection(self) -> Iterator[sqlite3.Connection]:
        with contextlib.closing(sqlite3.connect(self.path, isolation_level=None, timeout=WITHIN_S)) as connection:
            connection.row_factory = sqlite3.Row
            yield connection

    def run(self, sql: str, *values: object) -> int:
        with self.connection() as connection:
            return int(connection.execute(sql, values).lastrowid or 0)

    def plant(self, sql: str, *values: object) -> None:
        """Write columns that only the daemon may write."""
        self.has_planted = True
        with self.connection() as connection:
            connection.execute("BEGIN IMMEDIATE")
            with in_its_place(connection):
                connection.execute(sql, values)
            connection.execute("COMMIT")

    def rows(self, sql: str, *values: object) -> list[dict[str, Any]]:
        with self.connection() as connection:
            return [dict(row) for row in connection.execute(sql, values)]

    def one(self, sql: str, *values: object) -> dict[str, Any]:
        (row,) = self.rows(sql, *values)
        return row

    def has_tables(self) -> bool:
        return self.path.exists() and bool(self.rows("SELECT 1 FROM sqlite_master WHERE name = 'delivery_orders'"))

    def accept(self, order: Order) -> int:
        columns = "(action, payment_key, preparing_time)"
        return self.run(f"INSERT INTO delivery_actions {columns} VALUES ('accept', ?, 25)", order.key)

    def act(self, action: str, order: Order) -> int:
        return self.run("INSERT INTO delivery_actions (action, payment_key) VALUES (?, ?)", action, order.key)

    def state(self, row: int) -> str:
        return str(self.one("SELECT state FROM delivery_actions WHERE id = ?", row)["state"])

    def status(self, order: Order) -> int | None:
        rows = self.rows("SELECT status_id FROM delivery_orders WHERE payment_key = ?", order.key)
        return rows[0]["status_id"] if rows else None


@pytest.fixture
def till(tmp_path: Path) -> Iterator[Till]:
    till = Till(tmp_path / "pos.db")
    yield till
    if not till.has_planted and till.has_tables():  # planted rows contradict the promises
        database = Database(f"sqlite:///{till.path}", inline=True, accept_unsafe_durability=True)
        found = database.read_now(lambda tx: audit(tx, offline(till.path, "kadikoy"), datetime.min.replace(tzinfo=UTC)))
        database.close()
        assert found.findings == []


# By loop: for each task or process that a test has started, a function that returns its error once it has failed.
_begun: WeakKeyDictionary[asyncio.AbstractEventLoop, list[Callable[[], BaseException | None]]] = WeakKeyDictionary()


def _watch(why: Callable[[], BaseException | None]) -> None:
    _begun.setdefault(asyncio.get_running_loop(), []).append(why)


def begun(work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
    """Start a task that must not fail: `until` raises its error at once."""
    task = asyncio.create_task(work)
    _watch(lambda: task.exception() if task.done() and not task.cancelled() else None)
    return task


def failed() -> BaseException | None:
    """The error of the first task or process of this test that has failed."""
    return next(filter(None, (why() for why in _begun.get(asyncio.get_running_loop(), ()))), None)


async def until(condition: Callable[[], object]) -> None:
    """Wait until another thread or process makes this true. Raises the error of one that has failed meanwhile."""
    async with asyncio.timeout(WITHIN_S):
        while not condition():
            if (why := failed()) is not None:
                if condition():  # it became true just before the failure
                    return
                raise why
            await asyncio.sleep(0.02)


def settings_for(sandbox: Sandbox, till: Till | None, *names: str, url: str = "", **times: float) -> config.Settings:
    """`url`: of another database than the till's file. `times`: cooldown_seconds, timeout_seconds."""
    times = {"cooldown_seconds": COOLDOWN_S, "timeout_seconds": TIMEOUT_S} | times
    accounts = [{"name": name, "rest_secret_key": f"sandbox-{name}-secret"} for name in names or ("kadikoy",)]
    return config.Settings(
        language="en",
        marketplace={"base_url": sandbox.base_url, "ca_file": sandbox.ca_file, **times},
        database={"url": url or f"sqlite:///{till.path}"},
        actions={"retry_waits_seconds": (0.1, 0.2, 0.3)},
        web={"listen": ""},
        accounts=[account | {"app_secret_key": APP_SECRET} for account in accounts],
    )


@contextlib.asynccontextmanager
async def running(settings: config.Settings) -> AsyncIterator[Daemon]:
    """A daemon in this loop, which must end cleanly when it is stopped."""
    daemon = Daemon(settings)
    task = begun(daemon.run())
    try:
        yield daemon
    finally:
        daemon.stop()
        async with asyncio.timeout(WITHIN_S):
            await task


async def stopping(daemon: Daemon) -> None:
    with capture_logs() as logs:
        daemon.stop()
        await until(lambda: "daemon.stopping" in [line["event"] for line in logs])


async def test_after_closing_the_restaurants_status_is_read_soon(sandbox: Sandbox, till: Till, world: World):
    """A person opens it again in the panel at once: the till sees it, without waiting five minutes."""
    async with running(settings_for(sandbox, till, timeout_seconds=PATIENT_S)):
        await until(lambda: world.calls("get_restaurant_status"))
        await until(lambda: till.one("SELECT status FROM delivery_restaurants")["status"] == "Open")
        world.faults.add(
            Fault.delay("get_restaurant_status", UNTIL_CLEARED_S)
        )  # it reads the status after a person has opened it
        row = till.run("INSERT INTO delivery_actions (action, restaurant_id) VALUES ('close_restaurant', ?)", KADIKOY)
        await until(lambda: till.state(row) == "done")
        till.plant("UPDATE delivery_restaurants SET status = NULL")
        await until(lambda: len(world.calls("get_restaurant_status")) == 2)
        world.open_restaurant(KADIKOY)
        world.faults.clear()
        await until(lambda: till.one("SELECT status FROM delivery_restaurants")["status"] == "Open")


async def test_stopping_acknowledges_what_was_just_brought_in(sandbox, till, world, monkeypatch):
    monkeypatch.setattr(Client.acknowledge, "__defaults__", (PATIENT_S,))
    order = world.place_order(restaurant_id=KADIKOY)
    world.faults.add(Fault.delay("acknowledge", UNTIL_CLEARED_S))
    async with running(settings_for(sandbox, till)) as daemon:
        await until(lambda: world.calls("acknowledge"))
        await stopping(daemon)
        world.faults.clear()
    assert (order.acknowledged, till.one("SELECT acknowledged_status_id AS s FROM delivery_orders")) == (True, {"s": 1})
    learned = till.one("SELECT value, times FROM delivery_learned WHERE point = 'status_id'")
    assert learned == {"value": "1", "times": 1}


async def test_creating_the_tables_alone_may_take_long(sandbox, till, monkeypatch):
    monkeypatch.setattr("orderbridge.store.failures.LOG_WAIT_S", -1.0)
    daemon = Daemon(settings_for(sandbox, till))
    with capture_logs() as logs:
        await daemon._upgrade()
        assert logs == []
        await daemon.database.run(lambda _: None)
    assert [line["event"] for line in logs] == ["database.waited"]
    daemon.database.close()


@pytest.fixture
def configuration(sandbox: Sandbox, till: Till, tmp_path: Path) -> Path:
    for name, secret in (("app", APP_SECRET), ("rest", "sandbox-kadikoy-secret")):
        (tmp_path / name).write_text(secret)
        (tmp_path / name).chmod(0o600)
    path = tmp_path / "orderbridge.toml"
    path.write_text(
        f"""
        language = "en"
        [marketplace]
        base_url = {json.dumps(sandbox.base_url)}
        ca_file = {json.dumps(str(sandbox.ca_file))}
        cooldown_seconds = {COOLDOWN_S}
        timeout_seconds = {TIMEOUT_S}
        [database]
        url = {json.dumps(f"sqlite:///{till.path}")}
        [actions]
        retry_waits_seconds = [0.1, 0.2, 0.3]
        [[accounts]]
        name = "kadikoy"
        app_secret_key_file = {json.dumps(str(tmp_path / "app"))}
        rest_secret_key_file = {json.dumps(str(tmp_path / "rest"))}
        [web]
        listen = ""
        [log]
        level = "debug"
        format = "json"
        """
    )
    return path


_expected: WeakSet[asyncio.subprocess.Process] = WeakSet()  # processes that a test has ended, or waited for


def _failed(started: asyncio.subprocess.Process, configuration: Path) -> AssertionError | None:
    """The error of a process that has ended unexpectedly."""
    if started in _expected or not started.returncode or started.returncode < 0:
        return None
    return AssertionError(f"it ended with {started.returncode}:\n{log_of(configuration)[-MOST_SHOWN:]}")


@contextlib.asynccontextmanager
async def process(configuration: Path, output: int | None = None) -> AsyncIterator[asyncio.subprocess.Process]:
    """`orderbridge run`, ended by the test; killed when the test fails first. `output`: where its log goes."""
    with (configuration.parent / "log").open("ab") as file:
        log = file if output is None else output
        command, env = (COMMAND, "--config", configuration, "run"), os.environ | NO_AUTHORITIES
        started = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log, env=env)
    _watch(lambda: _failed(started, configuration))
    try:
        yield started
    finally:
        if started.returncode is None:
            started.kill()
        await started.wait()
        _expected.add(started)


def hold_up(configuration: Path, patient_s: float = PATIENT_S) -> None:
    """Lengthen the timeout, because the test will delay an answer for an unknown time."""
    text = configuration.read_text()
    configuration.write_text(text.replace(f"timeout_seconds = {TIMEOUT_S}", f"timeout_seconds = {patient_s}"))


def set_url(configuration: Path, url: str) -> None:
    text = configuration.read_text()
    configuration.write_text(re.sub(r"(?m)^( *url = ).*", lambda line: line[1] + json.dumps(url), text))


def log_of(configuration: Path) -> str:
    return (configuration.parent / "log").read_text(errors="replace")  # its last letter may be half written


def logged(configuration: Path, event: str) -> list[dict[str, Any]]:
    """The lines of the log, without a half-written last one."""
    whole = log_of(configuration).rpartition("\n")[0]
    lines = [json.loads(line) for line in whole.splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == event]


async def ended(started: asyncio.subprocess.Process, by: signal.Signals | None = None) -> int:
    _expected.add(started)
    if by is not None:
        started.send_signal(by)
    async with asyncio.timeout(WITHIN_S):
        return await started.wait()


async def test_a_sighup_and_a_sigterm_finish_what_is_in_flight(configuration, till, world):
    """After a SIGHUP the next daemon uses the same token. After a SIGTERM nothing new is sent."""
    hold_up(configuration)
    order = world.place_order(restaurant_id=KADIKOY, document={"courier_type": "restaurant"})
    async with process(configuration) as daemon:
        await until(lambda: order.acknowledged)
        world.faults.add(Fault.delay("accept", UNTIL_CLEARED_S))
        accept = till.accept(order)
        await until(lambda: world.calls("accept"))
        daemon.send_signal(signal.SIGHUP)
        await until(lambda: len(logged(configuration, "daemon.stopping")) == 1)
        world.faults.clear()
        await until(lambda: len(logged(configuration, "daemon.started")) == 2)
        assert (till.state(accept), till.status(order)) == ("done", 2)
        world.faults.add(Fault.delay("on_the_way", UNTIL_CLEARED_S))
        on_the_way = till.act("on_the_way", order)
        await until(lambda: world.calls("on_the_way"))
        daemon.send_signal(signal.SIGTERM)
        await until(lambda: len(logged(configuration, "daemon.stopping")) == 2)
        late = till.act("complete", order)
        world.faults.clear()
        assert await ended(daemon) == 0
    assert (till.state(on_the_way), till.status(order), order.status_id) == ("done", 16, 16)
    assert (till.state(late), world.calls("complete")) == ("pending", [])
    assert [len(world.calls(operation)) for operation in ("accept", "on_the_way", "login")] == [1, 1, 1]
    assert 429 not in {call.http_status for call in world.calls()}


def test_the_event_loop_ends_without_a_thread(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(threading.Thread, "start", raising(RuntimeError("can't start new thread")))
    assert workers.run(asyncio.sleep(0, "ended")) == "ended"


SPOILED = (
    lambda text: "language = 7",
    lambda text: re.sub(r"ca_file = .*", "ca_file = 'orderbridge.toml'", text),
    lambda text: re.sub(r"url = \"sqlite:///.*", "url = 'sqlite:////nowhere/pos.db'", text),
)


async def test_a_sighup_during_the_lock_request_is_not_lost(sandbox, till, monkeypatch):
    former, new = (settings_for(sandbox, till, name) for name in ("besiktas", "kadikoy"))
    asked, answered, at_work = threading.Event(), threading.Event(), []
    take, run = LeaderLock.take, Daemon.run

    def take_late(lock: LeaderLock) -> bool:
        asked.set()
        assert answered.wait(WITHIN_S)
        return take(lock)

    async def watched(daemon: Daemon) -> None:
        at_work.append([account.name for account in daemon._settings.accounts])
        await run(daemon)

    monkeypatch.setattr(LeaderLock, "take", take_late)
    monkeypatch.setattr(Daemon, "run", watched)
    running = Service(former, lambda: new)
    task = begun(running.run())
    await until(asked.is_set)
    running.reload()
    await until(running._called.is_set)
    answered.set()
    await until(lambda: at_work)
    running.end()
    await task
    assert at_work == [["kadikoy"]]


@pytest.mark.parametrize("is_lost", [True, False])
async def test_without_threads_the_leader_lock_stays_watched_and_a_stop_is_in_order(
    is_lost, sandbox, till, monkeypatch
):
    monkeypatch.setattr("orderbridge.service.GUARD_S", 0.01)
    asked, tries = [], []

    def no_thread(_: threading.Thread) -> None:
        tries.append(None)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(LeaderLock, "is_lost", lambda _: bool(asked.append(None)) or (is_lost and bool(tries)))
    running = Service(settings_for(sandbox, till), raising(KeyError()))
    with capture_logs() as logs, monkeypatch.context() as without:
        task = begun(running.run())
        await until(lambda: asked)
        without.setattr(threading.Thread, "start", no_thread)
        await until(lambda: len(tries) > 1)
        if is_lost:
            without.undo()
            await until(lambda: "daemon.replaced" in [line["event"] for line in logs])
        running.end()
        await task


async def test_a_sighup_with_a_configuration_that_cannot_be_used_changes_nothing(configuration, till, world):
    good = configuration.read_text()
    async with process(configuration) as daemon:
        await until(lambda: world.calls("get_current"))
        for number, spoiled in enumerate(SPOILED, start=1):
            configuration.write_text(spoiled(good))
            daemon.send_signal(signal.SIGHUP)
            await until(lambda number=number: len(logged(configuration, "config.reload_failed")) == number)
            order = world.place_order(restaurant_id=KADIKOY)
            await until(lambda order=order: order.acknowledged)
            assert till.status(order) == 1
        assert await ended(daemon, signal.SIGTERM) == 0


async def test_a_reload_from_a_hanging_disk_delays_no_order(sandbox, till, world):
    settings, answers = settings_for(sandbox, till), threading.Event()

    def load() -> config.Settings:
        answers.wait()
        return settings

    running = Service(settings, load)
    task = begun(running.run())
    await until(lambda: world.calls("get_current"))
    running.reload()
    order = world.place_order(restaurant_id=KADIKOY)
    await until(lambda: order.acknowledged)
    answers.set()
    running.end()
    await task


FAILURES = [KeyError("a bug"), ConfigError("config.none_found"), ConfigError("no such sentence")]


@pytest.mark.parametrize("error", [*FAILURES, OperationalError("", {}, Exception())], ids=repr)
async def test_a_reload_that_fails_changes_nothing_and_the_next_one_works(error, sandbox, till, world, monkeypatch):
    printed: list[str] = []
    monkeypatch.setattr(systemd, "notify", lambda message: printed.append(message) or True)
    settings, loads = settings_for(sandbox, till), []

    def load() -> config.Settings:
        loads.append(len(loads))
        if len(loads) == 1:
            raise error
        return settings

    running = Service(settings, load)
    with capture_logs() as logs:
        task = begun(running.run())
        await until(lambda: systemd.READY in printed)
        printed.clear()
        running.reload()
        await until(lambda: systemd.READY in printed)  # else systemd would wait for it, and then stop the service
        assert "config.reload_failed" in [line["event"] for line in logs]
        running.reload()
        await until(lambda: [line["event"] for line in logs].count("daemon.started") == 2)
    running.end()
    await task


async def test_the_log_of_a_run_full_of_faults_shows_no_secret_and_no_customer(configuration, till, world):
    first = world.place_order(restaurant_id=KADIKOY, document={"note": "Ring the bell twice"})
    async with process(configuration) as daemon:
        await until(lambda: first.acknowledged)
        trigger = "CREATE TRIGGER {} BEFORE INSERT ON {} BEGIN SELECT raise(ABORT, 'no'); END".format
        till.run(trigger("no", f"delivery_orders WHEN NEW.payment_key = '{KEY}'"))
        refused = world.place_order(restaurant_id=KADIKOY, document={"payment_key": KEY})
        kept = world.place_order(restaurant_id=KADIKOY)
        await until(lambda: refused.acknowledged and kept.acknowledged)
        world.place_order(restaurant_id=KADIKOY, document={"payment_key": "nonsense"})
        world.place_order(restaurant_id=KADIKOY, document={"total": "cheap", "status_id": 77})
        await until(lambda: till.rows("SELECT 1 FROM delivery_quarantine WHERE reason <> 'database_refused'"))
        world.end_tokens()
        world.faults.add(Fault(operation="accept", status=500), Fault.drop("acknowledge", times=3))
        world.faults.add(Fault.page("get_current", html=first.document["customer"]["name"]))
        row = till.accept(first)
        await until(lambda: till.state(row) == "done")
        till.run(trigger("full", "delivery_quarantine"))
        till.run(trigger("none", "delivery_orders"))
        world.place_order(restaurant_id=KADIKOY)
        polls = len(world.calls("get_current"))
        await until(lambda: len(world.calls("get_current")) > polls + 1)
        tokens = set(world.tokens)
        world.refuse_account("kadikoy")
        await until(lambda: till.one("SELECT state FROM delivery_accounts")["state"] == "login_refused")
        assert await ended(daemon, signal.SIGINT) == 0
    log = log_of(configuration)
    events = {json.loads(line)["event"] for line in log.splitlines()}
    assert {"orders.polled", "order.quarantined", "order.database_refused", "login.refused", "action.done"} <= events
    private = {APP_SECRET, "sandbox-kadikoy-secret", *world.tokens, *tokens}
    for document in (order.document for order in world.orders.values()):
        private |= {*document["customer"].values(), document["address"]["address"], document["note"]}
    assert [text for text in private - {""} if text in log] == []
