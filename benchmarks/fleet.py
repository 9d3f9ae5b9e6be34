"""Kills, stops, cuts off and replaces replicas, and measures how late each account is polled.

    python benchmarks/fleet.py [TRIAL ...] [--accounts 1000] [--kills 20] [--cooldown 30] [--database URL ...]

The replicas, the simulated marketplace and the till are processes. Each trial has its own database on the server that
ORDERBRIDGE_TEST_POSTGRES_URL names, a time limit, and its own table of results.
Late: seconds from when the next poll was allowed until it arrived, as median / p99 / largest. If a poll, or the note of
its time, may have been in flight when its replica ended, the next one is allowed only after a timeout and a cooldown.
"""

import argparse
import bisect
import contextlib
import os
import platform
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from sqlalchemy import make_url
from tests import databases
from tests.fleet.live import fleet as rig
from tests.fleet.live.fleet import Fleet, until
from tests.fleet.live.fleet_record import Record
from tests.live.half_open import Line

STOPPED_S = 60.0
NOTED_S = 2.0  # after which the end of a poll is certainly in the database
LONGEST = 300
LOGINS = 50  # of one process, in a second
FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")
Row = list[str]


@contextlib.contextmanager
def settled(asked: argparse.Namespace, server: str) -> Iterator[Fleet]:
    """Run two replicas that poll every account, and a till that writes."""
    name = f"obs_fleet_{os.getpid()}"
    with (
        tempfile.TemporaryDirectory(dir=asked.folder) as folder,
        databases.own_database(server, name) as url,
        rig.fleet(
            url, Path(folder), accounts=asked.accounts, cooldown_s=asked.cooldown, timeout_s=asked.timeout,
            delay_ms=asked.delay, every=asked.every,
        ) as fleet,
    ):  # fmt: skip
        began = time.monotonic()
        fleet.start(0)
        fleet.start(1)
        fleet.await_shares(32, 32)
        fleet.await_polls(fleet.names, began, asked.cooldown * 2 + 60 + asked.accounts / LOGINS)
        with rig.till(fleet, asked.pause):
            yield fleet
        with contextlib.suppress(TimeoutError):
            until(lambda: not fleet.faults().get("left"), 2 * asked.cooldown + 30, step_s=1.0)
        record = fleet.seen()
        wrong = {name: shortened(str(what)) for name, what in fleet.faults().items()}
        polls, actions = sum(map(len, record.polls.values())), sum(map(len, record.puts.values()))
        print(f"\n{polls} polls, {actions} PUTs; early, twice, lost, left: {wrong or 'none'}\n", flush=True)
        if wrong and asked.keep:
            keep(fleet, Path(asked.keep))


def shortened(text: str) -> str:
    return text if len(text) < LONGEST else f"{text[:LONGEST]} … ({len(text)})"


def keep(fleet: Fleet, there: Path) -> None:
    there.mkdir(exist_ok=True)
    for number in fleet.replicas:
        (there / f"{fleet.url.partition(':')[0]}-{number}.log").write_text(fleet.log(number))


def taken_over(fleet: Fleet, number: int, end: Callable[[], float], *, within_s: float = 60.0) -> list[float]:
    """How late the accounts of a replica are polled after it ended in this way."""
    names = fleet.of(number)
    moment = end()
    return after(fleet, names, moment, within_s=within_s)


def after(fleet: Fleet, names: list[str], moment: float, *, within_s: float = 60.0) -> list[float]:
    fleet.await_polls(names, moment, fleet.record.cooldown_s + fleet.record.timeout_s + within_s)
    return lateness(fleet.record, names, moment, time.monotonic())


def rhythm(fleet: Fleet, since: float) -> str:
    """How late each poll since then was; a poll that is overdue now counts, too."""
    record, now, found = fleet.seen(), time.monotonic(), []
    for name, polls in record.polls.items():
        for before, poll in zip(polls, [*polls[1:], now], strict=True):
            due = (record.answer(name, before) or before + record.timeout_s) + record.cooldown_s
            if poll >= since and min(poll, due) < now:
                found.append(poll - due)
    return shown(found)


def due(record: Record, name: str, moment: float) -> float | None:
    """When the account's next poll after that moment may leave. An end that was not noted by then is lost."""
    polls = record.polls.get(name, [])
    place = bisect.bisect_right(polls, moment)
    if not place:
        return None
    last = polls[place - 1]
    answer = record.answer(name, last)
    if answer is None or answer > moment - NOTED_S:
        return last + record.timeout_s + record.cooldown_s
    return answer + record.cooldown_s


def lateness(record: Record, names: Iterable[str], moment: float, now: float) -> list[float]:
    """How late each account was polled after that moment; one that was not polled is as late as it is now."""
    times = {name: due(record, name, moment) for name in names}
    return [(record.after(name, moment) or now) - at for name, at in times.items() if at is not None]


