"""When to log in again, and how long to wait after a refusal (docs/interface.md, Authentication)."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

VALIDITY = timedelta(hours=24)
RENEW_AHEAD = 24  # a 24th of the validity: about one hour of a day
RENEW_AGAIN_S = 60.0  # after a renewal that failed
REFUSAL_WAITS = (60.0, 120.0, 300.0, 600.0, 900.0)  # seconds; the last one repeats
LOGIN_WAITS = (1.0, 2.0, 4.0, 60.0, 120.0, 300.0)  # seconds, after a login answered 5xx; the last one repeats
LINE_WAITS = (1.0, 2.0, 4.0)  # seconds; the last one repeats: with its spread at most 5 s, for it costs nothing
LONGEST_WAIT = max(*REFUSAL_WAITS, *LOGIN_WAITS, *LINE_WAITS)  # seconds, not yet spread by chance


def expires(expiration_date: str | None, received: datetime, zone: ZoneInfo) -> datetime:
    """When to trust a token no longer: what the service says, but never more than 24 h from receipt.

    A text that is unreadable or already past on receipt is ignored: a wrong time zone must not lock us out, and a
    401 decides in the end.
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
    """Seconds to wait after the nth login in a row that failed without a word about the credentials (n from 1).

    `answered`: the service answered, a 5xx as a rule. Silence is the line's, and waits as the line does.
    """
    waits = LOGIN_WAITS if answered else LINE_WAITS
    return waits[min(failures, len(waits)) - 1] * (1 + chance / 4)


def line_wait(failures: int, chance: float) -> float:
    """Seconds to wait after the nth request in a row that never left (n from 1), spread by `chance` from 0 to 1."""
    return LINE_WAITS[min(failures, len(LINE_WAITS)) - 1] * (1 + chance / 4)
