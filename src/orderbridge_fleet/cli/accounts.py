"""`orderbridge accounts` shows and changes the accounts in the database, and creates and rotates master keys."""

import sys
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orderbridge.cli.common import Context, as_json, pass_context, show_json, show_rows
from orderbridge.config.keys import SECRETS
from orderbridge.errors import ConfigError
from orderbridge.texts import say
from orderbridge_fleet.cli.account_import import import_accounts
from orderbridge_fleet.cli.context import clash, keys_of, made, say_not_read
from orderbridge_fleet.cli.cooldown import cooldown

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from orderbridge.config import Settings
    from orderbridge_fleet.account_settings import Fault, MasterKeys

LONGEST_SECRET = 10_000
MOST_NAMES = 20


@click.group()
def accounts() -> None:
    """The accounts in the database."""


# ---- one account -----------------------------------------------------------------------------------------------------


@accounts.command("add")
@click.argument("name")
@click.option("--app-secret-key-file", "app", help="A file with the app_secret_key; -: standard input.")  # fmt: skip
@click.option("--rest-secret-key-file", "rest", help="A file with the rest_secret_key; both -: two lines.")
@click.option("--auto-accept-minutes", type=int, help="Accept automatically, with this preparation time.")
@click.option("--auto-accept-scheduled", is_flag=True, help="Accept scheduled orders automatically, too.")
@click.option("--restaurant", "rules", multiple=True, help="ID=MINUTES for one restaurant; ID alone: never.")
@click.option("--replace", is_flag=True, help="Replace an account that exists.")
@pass_context
def add(
    context: Context,
    name: str,
    app: str | None,
    rest: str | None,
    auto_accept_minutes: int | None,
    auto_accept_scheduled: bool,
    rules: tuple[str, ...],
    replace: bool,
) -> None:
    """Add an account to the database."""
    settings = context.reload()
    keys = keys_of(settings)
    options = {
        "auto_accept_minutes": auto_accept_minutes,
        "auto_accept_scheduled": auto_accept_scheduled,
        "restaurants": [_rule(one) for one in rules],
    }
    trial = dict.fromkeys(SECRETS, "x")
    made(settings, {"name": name, **trial, **options})  # before it asks for the secrets
    account = made(settings, {"name": name, **_secrets(app, rest), **options})
    if (why := clash(settings, account)) is not None:
        raise ConfigError(why.key, **why.facts)
    from orderbridge.clock import SystemClock
    from orderbridge_fleet import account_changes, account_settings

    def put(tx: "Connection") -> account_changes.Put | None:
        if not replace and account_settings.sealed_texts(tx, [name]):
            return None
        return account_changes.put(tx, keys, [account], SystemClock().now())

    done = context.write(put)
    if done is None:
        raise click.ClickException(say("accounts.is_there", name=name))
    if done.taken:
        raise click.ClickException(say("accounts.taken", name=name, other=done.taken[name]))
    became = "listing.account_added" if done.added else "listing.account_altered"
    click.echo(say(became if done.added or done.altered else "listing.account_unchanged", name=name))
    say_not_read(settings, [name])


def _rule(text: str) -> dict[str, Any]:
    key, _, minutes = text.partition("=")
    return {"id": key, "auto_accept_minutes": minutes or None}


def _secrets(app: str | None, rest: str | None) -> dict[str, str]:
    """Read the secrets from the files, or prompt for them without an echo."""
    given = dict(zip(SECRETS, (app, rest), strict=True))
    if None in given.values() and not sys.stdin.isatty():
        missing = [f"--{key.replace('_', '-')}-file" for key, file in given.items() if file is None]
        raise click.UsageError(say("accounts.no_secret", options=", ".join(missing)))
    return {
        key: _secret(file) if file is not None else click.prompt(key, hide_input=True, err=True).strip()
        for key, file in given.items()
    }


def _secret(file: str) -> str:
    try:
        text = sys.stdin.readline() if file == "-" else Path(file).read_text("utf-8-sig")[:LONGEST_SECRET]
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else say("config.reason_utf8")
        raise ConfigError("init.cannot_read", file=file, reason=reason) from None
    return text.removeprefix("\ufeff").strip()


# ---- list and show ---------------------------------------------------------------------------------------------------


@accounts.command("list")
@as_json
@pass_context
def list_accounts(context: Context, as_json: bool) -> None:
    """List the accounts of the file and of the database."""
    facts = context.read(lambda tx: _listed(tx, context.settings))
    if as_json:
        show_json(facts)
        return
    from orderbridge.clock import SystemClock

    now = SystemClock().now()
    show_rows([_for_people(one, now) for one in facts], machine=False, empty=say("accounts.none"))


