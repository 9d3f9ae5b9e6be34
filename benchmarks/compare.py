"""Compares orderbridge with bare loops and other queues. Compare the ratios; the times depend on the machine.

    ./run bench [outbox|backlog|latency|idle|accounts] [--rounds 3] [--rows 1000] [--accounts 1000 10000] [--delay 30]

All run on loopback, each with a time limit, and with durable commits. PostgreSQL and MariaDB are the servers that
ORDERBRIDGE_TEST_POSTGRES_URL and ORDERBRIDGE_TEST_MARIADB_URL name, else those at the standard local ports.
"""

import argparse
import contextlib
import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from beside import OtherEnd, cpu_s, daemon, other_end, percentile, rss_mib, stores, table
from ingest import STATES, Bare, Ours, measure
from many import accounts
from rig import LIMIT_S, address, until
from sqlalchemy import Engine, TextClause, create_engine, make_url, text
from sqlalchemy.exc import DBAPIError

HERE = Path(__file__).parent
IN_FLIGHT = 32


# ---- outbox ----------------------------------------------------------------------------------------------------------

INSERT = "INSERT INTO delivery_actions (action, food_id) VALUES ('activate_food', :food)"
LEFT = "SELECT count(*) FROM delivery_actions WHERE state IN ('pending', 'sending')"


def drain(url: str, end: OtherEnd, rows: int, in_flight: int, first: int = 0) -> tuple[float, float]:
    """Wall and processor seconds from the COMMIT of the rows to the last result, or to the `first` ones."""
    more = f"[actions]\nmax_in_flight = {in_flight}" if in_flight else ""
    with daemon(url, end, more=more) as (pid, _):
        engine = create_engine(url)
        polled = text("SELECT count(*) FROM delivery_accounts WHERE last_poll_ok_utc IS NOT NULL")
        until(lambda: _scalar(engine, polled))
        with engine.begin() as connection:
            connection.execute(text(INSERT), [{"food": number + 1} for number in range(rows)])
        before, began = cpu_s(pid), time.perf_counter()
        until(lambda: _scalar(engine, text(LEFT)) <= (rows - first if first else 0), step_s=0.02)
        spent = time.perf_counter() - began, cpu_s(pid) - before
        engine.dispose()
    return spent


def _scalar(engine: Engine, query: TextClause) -> int:
    with contextlib.suppress(DBAPIError), engine.connect() as connection:  # the tables may not be there yet
        return int(connection.execute(query).scalar_one())
    return 0


def peer(python: Path, *arguments: object) -> tuple[float, float]:
    command = [python, HERE / "peers.py", *map(str, arguments)]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=LIMIT_S).stdout
    spent = json.loads(printed.splitlines()[-1])
    return spent["wall"], spent["cpu"]


def outbox(asked: argparse.Namespace) -> None:
    """Rows inserted at once, with 32 requests in flight, until each has its result in the database."""
    there = stores()
    found: dict[str, list[tuple[float, float]]] = {}
    with other_end(asked.delay) as end:
        ours = {f"orderbridge, {name}": (url, IN_FLIGHT) for name, url in there.items()}
        ours |= {f"orderbridge, {name}, defaults": (url, 0) for name, url in there.items()}
        for _ in range(asked.rounds):
            for name, (url, in_flight) in ours.items():
                with address(url, f"obs_bench_{os.getpid()}") as own:
                    found.setdefault(name, []).append(drain(own, end, asked.rows, in_flight))
            for name in ("httpx", "pgqueuer", "procrastinate") if asked.peers and "PostgreSQL" in there else ():
                with address(there["PostgreSQL"], f"obs_bench_{os.getpid()}") as own:
                    spent = peer(asked.peers, "outbox", name, asked.rows, end.base_url, end.ca_file, plain(own))
                    found.setdefault({"httpx": "bare httpx loop"}.get(name, name), []).append(spent)
    rows = [
        [
            name,
            f"{asked.rows / statistics.median(s[0] for s in spent):.0f}",
            f"{statistics.median(s[1] for s in spent) / asked.rows * 1000:.2f}",
        ]
        for name, spent in found.items()
    ]
    table(["outbox", "rows/s", "processor ms a row"], rows)


def plain(url: str) -> str:
    """The URL without SQLAlchemy's name of the driver."""
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


def backlog(_: argparse.Namespace) -> None:
    """The first 300 rows of longer and longer queues."""
    rows = []
    with other_end() as end:
        for name, url in stores().items():
            for waiting in (300, 3000, 12000):
                with address(url, f"obs_bench_{os.getpid()}") as own:
                    wall, _ = drain(own, end, waiting, IN_FLIGHT, first=300)
                rows.append([name, str(waiting), f"{300 / wall:.0f}"])
    table(["backlog", "rows waiting", "first 300, rows/s"], rows)


# ---- latency ---------------------------------------------------------------------------------------------------------


def latency(asked: argparse.Namespace) -> None:
    """The time from the COMMIT of one row until its request arrives at the service."""
    rows = []
    there = stores()
    with other_end() as end:
        for name, url in there.items():
            with address(url, f"obs_bench_{os.getpid()}") as own:
                rows.append([f"orderbridge, {name}", *_shown(_own_latency(own, end, asked.times))])
        for name in ("listen", "pgqueuer", "procrastinate") if asked.peers and "PostgreSQL" in there else ():
            with address(there["PostgreSQL"], f"obs_bench_{os.getpid()}") as own:
                rows.append([name, *_shown(_peer_latency(asked.peers, name, plain(own), end, asked.times))])
    table(["COMMIT to wire", "p50 ms", "p95 ms"], rows)


