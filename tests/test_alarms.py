"""The alarm command and the ping, with each of their faults. The daemon never waits for them."""

import asyncio
import contextlib
import json
import sys
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.jobs.shop import raising

from orderbridge import config
from orderbridge.clock import SystemClock
from orderbridge.jobs import alarms as alarms_module
from orderbridge.jobs.alarms import AGAIN_S, FAIL_EVERY_S, LONGEST_S, PAUSE_S, WELL_EVERY_S, Alarms, Command, Ping
from orderbridge.rules.problems import Code, Key, OpenProblems, Problem, Rank, Severity
from orderbridge.texts import say

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
ONE = Problem(Code.CLOCK_WRONG, "", NOON, Severity.WARNING, detail="Ayşe Yılmaz", facts={"offset": "+120"})
SEVERE = Problem(Code.LOGIN_REFUSED, "kadıköy", NOON, Severity.SEVERE, account="kadıköy", detail="Ayşe Yılmaz")
LONG_S = 240.0  # on a busy machine

Write = Callable[[str], Path]


@pytest.fixture
def program(tmp_path: Path) -> Write:
    """A program of the restaurant, which writes the reports to `heard`."""

    def write(then: str = "") -> Path:
        path = tmp_path / "alarm"
        path.write_text(
            f"#!{sys.executable} -S\nimport json, os, signal, subprocess, sys, time\n"
            "heard = {'arguments': sys.argv[1:], 'stdin': sys.stdin.buffer.read().decode()}\n"
            "heard['environ'] = dict(os.environ)\n"
            f"open({str(tmp_path / 'heard')!r}, 'a').write(json.dumps(heard) + '\\n')\n{then}\n"
        )
        path.chmod(0o755)
        return path

    return write


def heard(program: Path) -> list[dict[str, Any]]:
    path = program.with_name("heard")
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


class Watched(Alarms):
    def __init__(self, *command: object, on_sent: Callable[[], object] = bool, **changes: Any) -> None:
        chosen = {"command_severity": "warning"} | changes
        super().__init__(config.Alarms(command=tuple(map(str, command)), **chosen), "en", on_sent)
        self._open_problems = OpenProblems()

    def see(self, found: list[Problem], monotonic: float) -> None:
        self._open_problems.check(found, monotonic)
        self.check(self._open_problems, (), monotonic)

    def heard(self) -> dict[Key, Rank]:
        return self._open_problems.reported()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(LONG_S):
        while not condition():  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.01)


async def quiet(alarms: Alarms) -> None:
    await until(lambda: alarms._sender is None)


class Commands:
    """Replaces the program: records its calls, and succeeds unless the test makes it fail."""

    def __init__(self) -> None:
        self.heard: list[dict[str, Any]] = []
        self.fails = False

    def run(self, document: dict[str, Any]) -> str | None:
        self.heard.append(document)
        return "exit code 1" if self.fails else None

    def __call__(self) -> list[tuple[str, str]]:
        return [(one["event"], one["code"]) for one in self.heard]


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> Commands:
    commands = Commands()
    monkeypatch.setattr(Command, "run", lambda _, document: commands.run(document))
    return commands


async def check(alarms: Watched, found: list[Problem], monotonic: float) -> None:
    alarms.see(found, monotonic)
    await alarms.close()  # sends all that waits


