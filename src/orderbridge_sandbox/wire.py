"""Writes JSON like the marketplace: UTF-8 without escapes, amounts as numbers with two decimals."""

import json
from dataclasses import fields, is_dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Final, Protocol, runtime_checkable

# The standard encoder is fast, but it cannot write a Decimal as a number with its decimals. So an amount is encoded as
# a text between two marks, and encode() removes the marks and the quotation marks. The marks are sequences of lone
# surrogates, which no valid text contains.
_BEFORE: Final = "\udfff\udffe\udfff"
_BEHIND: Final = "\udffe\udffe\udffe"


@runtime_checkable
class HasJson(Protocol):
    """An object with a JSON form of its own."""

    def as_json(self) -> dict[str, Any]:
        """Return the values to encode."""


def _plain(value: object) -> object:
    match value:
        case Decimal():
            return f"{_BEFORE}{value:f}{_BEHIND}"
        case datetime():
            return value.isoformat()
        case HasJson():
            return value.as_json()
        case _ if is_dataclass(value):
            return {one.name: getattr(value, one.name) for one in fields(value)}
        case _:
            raise TypeError(f"{type(value).__name__} is not a JSON value")


_encode = json.JSONEncoder(
    ensure_ascii=False, check_circular=False, separators=(",", ":"), default=_plain
).encode  # made once: json.dumps would make one for each answer


def encode(value: object) -> bytes:
    """Return the value as JSON; a Decimal keeps its decimals, which the standard encoder cannot do."""
    # UTF-8 cannot hold a lone surrogate. backslashreplace writes it as \udXXX, which is its JSON escape, too.
    text = _encode(value).replace(f'"{_BEFORE}', "").replace(f'{_BEHIND}"', "")
    return text.encode("utf-8", errors="backslashreplace")


def decode(body: bytes, *, exact: bool = False) -> Any:
    """Return the JSON value in the body, None when there is none; exact keeps the decimals of amounts."""
    try:
        return json.loads(body, parse_float=Decimal if exact else None)
    except (ValueError, RecursionError):
        return None
