"""Loads `Settings` from a file and the environment, or reports each wrong key with its origin.

1. `find` chooses the file; `read` and `from_environ` turn it and the variables into trees of tables.
2. `merge` puts the variables over the file, key by key.
3. `settle` reads the secrets' files.
4. The models check the result and resolve relative paths against the file's folder.

Each message names the remedy. No message shows a secret. pydantic's own error is never chained, because it holds the
input.
"""

import difflib
import json
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import EnvSettingsSource, SettingsError

from orderbridge.config.addresses import without_password
from orderbridge.config.keys import SECRETS, Database, new_master_key
from orderbridge.config.settings import PREFIX, Settings, Source, warnings_of
from orderbridge.errors import ConfigError
from orderbridge.texts import LANGUAGES, say

SYSTEM_FILE = Path("/etc/orderbridge/config.toml")
NOT_SETTINGS = re.compile(rf"{PREFIX}(CONFIG|TEST_.*)")  # our variables that are no keys of the configuration
MASTER_KEY = "master_key"
DEFAULT_URL: str = Database.model_fields["url"].default

# Parts of tomllib's messages, and our sentence with the remedy.
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

# pydantic's error types, and our sentences.
WORDS = {
    **{kind: kind for kind in ("missing", "greater_than", "greater_than_equal", "less_than_equal", "too_long")},
    **dict.fromkeys(("int_parsing", "int_type", "int_from_float"), "whole"),
    **dict.fromkeys(("float_parsing", "float_type", "finite_number"), "number"),
    **dict.fromkeys(("bool_parsing", "bool_type"), "bool"),
    **dict.fromkeys(("string_type", "path_type"), "string"),
    "tuple_type": "tuple",
    "model_type": "table",
}
LISTS = {("accounts",): "config.accounts_list", ("alarms", "command"): "config.command_list"}

Place = tuple[str, ...]  # ("accounts", "0", "name")
Tree = dict[str, Any]


# ---- problems --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Findings:
    """What loading finds. `origins`: the variable or secret file that set a key or a table."""

    file: Path | None
    needs_secrets: bool = True
    origins: dict[Place, str] = field(default_factory=dict)
    problems: dict[Place, str] = field(default_factory=dict)
    without_secrets: set[Place] = field(default_factory=set)  # unreadable, but not needed

    def add(self, error: ValidationError) -> None:
        """Add the models' errors, except at places that have a problem already."""
        for details in error.errors(include_url=False, include_input=False):
            place = tuple(map(str, details["loc"])) or ("accounts",)  # the only check across tables is about accounts
            self.problems.setdefault(place, _sentence(details, place))

    def lines(self) -> list[str]:
        """One line for each problem: the key, the origin of the key or its table, and the problem."""
        found = []
        for place, problem in sorted(self.problems.items()):
            around = (self.origins.get(place[:length]) for length in range(len(place), 0, -1))
            origin = next(filter(None, around), self.file)
            found.append(f"{dotted(place)}{f' ({origin})' if origin else ''}: {problem}")
        return found


def dotted(place: Place) -> str:
    """The place in the usual notation: accounts[0].name."""
    return "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in place).lstrip(".")


def in_words(error: ValidationError) -> str:
    """The problems of settings that are not from a file, as one text."""
    found = Findings(None)
    found.add(error)
    return "; ".join(found.lines())


def _sentence(details: ErrorDetails, place: Place) -> str:
    context = details.get("ctx", {})
    match details["type"]:
        case "tuple_type" if place in LISTS:
            return say(LISTS[place])
        case "literal_error":
            *others, _, last = context["expected"].split()  # pydantic joins them in English
            return say("config.literal_error", expected=" ".join([*others, say("config.or"), last]))
        case "extra_forbidden":
            return unknown_key(place)
        case "value_error":
            return str(context["error"])
        case known if known in WORDS:
            return say(f"config.{WORDS[known]}", **context)
        case _:
            return details["msg"]


def unknown_key(place: Place) -> str:
    """The message for an unknown key, with the most similar known one."""
    near = difflib.get_close_matches(place[-1], _key_names(Settings), 1)
    if near == [place[-1]]:
        return say("config.unknown_here")
    return say("config.unknown_near", near=near[0]) if near else say("config.unknown")


