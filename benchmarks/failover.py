"""Measures how late replicas poll after their primary is lost and the standby is promoted.

    python benchmarks/failover.py [--accounts 60] [--cooldown 4] [--replicas 2] [quiet | killed | silent]...

quiet: nothing happens. killed: the primary is killed by SIGKILL. silent: its processes are stopped, and its port does
not answer. Name only one of killed and silent, as the last, because it leaves no standby. The benchmark starts its own
pair of PostgreSQL servers and the sandbox; orders arrive all the time, and a till accepts each. The lateness of a poll
is the number of seconds after its account's cooldown was over. benchmarks/fleet.py measures failures of replicas.
"""

import argparse
import contextlib
import csv
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

sys.path.insert(0, str(Path(__file__).parents[1]))

from rig import COMMAND
from sqlalchemy import NullPool, create_engine, text
from sqlalchemy.exc import DBAPIError
from tests import databases
from tests.databases import Pair

from orderbridge.config.addresses import database_address
from orderbridge_sandbox import Options, Sandbox, World
from orderbridge_sandbox.scenery import APP_SECRET, DEFAULT_SCENERY
from orderbridge_sandbox.state import Account, CallRecord, Order, Restaurant

SETTINGS = """
language = "en"
[marketplace]
base_url = "{base_url}"
ca_file = "{ca_file}"
cooldown_seconds = {cooldown_s}
[database]
url = "{url}"
[fleet]
accounts = "database"
master_key_file = "{key}"
[web]
listen = ""
[log]
format = "json"
"""
ACTIONS = {"accept", "on_the_way", "complete", "cancel"}
SETTLED = 3  # rounds of polls before and after
LIMIT_S = 180.0
TOO_EARLY, ACCEPTED = 429, 2  # an HTTP status, an order's status


def scenery(count: int) -> Any:
    """This number of accounts, each with its own restaurant, and one menu for all."""
    ids = [str(UUID(int=(0x4 << 76) | (0x8 << 60) | number + 1)) for number in range(count)]
    names = [f"branch-{number:05}" for number in range(count)]
    menu = DEFAULT_SCENERY.foods[0].menu
    accounts = tuple(
        Account(name=name, app_secret_key=APP_SECRET, rest_secret_key=f"{name}-secret", restaurant_ids=(one,))
        for name, one in zip(names, ids, strict=True)
    )
    places = tuple(Restaurant(id=one, name=name, menu=menu) for name, one in zip(names, ids, strict=True))
    return replace(DEFAULT_SCENERY, accounts=accounts, restaurants=places)


