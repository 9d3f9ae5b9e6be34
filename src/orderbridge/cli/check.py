"""`check` examines the installation and prints one line for each finding, with a remedy for each fault.

It can run at any time, also while a daemon runs and as another user: it creates no file and no table, and polls no
orders. It logs in only if no stored token works, and stores the new token if the tables exist. `check --settings` shows
the effective settings; `config show` does the same for older scripts. A probe yields `Finding`s: printed at once for
people, at the end with `--json`.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from orderbridge.cli.common import Context, as_json, folded, pass_context, show_json, warned
from orderbridge.errors import ConfigError, MarketplaceError, Message, OrderbridgeError
from orderbridge.texts import SENTENCES, line_remedy, say, sentence, spoken

if TYPE_CHECKING:
    from orderbridge.config import Settings
    from orderbridge.store.database import Database

UNREACHABLE = 69
CONFIGURATION = 78

Words = str | Message | OrderbridgeError
OK, WARNING, FAILED = "ok", "warning", "failed"


class Finding(NamedTuple):
    """The result of one examination. `what` is a stable code; `subject` distinguishes findings of one code."""

    level: str
    what: str
    detail: str
    remedy: str
    subject: str


def good(what: str, detail: Words = "", *, subject: str = "") -> Finding:
    """A finding without a fault."""
    return Finding(OK, what, sentence(detail), "", subject)


def warn(what: str, detail: Words, remedy: Words = "", *, subject: str = "") -> Finding:
    """A finding that works but needs attention."""
    return Finding(WARNING, what, sentence(detail), sentence(remedy), subject)


def bad(what: str, detail: Words, remedy: Words = "", *, subject: str = "") -> Finding:
    """A finding that does not work."""
    return Finding(FAILED, what, sentence(detail), sentence(remedy), subject)


def failed(what: str, error: MarketplaceError, *, has_worked: bool, subject: str = "") -> Finding:
    """A failed request: its reason code, HTTP status, cause and remedy."""
    if has_worked:
        error.known_before()
    status = f"HTTP {error.http_status}" if error.http_status is not None else ""
    detail = sentence(error.detail)
    facts = [error.reason, status if status not in detail else "", detail]
    return bad(what, ": ".join(filter(None, facts)), line_remedy(error), subject=subject)


@dataclass(slots=True)
class Checked:
    """What is checked, and the results of earlier probes that later ones need."""

    context: Context
    settings: "Settings"
    database: "Database | None" = None
    is_current: bool = False  # its schema revision is this program's
    may_write: bool = False  # the database is writable, so a token can be stored
    worker: str | None = None  # the daemon that holds the database
    is_unusable: bool = False  # `run` ends with 78
    has_worked: bool = False  # the marketplace has answered with this configuration before
    is_reached: bool = False  # it answers now

    @property
    def opened(self) -> "Database":
        """The database, for probes that need it."""
        assert self.database is not None  # noqa: S101 - these probes run only with one
        return self.database

    def close(self) -> None:
        """Close the database, if it was opened."""
        if self.database is not None:
            self.database.close()


Probe = Callable[[Checked], Iterator[Finding]]
AsyncProbe = Callable[[Checked], AsyncIterator[Finding]]


class Report:
    """Collects findings. They are printed at once or, with `machine`, by `show` as JSON."""

    def __init__(self, *, machine: bool) -> None:
        self._machine = machine
        self._findings: list[Finding] = []

    def probe(self, probes: Iterable[Probe], checked: Checked) -> None:
        """Run the probes one after another."""
        for probe in probes:
            for finding in probe(checked):
                self.add(finding)

    async def ask(self, probes: Iterable[AsyncProbe], checked: Checked) -> None:
        """Run probes that send requests to the marketplace."""
        for probe in probes:
            async for finding in probe(checked):
                self.add(finding)

    @property
    def is_good(self) -> bool:
        return all(finding.level != FAILED for finding in self._findings)

    def show(self) -> None:
        """Print all findings as JSON if `machine`."""
        if self._machine:
            show_json([_document(finding) for finding in self._findings])

    def add(self, finding: Finding) -> None:
        """Add a finding, and print it unless `machine`."""
        self._findings.append(finding)
        if not self._machine:
            click.echo("\n".join(_lines(*finding)))


def _lines(level: str, what: str, detail: str, remedy: str, subject: str) -> Iterator[str]:
    """Level, label and cause in columns; the remedy below the cause."""
    mark, label = say(f"mark.{level}"), say(f"label.{what}")
    start = f"{mark:<{_width('mark')}}  {label:<{_width('label')}}  "
    line = folded(start, ": ".join(filter(None, (subject, " ".join(detail.split())))))
    yield warned(mark, is_wrong=level != OK, colour="red" if level == FAILED else "yellow") + line[len(mark) :]
    if remedy:
        yield folded(" " * len(start), remedy)


def _width(word: str) -> int:
    return max(len(words[spoken()]) for words in SENTENCES.of(word).values())


def _document(finding: Finding) -> dict[str, str | bool]:
    level, what, detail, remedy, subject = finding
    name = f"{what} {subject}" if subject else what
    return {"check": name, "ok": level != FAILED, "level": level, "detail": detail, "remedy": remedy}


@click.command()
@click.option("--settings", is_flag=True, help="Show the settings in force, secrets hidden.")
@as_json
@pass_context
def check(context: Context, as_json: bool, settings: bool) -> None:
    """Check the installation: each fault with its remedy."""
    from orderbridge.observe import logs

    if settings:
        show_settings(context, as_json)
        return
    logs.configure(level="critical")  # the command prints its own findings
    report = Report(machine=as_json)
    try:
        checked = Checked(context, context.reload())
    except ConfigError as error:
        report.add(bad("configuration", error))
        code = CONFIGURATION
    else:
        code = _check(checked, report)
    report.show()
    raise SystemExit(code)


def _check(checked: Checked, report: Report) -> int:
    from orderbridge.cli import line, probes
    from orderbridge.store import workers

    with closing(checked):
        report.probe((*probes.FILES, *probes.DATABASE), checked)
        try:
            workers.run(report.ask(line.PROBES, checked))
        except ConfigError as error:  # the configured CA file
            report.add(bad("certificates", error))
            return CONFIGURATION
    if checked.is_unusable:
        return CONFIGURATION
    if not checked.is_reached:
        return UNREACHABLE
    return 0 if report.is_good else 1


def show_settings(context: Context, as_json: bool) -> None:
    """Show the settings in force, secrets hidden."""
    from orderbridge.config import shown

    settings = context.settings
    values = shown(settings)
    if as_json:
        show_json(values)
        return
    click.echo("# " + say("facts.source", source=settings.source.file or say("facts.no_file")))
    for name, value in _flat(values):
        click.echo(f"{name} = {value}")


def _flat(value: Any, name: str = "") -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [line for key, part in value.items() for line in _flat(part, f"{name}.{key}" if name else key)]
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [line for place, part in enumerate(value) for line in _flat(part, f"{name}[{place}]")]
    return [(name, value)]


@click.group(hidden=True)
def config() -> None:
    """Show the configuration."""


config.command("show")(as_json(pass_context(show_settings)))


@click.group()
def alarm() -> None:
    """Test the alarm command ([alarms] command)."""


@alarm.command("test")
@pass_context
def alarm_test(context: Context) -> None:
    """Run the alarm command once, marked as a test."""
    from orderbridge.clock import SystemClock
    from orderbridge.jobs.alarms import Command, document_of
    from orderbridge.rules.problems import Code, Event, EventKind, Problem, Severity

    chosen = context.settings.alarms
    if not chosen.command:
        raise ConfigError("alarm.none")
    event = Event(EventKind.BEGAN, Problem(Code.ALARM_FAILING, "", SystemClock().now(), Severity.SEVERE))
    document = document_of([event], context.settings.language)
    document |= {"code": "test", "cause": say("alarm.cause"), "remedy": say("alarm.remedy")}
    failure = Command(chosen.command, chosen.command_timeout_seconds, is_shown=True).run(document)
    if failure is not None:
        raise click.ClickException(say("alarm.failed", reason=failure))
    click.echo(say("alarm.sent"))


COMMANDS = (check, alarm, config)