async def test_the_beginning_the_escalation_and_the_end_are_reported(program: Write, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ORDERBRIDGE_ACCOUNTS__0__APP_SECRET_KEY", "hush")
    monkeypatch.setenv("ALARM_TO", "chef@example.org")
    path = program("")
    alarms = Watched(path, "--loud")
    for at, found in enumerate(([replace(SEVERE, severity=Severity.WARNING)], [SEVERE], [SEVERE], [])):
        alarms.see(found, at * PAUSE_S)
        await quiet(alarms)
    noticed = heard(path)
    since = "2026-03-01T12:00:00Z"
    told = [("began", "warning"), ("escalated", "severe"), ("ended", "severe")]
    arguments = [["--loud", event, "login_refused", "kadıköy", since, severity, "1"] for event, severity in told]
    assert [one["arguments"] for one in noticed] == arguments
    document = json.loads(noticed[2]["stdin"])
    expected = {"event": "ended", "code": "login_refused", "subject": "kadıköy", "account": "kadıköy", "since": since}
    expected |= {"count": 1, "seconds": round(3 * PAUSE_S)}
    assert {name: document[name] for name in expected} == expected
    assert document["cause"].startswith("The marketplace does not accept")
    assert noticed[0]["environ"]["ALARM_TO"] == "chef@example.org"
    assert [word for word in ("Ayşe", "hush") if word in str(noticed)] == [], "an answer is private"


async def test_with_severe_only_a_milder_problem_counts_as_ended(commands: Commands):
    alarms = Watched("x", command_severity="severe")
    for at, severity in enumerate((Severity.SEVERE, Severity.WARNING, Severity.SEVERE)):
        await check(alarms, [ONE, replace(SEVERE, severity=severity)], at * PAUSE_S)
    assert commands() == [(event, "login_refused") for event in ("began", "ended", "began")]


CHECKS = {  # by check: the problems' levels; then what is sent after the first check
    "began and ended": ([[1], [1, 1], [1], [1]], []),
    "began and got worse": ([[1], [1, 1], [1, 2], [1, 2]], [("began", 2)]),
    "got worse and ended": ([[1], [2], [], []], [("ended", 2)]),
    "ended and came back worse": ([[1], [], [2], [2]], [("escalated", 2)]),
}


@pytest.mark.parametrize("kind", CHECKS)
async def test_changes_within_a_minute_are_one_event(kind, commands: Commands):
    alarms, (checks, sent) = Watched("x"), CHECKS[kind]
    for at, levels in zip((0.0, 10, 20, 30, 60), [*checks, checks[-1]], strict=True):
        orders = enumerate(levels)
        found = [replace(SEVERE, code=Code.UNANSWERED, subject=f"order-{n}", level=level) for n, level in orders]
        await check(alarms, found, at)
    assert [(one["event"], one["level"]) for one in commands.heard[1:]] == sent


HANGS = "subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(1000)'])"
NOTES = f"child = {HANGS}; open(os.path.dirname(sys.argv[0]) + '/child', 'w').write(str(child.pid))"
READY = "open(os.path.dirname(sys.argv[0]) + '/ready', 'w').close(); time.sleep(1000)"
LIMITS_S = (0.25, 2, 20, 120)  # tried in turn until the program has had time to get ready


async def test_a_failing_command_is_logged(program: Write):
    assert await failure_of(program("sys.exit(1)"), 300) == "exit code 1"
    path = program("os.kill(os.getpid(), signal.SIGSEGV)")
    spoilers = (lambda: path.chmod(0o644), "not started: Permission denied"), (path.unlink, "not started: No such file")
    for spoil, reason in (bool, "ended by signal 11"), *spoilers:
        spoil()
        assert (await failure_of(path, 300)).startswith(reason)


HANGING = {"hangs": "os.close(0)", "with a child": NOTES, "stays": "signal.signal(signal.SIGTERM, signal.SIG_IGN)"}


@pytest.mark.parametrize("how", HANGING)
async def test_a_hanging_command_is_killed_with_its_children(how: str, program: Write):
    path = program(f"{HANGING[how]}; {READY}")
    for limit in LIMITS_S:
        assert await failure_of(path, limit) == f"killed: not done after {limit:g} s"
        if path.with_name("ready").exists():
            break
    assert path.with_name("ready").exists()
    if child_of(path):
        await until(lambda: is_gone(child_of(path)))


async def failure_of(path: Path, limit_s: float) -> str:
    alarms = Watched(path, command_timeout_seconds=limit_s)
    with capture_logs() as lines:
        alarms.see([ONE], 0.0)
        await quiet(alarms)
    ((event, code, reason),) = [(one["event"], one["code"], one["reason"]) for one in lines]
    assert (event, code) == ("alarm.failed", "clock_wrong")
    return str(reason)


async def test_a_failed_report_is_retried_with_growing_waits(commands: Commands):
    alarms, commands.fails = Watched("x"), True
    await check(alarms, [SEVERE], 0.0)
    assert alarms.heard() == {}  # after a restart it is sent again
    tries = []
    for second in range(1, 20_000, 5):
        before = len(commands.heard)
        await check(alarms, [SEVERE], float(second))
        tries += [second] * (len(commands.heard) - before)
    assert (tries[:3], set(commands())) == ([61, 181, 421], {("began", "login_refused")})
    assert max(later - sooner for sooner, later in pairwise(tries)) <= LONGEST_S + 5
    commands.fails = False
    await check(alarms, [SEVERE], 30_000.0)
    assert alarms.heard() == {SEVERE.key: SEVERE.rank}
    before = len(commands.heard)
    await check(alarms, [SEVERE], 60_000.0)
    assert len(commands.heard) == before


async def test_a_command_that_neither_starts_nor_ends_has_failed(monkeypatch: pytest.MonkeyPatch):
    over = threading.Event()
    monkeypatch.setattr(Command, "run", lambda *_: over.wait())
    monkeypatch.setattr("orderbridge.jobs.alarms.MARGIN_S", -0.9)
    alarms = Watched("x", command_timeout_seconds=1)
    alarms.see([SEVERE], 0.0)
    await quiet(alarms)
    over.set()
    assert alarms.failure == say("log.command_late", seconds="0.1")


async def test_a_command_without_a_thread_for_it_has_failed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(threading.Thread, "start", raising(RuntimeError("can't start new thread")))
    alarms = Watched("x")
    await check(alarms, [SEVERE], 0.0)
    assert alarms.failure == say("line.here_threads")


async def test_once_the_command_works_again_only_problems_that_are_still_open_are_reported(commands: Commands):
    alarms, commands.fails = Watched("x"), True
    await check(alarms, [SEVERE], 0.0)
    commands.fails = False
    await check(alarms, [SEVERE, ONE], 10.0)
    await check(alarms, [SEVERE, ONE], 15.0)
    assert commands() == [("began", "login_refused"), ("began", "clock_wrong"), ("began", "login_refused")]


def is_gone(process: int) -> bool:
    """Whether the process has ended; a zombie has."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] in {"Z", "X"}
    except (FileNotFoundError, ProcessLookupError):
        return True


def child_of(program: Path) -> int:
    """The id of the command's child process; 0: none yet."""
    noted = program.with_name("child")
    return int(noted.read_text() or 0) if noted.exists() else 0


async def test_a_commands_output_is_limited_and_its_children_are_killed(program, capfd):
    path = program(f"{NOTES}\nfor _ in range(3000): print('hush' * 1000); print('hush' * 1000, file=sys.stderr)")
    alarms = Watched(path)
    with capture_logs() as lines:
        alarms.see([ONE], 0.0)
        await quiet(alarms)
    assert lines == [] and "hush" not in "".join(capfd.readouterr())
    await until(lambda: is_gone(child_of(path)))


async def test_many_failed_reports_are_retried_together_with_one_log_line(commands: Commands):
    alarms, commands.fails = Watched("mail", command_severity="severe"), True
    several = [replace(SEVERE, code=code) for code in list(Code)[:12]]
    with capture_logs() as lines:
        alarms.see(several, 0.0)
        await quiet(alarms)
    assert [one["log_level"] for one in lines] == ["error", *["debug"] * 11]
    commands.fails = False
    with capture_logs() as lines:
        await check(alarms, several, AGAIN_S)
    assert ([one["failures"] for one in lines], len(alarms.heard())) == ([12], 12)


async def test_a_stop_waits_for_a_moment_and_leaves_nothing(program: Write, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(alarms_module, "CLOSE_S", 0.05)
    path = program(f"{NOTES}; time.sleep(1000)")
    alarms = Watched(path, command_timeout_seconds=300)
    alarms.see([ONE], 0.0)
    await until(lambda: child_of(path))
    alarms.see([], 1.0)
    assert alarms.heard() == {}, "its end still waits, so it counts as not reported"
    async with asyncio.timeout(LONG_S):
        await alarms.close()
    await until(lambda: is_gone(child_of(path)))
    assert len(heard(path)) == 1


async def test_what_was_reported_stays_known_while_something_newer_waits(commands: Commands):
    noted: list[object] = []
    alarms = Watched("alarm", on_sent=lambda: noted.append(alarms.heard()))
    milder = replace(SEVERE, severity=Severity.WARNING)
    await check(alarms, [milder], 0.0)
    assert noted == [{milder.key: milder.rank}], "at once, and not at the next check"
    alarms.see([SEVERE], PAUSE_S)
    assert alarms.heard() == {milder.key: milder.rank}, "a daemon that is killed now has reported the beginning"
    await quiet(alarms)
    await check(alarms, [], 2 * PAUSE_S)
    assert noted[1:] == [{SEVERE.key: SEVERE.rank}, {}]


class Listener:
    def __init__(self) -> None:
        self.heard: list[str] = []
        self.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK"
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            self.heard.append((await reader.readline()).decode().split()[1])
            if self.answer:
                writer.write(self.answer)
                await writer.drain()
            else:
                await reader.read()  # no answer until the other side gives up
        writer.close()


@pytest.fixture
async def listener() -> AsyncIterator[Listener]:
    listener = Listener()
    server = await asyncio.start_server(listener.serve, "127.0.0.1", 0)
    listener.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hush-7c1?x=1"
    yield listener
    server.close()


class Clock(SystemClock):
    at = 1000.0

    def monotonic(self) -> float:
        return self.at


async def done(ping: Ping) -> None:
    if ping._task is not None:
        async with asyncio.timeout(LONG_S):
            await ping._task


async def test_good_polls_are_pinged_now_and_then_and_a_severe_problem_at_once(listener: Listener):
    clock = Clock()
    ping = Ping(listener.url, clock=clock)
    for _ in range(100):  # as with a thousand accounts
        ping.polled()
        await done(ping)
    assert listener.heard == ["/hush-7c1?x=1"]
    clock.at += WELL_EVERY_S
    ping.checked(severe=False)
    ping.polled()
    await done(ping)
    assert len(listener.heard) == 2
    for _ in range(10):
        clock.at += FAIL_EVERY_S / 10
        ping.checked(severe=True)
        ping.polled()
        await done(ping)
    assert listener.heard[2:] == ["/hush-7c1/fail?x=1"]
    clock.at += FAIL_EVERY_S
    ping.checked(severe=True)
    await done(ping)
    assert listener.heard[3:] == ["/hush-7c1/fail?x=1"]
    await ping.close()


ANSWERS = {
    "an error": (b"HTTP/1.1 500 No\r\n\r\n", "HTTP 500"),
    "no HTTP": (b"SSH-2.0\r\n\r\n", "broken_answer"),
    "no end": (b"x" * 200_000, "broken_answer"),
    "silence": (b"", "TimeoutError"),
    "nothing listens": (None, "connection_refused"),
}


@pytest.mark.parametrize("kind", ANSWERS)
async def test_a_ping_that_fails_is_one_line_of_the_log(kind, listener, monkeypatch, closed_port):
    answer, reason = ANSWERS[kind]
    monkeypatch.setattr(alarms_module, "TIMEOUT_S", 0.1 if answer == b"" else LONG_S)
    listener.answer = answer
    clock = Clock()
    ping = Ping(listener.url if answer is not None else f"https://127.0.0.1:{closed_port}/hush", clock=clock)
    with capture_logs() as lines:
        for _ in range(2):
            ping.polled()
            await done(ping)
            clock.at += WELL_EVERY_S
        monkeypatch.setattr(alarms_module, "TIMEOUT_S", LONG_S)
        listener.answer = b"HTTP/1.1 204 Well\r\n\r\n"
        ping.polled()
        await done(ping)
    events = [("ping.failed", reason), ("ping.recovered", None)][: 1 if answer is None else 2]
    assert [(one["event"], one.get("reason")) for one in lines] == events
    assert "hush" not in str(lines)
    await ping.close()


async def test_a_hanging_ping_delays_nothing(listener: Listener):
    listener.answer = b""
    ping = Ping(listener.url, clock=Clock())
    ping.polled()
    await until(lambda: listener.heard)
    async with asyncio.timeout(LONG_S):
        ping.checked(severe=True)  # one at a time
        await ping.close()
    assert len(listener.heard) == 1


def test_a_ping_goes_only_to_a_private_address():
    for address in ("https://pings.example/a", "http://127.0.0.1:8000/a", "http://localhost/a"):
        assert "example/a" not in repr(config.Alarms(ping_url=address))
    for address in ("http://pings.example/a", "pings.example", "https://", "https://["):
        with pytest.raises(ValueError, match="https://"):
            config.Alarms(ping_url=address)
