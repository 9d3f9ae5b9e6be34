"""Scripted faults for the next calls. words.toml explains each field of a fault.

A fault defines which calls it affects, how often, whether the call still has its effect (`when`), and what the client
receives. At most one fault affects a call: the first in the script that matches.
"""

import asyncio
import base64
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from random import Random
from threading import RLock
from typing import Any, Final

from . import rules, wire
from .state import Clock, system_clock

EVERY_OPERATION: Final = "*"
ALL_PERCENT: Final = 100.0
HTML: Final = "text/html; charset=utf-8"
JSON: Final = "application/json"
DEFAULT_PAGE: Final = "<html><body><h1>Bad Gateway</h1></body></html>"


class FaultKind(StrEnum):
    """What the client sees."""

    ANSWER = "answer"  # another answer: status, body, headers
    DROP = "drop"  # the connection closes without an answer
    HANG = "hang"  # no answer, the connection stays open
    DELAY = "delay"  # the true answer, `seconds` late
    DRIP = "drip"  # the true answer, `size` bytes every `seconds`
    TRUNCATE = "truncate"  # the true answer's first `size` bytes, then the connection closes
    CONTENT_TYPE = "content_type"  # the true answer under `content_type`
    GZIP = "gzip"  # the true answer compressed


class When(StrEnum):
    """Whether the service does what was asked. The kinds that give the true answer always do it."""

    BEFORE = "before"  # ANSWER, DROP, HANG: without effect. DELAY: the effect comes late too
    AFTER = "after"  # with effect, only the answer is lost or changed


_HIDES_ANSWER: Final = frozenset({FaultKind.ANSWER, FaultKind.DROP, FaultKind.HANG})


