"""Setting up: check, config show, db upgrade, db sql, db grants, foods, version."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import click

from orderbridge import __version__
from orderbridge.cli.common import Context, as_json, show_json
from orderbridge.errors import MarketplaceError, OrderbridgeError
from orderbridge.texts import SENTENCES, say

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
            found(f"account {name}", None, await _with_account(context, database, name, ask))
        except MarketplaceError as error:
            from orderbridge.errors import LoginRefused, NotSent

            unreachable |= isinstance(error, NotSent) and not isinstance(error, LoginRefused)
            key = f"line.{error.code}"
            remedy = say(key if key in SENTENCES else "line.other")
            found(f"account {name}", f"{error.code}. {remedy}{f' ({error.detail})' if error.detail else ''}")
    return unreachable


async def _with_account(context: Context, database: Any, name: str, ask: Callable[["Account"], Awaitable[str]]) -> str:
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
        text = asyncio.run(_with_account(context, database, name or names[0], lambda account: account.client.foods()))
    finally:
        database.close()
    click.echo(text)


@click.group()
def config() -> None:
    """The configuration."""


@config.command("show")
@as_json
@pass_context
def config_show(context: Context, as_json: bool) -> None:
    """What is in force, secrets hidden."""
    from orderbridge.config import shown

    settings = context.settings
    values = shown(settings)
    if as_json:
        show_json(values)
        return
    click.echo(f"# from {settings.source.file or 'defaults and the environment'}")
    for name, value in _flat(values):
        click.echo(f"{name} = {value}")


def _flat(value: Any, name: str = "") -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [line for key, part in value.items() for line in _flat(part, f"{name}.{key}" if name else key)]
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [line for place, part in enumerate(value) for line in _flat(part, f"{name}[{place}]")]
    return [(name, value)]


@click.group()
def db() -> None:
    """The database."""


@db.command("upgrade")
@pass_context
def db_upgrade(context: Context) -> None:
    """Make the tables, or bring them up to date."""
    from orderbridge.store import schema

    database = context.database(makes_file=True)
    try:
        done = database.write_now(schema.upgrade)
    finally:
        database.close()
    click.echo(f"schema {schema.HEAD}: {'upgraded' if done else 'was up to date'}")


@db.command("sql")
@pass_context
def db_sql(context: Context) -> None:
    """Print the DDL for the configured database, for a DBA to run."""
    from orderbridge.store import schema

    click.echo(schema.offline_sql(context.settings.database.url))


@db.command("grants")
@click.argument("role")
@pass_context
def db_grants(context: Context, role: str) -> None:
    """Print the GRANT statements that let ROLE, the POS's own user, do its whole job and no more."""
    from sqlalchemy import make_url

    from orderbridge.store import grants
    from orderbridge.store.dialects import of

    url = make_url(context.settings.database.url)
    place = url.database
    if query := of(url.get_backend_name()).schema_query:  # only the server knows in which schema our tables are
        database = context.database()
        try:
            place = database.read_now(lambda tx: tx.exec_driver_sql(query).scalar())
        finally:
            database.close()
    click.echo("\n".join(grants.statements(url.get_backend_name(), role, place)))


@click.command()
@as_json
def version(as_json: bool) -> None:
    """The program's version and its schema's."""
    import platform

    from orderbridge.store import schema

    facts = {"version": __version__, "schema": schema.HEAD, "python": platform.python_version()}
    if as_json:
        show_json(facts)
    else:
        click.echo(f"orderbridge {__version__} (schema {schema.HEAD}, Python {facts['python']})")


COMMANDS = (check, foods, config, db, version)