def shown(values: Sequence[float]) -> str:
    """Median, p99 and the largest."""
    ordered = sorted(values)
    places = [round(share * (len(ordered) - 1)) for share in (0.5, 0.99, 1)]
    return " / ".join(f"{ordered[place]:.1f}" for place in places) if ordered else "-"


def wait_rounds(fleet: Fleet, rounds: float = 1.0) -> None:
    time.sleep(fleet.record.cooldown_s * rounds + 3)


# ---- the trials: each returns rows with the event and the lateness of the accounts concerned -------------------------


def kill(fleet: Fleet, asked: argparse.Namespace) -> Iterator[Row]:
    """Repeated kill -9 of one of two replicas."""
    found: list[float] = []
    worst: list[float] = []
    for number in range(asked.kills):
        late = taken_over(fleet, number % 2, lambda: fleet.kill(number % 2))  # noqa: B023 - at once
        found += late
        worst.append(max(late))
        print(f"{number + 1}: {shown(late)}, load {os.getloadavg()[0]:.0f}", file=sys.stderr, flush=True)
        fleet.start(number % 2)
        fleet.await_shares(32, 32)
        wait_rounds(fleet, 0.5)
    yield [f"kill -9, {asked.kills} times", str(len(found)), shown(found)]
    yield ["the largest of each", str(len(worst)), shown(worst)]


def stop(fleet: Fleet, asked: argparse.Namespace) -> Iterator[Row]:  # noqa: ARG001
    """SIGSTOP, and SIGCONT a minute later."""
    process = fleet.replicas[0]

    def sigstop() -> float:
        process.send_signal(signal.SIGSTOP)
        return time.monotonic()

    began = time.monotonic()
    late = taken_over(fleet, 0, sigstop)
    yield ["SIGSTOP", str(len(late)), shown(late)]
    time.sleep(max(STOPPED_S - (time.monotonic() - began), 0))
    since = time.monotonic()
    process.send_signal(signal.SIGCONT)
    fleet.await_shares(32, 32)
    yield ["until it has its share again, s", "", f"{time.monotonic() - since:.1f}"]
    wait_rounds(fleet, 2)
    yield ["all, after SIGCONT", str(len(fleet.names)), rhythm(fleet, since)]


def rolling(fleet: Fleet, asked: argparse.Namespace) -> Iterator[Row]:  # noqa: ARG001
    """SIGTERM to all, one after another."""
    since = time.monotonic()
    for number in (0, 1):
        began = time.monotonic()
        fleet.replicas[number].send_signal(signal.SIGTERM)
        code = fleet.replicas[number].wait(70)
        yield [f"end of {number}, s (code {code})", "", f"{time.monotonic() - began:.1f}"]
        fleet.start(number)
        fleet.await_shares(32, 32)
    wait_rounds(fleet, 2)
    yield ["all, rolling", str(len(fleet.names)), rhythm(fleet, since)]


def join(fleet: Fleet, asked: argparse.Namespace) -> Iterator[Row]:  # noqa: ARG001
    """A third replica joins, and leaves."""
    since = time.monotonic()
    fleet.start(2)
    fleet.await_shares(21, 21, 22)
    yield ["its share, s", "", f"{time.monotonic() - since:.1f}"]
    wait_rounds(fleet, 2)
    yield ["all, while it comes", str(len(fleet.names)), rhythm(fleet, since)]
    since = time.monotonic()
    fleet.replicas[2].send_signal(signal.SIGTERM)
    fleet.replicas[2].wait(70)
    fleet.await_shares(32, 32)
    yield ["the others have it, s", "", f"{time.monotonic() - since:.1f}"]
    wait_rounds(fleet, 2)
    yield ["all, while it leaves", str(len(fleet.names)), rhythm(fleet, since)]


def session(fleet: Fleet, asked: argparse.Namespace) -> Iterator[Row]:  # noqa: ARG001
    """The server ends the session that holds a replica's locks; then all sessions of one replica."""
    for what, numbers in (("lock session", locking(fleet)), ("every session", sessions(fleet))):
        since = time.monotonic()
        for number in numbers:
            with contextlib.suppress(Exception):  # the session has ended meanwhile
                end_session(fleet, number)
        wait_rounds(fleet, 3)
        yield [f"{what} ended ({len(numbers)})", str(len(fleet.names)), rhythm(fleet, since)]
    alive = [number for number, process in fleet.replicas.items() if process.poll() is None]
    yield ["replicas alive, buckets", "", f"{len(alive)}, {sorted(fleet.shares().values())}"]


def is_postgresql(fleet: Fleet) -> bool:
    return fleet.url.startswith("postgresql")


