"""One account with the sandbox: one login for many calls, growing waits after a refusal, a stored token."""

import asyncio
import itertools
from datetime import timedelta

import pytest
from structlog.testing import capture_logs
from tests.jobs.shop import Shop
from tests.wording import forget_secrets

from orderbridge.hiding import without_secrets
from orderbridge_sandbox import Fault
from orderbridge_sandbox.scenery import APP_SECRET

pytestmark = pytest.mark.plays_daemon


def kept_token(shop: Shop) -> str:
    token = shop.account.session.current
    assert token is not None
    return token.access_token


async def test_a_login_whose_token_never_works_is_reported_and_each_login_is_followed_by_a_poll(shop: Shop):
    shop.world.faults.add(Fault.unauthorized("get_current", times=None))
    with capture_logs() as lines:
        for _ in range(14):
            await shop.poll()
    assert [line["log_level"] for line in lines if line["event"] == "login.refused"].count("error") == 1
    assert shop.one("SELECT state FROM delivery_accounts")["state"] == "login_refused"
    polls = [call.at for call in shop.calls("get_current")]
    assert max(after - before for before, after in itertools.pairwise(polls)) < timedelta(seconds=32)
    shop.world.faults.clear()
    assert (await shop.poll()).ok


async def test_credentials_that_work_again_end_the_refusal(shop: Shop):
    known = dict(shop.world.accounts)
    shop.world.refuse_account("kadikoy")
    await shop.poll()
    await shop.poll()
    shop.world.accounts = known
    order = shop.place()
    with capture_logs() as lines:
        assert (await shop.poll()).acknowledged == 1
    assert "poll.recovered" in [line["event"] for line in lines]
    assert shop.order(order)["revision"] == 1 and shop.account.paused() <= 0
    shop.world.refuse_account("kadikoy")
    await shop.poll()
    await shop.poll()
    assert shop.account.paused() == pytest.approx(60)  # the waits start again from the first


def gaps_of_logins(shop: Shop) -> list[float]:
    times = [call.at for call in shop.calls("login")]
    return [(later - earlier).total_seconds() for earlier, later in itertools.pairwise(times)]


async def test_a_login_answered_5xx_is_tried_again_soon_and_after_three_times_within_minutes(shop: Shop):
    shop.world.faults.add(Fault(operation="login", status=503, times=8))
    while not (await shop.poll()).ok:
        pass
    usual = [1, 2, 4, 60, 120, 300, 300, 300]
    gaps = gaps_of_logins(shop)
    assert [least <= gap <= least * 1.25 + 0.1 for least, gap in zip(usual, gaps, strict=True)] == [True] * 8
    shop.account.session.forget()
    shop.world.faults.add(Fault(operation="login", status=503, times=1))
    while not (await shop.poll()).ok:
        pass
    assert gaps_of_logins(shop)[-1] < 2, "the waits begin anew"


async def test_a_login_answered_429_waits_for_the_cooldown(shop: Shop):
    shop.world.faults.add(Fault.too_many("login", times=3))
    while not (await shop.poll()).ok:
        assert not shop.account.session.is_refused()
    assert [round(gap) for gap in gaps_of_logins(shop)] == [30, 30, 30]


async def test_a_renewal_answered_5xx_keeps_nothing_of_the_account_waiting(shop: Shop):
    await shop.poll()
    shop.world.faults.add(Fault(operation="login", status=503, times=None))
    with capture_logs() as lines:
        for _ in range(10):
            await shop.account.renew()
            assert shop.account.paused() <= 0
            await asyncio.sleep(30)
    assert (await shop.poll()).ok
    assert len(shop.calls("login")) < 8
    assert [line["log_level"] for line in lines if line["event"] == "login.renewal_failed"].count("warning") == 1


async def test_its_secrets_and_tokens_are_hidden_also_after_a_restart(shop: Shop, open_shop):
    """In every text that is logged or stored (hiding); an answer may quote them."""
    await shop.poll()
    first = kept_token(shop)
    await shop.account.renew()
    texts = [APP_SECRET, "sandbox-kadikoy-secret", first, kept_token(shop)]
    assert [without_secrets(text) for text in texts] == ["***"] * 4
    forget_secrets()
    await shop.crash()
    await open_shop()
    assert [without_secrets(text) for text in texts] == ["***", "***", first, "***"]


@pytest.mark.interface("Authentication 2")
@pytest.mark.parametrize("is_restarted", [True, False])
async def test_a_token_that_has_expired_is_not_used(shop: Shop, open_shop, is_restarted: bool):
    await shop.poll()
    if is_restarted:
        await shop.crash()
    await asyncio.sleep(24 * 3600 + 1)
    if is_restarted:
        shop = await open_shop()
    assert (await shop.poll()).ok
    assert shop.operations("login", "get_current") == ["login", "get_current", "login", "get_current"]


async def test_a_failed_connection_is_retried_with_growing_waits_and_its_recovery_is_logged(shop: Shop):
    await shop.poll()
    shop.line.cut = {"*"}
    await asyncio.sleep(60)
    waits = [(await shop.poll()).again_in for _ in range(6)]
    assert [least <= wait <= least * 1.25 for least, wait in zip([1, 2, 4, 4, 4, 4], waits, strict=True)] == [True] * 6
    shop.line.cut = set()
    with capture_logs() as lines:
        assert (await shop.poll()).ok
    assert [line["event"] for line in lines].count("account.line_recovered") == 1
