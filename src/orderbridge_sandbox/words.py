"""The sandbox's sentences, in English and Turkish, out of words.toml."""

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def words() -> dict[str, Any]:
    """Return them by part (switches, presets, commands, faults, advice, terminal), name and language."""
    return tomllib.loads(files("orderbridge_sandbox").joinpath("words.toml").read_text("utf-8"))
