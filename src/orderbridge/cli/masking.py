"""What may leave the house in a support bundle. All that is not known to be harmless is masked, its length kept.

A value is shown when it is one of our own words, a time, an id of ours, or a number that is no telephone number. So a
name, a number or an address cannot slip through in a column, in a log line or in an error that quotes an answer.
"""

import json
import re
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from orderbridge.document import Facts, Item, Option, fields_of
from orderbridge.hiding import without_secrets
from orderbridge.model import Action, ActionState, EndedBy, KnownBy, LastChange
from orderbridge.rules.problems import Code, Severity
from orderbridge.texts import SENTENCES

SHORT_NUMBER = 3  # digits, of a line
LONGEST_NUMBER = 8  # digits; more may be a telephone number
DEEPEST = 20  # levels of a document
PRIVATE = re.compile(r"secret|token|password|authorization|phone|address|customer|note|payload|name|by$", re.IGNORECASE)
# Columns that hold our own words, or a code of the service whose words are few.
OURS = frozenset(
    [
        "payment_key",
        "account",
        "status",
        "payment_code",
        "last_change",
        "ended_by",
        "problem",
        "action",
        "state",
        "error_code",
        "known_by",
        "event",
        "reason",
        "outcome",
        "restaurant_id",
        "shipping_method",
        "courier_type",
        "code",
        "light",
        "severity",
        "subject",
        "at_utc",
    ]
)
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_TIME = r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,6})?)?(?:Z|[+-]\d\d:?\d\d)?)?|\d\d:\d\d:\d\d(?:[.,]\d+)?"
_HARMLESS = re.compile(rf"(?:{_UUID}|{_TIME})")
_EVENT = re.compile(r"\"([a-z_]+\.[a-z_.]+)\"|\b([a-z_]{2,30})=")
_COUNT = re.compile(rf"-?\d{{1,{LONGEST_NUMBER}}}(?:\.\d{{1,6}})?")
_TOKEN = re.compile(rf"{_TIME}|[^\s\"'`,;()\[\]{{}}<>|]+")
_PLACE = re.compile(r"File \"[^\"]*?/((?:orderbridge|site-packages)/[\w/.-]+\.py)\", line (\d+), in (\w+)")
_WORD = re.compile(r"[^\W\d_]+")


@cache
def words() -> frozenset[str]:
    """Every word of our own sentences, in small letters, and of the codes in their keys."""
    said = [sentence for both in SENTENCES.values() for sentence in both.values()]
    keys = [part for key in SENTENCES for part in key.replace("_", ".").split(".")]
    known = {word.casefold() for text in said for word in _WORD.findall(text)}
    return frozenset(known | set(keys) | _LOG_WORDS | _of_the_log())


def _of_the_log() -> set[str]:
    """The names of our events and of their facts, out of the program itself."""
    found = set()
    for file in Path(str(files("orderbridge"))).rglob("*.py"):
        for event, fact in _EVENT.findall(file.read_text("utf-8")):
            found.update({event or fact, *re.split(r"[._]", event)})
    return found - {""}


_LOG_WORDS = frozenset(
    [
        "info",
        "warning",
        "error",
        "debug",
        "critical",
        "event",
        "level",
        "timestamp",
        "logger",
        "account",
        "count",
        "attempt",
        "http",
        "status",
        "true",
        "false",
        "none",
        "null",
        "get",
        "put",
        "post",
        "ok",
        "utc",
        "traceback",
        "most",
        "recent",
        "call",
        "last",
        "poll",
        "polled",
        "daemon",
        "started",
        "stopped",
        "new",
        "known",
        "ms",
        "seconds",
    ]
)


def mask(text: str) -> str:
    """That there was a text, and how long."""
    return f"***({len(text)})"


def text(said: str) -> str:
    """A log line or an error: our own words stay, everything else is masked."""
    place = _PLACE.search(said)
    if place is not None:
        return f'  File "{place[1]}", line {place[2]}, in {place[3]}'
    return _TOKEN.sub(lambda found: _token(found[0]), without_secrets(said))


