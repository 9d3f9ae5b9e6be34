"""Builds the table of the control interface's commands from functions' signatures, and checks requests against it.

Routes, error messages, the help and docs/sandbox.md are generated from COMMANDS; the sentences are in words.toml.
"""

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from functools import wraps
from types import UnionType
from typing import Any, Concatenate, Final, ParamSpec, TypeVar, get_args, get_origin

from .faults import EVERY_OPERATION, Fault, FaultKind
from .options import PRESETS, SWITCHES
from .rules import Operation
from .switches import Switch, unknown, words
from .world import World

PREFIX: Final = "/_sandbox"
P = ParamSpec("P")
R = TypeVar("R")


class BadRequest(Exception):
    """A request that the control interface refuses, with this HTTP status."""

    def __init__(self, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command of the control interface."""

    method: str
    path: str
    act: Callable[..., Any]
    # The fields of the body, or of a GET's query. None: the function checks them itself (switches, faults).
    parts: Mapping[str, Switch] | None

    @property
    def words(self) -> Mapping[str, Any]:
        """Its sentence by language, and those of its parts by name."""
        found: Mapping[str, Any] = words()["commands"][f"{self.method} {self.path}"]
        return found

    def arguments(self, body: Mapping[str, Any], query: Mapping[str, Any]) -> dict[str, Any]:
        """Return the checked arguments; null counts as not given. Raises BadRequest or BadOption."""
        is_get, parts = self.method == "GET", self.parts or {}
        check_names("query parameter", query, parts if is_get else ())
        if self.parts is None:
            return dict(body)
        check_names("field", body, () if is_get else parts)
        given = {name: value for name, value in {**body, **query}.items() if value is not None}
        for name, part in parts.items():
            if name in given:
                given[name] = part.of(given[name])
            elif part.is_needed:
                raise BadRequest(f"{name} is missing: {part.kind}")
        return given


COMMANDS: Final[list[Command]] = []


def command(
    method: str, path: str
) -> Callable[[Callable[Concatenate[World, P], R]], Callable[Concatenate[World, P], R]]:
    """Add a function to the table. It runs under the world's lock and wakes World.wait_for."""

    def enter(act: Callable[Concatenate[World, P], R]) -> Callable[Concatenate[World, P], R]:
        @wraps(act)
        def locked(world: World, /, *args: P.args, **given: P.kwargs) -> R:
            with world.lock:
                result = act(world, *args, **given)
                world.lock.notify_all()
                return result

        COMMANDS.append(Command(method=method, path=path, act=locked, parts=_parts(act, path)))
        return locked

    return enter


def _parts(act: Callable[..., Any], path: str) -> dict[str, Switch] | None:
    """Return the function's parameters, without the world and those of the path."""
    _, *parameters = inspect.signature(act).parameters.values()
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters):
        return None
    found = {}
    for one in parameters:
        if f"{{{one.name}}}" not in path:
            kind = get_args(one.annotation)[0] if isinstance(one.annotation, UnionType) else one.annotation
            kind = get_origin(kind) or kind
            found[one.name] = Switch(name=one.name, type=kind, may_be_none=False, default=one.default)
    return found


def check_names(what: str, given: Iterable[str], known: Collection[str]) -> None:
    """Refuse unknown names."""
    missing = [name for name in given if name not in known]
    if missing:
        raise BadRequest(unknown(what, missing, list(known) or ["none"]))


@command("GET", "/")
def show_help(world: World) -> Any:
    """Return all commands, switches and faults, in the language of the switch `language`."""
    language = world.options.language
    return {
        "about": "Control of the sandbox; not part of the service's interface. docs/sandbox.md describes it.",
        "commands": [f"{one.method} {PREFIX}{one.path}: {one.words[language]}{_fields(one)}" for one in COMMANDS],
        "operations": [EVERY_OPERATION, *Operation],
        "fault_kinds": list(FaultKind),
        "fault_fields": [one.name for one in fields(Fault)],
        "options": world.options.as_json(),
        "switches": {name: f"{one.about[language]} ({one.kind})" for name, one in SWITCHES.items()},
        "presets": {name: words()["presets"][name][language] for name in PRESETS},
    }


def _fields(one: Command) -> str:
    names = [f"?{name}" if one.method == "GET" else name for name in one.parts or {}]
    return f" {{{', '.join(names)}}}" if names else ""
