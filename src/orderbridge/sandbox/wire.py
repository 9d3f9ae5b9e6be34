"""JSON as the service writes it: UTF-8, nothing ASCII-escaped, amounts as numbers with two decimals."""

import json
from decimal import Decimal
from typing import Any

_scalar = json.JSONEncoder(ensure_ascii=False).encode  # json.dumps would make an encoder for each word


def encode(value: object) -> bytes:
    """Return the value as JSON; a Decimal keeps its decimals, which the standard encoder cannot do."""
    # A lone surrogate, which UTF-8 cannot hold, comes out as its JSON escape: both begin with \u.
    return _text(value).encode("utf-8", errors="backslashreplace")


def _text(value: object) -> str:
    match value:
        case Decimal():
            return format(value, "f")
        case dict():
            return "{" + ",".join(f"{_scalar(str(k))}:{_text(v)}" for k, v in value.items()) + "}"
        case list() | tuple():
            return "[" + ",".join(map(_text, value)) + "]"
        case _:
            return _scalar(value)


def decode(body: bytes, *, exact: bool = False) -> Any:
    """Return the JSON value in the body, None when there is none; exact keeps the decimals of amounts."""
    try:
        return json.loads(body, parse_float=Decimal if exact else None)
    except (ValueError, RecursionError):
        return None
