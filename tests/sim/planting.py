"""A bug is planted by changing the text of one function for the length of a test, wherever it was imported to."""

import inspect
import textwrap
from types import FunctionType
from typing import Any

import pytest


def plant(monkeypatch: pytest.MonkeyPatch, function: Any, sound: str, broken: str) -> None:
    """Put `broken` where `sound` stands in the function's text. It must stand there, once."""
    assert isinstance(function, FunctionType)
    text = textwrap.dedent(inspect.getsource(function))
    assert text.count(sound) == 1, f"{sound!r} stands {text.count(sound)} times in {function.__qualname__}"
    made: dict[str, Any] = {}
    exec(
        compile(text.replace(sound, broken), f"<planted in {function.__qualname__}>", "exec"),
        function.__globals__,
        made,
    )
    monkeypatch.setattr(function, "__code__", made[function.__name__].__code__)
