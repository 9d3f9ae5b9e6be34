"""One token for all, one login however many ask, and nobody's giving up is anybody else's."""

import asyncio
import contextlib
import gc
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import pytest
from tests.marketplace.sessions import MINUTES, a_session

from orderbridge.errors import LoginRefused, MarketplaceError, NotSent, ServiceFailed, Unauthorized
from orderbridge.marketplace import session as module
from orderbridge.marketplace.session import Session
from orderbridge.model import Token

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def token(name: str) -> Token:
    return Token(name, NOW, NOW)


async def unasked(_: Token) -> bool | None:
    raise AssertionError("a probe")


class Login:
    """A login that waits until it is told how to end."""

    def __init__(self) -> None:
        self.calls = 0
        self.running = 0
        self.go_on = asyncio.Event()
        self.begun = asyncio.Event()
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
        if self.error is not None:
            raise self.error
        return token(f"t{self.calls}")


@pytest.fixture
async def login() -> Login:
    return Login()


async def test_there_is_none_until_somebody_asks(login: Login) -> None:
    session = a_session(login)
    assert session.current is None
    assert login.calls == 0


async def test_the_token_is_obtained_once_and_kept(login: Login) -> None:
    login.go_on.set()
    session = a_session(login)
    assert [await session.token() for _ in range(3)] == [token("t1")] * 3
    assert session.current == token("t1")
    assert login.calls == 1


async def test_a_token_from_before_needs_no_login(login: Login) -> None:
    assert await a_session(login, token=token("old")).token() == token("old")
    assert login.calls == 0


ASK: dict[str, Callable[[Session], Awaitable[Token]]] = {
    "token": lambda session: session.token(),
    "replace": lambda session: session.replace(token("old"), "call", unasked),
    "renew": lambda session: session.renew(),
}


async def test_ten_at_once_are_one_login(login: Login) -> None:
    session = a_session(login)
    tasks = [asyncio.ensure_future(ask(session)) for ask in ASK.values() for _ in range(4)]
    await login.begun.wait()
    login.go_on.set()
    assert await asyncio.gather(*tasks) == [token("t1")] * 12
    assert login.calls == 1


async def test_ten_refused_with_the_same_token_are_one_login(login: Login) -> None:
    session = a_session(login, token=token("old"))
    login.go_on.set()
    assert (
        await asyncio.gather(*[session.replace(token("old"), "call", unasked) for _ in range(10)]) == [token("t1")] * 10
    )
    assert await session.replace(token("old"), "call", unasked) == token("t1")  # one who comes late
    assert login.calls == 1


@pytest.mark.parametrize(
    "works, has_worked, error, code, current",
    [
        pytest.param(True, False, Unauthorized, "not_permitted", "t1", id="it works: the call is refused"),
        pytest.param(False, False, LoginRefused, "login_refused", None, id="it never worked: the account is refused"),
        pytest.param(False, True, None, None, "t2", id="it has worked: it is over"),
        pytest.param(None, False, Unauthorized, "unauthorized_again", None, id="nobody knows"),
    ],
)
async def test_a_token_in_place_of_a_refused_one_that_is_refused_itself_is_probed_once(
    login: Login, works: bool | None, has_worked: bool, error: type[Exception] | None, code: str, current: str | None
) -> None:
    login.go_on.set()
    session = a_session(login, token=token("old"), waits=MINUTES)
    first = await session.replace(token("old"), "call", unasked)
    if has_worked:
        session.record_outcome(None, first, "another call")
    asked: list[Token] = []

    async def probe(token: Token) -> bool | None:
        asked.append(token)
        await asyncio.sleep(0)
        return works

    calls = [session.replace(first, f"call {number}", probe) for number in range(5)]
    ends = await asyncio.gather(*calls, return_exceptions=True)
    assert asked == ([] if has_worked else [first]), "once for all that ask at the same moment"
    if error is None:
        assert ends == [token("t2")] * 5
    else:
        first_end = ends[0]
        assert isinstance(first_end, error)
        assert isinstance(first_end, MarketplaceError)
        assert first_end.code == code
    if works is not None:
        assert session.current == (None if current is None else token(current))


