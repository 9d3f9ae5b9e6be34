"""What all commands share: the configuration, the database, tables and JSON for output, and times."""

import json
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click

from orderbridge import __version__
from orderbridge.errors import Message
from orderbridge.texts import say, sentence, speak

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from orderbridge.config import Settings
    from orderbridge.store.database import Database, Work

T = TypeVar("T")

MINUTE, HOUR, DAY = 60, 3600, 86400
AHEAD = timedelta(seconds=2)  # a server's clock may be ahead of ours by this much

as_json = click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")


ANSWERS = {**dict.fromkeys(("y", "yes", "e", "evet"), True), **dict.fromkeys(("n", "no", "h", "hayır", "hayir"), False)}


# Characters that control a terminal, break a line or change the writing direction, but not our own colours.
CONTROLS = re.compile(
    r"\x1b(?!\[(?:[0-24]|[349][0-7])?m)"
    r"|[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]|\r(?!\n)"
)


class Guarded:
    """A standard stream that escapes control characters, because a command may print a customer's text.

    The escapes are JSON's, so that `--json` output keeps its meaning.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write the escaped text; return the stream's own count."""
        return self._stream.write(CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


# The facts of a view, and their lines.
View = tuple[Callable[["Context"], dict[str, Any]], Callable[[dict[str, Any]], Iterator[str]]]


class Context:
    """The global options, and the settings and the database, opened when a command needs them."""

    def __init__(self, settings: "Settings | None" = None) -> None:
        self.config_file: str | None = None
        self.view: View | None = None  # an extension's replacement for the view of `status`
        self._settings = settings

    @property
    def settings(self) -> "Settings":
        """The checked configuration; unreadable secrets are no error here. Raises ConfigError."""
        return self._settings or self.reload(needs_secrets=False)

    def reload(self, *, needs_secrets: bool = True) -> "Settings":
        """Read the configuration again. Raises ConfigError, also for an unreadable secret if `needs_secrets`."""
        from orderbridge import config

        path = Path(self.config_file) if self.config_file is not None else None
        self._settings = config.load(path, speaks=speak, needs_secrets=needs_secrets)
        speak(self._settings.language)
        return self._settings

    def database(self, *, makes_file: bool = False) -> "Database":
        """Connect to the configured database. Raises StoreError. Only `db upgrade` creates a SQLite file."""
        from orderbridge.store.database import open_configured

        return open_configured(self.settings.database, inline=True, makes_file=makes_file)

    @contextmanager
    def current(self) -> Iterator["Database"]:
        """The database, closed afterwards. Raises StoreError unless its schema is this program's."""
        from orderbridge.store import schema

        with closing(self.database()) as database:
            database.read_now(schema.check)
            yield database

    def read(self, work: "Work[T]") -> T:
        """Run one unit of work that only reads."""
        with self.current() as database:
            return database.read_now(work)

    def write(self, work: "Work[T]") -> T:
        """Run and commit one unit of work. Raises Closed if this user may only read."""
        with self.current() as database:
            database.refuse_closed()
            return database.write_now(work)


pass_context = click.make_pass_decorator(Context)


def version() -> str:
    """The versions of the program, of its schema and of Python."""
    import platform

    from orderbridge.store import tables

    return "orderbridge " + say(
        "facts.version", version=__version__, schema=tables.HEAD, python=platform.python_version()
    )


def confirm(question: str, *, default: bool = False) -> bool:
    """Ask for yes or no; answers in both languages count. click's own confirm knows only y and n."""
    yes, no = say("headings.answers").split("/")
    choice = f"{yes.upper()}/{no}" if default else f"{yes}/{no.upper()}"
    while True:
        answer = click.prompt(f"{question} [{choice}]", default="", show_default=False, err=True)
        if not answer:
            return default
        if answer.lower() in ANSWERS:
            return ANSWERS[answer.lower()]


def plain(value: Any) -> Any:
    """A value for JSON: times in the format of our columns, amounts as strings."""
    if isinstance(value, datetime):
        from orderbridge.store.ddl import time_text

        return time_text(value)
    if isinstance(value, Message):
        return sentence(value)
    return str(value) if isinstance(value, Decimal) else value


def show_json(value: Any) -> None:
    """Print one JSON document."""
    click.echo(json.dumps(value, ensure_ascii=False, indent=2, default=plain))


def show_rows(
    rows: Iterable[Mapping[str, Any]],
    *,
    machine: bool,
    empty: str,
    shown: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict,
) -> None:
    """Print a JSON array (`machine`) or a table; `shown` selects the table's cells of a row."""
    listed = [dict(row) if machine else shown(row) for row in rows]
    if machine:
        show_json(listed)
    elif not listed:
        click.echo(empty, err=True)
    else:
        click.echo("\n".join(table(listed)))


def folded(start: str, text: str) -> str:
    """A line; on a narrow terminal it continues below the start of its text."""
    if not sys.stdout.isatty():
        return f"{start}{text}"
    fold = textwrap.TextWrapper(shutil.get_terminal_size().columns, start, " " * len(start), break_long_words=False)
    fold.break_on_hyphens = False
    return fold.fill(text) or start


def fact_lines(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    """One fact a line, aligned."""
    listed = list(rows)
    width = max(len(name) for name, _ in listed)
    return (folded(f"  {name:<{width}}  ", text) for name, text in listed)


def warned(text: str, *, is_wrong: bool, colour: str = "yellow") -> str:
    """The text, coloured if it reports a fault."""
    return click.style(text, fg=colour) if is_wrong else text


def table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Aligned columns below their names. All rows have the same columns."""
    names = list(rows[0])
    cells = [[cell(row[name]) for name in names] for row in rows]
    widths = [max(len(name), *(len(line[place]) for line in cells)) for place, name in enumerate(names)]
    return [
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in [names, *cells]
    ]


def cell(value: Any) -> str:
    """A value on one line."""
    if isinstance(value, datetime):
        return str(plain(value))[:19]
    if isinstance(value, Decimal):  # our columns have four decimals
        return f"{value:.4f}".removesuffix("00")
    return " ".join(str("" if value is None else value).split()) or "-"


# ---- times: in the restaurant's zone, and how long ago ---------------------------------------------------------------


def local(moment: datetime, zone: "ZoneInfo", now: datetime) -> str:
    """The time of day, with the date if the moment is more than twelve hours away."""
    form = "%H:%M:%S" if abs(now - moment) < timedelta(hours=12) else "%Y-%m-%d %H:%M"
    return f"{moment.astimezone(zone):{form}}"


def ago(moment: datetime, now: datetime) -> str:
    """Roughly how long ago, or how far ahead of the clock."""
    if moment > now + AHEAD:
        return say("status.ahead", span=_span(moment - now))
    return say("status.ago", span=_span(now - moment))


def _span(length: timedelta) -> str:
    seconds = max(round(length.total_seconds()), 0)
    for unit, key in ((DAY, "days"), (HOUR, "hours"), (MINUTE, "minutes")):
        if seconds >= 2 * unit:
            return f"{seconds // unit} {say(f'status.{key}')}"
    return f"{seconds} {say('status.seconds')}"
