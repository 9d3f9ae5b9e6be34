"""Reads JSON leniently: one broken element of a list does not harm the others. It knows nothing of the service.

Three things differ from `json.loads`. Numbers keep their decimals. What a strict reader refuses although its meaning
is plain (a raw line break in a string, NaN, a number of ten thousand digits) is read, the number as the text that it
was. And the elements of one list can be cut out one by one as the bytes they were, so that an element that is no JSON
harms only itself. An object whose names are all numbers is a list, too: one of PHP's, with gaps.

A body can be 32 MB of anything, so no step takes more time or memory than a small multiple of its bytes:
- The body is cut as Latin-1: one character a byte, so that places in it are places in the body; brackets and quotes
  are the same in UTF-8. A piece is decoded as what it is when it is read.
- An element is decoded inside a window. What does not fit, or is broken, is first cut out by its brackets.
- What is nested more than DEEPEST, or holds more than MOST_VALUES, is not decoded at all: its values would take thirty
  times its bytes, and no order needs them.
"""

import json
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any, Final, TypeVar

from orderbridge.errors import Message

BROKEN: Final = object()
"""The value of a piece of text that is no JSON, or too large."""

DEEPEST: Final = 100
MOST_VALUES: Final = 100_000
WINDOW: Final = 16 * 1024  # characters; nearly every order is shorter, and the next ones are as long as the last ones
LARGEST_WINDOW: Final = 256 * 1024

_BOM: Final = b"\xef\xbb\xbf"
_SPACE = re.compile(r"[ \t\n\r]*")
# Possessive: a long string must not be remembered letter by letter. A lone quotation mark opens a string without end.
# Brackets of one kind come in runs: a body can be a million of them.
_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
# Each match begins where the last one ended: a search would try a million letters one by one.
_RUN = re.compile(r'[^"\[\]{}]*+(' + _STRING + r'|"|\[+|\]+|\{+|\}+)', re.DOTALL)
_COUNTED = re.compile(r'[^"\[\]{},]*+(' + _STRING + r"|[\[{]+|[\]}]+|,+)", re.DOTALL)
_BARE_END = re.compile(r"[,\]}]")
_OPENERS = {"]": b"[", "}": b"{"}
_CLOSERS = {"[": "]", "{": "}"}
_NUMBERED = re.compile(r'"[0-9]+"[ \t\n\r]*:[ \t\n\r]*')
_BEGINNINGS = ('"', "[", "{")  # of a value that says itself where it ends
_INT_DIGITS = 40  # int() takes time with the square of the digits, and refuses more than 4,300

T = TypeVar("T")
Take = Callable[[bytes, Any], T]
"""What is made of one element: of the bytes it was, and of its value, whose strings are still Latin-1, or BROKEN."""
Again = Callable[[bytes, int], tuple[T, int] | None]
"""What was made before of the very element that begins at a place of a body, and where it ends; None: of none."""


class BrokenText(ValueError):
    """The text is no JSON at a place that cannot be stepped over."""

    def __init__(self, detail: str | Message) -> None:
        super().__init__(detail)
        self.detail = detail


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
        raise BrokenText(Message("net.nested")) from None
    try:
        return _PATIENT.raw_decode(text, start)
    except (ValueError, RecursionError):
        raise BrokenText(Message("net.no_json")) from None


def decode(text: str) -> Any:
    """The one value that the whole text is, space around it aside. Raises BrokenText."""
    if _is_too_much(text, 0, len(text)):
        raise BrokenText(Message("net.too_much"))
    value, end = decode_at(text, _skip_space(text, 0))
    if _skip_space(text, end) != len(text):
        raise BrokenText(Message("net.after_end"))
    return value


def utf8(piece: bytes) -> str:
    """Bytes as text: UTF-8, what is none replaced, a byte order mark dropped."""
    return piece.decode("utf-8-sig", "replace")


def _never(_body: bytes, _at: int) -> None:
    """No element was read before."""


def read_members(body: bytes, *, cut: str, take: Take[T], again: Again[T] = _never) -> dict[str, Any]:
    """The members of the object that the body is; of the list under the key `cut` a tuple of what `take` makes.

    A member that is no JSON gets the value BROKEN. Raises BrokenText when the object around is broken. `again` spares
    the reading of an element that is byte by byte an object of before: where that ends, the element ends.
    """
    cutter = _Cutter(body.removeprefix(_BOM))
    text = cutter.text
    members: dict[str, Any] = {}
    at = _expect(text, _skip_space(text, 0), "{")
    while text[at : at + 1] != "}":
        if members:
            at = _expect(text, at, ",")
        key, end = cutter.value(at)
        if not isinstance(key, str):
            raise BrokenText(Message("net.key_no_text"))
        at = _expect(text, _skip_space(text, end), ":")
        elements = cutter.elements(at, take, again) if key == cut and text[at : at + 1] in _CLOSERS else None
        if elements is not None:
            members[key], end = elements
        else:
            value, end = cutter.value(at)
            members[key] = value if value is BROKEN else decode(utf8(cutter.body[at:end]))
        at = _skip_space(text, end)
    if _skip_space(text, at + 1) != len(text):
        raise BrokenText(Message("net.after_end"))
    return members