@pytest.mark.parametrize("works", [True, False, None], ids=["good", "refused", "nobody knows"])
async def test_who_asks_for_a_token_while_a_doubted_one_is_probed_gets_what_the_probe_leaves(
    login: Login, works: bool | None
) -> None:
    login.go_on.set()
    session = a_session(login, token=token("old"), waits=MINUTES)
    first = await session.replace(token("old"), "call", unasked)
    probing, answered = asyncio.Event(), asyncio.Event()

    async def probe(_: Token) -> bool | None:
        probing.set()
        await answered.wait()
        return works

    refused = asyncio.create_task(session.replace(first, "call", probe))
    await probing.wait()
    poll = asyncio.create_task(session.token())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not poll.done(), "it would leave with a token that may be refused"
    answered.set()
    ends = await asyncio.gather(refused, poll, return_exceptions=True)
    assert isinstance(ends[0], Unauthorized if works is not False else LoginRefused)
    if works is False:
        assert isinstance(ends[1], LoginRefused)
    else:
        assert ends[1] == (first if works else token("t2"))


async def test_a_token_that_nobody_has_tried_is_not_thrown_away_for_what_the_one_before_it_met(login: Login) -> None:
    login.go_on.set()
    session = a_session(login, token=token("old"))
    first = await session.replace(token("old"), "poll", unasked)
    assert await session.replace(token("old"), "late call", unasked) == first == session.current
    assert session.paused() <= 0


async def test_a_call_that_was_refused_alone_is_probed_before_a_good_token_is_thrown_away(login: Login) -> None:
    login.go_on.set()
    session = a_session(login, token=token("old"))
    first = await session.replace(token("old"), "call", unasked)

    async def good(_: Token) -> bool | None:
        return True

    for _ in range(3):
        with pytest.raises(Unauthorized):
            await session.replace(first, "call", good)
    session.take_up(token("another"))
    with pytest.raises(Unauthorized):
        await session.replace(token("another"), "call", good)
    session.record_outcome(None, token("another"), "call")
    assert await session.replace(token("another"), "call", unasked) == token("t2")


async def test_a_probe_that_nobody_waited_for_is_not_believed_later(login: Login) -> None:
    login.go_on.set()
    session = a_session(login, token=token("old"))
    first = await session.replace(token("old"), "call", unasked)
    answered, probed = asyncio.Event(), list[Token]()

    async def good_after_a_while(_: Token) -> bool | None:
        return await answered.wait()

    async def bad(probed_token: Token) -> bool | None:
        probed.append(probed_token)
        return False

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await session.replace(first, "call", good_after_a_while)
    answered.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    with contextlib.suppress(MarketplaceError):
        await session.replace(first, "call", bad)
    assert probed == [first]


@pytest.mark.parametrize(
    "works, error, current",
    [
        pytest.param([False, True], None, "t2", id="the new one works: somebody has ended the other"),
        pytest.param([False, False], LoginRefused, None, id="the new one does not: the account is refused"),
        pytest.param([False, None], None, "t2", id="nobody knows: the next call tells"),
        pytest.param([True], None, "t1", id="it was good all the time"),
        pytest.param([None], None, "t1", id="nobody knows of the first"),
    ],
)
async def test_a_doubted_token_that_has_waited_for_its_slot_is_probed_before(
    login: Login,
    works: list[bool | None],
    error: type[Exception] | None,
    current: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "JUST_S", -1.0)
    login.go_on.set()
    session = a_session(login, token=token("old"), waits=MINUTES)
    await session.replace(token("old"), "poll", unasked)
    ends, asked = iter(works), []

    async def probe(token: Token) -> bool | None:
        asked.append(token)
        return next(ends)

    if error is None:
        assert await session.tried(probe) == token(current)
    else:
        with pytest.raises(error):
            await session.tried(probe)
    assert asked == [token("t1"), token("t2")][: len(works)]
    assert session.current == (None if current is None else token(current))


@pytest.mark.parametrize("doubted", [False, True], ids=["good", "just obtained"])
async def test_a_token_that_is_good_or_was_just_obtained_is_not_probed(login: Login, doubted: bool) -> None:
    login.go_on.set()
    session = a_session(login, token=token("old"), waits=MINUTES)
    if doubted:
        await session.replace(token("old"), "poll", unasked)
    assert await session.tried(unasked) == token("t1" if doubted else "old")


