"""`accounts import` adds many accounts from a CSV or JSON Lines file, either all or none.

Rules of this file:
- No message quotes a line: it may hold a secret.
- CSV: commas, semicolons or tabs, quotes, any line ends, a byte order mark, a line `sep=;`. An empty cell is no value.
- JSON Lines: one object on each line, with the keys of the configuration.
"""

import csv
import io
import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orderbridge.cli.common import Context, as_json, pass_context, show_json
from orderbridge.config.keys import SECRETS
from orderbridge.errors import ConfigError
from orderbridge.texts import say, sentence
from orderbridge_fleet.account_settings import OPTIONS
from orderbridge_fleet.cli.context import keys_of, made, say_not_read

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from orderbridge.config import Account, Settings
    from orderbridge_fleet.account_changes import Put

NEEDED = ("name", *SECRETS)
COLUMNS = (*NEEDED, "auto_accept_minutes", "auto_accept_scheduled")  # in CSV, which cannot hold lists
KEYS = (*NEEDED, *OPTIONS)
DELIMITERS = ",;\t"
WORDS = {"doğru": "true", "yanlış": "false", "yanliş": "false", "evet": "true", "hayır": "false", "hayir": "false"}
ROUNDED = re.compile(r"\d[.,]\d+E\+\d+")  # what a spreadsheet makes of a long number
UTF16 = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True, slots=True)
class Line:
    """One account's values, or the error of the line. `number`: its first line, from 1."""

    number: int
    values: dict[str, Any]
    problem: str | None = None


def lines(data: bytes) -> list[Line]:
    """All lines with values. Raises ConfigError if the file cannot be read."""
    text = _text(data)
    first = text.lstrip()[:1]
    if not first:
        raise ConfigError("import.empty")
    if first == "[":
        raise ConfigError("import.array")
    return list(_json_lines(text) if first == "{" else _csv(text))


def _text(data: bytes) -> str:
    if data.startswith(UTF16):
        raise ConfigError("import.utf16")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError("import.not_utf8", line=data[: error.start].count(b"\n") + 1) from None


def _json_lines(text: str) -> Iterator[Line]:
    for number, line in enumerate(text.split("\n"), 1):  # not splitlines: it also splits at U+2028 inside a text
        if not line.strip():
            continue
        try:
            values = json.loads(line)
        except (ValueError, RecursionError):
            yield Line(number, {}, say("import.no_json"))
            continue
        if not isinstance(values, dict):
            yield Line(number, {}, say("import.no_object"))
        elif unknown := [key for key in values if key not in KEYS]:
            yield Line(number, {}, say("import.unknown_key", keys=_named(unknown), known=", ".join(KEYS)))
        else:
            values = {key: value.strip() if isinstance(value, str) else value for key, value in values.items()}
            yield Line(number, values)


def _named(keys: list[str]) -> str:
    """The unknown keys, but only those that look like keys: with shifted columns one may be a secret."""
    return ", ".join(key if re.fullmatch(r"[a-z_]{1,30}", key) else "?" for key in keys)


def _csv(text: str) -> Iterator[Line]:
    begin = 0
    if (mark := re.match(r"sep=(.)\r?\n", text)) is not None:
        text, begin = text[mark.end() :], 1
    delimiter = mark[1] if mark else next((one for one in DELIMITERS if one in _first_line(text)), ",")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    columns: list[str] | None = None
    while True:
        number = begin + reader.line_num + 1
        try:
            cells = next(reader, None)
        except csv.Error:
            yield Line(number, {}, say("import.no_csv"))  # where the next line begins is unknown
            return
        if cells is None:
            return
        cells = [cell.strip() for cell in cells]
        if not any(cells):
            continue
        if columns is None:
            columns = _columns(cells, number)
        else:
            yield _csv_line(number, columns, cells)


def _first_line(text: str) -> str:
    return next((line for line in text.splitlines() if line.strip()), "")


def _columns(cells: list[str], number: int) -> list[str]:
    """The columns of the header. Raises ConfigError if it is wrong."""
    columns = [cell.lower() for cell in cells]
    while columns and not columns[-1]:  # empty columns at the end, from a spreadsheet
        columns.pop()
    missing = [key for key in NEEDED if key not in columns]
    unknown = [column for column in columns if column not in COLUMNS]
    if missing or unknown or len(set(columns)) != len(columns):
        raise ConfigError("import.head", line=number, needed=", ".join(NEEDED), known=", ".join(COLUMNS[3:]))
    return columns


