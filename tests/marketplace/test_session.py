"""One token for all and one login for concurrent callers; a caller that gives up does not affect the others."""

import asyncio
import contextlib
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from tests.marketplace.sessions import AT_ONCE, MINUTES, a_session

from orderbridge.errors import (  # isort: skip
    LoginRefused, MarketplaceError, NotSent, RateLimited, ServiceFailed, Unauthorized, UnknownOutcome,
)  # fmt: skip
from orderbridge.marketplace import session as module
from orderbridge.marketplace.session import Session
from orderbridge.model import Token

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def token(name: str) -> Token:
    return Token(name, NOW, NOW)


class Login:
    """A login that waits until the test sets its result."""

    def __init__(self) -> None:
        self.calls = 0
        self.running = 0
        self.go_on = asyncio.Event()
        self.begun, self.over = asyncio.Event(), asyncio.Event()
        self.error: Exception | None = None

    async def __call__(self) -> Token:
        self.calls += 1
        self.running += 1
        assert self.running == 1, "one login at a time"
        self.begun.set()
        try:
            await self.go_on.wait()
        finally:
            self.running -= 1
            self.over.set()
        if self.error is not None:
            raise self.error
        return token(f"t{self.calls}")


@pytest.fixture
async def login() -> Login:
    return Login()


async def test_the_token_is_obtained_once_and_kept(login: Login) -> None:
    login.go_on.set()
    session = a_session(login)
    assert (session.current, login.calls) == (None, 0), "no caller asked for a token"
    assert ([await session.token() for _ in range(3)], session.current) == ([token("t1")] * 3, token("t1"))
    assert await a_session(login, token=token("old")).token() == token("old"), "a stored token needs no login"
    assert login.calls == 1


ASK = (Session.token, Session.renew, lambda session: session.replace(token("old"), "call"))


async def test_ten_concurrent_calls_make_one_login(login: Login) -> None:
    session = a_session(login)
    tasks = [asyncio.ensure_future(ask(session)) for ask in ASK for _ in range(4)]
    await login.begun.wait()
    login.go_on.set()
    assert (await asyncio.gather(*tasks), login.calls) == ([token("t1")] * 12, 1)


async def test_ten_401s_with_the_same_token_make_one_login(login: Login) -> None:
    session = a_session(login, token=token("old"))
    login.go_on.set()
    assert await asyncio.gather(*[session.replace(token("old"), "call") for _ in range(10)]) == [token("t1")] * 10
    assert await session.replace(token("old"), "late call") == token("t1") == session.current
    assert login.calls == 1 and session.paused() <= 0


async def test_a_401_with_a_new_token_makes_no_other_login(login: Login) -> None:
    login.go_on.set()
    session = a_session(login, token=token("old"), waits=MINUTES)
    first = await session.replace(token("old"), "call")
    for name in ("call", "another"):
        with pytest.raises(Unauthorized) as caught:
            await session.replace(first, name)
        assert caught.value.code == "not_permitted"
    assert login.calls == 1 and session.current == first and session.paused() <= 0


async def test_a_401_of_one_call_makes_no_login_if_the_token_has_served_another(login: Login) -> None:
    login.go_on.set()
    session = a_session(login, token=token("old"))
    first = await session.replace(token("old"), "call")
    session.record_outcome(None, first, "another")
    with pytest.raises(Unauthorized):
        await session.replace(first, "call")
    assert await session.replace(first, "another") == token("t2"), "this call succeeded before, so the token has ended"
    session.record_outcome(None, token("t2"), "call")
    assert await session.replace(token("t2"), "call") == token("t3")


async def test_a_401_of_another_call_does_not_discard_the_polls_token(login: Login) -> None:
    session = a_session(login, token=token("old"), waits=MINUTES)
    login.error = LoginRefused("x")
    login.go_on.set()
    with pytest.raises(LoginRefused):
        await session.replace(token("old"), "call")
    assert session.current == token("old") == await session.token_for_poll()
    login.error = ServiceFailed("x")
    session.record_outcome(RateLimited("x"), token("old"), "poll")  # proves nothing about the token
    with pytest.raises(MarketplaceError):
        await session.token()
    session.record_outcome(None, token("old"), "poll")
    assert await session.token() == token("old"), "the token works"