class BadFault(ValueError):
    """A fault that cannot be simulated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One entry of the script."""

    kind: FaultKind = FaultKind.ANSWER
    operation: str = EVERY_OPERATION
    when: When = When.BEFORE
    times: int | None = 1
    skip: int = 0
    every: int = 1
    percent: float = 100.0
    after_seconds: float = 0.0
    for_seconds: float | None = None
    account: str = ""
    argument: str = ""
    status: int = 500
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = JSON
    seconds: float = 0.0
    size: int = 10

    def __post_init__(self) -> None:
        """Refuse values that would match no call, or would fail later."""
        for name, kind in (("kind", FaultKind), ("when", When)):
            if not isinstance(getattr(self, name), kind):  # a plain text would act as the default
                raise BadFault(f"{name}: {getattr(self, name)!r} is none of {', '.join(map(str, kind))}")
        if self.operation not in (EVERY_OPERATION, *rules.Operation):
            raise BadFault(f"operation: {self.operation!r} is none of *, {', '.join(rules.Operation)}")
        head = "".join((self.content_type, *self.headers, *self.headers.values()))
        if not (head.isascii() and head.isprintable()):
            raise BadFault("content_type and headers must be ASCII texts of one line")
        if not 200 <= self.status <= 599:  # noqa: PLR2004 - the statuses of a final answer
            raise BadFault(f"status: {self.status} is not between 200 and 599")
        self._check_others()

    def _check_others(self) -> None:
        for name in ("account", "argument"):
            if not isinstance(getattr(self, name), str):
                raise BadFault(f"{name}: {getattr(self, name)!r} is not a text")
        for name in ("times", "skip", "every", "size", "status"):
            value = getattr(self, name)
            if type(value) is not int and not (value is None and name == "times"):
                raise BadFault(f"{name}: {value!r} is not a whole number")
        if self.size < 1 or self.every < 1:
            raise BadFault("size and every must be at least 1")
        times = (self.times or 0, self.skip, self.seconds, self.after_seconds, self.for_seconds or 0)
        if min(times) < 0 or not math.isfinite(sum(times)):
            raise BadFault("times, skip, seconds, after_seconds and for_seconds must be at least 0")
        if not 0 <= self.percent <= 100:  # noqa: PLR2004
            raise BadFault(f"percent: {self.percent} is not between 0 and 100")

    @property
    def hides_answer(self) -> bool:
        """Whether the client never sees the true answer."""
        return self.kind in _HIDES_ANSWER

    @property
    def has_effect(self) -> bool:
        """Whether the service does what was asked."""
        return self.when is When.AFTER or not self.hides_answer

    def fits(self, operation: str, account: str, argument: str) -> bool:
        """Return whether the fault matches such a call."""
        return (
            self.operation in (EVERY_OPERATION, operation)
            and self.account in ("", account)
            and self.argument in ("", argument.lower())
        )

    # Answers of a service, or of a proxy in front of it.

    @classmethod
    def error(cls, operation: str, status: int, error: str, message: str | None = None, **more: Any) -> "Fault":
        """Answer with docs/interface.md's error envelope."""
        envelope = {"status": False, "error": error} | ({} if message is None else {"message": message})
        return cls(operation=operation, status=status, body=json.dumps(envelope, ensure_ascii=False).encode(), **more)

    @classmethod
    def page(cls, operation: str, status: int = 502, html: str = DEFAULT_PAGE, **more: Any) -> "Fault":
        """Answer with an HTML page, as a proxy does."""
        return cls(operation=operation, status=status, body=html.encode(), content_type=HTML, **more)

    @classmethod
    def redirect(cls, operation: str, location: str, status: int = 307, **more: Any) -> "Fault":
        """Answer with a redirect."""
        return cls(operation=operation, status=status, headers={"Location": location}, **more)

    @classmethod
    def too_many(cls, operation: str, **more: Any) -> "Fault":
        """Answer 429 with docs/interface.md's body; `Fault(status=429)` is the one without."""
        return cls.error(operation, 429, rules.TOO_MANY_REQUESTS, rules.cooldown_message(30), **more)

    @classmethod
    def unauthorized(cls, operation: str, message: str = rules.EXPIRED_OR_INVALID, **more: Any) -> "Fault":
        """Answer 401."""
        return cls.error(operation, 401, rules.UNAUTHORIZED, message, **more)

    @classmethod
    def drop(cls, operation: str, **more: Any) -> "Fault":
        """Close the connection without an answer."""
        return cls(operation=operation, kind=FaultKind.DROP, **more)

    @classmethod
    def hang(cls, operation: str, **more: Any) -> "Fault":
        """Never answer."""
        return cls(operation=operation, kind=FaultKind.HANG, **more)

    @classmethod
    def delay(cls, operation: str, seconds: float, **more: Any) -> "Fault":
        """Answer late."""
        return cls(operation=operation, kind=FaultKind.DELAY, seconds=seconds, **more)

    # The control interface.

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Fault":
        """Build a fault from JSON: a string body is sent as HTML, other values as JSON; or body_base64."""
        values = dict(data)
        unknown = sorted(values.keys() - {f.name for f in fields(cls)} - {"body_base64"})
        if unknown:
            known = sorted([*(f.name for f in fields(cls)), "body_base64"])
            raise BadFault(f"no such field: {', '.join(unknown)}; known: {', '.join(known)}")
        try:
            values["kind"] = FaultKind(values.get("kind", FaultKind.ANSWER))
            values["when"] = When(values.get("when", When.BEFORE))
            values |= _body_from_json(values.pop("body", None), values.pop("body_base64", None), values)
            return cls(**values)
        except (TypeError, ValueError, AttributeError) as error:
            raise BadFault(str(error)) from error

    def as_json(self) -> dict[str, Any]:
        """Return the fault for the control interface."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        values["body"] = self.body.decode(errors="backslashreplace")
        values["headers"] = dict(self.headers)
        return values


def _body_from_json(body: object, encoded: str | None, given: Mapping[str, Any]) -> dict[str, Any]:
    if encoded is not None:
        return {"body": base64.b64decode(encoded, validate=True)}
    if body is None:
        return {}
    if isinstance(body, str):
        return {"body": body.encode(), "content_type": given.get("content_type", HTML)}
    return {"body": wire.encode(body)}


# ---- the script ------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Line:
    fault: Fault
    added: datetime | None
    skipped: int = 0
    passed: int = 0
    met: int = 0

    @property
    def is_open(self) -> bool:
        return self.fault.times is None or self.met < self.fault.times

    def is_on(self, clock: Clock) -> bool:
        """Whether the fault is active at this time."""
        if self.added is None:
            return True
        since = (clock() - self.added).total_seconds() - self.fault.after_seconds
        return since >= 0 and (self.fault.for_seconds is None or since < self.fault.for_seconds)

    def meets(self, chance: Callable[[], float]) -> bool:
        """Count a matching call, and return whether the fault affects it."""
        if self.skipped < self.fault.skip:
            self.skipped += 1
            return False
        self.passed += 1
        if self.passed % self.fault.every or (
            self.fault.percent < ALL_PERCENT and chance() * ALL_PERCENT >= self.fault.percent
        ):
            return False
        self.met += 1
        return True


def _is_timed(fault: Fault) -> bool:
    return fault.after_seconds > 0 or fault.for_seconds is not None


class FaultScript:
    """The faults for future calls. Any thread may add some."""

    def __init__(self, clock: Clock = system_clock) -> None:
        """Start without faults."""
        self._clock = clock
        self._random = Random("faults")  # noqa: S311 - reproducible on purpose
        self._lock = RLock()
        self._lines: list[_Line] = []
        self._pauses: set[asyncio.Future[None]] = set()

    def add(self, *faults: Fault) -> None:
        """Append faults."""
        with self._lock:
            self._lines += [_Line(fault, self._clock() if _is_timed(fault) else None) for fault in faults]

    def clear(self) -> None:
        """Remove all faults, and end all delays."""
        with self._lock:
            self._lines = []
            self._random = Random("faults")  # noqa: S311
            for pause in self._pauses:
                pause.get_loop().call_soon_threadsafe(pause.cancel)

    async def pause(self, fault: Fault) -> None:
        """Wait for the fault's `seconds`, or until any thread clears the script."""
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._lock:
            if not any(line.fault is fault for line in self._lines):
                return  # cleared after this call got the fault
            self._pauses.add(over)
        try:
            await asyncio.wait([over], timeout=fault.seconds)
        finally:
            with self._lock:
                self._pauses.discard(over)

    def pending(self) -> list[Fault]:
        """Return the faults that can still affect a call."""
        with self._lock:
            return [line.fault for line in self._lines if line.is_open]

    def take(self, operation: str, account: str, argument: str) -> Fault | None:
        """Return the fault for this call and count it."""
        with self._lock:
            for line in self._lines:
                if not (line.is_open and line.fault.fits(operation, account, argument) and line.is_on(self._clock)):
                    continue
                if line.meets(self._random.random):
                    return line.fault
        return None