def _csv_line(number: int, columns: list[str], cells: list[str]) -> Line:
    if any(cells[len(columns) :]):
        return Line(number, {}, say("import.too_many", count=len(columns)))
    values = {column: cell for column, cell in zip(columns, cells, strict=False) if cell}
    for key in SECRETS:
        if ROUNDED.fullmatch(values.get(key, "")):
            return Line(number, {}, say("import.rounded", column=key))
    if "auto_accept_scheduled" in values:
        word = values["auto_accept_scheduled"].lower()
        values["auto_accept_scheduled"] = WORDS.get(word, word)
    return Line(number, values)


MAX_SHOWN = 50  # wrong lines that are printed; --json has all


@dataclass(slots=True)
class _Found:
    """The file's accounts and their line numbers by name, and the errors by line number."""

    accounts: dict[str, "Account"] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    wrong: dict[int, str] = field(default_factory=dict)

    def refuse(self, name: str, why: str) -> None:
        """Refuse an account whose line is valid by itself."""
        self.wrong[self.numbers[name]] = why
        del self.accounts[name]


@click.command("import")
@click.argument("file")
@click.option("--skip-wrong", is_flag=True, help="Import the correct lines even if others are wrong.")
@as_json
@pass_context
def import_accounts(context: Context, file: str, skip_wrong: bool, as_json: bool) -> None:
    """Add the accounts of a CSV or JSON Lines FILE to the database; - is standard input.

    All or none. Existing accounts are changed to what the file says; accounts that it does not name stay. Exit code
    1 when a line is wrong.
    """
    settings = context.reload()
    keys = keys_of(settings)
    from orderbridge.clock import SystemClock
    from orderbridge_fleet import account_changes

    found = _found(settings, lines(_read(file)))
    now = SystemClock().now()

    def put(tx: "Connection") -> "Put":
        """Write the accounts. Only this transaction, which locks the accounts, knows which secrets are in use."""
        for name, other in account_changes.taken(tx, found.accounts.values()).items():
            found.refuse(name, say("import.taken", other=other))
        if found.wrong and not skip_wrong:
            return account_changes.Put()
        return account_changes.put(tx, keys, found.accounts.values(), now)

    done = context.write(put)
    _print(found, done, skip_wrong=skip_wrong, machine=as_json)
    if done.added or done.altered:
        say_not_read(settings, (*done.added, *done.altered))
    raise SystemExit(1 if found.wrong else 0)


def _read(file: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise ConfigError("init.cannot_read", file=file, reason=error.strerror) from None


def _found(settings: "Settings", given: Sequence["Line"]) -> _Found:
    """Check each line by itself, then against the lines before it and the accounts of the configuration file."""
    found = _Found()
    in_file = {one.name: one.fingerprint for one in settings.accounts}
    names = {one.name: say("import.name_in_file") for one in settings.accounts}
    secrets = {one.fingerprint: say("import.taken", other=one.name) for one in settings.accounts}
    for line in given:
        if line.problem is not None:
            found.wrong[line.number] = line.problem
            continue
        try:
            account = made(settings, line.values)
        except ConfigError as error:
            found.wrong[line.number] = _without(sentence(error), line.values)
            continue
        moves = in_file.pop(account.name, None) == account.fingerprint  # from the configuration file
        why = names.get(account.name) or secrets.get(account.fingerprint)
        if why is not None and not moves:
            found.wrong[line.number] = why
            continue
        names[account.name] = say("import.name_twice", line=line.number)
        secrets[account.fingerprint] = say("import.secrets_twice", line=line.number)
        found.accounts[account.name] = account
        found.numbers[account.name] = line.number
    return found


def _without(text: str, values: Any) -> str:
    """The text without the line's values: with shifted columns a name may be a secret."""
    if isinstance(values, dict | list):
        for value in values.values() if isinstance(values, dict) else values:
            text = _without(text, value)
        return text
    return text.replace(repr(values), "…") if isinstance(values, str) else text


def _print(found: _Found, done: "Put", *, skip_wrong: bool, machine: bool) -> None:
    wrong: list[dict[str, Any]] = [{"line": number, "problem": found.wrong[number]} for number in sorted(found.wrong)]
    if machine:
        show_json({"added": done.added, "altered": done.altered, "unchanged": done.unchanged, "wrong": wrong})
        return
    for one in wrong[:MAX_SHOWN]:
        click.echo(say("import.line", **one), err=True)
    if len(wrong) > MAX_SHOWN:
        click.echo(say("import.more", count=len(wrong) - MAX_SHOWN), err=True)
    if wrong and not skip_wrong:
        click.echo(say("import.nothing", count=len(wrong)), err=True)
        return
    added, altered, unchanged = map(len, (done.added, done.altered, done.unchanged))
    click.echo(say("import.done", added=added, altered=altered, unchanged=unchanged))
