"""A dead or hung daemon is unhealthy; one with a failed marketplace, database or a held lock is not."""

import asyncio
import contextlib
import os
import signal
import sqlite3
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from structlog.testing import capture_logs
from tests.test_daemon import COMMAND, TIMEOUT_S, WITHIN_S, Till, begun, process, running, settings_for, until

from orderbridge import config, service
from orderbridge import daemon as module
from orderbridge.cli.common import Context
from orderbridge.cli.service_commands import healthcheck
from orderbridge.daemon import Daemon
from orderbridge.jobs.acknowledge import Polled
from orderbridge.jobs.poll import Poller
from orderbridge.observe import liveness, systemd
from orderbridge.observe.liveness import MAX_ANSWER, STRANGER, Peer, Pulse, answer, ask, daemons, name_of
from orderbridge_sandbox import Fault, Sandbox, World

NOBODY = 65534

pytestmark = pytest.mark.timeout(600)


def test_the_first_overdue_part_is_named_until_it_reports_or_ends() -> None:
    pulse = Pulse()
    assert pulse.hung(1e9) is None
    pulse.expect("poll kadikoy", 100.0)
    assert pulse.hung(100.0) is None
    assert pulse.hung(130.0) == "poll kadikoy is overdue by 30 s"
    for number in range(50):
        pulse.expect(f"poll {number}", 1000.0)
    pulse.expect("poll kadikoy", 200.0)
    assert pulse.hung(130.0) is None
    pulse.expect("database", 10.0)
    assert pulse.hung(20.0) == "database is overdue by 10 s"
    pulse.excuse("database")
    assert pulse.hung(20.0) is None
    pulse.end()
    pulse.expect("database", 11.0)
    assert pulse.hung(1e9) is None


@contextlib.asynccontextmanager
async def answering(name: str, say: str) -> AsyncIterator[None]:
    task = asyncio.create_task(answer(name, lambda: say))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def asked(name: str, say: str) -> None:
    async with asyncio.timeout(WITHIN_S):
        while await asyncio.to_thread(ask, name) != say:  # noqa: ASYNC110 - it is another task that answers
            await asyncio.sleep(0.01)


async def test_the_daemon_answers_and_the_next_one_waits_for_its_name(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(liveness, "AGAIN_S", 0.01)
    name = name_of(tmp_path / "config.toml")
    assert ask(name).startswith("dead: ")
    async with contextlib.AsyncExitStack() as second:
        async with answering(name, "alive\ngreen\n"):
            await asked(name, "alive\ngreen")
            assert name in daemons()
            await second.enter_async_context(answering(name, "the second"))
            await asked(name, "alive\ngreen")
        await asked(name, "the second")
    assert ask(name).startswith("dead: ")


def test_a_long_path_gives_a_name_too_and_two_paths_two() -> None:
    long = Path("/", *(["a" * 100] * 3))
    assert len(name_of(long / "1.toml").encode()) <= liveness.MAX_NAME
    assert name_of(long / "1.toml") != name_of(long / "2.toml")
    assert name_of(Path("/etc/x/../orderbridge/config.toml")) == "orderbridge:/etc/orderbridge/config.toml"


@contextlib.asynccontextmanager
async def squatting(name: str) -> AsyncIterator[None]:
    """Another user's program holds the name, and never stops answering that all is well."""
    script = f"""
import os, socket
os.setuid({NOBODY})
line = socket.socket(socket.AF_UNIX)
line.bind("\\0{name}")
line.listen(1)
print(flush=True)
while True:
    try:
        asked = line.accept()[0]
        while asked.send(b"alive" * 1000):
            pass
    except OSError:
        pass
"""
    other = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE)
    assert other.stdout
    await other.stdout.readline()
    try:
        yield
    finally:
        other.kill()
        await other.wait()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
async def test_another_users_answer_is_not_trusted_and_its_program_is_named(tmp_path: Path) -> None:
    name = name_of(tmp_path / "config.toml")
    holders: list[Peer | None] = []
    async with squatting(name):
        reply = await asyncio.to_thread(ask, name)
        assert reply.split(":")[0] == STRANGER and f"UID {NOBODY}" in reply
        believed = await asyncio.to_thread(ask, name, [NOBODY])
        assert believed.startswith("alive")
        assert len(believed) < 2 * MAX_ANSWER
        answering = asyncio.create_task(answer(name, lambda: "alive", on_holder=holders.append))
        await until(lambda: holders)
        assert [holder and holder.uid for holder in holders] == [NOBODY]
    answering.cancel()


def test_the_answer_of_the_service_orderbridge_is_trusted_by_root(monkeypatch: pytest.MonkeyPatch) -> None:
    for group, is_ours in {
        "0::/system.slice/orderbridge.service": True,
        "1:pids:/x\n0::/system.slice/system-orderbridge.slice/orderbridge@kadikoy.service\n": True,
        "0::/system.slice/apache2.service": False,
        "0::/user.slice/user-1000.slice/user@1000.service/app.slice/orderbridge.service": False,
        "": False,
    }.items():
        monkeypatch.setattr(Path, "read_text", lambda path, _, group=group: group)
        assert Peer(1, NOBODY).is_one_of([1000]) == is_ours


