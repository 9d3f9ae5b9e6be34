"""How long a token is trusted: the service's times count only where they cannot lock us out."""

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rules.builders import NOW

from orderbridge.rules.tokens import expires, login_wait, refusal_wait, renew_at

ISTANBUL = ZoneInfo("Europe/Istanbul")  # three hours ahead of UTC all year
DAY, HOUR = timedelta(hours=24), timedelta(hours=1)

zones = st.sampled_from(["UTC", "Europe/Istanbul", "America/Los_Angeles", "Pacific/Kiritimati"]).map(ZoneInfo)
moments = st.datetimes(datetime(2020, 1, 1), datetime(2040, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
texts = st.none() | st.text(max_size=30) | st.datetimes().map(lambda at: f"{at:%Y-%m-%d %H:%M:%S}")


@pytest.mark.interface("Access token", "Limits", "Authentication 1")
@pytest.mark.parametrize("said, validity", [
    ("2026-03-05 15:00:00", DAY), ("2026-03-05 15:00:01", DAY), ("2036-01-01 00:00:00", DAY),
    ("2026-03-04 20:00:00", 5 * HOUR), ("2026-03-04 15:00:01", timedelta(seconds=1)),
    ("2026-03-04 15:00:00", DAY), ("2026-03-04 12:00:00", DAY),  # past on receipt, as a wrong time zone makes it
    ("tomorrow", DAY), ("", DAY), (None, DAY), ("0001-01-01 00:00:00", DAY),
])  # fmt: skip
def test_a_validity_of_more_than_a_day_is_cut(said: str | None, validity: timedelta) -> None:
    until = expires(said, NOW, ISTANBUL)
    assert (until, until.tzinfo) == (NOW + validity, UTC)


@pytest.mark.interface("Authentication 1")
@given(said=texts, received=moments, zone=zones)
def test_a_validity_is_never_past_and_never_over_a_day(said: str | None, received: datetime, zone: ZoneInfo) -> None:
    assert received < expires(said, received, zone) <= received + DAY


@given(issued=moments, validity=st.timedeltas(timedelta(seconds=1), DAY))
def test_a_token_is_renewed_within_its_life(issued: datetime, validity: timedelta) -> None:
    at = renew_at(issued, issued + validity)
    assert issued < at < issued + validity
    assert issued + validity - at <= HOUR and renew_at(NOW, NOW + DAY) == NOW + 23 * HOUR


@pytest.mark.parametrize("refusals, wait", [(1, 60), (2, 120), (3, 300), (4, 600), (5, 900), (6, 900), (5000, 900)])
def test_refused_logins_wait_longer_up_to_a_quarter_of_an_hour(refusals: int, wait: float) -> None:
    assert refusal_wait(refusals) == wait


@pytest.mark.parametrize("failures, wait", [(1, 1), (2, 2), (3, 4), (4, 4), (5000, 4)])
def test_a_failed_connection_is_tried_at_least_every_five_seconds(failures: int, wait: float) -> None:
    assert [login_wait(failures, chance, answered=False) for chance in (0, 1)] == [wait, wait * 1.25]


@pytest.mark.parametrize("failures, wait", [(1, 1), (2, 2), (3, 4), (4, 60), (5, 120), (6, 300), (5000, 300)])
def test_a_login_that_is_answered_5xx_is_tried_again_after_seconds_and_then_minutes(failures: int, wait: float) -> None:
    waits = [login_wait(failures, chance, answered=True) for chance in (0, 1)]
    assert waits == [wait, wait * 1.25]


@given(received=moments, ahead=st.timedeltas(-2 * DAY, 2 * DAY), hours=st.integers(-12, 14))
def test_a_time_with_its_own_offset_is_read_by_it(received: datetime, ahead: timedelta, hours: int) -> None:
    said = (received + ahead).replace(microsecond=0).astimezone(timezone(timedelta(hours=hours)))
    until = expires(said.isoformat(), received, ISTANBUL)
    assert until == (min(said, received + DAY) if said > received else received + DAY)