def _shown(found: list[float]) -> list[str]:
    return [f"{percentile(found, 0.5):.1f}", f"{percentile(found, 0.95):.1f}"]


def _arrived(end: OtherEnd, number: int) -> int:
    """When the PUT with this number arrived, in the machine's monotonic nanoseconds."""
    over = time.monotonic() + LIMIT_S
    while time.monotonic() < over:
        for path, at in end.ask("/__seen")["puts"]:
            if path.endswith(f"/{number}"):
                return at
        time.sleep(0.01)
    raise SystemExit("stopped: a request did not come")


def _own_latency(url: str, end: OtherEnd, times: int) -> list[float]:
    found = []
    with daemon(url, end):
        engine = create_engine(url)
        until(
            lambda: _scalar(engine, text("SELECT count(*) FROM delivery_accounts WHERE last_poll_ok_utc IS NOT NULL"))
        )
        for number in range(1, times + 1):
            time.sleep(0.1)
            with engine.begin() as connection:
                connection.execute(text(INSERT), {"food": number})
            committed = time.monotonic_ns()
            found.append((_arrived(end, number) - committed) / 1e6)
        engine.dispose()
    return found


def _peer_latency(python: Path, name: str, dsn: str, end: OtherEnd, times: int) -> list[float]:
    command = [python, HERE / "peers.py", "latency", name, end.base_url, end.ca_file, dsn]
    found = []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        for number in range(1, times + 1):
            time.sleep(0.1)
            process.stdin.write(f"{number}\n")
            process.stdin.flush()
            committed = int(process.stdout.readline())
            found.append((_arrived(end, number) - committed) / 1e6)
        process.terminate()
    return found


# ---- ingest ----------------------------------------------------------------------------------------------------------


def ingest(asked: argparse.Namespace) -> None:
    """The storing of 1,000 orders, from the bytes to the last COMMIT, compared with the bare driver."""
    rows = []
    for name, url in stores().items():
        with address(url, f"obs_bench_{os.getpid()}") as own, address(url, f"obs_bare_{os.getpid()}") as bare:
            takers = {f"orderbridge, {name}": Ours(own), f"bare driver, {name}": Bare(bare)}
            try:
                found = measure(takers, asked.rounds)
            finally:
                for one in takers.values():
                    one.close()
        for label, states in found.items():
            rows.append([label, *(f"{states[state] * 1000:.0f}" for state in STATES)])
    table(["ingest", "first load, ms", "the same again, ms", "1 % changed, ms"], rows)


# ---- idle ----------------------------------------------------------------------------------------------------------


def idle(asked: argparse.Namespace) -> None:
    """The cost of one account without orders."""
    rows = []
    with other_end() as end:
        for name, url in stores().items():
            with address(url, f"obs_bench_{os.getpid()}") as own:
                began = time.monotonic_ns()
                with daemon(own, end) as (pid, _):
                    first = _first_poll(end)
                    time.sleep(5)
                    before = cpu_s(pid)
                    time.sleep(asked.seconds)
                    spent = (cpu_s(pid) - before) / asked.seconds
                    rows.append([name, f"{(first - began) / 1e9:.2f}", f"{rss_mib(pid):.0f}", f"{spent:.2%}"])
    table(["idle", "start to first poll, s", "resident MiB", "of a core"], rows)


def _first_poll(end: OtherEnd) -> int:
    while not (seen := end.ask("/__seen")["polls"]):
        time.sleep(0.02)
    return seen[0][1]


BENCHMARKS: dict[str, Callable[[argparse.Namespace], None]] = {
    "outbox": outbox,
    "backlog": backlog,
    "latency": latency,
    "idle": idle,
    "ingest": ingest,
    "accounts": accounts,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a table; by default all")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--times", type=int, default=40)
    parser.add_argument("--accounts", type=int, nargs="+", default=[100, 1000, 10_000])
    parser.add_argument(
        "--store", action="append", choices=["SQLite", "PostgreSQL", "MariaDB"], help="of the table accounts"
    )
    parser.add_argument("--seconds", type=float, default=20.0, help="of idling")
    parser.add_argument(
        "--delay",
        type=float,
        default=float(os.environ.get("DELAY_MS", "0")),
        help="milliseconds until a PUT is answered; without: DELAY_MS",
    )
    parser.add_argument("--peers", type=Path, help="the Python of the environment that has peers.txt")
    asked = parser.parse_args()
    unknown = set(asked.names) - BENCHMARKS.keys()
    if unknown:
        parser.error(f"no such table: {', '.join(unknown)}; known: {', '.join(BENCHMARKS)}")
    system = f"Linux {platform.release()}, Python {platform.python_version()}"
    print(f"{platform.machine()}, {os.cpu_count()} cores, {system}\n")
    for name in asked.names or BENCHMARKS:
        BENCHMARKS[name](asked)


if __name__ == "__main__":
    main()
