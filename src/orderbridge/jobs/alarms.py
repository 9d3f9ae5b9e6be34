"""Runs the command of `[alarms]` when a problem begins, gets worse or ends, and requests `ping_url`.

The command runs in the background, one call at a time. Each call reports the difference between the open problems and
those already reported (rules.problems), so nothing queues up while a call hangs. At most one message a minute is sent
for one code, with all its subjects; a problem that begins and ends within that minute is not reported. A failed message
is sent again with growing pauses, because a mail may need the same broken network. A stop waits briefly for a running
command, then kills it.

`Ping` requests `ping_url` after a good poll while no severe problem is open, and `ping_url` with /fail appended to its
path otherwise. A monitor that misses the pings notices a dead machine. Each request has its own connection and time
limit, so orders do not depend on it. The address is a secret.
"""

import asyncio
import contextlib
import json
import math
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

import structlog

from orderbridge import __version__, config
from orderbridge.clock import Clock
from orderbridge.errors import MarketplaceError, NoThread
from orderbridge.hiding import hide, without_secrets
from orderbridge.net.connection import Connection, Trail
from orderbridge.net.http import Wire
from orderbridge.rules.problems import ALIKE_LIMIT, Code, Event, EventKind, Key, OpenProblems, Rank, alike
from orderbridge.store.workers import detached
from orderbridge.texts import problem_text, say

PAUSE_S = 60.0  # between two messages of one code
AGAIN_S, LONGEST_S = 60.0, 3600.0  # first and longest wait after a failure; the wait doubles
CLOSE_S = 1.5
HIDDEN_VARIABLES = ("ORDERBRIDGE_", "NOTIFY_SOCKET", "WATCHDOG_", "CREDENTIALS_DIRECTORY", "LISTEN_", "JOURNAL_STREAM")
MARGIN_S = 5.0  # to kill a command after its timeout
ARGUMENTS = ("event", "code", "subject", "since", "severity", "level")  # of the document

_log = structlog.get_logger(__name__)
WELL_EVERY_S = 30.0
FAIL_EVERY_S = 60.0
TIMEOUT_S = 10.0
MIN_SECRET = 16  # characters of a path that is hidden; a shorter one may be a common word


class Ping:
    """Requests `ping_url`. It is informed of each good poll and of each health check."""

    def __init__(self, url: str, *, clock: Clock, ca_file: Path | None = None) -> None:
        hide(url)
        self._address = urlsplit(url)
        if len(self._address.path) > MIN_SECRET:
            hide(self._address.path.strip("/"))
        self._clock = clock
        self._ca_file = ca_file
        self._wire: Wire | None = None
        self._task: asyncio.Task[None] | None = None
        self._severe = False
        self._next_well = self._next_fail = float("-inf")
        self._failed = False

    def polled(self) -> None:
        """A poll succeeded."""
        now = self._clock.monotonic()
        if not self._severe and now >= self._next_well and self._begin(""):
            self._next_well = now + WELL_EVERY_S

    def checked(self, severe: bool) -> None:
        """A health check ended; `severe`: a severe problem is open."""
        if severe and not self._severe:
            self._next_fail = float("-inf")
        self._severe = severe
        now = self._clock.monotonic()
        if severe and now >= self._next_fail and self._begin("/fail"):
            self._next_fail = now + FAIL_EVERY_S

    async def close(self) -> None:
        """Cancel a running request."""
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
        except MarketplaceError as error:  # its detail would name the host
            failure = error.code
        except Exception as error:  # noqa: BLE001 - a failed ping must not stop the orders
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
    """Request a loopback address over plain HTTP. Returns the status."""
    loop, headers = asyncio.get_running_loop(), [(b"Host", address.netloc.encode("ascii"))]
    _, connection = await loop.create_connection(Connection, address.hostname or "", address.port or 80)
    try:
        return (await connection.ask("GET", target.encode("ascii"), headers, b"", Trail()))[0]
    finally:
        connection.close()


