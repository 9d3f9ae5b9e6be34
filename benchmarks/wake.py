"""From a till's COMMIT to the daemon's wake, and what the watch costs while nothing happens.

    python benchmarks/wake.py [--times 200] [--idle 20] [URL ...]

Without an address: SQLite in a temporary file, and the servers that ORDERBRIDGE_TEST_POSTGRES_URL and
ORDERBRIDGE_TEST_MARIADB_URL name. A database of its own is made on a server and dropped at the end.
"""

import argparse
import asyncio
import contextlib
import os
import random
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests import databases
from tests.store.samples import Pos

from orderbridge.store import schema, wake
from orderbridge.store.database import Database

BETWEEN_S = (0.05, 0.4)  # from one commit to the next
REST_S = 3.0  # until a watch that slows down has done so
INSERT = "INSERT INTO delivery_actions (action, food_id) VALUES ('activate_food', 55)"


@contextlib.contextmanager
def prepared(url: str) -> Iterator[Database]:
    if url == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            database = Database(f"sqlite:///{folder}/pos.db", inline=True)
            database.write_now(schema.upgrade)
            yield database
            database.close()
    else:
        with databases.made(url, f"obs_wake_{os.getpid()}") as database:
            yield database


async def latencies(database: Database, times: int, pause: tuple[float, float]) -> list[float]:
    woken = asyncio.Event()
    watch = asyncio.create_task(wake.watch(database.engine, woken.set))
    await woken.wait()
    found = []
    with Pos.at(database.engine.url.render_as_string(hide_password=False)) as pos:
        for _ in range(times):
            await asyncio.sleep(random.uniform(*pause))
            woken.clear()
            pos.execute("BEGIN")
            pos.execute(INSERT)
            pos.execute("COMMIT")
            committed = time.perf_counter()
            await woken.wait()
            found.append((time.perf_counter() - committed) * 1000)
    watch.cancel()
    await asyncio.gather(watch, return_exceptions=True)
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("urls", nargs="*", metavar="URL")
    parser.add_argument("--times", type=int, default=200)
    parser.add_argument("--idle", type=float, default=20.0, help="seconds")
    asked = parser.parse_args()
    named = [databases.POSTGRES_URL, databases.MARIADB_URL]
    for url in asked.urls or ["sqlite", *filter(None, named)]:
        with prepared(url) as database:
            name = database.engine.dialect.name
            busy = asyncio.run(latencies(database, asked.times, BETWEEN_S))
            rare = asyncio.run(latencies(database, max(asked.times // 10, 2), (REST_S, REST_S + 0.2)))
            cost = asyncio.run(idle_cost(database, asked.idle))
        for label, found in (("often", busy), ("seldom", rare)):
            p50, p95 = statistics.median(found), statistics.quantiles(found, n=20, method="inclusive")[-1]
            print(
                f"{name:10} {label:6} n={len(found):4} p50 {p50:6.2f} ms  p95 {p95:6.2f} ms  max {max(found):6.2f} ms"
            )
        print(f"{name:10} idle   {cost:.2f} % of a core")


if __name__ == "__main__":
    main()
