"""The layers of a configuration, each read as a tree: a TOML file and `ORDERBRIDGE_…` variables.

In a variable's name `__` nests, and a number picks an entry of a list. The later layer wins, key by key.
"""

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic_settings import EnvSettingsSource, SettingsError

from orderbridge.config.findings import Findings, unknown_key
from orderbridge.config.settings import PREFIX, Settings
from orderbridge.config.tree import Tree, at
from orderbridge.errors import ConfigError
from orderbridge.texts import say

NO_KEYS = re.compile(rf"{PREFIX}(CONFIG|TEST_.*)")  # variables of ours that configure nothing

# What tomllib says, and the sentence of ours that says what is right.
TOML_HINTS = {
    "Invalid value": "config.toml_quotes",
    "Illegal character": "config.toml_quotes",
    "Unescaped '\\'": "config.toml_backslash",
    "Invalid hex value": "config.toml_backslash",
    "Expected '='": "config.toml_equals",
    "Cannot declare": "config.toml_twice",
    "Cannot overwrite": "config.toml_twice",
    "Cannot mutate": "config.toml_twice",
}


def read(file: Path) -> Tree:
    """What the file says."""
    try:
        return tomllib.loads(file.read_bytes().decode("utf-8-sig"))  # editors on Windows write a BOM
    except FileNotFoundError:
        raise ConfigError("config.no_file", file=file) from None
    except IsADirectoryError:
        raise ConfigError("config.folder", file=file) from None
    except OSError as error:
        raise ConfigError("config.unreadable", file=file, reason=error.strerror) from None
    except UnicodeDecodeError:
        raise ConfigError("config.not_utf8", file=file) from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError("config.no_toml", file=file, reason=error, hint=_hint(str(error))) from None
    except RecursionError as error:
        raise ConfigError("config.no_toml", file=file, reason=error, hint=_hint("")) from None


def _hint(reason: str) -> str:
    """What tomllib found, as what to write. The line itself is not shown: it may hold a secret."""
    return say(next((key for words, key in TOML_HINTS.items() if words in reason), "config.toml_example"))


def from_environ(environ: Mapping[str, str], found: Findings) -> Tree:
    """What `ORDERBRIDGE_…` says. pydantic-settings passes over variables that it does not know; we do not."""
    ours = {name: value for name, value in environ.items() if name.startswith(PREFIX) and not NO_KEYS.fullmatch(name)}
    source = EnvSettingsSource(Settings)
    source.env_vars = {name.lower(): value for name, value in ours.items()}
    try:
        tree = source()
    except SettingsError as error:
        raise ConfigError("config.no_json", name=_culprit(error, ours)) from None
    for name in ours:
        place = tuple(name.removeprefix(PREFIX).lower().split("__"))
        found.claim(place, name)
        if at(tree, place) is None:
            found.problems[place] = unknown_key(place)
    return tree


def _culprit(error: SettingsError, ours: Mapping[str, str]) -> str:
    """The variable whose value is the document that did not parse; pydantic-settings names only its outermost key."""
    cause = error.__cause__
    document = cause.doc if isinstance(cause, json.JSONDecodeError) else None
    return next((name for name, value in ours.items() if value == document), f"{PREFIX}…")


def merge(base: Any, over: Any) -> Any:
    """`over` wins key by key. Numbered keys reach into a list; a list as a whole replaces the other."""
    if isinstance(base, list) and isinstance(over, dict):
        base = {str(index): value for index, value in enumerate(base)}
    if isinstance(base, dict) and isinstance(over, dict):
        return base | {key: merge(base.get(key), value) for key, value in over.items()}
    return over


def as_lists(tree: Any) -> Any:
    """A copy in which tables numbered from 0 are lists. No key of ours is a number."""
    if isinstance(tree, list):
        return [as_lists(value) for value in tree]
    if not isinstance(tree, dict):
        return tree
    values = {key: as_lists(value) for key, value in tree.items()}
    numbers = [str(index) for index in range(len(values))]
    return [values[number] for number in numbers] if values and values.keys() == set(numbers) else values
