"""Reads the machine's clock and parses times. All other modules get the time from a `Clock`."""

import re
import time
from datetime import UTC, datetime, tzinfo
from typing import Protocol

YEARS = range(2000, 3000)  # other years are mistakes; arithmetic fails near the ends of the calendar

_UNIX_TIME = re.compile(r"[1-9][0-9]{9}(?:[0-9]{3})?(?:\.0+)?", re.ASCII)
# Formats that fromisoformat rejects: `25.11.2026`, `2026/11/25`, `20261125193000`, a space before the offset.
_FORMS = (
    (re.compile(r"^([0-9]{2})([.-])([0-9]{2})\2([0-9]{4})(?![0-9])"), r"\4-\3-\1"),
    (re.compile(r"^([0-9]{4})/([0-9]{2})/([0-9]{2})(?![0-9])"), r"\1-\2-\3"),
    (re.compile(r"^([0-9]{8})([0-9]{6})$"), r"\1T\2"),
    (re.compile(r" +(?:UTC|GMT|Z)$"), "Z"),
    (re.compile(r" +([+-][0-9]{2}:?[0-9]{2})$"), r"\1"),
)


class Clock(Protocol):
    """A source of time."""

    def now(self) -> datetime:
        """The wall clock as an aware UTC datetime. It can jump."""

    def monotonic(self) -> float:
        """Seconds since an unknown start. They never decrease."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()


def wall_ahead(clock: Clock) -> float:
    """How far the wall clock is ahead of the monotonic one. Only a change has a meaning: the clock was set."""
    return clock.now().timestamp() - clock.monotonic()


def local_moment(text: str | None, zone: tzinfo) -> datetime | None:
    """Parse a time of the marketplace; one without an offset is in `zone`. None if it is not a time.

    Accepts the usual forms of ISO 8601, `25.11.2026 19:30`, and Unix time in seconds or milliseconds.
    """
    written = (text or "").strip().upper()
    try:
        if _UNIX_TIME.fullmatch(written):
            return datetime.fromtimestamp(int(written[:10]), UTC)
        for form, iso in _FORMS:
            written = form.sub(iso, written)
        found = datetime.fromisoformat(written)
        return (found if found.tzinfo else found.replace(tzinfo=zone)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def http_date(text: str) -> datetime | None:
    """Parse the date of an HTTP header; None if it is not a date. The parser may raise any exception."""
    from email.utils import parsedate_to_datetime  # noqa: PLC0415 - slow to load, and most commands do not need it

    try:
        there = parsedate_to_datetime(text)
        there = there.replace(tzinfo=there.tzinfo or UTC).astimezone(UTC)
    except Exception:  # noqa: BLE001 - see above
        return None
    return there if there.year in YEARS else None
