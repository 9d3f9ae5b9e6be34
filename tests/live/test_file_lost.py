"""The SQLite file is removed under the running daemon: nothing more is acknowledged, and the daemon ends."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.test_daemon import Till, ended, log_of, process, until

from orderbridge_sandbox import World
from orderbridge_sandbox.scenery import KADIKOY

UNUSABLE = 78  # systemd does not start it again


def beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def restore(path: Path) -> None:
    """A backup by SQLite's own means is moved into its place: the usual mistake."""
    copy = beside(path, "-backup")
    with contextlib.closing(sqlite3.connect(path)) as source, contextlib.closing(sqlite3.connect(copy)) as backup:
        source.backup(backup)
    copy.replace(path)


def move_all(path: Path) -> None:
    (path.parent / "away").mkdir()
    for suffix in ("", "-wal", "-shm"):
        shutil.move(beside(path, suffix), path.parent / "away")


LOST: dict[str, Callable[[Path], object]] = {
    "removed": Path.unlink,
    "moved with all its files": move_all,
    "a backup in its place": restore,
    "its -wal removed": lambda path: beside(path, "-wal").unlink(),
    "its -shm removed": lambda path: beside(path, "-shm").unlink(),
}


@contextlib.contextmanager
def stopped(daemon: asyncio.subprocess.Process) -> Iterator[None]:
    """Pause the process, so that it sees all changes of its files at once: ending amid them, it would delete some."""
    daemon.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, daemon.pid, os.WSTOPPED)
    try:
        yield
    finally:
        daemon.send_signal(signal.SIGCONT)


def stored(path: Path) -> set[str]:
    if not path.exists():
        return set()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return {key for (key,) in connection.execute("SELECT payment_key FROM delivery_orders")}


@pytest.mark.parametrize("how", LOST)
async def test_nothing_is_acknowledged_into_a_lost_file(how: str, configuration: Path, till: Till, world: World):
    first = world.place_order(restaurant_id=KADIKOY)
    async with process(configuration) as daemon:
        await until(lambda: first.acknowledged)
        with stopped(daemon):
            LOST[how](till.path)
        late = [world.place_order(restaurant_id=KADIKOY) for _ in range(20)]
        assert await ended(daemon) == 1
    assert [order for order in late if order.acknowledged] == []
    log = log_of(configuration)
    (line,) = (json.loads(line) for line in log.splitlines() if "database.file_lost" in line)
    assert line["level"] == "error"
    assert "Restore a file only while orderbridge and the POS are stopped" in line["remedy"]
    assert log.splitlines()[-1].startswith("orderbridge: ")
    assert "Traceback" not in log
    wal = beside(till.path, "-wal")
    kept = wal.read_bytes() if wal.exists() and not till.path.exists() else None
    async with process(configuration) as daemon:  # as systemd starts it again
        if kept:  # a new file would destroy it
            assert (await ended(daemon), till.path.exists(), wal.read_bytes()) == (UNUSABLE, False, kept)
            return
        await until(lambda: all(order.acknowledged for order in late))
        assert await ended(daemon, signal.SIGTERM) == 0
    assert {order.key for order in late} <= stored(till.path)


async def test_no_second_daemon_works_beside_the_first_over_a_reload(configuration: Path, till: Till, world: World):
    order = world.place_order(restaurant_id=KADIKOY)
    async with process(configuration) as first:
        await until(lambda: order.acknowledged)
        async with process(configuration) as second:
            await until(lambda: "daemon.waiting" in log_of(configuration))
            row = till.accept(order)
            await until(lambda: till.state(row) == "done")
            first.send_signal(signal.SIGHUP)
            await until(lambda: log_of(configuration).count("daemon.started") == 2)
            assert await ended(first, signal.SIGKILL) == -signal.SIGKILL
            await until(lambda: log_of(configuration).count("daemon.started") == 3)
            assert await ended(second, signal.SIGTERM) == 0
    assert len(world.calls("accept")) == 1