async def test_a_refused_token_is_given_to_nobody_else(login: Login) -> None:
    session = a_session(login, token=token("old"))
    login.error = NotSent("dns_failed")
    login.go_on.set()
    with pytest.raises(NotSent):
        await session.replace(token("old"), "call", unasked)
    assert session.current is None
    login.error = None
    assert await session.token() == token("t2")


async def test_while_it_is_renewed_the_old_one_stays_in_use(login: Login) -> None:
    session = a_session(login, token=token("old"))
    renewal = asyncio.create_task(session.renew())
    await login.begun.wait()
    assert await session.token() == token("old")
    login.go_on.set()
    assert await renewal == token("t1") == await session.token()


async def test_a_renewal_that_fails_leaves_the_old_one(login: Login) -> None:
    session = a_session(login, token=token("old"))
    login.error = ServiceFailed("service_error")
    login.go_on.set()
    with pytest.raises(ServiceFailed):
        await session.renew()
    assert await session.token() == token("old")


async def test_one_refused_during_a_renewal_joins_it(login: Login) -> None:
    session = a_session(login, token=token("old"))
    renewal = asyncio.create_task(session.renew())
    await login.begun.wait()
    replacement = asyncio.create_task(session.replace(token("old"), "call", unasked))
    login.go_on.set()
    assert await renewal == await replacement == token("t1")
    assert login.calls == 1


async def test_forgetting_means_a_login(login: Login) -> None:
    login.go_on.set()
    session = a_session(login, token=token("old"))
    session.forget()
    assert session.current is None
    assert await session.token() == token("t1")


@pytest.mark.parametrize(
    "error", [NotSent("dns_failed"), LoginRefused("x", until=NOW), ServiceFailed("x"), RuntimeError("x")], ids=repr
)
async def test_a_failure_goes_to_everybody_and_the_next_one_tries_again(error: Exception, login: Login) -> None:
    session = a_session(login)
    tasks = [asyncio.create_task(session.token()) for _ in range(3)]
    await login.begun.wait()
    login.error = error
    login.go_on.set()
    assert await asyncio.gather(*tasks, return_exceptions=True) == [error] * 3
    login.error = None
    assert await session.token() == token("t2")


async def test_one_who_gives_up_does_not_take_the_login_along(login: Login) -> None:
    session = a_session(login)
    first, second = (asyncio.create_task(session.token()) for _ in range(2))
    await login.begun.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    login.go_on.set()
    assert await second == token("t1")
    assert login.calls == 1


async def test_a_login_that_everybody_left_is_kept_all_the_same(login: Login) -> None:
    session = a_session(login)
    only = asyncio.create_task(session.token())
    await login.begun.wait()
    only.cancel()
    with pytest.raises(asyncio.CancelledError):
        await only
    login.go_on.set()
    assert await session.token() == token("t1")
    assert login.calls == 1


async def test_a_login_that_fails_with_nobody_left_is_no_news(login: Login, caplog: pytest.LogCaptureFixture) -> None:
    """Otherwise the event loop complains of an exception that was never retrieved."""
    session = a_session(login)
    only = asyncio.create_task(session.token())
    await login.begun.wait()
    only.cancel()
    login.error = NotSent("dns_failed")
    login.go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await only
    assert session._login is not None
    await asyncio.wait([session._login])
    gc.collect()
    assert caplog.records == []


async def test_closing_ends_the_login_and_tells_those_who_wait(login: Login) -> None:
    session = a_session(login)
    waiting = asyncio.create_task(session.token())
    await login.begun.wait()
    await session.close()
    with pytest.raises(NotSent) as caught:
        await waiting
    assert caught.value.code == "login_stopped"
    assert isinstance(caught.value, MarketplaceError)
    assert login.running == 0
    await session.close()


async def test_one_cancelled_together_with_the_login_is_cancelled(login: Login) -> None:
    session = a_session(login)
    waiting = asyncio.create_task(session.token())
    await login.begun.wait()
    assert session._login is not None
    session._login.cancel()  # first: it has ended when the other wakes up
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
