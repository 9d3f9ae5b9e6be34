"""./run soak: runs the real daemon for hours at a hundred times the pace, and measures whether it grows.

The sandbox and a POS are in this process, the daemon is a process of its own, on a SQLite file. A restaurant with two
orders a minute and a poll every 30 s is played with 200 orders a minute and a poll every 0.3 s. Memory, descriptors
and threads are measured every few seconds; a line through the second half of the measurements shows whether they grow.
"""

import argparse
import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from itertools import takewhile
from pathlib import Path
from statistics import linear_regression

from orderbridge.config import load
from orderbridge.jobs.audit import audit
from orderbridge.store.database import Database
from orderbridge_sandbox import Options, Sandbox, World
from orderbridge_sandbox.demo import CONFIGURATION
from orderbridge_sandbox.scenery import KADIKOY

COOLDOWN_S = 0.3
ORDERS_PER_MINUTE = 200.0
SAMPLE_S = 2.0
SAY_S = 60.0
POS_S = 0.1
END_WITHIN_S = 120.0
WARM_UP = 0.5  # share of the time, in which caches fill and modules are loaded
MAY_GROW = {"memory_mb": 0.05, "descriptors": 0.1, "threads": 0.1}  # by this share of the mean, after the warm-up

say = partial(print, flush=True)

PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 1024**2

MORE = """
[actions]
retry_waits_seconds = [0.1, 0.2, 0.3]
[log]
level = "info"
format = "json"
"""


def configuration_of(sandbox: Sandbox, folder: Path, cooldown_s: float) -> str:
    """The demo's configuration, with quick retries and a JSON log."""
    addresses = {"base_url": sandbox.base_url, "ca_file": sandbox.ca_file, "database": f'"sqlite:///{folder}/pos.db"'}
    return CONFIGURATION.format(language="en", cooldown=cooldown_s, **addresses) + MORE


@dataclass(frozen=True)
class Sample:
    """What a process holds at one moment."""

    at: float
    memory_mb: float
    descriptors: int
    threads: int


def sample_of(pid: int) -> Sample:
    place = Path(f"/proc/{pid}")
    resident = int((place / "statm").read_text().split()[1]) * PAGE_MB
    return Sample(
        time.monotonic(), resident, len(list((place / "fd").iterdir())), len(list((place / "task").iterdir()))
    )


def growth(samples: Sequence[Sample], what: str) -> tuple[float, float]:
    """By how much a value grew after the warm-up, from a straight line through the samples; and its mean."""
    began, ended = samples[0].at, samples[-1].at
    late = [sample for sample in samples if sample.at >= began + WARM_UP * (ended - began)]
    values = [float(getattr(sample, what)) for sample in late]
    mean = sum(values) / len(values)
    if not late[1:]:
        return 0.0, mean
    return linear_regression([sample.at for sample in late], values).slope * (late[-1].at - late[0].at), mean


def grown(samples: Sequence[Sample]) -> dict[str, float]:
    """The values that grew by more than MAY_GROW, and by how much."""
    found = {}
    for what, share in MAY_GROW.items():
        by, mean = growth(samples, what)
        if by > share * mean:
            found[what] = by
    return found


class Customers(threading.Thread):
    """Place orders at a constant rate, and remove ended ones from the sandbox, which would become slow."""

    def __init__(self, world: World, per_minute: float) -> None:
        super().__init__(name="customers", daemon=True)
        self.placed = 0
        self.stop = threading.Event()
        self._world = world
        self._between = 60 / per_minute

    def run(self) -> None:
        due = time.monotonic()
        while not self.stop.wait(max(due - time.monotonic(), 0.0)):
            self._world.place_order(restaurant_id=KADIKOY, document={"courier_type": "restaurant"})
            self.placed += 1
            due += self._between
            if self.placed % 100 == 0:
                self._forget()

    def _forget(self) -> None:
        with self._world.lock:
            ended = [
                key for key, order in self._world.orders.items() if order.acknowledged and order.status_id in (5, 6)
            ]
            for key in ended[:-100]:  # the last ones may still be requested
                del self._world.orders[key]


