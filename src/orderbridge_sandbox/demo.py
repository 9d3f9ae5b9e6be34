"""`orderbridge demo` runs the sandbox, the daemon and a small till together on one SQLite file.

The till uses four statements of plain sqlite3, as a POS developer would. The output is read from the tables.
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
from orderbridge.texts import SENTENCES, say, spoken
from orderbridge_sandbox import Options, World
from orderbridge_sandbox.server import Sandbox

SENTENCES.add("orderbridge_sandbox")
COOLDOWN_S = 2.0
BETWEEN_ORDERS_S = 1.5
ROUND_S = 0.2
LONGEST_S = 55.0
CANCELLED = 3  # every third order is cancelled, because a food is sold out
READY_S = 2.0  # preparation time in the demo
TO_SEE = (
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


def play(orders: int, database: Path, echo: Callable[[str], None] = print) -> int:
    """Play that many orders. Returns the exit code: 0 if all of them ended."""
    logs.configure(level="warning", format="auto")
    database.touch(NEW_FILE)  # before the till, which would create it readable by others
    with tempfile.TemporaryDirectory(prefix="orderbridge-demo-") as folder:
        # A new seed, so that a second demo on the same file has other orders.
        world = World.default(seed=int(SystemClock().now().timestamp()), options=Options(cooldown_seconds=COOLDOWN_S))
        with Sandbox(world, directory=Path(folder)) as sandbox:
            settings = settings_for(sandbox, f"sqlite:///{database.resolve().as_posix()}")
            echo(say("demo.begins", base_url=sandbox.base_url, database=database) + "\n")
            return asyncio.run(_play(settings, world, orders, database, echo))


def settings_for(sandbox: Sandbox, url: str, more: str = "") -> config.Settings:
    """Configure a daemon for the sandbox's first account and that database; `more` is further TOML."""
    file = sandbox.ca_file.with_name("config.toml")
    known = CONFIGURATION.format(
        language=spoken(),
        base_url=sandbox.base_url,
        ca_file=sandbox.ca_file.as_posix(),
        cooldown=sandbox.world.options.cooldown_seconds,
        database=json.dumps(url),  # a JSON string is a TOML string, too
    )
    file.write_text(known + more, encoding="utf-8")
    return config.load(file, environ={})


async def _play(
    settings: config.Settings, world: World, orders: int, database: Path, echo: Callable[[str], None]
) -> int:
    with closing(sqlite3.connect(database, timeout=5, isolation_level=None)) as connection:
        connection.row_factory = sqlite3.Row
        till = Till(connection, echo)
        till.skip()
        daemon = Daemon(settings)
        running = asyncio.create_task(daemon.run())
        customers = asyncio.create_task(_place(world, orders))
        try:
            async with asyncio.timeout(LONGEST_S):
                while till.finished < orders and not running.done():
                    await asyncio.sleep(ROUND_S)
                    till.round()
        except TimeoutError:
            echo(say("demo.too_late"))
        customers.cancel()
        daemon.stop()
        await running
        till.round()
    echo("\n" + say("demo.ends", finished=till.finished, orders=orders))
    for query in TO_SEE:
        echo(f'  sqlite3 {database} "{query}"')
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

    def __init__(self, connection: sqlite3.Connection, echo: Callable[[str], None]) -> None:
        self.finished = 0
        self._sql = connection.execute
        self._echo = echo
        self._clock = SystemClock()
        self._taken: dict[str, int] = {}
        self._ready: dict[str, tuple[float, str]] = {}
        self._printed = 0  # the last event that was printed

    def skip(self) -> None:
        """Do not print events of an earlier demo."""
        if self._has_tables():
            (self._printed,) = self._sql("SELECT coalesce(max(id), 0) FROM delivery_order_events").fetchone()
            self._sql("UPDATE delivery_orders SET pos_revision = revision")

    def round(self) -> None:
        """Do one round: print new events, take orders over, and request their next actions."""
        if self._has_tables():
            self._echo_events()
            self._take_new()
            self._follow_changed()
            self._move_on()

    def _has_tables(self) -> bool:
        return self._sql("SELECT 1 FROM sqlite_master WHERE name = 'delivery_new_orders'").fetchone() is not None

    def _take_new(self) -> None:
        taken = "UPDATE delivery_orders SET pos_revision = ?, pos_reference = ? WHERE payment_key = ?"
        for order in self._sql("SELECT * FROM delivery_new_orders ORDER BY received_utc").fetchall():
            key, number = order["payment_key"], len(self._taken) + 1
            self._taken[key] = number
            self._sql(taken, (order["revision"], f"A-{number}", key))
            facts = {"order": order["order_number"], "payment": order["payment_method"]}
            self._echo("  " + say("demo.takes", number=number, total=f"{order['total']:.2f}", **facts))
            if number % CANCELLED == 0:
                self._ask("cancel", key, reason_id=1)
            else:
                self._ask("accept", key, preparing_time=25)

    def _follow_changed(self) -> None:
        for order in self._sql("SELECT * FROM delivery_changed_orders").fetchall():
            key = order["payment_key"]
            self._sql("UPDATE delivery_orders SET pos_revision = ? WHERE payment_key = ?", (order["revision"], key))
            if key not in self._taken:
                continue
            following = {"CONFIRMED": "on_the_way", "IN_DELIVERY": "complete"}.get(order["status"])
            if following is not None:
                self._ready[key] = (self._clock.monotonic() + READY_S, following)
            self.finished += order["ended_utc"] is not None

    def _move_on(self) -> None:
        for key, (at, action) in list(self._ready.items()):
            if self._clock.monotonic() >= at:
                del self._ready[key]
                self._ask(action, key)

    def _ask(self, action: str, key: str, **arguments: int) -> None:
        columns, values = ("action", "payment_key", *arguments), (action, key, *arguments.values())
        marks = ", ".join("?" * len(values))
        self._sql(f"INSERT INTO delivery_actions ({', '.join(columns)}) VALUES ({marks})", values)  # noqa: S608
        shown = "".join(f", {name} {value}" for name, value in arguments.items())
        self._echo("  " + say("demo.asks", action=action, number=self._taken[key], arguments=shown))

    def _echo_events(self) -> None:
        query = (
            "SELECT e.id, e.at_utc, e.event, e.status, o.order_number FROM delivery_order_events e"
            " JOIN delivery_orders o ON o.payment_key = e.payment_key WHERE e.id > ? ORDER BY e.id"
        )
        for row in self._sql(query, (self._printed,)).fetchall():
            self._printed = row["id"]
            self._echo(f"{row['at_utc'][11:19]} {row['event']:<18} {row['order_number']}  {row['status']}")
