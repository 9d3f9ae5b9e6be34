"""The exceptions and their messages. The class of an exception says what the caller should do.

A `Message` is an untranslated sentence: a key in sentences/ and its facts. `texts` translates it for a reader.

`MarketplaceError` and its subclasses are the failures of a request. Each has an `outcome`, so that rules decide on
values, not on exceptions.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

from orderbridge.hiding import without_secrets
from orderbridge.model import Outcome


@dataclass(frozen=True, slots=True, init=False)
class Message:
    """A key in sentences/ and its facts. A fact may be a message itself."""

    key: str
    facts: Mapping[str, object]

    def __init__(self, key: str, /, **facts: object) -> None:
        object.__setattr__(self, "key", key)
        object.__setattr__(self, "facts", facts)

    def __str__(self) -> str:
        """For developers; `texts.sentence` makes the text for users."""
        return " ".join([self.key, *(f"{name}={value}" for name, value in self.facts.items())])


def hidden(what: "str | Message") -> "str | Message":
    """The text or message without our secrets."""
    if isinstance(what, str):
        return without_secrets(what)
    facts = {name: hidden(fact) if isinstance(fact, str | Message) else fact for name, fact in what.facts.items()}
    return Message(what.key, **facts)


class OrderbridgeError(Exception):
    """A failure with a remedy. `code` is the key of its sentence; see `texts.sentence`."""

    def __init__(self, code: str, /, **facts: object) -> None:
        super().__init__(code, facts)
        self.code = code
        self.facts = facts

    def __str__(self) -> str:
        """For developers; `texts.sentence` makes the text for users."""
        return str(self.message)

    @property
    def message(self) -> Message:
        """The message of this error, to be translated later."""
        return Message(self.code, **self.facts)


class ConfigError(OrderbridgeError):
    """The configuration cannot be used; exit code 78."""


class StoreError(OrderbridgeError):
    """The database cannot be used: for example unsafe settings, a newer schema, or a file of another kind."""


class NoFile(StoreError):
    """The SQLite file does not exist, but could be created."""


class Unusable(StoreError):
    """A restart cannot help; an administrator must act. `orderbridge run` exits with 78."""


class Closed(Unusable):
    """This user has no rights on the database; every command exits with 78."""


class Over(StoreError):
    """Nothing may be written any more; the daemon stops."""


class FileLost(Over):
    """The SQLite file at the path was replaced or removed: writes to the open file would be lost."""


class Fenced(Over):
    """Another replica has taken over our accounts, so our writes could conflict with its own."""


class NoThread(OSError):
    """The system has no thread left. A class of its own, because a locked file has the same errno."""


class MarketplaceError(OrderbridgeError):
    """A request that did not end in OK.

    `code` is stable English snake_case. `detail`, a message or the marketplace's text, goes to the log and the attempts
    table, without secrets and customer data. `began`: the head of an answer had arrived. `reason` is finer than the
    code where the remedies differ (`texts.line_remedy`).
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
        """Change the reason to the one for an address at which the marketplace has answered before."""
        self.reason = ONCE_KNOWN.get(self.reason, self.reason)
        return self


# Reasons that suggest a wrong configuration in a new installation, and their replacements once a request succeeded.
ONCE_KNOWN = {
    "dns_failed": "dns_gone",
    "connection_refused": "service_refuses",
    "connect_timeout": "service_silent",
    "tls_wrong_name": "tls_stranger",
    "wrong_path": "front_moved",
    "front_or_path": "front_refuses",
    "no_envelope": "front_speaks",
}


# Reasons of requests that we held back ourselves. They say nothing about the marketplace or the network.
CLOSED = "closed"  # the program stops
HELD_BACK = "held_back"  # another replica may have the account
KEPT_HERE = frozenset({CLOSED, HELD_BACK})


class NotSent(MarketplaceError):
    """The request certainly never left (DNS, connection or TLS failed): try again with backoff."""

    outcome = Outcome.NOT_SENT


class LoginRefused(NotSent):
    """The marketplace refused the credentials, so the request was not sent: try again when the session permits it."""


class Unauthorized(MarketplaceError):
    """401: the token does not work. Log in once and repeat once."""

    outcome = Outcome.UNAUTHORIZED


class RateLimited(MarketplaceError):
    """429: wait for the cooldown. The request itself was not judged."""

    outcome = Outcome.RATE_LIMITED


class Refused(MarketplaceError):
    """The marketplace's definite refusal (docs/interface.md, Errors). Never send the request again."""

    outcome = Outcome.REFUSED


class ServiceFailed(MarketplaceError):
    """A 5xx other than 502 and 504: retry with backoff, three times at most."""

    outcome = Outcome.SERVICE_FAILED


class UnknownOutcome(MarketplaceError):
    """No answer, an unreadable one, 502, 504, or a body without the envelope: the request may have had its effect."""

    outcome = Outcome.UNKNOWN


@contextmanager
def reading(http_status: int | None = None) -> Iterator[None]:
    """A block that parses an answer: any exception of a parser becomes UnknownOutcome for this answer.

    Parsers raise more than they document: OverflowError for a date, ValueError for a number of 5,000 digits,
    RecursionError.
    """
    try:
        yield
    except MarketplaceError:
        raise
    except Exception as error:  # noqa: BLE001 - see above; its text may quote the answer
        raise broken(error, http_status) from None


def broken(error: Exception, http_status: int | None = None) -> UnknownOutcome:
    """The error for an unparsable answer, with the function that failed."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    place = "" if frame is None else f" in {frame.tb_frame.f_code.co_name}"
    return UnknownOutcome("broken_answer", f"{type(error).__name__}{place}", http_status=http_status)