class Pos(threading.Thread):
    """Take each order over and complete it, as a till does, with plain SQL on the file."""

    FOLLOWING = {1: "accept", 2: "on_the_way", 16: "complete"}  # noqa: RUF012 - never changed

    def __init__(self, path: Path) -> None:
        super().__init__(name="pos", daemon=True)
        self.stop = threading.Event()
        self.locked = 0
        self._path = path

    def run(self) -> None:
        with contextlib.closing(sqlite3.connect(self._path, isolation_level=None, timeout=10)) as connection:
            while not self.stop.wait(POS_S):
                try:
                    self._round(connection)
                except sqlite3.OperationalError:  # the daemon held the file, or has not made its tables yet
                    self.locked += 1

    def _round(self, connection: sqlite3.Connection) -> None:
        for view in ("delivery_new_orders", "delivery_changed_orders"):
            for key, revision, status_id in connection.execute(
                f"SELECT payment_key, revision, status_id FROM {view}"
            ).fetchall():
                connection.execute("BEGIN IMMEDIATE")
                self._take(connection, key, revision, self.FOLLOWING.get(status_id))
                connection.execute("COMMIT")

    @staticmethod
    def _take(connection: sqlite3.Connection, key: str, revision: int, action: str | None) -> None:
        connection.execute("UPDATE delivery_orders SET pos_revision = ? WHERE payment_key = ?", (revision, key))
        if action is not None:
            connection.execute(
                "INSERT INTO delivery_actions (action, payment_key, preparing_time) VALUES (?, ?, ?)",
                (action, key, 25 if action == "accept" else None),
            )


