"""The progress of a start with many accounts, in the service's status and in the log."""

import asyncio

from structlog.testing import capture_logs
from tests.jobs.shop import FakeClock

from orderbridge.jobs.upkeep import PROGRESS_S, StartProgress


async def test_a_start_of_many_says_how_far_it_is_and_the_log_hears_of_it_now_and_then(clock: FakeClock):
    progress = StartProgress(clock, "en")
    with capture_logs() as logs:
        assert "3,120 of 10,000" in progress.text(3120, 10_000)
        progress.text(3121, 10_000)
        await asyncio.sleep(PROGRESS_S)
        assert "5,000 of 10,000" in progress.text(5000, 10_000)
        assert [progress.text(10_000, 10_000) for _ in range(2)] == ["", ""]
        assert StartProgress(clock, "en").text(3, 12) == "", "a start of few is soon over"
    assert [line["done"] for line in logs] == [3120, 5000, 10_000]
