"""The exception tree, and the messages that exceptions carry. A class answers one question: what should the caller do?

A `Message` is a sentence that is not made yet: a key in sentences/ and its facts. `texts` makes it where a person
reads.

`MarketplaceError` and its children are the ends that a request can have besides OK. Each names its `outcome`, so
that a rule can decide on a value and never on an exception.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from orderbridge.hiding import without_secrets
from orderbridge.model import Outcome


@dataclass(frozen=True, slots=True, init=False)
class Message:
    """A fact may be a message itself."""

    key: str
    facts: Mapping[str, object]

    def __init__(self, key: str, /, **facts: object) -> None:
        object.__setattr__(self, "key", key)
        object.__setattr__(self, "facts", facts)

    def __str__(self) -> str:
        """For programmers. `texts.sentence` is for everybody else."""
        return " ".join([self.key, *(f"{name}={value}" for name, value in self.facts.items())])


def hidden(what: "str | Message") -> "str | Message":
    """The same without our secrets."""
    if isinstance(what, str):
        return without_secrets(what)
    facts = {name: hidden(fact) if isinstance(fact, str | Message) else fact for name, fact in what.facts.items()}
    return Message(what.key, **facts)


class OrderbridgeError(Exception):
    """A failure that a person can end: a code, which is the key of its sentence, and facts (`texts.sentence`)."""

    def __init__(self, code: str, /, **facts: object) -> None:
        super().__init__(code, facts)
        self.code = code
        self.facts = facts

    def __str__(self) -> str:
        """For programmers. `texts.sentence` is for everybody else."""
        return str(self.message)

    @property
    def message(self) -> Message:
        """The same, to be put in words later."""
        return Message(self.code, **self.facts)


class ConfigError(OrderbridgeError):
    """The configuration cannot be used; exit code 78."""


class StoreError(OrderbridgeError):
    """The database cannot be used as it is: unsafe settings, a newer schema, a file that is no database."""


class NoFile(StoreError):
    """The SQLite file is not there, and nothing speaks against making it."""


class Unusable(StoreError):
    """A database that no restart makes usable, but a person: `orderbridge run` ends with 78."""


class Closed(Unusable):
    """A database that this user may not use; exit code 78 for every command."""


class Over(StoreError):
    """Nothing is written any more: the daemon ends."""


class FileLost(Over):
    """The SQLite file is no longer the one at its path: what is written now is lost."""


class Fenced(Over):
    """Another replica has taken over what was ours: whatever we write now, it may have written already."""


class MarketplaceError(OrderbridgeError):
    """A request that did not end in OK.

    `code` is stable English snake_case; `detail`, a message or the service's own words, is for the log and the attempts
    table. Secrets are taken out here; it holds no customer data. `began`: the head of an answer was there. `reason`:
    finer than the code where a technician has to do something else about it (`texts.line_remedy`).
    """

    outcome: Outcome = Outcome.UNKNOWN
    began: bool = False

    def __init__(
        self, code: str, detail: str | Message = "", *, http_status: int | None = None, reason: str = ""
    ) -> None:
        super().__init__(code)
        self.detail = hidden(detail)
        self.http_status = http_status
        self.reason = reason or code

    def __str__(self) -> str:
        return f"{self.code}: {self.detail}" if self.detail else self.code

    def known_before(self) -> Self:
        """The service has answered at this address before: the reason is another one than of a new installation."""
        self.reason = ONCE_KNOWN.get(self.reason, self.reason)
        return self


# Reasons that may lie in the configuration as long as nothing ever worked, and what they are once something did.
ONCE_KNOWN = {
    "dns_failed": "dns_gone",
    "connection_refused": "service_refuses",
    "connect_timeout": "service_silent",
    "tls_wrong_name": "tls_stranger",
    "wrong_path": "front_moved",
    "front_or_path": "front_refuses",
    "no_envelope": "front_speaks",
}


# Reasons of a request that we did not let leave: nothing is known of the service or the line.
CLOSED = "closed"  # the program stops
HELD_BACK = "held_back"  # another replica may have the account
KEPT_HERE = frozenset({CLOSED, HELD_BACK})


class NotSent(MarketplaceError):
    """The request certainly never left (name not resolved, connection or TLS refused): try again with backoff."""

    outcome = Outcome.NOT_SENT


class LoginRefused(NotSent):
    """No token can be had: the service refused the credentials. Nothing was sent; try again at `until`."""

    def __init__(
        self, code: str, detail: str | Message = "", *, until: datetime, http_status: int | None = None
    ) -> None:
        super().__init__(code, detail, http_status=http_status)
        self.until = until


class Unauthorized(MarketplaceError):
    """401: the token does not work. Log in once, repeat once."""

    outcome = Outcome.UNAUTHORIZED


class RateLimited(MarketplaceError):
    """429: wait for the cooldown. It says nothing about the request itself."""

    outcome = Outcome.RATE_LIMITED


class Refused(MarketplaceError):
    """The service's definite no (docs/interface.md, Errors). Never send it again."""

    outcome = Outcome.REFUSED


class ServiceFailed(MarketplaceError):
    """A 5xx other than 502 and 504: retry with backoff, three times at most."""

    outcome = Outcome.SERVICE_FAILED


class UnknownOutcome(MarketplaceError):
    """Silence, a broken answer, 502 or 504, or a body without the envelope: it may have had its effect."""

    outcome = Outcome.UNKNOWN


@contextmanager
def reading(http_status: int | None = None) -> Iterator[None]:
    """What the other side wrote is parsed in here: whatever a parser makes of it costs this one answer and no more.

    Parsers raise more than they promise: OverflowError for a date, ValueError for a number of 5,000 digits,
    RecursionError.
    """
    try:
        yield
    except MarketplaceError:
        raise
    except Exception as error:  # noqa: BLE001 - see above; without its text, which quotes the answer
        raise broken(error, http_status) from None


def broken(error: Exception, http_status: int | None = None) -> UnknownOutcome:
    """An answer that no parser could read; where it was, for a fault of ours."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    place = "" if frame is None else f" in {frame.tb_frame.f_code.co_name}"
    return UnknownOutcome("broken_answer", f"{type(error).__name__}{place}", http_status=http_status)
