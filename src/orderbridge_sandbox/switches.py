"""Defines an option: a dataclass field in options.py, with its kind, default and a sentence in each language.

`--set`, PATCH /_sandbox/options, their error messages and docs/sandbox.md are generated from these fields.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from decimal import Decimal
from enum import StrEnum
from functools import cache
from importlib.resources import files
from inspect import Parameter
from types import NoneType
from typing import Any, Final, get_args

NOTHING: Final = ("none", "")  # texts that mean no value
_TRUE: Final = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
_KINDS: Final = {
    bool: "true or false",
    int: "whole number",
    float: "number",
    Decimal: "number",
    str: "text",
    dict: "object",
    list: "list of texts",
}


@cache
def words() -> dict[str, Any]:
    """The sandbox's sentences by part (switches, presets, commands, faults, advice, terminal), name and language."""
    return tomllib.loads(files("orderbridge_sandbox").joinpath("words.toml").read_text("utf-8"))


class BadOption(ValueError):
    """An option that does not exist, or a value that it cannot take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """One switch, or one field of a command's body or query: its name, type and default."""

    name: str
    type: Any  # one of _KINDS, or a StrEnum
    may_be_none: bool
    default: Any

    @property
    def about(self) -> Mapping[str, str]:
        """What it does, by language."""
        about: Mapping[str, str] = words()["switches"][self.name]
        return about

    @property
    def is_needed(self) -> bool:
        """Whether a command requires it."""
        return self.default is Parameter.empty

    @property
    def values(self) -> list[str]:
        """The accepted values of a StrEnum; empty for other types."""
        return list(self.type) if issubclass(self.type, StrEnum) else []

    @property
    def kind(self) -> str:
        """The accepted values, in words."""
        kind = ", ".join(self.values) or _KINDS[self.type]
        return f"{kind}, or none" if self.may_be_none else kind

    def of(self, value: Any) -> Any:
        """Return the checked value, which comes from JSON or from the program."""
        if value is None and self.may_be_none:
            return None
        if self.values and value in self.values:
            return self.type(value)
        if self.type in (float, Decimal) and type(value) is int:
            return self.type(value)
        # In Python a bool is an int, but it is not a number here.
        is_wrong = (
            self.values or not isinstance(value, self.type) or (isinstance(value, bool) and self.type is not bool)
        )
        if is_wrong or (self.type is list and not all(isinstance(one, str) for one in value)):
            raise BadOption(f"{self.name}: {value!r}; expected: {self.kind}")
        return value

    def parsed(self, text: str) -> Any:
        """Return the value of a text from the command line."""
        if self.may_be_none and text.lower() in NOTHING:
            return None
        try:
            return self.of(_TRUE[text.lower()] if self.type is bool else self.type(text))
        except (KeyError, ValueError) as error:
            raise BadOption(f"{self.name}: {text!r}; expected: {self.kind}") from error


def switches_of(table: Any) -> dict[str, Switch]:
    """Return the switches of a dataclass, by name."""
    found = {}
    for line in fields(table):
        kinds = get_args(line.type) or (line.type,)
        found[line.name] = Switch(name=line.name, type=kinds[0], may_be_none=NoneType in kinds, default=line.default)
    return found


def unknown(what: str, names: list[str], known: list[str]) -> str:
    """Return the error text for names that do not exist."""
    return f"no such {what}: {', '.join(sorted(names))}; known: {', '.join(known)}"
