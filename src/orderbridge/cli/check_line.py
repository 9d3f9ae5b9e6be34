"""The line: proxy, DNS, TLS, then one request without a token, whose refusal shows the service, the path and the clock."""

from datetime import datetime
from pathlib import Path

from orderbridge import __version__
from orderbridge.cli.report import Report
from orderbridge.clock import SystemClock, http_date
from orderbridge.config import Marketplace
from orderbridge.errors import MarketplaceError, RateLimited, Refused, ServiceFailed, Unauthorized
from orderbridge.marketplace.answers import read_envelope
from orderbridge.net.http import Answer, Wire
from orderbridge.net.proxies import authorities
from orderbridge.net.survey import survey
from orderbridge.texts import say

ASKED = "/restaurants/get"  # without a token it is refused, and nothing comes of it
WRONG_S = 60.0  # by so much a clock may be off: an answer takes its time, and its date has whole seconds


async def check_line(market: Marketplace, report: Report) -> bool:
    """Whether the service answered. Everything on the way is told up to where it ends."""
    _name_authorities(report)
    steps = survey(market.base_url, ca_file=market.ca_file, timeout_s=market.timeout_seconds)
    async for step in steps:
        if step.error is not None:
            report.failed(step.what, step.error)
            return False
        report.good(step.what, step.detail)
    try:
        answer = await _ask(market)
    except MarketplaceError as error:
        report.failed("service", error)
        return False
    reached = _check_path(market.base_url, answer, report)
    _check_clock(answer.date, report)
    return reached


def _name_authorities(report: Report) -> None:
    for name, path in authorities().items():
        if Path(path).exists():
            report.look("certificates", say("check.authorities", name=name, path=path))
        else:
            facts = say("check.authorities_away", name=name, path=path)
            report.look("certificates", facts, say("check.authorities_remedy"))


async def _ask(market: Marketplace) -> Answer:
    wire = Wire(
        base_url=market.base_url,
        timeout_s=market.timeout_seconds,
        ca_file=market.ca_file,
        user_agent=f"orderbridge/{__version__}",
    )
    try:
        return await wire.request("GET", ASKED, headers={})
    finally:
        await wire.close()


def _check_path(base_url: str, answer: Answer, report: Report) -> bool:
    detail = f"{base_url}: HTTP {answer.status}"
    try:
        read_envelope(answer.status, answer.body)
    except (Unauthorized, Refused, RateLimited):  # the service's own words
        pass
    except ServiceFailed as error:  # it may be this call alone
        report.look("service", detail, error.remedy)
        return True
    except MarketplaceError as error:
        report.bad("service", detail, (error.known_before() if report.has_worked else error).remedy)
        return False
    report.good("service", detail)
    return True


def _check_clock(date: str, report: Report) -> None:
    if (there := http_date(date)) is None:
        return  # it does not say what time it is
    now: datetime = SystemClock().now()
    off = (now - there).total_seconds()
    facts = say("check.clock", seconds=f"{off:+.0f}", there=there, here=now)
    if abs(off) < WRONG_S:
        report.good("clock", facts)
    else:
        report.bad("clock", facts, say("check.clock_wrong"))
