"""A fleet of real processes: replicas on one database, the simulated service, and a till."""

import base64
import contextlib
import json
import os
import random
import secrets
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, NullPool, create_engine, text
from sqlalchemy.exc import DBAPIError
from tests.fleet.live.fleet_record import Record, left
from tests.jobs.shop import settings_for
from tests.marketplace.samples import order

from orderbridge.config import Account
from orderbridge.jobs.audit import audit
from orderbridge.store import schema
from orderbridge.store.database import Database
from orderbridge_fleet import account_changes
from orderbridge_fleet.account_settings import MasterKeys
from orderbridge_fleet.buckets import bucket_of
from orderbridge_sandbox.tls import make_certificates

ROOT = Path(__file__).parents[3]
COMMAND = Path(sys.executable).with_name("orderbridge")
WITHIN_S = 90.0
ALWAYS = datetime(2000, 1, 1, tzinfo=UTC)
APP_SECRET = "fleet-app-secret"
SETTINGS = """
language = "en"
[marketplace]
base_url = "{end.base_url}"
ca_file = "{end.ca_file}"
cooldown_seconds = {of.cooldown_s}
timeout_seconds = {of.timeout_s}
[database]
url = {url}
[fleet]
accounts = "database"
master_key_file = "{key}"
[web]
listen = ""
[log]
format = "json"
"""
HOLDERS = text("SELECT bucket, replica FROM delivery_buckets WHERE replica IS NOT NULL")
NEW = text("SELECT payment_key FROM delivery_new_orders")
_COLUMNS = "action, payment_key, preparing_time, request_id"
ACCEPT = text(f"INSERT INTO delivery_actions ({_COLUMNS}) VALUES ('accept', :key, 25, :key)")
THERE = text("SELECT 1 FROM delivery_actions WHERE request_id = :key")
TAKEN_OVER = text("UPDATE delivery_orders SET pos_revision = revision WHERE payment_key = :key")
FOOD = text("INSERT INTO delivery_actions (action, food_id, account) VALUES ('deactivate_food', :food, :name)")
CLOSE = text("INSERT INTO delivery_actions (action, restaurant_id, account) VALUES ('close_restaurant', :key, :name)")