def _key_names(model: type[BaseModel]) -> list[str]:
    """All keys of a table and of its subtables."""
    names = list(model.model_fields)
    for info in model.model_fields.values():
        for part in (info.annotation, *getattr(info.annotation, "__args__", ())):
            if isinstance(part, type) and issubclass(part, BaseModel):
                names += _key_names(part)
    return names


# ---- loading ---------------------------------------------------------------------------------------------------------


def load(
    path: Path | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    speaks: Callable[[str], None] = lambda _: None,
    needs_secrets: bool = True,
) -> Settings:
    """Return the settings, or raise ConfigError with one line for each problem.

    `speaks` is called with the configured language before a problem is reported. Without `needs_secrets`, an unreadable
    secret is replaced by a random one, and `Settings.source.without_secrets` names its account.
    """
    file = find(path, environ)
    found = Findings(file, needs_secrets)
    in_file = read(file) if file else {}
    holds_secrets = _holds_secret(in_file)
    tree = merge(in_file, from_environ(environ, found))
    if file is None and not tree and not found.problems:
        raise ConfigError("config.none_found")
    language = tree.get("language", Settings.model_fields["language"].default)
    if language in LANGUAGES:
        speaks(language)
    folder = file.parent if file else Path.cwd()
    settle(tree, folder, environ, found)
    settings = _validate(tree, folder, found)
    settings._source = Source(  # noqa: SLF001 - only `load` knows it
        file=file,
        origins={dotted(place): origin for place, origin in found.origins.items()},
        warnings=tuple(warnings_of(settings, file, holds_secrets=holds_secrets)),
        without_secrets=frozenset(_owner(settings, place) for place in found.without_secrets),
    )
    return settings


def find(path: Path | None, environ: Mapping[str, str]) -> Path | None:
    """The absolute path of the named file, or of the first that exists in the usual places."""
    named = path or (Path(environ["ORDERBRIDGE_CONFIG"]) if environ.get("ORDERBRIDGE_CONFIG") else None)
    if named:
        return named.absolute()
    usual = [Path("orderbridge.toml"), SYSTEM_FILE]
    if home := environ.get("HOME"):
        usual.insert(1, Path(home, ".config/orderbridge/config.toml"))
    return next((candidate.absolute() for candidate in usual if os.path.lexists(candidate)), None)


def _validate(tree: Tree, folder: Path, found: Findings) -> Settings:
    try:
        settings = Settings.model_validate(tree, context=folder)
    except ValidationError as error:
        found.add(error)
    else:
        if not found.problems:
            return settings
    raise ConfigError("config.unusable", problems="\n".join(f"  {line}" for line in found.lines()))


def _owner(settings: Settings, place: Place) -> str:
    """The account of this secret; "" for the master key."""
    return settings.accounts[int(place[1])].name if place[0] == "accounts" else ""


def _holds_secret(in_file: Tree) -> bool:
    url = str(_table(in_file, "database").get("url"))
    tables = [_table(in_file, "fleet"), *(account for _, account in _accounts(in_file))]
    return without_password(url) != url or any({*SECRETS, MASTER_KEY} & table.keys() for table in tables)


# ---- the layers ------------------------------------------------------------------------------------------------------


def read(file: Path) -> Tree:
    """Parse the file."""
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
    except (tomllib.TOMLDecodeError, RecursionError) as error:  # the line is not shown: it may hold a secret
        hint = next((key for words, key in TOML_HINTS.items() if words in str(error)), "config.toml_example")
        raise ConfigError("config.no_toml", file=file, reason=error, hint=say(hint)) from None


def from_environ(environ: Mapping[str, str], found: Findings) -> Tree:
    """Read the `ORDERBRIDGE_…` variables. Unlike in pydantic-settings, an unknown one is an error.

    In a variable's name `__` separates tables and keys, and a number selects an entry of a list.
    """
    names = [name for name in environ if name.startswith(PREFIX) and not NOT_SETTINGS.fullmatch(name)]
    source = EnvSettingsSource(Settings, env_prefix=PREFIX, env_nested_delimiter="__")  # type: ignore[arg-type]
    source.env_vars = {name.lower(): environ[name] for name in names}
    try:
        tree = source()
    except SettingsError as error:  # which names only the outermost key
        document = error.__cause__.doc if isinstance(error.__cause__, json.JSONDecodeError) else None
        culprit = next((name for name in names if environ[name] == document), f"{PREFIX}…")
        raise ConfigError("config.no_json", name=culprit) from None
    for name in names:
        place = tuple(name.removeprefix(PREFIX).lower().split("__"))
        found.origins[place] = name
        if _at(tree, place) is None:
            found.problems[place] = unknown_key(place)
    return tree


