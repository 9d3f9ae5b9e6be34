"""What `check` finds: a `Finding` for each thing, printed for people as it comes, for programs at the end."""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import click

from orderbridge.cli.common import Context, show_json
from orderbridge.errors import MarketplaceError, OrderbridgeError
from orderbridge.message import Message
from orderbridge.texts import line_remedy, say, sentence

if TYPE_CHECKING:
    from orderbridge.config import Settings
    from orderbridge.store.database import Database

Words = str | Message | OrderbridgeError
OK, WARNING, FAILED = "ok", "warning", "failed"
COLOURS = {OK: "green", WARNING: "yellow", FAILED: "red"}


class Finding(NamedTuple):
    """`what` is a stable word, with a subject where there are several. `detail`: the cause."""

    level: str
    what: str
    detail: str
    remedy: str
    subject: str


def good(what: str, detail: Words = "", *, subject: str = "") -> Finding:
    """All is well with it."""
    return Finding(OK, what, sentence(detail), "", subject)


def warn(what: str, detail: Words, remedy: Words = "", *, subject: str = "") -> Finding:
    """It works, and needs attention."""
    return Finding(WARNING, what, sentence(detail), sentence(remedy), subject)


def bad(what: str, detail: Words, remedy: Words = "", *, subject: str = "") -> Finding:
    """It does not work."""
    return Finding(FAILED, what, sentence(detail), sentence(remedy), subject)


def failed(what: str, error: MarketplaceError, *, has_worked: bool, subject: str = "") -> Finding:
    """A request that did not end well: why in a word and what is known of it, then the cause and the remedy."""
    if has_worked:
        error.known_before()
    status = f"HTTP {error.http_status}" if error.http_status is not None else ""
    detail = sentence(error.detail)
    facts = [error.reason, status if status not in detail else "", detail]
    return bad(what, ": ".join(filter(None, facts)), line_remedy(error), subject=subject)


@dataclass(slots=True)
class Checked:
    """What is checked, and what the probes so far have found out for those that follow."""

    context: Context
    settings: "Settings"
    database: "Database | None" = None
    is_current: bool = False  # its tables are those of this program
    may_write: bool = False  # and so a token may be kept in it
    worker: str | None = None  # who works on it
    is_unusable: bool = False  # `run` ends with 78
    has_worked: bool = False  # the service has answered with this configuration before
    is_reached: bool = False  # it has answered now

    @property
    def opened(self) -> "Database":
        """The database, for probes that need it."""
        assert self.database is not None  # noqa: S101 - they are called with one
        return self.database


Probe = Callable[[Checked], Iterator[Finding]]
AsyncProbe = Callable[[Checked], AsyncIterator[Finding]]


class Report:
    """`machine`: nothing is shown before `show`."""

    def __init__(self, *, machine: bool) -> None:
        self._machine = machine
        self._findings: list[Finding] = []

    def probe(self, probes: Iterable[Probe], checked: Checked) -> None:
        """Run them one after another."""
        for probe in probes:
            for finding in probe(checked):
                self.add(finding)

    async def ask(self, probes: Iterable[AsyncProbe], checked: Checked) -> None:
        """The same of probes that ask the service."""
        for probe in probes:
            async for finding in probe(checked):
                self.add(finding)

    @property
    def is_good(self) -> bool:
        return all(finding.level != FAILED for finding in self._findings)

    def show(self) -> None:
        """For programs, all of it."""
        if self._machine:
            show_json([_document(finding) for finding in self._findings])

    def add(self, finding: Finding) -> None:
        """One more; people see it at once."""
        self._findings.append(finding)
        if not self._machine:
            level, what, detail, remedy, subject = finding
            label = say(f"label.{what}") + (f" {subject}" if subject else "")
            mark = click.style(say(f"mark.{level}").ljust(6), fg=COLOURS[level])
            text = ": ".join(part for part in (label, " ".join(detail.split())) if part)
            click.echo(f"{mark}{text}{f' -> {remedy}' if remedy else ''}")


def _document(finding: Finding) -> dict[str, str | bool]:
    level, what, detail, remedy, subject = finding
    name = f"{what} {subject}" if subject else what
    return {"check": name, "ok": level != FAILED, "level": level, "detail": detail, "remedy": remedy}