class _Cutter:
    """Cuts one body into its values. `careful`, from the first broken one on: each is cut out before it is decoded.

    Else each of a thousand broken orders would be decoded twice.
    """

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.text = body.decode("latin-1")
        self._window = WINDOW
        self._careful = False

    def elements(self, start: int, take: Take[T], again: Again[T]) -> tuple[tuple[T, ...], int] | None:
        """What `take` makes of the elements of the list that begins at `start`, and where the list ends.

        None: it is an object whose names are not all numbers.
        """
        taken: list[T] = []
        text = self.text
        closer = _CLOSERS[text[start]]
        at = first = _skip_space(text, start + 1)
        while text[at : at + 1] != closer:
            if at > first:
                at = _expect(text, at, ",")
            if closer == "}":
                numbered = _NUMBERED.match(text, at)
                if numbered is None:
                    return None
                at = numbered.end()
            known = again(self.body, at)
            if known is None:
                value, end = self.value(at)
                known = take(self.body[at:end], value), end
            taken.append(known[0])
            at = _skip_space(text, known[1])
        return tuple(taken), at + 1

    def value(self, start: int) -> tuple[Any, int]:
        """The value that begins at `start`, or BROKEN, and where it ends. Raises BrokenText where nothing ends it.

        What has no brackets or quotes is cut out first, too: 01 is one broken value, and not 0 and something behind it.
        """
        if not self._careful and self.text[start : start + 1] in _BEGINNINGS:
            try:
                value, length = decode_at(self.text[start : start + self._window], 0)
            except BrokenText:
                pass  # broken, or longer than the window
            else:
                return BROKEN if _is_too_much(self.text, start, start + length) else value, start + length
        end = end_of_value(self.text, start)
        self._window = max(self._window, min(2 * (end - start), LARGEST_WINDOW))
        try:
            return decode(self.text[start:end]), end
        except BrokenText:
            self._careful = True
            return BROKEN, end


def _is_too_much(text: str, start: int, end: int) -> bool:
    """Whether the value there is nested too deeply, or too many. Nearly always four counts tell that it is not."""
    openers = text.count("[", start, end) + text.count("{", start, end)
    if openers <= DEEPEST and text.count(",", start, end) <= MOST_VALUES:
        return False
    depth = values = 0
    while start < end and (match := _COUNTED.match(text, start, end)) is not None:
        begin, start = match.span(1)
        mark, length = text[begin], start - begin
        if mark in "[{":
            depth += length
            values += length
        elif mark in "]}":
            depth -= length
        elif mark == ",":
            values += length
        if depth > DEEPEST or values > MOST_VALUES:
            return True
    return False


def end_of_value(text: str, start: int) -> int:
    """Where the value that begins at `start` ends, whatever is wrong inside it. Raises BrokenText.

    By brackets outside strings, without recursion. A bracket closes the nearest one of its kind and whatever was left
    open inside, so that one bracket missing or doubled does not swallow the neighbours.
    """
    if text[start : start + 1] not in _BEGINNINGS:
        found = _BARE_END.search(text, start)
        if found is None or found.start() == start:
            raise BrokenText(Message("net.no_value"))
        return start + len(text[start : found.start()].rstrip(" \t\n\r"))
    opened, end = bytearray(), start
    while (match := _RUN.match(text, end)) is not None:
        begin, end = match.span(1)
        run = text[begin:end]
        if run == '"':
            raise BrokenText(Message("net.no_string_end"))
        if run[0] in _CLOSERS:
            opened += run.encode()
        elif run[0] in _OPENERS and (left := _close(opened, _OPENERS[run[0]], len(run))):
            return end - left  # the next one closes what is around this value
        if not opened:
            return end
    raise BrokenText(Message("net.no_end"))


def _close(opened: bytearray, opener: bytes, count: int) -> int:
    """Close so many brackets of one kind, and what was left open inside. Returns for how many none was open."""
    if opened.endswith(opener * count):
        del opened[-count:]
        return 0
    while count and (nearest := opened.rfind(opener)) >= 0:
        del opened[nearest:]
        count -= 1
    return count


def _skip_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _expect(text: str, at: int, mark: str) -> int:
    """The place after `mark` and the space behind it. Raises BrokenText when something else is there."""
    if text[at : at + 1] != mark:
        raise BrokenText(Message("net.missing", what=mark))
    return _skip_space(text, at + 1)