def locking(fleet: Fleet) -> list[int]:
    if is_postgresql(fleet):
        held = "SELECT DISTINCT pid FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2"
        mine = "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        return [row.pid for row in fleet.rows(f"{held} {mine}")][:1]
    name = "CONCAT('orderbridge ', SHA1(DATABASE()), ' s0')"
    return [fleet.rows(f"SELECT IS_USED_LOCK({name})")[0][0]]


def sessions(fleet: Fleet) -> list[int]:
    """The sessions of replica 0, as far as the server distinguishes them."""
    if is_postgresql(fleet):
        there = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE :name"
        return [row.pid for row in fleet.rows(there, name=f"%{fleet.replicas[0].pid}%")]
    return [row.ID for row in fleet.rows("SELECT ID FROM information_schema.processlist WHERE DB = DATABASE()")]


def end_session(fleet: Fleet, number: int) -> None:
    fleet.execute(f"SELECT pg_terminate_backend({number})" if is_postgresql(fleet) else f"KILL {number}")


def cut(fleet: Fleet, asked: argparse.Namespace) -> Iterator[Row]:  # noqa: ARG001
    """The connection of one replica to the database is cut silently for a minute."""
    url = make_url(fleet.url)
    line = Line(url.host or "127.0.0.1", url.port or 5432)
    fleet.replicas[0].send_signal(signal.SIGTERM)
    fleet.replicas[0].wait(70)
    fleet.start(0, url=url.set(host="127.0.0.1", port=line.port).render_as_string(hide_password=False))
    fleet.await_shares(32, 32)
    wait_rounds(fleet, 2)
    names, since = fleet.of(0), time.monotonic()
    with line.cut():
        late = after(fleet, names, since + 6)  # until its lease ends, it may still poll
        yield ["cut", str(len(names)), shown(late)]
        time.sleep(max(STOPPED_S - (time.monotonic() - since), 0))
    since = time.monotonic()
    fleet.await_shares(32, 32)
    yield ["until it has its share again, s", "", f"{time.monotonic() - since:.1f}"]
    wait_rounds(fleet, 2)
    yield ["all, after", str(len(fleet.names)), rhythm(fleet, since)]
    line.close()


def clock(fleet: Fleet, asked: argparse.Namespace) -> Iterator[Row]:  # noqa: ARG001
    """Replicas with clocks that are ahead and behind join and leave."""
    for offset in ("+3s", "-3s", "+120s"):
        fleet.replicas[0].send_signal(signal.SIGTERM)
        fleet.replicas[0].wait(70)
        since = time.monotonic()
        more = {"LD_PRELOAD": str(FAKETIME), "FAKETIME": offset, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
        fleet.start(0, environment=more)
        fleet.await_shares(32, 32)
        wait_rounds(fleet, 2)
        late = taken_over(fleet, 0, lambda: fleet.kill(0))
        yield [f"{offset}: killed", str(len(late)), shown(late)]
        fleet.start(0, environment=more)
        fleet.await_shares(32, 32)
        wait_rounds(fleet, 2)
        late = taken_over(fleet, 1, lambda: fleet.kill(1))
        yield [f"{offset}: the other killed", str(len(late)), shown(late)]
        fleet.start(1)
        fleet.await_shares(32, 32)
        wait_rounds(fleet, 1)
        yield [f"{offset}: all", str(len(fleet.names)), rhythm(fleet, since)]


TRIALS = {"kill": kill, "stop": stop, "rolling": rolling, "join": join, "session": session, "cut": cut, "clock": clock}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="TRIAL", help=f"of {', '.join(TRIALS)}; without: all")
    parser.add_argument("--database", action="append", metavar="URL", dest="urls")
    parser.add_argument("--accounts", type=int, default=200)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--cooldown", type=float, default=5.0, help="seconds")
    parser.add_argument("--timeout", type=float, default=3.0, help="seconds")
    parser.add_argument("--delay", type=float, default=100.0, help="milliseconds until a poll or a PUT is answered")
    parser.add_argument("--every", type=int, default=3, help="polls of an account for each order")
    parser.add_argument("--pause", type=float, default=0.2, help="seconds between two rounds of the till")
    parser.add_argument("--keep", help="a folder for the logs of trials with a fault")
    parser.add_argument("--folder", help="a folder for temporary files")
    asked = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, {vars(asked)}\n")
    for server in asked.urls or list(filter(None, [databases.POSTGRES_URL])):
        for name in asked.names or TRIALS:
            if name == "clock" and not FAKETIME.exists():
                print("clock: libfaketime is not here")
                continue
            busy = os.getloadavg()[0]
            with settled(asked, server) as fleet:
                print(f"| {name}, {server.partition('+')[0]} (load {busy:.1f}) | accounts | late, s |\n|---|---|---|")
                for row in TRIALS[name](fleet, asked):
                    print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
