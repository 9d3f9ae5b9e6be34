"""What statements cost when the database has grown: a thousand orders beside many, in milliseconds.

    python benchmarks/growth.py [--orders 100000] [--times 20] [URL ...]

Without an address: SQLite in a temporary file, and the servers that ORDERBRIDGE_TEST_POSTGRES_URL and
ORDERBRIDGE_TEST_MARIADB_URL name. Each order comes with its items, events, a finished row and its attempt.
"""

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from sqlalchemy import Connection
from tests import databases
from tests.store.years import day_of_work, fill

from orderbridge.store import schema
from orderbridge.store.database import Database

FEW = 1000


@contextlib.contextmanager
def prepared(url: str) -> Iterator[Database]:
    if url == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            database = Database(f"sqlite:///{folder}/pos.db", inline=True)
            database.write_now(schema.upgrade)
            yield database
            database.close()
    else:
        with databases.made(url, f"obs_growth_{os.getpid()}") as database:
            yield database


def cost(database: Database, work: Callable[[Connection], Any], times: int) -> float:
    """The median, without the commit: what it writes is taken back."""
    found = []
    for _ in range(times):
        with database.engine.connect() as connection, connection.begin() as transaction:
            began = time.perf_counter()
            work(connection)
            found.append((time.perf_counter() - began) * 1000)
            transaction.rollback()
    return statistics.median(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("urls", nargs="*", metavar="URL")
    parser.add_argument("--orders", type=int, default=100_000)
    parser.add_argument("--times", type=int, default=20)
    asked = parser.parse_args()
    named = [databases.POSTGRES_URL, databases.MARIADB_URL]
    for url in asked.urls or ["sqlite", *filter(None, named)]:
        columns: list[dict[str, float]] = []
        for number in (FEW, asked.orders):
            with prepared(url) as database:
                began = time.perf_counter()
                fill(database, number)
                took = time.perf_counter() - began
                work = day_of_work(number)
                columns.append({name: cost(database, work[name], asked.times) for name in work})
                print(f"{database.engine.dialect.name}: {number} orders filled in {took:.0f} s", flush=True)
        print(f"{'':28} {FEW:>9} {asked.orders:>9}")
        for name, few in columns[0].items():
            print(f"{name:28} {few:9.2f} {columns[1][name]:9.2f}", flush=True)


if __name__ == "__main__":
    main()
