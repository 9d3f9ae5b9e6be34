"""The running daemon's web pages: over a reload, beside another daemon, at its end, and its counters."""

import asyncio
import contextlib
import json
import os
import random
import re
import signal
import ssl
from collections.abc import AsyncIterator
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.databases import free_port
from tests.live.test_supervised import Supervisor
from tests.test_daemon import COMMAND, Till, begun, ended, failed, log_of, logged, process, running, settings_for, until
from tests.web.asking import asked, rest_of

from orderbridge import config, service
from orderbridge.daemon import Daemon
from orderbridge.jobs import upkeep
from orderbridge.jobs.context import Kept
from orderbridge.model import Action, ActionState
from orderbridge.observe import metrics as names
from orderbridge.observe.metrics import Family, Metrics
from orderbridge.rules.problems import NO_DATABASE, Code, Problem, Severity
from orderbridge.service import Service
from orderbridge.web import listening
from orderbridge.web.listening import Watched
from orderbridge.web.server import Server
from orderbridge_sandbox import Fault, Sandbox, World
from orderbridge_sandbox.options import Line
from orderbridge_sandbox.scenery import KADIKOY
from orderbridge_sandbox.tls import make_certificates

pytestmark = pytest.mark.timeout(600)
Address = tuple[str, int]


def free_address() -> Address:
    """A free address in 127.0.0.0/8, so that no two tests share one."""
    chosen = random.Random(os.urandom(8))
    return f"127.{chosen.randint(1, 250)}.{chosen.randint(0, 250)}.{chosen.randint(2, 250)}", free_port()


def listening_at(configuration: Path, address: Address, *more: str) -> Address:
    lines = [f'listen = "{address[0]}:{address[1]}"', *more]
    configuration.write_text(re.sub('listen = ".*"', "\n".join(lines), configuration.read_text()))
    return address


async def status_of(address: Address, path: str) -> int:
    """The HTTP status of a page; 0: the port is not open yet."""
    try:
        return (await asked(address, path))[0]
    except ConnectionError:
        return 0


async def is_alive(configuration: Path) -> bool:
    """Whether `healthcheck` says so, as for the supervisor of a container."""
    asking = await asyncio.create_subprocess_exec(COMMAND, "healthcheck", "--config", configuration)
    return await asking.wait() == 0


async def becomes(address: Address, path: str, status: int) -> None:
    async with asyncio.timeout(150):
        while await status_of(address, path) != status:
            if (why := failed()) is not None:
                raise why
            await asyncio.sleep(0.05)


