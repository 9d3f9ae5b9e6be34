"""What is wrong with the page at `[web] listen`, as an open problem like every other.

Rules of this file:
- Orders come in and go out whatever becomes of it. Where the restaurant hears them by the board, they are late all the
  same: then it is severe as soon as no tablet can open the page.
- Who reads figures there notices by himself that nobody answers; of an address that is taken only the board is told.
- A certificate is told before its end, and at the look after the moment has come: no reload is needed for that.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from orderbridge.rules.problems import Code, Problem, Severity

SOON = timedelta(days=14)  # before a certificate's end
SUBJECT = "web"  # as the configuration calls it


@dataclass(frozen=True, slots=True)
class Page:
    """How it stands. `failed`: why the newest configuration is not what is served, since when, and in the error's words."""

    is_served: bool = False
    has_board: bool = False
    ends: datetime | None = None  # the certificate that is in use
    failed: Code | None = None
    since: datetime | None = None
    error: str = ""
    reason: str = ""  # why, where it lies with the machine: a key of the sentences of `line`


def problems(page: Page, now: datetime) -> Iterator[Problem]:
    """All of it."""
    if page.failed is not None and (page.has_board or page.failed != Code.PAGE_NOT_SERVED):
        severity = _severity(page, is_shut=not page.is_served)
        facts = {"error": page.error} | ({"reason": page.reason} if page.reason else {})
        yield Problem(page.failed, SUBJECT, page.since, severity, facts=facts)
    if page.is_served and page.ends is not None and page.ends - now < SOON:
        is_over = page.ends <= now
        since, facts = page.ends if is_over else page.ends - SOON, {"end": f"{page.ends:%Y-%m-%d}"}
        yield Problem(Code.CERTIFICATE_ENDS, SUBJECT, since, _severity(page, is_shut=is_over), facts=facts)


def _severity(page: Page, *, is_shut: bool) -> Severity:
    return Severity.SEVERE if page.has_board and is_shut else Severity.WARNING
