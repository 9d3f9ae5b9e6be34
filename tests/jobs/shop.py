"""A restaurant in virtual time (tests.jobs.virtual): the sandbox's world, a line to it, a daemon's jobs, and a till."""

import asyncio
import inspect
import re
import sqlite3
from collections import defaultdict
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, Self

import httpx
from sqlalchemy import Connection, event
from sqlalchemy.exc import OperationalError

from orderbridge import config
from orderbridge.errors import NotSent
from orderbridge.jobs.account import Account, Roster
from orderbridge.jobs.acknowledge import Polled
from orderbridge.jobs.context import Context, Kept
from orderbridge.jobs.health_check import Checkup
from orderbridge.jobs.journal_writer import Journal
from orderbridge.jobs.outbox import Outbox
from orderbridge.jobs.poll import Poller, Polls
from orderbridge.jobs.restore_check import RestoreCheck
from orderbridge.net.http import Wire
from orderbridge.rules.cooldown import Member
from orderbridge.store import schema
from orderbridge.store.database import Database
from orderbridge.store.ddl import time_text as text_of
from orderbridge_sandbox import Fault, World, create_app, wire
from orderbridge_sandbox.rules import ENDPOINTS
from orderbridge_sandbox.scenery import APP_SECRET, KADIKOY
from orderbridge_sandbox.state import CallRecord, Order

START = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
BASE_URL = "https://sandbox.test"
COOLDOWN_S = 30.0
TIMEOUT_S = 20.0
FINAL = {"done", "refused", "failed", "expired", "superseded", "withdrawn"}
OF_ACCOUNT = ("auto_accept_minutes", "auto_accept_steps", "auto_accept_scheduled", "restaurants")
NEEDED: dict[str, dict[str, int]] = {"accept": {"preparing_time": 25}, "cancel": {"reason_id": 1}}

Hook = Callable[[], object]  # what it returns is awaited if it can be
_PATHS = [(re.compile(path.replace("{id}", "[^/]*")), method, name) for name, method, path in ENDPOINTS]


class FakeClock:
    """The loop's virtual time as a wall clock that a test can set, and as a monotonic one that it cannot."""

    def __init__(self) -> None:
        self.ahead = timedelta()
        self._at, self._true = 0.0, START

    def now(self) -> datetime:
        return self.true() + self.ahead

    def true(self) -> datetime:
        """What the service's clock shows, whatever happens to ours."""
        if (at := self.monotonic()) != self._at:  # it is called often, mostly without a change
            self._at, self._true = at, START + timedelta(seconds=at)
        return self._true

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def strftime(self, *_: object) -> str:
        """For SQLite, whose defaults ask for the time themselves."""
        return text_of(self.now())


class Line(httpx.AsyncBaseTransport):
    """The way to the sandbox. It can be cut, and a test can step in when a request leaves or its answer is made."""

    def __init__(self, world: World) -> None:
        self._service = httpx.ASGITransport(create_app(world))
        self.cut: set[str] = set()  # operations whose connection is refused; "*": all
        self.refused = 0
        self._leaving: dict[str, list[Hook]] = defaultdict(list)
        self._answered: dict[str, list[Hook]] = defaultdict(list)

    def when_leaving(self, operation: str, hook: Hook) -> None:
        """Call this once, before the next request of that operation reaches the service."""
        self._leaving[operation].append(hook)

    def when_answered(self, operation: str, hook: Hook) -> None:
        """Call this once, when the service has made its answer and before it arrives."""
        self._answered[operation].append(hook)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        asked, place = request.method, request.url.path
        operation = next(name for path, method, name in _PATHS if method == asked and path.fullmatch(place))
        if self.cut & {"*", operation}:
            self.refused += 1
            raise NotSent("connection_refused")
        await _step_in(self._leaving[operation])
        response = await self._service.handle_async_request(request)
        await _step_in(self._answered[operation])
        return response


async def _step_in(hooks: list[Hook]) -> None:
    if hooks and inspect.isawaitable(done := hooks.pop(0)()):
        await done


