"""A script of faults: what goes wrong with which of the next calls.

A fault says which calls it meets, how often, whether the service still does what was asked before things go wrong
(`when`), and what the client sees. A call meets one fault at most: the first in the script that fits.
"""

import base64
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Final

from . import rules, wire

EVERY_OPERATION: Final = "*"
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
    AFTER = "after"  # it is done, only the answer suffers


_HIDES_ANSWER: Final = frozenset({FaultKind.ANSWER, FaultKind.DROP, FaultKind.HANG})


FIELDS: Final[Mapping[str, tuple[str, str]]] = {
    "operation": ("Which operation it meets; `*`: every one.", "Hangi işlem; `*`: hepsi."),
    "kind": (
        "What the client sees: `answer` (another answer), `drop` (the connection closes), `hang` (no answer), `delay`, `drip` (the true answer in pieces), `truncate` (cut off), `content_type`, `gzip`.",
        "İstemcinin gördüğü: `answer` (başka yanıt), `drop` (bağlantı kapanır), `hang` (yanıt gelmez), `delay` (geç gelir), `drip` (parça parça gelir), `truncate` (kesilir), `content_type`, `gzip`.",
    ),
    "when": (
        "`before`: the service does nothing. `after`: it does what was asked, only the answer suffers.",
        "`before`: platform bir şey yapmaz. `after`: istenen yapılır, yalnızca yanıt bozulur.",
    ),
    "times": ("How many calls it meets; none: until it is cleared.", "Kaç istek; none: temizlenene kadar."),
    "skip": ("How many fitting calls pass first.", "Önce kaç uygun istek sorunsuz geçer."),
    "every": ("After those, every n-th call that fits.", "Ondan sonra her kaçıncı uygun istek."),
    "percent": ("So many of a hundred of those, by chance.", "Bunların yüzde kaçı, rastgele."),
    "after_seconds": ("It begins so many seconds after it was added.", "Eklendikten kaç saniye sonra başlar."),
    "for_seconds": ("For how long from then on; none: without end.", "O andan sonra ne kadar sürer; none: süresiz."),
    "account": ("Only calls of this account.", "Yalnızca bu hesabın istekleri."),
    "argument": ("Only calls with this id in the path.", "Yalnızca yolunda bu kimlik olan istekler."),
    "status": ("The HTTP status of `answer`.", "`answer` için HTTP kodu."),
    "body": (
        "The body of `answer`: an object is sent as JSON, a text as HTML; `body_base64` for any bytes.",
        "`answer` gövdesi: nesne JSON, metin HTML olarak gider; her türlü bayt için `body_base64`.",
    ),
    "headers": ("Further headers of the answer.", "Yanıtın ek başlıkları."),
    "content_type": ("Under which type the body goes.", "Gövdenin türü."),
    "seconds": (
        "How long to wait before the answer; for `drip` between two pieces.",
        "Yanıttan önceki bekleme; `drip` için iki parça arası.",
    ),
    "size": (
        "How many bytes a piece of `drip` has, or `truncate` lets through.",
        "`drip` parçasının ya da `truncate` ile geçen baytların sayısı.",
    ),
}
"""Each field with its sentence in English and Turkish."""


class BadFault(ValueError):
    """A fault that cannot be played."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One entry of the script."""

    kind: FaultKind = FaultKind.ANSWER
    operation: str = EVERY_OPERATION
    """The name of an operation ("accept", "get_current", "login", ...) or "*"."""
    when: When = When.BEFORE
    times: int | None = 1
    """How many calls it meets; None: until the script is cleared."""
    skip: int = 0
    """How many fitting calls pass unharmed first."""
    every: int = 1
    """After those it meets every n-th call that fits."""
    percent: float = 100.0
    """So many of a hundred of those, by chance."""
    after_seconds: float = 0.0
    """It begins so many seconds after it was added."""
    for_seconds: float | None = None
    """For how long from then on; None: without end."""
    account: str = ""
    """Only calls of the account with this name; empty: of any."""
    argument: str = ""
    """Only calls with this id in the path, in lower case; empty: any."""
    status: int = 500
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = JSON
    seconds: float = 0.0
    """How long to wait before answering; for DRIP between two pieces."""
    size: int = 10

    def __post_init__(self) -> None:
        """Refuse what would never fit a call, or only fail when the fault is played."""
        for name, kind in (("kind", FaultKind), ("when", When)):
            if not isinstance(getattr(self, name), kind):  # a text would never be it, and pass for the default
                raise BadFault(f"{name}: {getattr(self, name)!r} is none of {', '.join(map(str, kind))}")
        if self.operation not in (EVERY_OPERATION, *rules.Operation):
            raise BadFault(f"operation: {self.operation!r} is none of *, {', '.join(rules.Operation)}")
        head = "".join((self.content_type, *self.headers, *self.headers.values()))
        if not (head.isascii() and head.isprintable()):
            raise BadFault("content_type and headers are ASCII texts of one line")
        if not 200 <= self.status <= 599:  # noqa: PLR2004 - what a final answer can have
            raise BadFault(f"status: {self.status} is not between 200 and 599")
        self._check_others()

    def _check_others(self) -> None:
        for name in ("account", "argument"):
            if not isinstance(getattr(self, name), str):
                raise BadFault(f"{name}: {getattr(self, name)!r} is no text")
        for name in ("times", "skip", "every", "size", "status"):
            value = getattr(self, name)
            if type(value) is not int and not (value is None and name == "times"):
                raise BadFault(f"{name}: {value!r} is no whole number")
        if self.size < 1 or self.every < 1:
            raise BadFault("size and every are not below 1")
        times = (self.times or 0, self.skip, self.seconds, self.after_seconds, self.for_seconds or 0)
        if min(times) < 0 or not math.isfinite(sum(times)):
            raise BadFault("times, skip, seconds, after_seconds and for_seconds are numbers from 0 on")
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
        """Return whether the fault is meant for such a call."""
        return (
            self.operation in (EVERY_OPERATION, operation)
            and self.account in ("", account)
            and self.argument in ("", argument.lower())
        )

    # What a service, or a proxy before it, may answer.

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
            raise BadFault(f"no such field: {', '.join(unknown)}; there are {', '.join(known)}")
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
