"""The commands accept, cancel, … write one row into the outbox, as a POS does; `actions` lists and changes rows.

`foods` lists what `food on` and `food off` can switch.
"""

import time
from collections.abc import Iterator, Mapping
from typing import Any

import click
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError, NoResultFound

from orderbridge.actions import ACTIONS, CLOSURE_MINUTES, CLOSURES, Subject
from orderbridge.cli.common import Context, as_json, pass_context, show_json, show_rows
from orderbridge.cli.order_commands import SHORT_KEY, key_of
from orderbridge.clock import SystemClock
from orderbridge.model import UNFINISHED, Action
from orderbridge.store import accounts, tables
from orderbridge.store import actions as outbox
from orderbridge.store.foods import on_sale
from orderbridge.texts import say

LISTED = "id created_utc action payment_key restaurant_id food_id state attempts error_code known_by".split()
WAIT_STEP_S = 0.1
MAX_WAIT_S = 86_400
ID = click.IntRange(1, 2**63 - 1)


WAITING = (
    click.Option(["--wait"], is_flag=True, help="Wait for the outcome; exit code 1 unless `done`."),
    click.Option(
        ["--timeout"], type=click.IntRange(0, MAX_WAIT_S), default=60, show_default=True, help="Seconds to wait."
    ),
    click.Option(["--json", "as_json"], is_flag=True, help="Machine-readable output."),
)


def _write(context: Context, *, wait: bool, timeout: int, as_json: bool, **values: Any) -> None:
    if values.get("account") is not None:
        _refuse_unknown(context, values["account"])
    if "payment_key" in values:
        values["payment_key"] = key_of(context, values["payment_key"], machine=as_json, to_act=True)
    try:
        row_id = context.write(lambda tx: outbox.add(tx, created_by="command line", **values))
    except IntegrityError as error:
        raise click.UsageError(say("outbox.row_refused", error=error.orig)) from error
    row = _row(context, row_id)
    for _ in range(round(timeout / WAIT_STEP_S) if wait else 0):
        if row["state"] not in UNFINISHED:
            break
        time.sleep(WAIT_STEP_S)
        row = _row(context, row_id)
    if as_json:
        show_json(row)
    else:
        click.echo(f"{row['id']} {row['action']}: {row['state']}")
        if row["error_text"]:
            click.echo(f"{row['error_code']}: {row['error_text']}", err=True)
    if wait and row["state"] in UNFINISHED and not row["error_code"]:
        running = say("command.is_it_running")
        click.echo(say("outbox.no_verdict", seconds=timeout, running=running), err=True)
    if wait or row["state"] not in UNFINISHED:
        raise SystemExit(0 if row["state"] == "done" else 1)


def _refuse_unknown(context: Context, name: str) -> None:
    """Raise UsageError if neither the file nor, with accounts from the database, the database has this account."""
    settings = context.settings
    if name in {account.name for account in settings.accounts}:
        return
    if settings.fleet.from_database:
        if context.read(lambda tx: accounts.is_there(tx, name)):
            return
        raise click.UsageError(say("accounts.unknown", names=name))  # lists no names: there may be thousands
    names = ", ".join(account.name for account in settings.accounts)
    raise click.UsageError(say("command.no_account", name=name, names=names))


def _row(context: Context, row_id: int) -> dict[str, Any]:
    query = select(tables.actions).where(tables.actions.c.id == row_id)
    return context.read(lambda tx: dict(tx.execute(query).mappings().one()))


# The argument of each subject. Our tables keep ids in lower case.
_NAMED: dict[Subject, click.Argument] = {
    Subject.ORDER: click.Argument(["payment_key"], metavar="KEY"),
    Subject.RESTAURANT: click.Argument(["restaurant_id"], metavar="RESTAURANT_ID", type=str.lower),
    Subject.FOOD: click.Argument(["food_id"], type=ID),
}


