"""One value of a document into one column: lenient, total, and honest about what it could not read.

The problem codes, each followed by `:` and the service's name of the field (`total`, `foods.price`):

| code | what was wrong | what the column gets |
|---|---|---|
| not_text | an object, a list or a truth value where text belongs | NULL |
| text_cut | a name or code longer than 255 characters | its first 255 characters |
| not_a_number | text that is no number, or another type | NULL |
| ambiguous_number | text such as `1,234`, which may be 1.234 or 1234 | NULL |
| amount_rounded | more than four decimals | the amount, rounded half-even to four |
| amount_out_of_range | more than ten digits before the point | NULL |
| not_an_integer | a number with decimals where a whole one belongs | NULL |
| integer_out_of_range | a whole number of more than 64 bits | NULL |
| not_an_object | `customer`, `address`, or an element of a list that is no object | NULL, or the element is left out |
| not_a_list | `foods` or `option_groups` is no list | no elements |
| missing | `foods` is not there at all | no elements |

Besides these, without a field: status_unreadable (no status_id, or one that is no whole number).
"""

import re
from collections.abc import Mapping
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

NAME_LENGTH = 255  # names and codes; docs/design.md, Database contract

_AMOUNT_DIGITS = 10  # before the point, of NUMERIC(14,4)
_AMOUNT_STEP = Decimal("0.0001")
_INTEGER_LIMIT = 2**63
_INTEGER_DIGITS = 19
UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_JSON = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,4})?")
_PLAIN = re.compile(r"[+-]?[0-9]+([.,][0-9]+)?")
_GROUPED = re.compile(
    r"[+-]?[0-9]{1,3}(?:(?P<group>[., '\u00a0\u202f])[0-9]{3})(?:(?P=group)[0-9]{3})*(?P<decimals>[.,][0-9]+)?"
)
_NOTHING: Mapping[str, Any] = {}


class Unreadable(ValueError):
    """The value is nothing that the column can hold; `code` says why."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


def parse_number(value: object) -> Decimal | None:
    """The number that a JSON number or a text is; None for null and for blank text. Raises Unreadable."""
    if isinstance(value, Decimal):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return Decimal(value)
    if value is None:
        return None
    if not isinstance(value, str):
        raise Unreadable("not_a_number")
    return _number_of_text(value.strip())


def _number_of_text(text: str) -> Decimal | None:
    """`12.50`, `12,50`, `1.5e1`, `1.234,50`, `1,234,567`. `1,234` says nothing for certain.

    What JSON would read as a number is that number: the service writes a point before its decimals.
    """
    if not text:
        return None
    if _JSON.fullmatch(text) is not None:
        return Decimal(text)
    grouped = _GROUPED.fullmatch(text)
    if grouped is None:
        if _PLAIN.fullmatch(text) is None:
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


def parse_integer(value: object) -> int | None:
    """The whole number of 64 bits that a value is; None for null and for blank text. Raises Unreadable."""
    if type(value) is int:
        return _in_64_bits(value)
    number = parse_number(value)
    if number is None:
        return None
    if number and number.adjusted() >= _INTEGER_DIGITS:
        raise Unreadable("integer_out_of_range")
    if number != number.to_integral_value():
        raise Unreadable("not_an_integer")
    return _in_64_bits(int(number))


def _in_64_bits(number: int) -> int:
    if not -_INTEGER_LIMIT <= number < _INTEGER_LIMIT:
        raise Unreadable("integer_out_of_range")
    return number


def compared(key: str) -> str:
    """An id of the service in the one form in which ids are compared: a UUID in lower case, anything else as it is."""
    lower = key.strip().lower()
    return lower if UUID.fullmatch(lower) else key


class Reader:
    """Reads the fields of one order and remembers, once each, the problems it met."""

    __slots__ = ("_plain", "_problems")

    def __init__(self, *, plain: bool = False) -> None:
        """`plain`: nothing of the document can be a letter that no database takes."""
        self._plain = plain
        self._problems: dict[str, None] = {}

    @property
    def problems(self) -> tuple[str, ...]:
        return tuple(self._problems)

    def note(self, problem: str) -> None:
        self._problems[problem] = None

    def text(self, value: object, field: str, *, limit: int | None = NAME_LENGTH) -> str | None:
        """Text as it came, what no database takes replaced; numbers as text."""
        if self._plain and type(value) is str and len(value) <= NAME_LENGTH:
            return value
        if not isinstance(value, str):
            if value is None:
                return None
            if isinstance(value, bool) or not isinstance(value, int | Decimal):
                self.note(f"not_text:{field}")
                return None
            value = str(value)
        if _UNSTORABLE.search(value):
            value = _UNSTORABLE.sub("\ufffd", value)
        if limit is not None and len(value) > limit:
            self.note(f"text_cut:{field}")
            return value[:limit]
        return value

    def long_text(self, value: object, field: str) -> str | None:
        """Text without a bound."""
        return self.text(value, field, limit=None)

    def moment(self, value: object, field: str) -> str | None:
        """A time as the service writes it; none when it is blank."""
        said = self.text(value, field)
        return said if said and not said.isspace() else None

    def identity(self, value: object, field: str) -> str | None:
        """An id of the service, as ids are compared."""
        said = self.text(value, field)
        return None if said is None else compared(said)

    def amount(self, value: object, field: str) -> Decimal | None:
        """Money: NUMERIC(14,4)."""
        try:
            number = parse_number(value)
        except Unreadable as error:
            self.note(f"{error.code}:{field}")
            return None
        if not number:
            return None if number is None else Decimal(0)
        if number.adjusted() >= _AMOUNT_DIGITS:
            self.note(f"amount_out_of_range:{field}")
            return None
        rounded = number.quantize(_AMOUNT_STEP, rounding=ROUND_HALF_EVEN)
        if rounded != number:
            if rounded.adjusted() >= _AMOUNT_DIGITS:
                self.note(f"amount_out_of_range:{field}")
                return None
            self.note(f"amount_rounded:{field}")
        return rounded

    def integer(self, value: object, field: str) -> int | None:
        """A whole number of 64 bits."""
        if type(value) is int and -_INTEGER_LIMIT <= value < _INTEGER_LIMIT:
            return value
        try:
            return parse_integer(value)
        except Unreadable as error:
            self.note(f"{error.code}:{field}")
            return None

    def members(self, value: object, field: str) -> Mapping[str, Any]:
        """The members of an object; none for null."""
        if isinstance(value, dict):
            return value
        if value is not None:
            self.note(f"not_an_object:{field}")
        return _NOTHING

    def objects(self, value: object, field: str) -> list[Mapping[str, Any]]:
        """The objects in a list; one object stands for a list of one, null for an empty list."""
        if isinstance(value, dict):
            return [value]
        if not isinstance(value, list):
            if value is not None:
                self.note(f"not_a_list:{field}")
            return []
        objects: list[Mapping[str, Any]] = [entry for entry in value if isinstance(entry, dict)]
        if len(objects) < len(value):
            self.note(f"not_an_object:{field}")
        return objects
