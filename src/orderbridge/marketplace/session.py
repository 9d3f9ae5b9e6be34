"""One account's way in, all of it: its token, what refuses it, when it is replaced, and how long nothing leaves.

Token. An account has one token at a time, shared by all its calls. It is obtained by the first call that needs one; who
comes meanwhile waits for the same login, which runs in a task of its own: a caller that gives up does not take the
others' login with it. Ahead of its end it is renewed, and the old one serves until the new one is there.

Refusal. A 401 may mean three things, and the service says the same words for all of them (docs/interface.md, Authentication 4).
- The token is over: somebody logged in elsewhere, or ended it. A login, and the call is made once more (the poll at its
  next slot).
- The account is refused: also the new token does not work. That counts as a refused login, as wrong credentials do.
- The call is refused: this restaurant, item or order is none of ours. The token works for everything else.
So a token that was obtained in place of a refused one is *doubted* until it has worked. When it is refused itself, or a
call is refused again, a call that needs nothing but a good token is made with it (`probe`), once for all that ask at that
moment. It goes well: the call is the one that is refused, and it alone waits; a login is no use to it. 401 as well: where
the token has never worked, the account is refused, if it was just obtained; else somebody may have ended this one, too,
and another one is obtained and probed at once. Where it has worked, it is over. No answer: nobody can say; the next call
logs in. A poll does not try a doubted token that has waited for its slot: it is probed before.
A token that nobody has tried is never thrown away for what another one met.

Backoff. Nothing of the account leaves
- while its line is down: a request that certainly never left makes all of them wait, 1 to 5 s, until one is answered;
- while it has no token and may not log in: after refused credentials minutes, growing; after a 429 one cooldown; after
  a 5xx 1, 2 and 4 s, then minutes. The waits themselves are decisions of rules.tokens, handed in as `Waits`.
Failures of the same moment are one failure. A refusal is forgotten when a call succeeds: a login alone does not show
that its token works.

The client reports here how each request of it ended (`record_outcome`); nobody else has to.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import structlog

from orderbridge.clock import Clock
from orderbridge.errors import KEPT_HERE, LoginRefused, MarketplaceError, NotSent, RateLimited, Refused, Unauthorized
from orderbridge.marketplace.backoff import Backoff, Waits
from orderbridge.model import Outcome, Token
from orderbridge.texts import say

MOST_REFUSED_CALLS = 1000  # that are remembered
MOST_DEATHS = 20  # that are remembered, of the last
DEATHS_S = 3600.0
YOUNG = timedelta(hours=1)  # before its end, or longer
JUST_S = 5.0  # a token that is refused so soon was never good

_log = structlog.get_logger(__name__)
_Result = TypeVar("_Result")
Probe = Callable[[Token], Awaitable[bool | None]]  # does this token work? None: that cannot be said now


@dataclass(slots=True)
class _Held:
    """The current token, and what is known of it. `since`: when we got it, by the monotonic clock."""

    token: Token
    since: float
    doubted: bool = False  # obtained in place of one that was refused
    worked: int = 0  # calls that it served
    probing: asyncio.Task[bool | None] | None = None

    @property
    def is_doubted(self) -> bool:
        """Obtained in place of a refused one, and nothing has shown that it is any better."""
        return self.doubted and not self.worked


class Session:
    """Holds the current token and decides whether a request, or a login, may leave. `obtain` logs in."""

    def __init__(
        self,
        obtain: Callable[[], Awaitable[Token]],
        *,
        clock: Clock,
        waits: Waits,
        name: str = "",
        token: Token | None = None,
        on_outcome: Callable[[Outcome], None] = lambda _: None,
    ) -> None:
        """`on_outcome`: told how each request of this account ended."""
        self._on_outcome = on_outcome
        self._obtain = obtain
        self._clock = clock
        self._waits = waits
        self._log = _log.bind(account=name)
        self._held = None if token is None else _Held(token, clock.monotonic())
        self._login: asyncio.Task[Token] | None = None
        self._in_place = False  # the next token comes in place of a refused one
        # The last answer to them was 401; with which token, if it had worked and was far from its end.
        self._refused_calls: OrderedDict[str, Token | None] = OrderedDict()
        self._deaths: deque[tuple[float, Token]] = deque(maxlen=MOST_DEATHS)  # of tokens that died young, and when
        self._line = Backoff(clock, waits.unsent)
        self._refusals = 0
        self._failures = 0
        self._login_at = 0.0  # not before then, by the monotonic clock
        self._credentials_refused = False  # that is why

    # ---- the token ---------------------------------------------------------------------------------------------------

    @property
    def current(self) -> Token | None:
        return None if self._held is None else self._held.token

    def take_up(self, token: Token) -> None:
        """A token from before."""
        self._held = _Held(token, self._clock.monotonic())

    def forget(self) -> None:
        """Drops the current token; the next call logs in."""
        self._held = None

    async def token(self) -> Token:
        """The current token; a login when there is none. Whatever that raises goes to everybody who waits for it.

        A doubted one that is just being probed is waited for: refused, it would cost a poll its slot.
        """
        if (held := self._held) is not None and held.is_doubted and held.probing is not None:
            await _joined(held.probing)
        return self.current or await self._joined_login()

    async def renew(self) -> Token:
        """A fresh token by a login now; the old one stays in use until then."""
        return await self._joined_login()

    async def replace(self, refused: Token, call: str, probe: Probe) -> Token:
        """A call was answered 401 with this token. Returns one to make it again with.

        Raises Unauthorized when there is no use in that for this call, LoginRefused when the account is refused, and
        whatever else a login may end in. `call`: what was called, in any words that stay the same.
        """
        held = self._held
        if held is None or held.token.access_token != refused.access_token:
            return await self.token()
        again = call in self._refused_calls
        self._remember(call, held)
        if again or held.is_doubted:
            works = await self._probed(held, probe)
            if self._held is not held:  # another one was quicker
                return await self.token()
            if works:
                raise Unauthorized("not_permitted")
            if works is not None and held.is_doubted:
                return await self._one_that_works(held, probe)
            if works is None:
                self._drop_refused()
                raise Unauthorized("unauthorized_again")
        self._drop_refused()
        return await self._joined_login()

    async def tried(self, probe: Probe) -> Token:
        """The current token, for a call that has one slot: a doubted one that has waited for it is probed before.

        Who ended the token before it may have ended this one, too.
        """
        token, held = await self.token(), self._held
        if held is None or not held.is_doubted or not self._has_waited(held):
            return token
        works = await self._probed(held, probe)
        if self._held is not held:
            return await self.token()
        return token if works is not False else await self._one_that_works(held, probe)

    def _has_waited(self, held: _Held) -> bool:
        return self._clock.monotonic() - held.since > JUST_S

    async def _one_that_works(self, refused: _Held, probe: Probe) -> Token:
        """In place of a doubted token that was refused. Raises LoginRefused when the account is.

        Only a token that was just obtained shows that: another one may have been ended by somebody else's login.
        """
        if self._has_waited(refused):
            self._drop_refused()
            token, held = await self._joined_login(), self._held
            if held is None or held.token != token:
                return await self.token()
            works = await self._probed(held, probe)
            if self._held is not held:
                return await self.token()
            if works is not False or not held.is_doubted:
                return token
        self._held = None
        raise self._refuse("unauthorized_again")

    def _drop_refused(self) -> None:
        """It is known to be bad: nobody else shall be refused with it."""
        self._held, self._in_place = None, True

    def _remember(self, call: str, held: _Held) -> None:
        is_young = held.worked > 0 and held.token.expires_utc - self._clock.now() > YOUNG
        self._refused_calls[call] = held.token if is_young else None
        if len(self._refused_calls) > MOST_REFUSED_CALLS:
            self._refused_calls.popitem(last=False)

    async def _probed(self, held: _Held, probe: Probe) -> bool | None:
        if held.probing is None or held.probing.done():  # nobody waited for that one: its word is of its own time
            held.probing = asyncio.ensure_future(probe(held.token))
        task = held.probing
        try:
            return await _joined(task)
        finally:
            if task.done():
                held.probing = None

    async def close(self) -> None:
        """Ends a login or a probe that is still under way."""
        probing = None if self._held is None else self._held.probing
        under_way = [task for task in (self._login, probing) if task is not None]
        for task in under_way:
            task.cancel()
        if under_way:
            await asyncio.wait(under_way)

    # ---- the login ---------------------------------------------------------------------------------------------------

    async def _joined_login(self) -> Token:
        if self._login is None:
            self._login = asyncio.create_task(self._log_in())
            self._login.add_done_callback(self._ended)
        return await _joined(self._login)

    async def _log_in(self) -> Token:
        wait = self._login_at - self._clock.monotonic()
        if wait > 0:
            raise (
                self._refused_until_then()
                if self._credentials_refused
                else NotSent("login_failed", say("net.login_waits"))
            )
        try:
            token = await self._obtain()
        except MarketplaceError as error:
            self.record_outcome(error)
            if isinstance(error, Unauthorized | Refused):
                refusal = self._refuse(error.code)
                raise LoginRefused(
                    refusal.code, error.code, until=refusal.until, http_status=error.http_status
                ) from error
            self._put_off(error)
            raise
        self.record_outcome(None)
        self._failures, self._login_at = 0, 0.0
        self._held = _Held(token, self._clock.monotonic(), doubted=self._in_place)
        self._in_place = False
        return token

    def _ended(self, task: asyncio.Task[Token]) -> None:
        self._login = None
        if not task.cancelled():
            task.exception()  # looked at: it is no news when all who asked have gone

    def _put_off(self, error: MarketplaceError) -> None:
        """A login failed, and its credentials are not the reason."""
        if isinstance(error, NotSent):
            return  # the line's own backoff
        if isinstance(error, RateLimited):
            wait = self._waits.limited_s
        else:
            self._failures += 1
            wait = self._waits.failed(self._failures, error.http_status is not None)
        self._login_at = self._clock.monotonic() + wait
        self._credentials_refused = False

    def _refuse(self, code: str) -> LoginRefused:
        """The credentials are refused, or the token of a fresh login."""
        now = self._clock.monotonic()
        if not (self._credentials_refused and self._login_at > now):  # else one more of the same moment
            self._refusals += 1
            wait = self._waits.refused(self._refusals)
            self._login_at, self._credentials_refused, self._in_place = now + wait, True, False
            said = LoginRefused("login_refused", until=self._clock.now()).remedy
            self._log.error("login.refused", code=code, refusals=self._refusals, wait_s=wait, remedy=said)
        return self._refused_until_then()

    def _refused_until_then(self) -> LoginRefused:
        wait = self._login_at - self._clock.monotonic()
        return LoginRefused("login_refused", until=self._clock.now() + timedelta(seconds=wait))

    # ---- how requests end, and whether they leave --------------------------------------------------------------------

    def record_outcome(self, error: MarketplaceError | None, token: Token | None = None, call: str = "") -> None:
        """How a request of this account ended. `token`: with which it was made, `call` as for `replace`."""
        if error is not None and error.reason in KEPT_HERE:
            self._line.held_back()
            return
        self._on_outcome(Outcome.OK if error is None else error.outcome)
        if isinstance(error, NotSent):
            self._line.failed()
            return
        if self._line.worked():
            self._log.info("account.line_recovered")
        if token is None or not (error is None or isinstance(error, Refused | RateLimited)):
            return
        self._refusals = 0
        if (dead := self._refused_calls.pop(call, None)) is not None and dead != token:
            self._note_death(dead)
        if self._held is not None and self._held.token.access_token == token.access_token:
            self._held.worked += 1

    def _note_death(self, dead: Token) -> None:
        """What was refused goes well with another token: so it was the token, and somebody else has ended it."""
        if not any(known == dead for _, known in self._deaths):
            self._deaths.append((self._clock.monotonic(), dead))

    def died_young(self) -> int:
        """How many tokens of the last hour worked, and were refused long before their end."""
        if not self._deaths:
            return 0
        since = self._clock.monotonic() - DEATHS_S
        return sum(at >= since for at, _ in self._deaths)

    def paused(self) -> float:
        """Seconds for which nothing of this account can leave; 0 or less: it can."""
        login = self._login_at - self._clock.monotonic() if self._held is None else 0.0
        return max(self._line.wait(), login)

    def is_held_back(self) -> bool:
        """Whether it is we who let nothing leave."""
        return self._line.is_ours and self._line.wait() > 0

    def is_refused(self) -> bool:
        """Whether the service refuses us: there is no token, and none can be had yet."""
        return self._held is None and self._credentials_refused and self._login_at > self._clock.monotonic()


async def _joined(task: asyncio.Task[_Result]) -> _Result:
    """What a task ends in that others wait for, too."""
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if task.cancelled() and not _cancelling():
            raise NotSent("login_stopped") from None  # the login was ended, not this caller
        raise


def _cancelling() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
