"""`check`: is everything in place? Each thing with its remedy."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from orderbridge.cli.accounts import with_account
from orderbridge.cli.common import Context, as_json, show_json
from orderbridge.errors import MarketplaceError, OrderbridgeError
from orderbridge.texts import say

if TYPE_CHECKING:
    from orderbridge.jobs.account import Account

pass_context = click.make_pass_decorator(Context)


@click.command()
@as_json
@pass_context
def check(context: Context, as_json: bool) -> None:
    """Is everything in place? Configuration, database, line, login, restaurants: each with its remedy."""
    findings: list[dict[str, Any]] = []

    def found(what: str, problem: str | None, detail: str = "") -> None:
        findings.append({"check": what, "ok": problem is None, "detail": problem or detail})
        if not as_json:
            click.echo(
                f"{'ok  ' if problem is None else 'FAIL'}  {what}{': ' if problem or detail else ''}{problem or detail}"
            )

    settings = context.settings
    found("configuration", None, say("check.accounts", count=len(settings.accounts)))
    for sentence in settings.warnings:
        found("warning", None, sentence)
    _check_environment(settings.marketplace.base_url, found)
    unreachable = False
    try:
        database = context.database(makes_file=True)
    except OrderbridgeError as error:
        found("database", str(error))
    else:
        from orderbridge.store import schema
        from orderbridge.store.durability import failover

        try:
            database.write_now(schema.upgrade)
            found("database", database.check_durability(), database.engine.dialect.name)
            if advice := database.read_now(failover):
                found("failover", None, advice)
            unreachable = asyncio.run(_check_accounts(context, database, found))
        except OrderbridgeError as error:
            found("database", str(error))
        finally:
            database.close()
    if as_json:
        show_json(findings)
    if unreachable:
        raise SystemExit(69)
    raise SystemExit(0 if all(finding["ok"] for finding in findings) else 1)


def _check_environment(base_url: str, found: Callable[..., None]) -> None:
    """What a connection takes from it. Nothing is said when there is nothing."""
    from urllib.parse import urlsplit

    from orderbridge.net.proxies import HTTPS_PORT, authorities, proxy_for

    parts = urlsplit(base_url)
    try:
        proxy = proxy_for(parts.hostname or "", parts.port or HTTPS_PORT)
    except ValueError as error:
        found("proxy", str(error))
    else:
        if proxy is not None:
            found("proxy", None, say("check.proxy", proxy=proxy))
    for name, path in authorities().items():
        found("certificates", None, say("check.authorities", name=name, path=path))


async def _check_accounts(context: Context, database: Any, found: Callable[..., None]) -> bool:
    unreachable = False

    async def ask(account: "Account") -> str:
        return ", ".join(restaurant.name for restaurant in await account.client.restaurants()) or say(
            "check.no_restaurants"
        )

    for name in [account.name for account in context.settings.accounts]:
        try:
            found(f"account {name}", None, await with_account(context, database, name, ask))
        except MarketplaceError as error:
            from orderbridge.errors import LoginRefused, NotSent

            unreachable |= isinstance(error, NotSent) and not isinstance(error, LoginRefused)
            found(f"account {name}", f"{error.code}. {error.remedy}{f' ({error.detail})' if error.detail else ''}")
    return unreachable


COMMANDS = (check,)
