"""Decides when to renew a token, and how long to wait after a failed login (docs/interface.md, Authentication)."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

VALIDITY = timedelta(hours=24)
RENEW_AHEAD = 24  # a 24th of the validity: about one hour of a day
RENEW_AGAIN_S = 60.0  # after a renewal that failed
REFUSAL_WAITS = (60.0, 120.0, 300.0, 600.0, 900.0)  # seconds; the last one repeats
LOGIN_WAITS = (1.0, 2.0, 4.0, 60.0, 120.0, 300.0)  # seconds, after a login answered 5xx; the last one repeats
LINE_WAITS = (1.0, 2.0, 4.0)  # seconds; the last one repeats; with jitter at most 5 s
LONGEST_WAIT = max(*REFUSAL_WAITS, *LOGIN_WAITS, *LINE_WAITS)  # seconds, without jitter


def expires(expiration_date: str | None, received: datetime, zone: ZoneInfo) -> datetime:
    """The token's expiry as sent, but at most 24 h after receipt.

    An unreadable date, or one in the past, is ignored, because it may have a wrong time zone. A 401 then decides.
    """
    most = received + VALIDITY
    try:
        read = datetime.fromisoformat(expiration_date or "")
        sent = (read if read.tzinfo else read.replace(tzinfo=zone)).astimezone(UTC)
    except (ValueError, OverflowError):
        return most
    return min(sent, most) if sent > received else most


def renew_at(issued: datetime, expiry: datetime) -> datetime:
    """A 24th of the validity before it ends."""
    return expiry - (expiry - issued) / RENEW_AHEAD


def refusal_wait(refusals: int) -> float:
    """Seconds to wait after the nth refused login in a row (n from 1)."""
    return REFUSAL_WAITS[min(refusals, len(REFUSAL_WAITS)) - 1]


def login_wait(failures: int, chance: float, *, answered: bool) -> float:
    """Seconds to wait after the nth failure in a row (n from 1), spread by `chance` from 0 to 1.

    `answered`: a login was answered, usually by a 5xx. Otherwise a login, or any request, was not.
    """
    waits = LOGIN_WAITS if answered else LINE_WAITS
    return waits[min(failures, len(waits)) - 1] * (1 + chance / 4)
