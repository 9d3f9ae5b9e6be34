"""A file of accounts: CSV, as spreadsheets write it, or JSON Lines. Each account, or what is wrong, with its line.

Rules of this file:
- No message quotes a line: it may hold a secret.
- CSV: `,` `;` or a tab, quotes, any line ends, a byte order mark, a line `sep=;`. An empty cell is a key left out.
- JSON Lines: an object a line, with the keys of the configuration.
"""

import csv
import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from orderbridge.config.keys import SECRETS
from orderbridge.errors import ConfigError
from orderbridge.texts import say
from orderbridge_fleet.account_settings import OPTIONS

NEEDED = ("name", *SECRETS)
COLUMNS = (*NEEDED, "auto_accept_minutes", "auto_accept_scheduled")  # of CSV: it has no lists
KEYS = (*NEEDED, *OPTIONS)
DELIMITERS = ",;\t"
WORDS = {"doğru": "true", "yanlış": "false", "yanliş": "false", "evet": "true", "hayır": "false", "hayir": "false"}
ROUNDED = re.compile(r"\d[.,]\d+E\+\d+")  # what a spreadsheet makes of a long number
UTF16 = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True, slots=True)
class Line:
    """One account's values, or what is wrong with the line. `number`: where it begins, from 1."""

    number: int
    values: dict[str, Any]
    problem: str | None = None


def lines(data: bytes) -> list[Line]:
    """All lines that say something. Raises ConfigError where the file as a whole cannot be read."""
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
    for number, line in enumerate(text.split("\n"), 1):  # splitlines would split within a text
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
    """Their names, as far as they have the form of names: in a file that slipped by a column they may be anything."""
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
            yield Line(number, {}, say("import.no_csv"))  # where the next one begins is unknown
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
    """The head. Raises ConfigError where it is none: then each line would be wrong."""
    columns = [cell.lower() for cell in cells]
    while columns and not columns[-1]:  # a spreadsheet's empty columns behind
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