@pytest.mark.parametrize("served, young, refused", [
    (False, True, True), (True, True, False), (False, False, False),
], ids=["it served nothing", "it has served another call", "somebody else may have ended it"])  # fmt: skip
async def test_a_poll_refused_with_a_new_token_refuses_the_account_for_a_cooldown(
    login, served, young, refused, monkeypatch
):
    if not young:
        monkeypatch.setattr(module, "JUST_S", -1.0)
    login.go_on.set()
    session = a_session(login, token=token("old"), waits=replace(MINUTES, limited_s=30.0))
    session.drop(token("old"), "poll")
    first = await session.token_for_poll()
    if served:
        session.record_outcome(None, first, "another")
    with pytest.raises(LoginRefused) if refused else contextlib.nullcontext():
        session.drop(first, "poll")
    assert session.current is None
    assert session.is_refused(polls=True) is refused
    assert round(max(session.paused(polls=True), 0.0)) == (30 if refused else 0)


async def test_the_old_token_stays_in_use_during_its_renewal(login: Login) -> None:
    session = a_session(login, token=token("old"))
    renewal = asyncio.create_task(session.renew())
    await login.begun.wait()
    assert await session.token() == token("old")
    login.go_on.set()
    assert await renewal == token("t1") == await session.token()


@pytest.mark.parametrize("error", [NotSent("x"), LoginRefused("x"), ServiceFailed("x"), RuntimeError("x")])
async def test_a_failed_login_fails_all_waiting_calls_and_the_next_call_retries(error: Exception, login: Login) -> None:
    session = a_session(login)
    tasks = [asyncio.create_task(session.token()) for _ in range(3)]
    await login.begun.wait()
    login.error = error
    login.go_on.set()
    assert await asyncio.gather(*tasks, return_exceptions=True) == [error] * 3
    login.error = None
    assert await session.token() == token("t2")
    login.error = error
    assert await asyncio.gather(session.replace(token("t2"), "call"), return_exceptions=True) == [error]
    login.error = None
    assert await session.token() == token("t4"), "a refused token is not used again"


async def test_no_login_is_tried_during_the_backoff(login: Login) -> None:
    session = a_session(login, waits=replace(AT_ONCE, unsent=lambda times: 60.0))
    login.error = NotSent("dns_failed")
    login.go_on.set()
    for code in ("dns_failed", "login_failed"):  # the second: an action that was claimed before the poll failed
        with pytest.raises(NotSent) as caught:
            await session.token()
        assert (caught.value.code, login.calls) == (code, 1)


async def test_a_cancelled_caller_does_not_cancel_the_login(login: Login) -> None:
    session = a_session(login)
    first, second = (asyncio.create_task(session.token()) for _ in range(2))
    await login.begun.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    login.go_on.set()
    assert (await second, login.calls) == (token("t1"), 1)


async def test_closing_ends_the_login_and_fails_its_callers(login: Login) -> None:
    session = a_session(login)
    waiting = asyncio.create_task(session.token())
    await login.begun.wait()
    await session.close()
    with pytest.raises(NotSent) as caught:
        await waiting
    assert (caught.value.code, login.running) == ("login_stopped", 0)
    await session.close()


async def test_a_caller_cancelled_together_with_the_login_is_cancelled(login: Login) -> None:
    session = a_session(login)
    waiting = asyncio.create_task(session.token())
    await login.begun.wait()
    closing = asyncio.create_task(session.close())
    await asyncio.sleep(0)  # the login is cancelled first: it has ended when the caller wakes up
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await closing


async def test_the_remedy_for_a_foreign_answer_depends_on_earlier_success() -> None:
    session = a_session(Login())
    errors = [UnknownOutcome("no_envelope", reason="front_or_path") for _ in range(2)]
    for outcome in (errors[0], None, errors[1]):
        session.record_outcome(outcome)
    assert [error.reason for error in errors] == ["front_or_path", "front_refuses"]
