"""Plants a bug: replaces functions, methods or values of the program by name, for the length of a test."""

import sys
from collections.abc import Callable
from typing import Any

import pytest
from tests.sim import disk

# The target: a function in each module that imports it, or an owner and a member's name. The replacement: a value, or a
# function that gets the original as its first argument.
Plant = tuple[Any, Any]


def plant(monkeypatch: pytest.MonkeyPatch, *plants: Plant) -> None:
    monkeypatch.setattr(disk, "_kept", disk.Compiled())
    for target, other in plants:
        places = [target] if isinstance(target, tuple) else _places_of(target)
        assert places, f"no module knows {target}"
        for owner, name in places:
            monkeypatch.setattr(owner, name, _instead(getattr(owner, name), other) if callable(other) else other)


def _places_of(function: Any) -> list[tuple[Any, str]]:
    modules = [module for name, module in sys.modules.items() if name.startswith("orderbridge")]
    return [(module, name) for module in modules for name, value in vars(module).items() if value is function]


def _instead(true: Any, other: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *of, **how: other(true, *of, **how)


def always(result: object) -> Callable[..., Any]:
    return lambda *_, **__: result


def nothing(*_: Any, **__: Any) -> None:
    """Do nothing."""


async def idle(*_: Any, **__: Any) -> None:
    """Do nothing, as a coroutine."""
