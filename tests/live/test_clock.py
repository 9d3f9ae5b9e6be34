"""The machine's clock is set by an hour, forward or back, while the daemon runs; only its process sees this."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.test_daemon import ended, logged, process, until

from orderbridge_sandbox.scenery import KADIKOY

LIBRARY = "faketime/libfaketimeMT.so.1"
PLACES = ("/usr/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/local/lib")


@pytest.fixture
def set_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Set the wall clock of processes that start from now on; the monotonic one cannot be set."""
    found = [path for place in PLACES if (path := Path(place, LIBRARY)).is_file()]
    if not found:
        pytest.skip("libfaketime is not installed (tests/debian-packages)")
    file = tmp_path / "clock"

    def set_clock(ahead_s: int) -> None:
        new = file.with_suffix(".new")
        new.write_text(f"{ahead_s:+d}")
        new.replace(file)

    set_clock(0)
    monkeypatch.setenv("LD_PRELOAD", str(found[0]))
    monkeypatch.setenv("FAKETIME_TIMESTAMP_FILE", str(file))
    monkeypatch.setenv("FAKETIME_CACHE_DURATION", "1")  # seconds; to read the file at each call takes all the time
    monkeypatch.setenv("FAKETIME_DONT_FAKE_MONOTONIC", "1")
    monkeypatch.setenv("NO_FAKE_STAT", "1")
    monkeypatch.setenv("FAKETIME_DISABLE_SHM", "1")
    return set_clock


async def test_a_clock_set_forward_and_back_stops_nothing(configuration, till, world, set_clock):
    first = world.place_order(restaurant_id=KADIKOY)
    async with process(configuration) as daemon:
        await until(lambda: first.acknowledged)
        for jumps, ahead_s in ((1, 3600), (2, 0)):
            set_clock(ahead_s)
            late = [world.place_order(restaurant_id=KADIKOY)]
            # The till's own clock is as it was: an accept of it would be an hour old, and expire.
            row = till.run("INSERT INTO delivery_actions (action, food_id) VALUES ('deactivate_food', 1001)")
            await until(lambda row=row: till.state(row) == "done")
            await until(lambda jumps=jumps: len(logged(configuration, "clock.jumped")) == jumps)
            late.append(world.place_order(restaurant_id=KADIKOY))
            await until(lambda late=late: all(one.acknowledged for one in late))
            polls = len(world.calls("get_current"))
            await until(lambda polls=polls: len(world.calls("get_current")) >= polls + 2)
        assert await ended(daemon, signal.SIGTERM) == 0
    assert [round(line["seconds"], -1) for line in logged(configuration, "clock.jumped")] == [3600, -3600]
    assert {call.http_status for call in world.calls()} <= {200, None}
    assert len(world.calls("login")) == 1, "the token has a day, and its hour of spare is not up"
    assert logged(configuration, "job.crashed") == []
