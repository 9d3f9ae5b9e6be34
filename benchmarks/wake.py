"""From a till's COMMIT to the request on the wire, and what the watch costs while nothing happens.

    python benchmarks/wake.py [--times 200] [--idle 20] [URL ...]

Without an address: SQLite in a temporary file, and the servers that ORDERBRIDGE_TEST_POSTGRES_URL and
ORDERBRIDGE_TEST_MARIADB_URL name. The daemon is the real program, the service the sandbox over TLS; the time is taken
where the sandbox opens its ledger. "often" finds the connection to the service open, "seldom" pays for a handshake.
On PostgreSQL a bare loop, LISTEN and one PUT with httpx, is measured beside it: less than that cannot be had.
"""

import argparse
import asyncio
import contextlib
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rig import REST_SECRET, address, asked_or_all, daemon, until
from tests.store.samples import Pos

from orderbridge.sandbox import Options, Sandbox, World
from orderbridge.sandbox.scenery import APP_SECRET
from orderbridge.store import wake
from orderbridge.store.database import Database
from orderbridge.store.tables import WAKE_CHANNEL

OFTEN_S, SELDOM_S = (0.05, 0.4), (3.0, 3.2)  # from one commit to the next
REST_S = 3.0  # until a watch that slows down has done so
TOGGLE = "INSERT INTO delivery_actions (action, food_id) VALUES ('activate_food', 1005)"
BARE = """
import sys, httpx, psycopg
base_url, ca_file, app_secret, rest_secret, address, channel = sys.argv[1:]
with httpx.Client(verify=__import__("ssl").create_default_context(cafile=ca_file)) as client:
    login = {"app_secret_key": app_secret, "rest_secret_key": rest_secret}
    token = client.post(base_url + "/auth/login", json=login).json()["data"]["access_token"]
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("LISTEN " + channel)
        client.get(base_url + "/restaurants/get", headers={"Access-Token": token})
        for _ in connection.notifies():
            client.put(base_url + "/foods/status-active/1005", headers={"Access-Token": token})
"""


def latencies(pos: Pos, world: World, times: int, pause: tuple[float, float]) -> list[float]:
    """Milliseconds from each commit until the request is there."""
    found = []
    for _ in range(times):
        time.sleep(random.uniform(*pause))
        before = len(world.calls("activate_food"))
        pos.execute("BEGIN")
        pos.execute(TOGGLE)
        pos.execute("COMMIT")
        committed = time.time()
        until(lambda before=before: len(world.calls("activate_food")) > before, step_s=0.002)
        found.append((world.calls("activate_food")[-1].at.timestamp() - committed) * 1000)
    return found


async def idle_cost(database: Database, seconds: float) -> float:
    """Per cent of a core that this process uses; a server's own part is not in it."""
    watch = asyncio.create_task(wake.watch(database.engine, lambda: None))
    await asyncio.sleep(REST_S)
    before = resource.getrusage(resource.RUSAGE_SELF)
    await asyncio.sleep(seconds)
    after = resource.getrusage(resource.RUSAGE_SELF)
    watch.cancel()
    await asyncio.gather(watch, return_exceptions=True)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / seconds * 100


def show(name: str, label: str, found: list[float]) -> None:
    p50, p95 = statistics.median(found), statistics.quantiles(found, n=20, method="inclusive")[-1]
    print(f"{name:10} {label:7} n={len(found):4} p50 {p50:6.2f} ms  p95 {p95:6.2f} ms  max {max(found):6.2f} ms")


def measure(url: str, times: int, idle_s: float) -> None:
    name = url.partition(":")[0].partition("+")[0]
    world = World.default(options=Options(cooldown_seconds=1.0), tell=lambda _: None)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        sandbox = stack.enter_context(Sandbox(world, directory=folder))
        with daemon(url, sandbox, folder, cooldown_s=30.0):
            until(lambda: world.calls("get_current"))
            with Pos.at(url) as pos:
                show(name, "often", latencies(pos, world, times, OFTEN_S))
                show(name, "seldom", latencies(pos, world, max(times // 10, 2), SELDOM_S))
        if name == "postgresql":
            where = url.replace("+psycopg", "")
            arguments = [sandbox.base_url, sandbox.ca_file, APP_SECRET, REST_SECRET, where, WAKE_CHANNEL]
            bare = subprocess.Popen([sys.executable, "-c", BARE, *arguments])
            stack.callback(bare.terminate)
            seen = len(world.calls("get_restaurants"))
            until(lambda: len(world.calls("get_restaurants")) > seen)
            with Pos.at(url) as pos:
                show(name, "bare", latencies(pos, world, times, OFTEN_S))
    database = Database(url, inline=True)  # the sandbox has ended: it would be counted, too
    print(f"{name:10} idle    {asyncio.run(idle_cost(database, idle_s)):.2f} % of a core")
    database.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("urls", nargs="*", metavar="URL")
    parser.add_argument("--times", type=int, default=200)
    parser.add_argument("--idle", type=float, default=20.0, help="seconds")
    asked = parser.parse_args()
    for url in asked_or_all(asked.urls):
        with address(url, f"obs_wake_{os.getpid()}") as own:
            measure(own, asked.times, asked.idle)


if __name__ == "__main__":
    main()
