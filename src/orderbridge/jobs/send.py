"""One row on the wire: its request, and how that ended."""

from dataclasses import dataclass

import structlog

from orderbridge.actions import argument_of, key_of
from orderbridge.errors import LoginRefused, MarketplaceError
from orderbridge.jobs.account import Account
from orderbridge.model import Attempt, OutboxRow, Outcome, Verdict
from orderbridge.rules.outbox import Lane
from orderbridge.rules.retry import NextRequest, RetryAt, after_status, is_no_attempt

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Claim:
    """A row that is ours to send."""

    row: OutboxRow
    lane: Lane
    account: Account
    request: NextRequest
    history: tuple[Attempt, ...]
    number: int
    again: RetryAt | None = None  # the resend, when what was asked for is not there and its time has not come


@dataclass(frozen=True, slots=True)
class Result:
    """How a claim's request ended. `decision`: the restaurant's own status told it, and nothing was sent."""

    claim: Claim
    attempt: Attempt | None
    decision: Verdict | RetryAt | None = None


async def send(claim: Claim) -> Result:
    """Send a claim, or ask first what an earlier request of it did. Never raises."""
    try:
        return await (_send(claim) if claim.request == NextRequest.SEND else _ask(claim))
    except Exception as error:  # noqa: BLE001 - one row must not take the others along; its outcome is unknown
        _log.exception("action.crashed", id=claim.row.id)
        return Result(claim, Attempt(Outcome.UNKNOWN, "internal_error", None, type(error).__name__))


async def _ask(claim: Claim) -> Result:
    """The restaurant's own status tells what an earlier request did."""
    shown = None
    try:
        shown = await claim.account.client.restaurant_status(claim.row.service_id or key_of(claim.row))
    except MarketplaceError as error:
        if is_no_attempt(error.outcome):
            return Result(claim, Attempt(error.outcome, error.code, error.http_status, error.detail))
    decision = after_status(claim.row.action, shown, claim.history) or claim.again
    return await _send(claim) if decision is None else Result(claim, None, decision)


async def _send(claim: Claim) -> Result:
    """The one request of a row. Its arguments were checked by rules.outbox."""
    row = claim.row
    try:
        await claim.account.client.act(row.action, row.service_id or key_of(row), argument_of(row))
    except MarketplaceError as error:
        code = "login_refused" if isinstance(error, LoginRefused) else error.code
        return Result(claim, Attempt(error.outcome, code, error.http_status, error.detail))
    return Result(claim, Attempt(Outcome.OK, None, 200))
