"""How the daemon calls its jobs: none is dropped, and none that does not matter holds up the end."""

import asyncio
import sqlite3
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError
from structlog.testing import capture_logs

from orderbridge import config
from orderbridge.daemon import Daemon
from orderbridge.sandbox import Fault, Options, Sandbox, World

CONFIGURATION = """
[marketplace]
base_url = "{base_url}"
ca_file = "{ca_file}"
cooldown_seconds = 0.2
[database]
url = "sqlite:///{folder}/pos.db"
[[accounts]]
name = "kadikoy"
app_secret_key = "sandbox-app-secret"
rest_secret_key = "sandbox-kadikoy-secret"
"""


@pytest.fixture
def world() -> World:
    return World.default(options=Options(cooldown_seconds=0.2))


@pytest.fixture
def settings(world: World, tmp_path: Path):
    with Sandbox(world, directory=tmp_path) as sandbox:
        file = tmp_path / "config.toml"
        file.write_text(
            CONFIGURATION.format(base_url=sandbox.base_url, ca_file=sandbox.ca_file, folder=tmp_path), encoding="utf-8"
        )
        yield config.load(file, environ={})


async def test_a_job_that_wants_to_run_again_at_once_is_called_again(settings: config.Settings):
    daemon = Daemon(settings)
    enough = asyncio.Event()
    calls = 0

    async def job() -> float:
        nonlocal calls
        calls += 1
        if calls == 3:
            enough.set()
        return 0.0

    daemon._scheduler.start()
    daemon._arm("poll kadikoy", 0.0, job)
    async with asyncio.timeout(10):
        await enough.wait()
    daemon._scheduler.shutdown(wait=False)
    daemon.database.close()


async def test_a_job_that_fails_is_called_again(settings: config.Settings, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("orderbridge.daemon.AFTER_FAULT_S", 0.0)
    daemon = Daemon(settings)
    again = asyncio.Event()
    failed = False

    async def job() -> float:
        nonlocal failed
        if failed:
            again.set()
            return 60.0
        failed = True
        raise RuntimeError("a fault of ours")

    daemon._scheduler.start()
    daemon._arm("sweep", 0.0, job)
    async with asyncio.timeout(10):
        await again.wait()
    daemon._scheduler.shutdown(wait=False)
    daemon.database.close()


async def test_a_stop_does_not_wait_for_lists_that_hang(settings: config.Settings, world: World):
    world.faults.add(Fault.hang("get_restaurants"))
    daemon = Daemon(settings)
    running = asyncio.create_task(daemon.run())
    assert await asyncio.to_thread(world.wait_for, lambda: world.calls("get_restaurants"), timeout=10)
    daemon.stop()
    async with asyncio.timeout(5):
        await running


async def test_a_stop_in_the_middle_of_a_job_is_no_crash(settings: config.Settings, world: World):
    world.faults.add(Fault.hang("get_restaurants"))
    daemon = Daemon(settings)
    with capture_logs() as lines:
        running = asyncio.create_task(daemon.run())
        assert await asyncio.to_thread(world.wait_for, lambda: world.calls("get_restaurants"), timeout=10)
        daemon.stop()
        async with asyncio.timeout(5):
            await running
    events = [line["event"] for line in lines]
    assert (events[-1], "job.crashed" in events) == ("daemon.stopped", False)


async def test_a_background_task_that_fails_ends_the_daemon_with_its_error(
    settings: config.Settings, monkeypatch: pytest.MonkeyPatch
):
    async def broken(*_: object) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr("orderbridge.daemon.wake.watch", broken)
    async with asyncio.timeout(10):
        with pytest.raises(RuntimeError, match="a fault of ours"):
            await Daemon(settings).run()


async def test_a_job_whose_rows_a_till_holds_is_told_once(settings: config.Settings, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("orderbridge.daemon.AFTER_FAULT_S", 0.0)
    daemon = Daemon(settings)
    enough = asyncio.Event()
    ends = iter([True, True, True, False, True])  # whether the rows are held

    async def job() -> float:
        if (held := next(ends, None)) is None:
            enough.set()
        elif held:
            raise OperationalError("UPDATE", None, sqlite3.OperationalError("database is locked"))
        return 0.0

    daemon._scheduler.start()
    with capture_logs() as logs:
        daemon._arm("sweep", 0.0, job)
        async with asyncio.timeout(10):
            await enough.wait()
    daemon._scheduler.shutdown(wait=False)
    daemon.database.close()
    told = [line["log_level"] for line in logs if line["event"] == "job.database_failed"]
    assert told == ["error", "debug", "debug", "error"]
