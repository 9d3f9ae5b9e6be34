"""The probes of `check` that reach the marketplace: DNS, TCP, TLS, the clock and each account's login.

A request without a token is refused; this refusal proves that the marketplace, the path and the clock are right.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

from orderbridge import config
from orderbridge.cli.check import Checked, Finding, bad, failed, good, warn
from orderbridge.cli.common import Context
from orderbridge.clock import SystemClock, http_date
from orderbridge.errors import MarketplaceError, RateLimited, Refused, ServiceFailed, Unauthorized
from orderbridge.hiding import hide
from orderbridge.jobs.account import Account
from orderbridge.jobs.context import Context as JobContext
from orderbridge.marketplace.answers import read_envelope
from orderbridge.marketplace.client import Client, login
from orderbridge.marketplace.session import Session, Waits
from orderbridge.model import Token
from orderbridge.net.connector import survey
from orderbridge.net.http import Answer, Wire
from orderbridge.net.proxies import authorities
from orderbridge.observe import logs
from orderbridge.rules import tokens
from orderbridge.store.database import Database
from orderbridge.texts import line_remedy, say

PROBE_PATH = "/restaurants/get"  # refused without a token, and without a side effect
MAX_CLOCK_ERROR_S = 60.0  # tolerates the answer's delay; its date has whole seconds


async def line(checked: Checked) -> AsyncIterator[Finding]:
    """Each step of the connection to the marketplace, up to the first that fails."""
    for one in _authorities():
        yield one
    market = checked.settings.marketplace
    async for step in survey(market.base_url, ca_file=market.ca_file, timeout_s=market.timeout_seconds):
        if step.error is not None:
            yield failed(step.what, step.error, has_worked=checked.has_worked)
            return
        yield good(step.what, step.detail)
    wire = wire_for(checked.context)
    try:
        answer = await wire.request("GET", PROBE_PATH, headers={})
    except MarketplaceError as error:
        yield failed("service", error, has_worked=checked.has_worked)
        return
    finally:
        await wire.close()
    yield _path(checked, answer)
    for one in _clock(answer.date):
        yield one


def _authorities() -> Iterator[Finding]:
    for name, path in authorities().items():
        if Path(path).exists():
            yield warn("certificates", say("check.authorities", name=name, path=path))
        else:
            facts = say("check.authorities_away", name=name, path=path)
            yield warn("certificates", facts, say("check.authorities_remedy"))


def _path(checked: Checked, answer: Answer) -> Finding:
    detail = f"{checked.settings.marketplace.base_url}: HTTP {answer.status}"
    checked.is_reached = True
    try:
        read_envelope(answer.status, answer.body)
    except (Unauthorized, Refused, RateLimited):  # a marketplace's answer
        pass
    except ServiceFailed as error:  # may concern this call only
        return warn("service", detail, line_remedy(error))
    except MarketplaceError as error:
        checked.is_reached = False
        return bad("service", detail, line_remedy(error.known_before() if checked.has_worked else error))
    return good("service", detail)


def _clock(date: str) -> Iterator[Finding]:
    if (there := http_date(date)) is None:
        return  # the answer has no date
    now = SystemClock().now()
    off = (now - there).total_seconds()
    facts = say("check.clock", seconds=f"{off:+.0f}", there=there, here=now)
    yield good("clock", facts) if abs(off) < MAX_CLOCK_ERROR_S else bad("clock", facts, say("check.clock_wrong"))


async def logins(checked: Checked) -> AsyncIterator[Finding]:
    """Log in each account and list its restaurants. A refused account does not hide the others."""
    if not checked.is_reached:
        return
    database = checked.database if checked.may_write else None
    for account in checked.settings.accounts:
        if account.app_secret_key == account.rest_secret_key:
            yield warn("account", say("check.same_secret"), subject=account.name)
        try:
            names = await restaurants_of(checked.context, database, account)
        except MarketplaceError as error:
            yield failed("account", error, has_worked=checked.has_worked, subject=account.name)
            continue
        if names:
            yield good("account", names, subject=account.name)
        else:
            yield warn("account", say("check.no_restaurants"), say("check.ask_for_some"), subject=account.name)


PROBES = (line, logins)


# ---- as an account ---------------------------------------------------------------------------------------------------


async def restaurants_of(context: Context, database: Database | None, chosen: config.Account) -> str:
    """Return the names of this account's restaurants. Raises MarketplaceError.

    With a `database`, the stored token is used and a new one is stored. Without one, this is one more login.
    """
    logs.configure(level="critical")  # the command prints its own findings
    async with AsyncExitStack() as at_end:
        wire = wire_for(context)
        at_end.push_async_callback(wire.close)
        if database is None:
            return await _names(_client(wire, chosen))
        account = account_of(context, wire, database, chosen)
        at_end.push_async_callback(account.close)
        await account.start()
        return await _names(account.client)


async def _names(client: Client) -> str:
    return ", ".join(restaurant.name for restaurant in await client.restaurants())


def wire_for(context: Context) -> Wire:
    """The HTTP client of the configured marketplace."""
    market = context.settings.marketplace
    return Wire(base_url=market.base_url, timeout_s=market.timeout_seconds, ca_file=market.ca_file)


def account_of(context: Context, wire: Wire, database: Database, chosen: config.Account) -> Account:
    """An account that is not started yet."""
    return Account(chosen, JobContext.of(context.settings, database, SystemClock()), wire)


def _client(wire: Wire, chosen: config.Account) -> Client:
    """A client that logs in and does not store its token."""
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
