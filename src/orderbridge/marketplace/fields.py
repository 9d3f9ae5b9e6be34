"""Parses single values of a document leniently, and notes a code for each value that cannot be parsed.

A code is followed by `:` and the field's name in the interface (`total`, `foods.price`). It is a problem, which a
person must check, if it may affect cooking, payment or delivery; otherwise it is a remark.

| code | cause | value of the column |
|---|---|---|
| not_text | an object, a list or `true` where text belongs | NULL |
| not_a_number | text that is no number, or another type | NULL |
| ambiguous_number | text such as `1.234` or `1,234`, which may be 1.234 or 1234 | NULL |
| amount_out_of_range | more than ten digits before the point | NULL |
| not_an_integer | a number with decimals where a whole one belongs | NULL |
| integer_out_of_range | a whole number of more than 64 bits | NULL |
| unreadable_time | a scheduled time that cannot be read | NULL |
| not_an_object | an element of a list that is no object | the element is left out |
| not_a_list | `foods`, `option_groups` or `options` is neither a list nor one element | no elements |
| missing | `foods` or `total` is empty, a line has no name or quantity, an option no name | NULL, or no elements |
| not_positive | a quantity that is not above 0, a total below 0 | the number |

Always a remark: text_cut (a name longer than 255 characters), amount_rounded (more than four decimals, rounded
half-even to four), not_an_object of `customer` and `address` when it is text (it is taken for the name, or the street),
and any code of a field that document.py calls `minor`. Without a field, and a problem: status_unreadable.

A value that is empty in any type (`is_empty`) becomes NULL, without a code.
"""

import re
from collections.abc import Callable, Collection, Mapping
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

from orderbridge.clock import YEARS

NAME_LENGTH = 255  # names and codes; docs/design.md, Database contract

_AMOUNT_DIGITS = 10  # before the point, of NUMERIC(14,4)
_AMOUNT_STEP = Decimal("0.0001")
_INTEGER_LIMIT = 2**63
_INTEGER_DIGITS = 19
UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_EMPTY_TEXTS = frozenset({"", "-", "--", "n/a", "null", "none", "nil", "undefined", "false", "[]", "{}"})
_NO_TIMES = _EMPTY_TEXTS | {"invalid date", "nan", "now", "asap"}
_ZERO_TIME = " 0:.-/+tz"  # the characters of a zero date
_DATED = re.compile(r"(?P<year>[+-]?[0-9]{4,6})-[0-9]{2}-[0-9]{2}(?![0-9])")
_NUMERIC_NAME = re.compile("[0-9]+")
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_LINE_ENDS = re.compile("\r\n?")
# Control characters except tab and line feed.
_CONTROLS = re.compile("[\x01-\x08\x0b-\x1f\x7f-\x9f]")
_ODD = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]|\\[bfru]")  # a document without these needs no cleaning
_JSON = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,4})?")
_PLAIN = re.compile(r"[+-]?[0-9]+([.,][0-9]+)?")
_GROUPED = re.compile(
    r"[+-]?[0-9]{1,3}(?:(?P<group>[., '\u00a0\u202f])[0-9]{3})(?:(?P=group)[0-9]{3})*(?P<decimals>[.,][0-9]+)?"
)
_NOTHING: Mapping[str, Any] = {}


class Unreadable(ValueError):
    """The value does not fit the column. The text of the exception is the code."""


def is_empty(value: object) -> bool:
    """Whether a value is empty: null, false, "", a word such as "n/a", or a list or object of empty values."""
    if isinstance(value, str):
        return value.strip().lower() in _EMPTY_TEXTS
    if isinstance(value, list | dict):
        return all(map(is_empty, value if isinstance(value, list) else value.values()))
    return value is None or value is False


def elements_of(value: object, is_one: Callable[[Mapping[str, Any]], bool]) -> list[Any] | None:
    """The elements of a list in any of its forms, or None. `is_one`: whether an object is an element.

    An object whose names are all numbers is a list with gaps. An object of elements is a list by ids. A single element
    is a list of one.
    """
    if isinstance(value, list):
        return value
    if not isinstance(value, dict):
        return None
    if all(_NUMERIC_NAME.fullmatch(name) for name in value):
        return list(value.values())
    if is_one(value):
        return [value]
    inner = list(value.values())
    return inner if all(isinstance(one, dict) and is_one(one) for one in inner) else None


def parse_number(value: object) -> Decimal | None:
    """Parse a JSON number or a text as a number; None if it is empty. Raises Unreadable."""
    if isinstance(value, Decimal):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return Decimal(value)
    if is_empty(value):
        return None
    if not isinstance(value, str):
        raise Unreadable("not_a_number")
    return _number_of_text(value.strip())