def _listed(tx: "Connection", settings: "Settings") -> list[dict[str, Any]]:
    from orderbridge.jobs.open_problems import all_names
    from orderbridge.store.own_tables import ENABLED
    from orderbridge_fleet import account_settings

    fingerprints = {name: fingerprint for fingerprint, name in all_names(tx, settings).items()}
    nothing: dict[str, Any] = dict.fromkeys(account_settings.STATE)
    states = account_settings.states(tx)
    found = [
        {"name": one.name, "source": _source(settings, place), "enabled": True}
        | states.get(fingerprints[one.name], nothing)
        for place, one in enumerate(settings.accounts)
    ]
    for row in account_settings.listed(tx):
        facts = {"name": row["name"], "source": "database", "enabled": row["enabled"] == ENABLED}
        polled = states.get(row["fingerprint"], nothing)
        found.append(facts | polled | {"changed_utc": row["changed_utc"], "key_id": row["key_id"]})
    return sorted(found, key=lambda one: one["name"])


def _source(settings: "Settings", place: int) -> str:
    """The file or variable that configures this account."""
    return settings.source.origins.get(f"accounts[{place}].name", str(settings.source.file or ""))


def _for_people(one: dict[str, Any], now: datetime) -> dict[str, str]:
    from orderbridge.cli.common import ago
    from orderbridge.cli.status import state_text

    good, state = one["last_poll_ok_utc"], one["state"]
    is_file = one["source"] != "database"
    return {
        say("status.account"): one["name"],
        say("listing.account_enabled"): say("listing.account_yes" if one["enabled"] else "listing.account_no"),
        say("status.state"): state_text(state) if state else "-",
        say("status.good_poll"): ago(good, now) if good else "-",
        say("listing.account_source"): one["source"] if is_file else say("listing.account_database"),
    }


@accounts.command("show")
@click.argument("name")
@as_json
@pass_context
def show(context: Context, name: str, as_json: bool) -> None:
    """Show an account without its secrets."""
    settings = context.settings
    facts = context.read(lambda tx: next((one for one in _listed(tx, settings) if one["name"] == name), None))
    if facts is None:
        raise click.ClickException(say("accounts.unknown", names=name))
    facts |= _options(context, name)
    if as_json:
        show_json(facts)
        return
    for key, value in facts.items():
        click.echo(f"{key}: {_shown(value)}")


def _options(context: Context, name: str) -> dict[str, Any]:
    """The account's options; for one in the database that cannot be decrypted, the reason and its remedy."""
    from orderbridge_fleet import account_settings
    from orderbridge_fleet.account_settings import Fault

    account = next((one for one in context.settings.accounts if one.name == name), None)
    if account is None:
        text, by = context.read(lambda tx: account_settings.sealed_texts(tx, [name])).get(name, (None, None))
        found = account_settings.opened(keys_of(context.settings), name, text, by)
        if isinstance(found, Fault):
            return {"fault": found, "remedy": say(f"accounts.fault.{found}")}
        account = found
    return account.model_dump(mode="json", include=set(account_settings.OPTIONS))


def _shown(value: Any) -> str:
    from orderbridge.cli.common import plain

    if isinstance(value, bool):
        return say("listing.account_yes" if value else "listing.account_no")
    if isinstance(value, list):
        return ", ".join(map(_part, value)) or "-"
    return "-" if value is None else str(plain(value))


def _part(part: dict[str, Any] | list[int]) -> str:
    """The rule of a restaurant, or one of `auto_accept_steps`."""
    if isinstance(part, dict):
        return f"{part['id']}={part['auto_accept_minutes'] or _shown(part['auto_accept_steps'])}"
    return ":".join(map(str, part))


# ---- on and off ------------------------------------------------------------------------------------------------------


@accounts.command("enable")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@pass_context
def enable(context: Context, names: tuple[str, ...]) -> None:
    """Poll these accounts again."""
    _set(context, names, enabled=True)


@accounts.command("disable")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@pass_context
def disable(context: Context, names: tuple[str, ...]) -> None:
    """Stop polling these accounts."""
    _set(context, names, enabled=False)


