"""Acting: each command writes one row into the outbox, as a POS would. `--wait` waits for the verdict."""

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import click

from orderbridge.cli.common import RUNNING, Context, as_json, show_json, show_rows

pass_context = click.make_pass_decorator(Context)

WAIT_STEP_S = 0.1
WHOLE = "an order's key as `orderbridge orders` shows it, a restaurant's id as delivery_restaurants does."
FINAL = frozenset({"done", "refused", "failed", "expired", "superseded", "withdrawn"})


def _waiting(command: Callable[..., Any]) -> Callable[..., Any]:
    command = as_json(command)
    command = click.option("--timeout", default=60.0, show_default=True, help="Seconds to wait.")(command)
    return click.option("--wait", is_flag=True, help="Wait for the verdict; exit code 1 when it is not `done`.")(
        command
    )


def _write(context: Context, *, wait: bool, timeout: float, as_json: bool, **values: Any) -> None:
    from sqlalchemy.exc import IntegrityError

    from orderbridge.store import actions

    try:
        row_id = context.write(lambda tx: actions.add(tx, created_by="command line", **values))
    except IntegrityError as error:
        raise click.UsageError(f"The outbox refuses this row: {error.orig}. Name it whole: {WHOLE}") from error
    row = _row(context, row_id)
    for _ in range(round(timeout / WAIT_STEP_S) if wait else 0):
        if row["state"] in FINAL:
            break
        time.sleep(WAIT_STEP_S)
        row = _row(context, row_id)
    if as_json:
        show_json(row)
    else:
        click.echo(f"{row['id']} {row['action']}: {row['state']}")
        if row["error_text"]:
            click.echo(f"{row['error_code']}: {row['error_text']}", err=True)
    if wait and row["state"] not in FINAL and not row["error_code"]:
        click.echo(f"No verdict after {timeout:g} seconds. {RUNNING} The row waits on.", err=True)
    if wait:
        raise SystemExit(0 if row["state"] == "done" else 1)


def _row(context: Context, row_id: int) -> dict[str, Any]:
    from sqlalchemy import select

    from orderbridge.store.tables import actions

    query = select(actions).where(actions.c.id == row_id)
    return context.read(lambda tx: dict(tx.execute(query).mappings().one()))


@click.command()
@click.argument("key")
@click.option("--minutes", type=click.IntRange(1, 1440), required=True, help="Preparing time.")
@_waiting
@pass_context
def accept(context: Context, /, key: str, minutes: int, **how: Any) -> None:
    """Accept an order."""
    _write(context, action="accept", payment_key=key.lower(), preparing_time=minutes, **how)


@click.command("on-the-way")
@click.argument("key")
@_waiting
@pass_context
def on_the_way(context: Context, /, key: str, **how: Any) -> None:
    """The restaurant's own courier has left with the order."""
    _write(context, action="on_the_way", payment_key=key.lower(), **how)


@click.command()
@click.argument("key")
@_waiting
@pass_context
def complete(context: Context, /, key: str, **how: Any) -> None:
    """The order has been handed over and paid."""
    _write(context, action="complete", payment_key=key.lower(), **how)


@click.command()
@click.argument("key")
@click.option("--reason", type=click.IntRange(1, 8), required=True, help="See delivery_cancel_reasons.")
@_waiting
@pass_context
def cancel(context: Context, /, key: str, reason: int, **how: Any) -> None:
    """Cancel an order."""
    _write(context, action="cancel", payment_key=key.lower(), reason_id=reason, **how)


@click.command()
@click.argument("what", type=click.Choice(["open", "close"]))
@click.argument("restaurant_id")
@_waiting
@pass_context
def restaurant(context: Context, /, what: str, restaurant_id: str, **how: Any) -> None:
    """Open or close a restaurant for new orders."""
    _write(context, action=f"{what}_restaurant", restaurant_id=restaurant_id.lower(), **how)


@click.command()
@click.argument("what", type=click.Choice(["on", "off"]))
@click.argument("food_id", type=click.IntRange(-(2**63), 2**63 - 1))
@click.option("--account", help="The account whose menu it is, when there are several.")
@_waiting
@pass_context
def food(context: Context, /, what: str, food_id: int, account: str | None, **how: Any) -> None:
    """Switch a food on or off (sold out)."""
    action = "activate_food" if what == "on" else "deactivate_food"
    _write(context, action=action, food_id=food_id, account=account, **how)


@click.group()
def actions() -> None:
    """The outbox."""


@actions.command("list")
@click.option("--unfinished", is_flag=True, help="Only rows without a verdict.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=50, show_default=True)
@as_json
@pass_context
def actions_list(context: Context, unfinished: bool, limit: int, as_json: bool) -> None:
    """The newest rows first."""
    from sqlalchemy import select

    from orderbridge.store import tables

    table = tables.actions
    names = (
        "id",
        "created_utc",
        "action",
        "payment_key",
        "restaurant_id",
        "food_id",
        "state",
        "attempts",
        "error_code",
        "known_by",
    )
    query = select(*(table.c[name] for name in names)).order_by(table.c.id.desc()).limit(limit)
    if unfinished:
        query = query.where(tables.unfinished)
    rows = context.read(lambda tx: [dict(row) for row in tx.execute(query).mappings()])
    show_rows(rows, machine=as_json, empty="The outbox is empty.")


@actions.command("retry")
@click.argument("action_id", type=int)
@pass_context
def actions_retry(context: Context, action_id: int) -> None:
    """Send a failed row once more; its expiry counts anew."""
    from orderbridge.clock import SystemClock
    from orderbridge.store import actions as outbox

    row = _row_or_fail(context, action_id)
    chosen = context.settings.actions
    usual = chosen.accept_valid_minutes if row["action"] == "accept" else chosen.valid_minutes
    expires = SystemClock().now() + timedelta(minutes=row["valid_minutes"] or usual)
    if not context.write(lambda tx: outbox.retry(tx, action_id, expires)):
        raise click.ClickException(f"Row {action_id} is {row['state']}; only a failed one can be retried.")
    click.echo(f"{action_id} {row['action']}: pending")


@actions.command("withdraw")
@click.argument("action_id", type=int)
@pass_context
def actions_withdraw(context: Context, action_id: int) -> None:
    """Ask for a row back that still waits."""
    from orderbridge.store import actions as outbox

    row = _row_or_fail(context, action_id)
    if not context.write(lambda tx: outbox.ask_back(tx, action_id)):
        raise click.ClickException(f"Row {action_id} is {row['state']} already.")
    click.echo(f"{action_id} {row['action']}: asked back")


def _row_or_fail(context: Context, action_id: int) -> dict[str, Any]:
    from sqlalchemy.exc import NoResultFound

    try:
        return _row(context, action_id)
    except NoResultFound:
        raise click.ClickException(f"There is no row {action_id}. See `orderbridge actions list`.") from None


COMMANDS = (accept, on_the_way, complete, cancel, restaurant, food, actions)