def _token(token: str) -> str:
    bare = token.strip(".:!?")
    if _HARMLESS.fullmatch(bare) or _is_known(bare) or not _has_contents(bare):
        return token
    key, sign, value = token.partition("=")
    if sign and key.replace("_", "").isalpha() and key.islower():
        shown = not PRIVATE.search(key) and (_COUNT.fullmatch(value) or value == _token(value))
        return token if shown else f"{key}=***"
    return "***"


def _is_known(token: str) -> bool:
    """One of our words, or several of them joined, as in the name of an event."""
    return all(part in words() and not part.isdigit() for part in re.split(r"[._]", token.casefold()))


def _has_contents(token: str) -> bool:
    return any(letter.isalnum() for letter in token)


def value(name: str, cell: Any) -> Any:
    """A cell of a row, by the name of its column."""
    if cell is None or isinstance(cell, bool | datetime):
        return cell
    if isinstance(cell, int | Decimal | float):
        digits = str(abs(int(cell)))
        return cell if len(digits) <= LONGEST_NUMBER else mask(digits)
    if name == "payload":
        return document(str(cell))
    if name in OURS and _is_ours(str(cell)):
        return cell
    return mask(str(cell))


def _is_ours(cell: str) -> bool:
    if re.fullmatch(_UUID, cell):
        return True
    return all(_is_code(part) for part in re.split(r"[,:.\s]", cell))


def _is_code(part: str) -> bool:
    return part.casefold() in _CODES or all(
        piece in words() or (piece.isdigit() and len(piece) <= SHORT_NUMBER) for piece in part.split("_")
    )


_WORDS_OF_OURS: tuple[type[StrEnum], ...] = (
    Action,
    ActionState,
    Code,
    EndedBy,
    KnownBy,
    LastChange,
    Severity,
)
# The others: of the service's few words, of problems with a document, of answers, of lights.
_MORE_CODES = """
    in_delivery complete_with_payment complete_needs_payment received confirmed canceled unknown
    cash credit_card debit_card delivery pickup restaurant come_get platform_courier
    line total foods missing status_doubtful total_mismatch
    acknowledged delivered status_withheld database_refused
    not_json not_an_object payment_key_missing payment_key_invalid
    ok unauthorized rate_limited service_failed not_sent
    green yellow red
"""
_CODES = frozenset([*(str(word) for words in _WORDS_OF_OURS for word in words), *_MORE_CODES.split()])


def row(columns: Mapping[str, Any], accounts: frozenset[str] = frozenset()) -> dict[str, Any]:
    """A row. `accounts`: names out of the configuration, which are no customers."""
    return {
        name: cell if name == "account" and cell in accounts else value(name, cell) for name, cell in columns.items()
    }


@cache
def _known_fields() -> frozenset[str]:
    paths = [one.path for rows in (Facts, Item, Option) for one in fields_of(rows) if one.path]
    more = "payment_key status_id status_text courier_type customer foods option_groups options data"
    return frozenset([part for path in paths for part in path.split(".")] + more.split())


def document(payload: str) -> Any:
    """Its structure: the interface's own field names, and of each value only its kind and length."""
    try:
        return _shape(json.loads(payload), DEEPEST)
    except (ValueError, RecursionError):
        return mask(payload)


def _shape(part: Any, deep: int) -> Any:
    if deep == 0:
        return "…"
    if isinstance(part, dict):
        known = _known_fields()
        return {
            key if key in known else f"field {number}": _shape(inner, deep - 1)
            for number, (key, inner) in enumerate(part.items())
        }
    if isinstance(part, list):
        return [_shape(inner, deep - 1) for inner in part]
    if isinstance(part, str):
        return f"text({len(part)})"
    return "null" if part is None else type(part).__name__


def anything(part: Any, accounts: frozenset[str] = frozenset()) -> Any:
    """A JSON value whose texts are treated like log lines, account names apart."""
    if isinstance(part, dict):
        return {str(key): anything(inner, accounts) for key, inner in part.items()}
    if isinstance(part, list | tuple):
        return [anything(inner, accounts) for inner in part]
    if isinstance(part, str):
        return part if part in accounts else text(part)
    return part