class OtherEnd:
    """benchmarks/other_end.py at work, with an order of each account on every second poll."""

    def __init__(self, folder: Path, delay_ms: float, poll_delay_ms: float, every: int) -> None:
        made = make_certificates(folder)
        self.ca_file = made.ca_file
        program = ROOT / "benchmarks" / "other_end.py"
        command = [sys.executable, program, made.server_file, str(delay_ms), str(poll_delay_ms)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.base_url = f"https://localhost:{self.process.stdout.readline().strip()}"
        self._context = ssl.create_default_context(cafile=made.ca_file)
        self.ask("/__orders", {"document": order(), "every": every})

    def close(self) -> None:
        with self.process as process:
            process.terminate()

    def ask(self, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(f"{self.base_url}{path}", data, context=self._context) as answer:
            return dict(json.load(answer))


class Fleet:
    """`folder` has the replicas' configurations and logs, by number."""

    def __init__(self, url: str, folder: Path, end: OtherEnd, *, cooldown_s=5.0, timeout_s=3.0) -> None:
        self.url, self.folder, self.end = url, folder, end
        self.record = Record(cooldown_s, timeout_s)
        self.names: list[str] = []
        self.replicas: dict[int, subprocess.Popen[bytes]] = {}
        self.key = secrets.token_bytes(32)
        self.key_file = self.write("master", base64.b64encode(self.key).decode())
        self._engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")

    def write(self, name: str, content: str) -> Path:
        path = self.folder / name
        path.write_text(content)
        path.chmod(0o600)
        return path

    def account(self, name: str, secret: str | None = None) -> Account:
        made = Account(name=name, app_secret_key=APP_SECRET, rest_secret_key=f"rest-{secret or name}")
        return made.at(self.end.base_url)

    def open(self, count: int) -> None:
        self.names = [f"b{number:05}" for number in range(count)]
        keys, made = MasterKeys([self.key]), [self.account(name) for name in self.names]
        database = Database(self.url, inline=True)
        database.write_now(schema.upgrade)
        database.write_now(lambda tx: account_changes.put(tx, keys, made, datetime.now(UTC)))
        database.close()

    def start(self, number: int, *, url: str | None = None, more: str = "", environment: Mapping[str, str] = {}) -> int:
        """`more`: further lines. Returns the process."""
        settings = SETTINGS.format(end=self.end, of=self.record, url=json.dumps(url or self.url), key=self.key_file)
        return self.run(number, settings + more, environment)

    def run(self, number: int, settings: str, environment: Mapping[str, str] = {}) -> int:
        config = self.write(f"{number}.toml", settings)
        with (self.folder / f"{number}.log").open("ab") as log:
            command = [COMMAND, "--config", config, "run"]
            process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **environment})
        self.replicas[number] = process
        return process.pid

    def kill(self, number: int) -> float:
        """Kill it, as the OOM killer does. Returns the time."""
        self.replicas[number].kill()
        self.replicas[number].wait()
        return time.monotonic()

    def log(self, number: int) -> str:
        return (self.folder / f"{number}.log").read_text()

    def close(self) -> None:
        for process in self.replicas.values():
            if process.poll() is None:
                process.kill()
            process.wait()
        self._engine.dispose()

    def rows(self, sql: str, **values: Any) -> list[Any]:
        with self._engine.connect() as connection:
            return list(connection.execute(text(sql), values).all())

    def execute(self, sql: str, **values: Any) -> None:
        with self._engine.connect() as connection:
            connection.execute(text(sql), values)

    def holders(self) -> dict[int, int]:
        with self._engine.connect() as connection:
            return {bucket: int(replica.split()[-2]) for bucket, replica in connection.execute(HOLDERS)}

    def of(self, number: int) -> list[str]:
        held, pid = self.holders(), self.replicas[number].pid
        return [name for name in self.names if held.get(bucket_of(name, 64)) == pid]

    def shares(self) -> dict[int, int]:
        held = list(self.holders().values())
        return {number: held.count(process.pid) for number, process in self.replicas.items()}

    def seen(self) -> Record:
        self.record.add(self.end.ask("/__seen"))
        return self.record

    def faults(self) -> dict[str, Any]:
        """Polls and actions that must never be, and unfinished rows, by kind; kinds without any are left out."""
        record = self.seen()
        with self._engine.connect() as connection:
            found = {
                "early": record.early(),
                "twice": record.twice(connection),
                "lost": record.lost(connection),
                "left": left(connection),
                "broken": audit(connection, settings_for(Path("unused"), "kadikoy"), ALWAYS).findings,
            }
        return {name: what for name, what in found.items() if what}

    def await_shares(self, *wanted: int) -> None:
        """Wait until the replicas hold these numbers of buckets, in any order, and no others hold any."""
        try:
            until(lambda: sorted(filter(None, self.shares().values())) == sorted(wanted))
        except TimeoutError:
            logs = "\n".join(f"{number}:\n{self.log(number)[-4000:]}" for number in self.replicas)
            raise AssertionError(f"{self.shares()} and not {wanted}\n{logs}") from None

    def await_polls(self, names: list[str], since: float, within_s: float = WITHIN_S) -> None:
        """Wait until each of these accounts was polled after that, or until the time is up, which the record shows."""
        with contextlib.suppress(TimeoutError):
            until(lambda: all(self.seen().after(name, since) for name in names), within_s, step_s=0.5)


def until(condition: Callable[[], object], within_s: float = WITHIN_S, step_s: float = 0.1) -> None:
    over = time.monotonic() + within_s
    while True:
        with contextlib.suppress(DBAPIError):
            if condition():
                return
        if time.monotonic() > over:
            raise TimeoutError
        threading.Event().wait(step_s)


@contextlib.contextmanager
def till(fleet: Fleet, pause_s: float) -> Iterator[None]:
    """A POS of all branches in plain SQL: accepts orders, switches foods and restaurants, and reconnects."""
    over, names = threading.Event(), fleet.names[:200]
    engine = create_engine(fleet.url, poolclass=NullPool, isolation_level="AUTOCOMMIT")

    def work() -> None:
        while not over.wait(pause_s):
            with contextlib.suppress(DBAPIError), engine.connect() as connection:
                while not over.wait(pause_s):
                    _turn(connection, names)

    with ThreadPoolExecutor(1) as threads:
        working = threads.submit(work)
        try:
            yield
        finally:
            over.set()
        working.result()


def _turn(connection: Connection, names: list[str]) -> None:
    for key in connection.execute(NEW).scalars().all():
        if connection.execute(THERE, {"key": key}).first() is None:
            connection.execute(ACCEPT, {"key": key})
        connection.execute(TAKEN_OVER, {"key": key})
    connection.execute(FOOD, {"food": random.getrandbits(48) + 1, "name": random.choice(names)})
    connection.execute(CLOSE, {"key": str(uuid.uuid4()), "name": random.choice(names)})


@contextlib.contextmanager
def fleet(url: str, folder: Path, *, accounts: int, delay_ms=50.0, every: int = 2, **times: float) -> Iterator[Fleet]:
    """Start a fleet on an empty database without a daemon. `times`: cooldown_s and timeout_s."""
    with closing(OtherEnd(folder, delay_ms, delay_ms, every)) as end, closing(Fleet(url, folder, end, **times)) as made:
        made.open(accounts)
        yield made
