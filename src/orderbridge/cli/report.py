"""What `check` has found, line by line: what, how it is, what to do. For people as it comes, for programs at the end."""

import click

from orderbridge.cli.common import show_json
from orderbridge.errors import MarketplaceError
from orderbridge.texts import say

OK, WARNING, FAILED = "ok", "warning", "failed"


class Report:
    """`machine`: nothing is shown before `show`. `what` is a stable word, with a subject where there are several."""

    def __init__(self, *, machine: bool) -> None:
        self._machine = machine
        self.has_worked = False  # the service has answered with this configuration before
        self.findings: list[dict[str, str | bool]] = []
        self.is_unusable = False  # the database: `run` ends with 78

    def good(self, what: str, detail: str = "", *, subject: str = "") -> None:
        """All is well with it."""
        self._add(OK, what, subject, detail, "")

    def look(self, what: str, detail: str, remedy: str = "", *, subject: str = "") -> None:
        """It works, and somebody should look at it."""
        self._add(WARNING, what, subject, detail, remedy)

    def bad(self, what: str, detail: str, remedy: str = "", *, subject: str = "") -> None:
        """It does not work."""
        self._add(FAILED, what, subject, detail, remedy)

    def failed(self, what: str, error: MarketplaceError, *, subject: str = "") -> None:
        """A request that did not end well: why in a word and what is known of it, then the cause and the remedy."""
        if self.has_worked:
            error.known_before()
        status = f"HTTP {error.http_status}" if error.http_status is not None else ""
        facts = [
            error.reason,
            *([status] if status and status not in error.detail else []),
            *filter(None, [error.detail]),
        ]
        self.bad(what, ": ".join(facts), error.remedy, subject=subject)

    @property
    def is_good(self) -> bool:
        return all(finding["level"] != FAILED for finding in self.findings)

    def show(self) -> None:
        """For programs, all of it."""
        if self._machine:
            show_json(self.findings)

    def _add(self, level: str, what: str, subject: str, detail: str, remedy: str) -> None:
        name = f"{what} {subject}" if subject else what
        self.findings.append({"check": name, "ok": level != FAILED, "level": level, "detail": detail, "remedy": remedy})
        if not self._machine:
            colour = {OK: "green", WARNING: "yellow", FAILED: "red"}[level]
            label = say(f"label.{what}") + (f" {subject}" if subject else "")
            mark = click.style(say(f"mark.{level}").ljust(6), fg=colour)
            text = ": ".join(part for part in (label, " ".join(detail.split())) if part)
            click.echo(f"{mark}{text}{f' -> {remedy}' if remedy else ''}")
