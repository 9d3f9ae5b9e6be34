"""Runs the command of `[alarms]` at the beginning of each problem, when it gets worse, and at its end.

It never holds anything up: it runs beside the daemon, one at a time, and what happens meanwhile waits in a queue of
bounded length. Of one code at most one message leaves in a minute, with all orders that have the problem by then; one that
began and ended in that minute is not sent at all. A message that fails is sent again, less and less often: the mail may
take the same dead line as the orders. At a stop it is waited for a moment, and then killed.
"""

import asyncio
import json
import math
import socket
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import structlog

from orderbridge import __version__, config
from orderbridge.hiding import without_secrets
from orderbridge.jobs.command import Command
from orderbridge.rules.notify import MOST_ALIKE, Edges, Event, EventKind, Key, Rank, alike
from orderbridge.rules.problems import Code, Problem, Severity
from orderbridge.store.workers import detached
from orderbridge.texts import problem_text, say

MOST_WAITING = 200  # events; of more the oldest go, and that is told
PAUSE_S = 60.0  # between two messages of one code
AGAIN_S, LONGEST_S = 60.0, 3600.0  # after one that failed; it doubles
CLOSE_S = 1.5
MARGIN_S = 5.0  # in which a command that was late is killed

_log = structlog.get_logger(__name__)


class Alarms:
    """Hears of each look at health, and tells what has changed."""

    def __init__(self, chosen: config.Alarms, language: str) -> None:
        self._command = Command(chosen.command, chosen.command_timeout_seconds)
        self._limit_s = chosen.command_timeout_seconds + MARGIN_S
        self.on_told: Callable[[], object] = bool  # what was told is written down at once
        self._severe_only = chosen.command_severity == "severe"
        self._language = language
        self._edges = Edges()
        self._waiting: deque[Event] = deque()
        self._sent: dict[Code, float] = {}  # when the last message of each code left
        self._teller: asyncio.Task[None] | None = None
        self.failure: str | None = None  # why the last message did not go out
        self._failures = 0  # since it last worked: the first is told, and that it works again
        self._heard: dict[Key, Rank] = {}
        self._untold: dict[Key, Event] = {}  # by a command that failed: the newest of each problem
        self._now, self._again_at, self._wait_s = 0.0, math.inf, AGAIN_S

    def remember(self, told: Iterable[Problem], monotonic: float) -> None:
        """What the daemon before this one has told."""
        for problem in told:
            self._edges.remember(problem, monotonic)
            self._heard[problem.key] = problem.rank

    def see(self, found: Iterable[Problem], monotonic: float) -> None:
        """What is so now; returns at once."""
        chosen = [one for one in found if one.severity == Severity.SEVERE or not self._severe_only]
        events, self._now = self._edges.see(chosen, monotonic), monotonic
        for event in events:
            self._untold.pop(event.problem.key, None)
        if monotonic >= self._again_at:
            self._waiting += self._untold.values()
            self._untold, self._again_at = {}, math.inf
        for event in events:
            self._put(event)
        if (lost := len(self._waiting) - MOST_WAITING) > 0:
            for _ in range(lost):
                self._waiting.popleft()
            _log.error("alarm.dropped", count=lost, reason=say("log.alarms_slow"))
        if self._teller is None and self._next():
            self._teller = asyncio.create_task(self._tell())

    def _put(self, event: Event) -> None:
        """One event of each problem waits: what has changed since the command last heard of it."""
        key, heard = event.problem.key, self._heard.get(event.problem.key)
        if before := [one for one in self._waiting if one.problem.key == key]:
            self._waiting.remove(before[0])
            if event.kind != EventKind.ENDED:
                event = replace(event, kind=EventKind.BEGAN if heard is None else EventKind.ESCALATED)
            elif heard is None:
                return
        self._waiting.append(event)

    def _next(self) -> list[Event]:
        """What the next message has: the oldest that waits and may leave, and all that are like it."""
        free = [one for one in self._waiting if self._now >= self._sent.get(one.problem.code, -math.inf) + PAUSE_S]
        return alike(free, most=0)[0] if free else []

    def told(self) -> dict[Key, Rank]:
        """How bad each problem was when the command last told of it, and told well; not the ones whose end it told."""
        return dict(self._heard)

    async def close(self) -> None:
        """What is under way gets a moment; then it is killed, and what waits is not told any more."""
        if (teller := self._teller) is None:
            return
        _, late = await asyncio.wait([teller], timeout=CLOSE_S)
        if late:
            _log.warning("alarm.given_up", waiting=len(self._waiting))
            self._waiting.clear()
            self._command.end()
            await asyncio.wait([teller], timeout=CLOSE_S)
            teller.cancel()
            await asyncio.gather(teller, return_exceptions=True)

    async def _tell(self) -> None:
        try:
            while some := self._next():
                for event in some:
                    self._waiting.remove(event)
                await self._run(some)
        finally:
            self._teller = None

    async def _run(self, some: Sequence[Event]) -> None:
        document = document_of(some, self._language)
        try:  # to start a program, or to kill it, may hang as well: where its disk does
            async with asyncio.timeout(self._limit_s):
                failure = await detached(partial(send, self._command, document))
        except TimeoutError:
            failure = say("log.command_late", seconds=f"{self._limit_s:g}")
        self.failure = failure
        if failure is not None:
            told = _log.debug if self._failures else _log.error
            told("alarm.failed", code=document["code"], reason=failure)
            self._failures += 1
            self._untold |= {event.problem.key: event for event in some}
            if self._again_at == math.inf:  # of many at once the first one says when
                self._again_at, self._wait_s = self._now + self._wait_s, min(2 * self._wait_s, LONGEST_S)
        else:
            if self._failures:
                _log.info("alarm.recovered", failures=self._failures)
                self._failures = 0
            self._again_at, self._wait_s = self._now if self._untold else math.inf, AGAIN_S
            self._sent[some[0].problem.code] = self._now
            self._note(some)
            self.on_told()

    def _note(self, some: Sequence[Event]) -> None:
        for event in some:
            if event.kind == EventKind.ENDED:
                self._heard.pop(event.problem.key, None)
            else:
                self._heard[event.problem.key] = event.problem.rank


def send(command: Command, document: Mapping[str, Any]) -> str | None:
    """Run the command. None when it went well, else why not."""
    arguments = [str(document[name] or "") for name in ("event", "code", "subject", "since", "severity", "level")]
    return command.run(arguments, json.dumps(document, ensure_ascii=False).encode())


def document_of(some: Sequence[Event], language: str) -> dict[str, Any]:
    """What the command reads on stdin. No customer's data: an answer's own words (`detail`) are not in it."""
    event, problem = some[0], some[0].problem
    cause, remedy = problem_text(problem.code, language, **problem.facts)
    subjects = [one.problem.subject for one in some[:MOST_ALIKE]]
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
