"""Measures how long a POS waits for its short transactions beside an idle daemon, and during a poll.

    python benchmarks/two_writers.py [--orders 1000] [--rounds 5] [--database URL ...]

Without an address: SQLite in a temporary file, and the servers that ORDERBRIDGE_TEST_POSTGRES_URL and
ORDERBRIDGE_TEST_MARIADB_URL name. The daemon is the real program, the marketplace is the sandbox over TLS. In a round
the POS writes for three seconds beside the idle daemon, then from when orders are placed to their last acknowledgement.
The figures are medians over the rounds. The benchmark stops when a poll takes more than two minutes.
"""

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from rig import LIMIT_S, address, daemon, database_urls, until

from orderbridge_sandbox import Options, Sandbox, World
from orderbridge_sandbox.scenery import KADIKOY

COOLDOWN_S = 2.0
BETWEEN_S = 0.002  # between two transactions of the POS
LEAST_S = 3.0  # beside the idle daemon
POS = """
import sys, time
sys.path.insert(0, sys.argv[2])
from tests.store.samples import Pos
between, number = float(sys.argv[3]), 0
with Pos.at(sys.argv[1]) as pos:
    pos.execute("CREATE TABLE IF NOT EXISTS pos_sales (number INTEGER, price INTEGER)")
    pos.execute("DELETE FROM pos_sales")
    print("ready", flush=True)
    while True:
        number += 1
        began = time.perf_counter()
        pos.execute("BEGIN IMMEDIATE")
        pos.execute("INSERT INTO pos_sales VALUES (?, 1)", (number,))
        pos.execute("COMMIT")
        print((time.perf_counter() - began) * 1000, flush=True)
        time.sleep(between)
"""


class Till:
    """The POS as a process, which prints its waits line by line."""

    def __init__(self, url: str) -> None:
        root = str(Path(__file__).parents[1])
        command = [sys.executable, "-c", POS, url, root, str(BETWEEN_S)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._waits: list[float] = []
        self._ready = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()
        self._ready.wait(LIMIT_S)

    def _read(self) -> None:
        for line in self._process.stdout or ():
            if line.strip() == "ready":
                self._ready.set()
            else:
                self._waits.append(float(line))

    def during(self, work: Callable[[], None]) -> list[float]:
        before = len(self._waits)
        work()
        return self._waits[before:]

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()


def place(world: World, number: int) -> None:
    """Place all orders at once, so that the next poll delivers all of them."""
    with world.lock:
        placed = [world.place_order(restaurant_id=KADIKOY) for _ in range(number)]
    until(lambda: all(order.acknowledged for order in placed))


def p99(waits: list[float]) -> float:
    return statistics.quantiles(waits, n=100, method="inclusive")[98]


def shown(label: str, found: list[list[float]]) -> str:
    p50 = statistics.median(statistics.median(waits) for waits in found)
    high = statistics.median(p99(waits) for waits in found)
    longest = statistics.median(max(waits) for waits in found)
    number = sum(map(len, found))
    return f"{label:6} n={number:6} p50 {p50:7.2f} ms  p99 {high:7.2f} ms  max {longest:7.2f} ms"


def measure(url: str, orders: int, rounds: int) -> None:
    world = World.default(options=Options(cooldown_seconds=COOLDOWN_S), report=lambda _: None)
    idle, busy = [], []
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        sandbox = stack.enter_context(Sandbox(world, directory=folder))
        stack.enter_context(daemon(url, sandbox, folder, COOLDOWN_S))
        place(world, 1)
        till = Till(url)
        stack.callback(till.close)
        for _ in range(rounds):
            idle.append(till.during(lambda: time.sleep(LEAST_S)))
            busy.append(till.during(lambda: place(world, orders)))
    name = url.partition(":")[0]
    print(f"{name:20} {shown('idle', idle)}")
    print(f"{name:20} {shown('poll', busy)}")
    ratios = [p99(beside) / p99(alone) for alone, beside in zip(idle, busy, strict=True)]
    each = " ".join(f"{ratio:.1f}" for ratio in ratios)
    print(
        f"{name:20} p99 beside a poll of {orders} orders: {statistics.median(ratios):.1f} times the idle one ({each})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--database", action="append", metavar="URL", dest="urls")
    parser.add_argument("--orders", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    for url in database_urls(asked.urls):
        with address(url, f"obs_writers_{os.getpid()}") as own:
            measure(own, asked.orders, asked.rounds)


if __name__ == "__main__":
    main()
