"""JSON text into values, without giving up the rest when one part of it is broken. No rules of the service in here.

Three things differ from `json.loads`. Numbers keep their decimals. What a strict reader refuses although its meaning
is plain (a raw line break in a string, NaN, a number of ten thousand digits) is read, the number as the text that it
was. And the elements of one list can be cut out one by one as the text they were, so that an element that is no JSON
harms only itself.
"""

import json
import re
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NamedTuple

BROKEN: Final = object()
"""The value of a piece of text that is no JSON."""

_SPACE = re.compile(r"[ \t\n\r]*")
# Possessive: a long string must not be remembered letter by letter. A lone quotation mark opens a string without end.
_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|["\[\]{}]', re.DOTALL)
_BARE_END = re.compile(r"[,\]}]")
_OPENER = {"]": "[", "}": "{"}
_BEGINNINGS = ('"', "[", "{")  # of a value that says itself where it ends
_INT_DIGITS = 40  # int() takes time with the square of the digits, and refuses more than 4,300


class BrokenText(ValueError):
    """The text is no JSON at a place that cannot be stepped over."""


class Piece(NamedTuple):
    """One element of a list: the text it was, and its value or BROKEN."""

    text: str
    value: Any


def _int_or_text(digits: str) -> int | str:
    return int(digits) if len(digits) <= _INT_DIGITS else digits


def _decimal_or_text(digits: str) -> Decimal | str:
    try:
        return Decimal(digits)
    except InvalidOperation:  # an exponent beyond what Decimal holds
        return digits


_FAST = json.JSONDecoder(parse_float=Decimal, parse_constant=str, strict=False)
_PATIENT = json.JSONDecoder(parse_float=_decimal_or_text, parse_int=_int_or_text, parse_constant=str, strict=False)


def decode_at(text: str, start: int) -> tuple[Any, int]:
    """The JSON value that begins at `start`, and where it ends. Raises BrokenText."""
    try:
        return _FAST.raw_decode(text, start)
    except json.JSONDecodeError as error:
        raise BrokenText(error.msg) from None
    except (ValueError, InvalidOperation):
        pass  # a number too long for int() or Decimal(): once more, with patience
    except RecursionError:
        raise BrokenText("nested too deeply") from None
    try:
        return _PATIENT.raw_decode(text, start)
    except (ValueError, RecursionError):
        raise BrokenText("no JSON") from None


def decode(text: str) -> Any:
    """The one value that the whole text is, space around it aside. Raises BrokenText."""
    value, end = decode_at(text, _skip_space(text, 0))
    if _skip_space(text, end) != len(text):
        raise BrokenText("text after the end")
    return value


def read_members(text: str, *, cut: str) -> dict[str, Any]:
    """The members of the object that the text is; the list under the key `cut` as a tuple of pieces.

    A member that is no JSON gets the value BROKEN. Raises BrokenText when the object around is broken.
    """
    members: dict[str, Any] = {}
    careful = False
    at = _expect(text, _skip_space(text, 0), "{")
    while text[at : at + 1] != "}":
        if members:
            at = _expect(text, at, ",")
        key, end = decode_at(text, at)
        if not isinstance(key, str):
            raise BrokenText("a key that is no text")
        at = _expect(text, _skip_space(text, end), ":")
        if key == cut and text[at : at + 1] == "[":
            members[key], end = _cut_list(text, at)
        else:
            members[key], end = _value_or_broken(text, at, careful=careful)
            careful = careful or members[key] is BROKEN
        at = _skip_space(text, end)
    if _skip_space(text, at + 1) != len(text):
        raise BrokenText("text after the end")
    return members


def _cut_list(text: str, start: int) -> tuple[tuple[Piece, ...], int]:
    """The elements of the list that begins at `start`, and where it ends."""
    pieces: list[Piece] = []
    careful = False
    at = _expect(text, start, "[")
    while text[at : at + 1] != "]":
        if pieces:
            at = _expect(text, at, ",")
        begin = at
        value, at = _value_or_broken(text, begin, careful=careful)
        careful = careful or value is BROKEN
        pieces.append(Piece(text[begin:at], value))
        at = _skip_space(text, at)
    return tuple(pieces), at + 1


def _value_or_broken(text: str, start: int, *, careful: bool) -> tuple[Any, int]:
    """The value that begins at `start`, or BROKEN, and where it ends.

    `careful`, from the first broken one on: the value is cut out before it is decoded. The decoder's error counts the
    lines from the beginning of its text, and a thousand broken orders would read the whole list a thousand times. So is
    what has no brackets or quotes: 01 is one broken value, and not 0 and something behind it.
    """
    if not careful and text[start : start + 1] in _BEGINNINGS:
        try:
            return decode_at(text, start)
        except BrokenText:
            return BROKEN, end_of_value(text, start)
    end = end_of_value(text, start)
    try:
        return decode(text[start:end]), end
    except BrokenText:
        return BROKEN, end


def end_of_value(text: str, start: int) -> int:
    """Where the value that begins at `start` ends, whatever is wrong inside it. Raises BrokenText.

    By brackets outside strings, without recursion. A bracket closes the nearest one of its kind and whatever was left
    open inside, so that one bracket missing or doubled does not swallow the neighbours.
    """
    if text[start : start + 1] not in _BEGINNINGS:
        return _end_of_bare(text, start)
    open_brackets: list[str] = []
    number = dict.fromkeys(
        _OPENER.values(), 0
    )  # of each kind: to look through them all takes the square of their number
    for token, end in _tokens(text, start):
        if token in number:
            open_brackets.append(token)
            number[token] += 1
        elif token in _OPENER:
            if not number[_OPENER[token]]:
                return end - 1  # it closes what is around this value
            _close_nearest(open_brackets, number, _OPENER[token])
        if not open_brackets:
            return end
    raise BrokenText("no end")


def _close_nearest(open_brackets: list[str], number: dict[str, int], opener: str) -> None:
    closed = ""
    while closed != opener:
        closed = open_brackets.pop()
        number[closed] -= 1


def _tokens(text: str, start: int) -> Iterator[tuple[str, int]]:
    for match in _TOKEN.finditer(text, start):
        if match.group() == '"':
            raise BrokenText("a string without end")
        yield match.group(), match.end()


def _end_of_bare(text: str, start: int) -> int:
    match = _BARE_END.search(text, start)
    if match is None or match.start() == start:
        raise BrokenText("a value is missing")
    return start + len(text[start : match.start()].rstrip(" \t\n\r"))


def _skip_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _expect(text: str, at: int, mark: str) -> int:
    """The place after `mark` and the space behind it. Raises BrokenText when something else is there."""
    if text[at : at + 1] != mark:
        raise BrokenText(f"{mark} is missing")
    return _skip_space(text, at + 1)
