"""Times in the forms that a service may write (clock.local_moment)."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from orderbridge.clock import local_moment

ISTANBUL = ZoneInfo("Europe/Istanbul")


@pytest.mark.parametrize("written", [
    "2026-11-25 19:30:00", "2026-11-25 19:30", " 2026-11-25T19:30:00.000 ", "2026-11-25T16:30:00Z",
    "2026-11-25t16:30:00.0000000z", "2026-11-25T20:30:00+04:00", "2026-11-25 20:30:00 +0400",
    "2026-11-25 16:30:00 UTC", "2026/11/25 19:30", "25.11.2026 19:30", "25-11-2026 19:30:00", "20261125193000",
    "20261125T193000", "1795624200", "1795624200000", "1795624200.0",
])  # fmt: skip
def test_a_time_is_read_by_its_own_offset_or_in_the_zone_of_the_service(written: str) -> None:
    assert local_moment(written, ISTANBUL) == datetime(2026, 11, 25, 16, 30, tzinfo=UTC)


@pytest.mark.parametrize("written", [
    None, "", "-", "0", "null", "Invalid date", "0000-00-00 00:00:00", "-0001-11-30 00:00:00", "19:30", "11/25/2026",
    "2026-13-45 99:00", "0001-01-01T00:00:00", "9999-12-31T23:59:59-12:00", "yarın 19:30", "9" * 5000,
])  # fmt: skip
def test_an_unreadable_time_is_none(written: str | None) -> None:
    assert local_moment(written, ISTANBUL) is None