def _command(name: str, actions: Mapping[str, Action]) -> click.Command:
    """One command for the action of this name, or for two whose second word (`on`, `off`) selects the action."""
    kind = ACTIONS[next(iter(actions.values()))]

    @pass_context
    def write(context: Context, /, what: str = "", **values: Any) -> None:
        _write(context, action=actions[what], **values)

    params: list[click.Parameter] = [_NAMED[kind.subject]]
    if "" not in actions:
        params.insert(0, click.Argument(["what"], type=click.Choice(list(actions))))
    if (argument := kind.argument) is not None:
        taken = click.IntRange(argument.least, argument.most)
        params.append(click.Option([argument.option, argument.column], type=taken, required=True, help=argument.help))
    if kind.subject is Subject.FOOD:
        params.append(click.Option(["--account"], help="The account of the menu, if there are several."))
    if not CLOSURES.isdisjoint(actions.values()):
        minutes = click.IntRange(CLOSURE_MINUTES[0], CLOSURE_MINUTES[-1])
        about = "With close or off: end the closure after this many minutes."
        params.append(click.Option(["--for", "valid_until_minutes"], type=minutes, metavar="MINUTES", help=about))
    return click.Command(name, params=[*params, *WAITING], callback=write)


def _commands() -> Iterator[click.Command]:
    """One command for each first word in the table of actions."""
    by_name: dict[str, dict[str, Action]] = {}
    for action, kind in ACTIONS.items():
        name, _, what = kind.command.partition(" ")
        by_name.setdefault(name, {})[what] = action
    for name, actions in by_name.items():
        yield _command(name, actions)


@click.group()
def actions() -> None:
    """Show and change rows of the outbox."""


@actions.command("list")
@click.option("--unfinished", is_flag=True, help="Only rows without an outcome.")
@click.option(
    "--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, help="The most lines to print."
)
@as_json
@pass_context
def actions_list(context: Context, unfinished: bool, limit: int, as_json: bool) -> None:
    """List the rows, the newest first."""
    table = tables.actions
    query = select(*(table.c[name] for name in LISTED)).order_by(table.c.id.desc()).limit(limit)
    if unfinished:
        query = query.where(tables.unfinished)
    rows = context.read(lambda tx: [dict(row) for row in tx.execute(query).mappings()])
    show_rows(rows, machine=as_json, empty=say("listing.no_actions"), shown=_for_people)


def _for_people(row: Mapping[str, Any]) -> dict[str, Any]:
    """The columns for a terminal, with the order, restaurant or food in one of them."""
    subject = str(row["payment_key"] or row["restaurant_id"] or row["food_id"])[:SHORT_KEY]
    shown = {name: row[name] for name in LISTED if name not in {"payment_key", "restaurant_id", "food_id"}}
    return shown | {"subject": subject}


@actions.command("retry")
@click.argument("action_id", type=ID)
@pass_context
def actions_retry(context: Context, action_id: int) -> None:
    """Send a failed row once more; its expiry starts again."""
    row = _row_or_fail(context, action_id)
    expires = SystemClock().now() + context.settings.actions.validity(row["action"], row["valid_minutes"])
    if not context.write(lambda tx: outbox.retry(tx, action_id, expires)):
        raise click.ClickException(say("outbox.not_failed", id=action_id, state=row["state"]))
    click.echo(f"{action_id} {row['action']}: pending")


@actions.command("withdraw")
@click.argument("action_id", type=ID)
@pass_context
def actions_withdraw(context: Context, action_id: int) -> None:
    """Withdraw a row that has not been sent, or the planned end of a closure."""
    row = _row_or_fail(context, action_id)
    if not context.write(lambda tx: outbox.withdraw(tx, action_id)):
        raise click.ClickException(say("outbox.is_over", id=action_id, state=row["state"]))
    click.echo(f"{action_id} {row['action']}: {say('listing.withdrawn')}")


@click.command()
@as_json
@pass_context
def foods(context: Context, as_json: bool) -> None:
    """List the foods of the menus, and those ordered lately."""
    rows = context.read(lambda tx: on_sale(tx, SystemClock().now()))
    rows.sort(key=lambda row: (row["account"], row["category"] or ""))
    names = ("food_id", "name", "category", "status", "account")
    show_rows(
        rows, machine=as_json, empty=say("listing.no_foods"), shown=lambda row: {name: row[name] for name in names}
    )


def _row_or_fail(context: Context, action_id: int) -> dict[str, Any]:
    try:
        return _row(context, action_id)
    except NoResultFound:
        raise click.ClickException(say("outbox.no_row", id=action_id)) from None


COMMANDS = (*_commands(), actions, foods)