class Log:
    """The daemon's warnings and errors, counted by their event."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.troubles: Counter[str] = Counter()
        self._at = 0

    def read(self) -> int:
        with self.path.open("rb") as file:
            file.seek(self._at)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._at += len(line)
                self._count(line)
        return self.troubles.total()

    def _count(self, line: bytes) -> None:
        try:
            read = json.loads(line)
        except ValueError:
            self.troubles["no JSON"] += 1
            return
        if read["level"] in {"warning", "error", "critical"}:
            self.troubles[read["event"]] += 1


class Soak:
    """One run."""

    def __init__(self, folder: Path, world: World, sandbox: Sandbox, per_minute: float) -> None:
        self.database = folder / "pos.db"
        self.configuration = folder / "orderbridge.toml"
        self.configuration.write_text(configuration_of(sandbox, folder, COOLDOWN_S))
        self.configuration.chmod(0o600)
        self.log = Log(folder / "log")
        self.world = world
        self.customers = Customers(world, per_minute)
        self.pos = Pos(self.database)
        self.samples: list[Sample] = []
        self.refused = 0  # answers 429
        self._last_call = 0

    @contextlib.contextmanager
    def daemon(self) -> Iterator[subprocess.Popen[bytes]]:
        command = [Path(sys.executable).with_name("orderbridge"), "--config", self.configuration, "run"]
        with self.log.path.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out) as started:
            try:
                yield started
            finally:
                started.kill()

    def run(self, seconds: float) -> list[str]:
        """Run that long and return what is wrong, in sentences."""
        with self.daemon() as daemon:
            self._wait_for_tables(daemon)
            self.customers.start()
            self.pos.start()
            self._watch(daemon, seconds)
            self.customers.stop.set()
            unfinished = self._finish(daemon)
            self.pos.stop.set()
            self.pos.join()
            daemon.send_signal(signal.SIGTERM)
            code = daemon.wait(END_WITHIN_S)
        self._say()
        wrong = [f"{what} grew by {by:.2f} in the second half" for what, by in grown(self.samples).items()]
        wrong += [f"{unfinished} orders did not end"] if unfinished else []
        wrong += [f"{self.refused} polls inside the cooldown"] if self.refused else []
        wrong += [f"the daemon ended with {code}"] if code else []
        return wrong + self._broken()

    def _broken(self) -> list[str]:
        """The rows that contradict a promise."""
        with contextlib.closing(Database(f"sqlite:///{self.database}", inline=True)) as database:
            settings, always = load(self.configuration), datetime(2000, 1, 1, tzinfo=UTC)
            return list(map(str, database.read_now(lambda tx: audit(tx, settings, always)).findings))

    def _wait_for_tables(self, daemon: subprocess.Popen[bytes]) -> None:
        while not self.world.wait_for(lambda: bool(self.world.calls("get_current")), timeout=SAMPLE_S):
            if daemon.poll() is not None:
                raise SystemExit(self.log.path.read_text())

    def _watch(self, daemon: subprocess.Popen[bytes], seconds: float) -> None:
        end = time.monotonic() + seconds
        say = time.monotonic()
        while time.monotonic() < end and daemon.poll() is None:
            self.samples.append(sample_of(daemon.pid))
            self._count_refused()
            if time.monotonic() >= say:
                say += SAY_S
                self._say()
            time.sleep(SAMPLE_S)

    def _finish(self, daemon: subprocess.Popen[bytes]) -> int:
        """Wait until all placed orders have ended; return how many have not."""
        deadline = time.monotonic() + END_WITHIN_S
        while (left := self.customers.placed - self._count("delivery_orders WHERE status_id = 5")) > 0:
            if time.monotonic() > deadline or daemon.poll() is not None:
                break
            time.sleep(SAMPLE_S)
        self._count_refused()
        return left

    def _count_refused(self) -> None:
        """Count the refused calls since the last time; the ledger forgets old calls."""
        with self.world.lock:
            new = list(takewhile(lambda call: call.number > self._last_call, reversed(self.world.ledger)))
        self._last_call = max((call.number for call in new), default=self._last_call)
        self.refused += sum(call.http_status == HTTPStatus.TOO_MANY_REQUESTS for call in new)

    def _count(self, of: str) -> int:
        with contextlib.closing(sqlite3.connect(self.database, timeout=10)) as connection:
            return int(connection.execute(f"SELECT COUNT(*) FROM {of}").fetchone()[0])

    def _size(self) -> int:
        return sum(file.stat().st_size for file in self.database.parent.glob("pos.db*"))

    def _say(self) -> None:
        now, orders = self.samples[-1], self._count("delivery_orders")
        minutes = (now.at - self.samples[0].at) / 60
        say(
            f"{minutes:6.1f} min  memory {now.memory_mb:6.1f} MB"
            f"  descriptors {now.descriptors:3}  threads {now.threads:2}"
            f"  database {self._size() / 1024 / max(orders, 1):5.1f} KB/order"
            f"  orders {orders} of {self.customers.placed}"
            f"  actions {self._count('delivery_actions')}, not done"
            f" {self._count('''delivery_actions WHERE state IN ('refused', 'failed', 'expired')''')}"
            f"  polls inside the cooldown {self.refused}  warnings {self.log.read()}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(prog="./run soak", description=__doc__)
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--orders-per-minute", type=float, default=ORDERS_PER_MINUTE)
    asked = parser.parse_args()
    world = World.default(options=Options(cooldown_seconds=COOLDOWN_S), report=lambda _: None)
    with (
        tempfile.TemporaryDirectory(prefix="orderbridge-soak-") as name,
        Sandbox(world, directory=Path(name)) as sandbox,
    ):
        soak = Soak(Path(name), world, sandbox, asked.orders_per_minute)
        wrong = soak.run(asked.hours * 3600)
    say("\nin the second half, by a straight line:")
    for what in MAY_GROW:
        by, mean = growth(soak.samples, what)
        say(f"  {what:12} {mean:8.2f} on average, grew by {by:+.2f}")
    for event, times in soak.log.troubles.most_common():
        say(f"  {times} x {event}")
    for sentence in wrong:
        say(f"WRONG: {sentence}")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