def _number_of_text(text: str) -> Decimal:
    """Parse `12.50`, `12,50`, `1.5e1`, `1.234,50`, `1,234,567`. `1.234` and `1,234` are ambiguous."""
    grouped = _GROUPED.fullmatch(text)
    if grouped is None:
        if _JSON.fullmatch(text) is None and _PLAIN.fullmatch(text) is None:
            raise Unreadable("not_a_number")
        return Decimal(text.replace(",", "."))
    group, decimals = grouped["group"], grouped["decimals"] or ""
    if decimals[:1] == group:
        raise Unreadable("not_a_number")
    whole = text.removesuffix(decimals)
    if group in ".," and not decimals and whole.count(group) == 1:
        if whole.lstrip("+-").startswith("0"):
            return Decimal(text.replace(",", "."))
        raise Unreadable("ambiguous_number")
    return Decimal(whole.replace(group, "") + decimals.replace(",", "."))


def compared(key: str) -> str:
    """An id in the form in which ids are compared: a UUID in lower case without braces, other ids unchanged."""
    lower = key.strip().strip("{}").lower()
    return lower if UUID.fullmatch(lower) else key


class Reader:
    """Parses the fields of one order, and collects its problems and remarks without duplicates."""

    __slots__ = ("_minor", "_plain", "problems", "remarks")

    def __init__(self, document: str | None = None, *, minor: Collection[str] = ()) -> None:
        """`minor`: the fields whose problems are remarks."""
        self._plain = document is not None and _ODD.search(document) is None  # no text needs cleaning
        self._minor = minor
        self.problems: dict[str, None] = {}
        self.remarks: dict[str, None] = {}

    def note(self, code: str, field: str = "") -> None:
        """Note a problem, or a remark if the field is minor."""
        kept = self.remarks if field in self._minor else self.problems
        kept[f"{code}:{field}" if field else code] = None

    def remark(self, code: str, field: str) -> None:
        """Note a remark."""
        self.remarks[f"{code}:{field}"] = None

    def text(self, value: object, field: str, *, limit: int | None = NAME_LENGTH) -> str | None:
        """A text without control characters; a number as text."""
        if self._plain and type(value) is str and len(value) <= NAME_LENGTH:
            return value
        if not isinstance(value, str):
            if isinstance(value, bool) or not isinstance(value, int | Decimal):
                if not is_empty(value):
                    self.note("not_text", field)
                return None
            value = str(value)
        value = _CONTROLS.sub("", _LINE_ENDS.sub("\n", _UNSTORABLE.sub("\ufffd", value)))
        if limit is not None and len(value) > limit:
            self.remark("text_cut", field)
            return value[:limit]
        return value

    def moment(self, value: object, field: str) -> str | None:
        """A time as sent; None for a zero date, a year outside YEARS, or a word such as "asap"."""
        text = self.text(value, field)
        word = "" if text is None else text.strip().lower()
        if not word.strip(_ZERO_TIME) or word in _NO_TIMES:
            return None
        dated = _DATED.match(word)
        return text if dated is None or int(dated["year"]) in YEARS else None

    def identity(self, value: object, field: str) -> str | None:
        """An id in the form in which ids are compared."""
        text = self.text(value, field)
        return None if text is None else compared(text)

    def amount(self, value: object, field: str) -> Decimal | None:
        """Money: NUMERIC(14,4)."""
        number = self._number(value, field)
        if not number:
            return None if number is None else Decimal(0)
        rounded = number if number.adjusted() >= _AMOUNT_DIGITS else number.quantize(_AMOUNT_STEP, ROUND_HALF_EVEN)
        if rounded.adjusted() >= _AMOUNT_DIGITS:
            self.note("amount_out_of_range", field)
            return None
        if rounded != number:
            self.remark("amount_rounded", field)
        return rounded

    def integer(self, value: object, field: str) -> int | None:
        """A whole number of 64 bits."""
        if type(value) is int and -_INTEGER_LIMIT <= value < _INTEGER_LIMIT:
            return value
        number = self._number(value, field)
        if number is None:
            return None
        is_small = not number or number.adjusted() < _INTEGER_DIGITS
        if is_small and number != number.to_integral_value():
            self.note("not_an_integer", field)
            return None
        if not is_small or not -_INTEGER_LIMIT <= number < _INTEGER_LIMIT:
            self.note("integer_out_of_range", field)
            return None
        return int(number)

    def _number(self, value: object, field: str) -> Decimal | None:
        try:
            return parse_number(value)
        except Unreadable as error:
            self.note(str(error), field)
            return None

    def members(self, value: object, field: str, *, text_is: str) -> Mapping[str, Any]:
        """The members of an object. A plain text counts as its member `text_is`."""
        if isinstance(value, dict):
            return value
        if is_empty(value):
            return _NOTHING
        if isinstance(value, str):
            self.remark("not_an_object", field)
            return {text_is: value}
        self.note("not_an_object", field)
        return _NOTHING

    def objects(
        self, value: object, field: str, is_one: Callable[[Mapping[str, Any]], bool]
    ) -> list[Mapping[str, Any]]:
        """The objects of a list in any form (`elements_of`), without empty ones."""
        if is_empty(value):
            return []
        elements = elements_of(value, is_one)
        if elements is None:
            self.note("not_a_list", field)
            return []
        there = [one for one in elements if not is_empty(one)]
        objects: list[Mapping[str, Any]] = [one for one in there if isinstance(one, dict)]
        if len(objects) < len(there):
            self.note("not_an_object", field)
        return objects
