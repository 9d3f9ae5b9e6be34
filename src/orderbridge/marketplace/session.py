"""The token of one account: when it is obtained, renewed and replaced, and how long no request may leave.

Token. All calls of an account share one token. The first call that needs one starts a login, in a task of its own;
calls that come meanwhile wait for the same login, and it goes on when one of them is cancelled. The token is renewed
before it expires; the old one is used until the new one is there.

Refusal. A 401 has three causes, and the same words for all of them (docs/interface.md, Authentication 4):
- The token has ended: another program logged in, or ended it. Log in, and repeat the call (the poll at its next slot).
- The call is refused: this restaurant, item or order is not ours. It was refused with the previous token, too, and the
  current one has served other calls or was obtained just now. Only this call waits; a login does not help.
- The account is refused: the login succeeds, but its token works for nothing. Only a poll shows that, with a token that
  was obtained in place of a refused one, has served no call, and is so young that no other login can have ended it. The
  account waits for one cooldown and logs in again.
The 401 of another call does not stop the polls: they use the token until there is another one, or until a poll itself
is answered 401. Then the next call logs in. The poll does so at its slot, so that no other login comes between the two.

Backoff. No request of the account leaves
- after a request that certainly never left: all wait 1 to 5 s, until one is answered;
- without a token, while the account may not log in: minutes, growing, after refused credentials; one cooldown after a
  refused token or a 429; 1, 2 and 4 s, then minutes, after a 5xx. The waits are decisions of rules.tokens (`Waits`).
Failures of the same moment count as one. A refusal ends when a call succeeds: a login alone does not show that its
token works.
"""

import asyncio
import contextlib
import math
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta

import structlog

from orderbridge.clock import Clock
from orderbridge.errors import (
    HELD_BACK,
    KEPT_HERE,
    LoginRefused,
    MarketplaceError,
    Message,
    NotSent,
    RateLimited,
    Refused,
    Unauthorized,
)
from orderbridge.model import Outcome, Token

HELD_BACK_S = 2.0
MOST_REFUSED_CALLS = 1000  # that are remembered
MOST_DEATHS = 20  # that are remembered, of the last
DEATHS_S = 3600.0
YOUNG = timedelta(hours=1)  # before its end, or longer
JUST_S = 5.0  # a token that is refused so soon after its login was not ended by another login

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Waits:
    """Seconds to wait; each but the last from the number of failures in a row, from 1 on."""

    refused: Callable[[int], float]  # a login with these credentials
    failed: Callable[[int, bool], float]  # a login otherwise; True: the service answered
    unsent: Callable[[int], float]  # a request that never left
    limited_s: float  # a login was answered 429


@dataclass(slots=True)
class Backoff:
    """How long requests of an account wait after one that never left. The wait grows; the first answer ends it."""

    clock: Clock
    wait_s: Callable[[int], float]
    is_ours: bool = False  # we held the request back ourselves
    _failures: int = 0
    _until: float = 0.0

    def failed(self) -> None:
        """A request never left."""
        if self.wait() <= 0:  # the others of the same moment are no further failures
            self._failures += 1
            self.is_ours = False
            self._until = self.clock.monotonic() + self.wait_s(self._failures)

    def held_back(self) -> None:
        """We held a request back. That is no failure, but the next one waits, too."""
        self.is_ours = self.is_ours or self.wait() <= 0
        self._until = max(self._until, self.clock.monotonic() + HELD_BACK_S)

    def worked(self) -> bool:
        """A request left. True when that ends a failure."""
        recovered, self._failures, self._until, self.is_ours = self._failures > 0, 0, 0.0, False
        return recovered

    def wait(self) -> float:
        """Seconds until the next try; 0 or less: now."""
        return self._until - self.clock.monotonic()


