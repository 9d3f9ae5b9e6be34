"""What a command asks the service as one of the accounts."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import click

from orderbridge import __version__
from orderbridge.cli.common import Context
from orderbridge.texts import say

if TYPE_CHECKING:
    from orderbridge import config
    from orderbridge.jobs.account import Account
    from orderbridge.marketplace.client import Client
    from orderbridge.net.http import Wire
    from orderbridge.store.database import Database


async def with_account(
    context: Context, database: "Database | None", chosen: "config.Account", ask: Callable[["Client"], Awaitable[str]]
) -> str:
    """What `ask` finds as this account. Raises MarketplaceError.

    A kept token is used, and a new one kept, where there is a `database` with our tables; else it is one more login.
    """
    from orderbridge.observe import logs

    logs.configure(level="critical")  # what matters is printed by the command itself
    wire = wire_for(context)
    try:
        if database is None:
            return await ask(_client(wire, chosen))
        account = account_of(context, wire, database, chosen)
        try:
            await account.start()
            return await ask(account.client)
        finally:
            await account.close()
    finally:
        await wire.close()


def refuse_unknown(context: Context, name: str) -> None:
    """Raise UsageError where no account has this name: in the file, and in the database where they are read from there."""
    settings = context.settings
    if name in {account.name for account in settings.accounts}:
        return
    if settings.fleet.from_database:
        from orderbridge.store import account_rows

        if context.read(lambda tx: account_rows.is_there(tx, name)):
            return
        raise click.UsageError(say("accounts.unknown", names=name))  # there may be thousands
    names = ", ".join(account.name for account in settings.accounts)
    raise click.UsageError(say("command.no_account", name=name, names=names))


def wire_for(context: Context) -> "Wire":
    """The way to the configured service."""
    from orderbridge.net.http import Wire

    market = context.settings.marketplace
    return Wire(
        base_url=market.base_url,
        timeout_s=market.timeout_seconds,
        ca_file=market.ca_file,
        user_agent=f"orderbridge/{__version__}",
    )


def account_of(context: Context, wire: "Wire", database: "Database", chosen: "config.Account") -> "Account":
    """An account, to be started."""
    from orderbridge.clock import SystemClock
    from orderbridge.jobs.account import Account
    from orderbridge.jobs.context import Context as JobContext

    return Account(chosen, JobContext.of(context.settings, database, SystemClock()), wire)


def _client(wire: "Wire", chosen: "config.Account") -> "Client":
    """Of an account that nothing is kept of: its login is made anew, and forgotten."""
    from orderbridge.clock import SystemClock
    from orderbridge.hiding import hide
    from orderbridge.marketplace.client import Client, login
    from orderbridge.marketplace.session import Session, Waits
    from orderbridge.model import Token
    from orderbridge.rules import tokens

    app, rest = (secret.get_secret_value() for secret in (chosen.app_secret_key, chosen.rest_secret_key))
    hide(app)
    hide(rest)
    clock = SystemClock()

    async def obtain() -> Token:
        grant = await login(wire, app_secret_key=app, rest_secret_key=rest)
        hide(grant.access_token)
        return Token(grant.access_token, clock.now(), clock.now())

    waits = Waits(refused=tokens.refusal_wait, failed=lambda *_, **__: 0.0, unsent=lambda _: 0.0, limited_s=0.0)
    return Client(wire, Session(obtain, clock=clock, waits=waits, name=chosen.name))
