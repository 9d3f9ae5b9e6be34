"""The daemon's alarm command and its ping, also over a restart, with the sandbox over TLS."""

import asyncio
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.live.test_file_lost import move_all, stopped
from tests.test_alarms import Listener
from tests.test_daemon import ended, log_of, process, until

from orderbridge_sandbox import World
from orderbridge_sandbox.scenery import KADIKOY


@pytest.fixture
def heard(configuration: Path) -> Callable[[], list[list[str]]]:
    """The reports to the command: event, code, subject; only of runs that ended, because a stop may kill one."""
    folder = configuration.parent
    alarm = folder / "alarm"
    noting = f"open({str(folder / 'heard')!r}, 'a').write(json.dumps([os.getpid(), *sys.argv[1:4]]) + '\\n')\n"
    alarm.write_text(f"#!{sys.executable} -S\nimport json, os, sys\n{noting}")
    alarm.chmod(0o755)
    configuration.write_text(f'{configuration.read_text()}\n[alarms]\ncommand = ["{alarm}"]\n')

    def lines() -> list[list[str]]:
        path = folder / "heard"
        reported = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [words for process, *words in reported if not Path(f"/proc/{process}").exists()]

    return lines


async def test_a_removed_file_and_its_return_are_reported(configuration, heard, till, world):
    order = world.place_order(restaurant_id=KADIKOY)
    async with process(configuration) as daemon:
        await until(lambda: order.acknowledged and "daemon.started" in log_of(configuration))
        with stopped(daemon):
            move_all(till.path)
        assert await ended(daemon) == 1
    assert heard() == [["began", "database_lost", ""]]
    for path in (till.path.parent / "away").iterdir():
        path.rename(till.path.with_name(path.name))
    async with process(configuration) as daemon:
        await until(lambda: ["ended", "database_lost", ""] in heard())
        assert await ended(daemon, signal.SIGTERM) == 0
    assert heard() == [["began", "database_lost", ""], ["ended", "database_lost", ""]]


async def test_good_polls_are_pinged_and_a_refused_login_is_not(configuration: Path, world: World):
    listener = Listener()
    server = await asyncio.start_server(listener.serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hush-7c1"
    with configuration.open("a") as text:
        text.write(f'\n[alarms]\nping_url = "{url}"\n')
    async with process(configuration) as daemon:
        await until(lambda: "/hush-7c1" in listener.heard)
        assert "/hush-7c1/fail" not in listener.heard
        world.refuse_account("kadikoy")
        world.end_tokens("kadikoy")
        await until(lambda: "/hush-7c1/fail" in listener.heard)
        assert await ended(daemon, signal.SIGTERM) == 0
    server.close()
    assert "hush" not in log_of(configuration)
