"""A cooldown that several accounts share: polled in turn and reported once. See tests/rules/test_cooldown.py."""

import asyncio
from collections import defaultdict

import pytest
from structlog.testing import capture_logs
from tests.jobs.shop import COOLDOWN_S

NAMES = ("kadikoy", "besiktas", "chain")


@pytest.mark.parametrize("scope", ["application", "address"])
async def test_accounts_with_one_cooldown_are_polled_in_turn_and_the_log_names_the_key_once(open_shop, scope):
    shop = await open_shop(*NAMES)
    shop.world.set_options(cooldown_scope=scope)
    with capture_logs() as lines:
        while (due := min(shop._polls_at.values())) < 1800.0:
            await asyncio.sleep(max(due - shop.clock.monotonic(), 0.0))
            await shop.tick(min(shop._polls_at, key=shop._polls_at.__getitem__))
    oks: dict[str, list[float]] = defaultdict(list)
    for call in shop.calls("get_current"):
        if call.http_status == 200:
            oks[call.account].append((call.at - shop.world.calls()[0].at).total_seconds())
    assert set(oks) == set(NAMES)
    for times in oks.values():
        assert max(b - a for a, b in zip(times, [*times[1:], 1800.0], strict=True)) <= 3 * COOLDOWN_S * 1.1
    (alarm,) = [line for line in lines if line["event"] == "cooldown.shared"]
    assert (alarm["log_level"], set(alarm["in_turn"].split(", "))) == ("error", set(NAMES))
    assert "cooldown_scope" in alarm["remedy"]
    shown = shop.rows("SELECT state, polled_in_turn_with FROM delivery_accounts")
    assert {row["state"] for row in shown} == {"ok"}
    assert {frozenset(row["polled_in_turn_with"].split(", ")) for row in shown} == {frozenset(NAMES)}