class Alarms:
    """Reports changes of the open problems, which it gets from each health check."""

    def __init__(self, chosen: config.Alarms, language: str, on_sent: Callable[[], object] = bool) -> None:
        self._command = Command(chosen.command, chosen.command_timeout_seconds)
        self._limit_s = chosen.command_timeout_seconds + MARGIN_S
        self._on_sent = on_sent  # stores what was reported
        self._severe_only = chosen.command_severity == "severe"
        self._language = language
        self._problems = OpenProblems()
        self._kept: Collection[Key] = ()
        self._failed: dict[Key, tuple[EventKind, Rank]] = {}  # not to be tried before `_again_at`
        self._sent: dict[Code, float] = {}  # time of the last message of each code
        self._sender: asyncio.Task[None] | None = None
        self._is_closed = not chosen.command
        self.failure: str | None = None  # why the last message was not sent
        self._failures = 0  # since the last success; only the first and the recovery are logged
        self._now, self._again_at, self._wait_s = 0.0, math.inf, AGAIN_S

    def check(self, problems: OpenProblems, kept: Collection[Key], monotonic: float) -> None:
        """Take the open problems and those `kept` open by another problem. Returns at once."""
        self._problems, self._kept, self._now = problems, kept, monotonic
        if monotonic >= self._again_at:
            self._failed, self._again_at = {}, math.inf
        if self._sender is None and self._next():
            self._sender = asyncio.create_task(self._send())

    def _unreported(self) -> list[Event]:
        return self._problems.unreported(self._kept, self._now, severe_only=self._severe_only)

    def _next(self) -> list[Event]:
        """The next message: the first event that may be sent, and all similar ones."""
        if self._is_closed:
            return []
        free = [
            one
            for one in self._unreported()
            if self._now >= self._sent.get(one.problem.code, -math.inf) + PAUSE_S
            and self._failed.get(one.problem.key) != (one.kind, one.problem.rank)
        ]
        return alike(free, most=0)[0] if free else []

    async def close(self) -> None:
        """Wait briefly for a running command, then kill it. Nothing more is reported."""
        if (sender := self._sender) is None:
            return
        _, late = await asyncio.wait([sender], timeout=CLOSE_S)
        if late:
            _log.warning("alarm.given_up", waiting=len(self._unreported()))
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
        try:  # starting or killing a program may hang, too, if its disk does
            async with asyncio.timeout(self._limit_s):
                self.failure = await detached(partial(self._command.run, document))
        except TimeoutError:
            self.failure = say("log.command_late", seconds=f"{self._limit_s:g}")
        except NoThread:
            self.failure = say("line.here_threads")
        if self.failure is None:
            self._worked(some)
            return
        log = _log.debug if self._failures else _log.error
        log("alarm.failed", code=document["code"], reason=self.failure)
        self._failures += 1
        self._problems.sent(some, failed=True)
        self._failed |= {one.problem.key: (one.kind, one.problem.rank) for one in some}
        if self._again_at == math.inf:  # the first of several failures sets the time
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


def document_of(some: Sequence[Event], language: str) -> dict[str, Any]:
    """The JSON that the command reads on stdin. It has no customer data, and so not the problem's `detail`."""
    event, problem = some[0], some[0].problem
    cause, remedy = problem_text(problem.code, language, **problem.facts)
    subjects = [one.problem.subject for one in some[:ALIKE_LIMIT]]
    return {
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
        "host": socket.gethostname(),
        "version": __version__,
    }


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


class Command:
    """The configured command. It and all processes that it starts have a time limit.

    It runs in a thread, because even starting a program may hang. It has its own session; the rest of its process group
    is killed when it ends or its time is up. Its output is discarded, as it may hold a password; `alarm test` shows it.
    Its environment does not have our settings.
    """

    def __init__(self, words: Sequence[str], timeout_s: float, *, is_shown: bool = False) -> None:
        self._words, self._timeout_s = tuple(words), timeout_s
        self._output = None if is_shown else subprocess.DEVNULL
        self._process: subprocess.Popen[bytes] | None = None
        self._is_over = threading.Event()  # set in another thread

    def run(self, document: Mapping[str, Any]) -> str | None:
        """Returns None, or a short reason for the failure. Never raises because of the command."""
        if self._is_over.is_set():
            return say("log.command_stopping")
        arguments = [str(document[name] or "") for name in ARGUMENTS]
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the configured command
                [*self._words, *arguments],
                stdin=subprocess.PIPE,
                stdout=self._output,
                stderr=self._output,
                start_new_session=True,
                env={name: value for name, value in os.environ.items() if not name.startswith(HIDDEN_VARIABLES)},
            )
        except (OSError, ValueError) as error:
            return say("log.command_not_started", error=getattr(error, "strerror", None) or type(error).__name__)
        if self._is_over.is_set():  # `end` was called meanwhile
            self.end()
        return self._ended(self._process, json.dumps(document, ensure_ascii=False).encode())

    def _ended(self, process: "subprocess.Popen[bytes]", document: bytes) -> str | None:
        failure = None
        try:
            process.communicate(document, timeout=self._timeout_s)
        except subprocess.TimeoutExpired:
            failure = say("log.command_late", seconds=f"{self._timeout_s:g}")
        except OSError as error:  # of the pipe or of waitpid; the message is sent again
            failure = say("log.command_broken", error=error.strerror)
            if process.stdin is not None:
                process.stdin.close()
        finally:
            _kill_group(process.pid)
            process.wait()
            self._process = None
        if failure is not None or process.returncode == 0:
            return failure
        if process.returncode < 0:
            return say("log.command_signal", number=-process.returncode)
        return say("log.command_code", code=process.returncode)

    def end(self) -> None:
        """Kill the running command, and run no other."""
        self._is_over.set()
        if (process := self._process) is not None:
            _kill_group(process.pid)


def _kill_group(leader: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
