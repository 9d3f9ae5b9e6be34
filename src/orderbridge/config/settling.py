"""What needs the disk or the environment, settled before the models see it: where a relative path hangs, what a secret is.

A secret comes from one place: its key, the file that `_file` names, or one of systemd's credentials.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from orderbridge.config.account import SECRETS
from orderbridge.config.findings import Findings
from orderbridge.config.keys import Database
from orderbridge.config.master_keys import new_key
from orderbridge.config.tree import Place, Tree, leaves
from orderbridge.texts import say

RELATIVE_SQLITE = re.compile(r"(sqlite(?:\+\w+)?:///)([^/].*)")
HOME = re.compile(r"(sqlite(?:\+\w+)?:///)?~")  # a shell's, which nobody reads under systemd
HANGING = (  # on the file's folder
    ("marketplace", "ca_file"),
    ("web", "certificate"),
    ("web", "certificate_key"),
    ("fleet", "master_key_file"),
)
MASTER_KEY = "master_key"
PATHS = {"journal", "url", "command", *(key for _, key in HANGING), *(f"{key}_file" for key in SECRETS)}


def settle(tree: Tree, folder: Path, environ: Mapping[str, str], found: Findings) -> None:
    """Relative paths hang on the configuration file's folder, the default database on systemd's state directory."""
    for place, value in leaves(tree):
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


def _settle_files(tree: Tree, folder: Path) -> None:
    for table, key in HANGING:
        if isinstance(values := tree.get(table), dict) and isinstance(values.get(key), str):
            values[key] = str(folder / values[key])


def _settle_secrets(tree: Tree, folder: Path, environ: Mapping[str, str], found: Findings) -> None:
    if isinstance(fleet := tree.setdefault("fleet", {}), dict):
        named = _credential(MASTER_KEY, environ)
        is_needed = not found.needs_secrets and fleet.get("accounts") == "database"
        if named or is_needed or fleet.keys() & {MASTER_KEY, f"{MASTER_KEY}_file"}:  # else the model's check tells it
            _settle_secret(fleet, ("fleet", MASTER_KEY), named, folder, found)
    accounts = tree.get("accounts")
    for index, account in enumerate(accounts if isinstance(accounts, list) else []):
        if isinstance(account, dict):
            for key in SECRETS:
                credential = _credential(f"{account.get('name')}.{key}", environ)
                _settle_secret(account, ("accounts", str(index), key), credential, folder, found)


def _settle_secret(table: Tree, place: Place, credential: Path | None, folder: Path, found: Findings) -> None:
    """Put the secret itself under its key, from the one place that has it: the key, its `_file` or a credential."""
    key, file_key = place[-1], f"{place[-1]}_file"
    sources = [name for name in (key, file_key) if name in table]
    sources += [say("config.credential", name=credential.name)] if credential else []
    if not sources:
        _miss(table, place, say("config.secret_missing", secret=key, file_key=file_key), found)
    elif len(sources) > 1:
        found.problems[place] = say("config.secret_twice", sources=", ".join(sources))
    elif sources != [key]:
        file = credential or folder / str(table[file_key])
        try:
            table[key] = file.read_text("utf-8-sig").strip()
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else say("config.reason_utf8")
            _miss(table, place, say("config.secret_file", file=file, reason=reason, file_key=file_key), found)
        else:
            found.secret_files += [] if credential else [file]
        found.origins[place] = str(file)  # nothing of it was set before


def _miss(table: Tree, place: Place, problem: str, found: Findings) -> None:
    """A secret that is not there is a problem only for a command that needs it; systemd shows it to the service alone."""
    if found.needs_secrets:
        found.problems[place] = problem
    else:
        found.without_secrets.add(place)
        table[place[-1]] = new_key()  # random, so that no two accounts have the same


def _credential(name: str, environ: Mapping[str, str]) -> Path | None:
    folder = environ.get("CREDENTIALS_DIRECTORY")
    if not folder:
        return None
    file = Path(folder, name)
    return file if os.path.lexists(file) else None
