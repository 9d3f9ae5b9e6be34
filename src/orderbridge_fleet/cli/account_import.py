"""`accounts import`: many accounts at once, all of them or none."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orderbridge.cli.common import Context, as_json, pass_context, show_json
from orderbridge.errors import ConfigError
from orderbridge.texts import say, sentence
from orderbridge_fleet.cli.context import keys_of, made, say_not_read

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from orderbridge.config import Account, Settings
    from orderbridge_fleet.account_changes import Put
    from orderbridge_fleet.cli.account_file import Line

MOST_SHOWN = 50  # wrong lines on the screen; --json has them all


@dataclass(slots=True)
class _Found:
    """What the file says: accounts with their lines by name, and what is wrong by line."""

    accounts: dict[str, "Account"] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    wrong: dict[int, str] = field(default_factory=dict)

    def refuse(self, name: str, why: str) -> None:
        """An account that is right by itself."""
        self.wrong[self.numbers[name]] = why
        del self.accounts[name]


@click.command("import")
@click.argument("file")
@click.option("--skip-wrong", is_flag=True, help="Import the correct lines even if others are wrong.")
@as_json
@pass_context
def import_accounts(context: Context, file: str, skip_wrong: bool, as_json: bool) -> None:
    """Add the accounts of a CSV or JSON Lines FILE to the database; - is standard input.

    All or none. Existing accounts are changed to what the file says; accounts that it does not name stay. Exit code
    1 when a line is wrong.
    """
    settings = context.reload()
    keys = keys_of(settings)
    from orderbridge.clock import SystemClock
    from orderbridge_fleet import account_changes
    from orderbridge_fleet.cli.account_file import lines

    found = _found(settings, lines(_read(file)))
    now = SystemClock().now()

    def put(tx: "Connection") -> "Put":
        """What others use already is known only here, in the transaction that locks the accounts."""
        for name, other in account_changes.taken(tx, found.accounts.values()).items():
            found.refuse(name, say("import.taken", other=other))
        if found.wrong and not skip_wrong:
            return account_changes.Put()
        return account_changes.put(tx, keys, found.accounts.values(), now)

    done = context.write(put)
    _tell(found, done, skip_wrong=skip_wrong, machine=as_json)
    if done.added or done.altered:
        say_not_read(settings, (*done.added, *done.altered))
    raise SystemExit(1 if found.wrong else 0)


def _read(file: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise ConfigError("init.cannot_read", file=file, reason=error.strerror) from None


def _found(settings: "Settings", given: Sequence["Line"]) -> _Found:
    """Each line by itself, then beside those before it and the accounts of the configuration's file."""
    found = _Found()
    in_file = {one.name: one.fingerprint for one in settings.accounts}
    names = {one.name: say("import.name_in_file") for one in settings.accounts}
    secrets = {one.fingerprint: say("import.taken", other=one.name) for one in settings.accounts}
    for line in given:
        if line.problem is not None:
            found.wrong[line.number] = line.problem
            continue
        try:
            account = made(settings, line.values)
        except ConfigError as error:
            found.wrong[line.number] = _without(sentence(error), line.values)
            continue
        moves = in_file.pop(account.name, None) == account.fingerprint  # out of the file, the very same
        why = names.get(account.name) or secrets.get(account.fingerprint)
        if why is not None and not moves:
            found.wrong[line.number] = why
            continue
        names[account.name] = say("import.name_twice", line=line.number)
        secrets[account.fingerprint] = say("import.secrets_twice", line=line.number)
        found.accounts[account.name] = account
        found.numbers[account.name] = line.number
    return found


def _without(text: str, values: Any) -> str:
    """Without what the line holds: in a file whose columns have slipped, a name may be a secret."""
    if isinstance(values, dict | list):
        for value in values.values() if isinstance(values, dict) else values:
            text = _without(text, value)
        return text
    return text.replace(repr(values), "…") if isinstance(values, str) else text


def _tell(found: _Found, done: "Put", *, skip_wrong: bool, machine: bool) -> None:
    wrong: list[dict[str, Any]] = [{"line": number, "problem": found.wrong[number]} for number in sorted(found.wrong)]
    if machine:
        show_json({"added": done.added, "altered": done.altered, "unchanged": done.unchanged, "wrong": wrong})
        return
    for one in wrong[:MOST_SHOWN]:
        click.echo(say("import.line", **one), err=True)
    if len(wrong) > MOST_SHOWN:
        click.echo(say("import.more", count=len(wrong) - MOST_SHOWN), err=True)
    if wrong and not skip_wrong:
        click.echo(say("import.nothing", count=len(wrong)), err=True)
        return
    added, altered, unchanged = map(len, (done.added, done.altered, done.unchanged))
    click.echo(say("import.done", added=added, altered=altered, unchanged=unchanged))


COMMANDS = (import_accounts,)
