"""What a command asks the service as one of the accounts: foods, and what check needs."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import click

from orderbridge import __version__
from orderbridge.cli.common import Context

if TYPE_CHECKING:
    from orderbridge.jobs.account import Account

pass_context = click.make_pass_decorator(Context)


async def with_account(context: Context, database: Any, name: str, ask: Callable[["Account"], Awaitable[str]]) -> str:
    """What `ask` finds as the account of this name. Raises MarketplaceError."""
    from random import Random
    from zoneinfo import ZoneInfo

    from orderbridge.clock import SystemClock
    from orderbridge.jobs.account import Account
    from orderbridge.net.http import Wire
    from orderbridge.observe import logs

    logs.configure(level="critical")  # what matters is printed by the command itself
    market = context.settings.marketplace
    wire = Wire(
        base_url=market.base_url,
        timeout_s=market.timeout_seconds,
        ca_file=market.ca_file,
        user_agent=f"orderbridge/{__version__}",
    )
    chosen = next(account for account in context.settings.accounts if account.name == name)
    account = Account(
        chosen,
        wire=wire,
        database=database,
        clock=SystemClock(),
        random=Random(),  # noqa: S311 - it spreads waits, it guards nothing
        zone=ZoneInfo(market.timezone),
        cooldown_s=market.cooldown_seconds,
    )
    try:
        await account.start()
        return await ask(account)
    finally:
        await account.close()
        await wire.close()


@click.command()
@click.option("--account", "name", help="The account whose menu to list; else the first.")
@pass_context
def foods(context: Context, name: str | None) -> None:
    """The menu list as the service sends it."""
    from orderbridge.store import schema

    names = [account.name for account in context.settings.accounts]
    if name is not None and name not in names:
        raise click.UsageError(f"There is no account {name}; there are: {', '.join(names)}.")
    database = context.database(makes_file=True)
    try:
        database.write_now(schema.upgrade)
        text = asyncio.run(with_account(context, database, name or names[0], lambda account: account.client.foods()))
    finally:
        database.close()
    click.echo(text)


COMMANDS = (foods,)
