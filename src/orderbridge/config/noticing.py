"""Warnings about a configuration that works: files open to everyone, an alarm command that cannot run, an odd secret."""

import os
import shutil
import threading
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from stat import S_IROTH
from typing import TYPE_CHECKING

from orderbridge.config.addresses import sqlite_file
from orderbridge.config.keys import SECRETS
from orderbridge.mounts import is_mounted_alone
from orderbridge.texts import say

if TYPE_CHECKING:
    from orderbridge.config.settings import Settings

LONGEST_SHEBANG = 256
TEST_S = 2.0  # for a folder that may lie on another machine


def noticed(settings: "Settings", file: Path | None, *, holds_secrets: bool) -> Iterator[str]:
    """A sentence for each. `file`: the configuration."""
    if file and holds_secrets and _is_open(file):
        yield say("config.open_file", file=file)
    if file and is_mounted_alone(str(file)):
        yield say("config.mounted_alone", file=file, folder=file.parent)
    key = settings.web.certificate_key
    for secret_file in dict.fromkeys([*settings.secret_files, *([key] if key else [])]):
        if _is_open(secret_file):
            yield say("config.open_secret", file=secret_file)
    if (kept := sqlite_file(settings.database.url)) and _is_open(kept) and not kept.is_dir():
        yield say("config.open_database", file=kept)
    for account in settings.accounts:
        for name, secret in zip(SECRETS, (account.app_secret_key, account.rest_secret_key), strict=True):
            yield from _strange(account.name, name, secret.get_secret_value())
    if settings.alarms.command and (fault := _fault(settings.alarms.command[0])):
        yield fault
    if settings.orders.journal != "auto" and settings.journal and not _can_be_written(settings.journal):
        yield say("config.journal_closed", folder=settings.journal)


def _strange(account: str, key: str, secret: str) -> Iterator[str]:
    """A character that a copy from a letter or a phone brings along, and that is invisible: the login would be refused."""
    for place, character in enumerate(secret, 1):
        if not character.isascii():
            name = unicodedata.name(character, f"U+{ord(character):04X}")
            yield say("config.strange_secret", account=account, secret=key, place=place, name=name)
            return


def _can_be_written(folder: Path) -> bool:
    """A folder that is not there is made, and the one around it is not. A disk that hangs holds up no start."""

    def test() -> None:
        here = folder if os.path.lexists(folder) else folder.parent
        found.append(os.access(here, os.W_OK | os.X_OK) and here.is_dir())

    found: list[bool] = []
    testing = threading.Thread(target=test, daemon=True)
    testing.start()
    testing.join(TEST_S)
    return found == [True]


def _fault(program: str) -> str | None:
    """Why it would reach no one. Else that shows with the first alarm, at night."""
    found = Path(program) if os.sep in program else Path(shutil.which(program) or "/nowhere")
    if not found.exists():
        return say("config.alarm_missing", program=program)
    if found.is_dir() or not os.access(found, os.X_OK):
        return say("config.alarm_closed", program=program)
    named = _interpreter(found)
    if named and not Path(named).exists():
        return say("config.alarm_interpreter", program=program, named=named.strip())
    return None


def _interpreter(script: Path) -> str:
    """What its first line names, with the carriage return of a file from Windows; "": it is no script."""
    try:
        with script.open("rb") as file:
            first = file.readline(LONGEST_SHEBANG)
    except OSError:  # may be run and not read
        return ""
    named = first.removeprefix(b"#!").rstrip(b"\n").strip(b" \t").partition(b" ")[0]
    return named.decode(errors="replace") if first.startswith(b"#!") else ""


def _is_open(file: Path) -> bool:
    """Whether every user may read it. What may not be examined is reported when it is opened."""
    try:
        return bool(file.stat().st_mode & S_IROTH)
    except OSError:
        return False