async def test_a_daemon_is_ready_after_a_poll_and_at_the_new_address_after_a_reload(configuration: Path, world: World):
    world.faults.add(Fault(operation="get_current", status=500, times=None))
    first = listening_at(configuration, free_address())
    async with process(configuration) as daemon:
        await until(lambda: world.calls("get_current"))
        await becomes(first, "/livez", 200)
        assert await status_of(first, "/readyz") == 503
        assert await is_alive(configuration)
        world.faults.clear()
        await becomes(first, "/readyz", 200)
        reader, writer = await asyncio.open_connection(*first)
        daemon.send_signal(signal.SIGHUP)
        await until(lambda: len(logged(configuration, "daemon.started")) == 2)
        writer.write(b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        assert (await rest_of(reader)).endswith(b"alive\n")
        writer.close()
        polls = polled(await metrics_of(first))
        second = listening_at(configuration, free_address())
        daemon.send_signal(signal.SIGHUP)
        await until(lambda: len(logged(configuration, "daemon.started")) == 3)
        await becomes(second, "/readyz", 200)
        assert await status_of(first, "/livez") == 0
        assert polled(await metrics_of(second)) >= polls > 0  # a reload resets nothing
        await asyncio.to_thread(configuration.write_text, "rubbish")
        daemon.send_signal(signal.SIGHUP)
        await until(lambda: logged(configuration, "config.reload_failed"))
        await becomes(second, "/readyz", 200)
        assert await ended(daemon, signal.SIGTERM) == 0


async def metrics_of(address: Address) -> str:
    status, _, message = await asked(address, "/metrics")
    assert status == 200
    return message


def polled(message: str) -> float:
    return float(re.findall(r'orderbridge_polls_total\{account="kadikoy",result="ok"\} (\S+)', message)[0])


async def test_a_waiting_daemon_is_alive_and_ready_for_systemd_alone(configuration, tmp_path, monkeypatch):
    """Otherwise systemd would end it, or a load balancer would send it clients."""
    supervisor = Supervisor(tmp_path / "notify")
    first = listening_at(configuration, free_address())
    async with process(configuration) as one:
        await becomes(first, "/readyz", 200)
        other = configuration.with_name("other.toml")
        await asyncio.to_thread(lambda: other.write_text(configuration.read_text()))
        second = listening_at(other, free_address())
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        async with process(other) as two:
            await becomes(second, "/livez", 200)
            await until(lambda: "daemon.waiting" in log_of(configuration))
            assert await is_alive(other)
            assert await is_alive(configuration)
            status, _, message = await asked(second, "/readyz")
            assert (status, json.loads(message)["working"]) == (503, False)
            assert "orderbridge_working 0.0" in await metrics_of(second)
            await until(lambda: supervisor.listen() == ["READY=1"] and supervisor.alive)
            assert supervisor.status == "waiting: another daemon is working on this database"
            two.send_signal(signal.SIGHUP)
            await until(lambda: len(supervisor.listen()) >= 3 and supervisor.heard[-1] == "READY=1")
            assert await ended(one, signal.SIGTERM) == 0
            await becomes(second, "/readyz", 200)
            assert await ended(two, signal.SIGTERM) == 0
    supervisor.close()


def open_problems(till: Till) -> list[tuple[str, str]]:
    return [(*row.values(),) for row in till.rows("SELECT code, severity FROM delivery_alarms ORDER BY code")]


@contextlib.asynccontextmanager
async def serving(configuration: Path) -> AsyncIterator[Service]:
    """Run the service as a task: a process would check its health only every 5 s."""
    service = Service(config.load(configuration), lambda: config.load(configuration))
    task = begun(service.run())
    try:
        yield service
    finally:
        service.end()
        await task


@pytest.mark.parametrize("within_s", [3600.0, 0.0], ids=["in time", "too long"])
async def test_the_page_delays_no_start_and_a_slow_start_does_not_hide_it(within_s, configuration, monkeypatch):
    address, hangs, goes_on = listening_at(configuration, free_address()), asyncio.Event(), asyncio.Event()
    upgrade, load, loaded_first = Daemon._upgrade, listening._load, []

    async def upgrade_late(daemon: Daemon) -> None:
        hangs.set()
        await goes_on.wait()
        await upgrade(daemon)

    def load_and_tell(watched: Watched) -> Server:
        loaded_first.append(not goes_on.is_set())
        return load(watched)

    monkeypatch.setattr(Daemon, "_upgrade", upgrade_late)
    monkeypatch.setattr(listening, "_load", load_and_tell)
    monkeypatch.setattr(service, "SHOWN_WITHIN_S", within_s)
    async with serving(configuration):
        await hangs.wait()
        if not within_s:
            await becomes(address, "/livez", 200)
        goes_on.set()
        await becomes(address, "/readyz", 200)
    assert loaded_first == [not within_s]


async def test_a_page_that_does_not_load_is_an_alarm_everywhere(configuration, till, tmp_path, monkeypatch):
    """A missing certificate, an address in use, an expired certificate: orders still arrive."""
    monkeypatch.setattr(upkeep, "HEALTH_S", 0.1)
    pair = tmp_path / "board.pem"
    names = f'board = "beside"\ncertificate = "{pair}"\ncertificate_key = "{pair}"'
    address = listening_at(configuration, free_address(), names)

    async def message(path: str) -> str:
        heard = await asyncio.open_connection(*address, ssl=ssl._create_unverified_context())
        heard[1].write(f"GET {path} HTTP/1.1\r\nHost: {address[0]}\r\nConnection: close\r\n\r\n".encode())
        answer = await rest_of(heard[0])
        heard[1].close()
        return answer.decode()

    blocker = await asyncio.start_server(lambda *_: None, *address)
    async with serving(configuration) as service:
        await until(lambda: till.has_tables() and open_problems(till) == [("certificate_refused", "severe")])
        pair.write_text(make_certificates(tmp_path / "tls", line=Line.EXPIRED).server_file.read_text())
        service.reload()
        await until(lambda: open_problems(till) == [("page_not_served", "severe")])
        blocker.close()
        service.reload()
        await until(lambda: open_problems(till) == [("certificate_ends", "severe")])
        async with asyncio.timeout(150):  # the page reads what the next health check finds
            while '"certificate_ends":1' not in await message("/readyz"):  # noqa: ASYNC110 - another task
                await asyncio.sleep(0.05)
        assert 'code="certificate_ends"' in await message("/metrics")
        command = (COMMAND, "--config", configuration, "status", "--json")
        status = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        shown = json.loads((await status.communicate())[0])["problems"]
        found = [(one["code"], one["subject"], one["severity"]) for one in shown]
        assert ("certificate_ends", "web", "severe") in found
        pair.write_text(make_certificates(tmp_path / "tls").server_file.read_text())
        service.reload()
        await until(lambda: "certificate_ends" not in dict(open_problems(till)))


def value(metrics: Metrics, family: Family, *labels: str) -> float:
    return next(one.value for one in metrics.readings(family) if one.labels == labels)


def seen(metrics: Metrics, family: Family, *labels: str) -> int:
    return sum(next(one.counts for one in metrics.readings(family) if one.labels == labels))


async def test_each_event_is_counted_once(sandbox: Sandbox, till: Till, world: World):
    async with running(settings_for(sandbox, till)) as daemon:
        metrics = daemon.report._metrics
        order = world.place_order(restaurant_id=KADIKOY, document={"courier_type": "restaurant"})
        await until(lambda: order.acknowledged)
        await until(lambda: value(metrics, names.ACKNOWLEDGED, "acknowledged"))
        row = till.accept(order)
        await until(lambda: till.state(row) == "done")
        late = till.act("on_the_way", order)
        await until(lambda: till.state(late) == "done")
        unknown = till.accept(SimpleNamespace(key="00000000-0000-4000-8000-00000000dead"))
        await until(lambda: till.state(unknown) == "refused")
        await until(lambda: sum(one.value for one in metrics.readings(names.ACTIONS_ENDED)) == 3)
        ends = {one.labels: one.value for one in metrics.readings(names.ACTIONS_ENDED) if one.value}
        daemon.report.measure()
        assert value(metrics, names.WORKING) == 1
        assert value(metrics, names.TOKEN_EXPIRES, "kadikoy") > value(metrics, names.LAST_GOOD_POLL, "kadikoy") > 1.7e9
    assert ends == {("accept", "done"): 1, ("on_the_way", "done"): 1, ("accept", "refused"): 1}
    assert value(metrics, names.DELIVERED, "new") == 1
    assert value(metrics, names.ACKNOWLEDGED, "acknowledged") == len(world.calls("acknowledge"))
    polls = value(metrics, names.POLLS, "kadikoy", "ok")
    assert polls == len(world.calls("get_current")) == seen(metrics, names.POLL_SECONDS)
    assert seen(metrics, names.POLL_LATE_SECONDS) >= polls
    assert value(metrics, names.LOGINS, "ok") == len(world.calls("login")) == 1
    finished = ("login", "get_current", "acknowledge", "accept", "on_the_way")  # a list may be aborted at the end
    least = sum(len(world.calls(operation)) for operation in finished)
    assert least <= value(metrics, names.REQUESTS, "ok") <= len(world.calls())
    assert seen(metrics, names.ACTION_WAIT_SECONDS) == 2
    assert min(seen(metrics, names.DATABASE_SECONDS, work) for work in names.WORK) > 0


async def test_failures_are_counted_by_kind(sandbox: Sandbox, till: Till, world: World):
    world.faults.add(Fault(operation="get_current", status=500, times=1))
    world.faults.add(Fault(operation="login", status=500, times=1))
    async with running(settings_for(sandbox, till)) as daemon:
        metrics = daemon.report._metrics
        await until(lambda: value(metrics, names.POLLS, "kadikoy", "ok"))
        assert value(metrics, names.POLLS, "kadikoy", "service_failed") == 1
        assert value(metrics, names.LOGINS, "service_failed") == 1
        assert value(metrics, names.REQUESTS, "service_failed") == 2
        till.run("ALTER TABLE delivery_accounts RENAME TO elsewhere")
        await until(lambda: value(metrics, names.DATABASE_FAILED, "write"))
        till.run("ALTER TABLE elsewhere RENAME TO delivery_accounts")


async def test_open_problems_are_shown_until_they_end(sandbox: Sandbox, till: Till, world: World, monkeypatch):
    monkeypatch.setattr(upkeep, "HEALTH_S", 0.05)
    metrics = Metrics(codes=Code, severities=Severity)
    assert {one.labels[0] for one in metrics.readings(names.PROBLEMS)} == set(Code)
    world.refuse_account("kadikoy")
    daemon = Daemon(settings_for(sandbox, till), kept=Kept(metrics))
    task = begun(daemon.run())
    await until(lambda: Code.LOGIN_REFUSED in daemon.report.readiness().severe)
    daemon.report.measure()
    assert value(metrics, names.PROBLEMS, Code.LOGIN_REFUSED, Severity.SEVERE) == 1
    daemon.report.checked([])
    daemon.report.measure()
    assert sum(one.value for one in metrics.readings(names.PROBLEMS)) == 0
    daemon.stop()
    await task


def test_every_series_exists_from_the_start() -> None:
    metrics = Metrics(codes=Code, severities=Severity)
    ends = product(Action, set(ActionState) - {"pending", "sending"})
    assert {one.labels for one in metrics.readings(names.ACTIONS_ENDED)} >= {*ends}
    metrics.know(["a", "b"])
    metrics.count(names.POLLS, "a", "ok")
    metrics.count(names.POLLS, "gone", "ok")
    metrics.know(["a", "c"])
    assert {one.labels[0]: one.value for one in metrics.readings(names.LAST_GOOD_POLL)} == {"a": 0, "c": 0}
    assert sum(one.value for one in metrics.readings(names.POLLS)) == 1


def test_an_observation_is_counted_up_to_its_bound() -> None:
    histogram = names.Histogram((1.0, 2.0))
    for number in (0.5, 1.0, 1.5, 99.0):
        histogram.observe(number)
    assert (histogram.counts, histogram.total) == ([2, 1, 1], 102.0)


async def test_at_the_beginning_of_a_start_and_without_a_database_it_is_not_ready(sandbox: Sandbox, till: Till):
    metrics = Metrics()
    metrics.good_polls["kadikoy"] = 0.0  # of the daemon before a reload
    starting = Daemon(settings_for(sandbox, till), kept=Kept(metrics))
    assert not starting.report.readiness().is_ready
    starting.database.close()
    async with running(settings_for(sandbox, till)) as daemon:
        await until(lambda: daemon.report.readiness().is_ready)
        for code in NO_DATABASE:
            daemon.report.checked([Problem(code, "", None, Severity.SEVERE)])
            readiness = daemon.report.readiness()
            assert (readiness.is_ready, readiness.database_answers, readiness.is_polled) == (False, False, True)
