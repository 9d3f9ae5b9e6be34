"""What `check` finds on the way to the service: proxy, DNS, TLS, one request without a token, and each account's login.

The refusal of a request without a token shows the service, the path and the clock.
"""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from orderbridge.cli.accounts import wire_for, with_account
from orderbridge.cli.report import Checked, Finding, bad, failed, good, warn
from orderbridge.clock import SystemClock, http_date
from orderbridge.errors import MarketplaceError, RateLimited, Refused, ServiceFailed, Unauthorized
from orderbridge.marketplace.answers import read_envelope
from orderbridge.net.proxies import authorities
from orderbridge.net.survey import survey
from orderbridge.texts import line_remedy, say

if TYPE_CHECKING:
    from orderbridge.marketplace.client import Client
    from orderbridge.net.http import Answer

ASKED = "/restaurants/get"  # without a token it is refused, and nothing comes of it
WRONG_S = 60.0  # by so much a clock may be off: an answer takes its time, and its date has whole seconds


async def line(checked: Checked) -> AsyncIterator[Finding]:
    """Every step to the service, up to where it ends."""
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
        answer = await wire.request("GET", ASKED, headers={})
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


def _path(checked: Checked, answer: "Answer") -> Finding:
    detail = f"{checked.settings.marketplace.base_url}: HTTP {answer.status}"
    checked.is_reached = True
    try:
        read_envelope(answer.status, answer.body)
    except (Unauthorized, Refused, RateLimited):  # the service's own words
        pass
    except ServiceFailed as error:  # it may be this call alone
        return warn("service", detail, line_remedy(error))
    except MarketplaceError as error:
        checked.is_reached = False
        return bad("service", detail, line_remedy(error.known_before() if checked.has_worked else error))
    return good("service", detail)


def _clock(date: str) -> Iterator[Finding]:
    if (there := http_date(date)) is None:
        return  # it does not say what time it is
    now = SystemClock().now()
    off = (now - there).total_seconds()
    facts = say("check.clock", seconds=f"{off:+.0f}", there=there, here=now)
    yield good("clock", facts) if abs(off) < WRONG_S else bad("clock", facts, say("check.clock_wrong"))


async def logins(checked: Checked) -> AsyncIterator[Finding]:
    """Whether the service lets each account in, and which restaurants are its own; one that is refused hides no other."""

    async def ask(client: "Client") -> str:
        return ", ".join(restaurant.name for restaurant in await client.restaurants())

    if not checked.is_reached:
        return
    database = checked.database if checked.may_write else None
    for account in checked.settings.accounts:
        if account.app_secret_key == account.rest_secret_key:
            yield warn("account", say("check.same_secret"), subject=account.name)
        try:
            names = await with_account(checked.context, database, account, ask)
        except MarketplaceError as error:
            yield failed("account", error, has_worked=checked.has_worked, subject=account.name)
            continue
        if names:
            yield good("account", names, subject=account.name)
        else:
            yield warn("account", say("check.no_restaurants"), say("check.ask_for_some"), subject=account.name)


PROBES = (line, logins)