@dataclass(slots=True)
class _Held:
    """The current token, and what is known of it. `since`: when we got it, by the monotonic clock."""

    token: Token
    since: float
    doubted: bool = False  # obtained in place of one that was refused
    worked: int = 0  # calls that it served
    refused: bool = False  # to another call than a poll: the others log in first, polls go on with it

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
        on_outcome: Callable[[Outcome], None] = lambda _: None,
    ) -> None:
        """`on_outcome` is called with the end of each request."""
        self._on_outcome = on_outcome
        self._obtain = obtain
        self._clock = clock
        self._waits = waits
        self._log = _log.bind(account=name)
        self._held: _Held | None = None
        self._has_worked = False  # the service has answered at this address
        self._login: asyncio.Task[Token] | None = None
        self._in_place = False  # the next token comes in place of a refused one
        # The last answer to them was 401; with which token, if it had worked and was far from its end.
        self._refused_calls: OrderedDict[str, Token | None] = OrderedDict()
        self._deaths: deque[tuple[float, Token]] = deque(maxlen=MOST_DEATHS)  # of tokens that died young, and when
        self._line = Backoff(clock, waits.unsent)
        self._refusals = 0
        self._failures = 0
        self._login_at = 0.0  # not before then, by the monotonic clock
        self._login_answered = False  # with an error of the service's: that is why
        self._credentials_refused = False  # that is why

    # ---- the token ---------------------------------------------------------------------------------------------------

    @property
    def current(self) -> Token | None:
        return None if self._held is None else self._held.token

    def take_up(self, token: Token) -> None:
        """Use a token that was kept."""
        self._held, self._has_worked = _Held(token, self._clock.monotonic()), True

    def forget(self) -> None:
        """Drop the current token; the next call logs in."""
        self._held = None

    async def token(self) -> Token:
        """A token that was not refused, by a login when there is none. All callers get what the login raises."""
        held = self._held
        return await self.renew() if held is None or held.refused else held.token

    async def token_for_poll(self) -> Token:
        """The current token. One that was refused to another call is used only when a login fails."""
        if self._held is not None and self._held.refused:
            with contextlib.suppress(MarketplaceError):
                await self.renew()
        return self.current or await self.renew()

    async def replace(self, refused: Token, call: str) -> Token:
        """A call other than the poll was answered 401 with this token. Returns the token to repeat it with.

        Raises Unauthorized when a repeat is of no use, and what a login may raise. `call` names what was called.
        """
        held = self._held
        if held is None or held.token.access_token != refused.access_token:
            return await self.token()
        if (held.worked and call in self._refused_calls) or (held.is_doubted and self._is_young(held)):
            raise Unauthorized("not_permitted")
        self._remember(call, held)
        held.refused = self._in_place = True
        return await self.renew()

    def drop(self, refused: Token, call: str) -> None:
        """A poll was answered 401 with this token: the next call logs in. Raises LoginRefused when the account is refused."""
        held = self._held
        if held is None or held.token.access_token != refused.access_token:
            return
        self._remember(call, held)
        self._held, self._in_place = None, True
        if held.is_doubted and self._is_young(held):
            raise self._refuse("unauthorized_again", most_s=self._waits.limited_s)

    def _is_young(self, held: _Held) -> bool:
        return self._clock.monotonic() - held.since <= JUST_S

    def _remember(self, call: str, held: _Held) -> None:
        is_young = held.worked > 0 and held.token.expires_utc - self._clock.now() > YOUNG
        self._refused_calls[call] = held.token if is_young else None
        if len(self._refused_calls) > MOST_REFUSED_CALLS:
            self._refused_calls.popitem(last=False)

    async def close(self) -> None:
        """End a login that is under way."""
        if self._login is not None:
            self._login.cancel()
            await asyncio.wait([self._login])

    # ---- the login ---------------------------------------------------------------------------------------------------

    async def renew(self) -> Token:
        """A new token, by one login for all callers; the old one stays in use until then."""
        if (login := self._login) is None:
            self._login = login = asyncio.create_task(self._log_in())
            login.add_done_callback(self._ended)
        try:
            return await asyncio.shield(login)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if login.cancelled() and not (caller is not None and caller.cancelling()):
                raise NotSent("login_stopped") from None  # the login was ended, not this caller
            raise

    async def _log_in(self) -> Token:
        wait = self._login_at - self._clock.monotonic()
        if wait > 0:
            waiting = NotSent("login_failed", Message("net.login_waits"))
            raise self._refused_until_then() if self._credentials_refused else waiting
        try:
            token = await self._obtain()
        except MarketplaceError as error:
            self.record_outcome(error)
            if isinstance(error, Unauthorized | Refused):
                refusal = self._refuse(error.code)
                status, until = error.http_status, refusal.until
                raise LoginRefused(refusal.code, error.code, until=until, http_status=status) from error
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
            task.exception()  # read it: asyncio would report it when all callers were cancelled

    def _put_off(self, error: MarketplaceError) -> None:
        """A login failed, and its credentials are not the reason."""
        if isinstance(error, NotSent):
            return  # `_line` waits for that
        if isinstance(error, RateLimited):
            wait = self._waits.limited_s
        else:
            self._failures += 1
            wait = self._waits.failed(self._failures, error.http_status is not None)
        self._login_answered = error.http_status is not None
        self._login_at = self._clock.monotonic() + wait
        self._credentials_refused = False

    def _refuse(self, code: str, most_s: float = math.inf) -> LoginRefused:
        """The credentials are refused, or the token of a fresh login: then for `most_s` at most."""
        now = self._clock.monotonic()
        if not (self._credentials_refused and self._login_at > now):  # else one more of the same moment
            self._refusals += 1
            wait = min(self._waits.refused(self._refusals), most_s)
            self._login_at, self._credentials_refused = now + wait, True
            log = self._log.error if most_s == math.inf or self._refusals == 1 else self._log.debug
            log("login.refused", code=code, refusals=self._refusals, wait_s=wait, remedy=Message("line.login_refused"))
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
        self._has_worked |= error is None
        if error is not None and self._has_worked:
            error.known_before()
        self._on_outcome(Outcome.OK if error is None else error.outcome)
        if isinstance(error, NotSent):
            self._line.failed()
            return
        if self._line.worked():
            self._log.info("account.line_recovered")
        if token is None or not (error is None or isinstance(error, Refused | RateLimited)):
            return
        self._refusals = 0
        dead = self._refused_calls.pop(call, None)
        if dead is not None and dead not in {token, *(known for _, known in self._deaths)}:  # ended by another login
            self._deaths.append((self._clock.monotonic(), dead))
        if self._held is not None and self._held.token.access_token == token.access_token:
            self._held.worked += 1
            self._held.refused = False

    def died_young(self) -> int:
        """How many tokens worked and were refused long before their end, within the last hour."""
        if not self._deaths:
            return 0
        since = self._clock.monotonic() - DEATHS_S
        return sum(at >= since for at, _ in self._deaths)

    def paused(self, *, polls: bool = False) -> float:
        """Seconds for which nothing of this account can leave, or no poll; 0 or less: it can."""
        login = self._login_at - self._clock.monotonic() if self._lacks_token(polls=polls) else 0.0
        return max(self._line.wait(), login)

    def _lacks_token(self, *, polls: bool) -> bool:
        return self._held is None or (self._held.refused and not polls)

    def pause_code(self) -> str:
        """The error_code of a row that waits for the end of a pause."""
        if self.is_refused():
            return "login_refused"
        if self._line.wait() > 0:
            return HELD_BACK if self._line.is_ours else "unreachable"
        # The service can be reached: the requests wait because it answers a login with an error.
        return "service_error" if self._login_answered and self.paused() > 0 else "unreachable"

    def is_refused(self, *, polls: bool = False) -> bool:
        """Whether the service refuses us: there is no token, and none can be had yet."""
        waits = self._login_at > self._clock.monotonic()
        return self._lacks_token(polls=polls) and self._credentials_refused and waits
