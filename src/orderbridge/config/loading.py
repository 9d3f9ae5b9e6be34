"""From a file and the environment to `Settings`, or to one line for each thing that is wrong.

find      which file it is
layers    what the file and the environment say, merged
settling  relative paths, and what stands in the files of secrets
Settings  the models check it
findings  who set what, what is wrong with it, and in which words
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from pydantic import ValidationError

from orderbridge.config.account import SECRETS
from orderbridge.config.addresses import without_password
from orderbridge.config.findings import Findings
from orderbridge.config.layers import as_lists, from_environ, merge, read
from orderbridge.config.noticing import noticed
from orderbridge.config.settings import Settings, Source
from orderbridge.config.settling import MASTER_KEY, settle
from orderbridge.config.tree import Place, Tree, at, dotted, leaves
from orderbridge.errors import ConfigError
from orderbridge.texts import LANGUAGES

SYSTEM_FILE = Path("/etc/orderbridge/config.toml")


def load(
    path: Path | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    speaks: Callable[[str], None] = lambda _: None,
    needs_secrets: bool = True,
) -> Settings:
    """The settings of this run, or a ConfigError with one line for each problem.

    `speaks` is told the configured language before anything is found wrong. Without `needs_secrets` a secret that cannot
    be read is no problem: the account has a random one in its place, and `Settings.source.without_secrets` names it.
    """
    file = find(path, environ)
    found = Findings(file, needs_secrets=needs_secrets)
    in_file = read(file) if file else {}
    found.origins = dict.fromkeys((place for place, _ in leaves(in_file)), str(file))
    tree = merge(in_file, from_environ(environ, found))
    if file is None and not tree and not found.problems:
        raise ConfigError("config.none_found")
    tree = as_lists(tree)
    language = tree.get("language", Settings.model_fields["language"].default)
    if language in LANGUAGES:
        speaks(language)
    settle(tree, file.parent if file else Path.cwd(), environ, found)
    settings = _validate(tree, found)
    origins = {dotted(place): origin for place, origin in found.origins.items()}
    warnings = tuple(noticed(settings, file, found.secret_files, holds_secrets=_holds_secret(in_file)))
    without_secrets = frozenset(_owner(settings, place) for place in found.without_secrets)
    settings._source = Source(file, origins, warnings, without_secrets)  # noqa: SLF001 - only `load` knows it
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


def _validate(tree: Tree, found: Findings) -> Settings:
    try:
        settings = Settings(**tree)
    except ValidationError as error:
        found.add(error)
    else:
        if not found.problems:
            return settings
    raise ConfigError("config.unusable", problems="\n".join(f"  {line}" for line in found.lines()))


def _owner(settings: Settings, place: Place) -> str:
    """The account whose secret this is; "" for the master key."""
    return settings.accounts[int(place[1])].name if place[0] == "accounts" else ""


def _holds_secret(in_file: Tree) -> bool:
    url = str(at(in_file, ("database", "url")))
    return without_password(url) != url or any(place[-1] in {*SECRETS, MASTER_KEY} for place, _ in leaves(in_file))