async def test_a_writer_that_hangs_is_found(sandbox: Sandbox, till: Till, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "ANSWER_S", -4.9)  # 0.1 s with the busy timeout
    monkeypatch.setattr(module, "ANSWER_EVERY_S", 0.01)
    go_on = threading.Event()
    async with running(settings_for(sandbox, till)) as daemon:
        await until(lambda: "database" in daemon.pulse._by)
        stuck = asyncio.create_task(daemon.database.run(lambda _: go_on.wait()))
        await until(lambda: "database" in (daemon.hung() or ""))
        go_on.set()
        await stuck
        await until(lambda: daemon.hung() is None)


async def test_a_poll_that_hangs_is_found(sandbox: Sandbox, till: Till, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "POLL_RUNS_S", 0.1 - 10 * TIMEOUT_S)  # 0.1 s with ten timeouts
    go_on = asyncio.Event()

    async def hang(_: Poller) -> Polled:
        await go_on.wait()
        return Polled()

    monkeypatch.setattr(Poller, "tick", hang)
    async with running(settings_for(sandbox, till)) as daemon:
        await until(lambda: "poll kadikoy" in (daemon.hung() or ""))
        go_on.set()


async def test_a_marketplace_that_is_down_hangs_nothing(sandbox: Sandbox, till: Till, world: World):
    world.faults.add(Fault(operation="*", status=500))
    async with running(settings_for(sandbox, till)) as daemon:
        await until(lambda: len(world.calls("login")) > 1 or daemon.health.history.open())
        armed = daemon.pulse._by
        assert {"poll kadikoy", "database"} <= armed.keys()
        assert daemon.hung() is None
        # However late its next try is, it is not overdue before that.
        daemon.timetable.plan("poll kadikoy", 8 * 3600.0, asyncio.Event().wait, vital=True)  # type: ignore[arg-type]
        assert armed["poll kadikoy"] > daemon._clock.monotonic() + 8 * 3600


async def test_a_lock_of_a_till_hangs_nothing(sandbox: Sandbox, till: Till, world: World, monkeypatch):
    monkeypatch.setattr(module, "ANSWER_EVERY_S", 0.01)
    heard: list[float] = []
    settings = settings_for(sandbox, till)
    settings.database.__dict__["busy_timeout_seconds"] = 0.2
    async with running(settings) as daemon:
        await until(lambda: "database" in daemon.pulse._by and world.calls("get_current"))
        expect = daemon.pulse.expect
        monkeypatch.setattr(daemon.pulse, "expect", lambda part, by: (heard.append(by), expect(part, by)))
        with contextlib.closing(sqlite3.connect(till.path, isolation_level=None, timeout=WITHIN_S)) as pos:
            pos.execute("BEGIN IMMEDIATE")
            heard.clear()
            await until(lambda: daemon.database.trouble and len(heard) > 20)
            assert daemon.hung() is None


async def checked(configuration: Path) -> tuple[int, str]:
    command = (COMMAND, "healthcheck", "--config", configuration)
    asking = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    out, _ = await asking.communicate()
    assert asking.returncode is not None
    return asking.returncode, out.decode()


async def test_a_daemon_is_alive_until_it_is_stopped_or_killed(configuration: Path, world: World):
    async with process(configuration) as daemon:
        await until(lambda: world.calls("get_current"))
        await until_alive(configuration)
        await asyncio.to_thread(configuration.write_text, "rubbish")  # the daemon continues with what it has read
        await until_alive(configuration)
        daemon.send_signal(signal.SIGSTOP)
        code, reply = await checked(configuration)
        assert code == 1 and "no answer" in reply
        daemon.send_signal(signal.SIGCONT)
        await until_alive(configuration)
        daemon.kill()
        await daemon.wait()
        code, reply = await checked(configuration)
        assert code == 1 and "dead" in reply


async def until_alive(configuration: Path) -> None:
    async with asyncio.timeout(WITHIN_S):
        while (await checked(configuration))[0] != 0:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.05)


async def test_a_hung_daemon_stops_feeding_the_watchdog(configuration: Path, monkeypatch, tmp_path: Path):
    fed: list[str] = []
    monkeypatch.setattr(systemd, "notify", lambda message: fed.append(message) or True)
    monkeypatch.setattr(service, "ALIVE_S", 0.01)
    checks: list[Daemon] = []
    monkeypatch.setattr(Daemon, "hung", lambda daemon: checks.append(daemon) or "poll kadikoy is overdue by 9 s")
    settings = config.load(configuration, environ={})
    work = service.Service(settings, lambda: settings)
    with capture_logs() as lines:
        task = begun(work.run())
        await until(lambda: "daemon.hung" in [line["event"] for line in lines])
        fed.clear()
        enough = len(checks) + 10
        await until(lambda: len(checks) > enough)
        assert systemd.ALIVE not in fed
        async with asyncio.timeout(WITHIN_S):
            while not (await asyncio.to_thread(ask, name_of(configuration))).startswith("hung: poll kadikoy"):
                pass
        work.end()
        await task


def test_where_a_configuration_is_found_its_own_daemon_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Another daemon that is alive on this machine does not count."""
    (tmp_path / "orderbridge.toml").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(liveness, "daemons", lambda: ["another"])
    asked: list[str] = []
    monkeypatch.setattr(liveness, "ask", lambda name, _: asked.append(name) or "dead: it is not there")
    ended = CliRunner().invoke(healthcheck, obj=Context())
    assert (ended.exit_code, asked) == (1, [liveness.name_of(tmp_path / "orderbridge.toml")])