class Fleet:
    """Replicas as processes, on one database."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder = folder
        self.replicas: list[subprocess.Popen[bytes]] = []
        self._started = 0
        for _ in range(count):
            self.start()

    def start(self) -> None:
        self._started += 1
        with (self.folder / f"log-{self._started}").open("wb") as log:
            command = [COMMAND, "--config", self.folder / "orderbridge.toml", "run"]
            self.replicas.append(subprocess.Popen(command, stdout=log, stderr=log))

    def close(self) -> None:
        for one in self.replicas:
            one.kill()
            one.wait()


class Shop:
    """Places orders, and accepts them as a till, until it is closed."""

    def __init__(self, world: World, url: str, every_s: float) -> None:
        self.placed: list[Order] = []
        self._world, self._every_s = world, every_s
        self._engine = create_engine(
            database_address(url),
            poolclass=NullPool,
            isolation_level="AUTOCOMMIT",
            connect_args={"connect_timeout": 2, "options": "-c statement_timeout=5s"},
        )
        self._over = threading.Event()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._place, self._accept)]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._over.set()

    def _place(self) -> None:
        places = [one.id for one in self._world.scenery.restaurants]
        while not self._over.wait(self._every_s):
            self.placed.append(self._world.place_order(restaurant_id=places[len(self.placed) % len(places)]))

    def _accept(self) -> None:
        while not self._over.wait(0.5):
            self.accept()

    def accept(self) -> None:
        insert = (
            "INSERT INTO delivery_actions (action, payment_key, preparing_time, request_id)"
            " SELECT 'accept', payment_key, 25, payment_key FROM delivery_new_orders ON CONFLICT DO NOTHING"
        )
        taken = (
            "UPDATE delivery_orders SET pos_revision = revision WHERE pos_revision = 0"
            " AND payment_key IN (SELECT payment_key FROM delivery_actions)"
        )
        with contextlib.suppress(DBAPIError), self._engine.connect() as connection:
            connection.execute(text(insert))
            connection.execute(text(taken))

    def rows(self, sql: str) -> list[Any]:
        with self._engine.connect() as connection:
            return list(connection.execute(text(sql)))


def until(condition: Callable[[], object], what: str) -> float:
    began = time.monotonic()
    while not condition():
        if time.monotonic() > began + LIMIT_S:
            raise SystemExit(f"stopped: {what} took too long")
        time.sleep(0.1)
    return time.monotonic() - began


def rounds(world: World, accounts: int, count: int) -> None:
    """Wait until each account was polled `count` more times."""
    before = Counter(call.account for call in world.calls("get_current"))
    names = [one.name for one in world.scenery.accounts][:accounts]

    def is_so() -> bool:
        now = Counter(call.account for call in world.calls("get_current"))
        return all(now[name] - before[name] >= count for name in names)

    until(is_so, f"{count} polls of each account")


def lateness(calls: list[CallRecord], first: int, cooldown_s: float) -> list[float]:
    """The lateness of the polls from the call `first` on, for accounts with an answered poll before."""
    last: dict[str, CallRecord] = {}
    found = []
    for place, call in enumerate(calls):
        if call.operation != "get_current":
            continue
        before = last.get(call.account)
        if place >= first and before is not None and before.answered_at is not None:
            found.append((call.at - before.answered_at).total_seconds() - cooldown_s)
        last[call.account] = call
    return sorted(found)


# ---- troubles --------------------------------------------------------------------------------------------------------


def trouble(name: str, pair: Pair, stack: contextlib.ExitStack) -> None:
    if name == "killed":
        pair.primary.kill()
    elif name == "silent":
        stack.enter_context(pair.primary.frozen())
    if name != "quiet":
        pair.promote()


@contextlib.contextmanager
def prepared(asked: argparse.Namespace) -> Iterator[tuple[World, Pair, Shop]]:
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        pair = stack.enter_context(databases.own_postgresql_pair())
        world = World(scenery(asked.accounts), options=Options(cooldown_seconds=asked.cooldown), report=lambda _: None)
        sandbox = stack.enter_context(Sandbox(world, directory=folder))
        config = folder / "orderbridge.toml"
        values = {"base_url": sandbox.base_url, "ca_file": sandbox.ca_file, "cooldown_s": asked.cooldown}
        config.write_text(SETTINGS.format(**values, url=pair.url, key=folder / "master.key"))
        run = [COMMAND, "--config", config]
        secret = folder / "master.key"
        secret.touch(0o600)
        plain = SETTINGS.replace('accounts = "database"\nmaster_key_file = "{key}"', "")
        (folder / "plain.toml").write_text(plain.format(**values, url=pair.url))
        secret.write_bytes(subprocess.check_output([COMMAND, "accounts", "key"]))
        subprocess.run([*run, "db", "upgrade"], check=True, capture_output=True)
        with (folder / "accounts.csv").open("w", newline="") as out:
            write = csv.writer(out)
            write.writerow(["name", "app_secret_key", "rest_secret_key"])
            write.writerows([one.name, one.app_secret_key, one.rest_secret_key] for one in world.scenery.accounts)
        print(subprocess.check_output([*run, "accounts", "import", folder / "accounts.csv"], text=True).strip())
        fleet = Fleet(folder, asked.replicas)
        stack.callback(fleet.close)
        shop = Shop(world, pair.url, every_s=1.0)
        stack.callback(shop.close)
        yield world, pair, shop


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("troubles", nargs="*", metavar="TROUBLE", default=["quiet", "killed"])
    parser.add_argument("--accounts", type=int, default=60)
    parser.add_argument("--cooldown", type=float, default=4.0)
    parser.add_argument("--replicas", type=int, default=2)
    asked = parser.parse_args()
    with prepared(asked) as (world, pair, shop):
        rounds(world, asked.accounts, SETTLED)
        print(f"{'trouble':10} {'polls':>6} {'p50':>6} {'p99':>6} {'most':>6} {'429':>4} {'twice':>5}")
        for name in asked.troubles:
            measure(name, asked, world, pair)
        shop.close()
        settle(world, shop)


def measure(name: str, asked: argparse.Namespace, world: World, pair: Pair) -> None:
    first = len(world.calls())
    with contextlib.ExitStack() as stack:
        trouble(name, pair, stack)
        rounds(world, asked.accounts, SETTLED)
        if name == "silent":
            pair.primary.kill()
    everything = world.calls()
    calls = everything[first:]
    polls = [call for call in calls if call.operation == "get_current"]
    late = lateness(everything, first, asked.cooldown)
    sent = Counter((c.operation, c.argument) for c in calls if c.operation in ACTIONS)
    early = sum(call.http_status == TOO_EARLY for call in calls)
    twice = sum(many > 1 for many in sent.values())
    figures = [late[len(late) // 2], late[int(len(late) * 0.99)], late[-1]]
    shown = " ".join(f"{one:6.2f}" for one in figures)
    print(f"{name:10} {len(polls):6} {shown} {early:4} {twice:5}", flush=True)


def settle(world: World, shop: Shop) -> None:
    """Check that each order was stored, acknowledged and accepted, and that no acknowledged one is missing."""

    def is_so() -> bool:
        shop.accept()
        return all(order.status_id == ACCEPTED for order in shop.placed)

    took = until(is_so, "the rest")
    stored = {row.payment_key for row in shop.rows("SELECT payment_key FROM delivery_orders")}
    lost = [order.key for order in shop.placed if order.acknowledgements and order.key not in stored]
    sent = Counter((c.operation, c.argument) for c in world.calls() if c.operation in ACTIONS)
    twice = [what for what, many in sent.items() if many > 1]
    print(
        f"{len(shop.placed)} orders, all accepted {took:.1f} s later; lost {len(lost)}, sent twice {len(twice)} {twice}"
    )


if __name__ == "__main__":
    main()
