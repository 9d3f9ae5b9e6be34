"""Measures the statements on a database with a thousand orders and on one with many, in milliseconds.

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
from datetime import timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from sqlalchemy import Connection
from tests import databases
from tests.store.samples import NOW, arrival, key
from tests.store.years import fill

from orderbridge.model import ActionState, Attempt, Outcome, Verdict
from orderbridge.store import actions as store_actions
from orderbridge.store import order_times, retention, schema, unfinished
from orderbridge.store import orders as store_orders
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
    """The median time without the commit, because the writes are rolled back."""
    found = []
    for _ in range(times):
        with database.engine.connect() as connection, connection.begin() as transaction:
            began = time.perf_counter()
            work(connection)
            found.append((time.perf_counter() - began) * 1000)
            transaction.rollback()
    return statistics.median(found)


def statements(number: int) -> dict[str, Callable[[Connection], Any]]:
    """The frequent statements, for a database with `number` orders."""
    delivered = [key(n) for n in range(number - 100, number)]
    fresh = [arrival(key(10**9 + n)) for n in range(100)]

    def claim(connection: Connection) -> None:
        (row, *_), _ = unfinished.read_unfinished(connection)
        store_actions.start(connection, [(row, 2)], NOW)
        store_actions.record(connection, [(row.id, 2, Attempt(Outcome.OK, None, 200))], NOW)
        store_actions.finish(connection, [(row.id, store_actions.End(Verdict(ActionState.DONE), None, 2))], NOW)

    def view(name: str, order: str) -> Callable[[Connection], Any]:
        return lambda tx: tx.exec_driver_sql(f"SELECT * FROM delivery_{name}_orders ORDER BY {order}").all()

    return {
        "poll: 100 known orders": lambda tx: (
            store_orders.stored(tx, delivered),
            store_orders.with_unresolved_rows(tx, delivered),
        ),
        "poll: 100 new orders": lambda tx: store_orders.insert_new(tx, "kadikoy", fresh, NOW),
        "poll: 100 acknowledgements": lambda tx: store_orders.mark_acknowledged(
            tx, [(payment_key, 1, "RECEIVED", NOW) for payment_key in delivered]
        ),
        "claim and verdict of a row": claim,
        "view delivery_new_orders": view("new", "received_utc"),
        "view delivery_changed_orders": view("changed", "changed_utc"),
        "view delivery_open_orders": view("open", "changed_utc"),
        "sweep: silent orders": lambda tx: order_times.silent(tx, timedelta(days=1), NOW),
        "sweep: nothing to blank": lambda tx: retention.with_old_contents(tx, NOW - timedelta(days=700)),
    }


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
                work = statements(number)
                columns.append({name: cost(database, work[name], asked.times) for name in work})
                print(f"{database.engine.dialect.name}: {number} orders filled in {took:.0f} s", flush=True)
        print(f"{'':28} {FEW:>9} {asked.orders:>9}")
        for name, few in columns[0].items():
            print(f"{name:28} {few:9.2f} {columns[1][name]:9.2f}", flush=True)


if __name__ == "__main__":
    main()
