"""What a switch is: one line with its name, kind, default and a sentence in each language.

`--set`, PATCH /_sandbox/options, the refusal of what does not exist and docs/sandbox.md are made of these lines.
"""

from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from enum import StrEnum
from types import NoneType, UnionType
from typing import Any, Final, TypeVar, get_args

Value = TypeVar("Value")

NOTHING: Final = ("none", "")
"""How a text says that a switch has no value."""
_TRUE: Final = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
_KINDS: Final = {bool: "true or false", int: "whole number", float: "number", str: "text"}


class BadOption(ValueError):
    """An option that does not exist, or a value that it cannot take."""


def switch(default: Value, *, en: str, tr: str) -> Value:
    """Return the field of a dataclass that is a switch."""
    return field(default=default, metadata={"en": en, "tr": tr})


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """One line of the table."""

    name: str
    kind: Any
    """bool, int, float, str, a StrEnum, or one of them and None."""
    default: Any
    about: Mapping[str, str]
    """What it does, by language."""

    @property
    def type(self) -> Any:
        """Its kind without None."""
        return next(one for one in self._types if one is not NoneType)

    @property
    def may_be_none(self) -> bool:
        """Whether it can be without a value."""
        return NoneType in self._types

    @property
    def _types(self) -> tuple[Any, ...]:
        return get_args(self.kind) if isinstance(self.kind, UnionType) else (self.kind,)

    @property
    def values(self) -> list[str]:
        """What it can be, when that is a list."""
        return list(self.type) if issubclass(self.type, StrEnum) else []

    @property
    def told(self) -> str:
        """Its kind in words."""
        kind = ", ".join(self.values) or _KINDS[self.type]
        return f"{kind}, or none" if self.may_be_none else kind

    def of(self, value: Any) -> Any:
        """Return the value as the switch keeps it, from JSON or from the program."""
        if value is None and self.may_be_none:
            return None
        if self.values and value in self.values:
            return self.type(value)
        if self.type is float and type(value) is int:
            return float(value)
        # A bool is an int to Python, but never a sensible number of seconds.
        if self.values or not isinstance(value, self.type) or (isinstance(value, bool) and self.type is not bool):
            raise BadOption(f"{self.name}: {value!r} is not: {self.told}")
        return value

    def parsed(self, text: str) -> Any:
        """Return the value that a text on the command line means."""
        if self.may_be_none and text.lower() in NOTHING:
            return None
        try:
            if self.type is bool:
                return _TRUE[text.lower()]
            return self.of(self.type(text))
        except (KeyError, ValueError) as error:
            raise BadOption(f"{self.name}: {text!r} is not: {self.told}") from error


def switches_of(table: Any) -> dict[str, Switch]:
    """Return the switches of a dataclass, by name."""
    return {line.name: _switch_of(line) for line in fields(table)}


def _switch_of(line: Field[Any]) -> Switch:
    default = None if line.default is MISSING else line.default
    return Switch(name=line.name, kind=line.type, default=default, about=line.metadata)


def unknown(what: str, names: list[str], known: list[str]) -> str:
    """Return the refusal of names that do not exist."""
    return f"no such {what}: {', '.join(sorted(names))}; there are {', '.join(known)}"
