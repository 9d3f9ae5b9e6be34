"""Runs the command of `[alarms]` at the beginning of each problem, when it gets worse, and at its end.

It runs beside the daemon, one call at a time, and nothing waits for it. What it has to report is the difference between
the open problems and what the command has heard (rules.problems), so nothing queues up while it hangs. Of one code at
most one message leaves in a minute, with all orders that have the problem by then; a problem that began and ended in
that minute is not reported. A message that fails is sent again, less and less often: the mail may use the same dead
line as the orders. A stop waits a moment for a running command, then kills it.

`Ping` requests `[alarms] ping_url` after a good poll while nothing severe is open, and the address with /fail behind its
path when something is: a monitor that misses the pings notices a dead machine. Each request has a connection and a time
limit of its own; the orders do not depend on it. The address is a secret.
"""

import asyncio
import contextlib
import json
import math
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

import structlog

from orderbridge import __version__, config
from orderbridge.clock import Clock
from orderbridge.errors import MarketplaceError
from orderbridge.hiding import hide, without_secrets
from orderbridge.net.http import Wire
from orderbridge.rules.problems import ALIKE_LIMIT, Code, Event, EventKind, Key, OpenProblems, Rank, alike
from orderbridge.store.workers import detached
from orderbridge.texts import problem_text, say

PAUSE_S = 60.0  # between two messages of one code
AGAIN_S, LONGEST_S = 60.0, 3600.0  # after a failure; it doubles
CLOSE_S = 1.5
HIDDEN_VARIABLES = ("ORDERBRIDGE_", "NOTIFY_SOCKET", "WATCHDOG_", "CREDENTIALS_DIRECTORY", "LISTEN_", "JOURNAL_STREAM")
MARGIN_S = 5.0  # for a command that is late to be killed

_log = structlog.get_logger(__name__)
WELL_EVERY_S = 30.0
FAIL_EVERY_S = 60.0
TIMEOUT_S = 10.0
LEAST_SECRET = 16  # characters of a path that cannot be guessed; a shorter one may be a common word
LINE_BYTES = 200  # of an answer that is not HTTPS: its first line


