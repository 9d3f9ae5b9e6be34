"""Planting a bug: something of the program does for the length of a test what it must not do.

What is replaced are functions, methods and values with a meaning of their own, never their wording: a reworded line
breaks nothing here.
"""

import sys
from collections.abc import Callable
from typing import Any

import pytest
from tests.sim import compiled

Make = Callable[[Callable[..., Any]], Callable[..., Any]]


class Planting:
    """What a bug may do to the program."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        monkeypatch.setattr(compiled, "_kept", compiled.Compiled())

    def instead(self, function: Callable[..., Any], make: Make) -> None:
        """In each module that knows `function`, `make(function)` stands in its place."""
        replaced, found = make(function), 0
        for name, module in list(sys.modules.items()):
            if name.startswith("orderbridge"):
                for attribute, value in list(vars(module).items()):
                    if value is function:
                        self._monkeypatch.setattr(module, attribute, replaced)
                        found += 1
        assert found, f"no module knows {function}"

    def method(self, owner: type, name: str, make: Make) -> None:
        """The method does what `make(method)` does."""
        self._monkeypatch.setattr(owner, name, make(getattr(owner, name)))

    def value(self, module: Any, name: str, value: object) -> None:
        """A module's value is another one."""
        self._monkeypatch.setattr(module, name, value)


def nothing(_: Callable[..., Any]) -> Callable[..., Any]:
    """It does nothing."""
    return lambda *_, **__: None


def idle(_: Callable[..., Any]) -> Callable[..., Any]:
    """It is awaited, and does nothing."""

    async def wait(*_: Any, **__: Any) -> None:
        pass

    return wait


def always(result: object) -> Make:
    """It says that, whatever it is asked."""
    return lambda _: lambda *_, **__: result
