"""`orderbridge demo`: the sandbox, the daemon and a till of forty lines, together on one SQLite file.

The till is what a POS developer would write: plain sqlite3, four statements. What is printed is what the tables say.
"""

import asyncio
import json
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from orderbridge import config
from orderbridge.clock import SystemClock
from orderbridge.daemon import Daemon
from orderbridge.observe import logs
from orderbridge.store.dialects.sqlite_file import NEW_FILE
from orderbridge.texts import say, spoken
from orderbridge_sandbox import Options, Sandbox, World

COOLDOWN_S = 2.0
BETWEEN_ORDERS_S = 1.5
LOOK_S = 0.2
LONGEST_S = 55.0
CANCELLED = 3  # every third order is cancelled: a food is sold out
READY_S = 2.0  # a demo's kitchen is quick
LOOK_AROUND = (
    "SELECT order_number, status, total, pos_reference FROM delivery_orders",
    "SELECT id, action, state, known_by FROM delivery_actions",
)

CONFIGURATION = """
language = "{language}"
[marketplace]
base_url = "{base_url}"
ca_file = "{ca_file}"
cooldown_seconds = {cooldown}
timeout_seconds = 5
[database]
url = {database}
[[accounts]]
name = "kadikoy"
app_secret_key = "sandbox-app-secret"
rest_secret_key = "sandbox-kadikoy-secret"
[web]
listen = ""
"""


def play(orders: int, database: Path, tell: Callable[[str], None] = print) -> int:
    """Play that many orders through. Returns the exit code: 0 when every one of them came to its end."""
    logs.configure(level="warning", format="auto")
    database.touch(NEW_FILE)  # before the till, which would open it to everybody
    with tempfile.TemporaryDirectory(prefix="orderbridge-demo-") as folder:
        # A fresh seed: a second demo on the same file brings other orders.
        world = World.default(seed=int(SystemClock().now().timestamp()), options=Options(cooldown_seconds=COOLDOWN_S))
        with Sandbox(world, directory=Path(folder)) as sandbox:
            settings = settings_for(sandbox, f"sqlite:///{database.resolve().as_posix()}")
            tell(say("demo.begins", base_url=sandbox.base_url, database=database) + "\n")
            return asyncio.run(_play(settings, world, orders, database, tell))


def settings_for(sandbox: Sandbox, url: str, more: str = "") -> config.Settings:
    """Configure a daemon for the sandbox's first account and that database; `more` is further TOML."""
    file = sandbox.ca_file.with_name("config.toml")
    known = CONFIGURATION.format(
        language=spoken(),
        base_url=sandbox.base_url,
        ca_file=sandbox.ca_file.as_posix(),
        cooldown=sandbox.world.options.cooldown_seconds,
        database=json.dumps(url),  # a text of TOML, too
    )
    file.write_text(known + more, encoding="utf-8")
    return config.load(file, environ={})


async def _play(
    settings: config.Settings, world: World, orders: int, database: Path, tell: Callable[[str], None]
) -> int:
    till = Till(database, tell)
    till.skip()
    daemon = Daemon(settings)
    running = asyncio.create_task(daemon.run())
    customers = asyncio.create_task(_place(world, orders))
    try:
        async with asyncio.timeout(LONGEST_S):
            while till.finished < orders and not running.done():
                await asyncio.sleep(LOOK_S)
                till.look()
    except TimeoutError:
        tell(say("demo.too_late"))
    customers.cancel()
    daemon.stop()
    await running
    till.look()
    tell("\n" + say("demo.ends", finished=till.finished, orders=orders))
    for query in LOOK_AROUND:
        tell(f'  sqlite3 {database} "{query}"')
    return 0 if till.finished >= orders else 1


async def _place(world: World, orders: int) -> None:
    for _ in range(orders):
        world.place_order(
            restaurant_id="11111111-1111-4111-8111-111111111111",
            document={"courier_type": "restaurant", "shipping_method": "delivery", "scheduled_date": ""},
        )
        await asyncio.sleep(BETWEEN_ORDERS_S)