class Ping:
    """Learns of each good poll and of the result of each check of health."""

    def __init__(self, url: str, *, clock: Clock, ca_file: Path | None = None) -> None:
        hide(url)
        self._address = urlsplit(url)
        if len(self._address.path) > LEAST_SECRET:
            hide(self._address.path.strip("/"))
        self._clock = clock
        self._ca_file = ca_file
        self._wire: Wire | None = None
        self._task: asyncio.Task[None] | None = None
        self._severe = False
        self._next_well = self._next_fail = float("-inf")
        self._failed = False

    def polled(self) -> None:
        """A poll went well."""
        now = self._clock.monotonic()
        if not self._severe and now >= self._next_well and self._begin(""):
            self._next_well = now + WELL_EVERY_S

    def checked(self, severe: bool) -> None:
        """Whether something severe is open."""
        if severe and not self._severe:
            self._next_fail = float("-inf")
        self._severe = severe
        now = self._clock.monotonic()
        if severe and now >= self._next_fail and self._begin("/fail"):
            self._next_fail = now + FAIL_EVERY_S

    async def close(self) -> None:
        """Nothing is waited for."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._wire is not None:
            await self._wire.close()

    def _begin(self, more: str) -> bool:
        if self._task is not None and not self._task.done():
            return False
        self._task = asyncio.create_task(self._ping(more))
        return True

    async def _ping(self, more: str) -> None:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                status = await self._get(more)
            failure = None if 200 <= status < 300 else f"HTTP {status}"  # noqa: PLR2004
        except MarketplaceError as error:  # without its detail: that names the host
            failure = error.code
        except Exception as error:  # noqa: BLE001 - whatever the other side makes of it, the orders go on
            failure = type(error).__name__
        if failure is not None and not self._failed:
            _log.warning("ping.failed", reason=failure)
        elif failure is None and self._failed:
            _log.info("ping.recovered")
        self._failed = failure is not None

    async def _get(self, more: str) -> int:
        address = self._address
        target = address.path.rstrip("/") + more + (f"?{address.query}" if address.query else "")
        if address.scheme == "http":
            return await _plain(address, target or "/")
        if self._wire is None:
            base_url = f"https://{address.netloc}"
            self._wire = Wire(base_url=base_url, timeout_s=TIMEOUT_S, ca_file=self._ca_file, max_idle=0)
        return (await self._wire.request("GET", target, headers={})).status


async def _plain(address: SplitResult, target: str) -> int:
    """To this machine itself."""
    reader, writer = await asyncio.open_connection(address.hostname, address.port or 80, limit=LINE_BYTES)
    try:
        writer.write(f"GET {target} HTTP/1.1\r\nHost: {address.netloc}\r\nConnection: close\r\n\r\n".encode("ascii"))
        await writer.drain()
        return int((await reader.readuntil(b"\r\n")).split()[1])
    except (IndexError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise ValueError(say("net.no_http")) from error
    finally:
        writer.close()


class Alarms:
    """Learns the open problems at each check, and reports what has changed."""

    def __init__(self, chosen: config.Alarms, language: str, on_sent: Callable[[], object] = bool) -> None:
        self._command = Command(chosen.command, chosen.command_timeout_seconds)
        self._limit_s = chosen.command_timeout_seconds + MARGIN_S
        self._on_sent = on_sent  # what the command has heard is stored at once
        self._severe_only = chosen.command_severity == "severe"
        self._language = language
        self._problems = OpenProblems()
        self._kept: Collection[Key] = ()
        self._failed: dict[Key, tuple[EventKind, Rank]] = {}  # not to be tried before `_again_at`
        self._sent: dict[Code, float] = {}  # when the last message of each code left
        self._sender: asyncio.Task[None] | None = None
        self._is_closed = not chosen.command
        self.failure: str | None = None  # why the last message was not sent
        self._failures = 0  # since the command last worked: the log has the first one and the recovery
        self._now, self._again_at, self._wait_s = 0.0, math.inf, AGAIN_S

    def check(self, problems: OpenProblems, kept: Collection[Key], monotonic: float) -> None:
        """What is open now, and what is `kept` open by another problem; returns at once."""
        self._problems, self._kept, self._now = problems, kept, monotonic
        if monotonic >= self._again_at:
            self._failed, self._again_at = {}, math.inf
        if self._sender is None and self._next():
            self._sender = asyncio.create_task(self._send())

    def _unheard(self) -> list[Event]:
        return self._problems.unheard(self._kept, self._now, severe_only=self._severe_only)

    def _next(self) -> list[Event]:
        """The next message: the first event that may leave, and all that are like it."""
        if self._is_closed:
            return []
        free = [
            one
            for one in self._unheard()
            if self._now >= self._sent.get(one.problem.code, -math.inf) + PAUSE_S
            and self._failed.get(one.problem.key) != (one.kind, one.problem.rank)
        ]
        return alike(free, most=0)[0] if free else []

    async def close(self) -> None:
        """A running command gets a moment; then it is killed, and nothing more is reported."""
        if (sender := self._sender) is None:
            return
        _, late = await asyncio.wait([sender], timeout=CLOSE_S)
        if late:
            _log.warning("alarm.given_up", waiting=len(self._unheard()))
            self._is_closed = True
            self._command.end()
            await asyncio.wait([sender], timeout=CLOSE_S)
            sender.cancel()
            await asyncio.gather(sender, return_exceptions=True)

    async def _send(self) -> None:
        try:
            while some := self._next():
                await self._run(some)
        finally:
            self._sender = None

    async def _run(self, some: Sequence[Event]) -> None:
        document = document_of(some, self._language)
        try:  # to start a program, or to kill it, may hang as well: where its disk does
            async with asyncio.timeout(self._limit_s):
                self.failure = await detached(partial(send, self._command, document))
        except TimeoutError:
            self.failure = say("log.command_late", seconds=f"{self._limit_s:g}")
        if self.failure is None:
            self._worked(some)
            return
        log = _log.debug if self._failures else _log.error
        log("alarm.failed", code=document["code"], reason=self.failure)
        self._failures += 1
        self._problems.sent(some, failed=True)
        self._failed |= {one.problem.key: (one.kind, one.problem.rank) for one in some}
        if self._again_at == math.inf:  # of many at once the first one decides
            self._again_at, self._wait_s = self._now + self._wait_s, min(2 * self._wait_s, LONGEST_S)

    def _worked(self, some: Sequence[Event]) -> None:
        if self._failures:
            _log.info("alarm.recovered", failures=self._failures)
            self._failures = 0
        self._sent[some[0].problem.code] = self._now
        self._problems.sent(some)
        for one in some:
            self._failed.pop(one.problem.key, None)
        self._again_at, self._wait_s = self._now if self._failed else math.inf, AGAIN_S
        self._on_sent()


def send(command: "Command", document: Mapping[str, Any]) -> str | None:
    """Run the command. None when it went well, else why not."""
    arguments = [str(document[name] or "") for name in ("event", "code", "subject", "since", "severity", "level")]
    return command.run(arguments, json.dumps(document, ensure_ascii=False).encode())


def document_of(some: Sequence[Event], language: str) -> dict[str, Any]:
    """What the command reads on stdin. No customer's data: an answer's own words (`detail`) are not in it."""
    event, problem = some[0], some[0].problem
    cause, remedy = problem_text(problem.code, language, **problem.facts)
    subjects = [one.problem.subject for one in some[:ALIKE_LIMIT]]
    document: dict[str, Any] = {
        "event": str(event.kind),
        "code": str(problem.code),
        "subject": ", ".join(subjects) + (" …" if len(some) > len(subjects) else ""),
        "subjects": subjects,
        "account": problem.account,
        "since": _iso(problem.since),
        "severity": str(problem.severity),
        "level": problem.level,
        "count": problem.count if len(some) == 1 else len(some),
        "cause": without_secrets(cause),
        "remedy": without_secrets(remedy),
        "seconds": round(max(one.seconds for one in some)),
        "flapped": max(one.flapped for one in some),
        "host": socket.gethostname(),
        "version": __version__,
    }
    return document


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


class Command:
    """The command of the restaurant: limited in time, with everything that it starts.

    It runs in a thread, because even starting a program may hang. It has a session of its own, and whatever is left of its
    process group when it ends, or when its time is up, is killed. Its output goes nowhere: it may hold a password. Our own
    settings are not in its environment.
    """

    def __init__(self, words: Sequence[str], timeout_s: float) -> None:
        self._words = tuple(words)
        self._timeout_s = timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._is_over = False

    def run(self, arguments: Sequence[str], document: bytes) -> str | None:
        """None when it went well, else what went wrong, in a few words. Never raises for what the command does."""
        if self._ends():
            return say("log.command_stopping")
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the technician's own words
                [*self._words, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env=_environment(os.environ),
            )
        except (OSError, ValueError) as error:
            return say("log.command_not_started", error=getattr(error, "strerror", None) or type(error).__name__)
        if self._ends():  # meanwhile
            self.end()
        return self._ended(self._process, document)

    def _ended(self, process: "subprocess.Popen[bytes]", document: bytes) -> str | None:
        late, wrong = False, None
        try:
            process.communicate(document, timeout=self._timeout_s)
        except subprocess.TimeoutExpired:
            late = True
        except OSError as error:  # of the pipe, or of the waiting: the daemon goes on, and the message is sent again
            wrong = error
            if process.stdin is not None:
                process.stdin.close()
        finally:
            _kill_group(process.pid)
            process.wait()
            self._process = None
        if wrong is not None:
            return say("log.command_broken", error=wrong.strerror)
        if late:
            return say("log.command_late", seconds=f"{self._timeout_s:g}")
        if process.returncode < 0:
            return say("log.command_signal", number=-process.returncode)
        return None if process.returncode == 0 else say("log.command_code", code=process.returncode)

    def _ends(self) -> bool:
        return self._is_over

    def end(self) -> None:
        """Now, and for good."""
        self._is_over = True
        if (process := self._process) is not None:
            _kill_group(process.pid)


def _kill_group(leader: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if not name.startswith(HIDDEN_VARIABLES)}
