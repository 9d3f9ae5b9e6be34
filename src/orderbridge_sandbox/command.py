"""What a command of the control interface is, and how what came with a call is checked by it."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from typing import Any, Final

from .switches import unknown
from .world import World

PREFIX: Final = "/_sandbox"


class BadRequest(Exception):
    """A body that the control interface cannot use."""


class FieldKind(Enum):
    """What a field takes, in words."""

    TEXT = "text"
    WHOLE = "whole number"
    NUMBER = "number"
    FLAG = "true or false"
    OBJECT = "object"
    TEXTS = "list of texts"


_TYPES: Final[Mapping[FieldKind, Any]] = {
    FieldKind.TEXT: str,
    FieldKind.WHOLE: int,
    FieldKind.NUMBER: int | Decimal,
    FieldKind.FLAG: bool,
    FieldKind.OBJECT: dict,
    FieldKind.TEXTS: list,
}


@dataclass(frozen=True, slots=True)
class Part:
    """A field of a body or a query."""

    kind: FieldKind
    en: str
    tr: str
    needed: bool = False


@dataclass(frozen=True, slots=True)
class Given:
    """What came with a call."""

    body: Mapping[str, Any]
    path: Mapping[str, str]
    query: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One line of the table."""

    method: str
    path: str
    act: Callable[[World, Given], Any]
    en: str
    tr: str
    body: Mapping[str, Part] | None = field(default_factory=dict)
    """None: the handler knows its fields itself (switches, faults)."""
    query: Mapping[str, Part] = field(default_factory=dict)


def given_to(command: Command, given: Given) -> Given:
    """Return what came, checked by the table; raises BadRequest by name. null counts as not given."""
    check_names("query parameter", given.query, command.query)
    if command.body is None:
        return given
    check_names("field", given.body, command.body)
    body = {name: value for name, value in given.body.items() if value is not None}
    for name, part in command.body.items():
        if name in body:
            _check(name, body[name], part.kind)
        elif part.needed:
            raise BadRequest(f"{name} is missing: {part.kind.value}")
    return Given(body, given.path, given.query)


def check_names(what: str, given: Iterable[str], known: Collection[str]) -> None:
    """Refuse what is not known, by name."""
    missing = [name for name in given if name not in known]
    if missing:
        raise BadRequest(unknown(what, missing, list(known) or ["none"]))


def _check(name: str, value: Any, kind: FieldKind) -> None:
    right = isinstance(value, _TYPES[kind]) and (kind is FieldKind.FLAG or not isinstance(value, bool))
    if not right or (kind is FieldKind.TEXTS and not all(isinstance(one, str) for one in value)):
        raise BadRequest(f"{name}: {value!r} is not: {kind.value}")