class Till:
    """A POS: reads the views, sets pos_revision, writes into the outbox. It knows no HTTP."""

    def __init__(self, database: Path, tell: Callable[[str], None]) -> None:
        self.finished = 0
        self._database = database
        self._tell = tell
        self._clock = SystemClock()
        self._taken: dict[str, int] = {}
        self._ready: dict[str, tuple[float, str]] = {}
        self._told = 0  # the last event that was printed

    def skip(self) -> None:
        """What an earlier demo left in the file is no news."""
        with self._connect() as connection:
            if self._has_tables(connection):
                self._told = connection.execute("SELECT coalesce(max(id), 0) FROM delivery_order_events").fetchone()[0]
                connection.execute("UPDATE delivery_orders SET pos_revision = revision")

    def look(self) -> None:
        """One round: print what is new, take orders over, move them on."""
        with self._connect() as connection:
            if self._has_tables(connection):
                self._tell_events(connection)
                self._take_new(connection)
                self._follow_changed(connection)
                self._move_on(connection)

    def _connect(self) -> "closing[sqlite3.Connection]":
        connection = sqlite3.connect(self._database, timeout=5, isolation_level=None)
        connection.row_factory = sqlite3.Row
        return closing(connection)

    @staticmethod
    def _has_tables(connection: sqlite3.Connection) -> bool:
        found = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'delivery_new_orders'").fetchone()
        return found is not None

    def _take_new(self, connection: sqlite3.Connection) -> None:
        for order in connection.execute("SELECT * FROM delivery_new_orders ORDER BY received_utc").fetchall():
            key, number = order["payment_key"], len(self._taken) + 1
            self._taken[key] = number
            connection.execute(
                "UPDATE delivery_orders SET pos_revision = ?, pos_reference = ? WHERE payment_key = ?",
                (order["revision"], f"A-{number}", key),
            )
            facts = {
                "order": order["order_number"],
                "total": f"{order['total']:.2f}",
                "payment": order["payment_method"],
            }
            self._tell("  " + say("demo.takes", number=number, **facts))
            if number % CANCELLED == 0:
                self._ask(connection, "cancel", key, reason_id=1)
            else:
                self._ask(connection, "accept", key, preparing_time=25)

    def _follow_changed(self, connection: sqlite3.Connection) -> None:
        for order in connection.execute("SELECT * FROM delivery_changed_orders").fetchall():
            key = order["payment_key"]
            connection.execute(
                "UPDATE delivery_orders SET pos_revision = ? WHERE payment_key = ?", (order["revision"], key)
            )
            if key not in self._taken:
                continue
            following = {"CONFIRMED": "on_the_way", "IN_DELIVERY": "complete"}.get(order["status"])
            if following is not None:
                self._ready[key] = (self._clock.monotonic() + READY_S, following)
            if order["ended_utc"] is not None:
                self.finished += 1

    def _move_on(self, connection: sqlite3.Connection) -> None:
        for key, (at, action) in list(self._ready.items()):
            if self._clock.monotonic() >= at:
                del self._ready[key]
                self._ask(connection, action, key)

    def _ask(self, connection: sqlite3.Connection, action: str, key: str, **arguments: int) -> None:
        columns = ["action", "payment_key", *arguments]
        connection.execute(
            f"INSERT INTO delivery_actions ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})",  # noqa: S608
            (action, key, *arguments.values()),
        )
        told = "".join(f", {name} {value}" for name, value in arguments.items())
        self._tell("  " + say("demo.asks", action=action, number=self._taken[key], arguments=told))

    def _tell_events(self, connection: sqlite3.Connection) -> None:
        rows = connection.execute(
            "SELECT e.id, e.at_utc, e.event, e.status, o.order_number FROM delivery_order_events e"
            " JOIN delivery_orders o ON o.payment_key = e.payment_key WHERE e.id > ? ORDER BY e.id",
            (self._told,),
        ).fetchall()
        for row in rows:
            self._told = row["id"]
            self._tell(f"{row['at_utc'][11:19]} {row['event']:<18} {row['order_number']}  {row['status']}")
