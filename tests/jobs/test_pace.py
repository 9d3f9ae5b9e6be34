"""The pace of a process's requests (net.http): bounded per second, the important first, and waits are logged."""

import asyncio
from datetime import UTC, datetime
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.jobs.shop import COOLDOWN_S, TIMEOUT_S, FakeClock, Shop

from orderbridge.errors import NotSent
from orderbridge.net.http import CATCH_UP_PER_S, MAX_EVEN_S, Allowance, Importance, Pace, Wire
from orderbridge.texts import line_remedy


@given(
    per_second=st.integers(1, 700),
    gaps=st.lists(st.floats(0, 0.5) | st.just(0.0) | st.just(0.001), min_size=1, max_size=2000),
)
def test_no_second_has_more_than_is_allowed(per_second: int, gaps: list[float]) -> None:
    allowance = Allowance(per_second)
    left = [now for now in accumulate(gaps) if allowance.take(now)]
    for place, now in enumerate(left[per_second:]):
        assert now - left[place] >= 1 - 1e-6


def a_wire(per_second: int = 500) -> Wire:
    return Wire(base_url="https://service.invalid", timeout_s=10, requests_per_second=per_second)


async def leave(pace: Pace, importance: Importance, left: list[tuple[float, Importance]]) -> None:
    await pace.admit(importance)
    left.append((asyncio.get_running_loop().time(), importance))


async def test_actions_go_before_polls_and_polls_before_lists() -> None:
    pace, left = Pace(500), []
    waiting = [Importance.LIST] * 600 + [Importance.POLL] * 600 + [Importance.ACTION] * 20
    async with asyncio.TaskGroup() as tasks:
        for importance in waiting:
            tasks.create_task(leave(pace, importance, left))
    at_once = [importance for moment, importance in left if moment == 0]
    assert at_once == [Importance.LIST] * 50, "nobody else was there when they came"
    later = [importance for moment, importance in left if moment > 0]
    assert later == sorted(later)
    moments = [moment for moment, _ in left]
    assert max(sum(since <= one < since + 1 for one in moments) for since in moments) <= 500
    assert moments[-1] == pytest.approx((1220 - 50) / 451, abs=0.01), "what may leave, leaves"


async def test_a_request_that_waits_too_long_fails_in_time_and_takes_no_slot() -> None:
    pace, left = Pace(1), []
    await pace.admit(Importance.POLL)
    waiting = asyncio.create_task(leave(pace, Importance.POLL, left))
    with pytest.raises(NotSent, match="paced") as error:
        await pace.admit(Importance.ACTION, until=0.5)
    assert "requests_per_second" in line_remedy(error.value)
    assert asyncio.get_running_loop().time() == pytest.approx(0.5)
    await waiting
    assert left == [(pytest.approx(1.0), Importance.POLL)]


async def test_at_a_stop_only_waiting_polls_are_admitted() -> None:
    pace, left = Pace(1), []
    await pace.admit(Importance.POLL)
    polls = [asyncio.create_task(leave(pace, Importance.POLL, left)) for _ in range(20)]
    other = asyncio.create_task(leave(pace, Importance.LIST, left))
    await asyncio.sleep(0.1)
    pace.admit_all(Importance.POLL)
    await asyncio.gather(*polls)
    assert [moment for moment, _ in left] == [pytest.approx(0.1)] * 20
    await other
    assert left[-1] == (pytest.approx(1.0), Importance.LIST)


async def test_a_poll_is_noted_once_it_is_admitted(shop: Shop, clock: FakeClock) -> None:
    """If it were noted before it waits, the note would end while the answer may still be on its way."""
    shop._wire.pace = Pace(1)
    left: list[float] = []

    async def look() -> None:
        (row,) = shop.rows("SELECT next_poll_utc FROM delivery_accounts")
        left.append((datetime.fromisoformat(row["next_poll_utc"]).replace(tzinfo=UTC) - clock.now()).total_seconds())

    shop.line.when_leaving("get_current", look)
    await shop.tick()
    assert clock.monotonic() >= 1.0, "the login has taken the first turn"
    assert left[0] >= TIMEOUT_S + COOLDOWN_S


async def polls(wire: Wire, count: int) -> list[float]:
    """When the polls left, if this number of them were due at the same time."""
    loop, left = asyncio.get_running_loop(), list[float]()
    began = loop.time()

    async def one() -> None:
        await wire.wait_for_poll()
        left.append(loop.time() - began)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(count):
            tasks.create_task(one())
    return left


async def test_polls_delayed_for_a_moment_leave_evenly() -> None:
    """At most this number leave in any second; those that wait leave one after another."""
    wire = a_wire()
    wire.set_poll_rate(100)
    left = await polls(wire, 80)
    assert sum(at == 0 for at in left) == 10
    assert max(left) == pytest.approx(70 / 91, abs=0.01)
    wire.set_poll_rate(200)
    await asyncio.sleep(1)
    assert max(await polls(wire, 80)) == pytest.approx(60 / 181, abs=0.01)
    wire.set_poll_rate(None)
    await asyncio.sleep(1)
    assert max(await polls(wire, 50)) == 0


async def test_polls_that_are_overdue_do_not_all_open_their_connections_at_once() -> None:
    """After a replica was replaced, thousands of polls are overdue."""
    wire = a_wire(2000)
    left = await polls(wire, 1000)
    assert max(sum(since <= one < since + 1 for one in left) for since in left) <= CATCH_UP_PER_S
    wire.set_poll_rate(800)
    await asyncio.sleep(1)
    left = await polls(wire, 2000)
    assert max(sum(since <= one < since + 1 for one in left) for since in left) <= 1000
    assert max(left) <= MAX_EVEN_S + 2000 / 900


async def test_at_a_stop_no_poll_waits_for_the_rate_limit() -> None:
    wire = a_wire(2000)
    waiting = asyncio.create_task(polls(wire, 5000))
    await asyncio.sleep(0.1)
    wire.prepare_stop()
    assert max(await waiting) == pytest.approx(0.1)