def _set(context: Context, names: tuple[str, ...], *, enabled: bool) -> None:
    from orderbridge.clock import SystemClock
    from orderbridge_fleet import account_changes, account_settings

    _refuse_unknown(context, names)
    now = SystemClock().now()
    done = context.write(lambda tx: account_changes.enable(tx, names, now, enabled=enabled))
    for name in dict.fromkeys(names):
        became = "listing.account_is_enabled" if enabled else "listing.account_is_disabled"
        click.echo(say(became if name in done else "listing.account_unchanged", name=name))
        if not enabled:
            work = context.read(lambda tx, name=name: account_settings.work(tx, name))  # type: ignore[misc]
            _say_left_open(name, *work)


def _say_left_open(name: str, opened: int, waits: int) -> None:
    if opened or waits:
        click.echo(say("accounts.left_open", name=name, orders=opened, actions=waits), err=True)


@accounts.command("remove")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--force", is_flag=True, help="Even with open orders or waiting actions.")
@pass_context
def remove(context: Context, names: tuple[str, ...], force: bool) -> None:
    """Remove these accounts with their secrets."""
    from orderbridge.clock import SystemClock
    from orderbridge_fleet import account_changes, account_settings

    _refuse_unknown(context, names)
    now = SystemClock().now()
    busy: dict[str, tuple[int, int]] = {}

    def check_and_remove(tx: "Connection") -> None:
        """Check and remove in one transaction, because an order may arrive in between."""
        busy.update((name, found) for name in names if any(found := account_settings.work(tx, name)))
        if force or not busy:
            account_changes.remove(tx, names, now)

    context.write(check_and_remove)
    for name, found in busy.items():
        _say_left_open(name, *found)
    if busy and not force:
        raise click.ClickException(say("accounts.busy"))
    for name in dict.fromkeys(names):
        click.echo(say("listing.account_removed", name=name))


def _refuse_unknown(context: Context, names: tuple[str, ...]) -> None:
    """Raise ClickException unless all of them are in the database."""
    from orderbridge_fleet import account_settings

    in_file = [one.name for one in context.settings.accounts if one.name in names]
    there = context.read(lambda tx: account_settings.sealed_texts(tx, names))
    if filed := [name for name in in_file if name not in there]:
        raise click.ClickException(say("accounts.of_file", names=", ".join(filed)))
    if unknown := [name for name in names if name not in there]:
        raise click.ClickException(say("accounts.unknown", names=", ".join(unknown)))


# ---- master keys -----------------------------------------------------------------------------------------------------


@accounts.command("key")
@click.option("--rotate", is_flag=True, help="Encrypt every account again with the file's first line.")
@pass_context
def key(context: Context, rotate: bool) -> None:
    """Print a new master key, for the first line of fleet.master_key_file. Nothing is written.

    --rotate: encrypt every account again with the first line of that file; the other lines still decrypt what they
    encrypted. Run it again if it was interrupted. It prints when the other lines may be removed.
    """
    from orderbridge.config.keys import new_master_key

    if rotate:
        _rotate(context)
    else:
        click.echo(new_master_key())


def _rotate(context: Context) -> None:
    keys = keys_of(context.settings)
    anew, already, broken = _reseal(context, keys)
    click.echo(say("accounts.resealed", anew=anew, already=already, by=keys.ids[0]))
    for name, fault in list(broken.items())[:MOST_NAMES]:
        click.echo(f"{name}: {say(f'accounts.fault.{fault}')}", err=True)
    if len(broken) > MOST_NAMES:
        click.echo(say("accounts.more_faults", count=len(broken) - MOST_NAMES), err=True)
    if broken:
        raise click.ClickException(say("accounts.keep_keys", count=len(broken)))
    if len(keys.ids) > 1:
        click.echo(say("accounts.old_may_go", keys=", ".join(keys.ids[1:])))
    else:
        click.echo(say("accounts.one_key"))


def _reseal(context: Context, keys: "MasterKeys") -> tuple[int, int, dict[str, "Fault"]]:
    """Re-encrypt the accounts in short transactions, so that others do not wait long."""
    from orderbridge.store import schema
    from orderbridge_fleet.account_changes import reseal

    url = context.settings.marketplace.base_url
    anew = already = 0
    broken: dict[str, Fault] = {}
    after: str | None = ""
    with closing(context.database()) as database:
        database.read_now(schema.check)
        while after is not None:
            begin = after
            part = database.write_now(lambda tx, at=begin: reseal(tx, keys, url, at))  # type: ignore[misc]
            after, anew, already = part.last, anew + part.anew, already + part.already
            broken |= part.broken
    return anew, already, broken


for command in (import_accounts, cooldown):
    accounts.add_command(command)

COMMANDS = (accounts,)
