"""A lenient JSON parser: a broken element of a list does not affect the other elements.

It differs from `json.loads` in three ways. Numbers keep their decimals. Text that a strict parser refuses although its
meaning is clear is accepted: a raw line break in a string, NaN, a very long number (returned as text). And the elements
of one list can be cut out as their original bytes, so that a broken element harms only itself. An object whose names
are all numbers counts as a list, because PHP writes lists with gaps in this way.

A body can be 32 MB of any bytes, so the time and memory of each step are a small multiple of its size:

- The body is cut as Latin-1, one character for each byte, so that positions in the text and in the body agree. Brackets
  and quotes are the same in UTF-8. Each piece is decoded as UTF-8 when it is parsed.
- An element is decoded inside a window. If it does not fit, or is broken, its end is found by its brackets first.
- A value nested deeper than MAX_DEPTH, or with more than MAX_VALUES values, is not decoded: it would take thirty times
  its size in memory.
"""

import json
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any, Final, TypeVar

from orderbridge.errors import Message

BROKEN: Final = object()
"""The value of text that is not JSON, or too large."""

MAX_DEPTH: Final = 100
MAX_VALUES: Final = 100_000
WINDOW: Final = 16 * 1024  # characters; nearly every order is shorter; grows with longer elements
MAX_WINDOW: Final = 256 * 1024

_BOM: Final = b"\xef\xbb\xbf"
_SPACE = re.compile(r"[ \t\n\r]*")
# Possessive quantifiers avoid backtracking. A lone quotation mark is an unterminated string. Brackets are matched in
# runs, because a body can hold a million of them.
_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
# Each match begins where the last one ended, which is faster than a search.
_RUN = re.compile(r'[^"\[\]{}]*+(' + _STRING + r'|"|\[+|\]+|\{+|\}+)', re.DOTALL)
_COUNTED = re.compile(r'[^"\[\]{},]*+(' + _STRING + r"|[\[{]+|[\]}]+|,+)", re.DOTALL)
_BARE_END = re.compile(r"[,\]}]")
_OPENERS = {"]": b"[", "}": b"{"}
_CLOSERS = {"[": "]", "{": "}"}
_NUMBERED = re.compile(r'"[0-9]+"[ \t\n\r]*:[ \t\n\r]*')
_BEGINNINGS = ('"', "[", "{")  # of values with an end mark
_INT_DIGITS = 40  # int() takes quadratic time, and refuses more than 4,300 digits

T = TypeVar("T")
Take = Callable[[bytes, Any], T]
"""Makes a result of one element from its bytes and its value (with Latin-1 strings, or BROKEN)."""
Again = Callable[[bytes, int], tuple[T, int] | None]
"""Returns the earlier result for the element at a position of a body, and its end, or None."""


class BrokenText(ValueError):
    """The text is not JSON at a position that cannot be skipped."""

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
    """Decode the JSON value at `start`. Returns it and its end. Raises BrokenText."""
    try:
        return _FAST.raw_decode(text, start)
    except json.JSONDecodeError as error:
        raise BrokenText(error.msg) from None
    except (ValueError, InvalidOperation):
        pass  # a number too long for int() or Decimal(): try the second decoder
    except RecursionError:
        raise BrokenText(Message("net.nested")) from None
    try:
        return _PATIENT.raw_decode(text, start)
    except (ValueError, RecursionError):
        raise BrokenText(Message("net.no_json")) from None


def decode(text: str) -> Any:
    """Decode a text with one JSON value. Raises BrokenText."""
    if _is_too_much(text, 0, len(text)):
        raise BrokenText(Message("net.too_much"))
    value, end = decode_at(text, _skip_space(text, 0))
    if _skip_space(text, end) != len(text):
        raise BrokenText(Message("net.after_end"))
    return value


def utf8(piece: bytes) -> str:
    """Decode UTF-8, replacing invalid bytes and dropping a byte order mark."""
    return piece.decode("utf-8-sig", "replace")


def _never(_body: bytes, _at: int) -> None:
    """The default for `again`: no earlier results."""


def read_members(body: bytes, *, cut: str, take: Take[T], again: Again[T] = _never) -> dict[str, Any]:
    """Parse the object in the body. The list under the key `cut` becomes a tuple of the results of `take`.

    A member that is not JSON gets the value BROKEN. Raises BrokenText if the outer object is broken. `again` returns
    the earlier result for an element with the same bytes, to save parsing it.
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
    """Cuts a body into its values.

    After the first broken value it is `careful`: it finds the end of each value before decoding it. Otherwise each of a
    thousand broken orders would be decoded twice.
    """

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.text = body.decode("latin-1")
        self._window = WINDOW
        self._careful = False

    def elements(self, start: int, take: Take[T], again: Again[T]) -> tuple[tuple[T, ...], int] | None:
        """The results of `take` for the elements of the list at `start`, and the end of the list.

        None if it is an object whose names are not all numbers.
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
        """The value at `start`, or BROKEN, and its end. Raises BrokenText if it has no end.

        The end of a bare value is found before decoding, so that 01 is one broken value and not a 0 followed by text.
        """
        if not self._careful and self.text[start : start + 1] in _BEGINNINGS:
            try:
                value, length = decode_at(self.text[start : start + self._window], 0)
            except BrokenText:
                pass  # broken, or longer than the window
            else:
                return BROKEN if _is_too_much(self.text, start, start + length) else value, start + length
        end = end_of_value(self.text, start)
        self._window = max(self._window, min(2 * (end - start), MAX_WINDOW))
        try:
            return decode(self.text[start:end]), end
        except BrokenText:
            self._careful = True
            return BROKEN, end


def _is_too_much(text: str, start: int, end: int) -> bool:
    """Whether the value is too deep or has too many values. Simple counts decide nearly always."""
    openers = text.count("[", start, end) + text.count("{", start, end)
    if openers <= MAX_DEPTH and text.count(",", start, end) <= MAX_VALUES:
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
        if depth > MAX_DEPTH or values > MAX_VALUES:
            return True
    return False


def end_of_value(text: str, start: int) -> int:
    """The end of the value at `start`, even if its inside is broken. Raises BrokenText.

    Counts brackets outside strings, without recursion. A bracket closes the nearest one of its kind and all that is
    open inside, so that a missing or doubled bracket does not affect the next elements.
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
            return end - left  # the rest closes the outer value
        if not opened:
            return end
    raise BrokenText(Message("net.no_end"))


def _close(opened: bytearray, opener: bytes, count: int) -> int:
    """Close brackets of one kind and all that is open inside. Returns how many had no opening one."""
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
    """Skip `mark` and the space after it. Raises BrokenText if something else is there."""
    if text[at : at + 1] != mark:
        raise BrokenText(Message("net.missing", what=mark))
    return _skip_space(text, at + 1)
