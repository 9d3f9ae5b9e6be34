"""From a file, the environment and the command line to `Settings`, or to one line for each thing that is wrong.

A TOML file, then `ORDERBRIDGE_…` environment variables (`__` nests, a number picks an entry of a list), then the
command line: the later one wins, key by key. What needs the disk or the environment (the place of a relative path, the
contents of a secret's file) is settled before the models see it.

No message shows the value of a secret, and none carries pydantic's own error along, which holds its input.
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
from orderbridge.config.keys import SECRETS, Database
from orderbridge.config.noticing import noticed
from orderbridge.config.settings import PREFIX, Settings, Source
from orderbridge.errors import ConfigError
from orderbridge.texts import LANGUAGES, say

NO_KEYS = re.compile(rf"{PREFIX}(CONFIG|TEST_.*)")  # variables of ours that configure nothing
SYSTEM_FILE = Path("/etc/orderbridge/config.toml")
RELATIVE_SQLITE = re.compile(r"(sqlite(?:\+\w+)?:///)([^/].*)")

# What pydantic finds, and which sentence of ours says it. Each says what is right, which is the remedy.
WORDS = {
    **{kind: kind for kind in ("missing", "greater_than", "greater_than_equal", "less_than_equal")},
    "too_long": "too_long",
    **dict.fromkeys(("int_parsing", "int_type", "int_from_float"), "whole"),
    **dict.fromkeys(("float_parsing", "float_type", "finite_number"), "number"),
    **dict.fromkeys(("bool_parsing", "bool_type"), "bool"),
    **dict.fromkeys(("string_type", "path_type"), "string"),
    "tuple_type": "tuple",
    "model_type": "table",
}

HOME = re.compile(r"(sqlite(?:\+\w+)?:///)?~")  # a shell's, which nobody reads under systemd
HANGING = (  # on the file's folder
    ("marketplace", "ca_file"),
    ("web", "certificate"),
    ("web", "certificate_key"),
    ("fleet", "master_key_file"),
)
MASTER_KEY = "master_key"
PATHS = {"journal", "url", "command", *(key for _, key in HANGING), *(f"{key}_file" for key in SECRETS)}

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
LISTS = {("accounts",): "config.accounts_list", ("alarms", "command"): "config.command_list"}

Tree = dict[str, Any]
Place = tuple[str, ...]  # ("accounts", "0", "name")


@dataclass(slots=True)
class _Findings:
    """What loading learns on the way: who set a key, and what is wrong with it."""

    file: Path | None
    origins: dict[Place, str] = field(default_factory=dict)
    problems: dict[Place, str] = field(default_factory=dict)
    secret_files: list[Path] = field(default_factory=list)

    def claim(self, place: Place, origin: str) -> None:
        """It has set this key, or this whole table. Looks through all that is known: not for each account of a file."""
        for below in [other for other in self.origins if other[: len(place)] == place]:
            del self.origins[below]
        self.origins[place] = origin

    def line(self, place: Place) -> str:
        """The key, who set it (or the nearest table around it, or where it is looked for) and the problem."""
        around = (place[:length] for length in range(len(place), 0, -1))
        origin = next((self.origins[table] for table in around if table in self.origins), self.file)
        return f"{_dotted(place)}{f' ({origin})' if origin else ''}: {self.problems[place]}"


def load(
    path: Path | None = None,
    *,
    overrides: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] = os.environ,
    speaks: Callable[[str], None] = lambda _: None,
) -> Settings:
    """The settings of this run, or a ConfigError with one line for each problem.

    `overrides` is the command line: dotted keys (`{"log.level": "debug"}`); None means not given. `speaks` is told the
    configured language before anything is found wrong.
    """
    file = find(path, environ)
    found = _Findings(file)
    in_file = _read(file) if file else {}
    found.origins = dict.fromkeys((place for place, _ in _leaves(in_file)), str(file))
    tree = _merge(in_file, _from_environ(environ, found))
    tree = _merge(tree, _from_command_line(overrides or {}, found))
    if file is None and not tree and not found.problems:
        raise ConfigError(say("config.none_found"))
    tree = _as_lists(tree)
    language = tree.get("language", Settings.model_fields["language"].default)
    if language in LANGUAGES:
        speaks(language)
    _settle(tree, file.parent if file else Path.cwd(), environ, found)
    settings = _validate(tree, found)
    origins = {_dotted(place): origin for place, origin in found.origins.items()}
    warnings = tuple(noticed(settings, file if _holds_secret(in_file) else None, found.secret_files))
    settings._source = Source(file, origins, warnings)  # noqa: SLF001 - only `load` knows it
    return settings


def find(path: Path | None, environ: Mapping[str, str]) -> Path | None:
    """The configuration file: the one named, or the first that exists in the usual places, as an absolute path."""
    named = path or (Path(environ["ORDERBRIDGE_CONFIG"]) if environ.get("ORDERBRIDGE_CONFIG") else None)
    if named:
        return named.absolute()
    usual = [Path("orderbridge.toml"), SYSTEM_FILE]
    if home := environ.get("HOME"):
        usual.insert(1, Path(home, ".config/orderbridge/config.toml"))
    return next((candidate.absolute() for candidate in usual if os.path.lexists(candidate)), None)


def _read(file: Path) -> Tree:
    try:
        return tomllib.loads(file.read_bytes().decode("utf-8-sig"))  # editors on Windows write a BOM
    except FileNotFoundError:
        raise ConfigError(say("config.no_file", file=file)) from None
    except IsADirectoryError:
        raise ConfigError(say("config.folder", file=file)) from None
    except OSError as error:
        raise ConfigError(say("config.unreadable", file=file, reason=error.strerror)) from None
    except UnicodeDecodeError:
        raise ConfigError(say("config.not_utf8", file=file)) from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(say("config.no_toml", file=file, reason=error, hint=_hint(str(error)))) from None


def _hint(reason: str) -> str:
    """What tomllib found, as what to write. The line itself is not shown: it may hold a secret."""
    return say(next((key for words, key in TOML_HINTS.items() if words in reason), "config.toml_example"))


def _from_environ(environ: Mapping[str, str], found: _Findings) -> Tree:
    """What `ORDERBRIDGE_…` says. pydantic-settings passes over variables that it does not know; we do not."""
    ours = {name: value for name, value in environ.items() if name.startswith(PREFIX) and not NO_KEYS.fullmatch(name)}
    source = EnvSettingsSource(Settings)
    source.env_vars = {name.lower(): value for name, value in ours.items()}
    try:
        tree = source()
    except SettingsError as error:
        raise ConfigError(say("config.no_json", name=_culprit(error, ours))) from None
    for name in ours:
        place = tuple(name.removeprefix(PREFIX).lower().split("__"))
        found.claim(place, name)
        if _at(tree, place) is None:
            found.problems[place] = _unknown_key(place)
    return tree


def _culprit(error: SettingsError, ours: Mapping[str, str]) -> str:
    """The variable whose value is the document that did not parse; pydantic-settings names only its outermost key."""
    cause = error.__cause__
    document = cause.doc if isinstance(cause, json.JSONDecodeError) else None
    return next((name for name, value in ours.items() if value == document), f"{PREFIX}…")


def _from_command_line(overrides: Mapping[str, Any], found: _Findings) -> Tree:
    tree: Tree = {}
    for key, value in overrides.items():
        if value is None:
            continue
        *tables, last = place = tuple(key.split("."))
        table = tree
        for name in tables:
            table = table.setdefault(name, {})
        table[last] = value
        found.claim(place, say("config.command_line"))
    return tree


def _merge(base: Any, over: Any) -> Any:
    """`over` wins key by key. Numbered keys reach into a list; a list as a whole replaces the other."""
    if isinstance(base, list) and isinstance(over, dict):
        base = {str(index): value for index, value in enumerate(base)}
    if isinstance(base, dict) and isinstance(over, dict):
        return base | {key: _merge(base.get(key), value) for key, value in over.items()}
    return over


def _as_lists(tree: Any) -> Any:
    """A copy in which tables numbered from 0 are lists. No key of ours is a number."""
    if isinstance(tree, list):
        return [_as_lists(value) for value in tree]
    if not isinstance(tree, dict):
        return tree
    values = {key: _as_lists(value) for key, value in tree.items()}
    numbers = [str(index) for index in range(len(values))]
    return [values[number] for number in numbers] if values and values.keys() == set(numbers) else values


def _settle(tree: Tree, folder: Path, environ: Mapping[str, str], found: _Findings) -> None:
    """Relative paths hang on the configuration file's folder, the default database on systemd's state directory."""
    for place, value in _leaves(tree):
        if isinstance(value, str) and PATHS & set(place) and HOME.match(value):
            found.problems[place] = say("config.home")
    _settle_files(tree, folder)
    orders = tree.get("orders")
    if isinstance(orders, dict) and isinstance(orders.get("journal"), str):
        named = orders["journal"]
        orders["journal"] = str(folder / named) if named.strip() not in {"", "auto", "off"} else named.strip()
    database = tree.setdefault("database", {})
    if isinstance(database, dict):
        state = environ.get("STATE_DIRECTORY", "").partition(":")[0]  # systemd may give several
        base = Path(state) if state and "url" not in database else folder
        url = database.setdefault("url", Database.model_fields["url"].default)
        if isinstance(url, str):
            database["url"] = url = url.strip()  # of a secret that was a file a line break is left
            if match := RELATIVE_SQLITE.fullmatch(url):
                database["url"] = f"{match[1]}{base / match[2]}"
    _settle_secrets(tree, folder, environ, found)


def _settle_secrets(tree: Tree, folder: Path, environ: Mapping[str, str], found: _Findings) -> None:
    if isinstance(fleet := tree.setdefault("fleet", {}), dict):
        named = _credential(MASTER_KEY, environ)
        if named or fleet.keys() & {MASTER_KEY, f"{MASTER_KEY}_file"}:  # who needs it and has none is told by its check
            _settle_secret(fleet, ("fleet", MASTER_KEY), named, folder, found)
    accounts = tree.get("accounts")
    for index, account in enumerate(accounts if isinstance(accounts, list) else []):
        if isinstance(account, dict):
            for key in SECRETS:
                credential = _credential(f"{account.get('name')}.{key}", environ)
                _settle_secret(account, ("accounts", str(index), key), credential, folder, found)


def _settle_files(tree: Tree, folder: Path) -> None:
    for table, key in HANGING:
        if isinstance(values := tree.get(table), dict) and isinstance(values.get(key), str):
            values[key] = str(folder / values[key])


def _settle_secret(table: Tree, place: Place, credential: Path | None, folder: Path, found: _Findings) -> None:
    """Put the secret itself under its key, from the one place that has it: the key, its `_file` or a credential."""
    key, file_key = place[-1], f"{place[-1]}_file"
    sources = [name for name in (key, file_key) if name in table]
    sources += [say("config.credential", name=credential.name)] if credential else []
    if not sources:
        found.problems[place] = say("config.secret_missing", secret=key, file_key=file_key)
    elif len(sources) > 1:
        found.problems[place] = say("config.secret_twice", sources=", ".join(sources))
    elif sources != [key]:
        file = credential or folder / str(table[file_key])
        try:
            table[key] = file.read_text("utf-8-sig").strip()
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else say("config.reason_utf8")
            found.problems[place] = say("config.secret_file", file=file, reason=reason, file_key=file_key)
        else:
            found.secret_files += [] if credential else [file]
        found.origins[place] = str(file)  # nothing of it was set before


def _credential(name: str, environ: Mapping[str, str]) -> Path | None:
    folder = environ.get("CREDENTIALS_DIRECTORY")
    if not folder:
        return None
    file = Path(folder, name)
    return file if os.path.lexists(file) else None


def _validate(tree: Tree, found: _Findings) -> Settings:
    try:
        settings = Settings(**tree)
    except ValidationError as error:
        for details in error.errors(include_url=False, include_input=False):
            place = tuple(map(str, details["loc"])) or ("accounts",)  # the only check of the whole is about accounts
            found.problems.setdefault(place, _in_words(details, place))
    else:
        if not found.problems:
            return settings
    lines = [f"  {found.line(place)}" for place in sorted(found.problems)]
    raise ConfigError("\n".join([say("config.unusable"), *lines]))


def in_words(error: ValidationError) -> str:
    """What is wrong with settings that came from no file."""
    found = _Findings(None)
    for details in error.errors(include_url=False, include_input=False):
        place = tuple(map(str, details["loc"])) or ("accounts",)
        found.problems.setdefault(place, _in_words(details, place))
    return "; ".join(found.line(place) for place in sorted(found.problems))


def _in_words(details: ErrorDetails, place: Place) -> str:
    context = details.get("ctx", {})
    match details["type"]:
        case "tuple_type" if place in LISTS:
            return say(LISTS[place])
        case "literal_error":
            *others, _, last = context["expected"].split()  # pydantic joins them in English
            return say("config.literal_error", expected=" ".join([*others, say("config.or"), last]))
        case "extra_forbidden":
            return _unknown_key(place)
        case "value_error":
            return str(context["error"])
        case known if known in WORDS:
            return say(f"config.{WORDS[known]}", **context)
        case _:
            return details["msg"]


def _unknown_key(place: Place) -> str:
    near = difflib.get_close_matches(place[-1], _key_names(Settings), 1)
    if near == [place[-1]]:
        return say("config.unknown_here")
    return say("config.unknown_near", near=near[0]) if near else say("config.unknown")


def _key_names(model: type[BaseModel]) -> list[str]:
    """Every key of a table and of the tables in it."""
    names = list(model.model_fields)
    for info in model.model_fields.values():
        for part in (info.annotation, *getattr(info.annotation, "__args__", ())):
            if isinstance(part, type) and issubclass(part, BaseModel):
                names += _key_names(part)
    return names


def _holds_secret(in_file: Tree) -> bool:
    url = str(_at(in_file, ("database", "url")))
    return without_password(url) != url or any(place[-1] in {*SECRETS, MASTER_KEY} for place, _ in _leaves(in_file))


def _leaves(tree: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Every value that is no table and no list, with its place."""
    children: Any = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else None
    if children is None:
        yield place, tree
        return
    for key, value in children:
        yield from _leaves(value, (*place, str(key)))


def _at(tree: Any, place: Place) -> Any:
    """What is there, or None."""
    for key in place:
        tree = tree.get(key) if isinstance(tree, dict) else None
    return tree


def _dotted(place: Place) -> str:
    """The way a person writes it: accounts[0].name."""
    return "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in place).lstrip(".")