def database_error(words: str = "database is locked") -> OperationalError:
    """An error as the driver raises it."""
    return OperationalError("UPDATE", None, sqlite3.OperationalError(words))


def raising(error: Exception) -> Callable[..., Any]:
    """A replacement for a function, which raises this error."""

    def fail(*_: Any, **__: Any) -> None:
        raise error

    return fail


def roster_of(accounts: dict[str, Account]) -> Roster:
    """A roster of these accounts, all at work in this process."""
    roster = Roster(account.settings for account in accounts.values())
    roster.at_work = accounts
    return roster


class TickedOutbox(Outbox):
    """An outbox whose cycles a test asks for."""

    def __init__(self, context: Context, roster: Roster) -> None:
        self.moved = asyncio.Event()
        super().__init__(context, roster)

    def _go_on(self) -> None:
        super()._go_on()
        self.moved.set()

    async def tick(self) -> float:
        self.set_now()
        await self.reader.everything()
        return await self.act()

    async def quiet(self) -> None:
        """No request is in flight, and all outcomes are written or postponed."""
        while self.executor.under_way.total() or self.executor.is_writing:
            self.moved.clear()
            await self.moved.wait()


class Shop:
    """One daemon's jobs, called one at a time, and the till beside them. `crash` and `reopened` make it two daemons."""

    def __init__(self, world: World, clock: FakeClock, path: Path, *names: str, **changes: Any) -> None:
        self.world = world
        self.clock = clock
        self.path = path
        self.names = names or ("kadikoy",)
        self.changes = changes
        self.settings = settings_for(path, *self.names, **changes)
        self.line = Line(world)
        how = {"busy_timeout_s": 0.01, "inline": True, "accept_unsafe_durability": True}
        self.database = Database(self.settings.database.url, **how)
        event.listen(self.database.engine, "connect", self._prepare)
        self._wire = Wire(base_url=BASE_URL, timeout_s=TIMEOUT_S, transport=self.line)
        self.context = Context.of(self.settings, self.database, clock, random=Random(0))
        self.lanes = self.context.lanes
        self.accounts = {one.name: Account(one, self.context, self._wire) for one in self.settings.accounts}
        self.outbox = TickedOutbox(self.context, roster_of(self.accounts))
        members = [Member(account.fingerprint, account.name, account.application) for account in self.accounts.values()]
        self.cooldowns = self.context.kept.cooldowns
        self.cooldowns.configure(self.settings.marketplace.cooldown_scope, COOLDOWN_S)
        self.cooldowns.add(members)
        folder = self.settings.journal
        self.journal = None if folder is None else Journal(folder, clock=clock, run=self.database.in_own_thread)
        self.polls = Polls(self.context, self.accounts, not_written=self.outbox.not_written, journal=self.journal)
        self.pollers = {name: Poller(account, self.polls) for name, account in self.accounts.items()}
        self._polls_at = dict.fromkeys(self.accounts, 0.0)
        self._till: sqlite3.Connection | None = None

    def _prepare(self, connection: sqlite3.Connection, _: object = None) -> None:
        connection.create_function("strftime", -1, self.clock.strftime)
        connection.execute("PRAGMA synchronous = OFF")  # no power is cut here, and a test has hundreds of commits

    def checkup(self, *, kept: Kept | None = None, **alarms: Any) -> Checkup:
        """The health check of a daemon that has just started. `alarms`: replaces the configured ones."""
        settings = self.settings.model_copy(update={"alarms": config.Alarms(**alarms)} if alarms else {})
        context, roster = Context.of(settings, self.database, self.clock, kept=kept), roster_of(self.accounts)
        return Checkup(context, roster, RestoreCheck(context, roster.known))

    async def open(self) -> Self:
        await self.database.run(schema.upgrade)
        await self.outbox.recover()
        for account in self.accounts.values():
            await account.start()
        planned = "SELECT name, next_poll_utc FROM delivery_accounts WHERE next_poll_utc > ''"
        for name, due in self.till.execute(planned):
            wait = datetime.fromisoformat(due).replace(tzinfo=UTC) - self.clock.now()
            self._polls_at[name] = self.clock.monotonic() + wait.total_seconds() + 0.001
        return self

    async def close(self) -> None:
        await self.crash()
        await self._wire.close()

    async def crash(self) -> None:
        """Kill the daemon: its work in flight is lost."""
        await asyncio.gather(*self.outbox.executor.abandon(), return_exceptions=True)
        if self._till is not None:
            self._till.close()
            self._till = None
        self.database.close()

    @property
    def account(self) -> Account:
        return self.accounts[self.names[0]]

    async def poll(self, name: str = "") -> Polled:
        """The account's next poll, at its slot."""
        name = name or self.names[0]
        await asyncio.sleep(self._polls_at[name] - self.clock.monotonic())
        return await self.tick(name)

    async def tick(self, name: str = "") -> Polled:
        """One call of the poller, whether its slot has come or not."""
        name = name or self.names[0]
        polled = await self.pollers[name].tick()
        self._polls_at[name] = self.clock.monotonic() + polled.again_in
        return polled

    async def drain(self) -> float:
        """Run the outbox until nothing more can be sent now and all requests are answered. Returns when to continue."""
        while True:
            self.outbox.moved.clear()
            wait_s = await self.outbox.tick()
            await self.outbox.quiet()
            if not self.outbox.moved.is_set():
                return wait_s

    async def verdict(self, row_id: int, *, within_s: float = 7200.0) -> dict[str, Any]:
        """Run the daemon, with polls at their slots, until the row has ended."""
        over = self.clock.monotonic() + within_s
        while self.clock.monotonic() < over:
            wait_s = await self.drain()
            if (row := self.row(row_id))["state"] in FINAL:
                return row
            polls = dict(self._polls_at.items())
            name = min(polls, key=polls.__getitem__)
            if polls[name] <= self.clock.monotonic():
                await self.tick(name)
            else:
                await asyncio.sleep(min(wait_s, polls[name] - self.clock.monotonic()))
        raise AssertionError(f"no verdict: {self.row(row_id)}")

    @property
    def till(self) -> sqlite3.Connection:
        if self._till is None:
            self._till = sqlite3.connect(self.path, isolation_level=None, timeout=0)
            self._till.row_factory = sqlite3.Row
            self._prepare(self._till)
        return self._till

    def rows(self, sql: str, *values: object) -> list[dict[str, Any]]:
        return [dict(row) for row in self.till.execute(sql, values)]

    def one(self, sql: str, *values: object) -> dict[str, Any]:
        (row,) = self.rows(sql, *values)
        return row

    def count(self, table: str) -> int:
        return int(self.till.execute(f"SELECT count(*) FROM {table}").fetchone()[0])

    def order(self, order: Order) -> dict[str, Any]:
        return self.one("SELECT * FROM delivery_orders WHERE payment_key = ?", order.key)

    def story(self, order: Order) -> list[str]:
        rows = self.rows("SELECT event FROM delivery_order_events WHERE payment_key = ? ORDER BY id", order.key)
        return [row["event"] for row in rows]

    def act(self, action: str, order: Order | None = None, **columns: object) -> int:
        """Write an outbox row as a POS does; what the action needs is filled in. Returns its id."""
        values = {"action": action} | NEEDED.get(action, {}) | columns
        if order is not None:
            values["payment_key"] = order.key
        names, marks = ", ".join(values), ", ".join("?" * len(values))
        written = self.till.execute(f"INSERT INTO delivery_actions ({names}) VALUES ({marks})", tuple(values.values()))
        return int(written.lastrowid or 0)

    async def acted(self, action: str, order: Order | None = None, **columns: object) -> int:
        """Write an outbox row and drain the outbox."""
        row_id = self.act(action, order, **columns)
        await self.drain()
        return row_id

    def row(self, row_id: int) -> dict[str, Any]:
        return self.one("SELECT * FROM delivery_actions WHERE id = ?", row_id)

    def end(self, row_id: int) -> tuple[str, str | None, str | None]:
        """state, error_code, known_by."""
        row = self.row(row_id)
        return row["state"], row["error_code"], row["known_by"]

    def take_over(self) -> None:
        self.till.execute("UPDATE delivery_orders SET pos_revision = revision")

    def back_up(self, name: str = "backup.db") -> None:
        with closing(sqlite3.connect(self.path.with_name(name))) as copy, copy:
            self.till.backup(copy)

    def remove_file(self) -> None:
        for suffix in ("", "-wal", "-shm"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)

    def refuse(self, event: str, raises: str = "RAISE(ABORT, 'no')", *, when: str = "1") -> None:
        """From now on a trigger of the POS refuses this, until `allow`."""
        self.till.execute(f"CREATE TRIGGER no BEFORE {event} WHEN {when} BEGIN SELECT {raises}; END")

    def allow(self) -> None:
        self.till.execute("DROP TRIGGER no")

    def fail_commits(self, words: str, *tables: str) -> Callable[[], None]:
        """From now on, commits fail that leave rows in one of the tables. Returns a function that ends this."""
        full = {table: self.count(table) for table in tables}

        def fail(connection: Connection) -> None:
            for table, before in full.items():
                if connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar_one() > before:
                    raise database_error(words)

        event.listen(self.database.engine, "commit", fail)
        return lambda: event.remove(self.database.engine, "commit", fail)

    def place(self, **changes: Any) -> Order:
        """A customer orders in Kadıköy, paid in cash, brought by the restaurant's courier, at once."""
        plain = {"courier_type": "restaurant", "shipping_method": "delivery", "scheduled_date": ""}
        restaurant = changes.pop("restaurant_id", KADIKOY)
        return self.world.place_order(restaurant_id=restaurant, document=plain | changes)

    async def taken_in(self, **changes: Any) -> Order:
        """An order that was delivered, stored and acknowledged."""
        order = self.place(**changes)
        polled = await self.poll()
        assert polled.acknowledged, polled
        return order

    def calls(self, operation: str) -> list[CallRecord]:
        return self.world.calls(operation)

    def operations(self, *names: str) -> list[str]:
        """The names of these operations' calls, in the order of their arrival."""
        return [call.operation for call in self.world.calls() if call.operation in names]