def merge(base: Any, over: Any) -> Any:
    """A copy of `base` with the values of `over`, merged key by key.

    A table with the keys 0, 1, … is a list, since no key of ours is a number. So a number changes one entry of a list,
    and a list replaces a list.
    """
    if isinstance(over, list):
        return [merge(None, value) for value in over]
    if not isinstance(over, dict):
        return over
    below = {str(index): value for index, value in enumerate(base)} if isinstance(base, list) else base
    below = below if isinstance(below, dict) else {}
    values = {key: merge(below.get(key), over.get(key, below.get(key))) for key in {**below, **over}}
    numbers = [str(index) for index in range(len(values))]
    return [values[number] for number in numbers] if values and values.keys() == set(numbers) else values


def _at(tree: Any, place: Place) -> Any:
    """The value at a place, or None."""
    for key in place:
        tree = tree.get(key) if isinstance(tree, dict) else None
    return tree


# ---- paths and secrets -----------------------------------------------------------------------------------------------


def settle(tree: Tree, folder: Path, environ: Mapping[str, str], found: Findings) -> None:
    """Read the secret files, and set the default database: in systemd's state directory if there is one."""
    for name in ("database", "fleet"):
        tree.setdefault(name, {})
    state = environ.get("STATE_DIRECTORY", "").partition(":")[0]  # may be a list
    default = DEFAULT_URL.replace(":///", f":///{state}/") if state else DEFAULT_URL
    _table(tree, "database").setdefault("url", default)
    _settle_secrets(tree, folder, environ, found)


def _table(tree: Tree, name: str) -> Tree:
    """The table of this name, or an empty one. The models refuse a value that is not a table."""
    table = tree.get(name)
    return table if isinstance(table, dict) else {}


def _accounts(tree: Tree) -> Iterator[tuple[int, Tree]]:
    """The account tables with their positions in the list."""
    listed = tree.get("accounts")
    for place, account in enumerate(listed if isinstance(listed, list) else ()):
        if isinstance(account, dict):
            yield place, account


def _settle_secrets(tree: Tree, folder: Path, environ: Mapping[str, str], found: Findings) -> None:
    fleet = _table(tree, "fleet")
    named = _credential(MASTER_KEY, environ)
    is_replaced = not found.needs_secrets and fleet.get("accounts") == "database"
    if named or is_replaced or fleet.keys() & {MASTER_KEY, f"{MASTER_KEY}_file"}:  # else the models report it
        _settle_secret(fleet, ("fleet", MASTER_KEY), named, folder, found)
    for place, account in _accounts(tree):
        for key in SECRETS:
            credential = _credential(f"{account.get('name')}.{key}", environ)
            _settle_secret(account, ("accounts", str(place), key), credential, folder, found)


def _settle_secret(table: Tree, place: Place, credential: Path | None, folder: Path, found: Findings) -> None:
    """Store the secret under its key, from exactly one source: the key, its `_file` or systemd's credential."""
    key, file_key = place[-1], f"{place[-1]}_file"
    sources = [name for name in (key, file_key) if name in table]
    sources += [say("config.credential", name=credential.name)] if credential else []
    if not sources:
        _note_missing(table, place, say("config.secret_missing", secret=key, file_key=file_key), found)
    elif len(sources) > 1:
        found.problems[place] = say("config.secret_twice", sources=", ".join(sources))
    elif sources != [key]:
        file = credential or folder / str(table[file_key])
        try:
            table[key] = file.read_text("utf-8-sig").strip()
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else say("config.reason_utf8")
            _note_missing(table, place, say("config.secret_file", file=file, reason=reason, file_key=file_key), found)
        found.origins[place] = str(file)


def _note_missing(table: Tree, place: Place, problem: str, found: Findings) -> None:
    """Report a missing secret if it is needed. systemd shows credentials only to the daemon, not to commands."""
    if found.needs_secrets:
        found.problems[place] = problem
    else:
        found.without_secrets.add(place)
        table[place[-1]] = new_master_key()  # random, so that fingerprints differ


def _credential(name: str, environ: Mapping[str, str]) -> Path | None:
    file = Path(environ.get("CREDENTIALS_DIRECTORY") or "/nowhere", name)
    return file if os.path.lexists(file) else None