def settings_for(path: Path, *names: str, **changes: Any) -> config.Settings:
    """The configuration for these accounts of the sandbox. `secrets`: the ones whose secret is another's."""
    own = {name: changes[name] for name in OF_ACCOUNT if name in changes}
    of_marketplace = ("cooldown_scope", "needs_payment_status_id", "list_limit")
    marketplace = {"base_url": BASE_URL, "cooldown_seconds": COOLDOWN_S, "timeout_seconds": TIMEOUT_S}
    app_secret = changes.get("app_secret", APP_SECRET)
    rest_secrets = {name: f"sandbox-{name}-secret" for name in names} | changes.get("secrets", {})
    return config.Settings(
        language="en",
        marketplace=marketplace | {name: changes[name] for name in of_marketplace if name in changes},
        database={"url": f"sqlite:///{path}"},
        actions=changes.get("actions", {}),
        orders={"journal": "off"} | changes.get("orders", {}),
        web=changes.get("web", {"listen": ""}),
        accounts=[
            {"name": name, "app_secret_key": app_secret, "rest_secret_key": rest_secrets[name]} | own for name in names
        ],
    )


def listing(*documents: object, **more: Any) -> Fault:
    """A get-current answer with exactly these documents; bytes stand for themselves."""
    parts = [part if isinstance(part, bytes) else wire.encode(part) for part in documents]
    body = b'{"status": true, "data": [' + b", ".join(parts) + b"]}"
    return Fault(operation="get_current", status=200, body=body, **more)
